"""The test of the HTTP history test: against a build whose stores raise the mark, or find it equal, and then write, it
must find a stale write, in PostgreSQL as well as in Redis.

$FENCEGATE_CHECK_THEN_FORWARD names the binary. Luck is involved, so several seeds are tried."""

import os
import unittest

import support
from history.http_run import HttpRun

ATTEMPTS = 6


class HttpHistoryCanFail(unittest.TestCase):
    def test_finds_check_then_forward(self):
        if "FENCEGATE_CHECK_THEN_FORWARD" not in os.environ:
            self.fail("$FENCEGATE_CHECK_THEN_FORWARD does not name a binary with a broken fence")
        found = set()
        for _ in range(ATTEMPTS):
            verdict = HttpRun(os.environ["FENCEGATE_CHECK_THEN_FORWARD"], takeovers=250, seconds_max=40).verdict()
            for kind in ("sql", "redis"):
                self.assertGreater(verdict.noted[f"{kind} rejected 412"], 0,
                                   "a binary that rejects nothing has no fence to be broken")
                if verdict.noted[f"{kind} stale"]:
                    found.add(kind)
            if found == {"sql", "redis"}:
                return
        self.fail(f"stale writes were found only in {found or 'nothing'}: this history test would not notice a broken "
                  "fence")


if __name__ == "__main__":
    support.main()
