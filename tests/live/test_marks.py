"""What the marks promise: they rise when a holder arrives, they are compared exactly, they never go back unnoticed."""

import contextlib
import os
import shutil
import threading
import time

from cut_proxy import CutProxy
from gate_process import Gate
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually
from redis_server import RedisServer
from resp import Resp, RespError


def mark_key(resource):
    return f"fencegate:mark:{{{resource}}}"


class LateAnswers(CutProxy):
    """`hold_one` holds back the answers to one of the gate's own connections, which waits for none then."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self._lock_of_held = threading.Lock()
        self._own, self._pending = {}, set()

    def hold_one(self):
        def held():
            with self._lock_of_held:
                for pair, go in self._own.items():
                    if pair not in self._pending:
                        go.clear()
                        return go
        return eventually(held)

    def relay(self, pair, sink, data):
        if sink is pair[1] and b"\r\nINFO\r\n" in data:
            with self._lock_of_held:
                if pair not in self._own:
                    self._own[pair] = threading.Event()
                    self._own[pair].set()
                self._pending.add(pair)
        elif sink is pair[1] and pair in self._pending and b"MGET" in data:
            self._pending.discard(pair)
        if sink is pair[0] and pair in self._own:
            self._own[pair].wait()
        super().relay(pair, sink, data)


class LateExec(CutProxy):
    """Holds back the answer to the first EXEC behind a SET, until `go`."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self.go, self._held, self.answered = threading.Event(), None, False

    def relay(self, pair, sink, data):
        if self._held is None and sink is pair[1] and b"EXEC" in data and b"SET" in data:
            self._held = pair
        if sink is pair[0] and pair is self._held:
            self.answered = True
            self.go.wait()
        super().relay(pair, sink, data)


class LosesAllInALook(CutProxy):
    """Calls `lose` between two steps of the gate's next look: the epoch was read, the marks were not."""

    lose = None

    def relay(self, pair, sink, data):
        if self.lose and sink is pair[1] and b"MGET" in data and b"mark:{" in data and b"WATCH" not in data:
            lose, self.lose = self.lose, None
            lose()
        super().relay(pair, sink, data)


class MarksTest(LiveTest):
    def servers(self, **gate):
        redis = self.start(RedisServer())
        return redis, self.start(Gate(redis, **gate))

    def client(self, gate, tag=None, **options):
        return self.start(Resp(gate.address, name=f"fence:{tag}" if tag else None, **options))

    def holder(self, gate, tag):
        client = self.client(gate, tag)
        self.assertEqual(client.named, b"OK")
        return client

    def assert_stale(self, reply):
        self.assert_error(reply, "FENCED")


    def commands_seen(self, redis):
        return int(redis.info("stats")["total_commands_processed"])


class Raising(MarksTest):
    def test_a_new_holder_shuts_the_old_one_out_before_it_writes_anything(self):
        redis, gate = self.servers()
        old = self.holder(gate, "orders=33")
        self.assertEqual(old.call("SET", "k", "old"), b"OK")
        self.holder(gate, "orders=34")
        self.assert_stale(old.call("SET", "k", "stale"))
        self.assertEqual(redis.cli.call("GET", "k"), b"old")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"34")

    def test_raises_and_checks_are_counted_and_timed(self):
        redis = self.start(RedisServer())
        gate = self.start(Gate(redis))

        def figures():
            return [gate.metric(name) for name in ("raises_total", "check_duration_seconds_count", "overhead_seconds_count")]
        before = figures()
        client = self.start(Resp(gate.port, name="fence:orders=33"))
        bound = figures()
        self.assertEqual(bound[0] - before[0], 1)
        self.assertGreater(bound[1], before[1], "the raise")
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        written = figures()
        self.assertEqual(written[0], bound[0], "a write raises nothing")
        self.assertGreater(written[1], bound[1], "the arm")
        self.assertGreater(written[2], bound[2], "what the client sent")
        self.start(Resp(gate.port, name="fence:orders=33"))
        self.assertEqual(figures()[0], written[0], "the mark is there")
        self.start(Resp(gate.port, name="fence:orders=34"))
        self.assertEqual(figures()[0] - written[0], 1)
        for name in ("check_duration_seconds", "overhead_seconds", "backend_seconds"):
            self.assertGreater(gate.metric(name + "_sum"), 0)
            self.assertEqual(gate.metric(name + "_bucket", le="+Inf"), gate.metric(name + "_count"))

    def test_a_rejection_names_resource_token_and_mark_and_says_not_applied(self):
        _, gate = self.servers()
        self.holder(gate, "orders=34")
        reply = self.client(gate, "orders=33").named
        self.assert_stale(reply)
        for word in ("orders", "33", "34", "not applied"):
            self.assertIn(word, str(reply))

    def test_holds_across_two_gates(self):
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        old = self.holder(gate, "orders=33")
        self.assertEqual(old.call("SET", "k", "old"), b"OK")
        self.holder(other, "orders=34")
        replies = old.pipeline([("SET", "k", "stale"), ("RPUSH", "l", "stale"), ("DEL", "k")])
        for reply in replies:
            self.assert_stale(reply)
        self.assertEqual(redis.cli.call("GET", "k"), b"old")

    def test_a_takeover_inside_a_transaction_undoes_all_of_it(self):
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        old = self.holder(gate, "orders=33")
        self.assertEqual(old.call("MULTI"), b"OK")
        self.assertEqual(old.call("SET", "k", "stale"), b"QUEUED")
        self.holder(other, "orders=34")
        self.assertEqual(old.call("SET", "k2", "stale"), b"QUEUED")
        self.assert_stale(old.call("EXEC"))
        self.assertEqual(redis.cli.call("EXISTS", "k", "k2"), 0)

    def test_every_resource_of_a_tag_counts(self):
        redis, gate = self.servers()
        both = self.holder(gate, "orders=34,payments=12")
        self.assertEqual(both.call("SET", "k", "v"), b"OK")
        self.holder(gate, "payments=13")
        self.assert_stale(both.call("SET", "k", "stale"))
        self.assertEqual(redis.cli.call("GET", "k"), b"v")

    def test_the_fence_command_binds_shows_and_clears(self):
        _, gate = self.servers()
        client = self.client(gate)
        self.assert_error(client.call("SET", "k", "v"), "FENCEMISSING")
        self.assertEqual(client.call("FENCE", "SET", "orders", 34), b"OK")
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertIn("orders", str(client.call("FENCE", "GET")))
        self.assertIn("34", str(client.call("FENCE", "GET")))
        self.assertIn("34", str(client.call("FENCE", "MARK", "orders")))
        self.assertEqual(client.call("FENCE", "CLEAR"), b"OK")
        self.assert_error(client.call("SET", "k", "v"), "FENCEMISSING")

    def test_fence_call_carries_a_token_for_one_command(self):
        redis, gate = self.servers()
        client = self.client(gate)
        self.assertEqual(client.call("FENCE", "CALL", "orders", 34, "SET", "k", "v"), b"OK")
        self.assert_stale(client.call("FENCE", "CALL", "orders", 33, "SET", "k", "stale"))
        self.assert_error(client.call("SET", "k", "untagged"), "FENCEMISSING")
        self.assertEqual(redis.cli.call("GET", "k"), b"v")

    def test_marks_are_out_of_reach_for_clients(self):
        redis, gate = self.servers()
        client = self.holder(gate, "orders=34")
        for command in (("SET", mark_key("orders"), 1), ("DEL", "k", mark_key("orders")), ("FLUSHALL",), ("FLUSHDB",),
                        ("RENAME", mark_key("orders"), "k"), ("SWAPDB", 0, 1), ("CONFIG", "SET", "maxmemory", 1)):
            self.assert_error(client.call(*command), "FENCEDENY")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"34")


