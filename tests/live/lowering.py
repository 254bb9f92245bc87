"""What tests of `fencegate marks lower` have in common."""

import contextlib
import json
import os
import subprocess
import threading

from cut_proxy import CutProxy
from live_test import LiveTest
from processes import LOOPBACK, PATIENCE, eventually, free_port

POISON = 2**63 - 1
REASON = ("--reason", "a typing error")


class HeldCommand(CutProxy):
    """Keeps what a client says with `what` in it, and whatever it says behind that, until it may go on."""

    def __init__(self, target_port, what):
        super().__init__(target_port)
        self.what, self.passing, self.holds = what, threading.Event(), False

    def relay(self, pair, sink, data):
        if sink is pair[1] and self.what in data:
            self.holds = True
            self.passing.wait()
        super().relay(pair, sink, data)

    @contextlib.contextmanager
    def while_it_stands_still(self, command):
        """`command` runs beside what is done here, and stands still meanwhile."""
        thread = threading.Thread(target=command)
        thread.start()
        try:
            eventually(lambda: self.holds)
            yield
        finally:
            self.passing.set()
            thread.join()


class LowerTest(LiveTest):
    """`folder`: where the configuration is, of the one gate that configure() was given."""

    folder = None

    def configure(self, gate):
        self.path = os.path.join(self.folder, "fencegate.yaml")
        with open(self.path, "w") as file:
            json.dump({"gates": [gate | {"listen": f"{LOOPBACK}:{free_port()}"}]}, file)

    def marks(self, *words):
        """(status, what it printed, what it complained of)"""
        done = subprocess.run([os.environ["FENCEGATE"], "marks", *words, "-c", self.path], text=True, capture_output=True,
                              timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def lower(self, to, *more, resource="orders", reason=REASON):
        return self.marks("lower", resource, "--to", str(to), *reason, *more)

    def lowered(self, to, *more, resource="orders"):
        status, printed, said = self.lower(to, *more, resource=resource)
        self.assertEqual((status, said), (0, ""))
        self.assertIn(f"and is {to}; running gates follow within seconds", printed)

    def assert_follows(self, gate, times=1):
        self.assertTrue(eventually(lambda: gate.log().count("an operator lowered the mark") >= times), gate.log())
