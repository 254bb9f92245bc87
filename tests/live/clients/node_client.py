"""Drives a client script in JavaScript: one JSON line per action."""

import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import threading

from processes import die_with_parent

FOLDER = os.path.dirname(os.path.abspath(__file__))


def install_packages(folder=FOLDER):
    """Once, with the exact versions of the folder's package.json; several test files may come here at the same time."""
    with open(os.path.join(folder, "package.json")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = json.load(lock)["dependencies"]
        if {name: _installed(folder, name) for name in wanted} == wanted:
            return
        if not shutil.which("npm"):
            raise RuntimeError("the live tests of JavaScript clients need Node.js 18 or later, and npm")
        subprocess.run(["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
                       cwd=folder, check=True, timeout=300)


def _installed(folder, name):
    try:
        with open(os.path.join(folder, "node_modules", name, "package.json")) as file:
            return json.load(file)["version"]
    except FileNotFoundError:
        return None


class ClientError(Exception):
    """The action failed in the client, as it would in an application: "Name: message"."""


class NodeClient:
    def __init__(self, script, port, tag, protocol):
        self.command = ["node", os.path.join(FOLDER, script), str(port), tag, str(protocol)]

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      process_group=0, preexec_fn=die_with_parent)
        self.answers = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def _read(self):
        try:
            for line in self.child.stdout:
                self.answers.put(json.loads(line))
        except ValueError:
            pass  # not JSON, or closed by __exit__
        self.answers.put(None)

    def start(self, action, *args):
        """Sends an action without waiting for its end."""
        self.child.stdin.write(json.dumps({"action": action, "args": args}) + "\n")
        self.child.stdin.flush()

    def finish(self, deadline=30):
        """What the first unfinished action gave; ClientError when it failed."""
        try:
            answer = self.answers.get(timeout=deadline)
        except queue.Empty:
            raise AssertionError(f"the client does not come back within {deadline} s") from None
        if answer is None:
            raise AssertionError("the client process has ended")
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["value"]

    def answered(self):
        """True when `finish` will not wait."""
        return not self.answers.empty()

    def do(self, action, *args, deadline=30):
        self.start(action, *args)
        return self.finish(deadline)
