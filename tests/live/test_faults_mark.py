"""A mark or the epoch is damaged behind the gate's back: deleted, lowered, wrong type, no number, about to expire."""

import time

from fault_table import Bench, Fault, FaultTest, answer, own_transaction, watched_key_changes
from live_test import main
from processes import eventually
from resp import Resp

DAMAGES = {
    "deleted": lambda bench: bench.must("DEL", bench.mark_key),
    "lowered": lambda bench: bench.must("SET", bench.mark_key, "12"),
    "wrong type": lambda bench: (bench.must("DEL", bench.mark_key), bench.must("LPUSH", bench.mark_key, "33")),
    "034": lambda bench: bench.must("SET", bench.mark_key, "034"),
    "+33": lambda bench: bench.must("SET", bench.mark_key, "+33"),
    "33 and a blank": lambda bench: bench.must("SET", bench.mark_key, "33 "),
    "33.0": lambda bench: bench.must("SET", bench.mark_key, "33.0"),
    "empty": lambda bench: bench.must("SET", bench.mark_key, ""),
    "negative": lambda bench: bench.must("SET", bench.mark_key, "-1"),
    "2^63": lambda bench: bench.must("SET", bench.mark_key, "9223372036854775808"),
    "20 digits": lambda bench: bench.must("SET", bench.mark_key, "18446744073709551649"),
    "with a zero byte": lambda bench: bench.must("SET", bench.mark_key, b"33\x0034"),
    "1 MB long": lambda bench: bench.must("SET", bench.mark_key, "3" * 1_000_000),
}
HIGHER = {"034", "2^63", "20 digits", "1 MB long"}  # may stand for a token above 33: never to be passed by it