class Numbers(MarksTest):
    def test_neighbours_are_told_apart_where_doubles_cannot(self):
        redis, gate = self.servers(policy={"max_step": 0})
        for token in (2**53 + 1, 2**60 + 1, 2**63 - 1):
            holder = self.holder(gate, f"orders={token}")
            self.assertEqual(holder.call("SET", "k", token), b"OK")
            below = self.client(gate, f"orders={token - 1}")
            self.assert_stale(below.named)
            self.assert_stale(below.call("SET", "k", "stale"))
            self.assertEqual(redis.cli.call("GET", "k"), str(token).encode())
            self.assertEqual(redis.cli.call("GET", mark_key("orders")), str(token).encode())

    def test_nine_is_below_ten(self):
        _, gate = self.servers()
        self.holder(gate, "orders=9")
        self.holder(gate, "orders=10")
        self.assert_stale(self.client(gate, "orders=9").named)

    def test_zero_is_a_token(self):
        _, gate = self.servers()
        self.assertEqual(self.holder(gate, "orders=0").call("SET", "k", "v"), b"OK")

    def test_what_is_not_canonical_is_malformed(self):
        redis, gate = self.servers()
        for token in ("034", "-1", "+34", "x", "", str(2**63), "9" * 40, "3.0", "0x10"):
            client = self.client(gate)
            self.assert_error(client.call("FENCE", "SET", "orders", token), "FENCEBAD")
            client = self.client(gate, f"orders={token}")
            self.assert_error(client.named, "FENCEBAD")
            self.assert_error(client.call("SET", "k", "v"), "FENCEBAD")
        self.assertEqual(redis.cli.call("EXISTS", "k", mark_key("orders")), 0)


