"""No stale commit in PostgreSQL, whatever is frozen, killed or cut, with either guard; and the reader of the server's
log that says so.

$FENCEGATE_HISTORY_SECONDS: go on for that long."""

import os
import sys
import unittest

from history.checker import check
from history.pg_clients import Failure
from history.pg_commits import Unreadable, read_commits
from history.pg_run import PgRun
from history.records import History, Write
from live_test import main


def mark(kind, resource, value):
    return f"table fencegate.marks: {kind}: resource[text]:'{resource}' mark[bigint]:{value} " \
           "raised_at[timestamp with time zone]:'2030-01-01 00:00:00+00'"


def write(token, seq, writer="a", resource="r"):
    return f"table public.writes: INSERT: resource[text]:'{resource}' token[bigint]:{token} writer[text]:'{writer}' " \
           f"seq[integer]:{seq} log_position[pg_lsn]:'0/10'"


def log(*transactions):
    """Each a list of changes; the first one's commit ends at 100, the next one's at 200."""
    rows = []
    for number, changes in enumerate(transactions, 1):
        texts = [f"BEGIN {number}", *changes, f"COMMIT {number}"]
        rows += [(100 * number if text.startswith("COMMIT") else 7, str(number), text) for text in texts]
    return rows


class Commits(unittest.TestCase):
    """Hand-made logs, and what the checker makes of them."""

    def violations(self, *transactions, outcome="acknowledged", bound=()):
        commits = read_commits(log(*transactions))
        written = [entry.split(":") for entry in commits.lists["r"]]
        histories = [History("a", "r", {int(seq): Write(int(token), 1, outcome) for token, _, seq, _ in written},
                             [(token, commits.length_at("r", position)) for token, position in bound])]
        return dict(check(commits.lists, histories, commits.marks).violations)

    def test_keeps_the_order_of_commits(self):
        commits = read_commits(log([write(1, 3), write(1, 4), write(9, 0, "b", "s")], [write(2, 0, "b")]))
        self.assertEqual([entry.rsplit(":", 1)[0] for entry in commits.lists["r"]], ["1:a:3", "1:a:4", "2:b:0"])
        self.assertEqual([entry.rsplit(":", 1)[0] for entry in commits.lists["s"]], ["9:b:0"])

    def test_knows_where_each_mark_was_set(self):
        commits = read_commits(log([mark("INSERT", "r", 1)], [write(1, 0)], [mark("UPDATE", "r", 2)], [write(2, 1)]))
        self.assertEqual(commits.marks["r"], [(1, 0), (2, 1)])

    def test_counts_what_was_committed_up_to_a_position(self):
        commits = read_commits(log([write(1, 0), write(1, 1)], [], [write(2, 2)]))
        self.assertEqual([commits.length_at("r", position) for position in (99, 100, 299, 300)], [0, 2, 2, 3])

    def test_refuses_a_log_that_it_does_not_understand(self):
        for text in ("table public.writes: DELETE: (no-tuple-data)", "table fencegate.marks: TRUNCATE: (no-flags)",
                     "message: transactional: 1"):
            with self.subTest(text), self.assertRaises(Unreadable):
                read_commits(log([text]))

    def test_accepts_a_correct_log(self):
        log_of_two = [mark("INSERT", "r", 1)], [write(1, 0)], [mark("UPDATE", "r", 2)], [write(2, 1)]
        self.assertEqual(self.violations(*log_of_two, bound=[(1, 150), (2, 350)]), {})

    def test_sees_a_stale_commit_behind_the_mark(self):
        behind = [mark("INSERT", "r", 1)], [mark("UPDATE", "r", 2)], [write(1, 0)]
        self.assertEqual(self.violations(*behind), {"stale": 1})

    def test_sees_a_stale_commit_behind_what_a_holder_read(self):
        self.assertEqual(self.violations([mark("INSERT", "r", 1)], [write(1, 0)], bound=[(2, 150)]), {"stale": 1})

    def test_sees_a_mark_that_falls(self):
        self.assertEqual(self.violations([mark("INSERT", "r", 2)], [mark("UPDATE", "r", 1)]), {"mark": 1})

    def test_sees_a_write_ahead_of_its_mark(self):
        ahead = [mark("INSERT", "r", 1)], [write(2, 0)], [mark("UPDATE", "r", 2)]
        self.assertEqual(self.violations(*ahead), {"unarmed": 1})

    def test_sees_a_rejected_write_that_was_committed(self):
        self.assertEqual(self.violations([mark("INSERT", "r", 1)], [write(1, 0)], outcome="rejected"), {"phantom": 1})


class Answers(unittest.TestCase):
    def test_reads_what_a_rejection_says(self):
        cut = Failure('FATAL:  token 1 of r is below mark 2\nDETAIL:  {"resource":"r","applied":"unknown"}', "ZF001")
        self.assertEqual((cut.stale, cut.applied, cut.bare_end), (True, "unknown", False))
        refused = Failure('FATAL:  token 1 of r is below mark 2; not applied\nDETAIL:  {"resource":"r","applied":"no"}')
        self.assertEqual((refused.stale, refused.applied, refused.bare_end), (True, "no", False))

    def test_knows_the_bare_end_of_a_session(self):
        for failure in (Failure("FATAL:  57P01: terminating connection due to administrator command", "57P01"),
                        Failure("FATAL:  terminating connection due to administrator command")):
            self.assertTrue(failure.bare_end)
        self.assertFalse(Failure("server closed the connection unexpectedly").bare_end)


class HistoryTest(unittest.TestCase):
    def history(self, takeovers, guard):
        """→ its verdict, when there was no violation and the fence had something to do."""
        seconds = float(os.environ.get("FENCEGATE_HISTORY_SECONDS") or 0)
        verdict = PgRun(takeovers=10**9 if seconds else takeovers, seconds_max=seconds or 400, guard=guard).verdict()
        self.assertEqual(dict(verdict.violations), {}, "\n".join(verdict.examples))
        self.assertGreaterEqual(verdict.takeovers, takeovers - 10)
        self.assertGreater(verdict.noted["old holder refused at its start"], 0, "no old holder tried to come back")
        self.assertGreater(verdict.outcomes["acknowledged"], verdict.takeovers)
        for way in ("single", "transaction", "copy", "function", "pipeline"):
            self.assertGreater(verdict.noted[f"{way} kept"], 0, way)
        return verdict


@unittest.skipIf(len(sys.argv) == 1, "the longer one says the same")
class ShortHistory(HistoryTest):
    def test_no_stale_commit(self):
        self.history(40, "session")


class RealHistory(HistoryTest):
    def test_no_stale_commit_while_all_is_frozen_killed_and_cut(self):
        verdict = self.history(310, "session")
        self.assertGreater(verdict.noted["cut inside a transaction, applied: no"], 0, "no transaction was cut")
        for way in ("call", "script"):
            self.assertGreater(verdict.noted[f"{way} kept"], 0, way)

    def test_no_stale_commit_when_each_transaction_is_guarded_also_behind_a_pooler(self):
        verdict = self.history(120, "transaction")
        self.assertGreater(verdict.noted["old holder refused at its next transaction"], 0, "nothing met a guard")
        self.assertGreater(verdict.noted["message kept"], 0)
        self.assertGreater(verdict.noted["messages kept"], 0)
        self.assertGreater(verdict.codes["2D000"], 0, "nothing tried to commit inside")
        self.assertEqual(verdict.noted["call kept"], 0)


if __name__ == "__main__":
    main()
