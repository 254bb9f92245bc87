"""No stale write through an HTTP gate, whatever is frozen, killed or cut, where its routes are atomic; no overtaken
forward that its client takes for done, where they are held; and the judge that says so.

$FENCEGATE_HISTORY_SECONDS: go on for that long."""

import os
import unittest

import support
from history.http_forwards import judge_forwards, read_forwards
from history.http_run import HttpRun
from history.records import History, Write


class Forwards(unittest.TestCase):
    """Hand-made logs of an upstream, and what the judge makes of them."""

    def judge(self, log, *outcomes, guarantee="held"):
        """`log`: `b1 e1 b2`, with the tokens of what begins and ends; `outcomes`: of tokens 1, 2, …, one write each."""
        lines = [f"{word[0]} r {word[1:]}:w{word[1:]}:0" for word in log.split()]
        histories = [History(f"w{token}", "r", {0: Write(token, 1, outcome)})
                     for token, outcome in enumerate(outcomes, 1)]
        return judge_forwards({"r": read_forwards(lines)["r"]}, histories, guarantee)

    def violations(self, *args, **more):
        return dict(self.judge(*args, **more).violations)

    def test_accepts_one_after_the_other(self):
        verdict = self.judge("b1 e1 b2 e2", "acknowledged", "acknowledged")
        self.assertEqual((dict(verdict.violations), verdict.takeovers), ({}, 1))

    def test_accepts_an_overtaken_forward_whose_client_does_not_know(self):
        for log in ("b1 b2 e1 e2", "b2 b1 e1 e2", "b2 e2 b1"):
            with self.subTest(log):
                verdict = self.judge(log, "unknown", "acknowledged")
                self.assertEqual((dict(verdict.violations), verdict.noted["held, overtaken, unknown"]), ({}, 1))

    def test_sees_a_newer_forward_that_did_not_wait(self):
        self.assertEqual(self.violations("b1 b2 e1 e2", "acknowledged", "acknowledged"), {"untold": 1})

    def test_sees_a_stale_forward_that_was_acknowledged(self):
        self.assertEqual(self.violations("b2 e2 b1 e1", "acknowledged", "acknowledged"), {"untold": 1, "stale": 1})

    def test_sees_a_rejected_forward(self):
        self.assertEqual(self.violations("b1 e1", "rejected"), {"phantom": 1})
        self.assertEqual(self.violations("b2 e2 b1 e1", "rejected", "acknowledged"), {"phantom": 1, "stale": 1})

    def test_sees_a_forward_that_was_lost_or_sent_twice(self):
        self.assertEqual(self.violations("b2", "acknowledged", "unknown"), {"lost": 1})
        self.assertEqual(self.violations("b1 e1 b1 e1", "unknown"), {"repeated": 1})
        self.assertEqual(self.violations("b2 b1 b1", "unknown", "unknown"), {"repeated": 1})

    def test_counts_where_forwards_are_only_checked(self):
        verdict = self.judge("b2 e2 b1 e1", "acknowledged", "acknowledged", guarantee="checked")
        self.assertEqual(dict(verdict.violations), {})
        self.assertEqual(verdict.noted["checked, overtaken, acknowledged"], 1)
        self.assertEqual(self.violations("b2 e2 b1 e1", "rejected", "acknowledged", guarantee="checked"),
                         {"phantom": 1, "stale": 1})


class RealHistory(unittest.TestCase):
    def test_no_stale_write_while_all_is_frozen_killed_and_cut(self):
        seconds = float(os.environ.get("FENCEGATE_HISTORY_SECONDS") or 0)
        takeovers = 500
        verdict = HttpRun(takeovers=10**9 if seconds else takeovers, seconds_max=seconds or 150).verdict()
        self.assertEqual(dict(verdict.violations), {}, "\n".join(verdict.examples))
        self.assertGreaterEqual(verdict.takeovers, takeovers * 9 // 10)
        for kind in ("sql", "redis", "held", "checked"):
            self.assertGreater(verdict.noted[f"{kind} acknowledged"], 0, kind)
            self.assertGreater(verdict.noted[f"{kind} rejected 412"], 0, f"no old holder tried to write: {kind}")
        self.assertGreater(verdict.noted["held unknown 504"], 0, "no forward was cut")
        # What `checked` is not: a forward was done behind one of a newer holder, and its client was told "done".
        self.assertGreater(verdict.noted["checked, overtaken, acknowledged"], 0, "checked did as well as held")


if __name__ == "__main__":
    support.main()