class Regressions(MarksTest):
    """The backend forgets; the gate remembers, puts it right, counts and logs it."""

    def regression(self, damage):
        redis, gate = self.servers()
        stale = self.holder(gate, "orders=33")
        self.assertEqual(stale.call("SET", "k", "old"), b"OK")
        holder = self.holder(gate, "orders=34")
        self.assertEqual(holder.call("SET", "k", "new"), b"OK")
        damage(redis.cli)
        before = redis.cli.call("GET", "k")
        for reply in stale.pipeline([("SET", "k", "stale")] * 20):
            self.assert_stale(reply)
        self.assertEqual(redis.cli.call("GET", "k"), before)
        eventually(lambda: holder.call("SET", "k", "newer") == b"OK")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"34")
        self.assert_stale(self.client(gate, "orders=33").named)
        self.assert_noticed(gate)

    def assert_noticed(self, gate):
        self.assertGreaterEqual(gate.metric("regressions_total"), 1)
        serious = gate.warnings()
        self.assertIn("orders", [line.get("resource") for line in serious], gate.log())

    def test_a_first_start_is_no_regression(self):
        """All threads of a gate meet a Redis without an epoch at the same moment, and one of them writes it."""
        redis = self.start(RedisServer())
        gate = self.start(Gate(redis, threads=8))
        for number in range(20):
            gate.kill()
            redis.cli.pipeline([("FLUSHALL",), ("MSET", "data", "of before") if number % 2 else ("PING",)])
            gate.start()
            with Resp(gate.address, name="fence:orders=1") as client:
                self.assertEqual(client.call("SET", "k", "v"), b"OK")
            self.assertEqual(gate.metric("regressions_total"), 0)
        self.assertEqual(gate.warnings(), [])

    def test_a_deleted_mark_is_put_back(self):
        self.regression(lambda redis: redis.call("DEL", mark_key("orders")))

    def test_a_lowered_mark_is_put_back(self):
        self.regression(lambda redis: redis.call("SET", mark_key("orders"), 33))

    def test_marks_whose_holders_are_silent_are_put_back(self):
        redis, gate = self.servers()
        keys = self.raise_many(gate, 1_600)
        redis.cli.call("DEL", *keys[3::400])
        redis.cli.call("SET", keys[0], 33)
        eventually(lambda: redis.cli.call("MGET", *keys).count(b"34") == len(keys))
        self.assertGreaterEqual(gate.metric("regressions_total"), 5)  # each of two threads may notice it

    def test_a_known_epoch_with_older_marks_and_no_moment_without_it(self):
        redis, gate = self.servers()
        self.holder(gate, "orders=33")
        older = redis.cli.call("DUMP", mark_key("orders"))
        epoch = redis.cli.call("DUMP", "fencegate:epoch")
        self.holder(gate, "orders=34")
        redis.cli.pipeline([("MULTI",), ("FLUSHALL",), ("RESTORE", mark_key("orders"), 0, older),
                            ("RESTORE", "fencegate:epoch", 0, epoch), ("EXEC",)])
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")
        self.assert_noticed(gate)

    def test_a_flushed_database_gets_its_marks_back(self):
        self.regression(lambda redis: redis.call("FLUSHDB"))

    def raise_many(self, gate, count):
        """The keys of their marks, each of them at 34."""
        names, at_once = [f"r{number}" for number in range(count)], 32
        client = self.start(Resp(gate.address))
        for first in range(0, len(names), at_once):
            pairs = [word for name in names[first : first + at_once] for word in (name, 34)]
            self.assertEqual(client.call("FENCE", "SET", *pairs), b"OK")
            self.assertEqual(client.call("FENCE", "CLEAR"), b"OK")
        return [mark_key(name) for name in names]

    def lose_all(self, redis, keys):
        """Ends in the middle of their healing."""
        def begun():
            present = redis.cli.call("EXISTS", *keys)
            if present >= len(keys) // 2:
                redis.cli.call("FLUSHALL")  # it was over before it was looked at
            return 0 < present < len(keys) // 2
        redis.cli.call("FLUSHALL")
        eventually(begun)

    def assert_opened_with_all(self, redis, keys):
        """When there is an epoch again, each of the marks is at 34."""
        def opened():
            epoch, *marks = redis.cli.call("MGET", "fencegate:epoch", *keys)
            return epoch and marks
        marks = eventually(opened, every=0.005)
        self.assertEqual(marks.count(b"34"), len(keys), "one opened for all before another one's marks were back")

    def test_a_server_on_which_marks_cannot_rise_binds_nobody(self):
        redis, gate = self.servers()
        self.holder(gate, "orders=34")
        redis.cli.call("CONFIG", "SET", "min-replicas-to-write", "1")
        self.assert_error(self.client(gate, "orders=34").named, "FENCEDOWN")
        redis.cli.call("CONFIG", "SET", "min-replicas-to-write", "0")
        self.holder(gate, "orders=34")

    def test_marks_lost_again_in_the_middle_of_their_healing(self):
        redis, gate = self.servers()
        keys = self.raise_many(gate, 12_800)
        self.lose_all(redis, keys)
        redis.cli.call("FLUSHALL")

        def settled():
            epoch, *marks = redis.cli.call("MGET", "fencegate:epoch", *keys)
            return epoch and marks
        marks = eventually(settled)
        self.assertEqual(marks.count(b"34"), len(keys), "an epoch stands for marks that were lost")
        eventually(lambda: self.answered(gate, "orders=35", "SET", "k", "v") == b"OK")
        self.assertEqual(redis.cli.call("EXISTS", "fencegate:healing"), 0)

    def test_who_puts_marks_back_dies_half_way(self):
        """Others go on; who starts meanwhile waits for them."""
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        self.holder(other, "orders=34")
        keys = self.raise_many(gate, 12_800)
        other.stop_process()
        self.lose_all(redis, keys)
        gate.kill()
        late = Gate(redis)
        late.needs_backend = False
        self.start(late)
        # Not a moment at which it may find an epoch, nor one at which it may write one.
        eventually(lambda: "another fencegate puts them back" in str(self.client(late, "orders=33").named))
        self.assertIsNone(redis.cli.call("GET", "fencegate:epoch"))
        other.continue_process()
        for one in (late, other):
            self.assertEqual(eventually(lambda g=one: self.answered(g, "orders=34", "SET", "k", "v")), b"OK")
        self.assert_stale(self.client(late, "orders=33").named)

    def test_who_notices_a_loss_first_waits_for_the_others(self):
        """It does not know of the newer holder; who does looks at the server two seconds later."""
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        for token in range(34, 42, 2):
            old = self.holder(gate, f"orders={token}")
            trigger = self.holder(gate, "trigger=1")
            self.holder(other, f"orders={token + 1}")
            looked = self.looks(redis)
            eventually(lambda n=looked: self.looks(redis) > n, every=0.002)  # one of the two
            redis.cli.call("FLUSHALL")
            trigger.send_command("SET", "t", "v")
            replies = []
            def judged():
                replies.append(old.call("SET", "k", "stale"))
                return not str(replies[-1]).startswith("FENCEDOWN")
            eventually(judged, every=0.01)
            self.assert_stale(replies[-1])
            self.assertIsNone(redis.cli.call("GET", "k"))
            for one in (gate, other):
                newest = f"orders={token + 1}"
                self.assertEqual(eventually(lambda g=one, t=newest: self.answered(g, t, "SET", "l", "v")), b"OK")

    def test_who_puts_back_slowly_is_waited_for(self):
        redis = self.start(RedisServer())
        proxy = self.start(CutProxy(redis.port))
        slow, quick = self.start(Gate(proxy)), self.start(Gate(redis))
        trigger = self.holder(quick, "trigger=1")
        keys = self.raise_many(slow, 3_200)
        proxy.delay = 0.05
        redis.cli.call("FLUSHALL")
        trigger.send_command("SET", "t", "v")
        self.assert_opened_with_all(redis, keys)

    def test_a_loss_is_counted_once(self):
        threads = 8
        redis, gate = self.servers(threads=threads)
        holders = [self.holder(gate, "orders=34") for _ in range(16)]
        redis.cli.call("FLUSHALL")
        eventually(lambda: all(one.call("SET", "k", "v") == b"OK" for one in holders))
        # The epoch once, and the mark by each thread that had asked for it when another one noticed.
        self.assertLessEqual(gate.metric("regressions_total"), 1 + threads)
        self.assertEqual([line["msg"] for line in gate.log_lines()].count("marks lost"), 1)

    def test_a_loss_in_the_middle_of_a_look(self):
        redis = self.start(RedisServer())
        proxy = self.start(LosesAllInALook(redis.port))
        slow, quick = self.start(Gate(proxy, threads=1)), self.start(Gate(redis))
        trigger = self.holder(quick, "trigger=1")
        keys = self.raise_many(slow, 1_600)
        proxy.delay = 0.3

        def lose():
            with Resp(redis.port) as client:
                client.call("FLUSHALL")
            trigger.send_command("SET", "t", "v")
        proxy.lose = lose
        eventually(lambda: not proxy.lose)
        self.assert_opened_with_all(redis, keys)

    def test_redis_stops_while_marks_are_put_back(self):
        """Time that passes there, while nobody can say that he is at work, is nobody's silence."""
        for share in (0, 0.3):
            redis = self.start(RedisServer())
            proxy = self.start(CutProxy(redis.port))
            slow, quick = self.start(Gate(proxy)), self.start(Gate(redis))
            trigger = self.holder(quick, "trigger=1")
            keys = self.raise_many(slow, 800)
            proxy.delay = 0.05
            redis.cli.call("FLUSHALL")
            trigger.send_command("SET", "t", "v")
            eventually(lambda: redis.cli.call("EXISTS", "fencegate:healing"), every=0.002)
            eventually(lambda n=share * len(keys): redis.cli.call("EXISTS", *keys) >= n, every=0.002)
            redis.stop_process()
            time.sleep(4.2)  # what is to pass there
            redis.continue_process()
            self.assert_opened_with_all(redis, keys)
            for one in (slow, quick, redis):
                one.kill()

    def test_a_mark_that_is_learned_while_others_are_waited_for(self):
        redis = self.start(RedisServer())
        proxy = self.start(LateExec(redis.port))
        gate, other, third = self.start(Gate(redis)), self.start(Gate(proxy, threads=1)), self.start(Gate(redis))
        trigger, late = self.holder(gate, "trigger=1"), self.holder(other, "orders=34")
        late.call("INCR", "n")  # is armed behind it
        self.holder(third, "orders=35")
        third.kill()
        late.send_command("SET", "late", "v")
        eventually(lambda: proxy.answered)
        redis.cli.call("FLUSHALL")
        trigger.send_command("SET", "t", "v")
        eventually(lambda: redis.cli.call("GET", mark_key("orders")))
        looked = self.looks(redis)
        eventually(lambda: self.looks(redis) > looked + 4)
        proxy.go.set()  # the answer of before the loss
        self.assert_stale(late.reply())
        self.assertIsNone(redis.cli.call("GET", "fencegate:epoch"))

        def opened():
            epoch, mark = redis.cli.call("MGET", "fencegate:epoch", mark_key("orders"))
            return epoch and mark
        self.assertEqual(eventually(opened, every=0.005), b"35")

    def test_a_mark_that_is_no_number_keeps_only_its_own_resource_closed(self):
        for put in (("SET", mark_key("orders"), "034"), ("RPUSH", mark_key("orders"), "34")):
            redis, gate = self.servers()
            self.holder(gate, "orders=34")
            self.holder(gate, "third=1")
            redis.cli.pipeline([("MULTI",), ("FLUSHALL",), put, ("EXEC",)])
            redis.cli.call("SET", "fencegate:epoch", "looked at by an operator")
            eventually(lambda g=gate: self.answered(g, "third=1", "SET", "k", "v") == b"OK")
            self.assertIsNone(self.answered(gate, "orders=34", "SET", "k", "v"))

    def test_a_raise_that_is_answered_when_its_mark_was_lost(self):
        """Redis raised it before the loss; the gate reads that when it has put back all that it knew of."""
        redis = self.start(RedisServer())
        proxy = self.start(LateAnswers(redis.port))
        gate = self.start(Gate(proxy, threads=2))
        others = [self.holder(gate, "trigger=1") for _ in range(8)]  # some on the other thread
        self.holder(gate, "orders=33")  # the next raise takes one step
        for token in range(34, 64):
            client, go = self.client(gate), proxy.hold_one()
            client.send_command("FENCE", "SET", "orders", token)
            eventually(lambda t=token: redis.cli.call("GET", mark_key("orders")) == b"%d" % t, every=0.002)
            client.sock.settimeout(0.1)
            try:
                client.reply()
            except TimeoutError:
                break
            go.set()  # it was on the other thread
        client.sock.settimeout(PATIENCE)
        redis.cli.call("FLUSHALL")
        for other in others:
            other.send_command("SET", "k", "v")
        eventually(lambda: redis.cli.call("GET", "fencegate:epoch"))
        go.set()
        if client.reply() == b"OK":
            eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"%d" % token, 6)

    def test_a_token_that_was_used_when_its_mark_was_lost(self):
        redis = self.start(RedisServer())
        proxy = self.start(LateExec(redis.port))
        gate = self.start(Gate(proxy, threads=1, policy={"equal_token": "reject"}))
        client = self.holder(gate, "orders=34")
        client.send_command("SET", "k", "v")
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")
        lost = redis.cli.call("GET", "fencegate:epoch")
        redis.cli.call("FLUSHALL")
        eventually(lambda: redis.cli.call("GET", "fencegate:epoch") not in (None, lost))
        self.assertIsNone(redis.cli.call("GET", mark_key("orders")))
        proxy.go.set()
        self.assertEqual(client.reply(), b"OK")
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")

    def test_a_new_history_of_the_same_data(self):
        """The first replica makes a primary begin one. Marks are compared; one that is none closes nothing else."""
        redis, gate = self.servers()
        self.holder(gate, "orders=34")
        other = self.holder(gate, "other=5")
        redis.cli.call("SET", mark_key("orders"), "thirty")
        replica = self.start(RedisServer())
        replica.cli.call("REPLICAOF", LOOPBACK, redis.port)
        eventually(lambda: replica.info("replication")["master_link_status"] == "up")
        looked = self.looks(redis)
        eventually(lambda: self.looks(redis) > looked + 5)
        self.assertEqual(other.call("SET", "k", "v"), b"OK")
        self.assertEqual(self.answered(gate, "third=1", "SET", "k", "v"), b"OK")
        self.assertEqual(gate.metric("regressions_total"), 0)

    def test_nobody_is_waited_for_forever(self):
        redis = self.start(RedisServer())
        redis.cli.call("SET", "fencegate:healing", "by one that died")
        gate = Gate(redis)
        gate.needs_backend = False
        self.start(gate)
        self.assert_error(self.client(gate, "orders=33").named, "FENCEDOWN")
        self.assertEqual(eventually(lambda: self.answered(gate, "orders=33", "SET", "k", "v")), b"OK")
        self.assertEqual(redis.cli.call("EXISTS", "fencegate:healing"), 0)

    def looks(self, redis):
        """How often the gates have inspected it."""
        return redis.calls("mget")

    def test_an_epoch_that_says_nothing(self):
        """With what only is there while marks are put back: closed, and quiet."""
        redis, gate = self.servers()
        self.holder(gate, "orders=33")
        redis.cli.call("MSET", "fencegate:epoch", "", "fencegate:healing", "x")
        eventually(lambda: self.answered(gate, "orders=33", "SET", "k", "v") is None)
        asked, looked = self.commands_seen(redis), self.looks(redis)
        eventually(lambda: self.looks(redis) > looked + 4)
        self.assertLess(self.commands_seen(redis) - asked, 500)
        redis.cli.call("SET", "fencegate:epoch", "looked at by an operator")
        self.assertEqual(eventually(lambda: self.answered(gate, "orders=34", "SET", "k", "v")), b"OK")
        self.assertEqual(redis.cli.call("EXISTS", "fencegate:healing"), 0)
        self.assertLess(gate.metric("regressions_total"), 5)

    def test_very_many_lost_marks_are_put_back_without_a_line_for_each(self):
        redis = self.start(RedisServer())
        gate = self.start(Gate(redis, threads=2))
        keys = self.raise_many(gate, 1600)
        redis.cli.call("FLUSHALL")
        eventually(lambda: redis.cli.call("MGET", *keys) == [b"34"] * len(keys))
        eventually(lambda: any(line["msg"] == "marks went back" for line in gate.log_lines()))
        serious = gate.warnings()
        self.assertLess(len(serious), 40, gate.log())
        self.assertGreaterEqual(gate.metric("regressions_total"), len(keys))

    def test_a_mark_that_cannot_be_put_back_is_named_once(self):
        redis = self.start(RedisServer(user="gate on >pw ~* &* +@all"))
        gate = self.start(Gate(redis, threads=1, user="gate", password="pw"))
        self.assertEqual(self.holder(gate, "orders=34").call("SET", "k", "v"), b"OK")
        redis.cli.call("ACL", "SETUSER", "gate", "resetkeys", "~fencegate:epoch", "~fencegate:healing*", "%R~fencegate:mark:*")
        redis.cli.call("FLUSHALL")

        def said():
            return [line["detail"] for line in gate.log_lines() if line["msg"] == "marks not put back"]
        eventually(said)
        self.assertIn("orders: NOPERM", said()[0])
        looked = self.looks(redis)
        eventually(lambda: self.looks(redis) > looked + 4)
        self.assertEqual(len(said()), 1)
        redis.cli.call("ACL", "SETUSER", "gate", "~*")
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")

    def test_a_restored_backup_gets_its_marks_back(self):
        redis = self.start(RedisServer(appendonly="no"))
        gate = self.start(Gate(redis))
        self.assertEqual(self.holder(gate, "unused=7").call("SET", "k", "v"), b"OK")
        self.assertEqual(self.holder(gate, "orders=30").call("SET", "k", "v"), b"OK")
        self.assertEqual(redis.cli.call("SAVE"), b"OK")
        dump = os.path.join(redis.folder, "dump.rdb")
        shutil.copy(dump, dump + ".old")
        self.holder(gate, "unused=8")
        self.assertEqual(self.holder(gate, "orders=34").call("SET", "k", "lost"), b"OK")
        redis.kill()
        shutil.copy(dump + ".old", dump)
        redis.start()
        self.assert_stale(eventually(lambda: self.answered(gate, "orders=30", "SET", "k", "stale")))
        self.assertEqual(redis.cli.call("GET", "k"), b"v")
        self.assertEqual(eventually(lambda: self.answered(gate, "orders=34", "SET", "k", "again")), b"OK")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"34")
        # One that nobody asks this gate about may be asked for at another.
        eventually(lambda: redis.cli.call("GET", mark_key("unused")) == b"8")
        self.assert_noticed(gate)

    def test_a_backup_with_the_known_epoch_is_restored_into_a_running_server(self):
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        old = self.holder(other, "orders=33")
        self.assertEqual(old.call("SET", "k", "33"), b"OK")
        backup = {key: redis.cli.call("DUMP", key) for key in redis.cli.call("KEYS", "*")}
        self.holder(gate, "orders=34").close()
        first, *rest = sorted(backup, key=lambda key: key != b"k")
        redis.cli.pipeline([("MULTI",), ("FLUSHALL",), ("RESTORE", first, 0, backup[first]), ("EXEC",)])
        for one in (gate, other):
            eventually(lambda g=one: "kept other data" in str(self.client(g, "other=1").call("SET", "k", "v")))
        redis.cli.pipeline([("MULTI",)] + [("RESTORE", key, 0, backup[key]) for key in rest] + [("EXEC",)])
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")
        self.assert_stale(eventually(lambda: self.answered(other, "orders=33", "SET", "k", "stale")))

    def test_one_mark_that_went_back_has_all_of_them_compared(self):
        redis, gate = self.servers()
        for resource in ("orders", "unused"):
            self.holder(gate, f"{resource}=34").close()
            redis.cli.call("SET", mark_key(resource), 33)
        self.assert_stale(self.client(gate, "orders=33").named)  # known without asking Redis
        self.holder(gate, "orders=35")
        eventually(lambda: redis.cli.call("GET", mark_key("unused")) == b"34")

    def test_a_token_that_was_used_before_an_older_server_came_up(self):
        """The gate hears of it when it has compared all marks that it knew."""
        redis = self.start(RedisServer(appendonly="no"))
        proxy = self.start(LateExec(redis.port))
        gate = self.start(Gate(proxy, threads=1, policy={"equal_token": "reject"}))
        redis.cli.call("SAVE")
        client = self.holder(gate, "orders=34")
        client.send_command("SET", "k", "v")
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")
        redis.restart()
        eventually(lambda: gate.log().count('"msg":"backend up"') == 2)
        proxy.go.set()
        self.assertEqual(client.reply(), b"OK")
        eventually(lambda: redis.cli.call("GET", mark_key("orders")) == b"34")

    def test_only_what_was_lost_is_put_back(self):
        redis = self.start(RedisServer(appendonly="no"))
        gate = self.start(Gate(redis, threads=2))
        keys = self.raise_many(gate, 640)
        redis.cli.call("SAVE")
        self.holder(gate, "r0=35")
        redis.restart()
        eventually(lambda: redis.cli.call("GET", keys[0]) == b"35")
        eventually(lambda: gate.log().count('"msg":"backend up"') == 4)
        looked = self.looks(redis)
        eventually(lambda: self.looks(redis) > looked + 2)
        self.assertLess(redis.calls("eval"), 50)

    def test_an_address_that_leads_to_another_server_by_now(self):
        """The old primary goes on as a replica, and keeps its connections."""
        redis, promoted = self.start(RedisServer()), self.start(RedisServer())
        proxy = self.start(CutProxy(redis.port))
        gate = self.start(Gate(proxy))
        self.holder(gate, "orders=34").close()
        promoted.cli.call("REPLICAOF", LOOPBACK, redis.port)
        eventually(lambda: promoted.cli.call("GET", mark_key("orders")) == b"34")
        proxy.target_port = promoted.port
        promoted.cli.call("REPLICAOF", "NO", "ONE")
        redis.cli.call("REPLICAOF", LOOPBACK, promoted.port)

        def written():
            with contextlib.suppress(OSError):
                return self.client(gate, "orders=34").call("SET", "k", "v") == b"OK"
        eventually(written)
        self.assertEqual(promoted.cli.call("GET", "k"), b"v")

    def answered(self, gate, tag, *command):
        """The answer to a command on a connection of its own; None while the gate has no backend."""
        try:
            with Resp(gate.address, name=f"fence:{tag}") as client:
                reply = client.call(*command)
        except OSError:
            return None
        return None if isinstance(reply, RespError) and reply.code == "FENCEDOWN" else reply

    def test_a_mark_that_is_no_number_admits_nobody_below(self):
        redis, gate = self.servers()
        stale = self.holder(gate, "orders=33")
        self.holder(gate, "orders=34")
        for damage in ("thirty", "033", ""):
            redis.cli.call("SET", mark_key("orders"), damage)
            self.assert_stale(stale.call("SET", "k", "stale"))
            self.assertIsInstance(self.client(gate, "orders=33").call("SET", "k", "stale"), RespError)
        redis.cli.pipeline([("DEL", mark_key("orders")), ("RPUSH", mark_key("orders"), "33")])
        self.assert_stale(stale.call("SET", "k", "stale"))
        self.assertIsInstance(self.client(gate, "orders=33").call("SET", "k", "stale"), RespError)
        self.assertEqual(redis.cli.call("EXISTS", "k"), 0)

    def test_a_gate_that_starts_after_a_loss_does_not_open_those_that_noticed_it(self):
        redis, gate = self.servers()
        old = self.holder(gate, "orders=33")
        self.assertEqual([old.call("SELECT", 1), old.call("SET", "k", "33")], [b"OK", b"OK"])
        redis.cli.call("SET", mark_key("orders"), "34")  # by a holder that this gate has not seen
        redis.cli.call("FLUSHDB")  # database 0: the marks; the data in database 1 stay
        eventually(lambda: str(old.call("SET", "k", "stale")).startswith("FENCEDOWN"))
        self.start(Gate(redis))
        self.assertTrue(redis.cli.call("GET", "fencegate:epoch").startswith(b"first-"))
        eventually(lambda: "fencegate:epoch" in str(old.call("SET", "k", "stale")))
        redis.cli.call("SELECT", 1)
        self.assertEqual(redis.cli.call("GET", "k"), b"33")
        redis.cli.call("SELECT", 0)
        redis.cli.call("SET", "fencegate:epoch", "looked at by an operator")
        eventually(lambda: old.call("SET", "k", "33 again") == b"OK")

    def test_a_gate_that_never_saw_the_mark_does_not_trust_a_broken_one(self):
        redis, gate = self.servers()
        redis.cli.call("SET", mark_key("orders"), "034")
        client = self.client(gate, "orders=35")
        self.assert_error(client.named, "FENCEDOWN")
        self.assert_error(client.call("SET", "k", "v"), "FENCEDOWN")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"034", "evidence must not be overwritten")


