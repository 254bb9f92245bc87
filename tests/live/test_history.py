"""No stale write, whatever is frozen, killed or cut; and the checker that says so can see one."""

import unittest

from history.checker import check
from history.records import History, Write
from history.run import Run
from live_test import main


class Checker(unittest.TestCase):
    """Hand-made histories, each with one thing wrong."""

    def history(self, writer="a", writes=(), bound=()):
        made = {seq: Write(token, connection=1, outcome=outcome, answer="") for seq, (token, outcome) in enumerate(writes)}
        return History(writer, "r", made, list(bound))

    def violations(self, entries, *histories):
        return dict(check({"r": entries}, histories).violations)

    def test_accepts_a_correct_history(self):
        a = self.history("a", [(1, "acknowledged"), (1, "unknown"), (1, "unknown"), (1, "rejected")], [(1, 0)])
        b = self.history("b", [(2, "acknowledged")], [(2, 2)])
        self.assertEqual(self.violations(["1:a:0", "1:a:2", "2:b:0"], a, b), {})

    def test_sees_a_token_that_decreases(self):
        a, b = self.history("a", [(1, "unknown")]), self.history("b", [(2, "acknowledged")])
        self.assertEqual(self.violations(["2:b:0", "1:a:0"], a, b), {"stale": 1})

    def test_sees_a_stale_write_between_a_holders_bind_and_its_first_write(self):
        a = self.history("a", [(1, "acknowledged"), (1, "acknowledged")])
        b = self.history("b", [(2, "acknowledged")], [(2, 1)])
        self.assertEqual(self.violations(["1:a:0", "1:a:1", "2:b:0"], a, b), {"stale": 1})

    def test_sees_a_lost_write(self):
        self.assertEqual(self.violations([], self.history("a", [(1, "acknowledged")])), {"lost": 1})

    def test_sees_a_repeated_write(self):
        self.assertEqual(self.violations(["1:a:0", "1:a:0"], self.history("a", [(1, "unknown")])), {"repeated": 1})

    def test_sees_a_rejected_write_that_was_applied(self):
        self.assertEqual(self.violations(["1:a:0"], self.history("a", [(1, "rejected")])), {"phantom": 1})

    def test_sees_a_write_that_nobody_sent(self):
        self.assertEqual(self.violations(["1:a:7"], self.history("a")), {"phantom": 1})
        self.assertEqual(self.violations(["2:a:0"], self.history("a", [(1, "unknown")])), {"phantom": 1})

    def test_sees_writes_out_of_order(self):
        a = self.history("a", [(1, "acknowledged"), (1, "acknowledged")])
        self.assertEqual(self.violations(["1:a:1", "1:a:0"], a), {"order": 1})

    def test_sees_an_answer_that_is_neither(self):
        self.assertEqual(self.violations([], self.history("a", [(1, "unexpected")])), {"unexpected": 1})


class RealHistory(unittest.TestCase):
    def judge(self, run):
        verdict = run.verdict()
        self.assertGreater(run.server_freezes, 0)
        self.assertEqual(dict(verdict.violations), {}, "\n".join(verdict.examples))
        self.assertGreaterEqual(verdict.takeovers, 500)
        self.assertGreater(verdict.codes["FENCED"], 0, "no old holder tried to write")
        self.assertGreater(verdict.outcomes["acknowledged"], verdict.takeovers)

    def test_no_stale_write_while_all_is_frozen_killed_and_cut(self):
        self.judge(Run(takeovers=1500, seconds_max=400))

    def test_no_stale_write_while_each_keeps_to_its_own_link(self):
        self.judge(Run(takeovers=600, seconds_max=400, share="off"))

    def test_no_stale_write_while_scripts_are_flushed(self):
        self.judge(Run(takeovers=600, seconds_max=400, script_flush=True))

    def test_no_stale_and_no_lost_write_while_redis_is_killed_and_comes_back(self):
        self.judge(Run(takeovers=600, seconds_max=400, server_dies=True))  # it runs until three deaths, too


if __name__ == "__main__":
    main()
