"""The stores of HTTP gates, driven by tests/live/probe/store_probe.cpp.

    with PgProbe(server, base.name) as probe:
        asked = probe.ask("hold", "orders=34")
        self.assertEqual(asked.answer(), ["held"])
"""

import itertools
import os
import queue
import subprocess
import threading

from processes import PATIENCE, Process, die_with_parent

BINARY = os.environ.get("STORE_PROBE", "store_probe")


class Asked:
    """A request; its answers come in their order."""

    def __init__(self, probe, name):
        self.probe = probe
        self.name = name
        self.answers = queue.Queue()

    def answer(self, deadline=PATIENCE):
        try:
            return self.answers.get(timeout=deadline)
        except queue.Empty:
            raise AssertionError("there was no answer") from None

    def answered(self):
        return not self.answers.empty()

    def alive(self):
        """Of a hold."""
        self.probe.send(self.name, "alive")
        while (words := self.answer())[0] != "alive":
            self.answers.put(words)  # told meanwhile
        return words[1] == "yes"

    def release(self):
        self.probe.send(self.name, "release")
        return self.answer()

    def leave(self):
        """The session that asked ends."""
        self.probe.send(self.name, "leave")
        return self.answer()


class Probe(Process):
    title = "store-probe"

    def __init__(self, *arguments):
        super().__init__()
        self.arguments = [str(one) for one in arguments]
        self.asked = {}
        self.numbers = itertools.count()

    def start(self, deadline=PATIENCE):
        with open(self.log_path, "ab") as log:
            self.child = subprocess.Popen([BINARY, *self.arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=log, text=True, process_group=0, preexec_fn=die_with_parent)
        threading.Thread(target=self._read, args=(self.child.stdout,), daemon=True).start()

    def _read(self, lines):
        for line in lines:
            name, *words = line.rstrip("\n").split("\t")
            self.asked[name].answers.put(words)

    def __exit__(self, *what):
        super().__exit__(*what)
        self.child.stdin.close()

    def ask(self, what, *words, deadline_ms=0):
        asked = Asked(self, f"q{next(self.numbers)}")
        self.asked[asked.name] = asked
        self.send(asked.name, what, deadline_ms, *words)
        return asked

    def send(self, *words):
        self.child.stdin.write("\t".join(str(one) for one in words) + "\n")
        self.child.stdin.flush()

    # Each waits for the answer.
    def look(self, *names):
        return self.ask("look", *names).answer()

    def seal(self, tag, max_step=0):
        return self.ask("seal", tag, max_step).answer()

    def run(self, tag, *words):
        return self.ask("run", tag, *words).answer()

    def wait_for_store(self):
        """Returns when the store answers."""
        while self.look("none")[0] != "found":
            self.assert_running()


class PgProbe(Probe):
    def __init__(self, port, database, user="gate", pool=4, grace_ms=5000):
        super().__init__("postgres", user, database, port, pool, grace_ms)


class RedisProbe(Probe):
    def __init__(self, port):
        super().__init__("redis", port)


class LinkProbe(Probe):
    """One connection to a server, at the first of these addresses where one is; `opening` tells what came of it."""

    def __init__(self, port, database, *addresses, user="gate"):
        super().__init__("connect", user, database, port, *addresses)
        self.opening = self.asked["link"] = Asked(self, "link")