class StaleStorm(MarksTest):
    def storm(self, redis, client):
        before = self.commands_seen(redis)
        for reply in client.pipeline([("SET", "k", "stale")] * 2000):
            self.assert_stale(reply)
        return self.commands_seen(redis) - before

    def test_is_answered_from_memory(self):
        redis, gate = self.servers()
        stale = self.holder(gate, "orders=33")
        self.assertEqual(stale.call("SET", "k", "v"), b"OK")
        self.holder(gate, "orders=34")
        self.assertLess(self.storm(redis, stale), 40)
        self.assertGreaterEqual(gate.metric("checks_total", outcome="stale"), 2000)

    def test_is_answered_from_memory_once_the_gate_has_seen_the_new_mark(self):
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        stale = self.holder(gate, "orders=33")
        self.holder(other, "orders=34")
        self.assert_stale(stale.call("SET", "k", "stale"))
        self.assertLess(self.storm(redis, stale), 40)
        self.assertEqual(redis.cli.call("EXISTS", "k"), 0)


class Policies(MarksTest):
    def test_max_step_stops_a_poison_token(self):
        redis, gate = self.servers(policy={"max_step": 10})
        self.holder(gate, "orders=5")
        poison = self.client(gate, "orders=16")
        self.assert_error(poison.named, "FENCEJUMP")
        self.assert_error(poison.call("SET", "k", "v"), "FENCEJUMP")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"5")
        self.assertEqual(self.holder(gate, "orders=15").call("SET", "k", "v"), b"OK")

    def test_equal_token_reject_is_good_for_one_batch(self):
        redis, gate = self.servers(policy={"equal_token": "reject"})
        client = self.holder(gate, "orders=5")
        self.assertIsNone(redis.cli.call("GET", mark_key("orders")), "binding does not use the token")
        self.assertEqual(client.call("SET", "k", "once"), b"OK")
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"5")
        self.assert_error(client.call("SET", "k", "twice"), "FENCEUSED")
        again = self.client(gate, "orders=5")
        self.assert_error(again.call("SET", "k", "twice"), "FENCEUSED")
        self.assertEqual(redis.cli.call("GET", "k"), b"once")
        transaction = self.holder(gate, "orders=6")
        replies = transaction.pipeline([("MULTI",), ("SET", "k", 6), ("INCR", "k"), ("EXEC",)])
        self.assertEqual(replies[-1], [b"OK", 7])
        self.assert_error(transaction.call("SET", "k", "twice"), "FENCEUSED")
        self.assert_stale(self.client(gate, "orders=5").call("SET", "k", "stale"))
        self.assertEqual(redis.cli.call("GET", "k"), b"7")

    def test_missing_token_reject_lets_only_reads_through(self):
        redis, gate = self.servers()
        client = self.client(gate)
        self.assertIsNone(client.call("GET", "k"))
        for command in (("SET", "k", "v"), ("EVAL", "return redis.call('SET', 'k', 'v')", 0), ("PUBLISH", "c", "m")):
            self.assert_error(client.call(*command), "FENCEMISSING")
        self.assertEqual(redis.cli.call("EXISTS", "k"), 0)
        self.assertEqual(gate.metric("checks_total", outcome="missing"), 3)

    def test_missing_token_allow_lets_untagged_writes_through(self):
        redis, gate = self.servers(policy={"missing_token": "allow"})
        self.assertEqual(self.client(gate).call("SET", "k", "v"), b"OK")
        named = self.start(Resp(gate.address, name="just-a-name"))
        self.assertEqual(named.call("SET", "k", "w"), b"OK")
        self.assertEqual(redis.cli.call("GET", "k"), b"w")

    def test_a_refused_tag_still_binds(self):
        for policy in ({"missing_token": "reject"}, {"missing_token": "allow"}):
            with self.subTest(policy=policy):
                redis, gate = self.servers(policy=policy)
                self.holder(gate, "orders=34")
                for options in ({}, {"proto": 3}):
                    stale = self.client(gate, "orders=33", **options)
                    self.assert_stale(stale.named)
                    self.assert_stale(stale.call("SET", "k", "stale"))
                    malformed = self.client(gate, "orders=thirty", **options)
                    self.assert_error(malformed.named, "FENCEBAD")
                    self.assert_error(malformed.call("SET", "k", "stale"), "FENCEBAD")
                self.assertEqual(redis.cli.call("EXISTS", "k"), 0)

    def test_reads_are_fenced_where_wanted(self):
        for reads, stale_read in (("pass", b"v"), ("fence", "FENCED")):
            with self.subTest(reads=reads):
                redis, gate = self.servers(policy={"reads": reads})
                old = self.holder(gate, "orders=33")
                new = self.holder(gate, "orders=34")
                self.assertEqual(new.call("SET", "k", "v"), b"OK")
                self.assertEqual(new.call("GET", "k"), b"v")
                reply = old.call("GET", "k")
                self.assertEqual(reply.code if isinstance(reply, RespError) else reply, stale_read)

    def test_monitor_forwards_and_counts(self):
        redis, gate = self.servers(policy={"mode": "monitor"})
        old = self.holder(gate, "orders=33")
        self.holder(gate, "orders=34")
        self.assertEqual(old.call("SET", "k", "stale"), b"OK")
        self.assertEqual(self.client(gate).call("SET", "k2", "untagged"), b"OK")
        self.assertEqual(redis.cli.call("MGET", "k", "k2"), [b"stale", b"untagged"])
        self.assertEqual(redis.cli.call("GET", mark_key("orders")), b"34")
        self.assertGreaterEqual(gate.metric("checks_total", outcome="stale"), 1)
        self.assertGreaterEqual(gate.metric("checks_total", outcome="missing"), 1)


