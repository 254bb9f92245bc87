"""The test of the attacks: against a program that lacks one part of guard: transaction, they must find a stale commit.

$FENCEGATE_GUARD names the binary, $FENCEGATE_BREAK tells it what to lack (tests/mutants/guard.patch). $FENCEGATE_LACKING: words;
only these of PARTS."""

import os
import unittest
from unittest import mock

import pg_versions
from test_pg_attacks import Attacks

TRIES = 20
# What is lacking, and conversations that show it.
PARTS = {
    "parse": ("parse writes", "bind writes"),
    "block": ("call commit", "do commit"),
    "again": ("commit in middle", "ext commit inside"),
    "refusal": ("chain in fn",),
    "translation": ("commit in middle", "q block in one"),
    "unnamed": ("unnamed",),
}
LACKING = os.environ.get("FENCEGATE_LACKING", "").split() or list(PARTS)


class AttacksCanFail(Attacks):
    def test_they_notice_each_part_that_is_lacking(self):
        binary = os.environ.get("FENCEGATE_GUARD")
        if not binary:
            self.fail("$FENCEGATE_GUARD does not name a binary with a broken guard")
        for part in LACKING:
            if part == "block" and pg_versions.version() >= 18:
                continue  # its CALL and DO commit in no implicit transaction
            with self.subTest(part), mock.patch.dict(os.environ, FENCEGATE_BREAK=part):
                server, gate = self.served(False, binary=binary)
                # A raise meets the statement that it has to meet not each time where the machine is busy.
                self.assertTrue(any(self.stale(gate, server, PARTS[part]) for _ in range(TRIES)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
