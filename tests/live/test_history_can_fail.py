"""The test of the history test: against builds whose fence is broken on purpose it must find a stale write.

$FENCEGATE_CHECK_THEN_FORWARD and $FENCEGATE_ENVELOPE name the binaries. Luck is involved, so several seeds are tried."""

import os
import unittest

from history.run import Run
from live_test import main

ATTEMPTS = 6


class HistoryCanFail(unittest.TestCase):
    def find_stale_write(self, variable, **options):
        if variable not in os.environ:
            self.fail(f"${variable} does not name a binary with a broken fence")
        for _ in range(ATTEMPTS):
            verdict = Run(os.environ[variable], takeovers=400, seconds_max=40, **options).verdict()
            self.assertGreater(verdict.codes["FENCED"], 0, "a binary that rejects nothing has no fence to be broken")
            if verdict.violations["stale"]:
                return
        self.fail("no stale write was found: this history test would not notice a broken fence")

    def test_finds_check_then_forward(self):
        self.find_stale_write("FENCEGATE_CHECK_THEN_FORWARD")

    def test_finds_the_envelope_that_fails_open(self):
        self.find_stale_write("FENCEGATE_ENVELOPE", script_flush=True)


if __name__ == "__main__":
    main()
