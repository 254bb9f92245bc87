"""The test of the HTTP history test: against a build whose stores raise the mark, or find it equal, and then write, it
must find a stale write, in PostgreSQL as well as in Redis; and where a token is good for one request, a mark that rose
without its write, which is a 409 that proves nothing.

$FENCEGATE_CHECK_THEN_FORWARD names the binary. Luck is involved, so several seeds are tried."""

import os
import time
import unittest
from collections import Counter

from history.http_run import HttpRun, kind_of
from live_test import main

ATTEMPTS = 8
SIGNS = {("sql", "stale"), ("redis", "stale"), ("oncesql", "mark"), ("onceredis", "mark")}


class Slowly(HttpRun):
    """There is time between a raise in Redis and its write, so that trouble falls into it on a fast machine, too. It goes
    on until old holders were rejected, and others were not, on routes of each kind that can show a sign."""

    looks_again = 0

    def make_back(self, upstream):
        proxies = super().make_back(upstream)
        proxies.redis.delay = 0.02
        return proxies

    def is_over(self, takeovers, chaos):
        if takeovers < self.takeovers or time.monotonic() < self.looks_again:
            return False
        self.looks_again = time.monotonic() + 1
        seen = {(kind_of(history.resource), write.outcome, write.code)
                for history in self.histories() for write in history.writes.values()}
        return all((kind, "rejected", "412") in seen and any(one[:2] == (kind, "acknowledged") for one in seen)
                   for kind, _ in SIGNS)


class HttpHistoryCanFail(unittest.TestCase):
    def test_finds_check_then_forward(self):
        if "FENCEGATE_CHECK_THEN_FORWARD" not in os.environ:
            self.fail("$FENCEGATE_CHECK_THEN_FORWARD does not name a binary with a broken fence")
        noted, found = Counter(), set()
        for _ in range(ATTEMPTS):
            noted += Slowly(os.environ["FENCEGATE_CHECK_THEN_FORWARD"], takeovers=120, seconds_max=40).verdict().noted
            found = {(kind, sign) for kind, sign in SIGNS if noted[f"{kind} {sign}"]}
            if found == SIGNS:
                break
        for kind, _ in SIGNS:
            self.assertGreater(noted[f"{kind} rejected 412"], 0, "a binary that rejects nothing has no fence to be broken")
            self.assertGreater(noted[f"{kind} acknowledged"], 0, "one that admits nothing has a fence")
        self.assertEqual(found, SIGNS, "this history test would not notice a broken fence")


if __name__ == "__main__":
    main()
