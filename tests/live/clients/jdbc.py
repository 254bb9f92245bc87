"""Drives Jdbc.java: one line per action."""

import os
import shutil
import signal
import subprocess

from support import die_with_parent

FOLDER = os.path.dirname(os.path.abspath(__file__))
JARS = [f"/usr/share/java/{name}.jar" for name in ("postgresql", "HikariCP", "slf4j-api", "slf4j-nop")]
AVAILABLE = shutil.which("javac") and all(map(os.path.exists, JARS))


class Jdbc:
    def __enter__(self):
        self.child = subprocess.Popen(["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(JARS), os.path.join(FOLDER, "Jdbc.java")],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        return self

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def start(self, action, argument):
        """Sends an action without waiting for its end."""
        self.child.stdin.write(f"{action} {argument}\n")
        self.child.stdin.flush()

    def finish(self):
        """What the action gave: "ok", or SQLSTATE and text."""
        answer = self.child.stdout.readline()
        assert answer, "the client process has ended"
        return answer.rstrip("\n")

    def do(self, action, argument):
        self.start(action, argument)
        return self.finish()