class Rules(MarksTest):
    ACCOUNTS = [{"keys": "acct:{id}:*", "resource": "acct:{id}"}]

    def test_a_key_chooses_its_resource(self):
        _, gate = self.servers(resources=self.ACCOUNTS)
        seven = self.holder(gate, "acct:7=5")
        self.assertEqual(seven.call("SET", "acct:7:name", "v"), b"OK")
        self.assert_error(seven.call("SET", "acct:8:name", "v"), "FENCEMISSING")
        self.holder(gate, "acct:8=100")
        self.assertEqual(seven.call("SET", "acct:7:name", "w"), b"OK", "another account's mark is none of its business")
        self.holder(gate, "acct:7=6")
        self.assert_stale(seven.call("SET", "acct:7:name", "stale"))

    def test_a_script_needs_a_token_whatever_keys_it_declares(self):
        redis, gate = self.servers(resources=self.ACCOUNTS, unmatched="pass")
        nobody = self.client(gate)
        self.assertEqual(nobody.call("SET", "elsewhere", "v"), b"OK")
        for script in (("EVAL", "return redis.call('SET', 'acct:7:k', 'x')", 0),
                       ("EVAL", "return redis.call('SET', 'acct:7:k', 'x')", 1, "elsewhere")):
            self.assert_error(nobody.call(*script), "FENCEMISSING")
        self.assertIsNone(redis.cli.call("GET", "acct:7:k"))
        holder = self.holder(gate, "acct:7=5")
        self.assertEqual(holder.call("EVAL", "return redis.call('SET', 'acct:7:k', 'x')", 0), b"OK")

    def test_reads_without_keys_are_fenced_where_reads_are(self):
        _, gate = self.servers(policy={"reads": "fence"})
        old = self.holder(gate, "orders=33")
        self.holder(gate, "orders=34")
        for command in (("EVAL_RO", "return redis.call('GET', 'k')", 0), ("KEYS", "*"), ("DBSIZE",)):
            self.assert_stale(old.call(*command))
        self.assertEqual(old.call("PING"), b"PONG")

    def test_a_write_needs_a_token_for_every_resource_it_touches(self):
        redis, gate = self.servers(resources=self.ACCOUNTS)
        seven = self.holder(gate, "acct:7=5")
        both = self.holder(gate, "acct:7=5,acct:8=9")
        self.assertEqual(both.call("MSET", "acct:7:a", "1", "acct:8:a", "1"), b"OK")
        for command in (("MSET", "acct:7:a", "2", "acct:8:a", "2"), ("RENAME", "acct:7:a", "acct:8:b"),
                        ("EVAL", "return redis.call('SET', KEYS[2], 2)", 2, "acct:7:a", "acct:8:a"),
                        ("SORT", "acct:7:l", "STORE", "acct:8:l"), ("SUNIONSTORE", "acct:8:s", "acct:7:s")):
            self.assert_error(seven.call(*command), "FENCEMISSING")
        self.holder(gate, "acct:8=10")
        self.assert_stale(both.call("MSET", "acct:7:a", "2", "acct:8:a", "2"))
        self.assertEqual(redis.cli.call("MGET", "acct:7:a", "acct:8:a"), [b"1", b"1"])

    def test_unmatched_keys(self):
        for unmatched, tagged, stale, untagged in (("tag", b"OK", "FENCED", "FENCEMISSING"),
                                                   ("pass", b"OK", b"OK", b"OK"),
                                                   ("reject", "FENCEMISSING", "FENCEMISSING", "FENCEMISSING")):
            with self.subTest(unmatched=unmatched):
                _, gate = self.servers(resources=self.ACCOUNTS, unmatched=unmatched)
                old, new = self.holder(gate, "acct:7=5"), self.holder(gate, "acct:7=6")
                replies = [client.call("SET", "elsewhere", "v") for client in (new, old, self.client(gate))]
                self.assertEqual([reply.code if isinstance(reply, RespError) else reply for reply in replies],
                                 [tagged, stale, untagged])

    def test_a_rule_has_its_own_policy(self):
        rules = [{"keys": "cache:*", "resource": "cache", "policy": {"missing_token": "allow"}}]
        _, gate = self.servers(resources=rules)
        client = self.client(gate)
        self.assertEqual(client.call("SET", "cache:1", "v"), b"OK")
        self.assert_error(client.call("SET", "other", "v"), "FENCEMISSING")


if __name__ == "__main__":
    main(at_once=4)
