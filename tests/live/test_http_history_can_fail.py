"""The test of the HTTP history test: against a build whose stores raise the mark, or find it equal, and then write, it
must find a stale write, in PostgreSQL as well as in Redis; and where a token is good for one request, a mark that rose
without its write, which is a 409 that proves nothing.

$FENCEGATE_CHECK_THEN_FORWARD names the binary. Luck is involved, so several seeds are tried."""

import os
import unittest

import support
from history.http_run import HttpRun

ATTEMPTS = 6
SIGNS = {("sql", "stale"), ("redis", "stale"), ("oncesql", "mark"), ("onceredis", "mark")}


class Slowly(HttpRun):
    """There is time between a raise in Redis and its write, so that trouble falls into it on a fast machine, too."""

    def make_back(self, upstream):
        proxies = super().make_back(upstream)
        proxies.redis.delay = 0.002
        return proxies


class HttpHistoryCanFail(unittest.TestCase):
    def test_finds_check_then_forward(self):
        if "FENCEGATE_CHECK_THEN_FORWARD" not in os.environ:
            self.fail("$FENCEGATE_CHECK_THEN_FORWARD does not name a binary with a broken fence")
        found = set()
        for _ in range(ATTEMPTS):
            verdict = Slowly(os.environ["FENCEGATE_CHECK_THEN_FORWARD"], takeovers=250, seconds_max=40).verdict()
            for kind, sign in SIGNS:
                self.assertGreater(verdict.noted[f"{kind} rejected 412"], 0,
                                   "a binary that rejects nothing has no fence to be broken")
                self.assertGreater(verdict.noted[f"{kind} acknowledged"], 0, "one that admits nothing has a fence")
                if verdict.noted[f"{kind} {sign}"]:
                    found.add((kind, sign))
            if found == SIGNS:
                return
        self.fail(f"not found: {SIGNS - found}. This history test would not notice a broken fence")


if __name__ == "__main__":
    support.main()
