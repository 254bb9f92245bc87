"""The test of the PostgreSQL history test: against a build that checks the token when a session begins, and lets the
session live when a higher token comes, it must find a stale commit. With guard: transaction the same build checks the
token when a transaction begins, and does not hold on to the mark.

$FENCEGATE_CHECK_THEN_FORWARD names the binary. Luck is involved, so several seeds are tried."""

import os
import unittest

from history.pg_run import PgRun
from live_test import main

ATTEMPTS = 6


class PgHistoryCanFail(unittest.TestCase):
    def test_finds_check_then_forward_of_sessions(self):
        self.finds_check_then_forward("session")

    def test_finds_check_then_forward_of_transactions(self):
        self.finds_check_then_forward("transaction")

    def finds_check_then_forward(self, guard):
        if "FENCEGATE_CHECK_THEN_FORWARD" not in os.environ:
            self.fail("$FENCEGATE_CHECK_THEN_FORWARD does not name a binary with a broken fence")
        for _ in range(ATTEMPTS):
            run = PgRun(os.environ["FENCEGATE_CHECK_THEN_FORWARD"], takeovers=60, seconds_max=40, open_marks=True,
                        guard=guard)
            verdict = run.verdict()
            self.assertGreater(verdict.noted["old holder refused at its start"], 0,
                               "a binary that rejects nothing has no fence to be broken")
            if verdict.violations["stale"]:
                return
        self.fail("no stale commit was found: this history test would not notice a broken fence")


if __name__ == "__main__":
    main()
