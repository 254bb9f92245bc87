"""The random conversations notice what a guard lacks."""

import os
import unittest
from unittest import mock

import pg_versions
from test_pg_guard_history import SEED, GuardHistoryTest, History

SECONDS, TRIES = 5, 20


class GuardHistoryCanFail(GuardHistoryTest):
    def test_they_notice_each_part_that_is_lacking(self):
        binary = os.environ.get("FENCEGATE_GUARD")
        if not binary:
            self.fail("$FENCEGATE_GUARD does not name a binary with a broken guard")
        for part in ("block", "again"):
            if part == "block" and pg_versions.version() >= 18:
                continue  # its CALL and DO commit in no implicit transaction
            with self.subTest(part), mock.patch.dict(os.environ, FENCEGATE_BREAK=part):
                self.assertTrue(any(self.stale(binary, SEED + number) for number in range(TRIES)))

    def stale(self, binary, seed):
        server, gates = self.served(False, binary=binary)
        history = History(server, gates, False, SECONDS, seed)
        history.run()
        found = history.violations()["stale"]
        print(f"{dict(history.counted)}: {len(found)} stale")
        return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