class DamagedMark(FaultTest):
    def setUp(self):
        self.bench = Bench(self, enable_debug_command="yes")

    def test_each_damage_at_each_step(self):
        for name, damage in DAMAGES.items():
            for step in (self.before_it_connects, self.between_its_writes, self.inside_its_transaction,
                         self.while_it_watches, self.what_it_watches_changes, self.what_it_watches_stays):
                with self.subTest(damage=name, step=step.__name__):
                    self.bench.settle()
                    got = step(damage)
                    self.note(name, step.__name__, got)
                    self.assertNotIn("silent", got)
                    if "done" in got:  # healed: only if the mark is the writer's token again
                        self.assertEqual(self.bench.cli.call("GET", self.bench.mark_key), b"33")
                        self.assertNotIn(name, HIGHER)
                    else:
                        self.assertNotIn(b"after", self.bench.log())
                    self.bench.must("SET", self.bench.mark_key, 34)
                    self.bench.check_recovery()

    def before_it_connects(self, damage):
        self.bench.writer(33).close()
        damage(self.bench)
        with self.bench.client(33) as client:
            return self.bench.write(client, "after")

    def between_its_writes(self, damage):
        client = self.bench.writer(33)
        self.assertEqual(self.bench.write(client, "before"), "done")
        damage(self.bench)
        return self.bench.write(client, "after")

    def inside_its_transaction(self, damage):
        client = self.bench.writer(33)
        self.assertEqual([client.call("MULTI"), client.call("RPUSH", self.bench.log_key, "after")], [b"OK", b"QUEUED"])
        damage(self.bench)
        return answer(lambda: client.call("EXEC"))

    def while_it_watches(self, damage):
        client = self.bench.writer(33)
        self.assertEqual([client.call("WATCH", "data:w"), self.bench.write(client, "before")], [b"OK", "done"])
        damage(self.bench)
        return self.bench.write(client, "after")

    def what_it_watches_changes(self, damage):
        got = watched_key_changes(self.bench, self.fault(damage))
        self.assertNotEqual(got, "done")
        return got

    def what_it_watches_stays(self, damage):
        got = own_transaction(self.bench, self.fault(damage), lambda watched: None)
        self.assertEqual(self.bench.log(), [b"mine"] if got == "done" else [])
        if got == "nil":  # only where the mark was put back: the gate has left its MULTI for that, which ends the watch
            self.assertEqual(self.bench.mark(), b"33")
            self.assertEqual(self.bench.fresh_write(33), "done")
        return got

    @staticmethod
    def fault(damage):
        return Fault("damaged", damage, lambda bench: None)

    def test_a_mark_that_has_expired(self):
        """The key is past its time but not yet removed: WATCH alone does not see a change."""
        bench = self.bench
        bench.must("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        for step in ("armed", "transaction"):
            with self.subTest(step):
                bench.next_resource()
                client = bench.writer(33)
                self.assertEqual(bench.write(client, "before"), "done")
                if step == "transaction":
                    self.assertEqual([client.call("MULTI"), client.call("RPUSH", bench.log_key, "after")],
                                     [b"OK", b"QUEUED"])
                bench.must("PEXPIRE", bench.mark_key, "30")
                end = time.monotonic() + 0.06
                eventually(lambda: time.monotonic() > end)
                got = answer(lambda: client.call("EXEC")) if step == "transaction" else bench.write(client, "after")
                self.note("expired", step, got)
                if got == "done":
                    self.assertEqual((bench.mark(), bench.must("PTTL", bench.mark_key)), (b"33", -1))
                else:
                    self.assertNotIn(b"after", bench.log())

    def test_a_mark_that_will_expire(self):
        """No write may rely on a mark that is about to go, without the gate making it last."""
        bench = self.bench
        bench.next_resource()
        client = bench.writer(33)
        bench.must("PEXPIRE", bench.mark_key, "100000")
        self.assertEqual(bench.write(client, "a"), "done")
        with bench.client(34) as successor:
            self.assertEqual(successor.named, b"OK")
        self.assertEqual((bench.mark(), bench.must("PTTL", bench.mark_key)), (b"34", -1))
        self.assertEqual(bench.write(client, "b"), "FENCED")
        bench.must("PEXPIRE", bench.mark_key, "100000")
        with bench.client(34) as again:
            self.assertEqual([again.named, bench.write(again, "c")], [b"OK", "done"])
        self.assertEqual(bench.must("PTTL", bench.mark_key), -1)

    def test_the_epoch(self):
        bench = self.bench
        for name, damage in (("epoch deleted", ("DEL", "fencegate:epoch")),
                             ("epoch changed", ("SET", "fencegate:epoch", "another")), ("epoch wrong type", None)):
            with self.subTest(name):
                bench.settle()
                client = bench.writer(33)
                self.assertEqual(bench.write(client, "before"), "done")
                bench.must("SET", bench.mark_key, 34)
                if damage:
                    bench.must(*damage)
                else:
                    bench.must("DEL", "fencegate:epoch")
                    bench.must("LPUSH", "fencegate:epoch", "x")
                got = bench.write(client, "after")
                self.note(name, "between its writes", got)
                self.assertNotIn(got, ("done", "silent"))
                self.assertEqual(bench.log(), [b"before"])
                if name != "epoch changed":  # data outlived the epoch: closed until an operator has looked
                    self.assertEqual(bench.fresh_write(35), "FENCEDOWN")
                    bench.must("SET", "fencegate:epoch", f"settled after: {name}")
                bench.check_recovery()

    def test_all_of_database_0_is_lost(self):
        """Marks and epoch go at once; data in another database stay. Closed until an operator has looked."""
        bench = self.bench
        bench.next_resource()
        old, other = bench.writer(33), bench.writer(33)
        for client in (old, other):
            self.assertEqual([client.call("SELECT", "1"), bench.write(client, "before")], [b"OK", "done"])
        with bench.client(34) as successor:
            self.assertEqual([successor.named, successor.call("SELECT", "1"), bench.write(successor, "34")],
                             [b"OK", b"OK", "done"])
            bench.must("FLUSHDB")
            # Its link was armed before the loss, and its token is the highest: the flush has touched the watched mark.
            self.assertIn(bench.write(successor, "after the loss"), ("FENCEDOWN", "closed"))
        for client in (old, other):
            self.assertIn(bench.write(client, "stale"), ("FENCED", "FENCEDOWN", "closed"))
        bench.must("SELECT", "1")
        self.assertEqual(bench.log(), [b"before", b"before", b"34"])
        bench.must("SELECT", "0")
        with bench.client(33) as late:  # a gate that saw 34 does not forget it
            self.assertIn(bench.write(late, "stale"), ("FENCED", "FENCEDOWN"))
        self.assertEqual(bench.fresh_write(34), "FENCEDOWN")
        bench.must("SET", "fencegate:epoch", "settled by an operator")
        eventually(lambda: bench.fresh_write(34) == "done")
        eventually(lambda: bench.gate.metric("regressions_total") > 0)

    def test_swapped_databases(self):
        bench = self.bench
        bench.next_resource()
        client = bench.writer(33)
        self.assertEqual(bench.write(client, "before"), "done")
        bench.must("SET", bench.mark_key, 34)
        with Resp(bench.redis.port) as operator:
            self.assertEqual([operator.call("SELECT", 1), operator.call("SET", bench.mark_key, 33),
                              operator.call("SWAPDB", 0, 1)], [b"OK"] * 3)
        got = bench.write(client, "stale")
        self.assertNotIn(got, ("done", "silent"))
        self.assertEqual((bench.log(), bench.fresh_write(33)), ([], "FENCEDOWN"))

    def test_the_data_and_the_mark_change_in_the_same_moment(self):
        """Deleted and written again with the same text: EXEC is aborted once, and the write is sent again, not lost."""
        bench = self.bench
        bench.next_resource()
        client = bench.writer(33)
        for round_ in range(20):
            bench.must("DEL", bench.mark_key)
            bench.must("SET", bench.mark_key, 33)
            self.assertEqual(bench.write(client, round_), "done")
        self.assertEqual(bench.log(), [str(n).encode() for n in range(20)])


if __name__ == "__main__":
    main()
