"""No stale write through an HTTP gate, whatever is frozen, killed or cut, where its routes are atomic; no overtaken
forward that its client takes for done, where they are held; no token that was good twice, where it is good for one
request, and no 409 that proves nothing; and the judge that says so.

$FENCEGATE_HISTORY_SECONDS: go on for that long."""

import os
import unittest

from history.checker import Verdict
from history.http_forwards import judge_forwards, read_forwards
from history.http_once import judge_once, marks_in
from history.http_run import ONCE, HttpRun
from history.records import History, Write
from live_test import main


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


class Once(unittest.TestCase):
    """Of routes on which each token is good for one request."""

    def violations(self, entries, marks, *writes):
        """`entries`: tokens of what was applied; `writes`: (token, answer)."""
        history = History("w", "r", {seq: Write(token, seq, "rejected", answer)
                                     for seq, (token, answer) in enumerate(writes)})
        verdict = Verdict()
        judge_once(verdict, {"r": [f"{token}:w:0" for token in entries]}, [history], {"r": marks})
        return dict(verdict.violations)

    def test_accepts_what_was_applied_once(self):
        self.assertEqual(self.violations([1, 2, 4], [1, 2, 4], (2, "409 used"), (3, "412 stale"), (5, "503 down")), {})

    def test_sees_a_token_that_was_applied_twice(self):
        self.assertEqual(self.violations([1, 2, 2], [1, 2, 2]), {"twice": 1})

    def test_sees_a_proof_of_nothing(self):
        self.assertEqual(self.violations([1, 3], [1, 3], (2, "409 used")), {"unproven": 1})

    def test_sees_marks_that_fall_or_rise_without_their_write(self):
        for marks in ([1, 2, 3], [2, 1], [1, 3], [1], []):
            with self.subTest(marks):
                self.assertEqual(self.violations([1, 2], marks), {"mark": 1})

    def test_reads_marks_in_an_append_only_file(self):
        def words(*all_words):
            return b"*%d\r\n" % len(all_words) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in all_words)
        log = (words(b"SELECT", b"0") + words(b"MULTI") + words(b"SET", b"fencegate:mark:{r}", b"3")
               + words(b"RPUSH", b"log:r", b"3:w:0\r\n*") + words(b"EXEC") + words(b"SET", b"fencegate:epoch", b"e")
               + words(b"SET", b"fencegate:mark:{s}", b"7") + words(b"SET", b"fencegate:mark:{r}", b"4"))
        self.assertEqual(marks_in(log), {"r": [3, 4], "s": [7]})


class RealHistory(unittest.TestCase):
    def test_no_stale_write_while_all_is_frozen_killed_and_cut(self):
        seconds = float(os.environ.get("FENCEGATE_HISTORY_SECONDS") or 0)
        takeovers = 900
        verdict = HttpRun(takeovers=10**9 if seconds else takeovers, seconds_max=seconds or 400).verdict()
        self.assertEqual(dict(verdict.violations), {}, "\n".join(verdict.examples))
        self.assertGreaterEqual(verdict.takeovers, takeovers * 9 // 10)
        for kind in ("sql", "redis", "held", "checked"):
            self.assertGreater(verdict.noted[f"{kind} acknowledged"], 0, kind)
            self.assertGreater(verdict.noted[f"{kind} rejected 412"], 0, f"no old holder tried to write: {kind}")
        for kind in ONCE:
            self.assertGreater(verdict.noted[f"{kind} acknowledged"], 0, kind)
            for status in (409, 412):
                self.assertGreater(verdict.noted[f"{kind} rejected {status}"], 0, f"no token was brought twice: {kind}")
        self.assertGreater(verdict.noted["held unknown 504"], 0, "no forward was cut")
        # What `checked` is not: a forward was done behind one of a newer holder, and its client was told "done".
        self.assertGreater(verdict.noted["checked, overtaken, acknowledged"], 0, "checked did as well as held")


if __name__ == "__main__":
    main()
