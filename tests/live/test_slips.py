"""Ways past the fence, and past native behaviour, that a review found: each stays closed."""

import itertools
import threading
import time

from gate_process import Gate
from live_test import LiveTest, main
from processes import eventually
from redis_server import RedisServer
from resp import Resp, RespError, encode

MARK = "fencegate:mark:{orders}"


def disguised(redis, name, *arguments):
    """`name` with a NUL and a suffix, so that this server takes it for `name`; every server needs another."""
    with Resp(redis.port) as client:
        for i in range(100_000):
            candidate = name.encode() + b"\0%d" % i
            reply = client.call(candidate, *arguments)
            if not (isinstance(reply, RespError) and "unknown command" in str(reply)):
                return candidate
    raise AssertionError(f"this server never takes {name} with a NUL for {name}")


class Slips(LiveTest):
    def gate(self, **settings):
        self.redis = self.start(RedisServer())
        self.cli = self.redis.cli
        return self.start(Gate(self.redis, **settings))

    def holder(self, gate, **how):
        return self.start(Resp(gate.port, name="fence:orders=34", **how))

    def test_a_disguised_exec_ends_no_transaction(self):
        gate = self.gate()
        name = disguised(self.redis, "EXEC")
        client = self.start(Resp(gate.port))  # without a token
        replies = client.pipeline([("MULTI",), (name,), ("SET", "k", "v"), ("EXEC",)])
        self.assertTrue(all(isinstance(r, RespError) for r in (replies[1], replies[3])), replies)
        self.assertIsNone(self.cli.call("GET", "k"))

    def test_a_disguised_command_reaches_no_mark(self):
        gate = self.gate()
        name = disguised(self.redis, "SET", "wrong")
        client = self.holder(gate)
        self.assert_error(client.call(name, MARK, "1"), "FENCEDENY")
        self.assert_error(client.call("CLIENT", b"REPLY\0x", "OFF"), "FENCEDENY")
        self.assertEqual(self.cli.call("GET", MARK), b"34")
        self.assertEqual(client.call("SET", "k", "v"), b"OK")

    def test_a_renamed_command_is_not_taken_for_a_harmless_one(self):
        """The server ends a transaction by it, or drops the marks; COMMAND does not tell its new name."""
        for renamed, arguments in (("EXEC", ()), ("DISCARD", ()), ("RESET", ()), ("FLUSHALL", ()), ("SWAPDB", ("0", "1")),
                                   ("CONFIG", ("SET", "maxmemory", "1"))):
            redis = self.start(RedisServer(rename_command=f"{renamed} hidden"))
            gate = self.start(Gate(redis))
            for name in (None, "fence:orders=33"):
                with self.subTest(renamed=renamed, name=name), Resp(gate.port, name=name) as client:
                    redis.cli.call("SET", MARK, "33")
                    if not arguments and renamed != "FLUSHALL":
                        self.assertEqual(client.call("MULTI"), b"OK")  # proven; the successor comes behind it
                    redis.cli.call("SET", MARK, "34")
                    client.send(encode("HIDDEN", *arguments) + encode("SET", "k", "stale"))
                    try:
                        self.assert_error(client.reply(), "FENCEDENY")
                        client.reply()
                    except ConnectionError:
                        self.assertEqual(renamed, "DISCARD")  # without which no transaction can be left
                    self.assertEqual(redis.cli.call("MGET", "k", MARK), [None, b"34"])

    def test_every_keyword_names_a_key(self):
        client = self.holder(self.gate())
        self.cli.call("RPUSH", "list", "3", "1")
        self.cli.call("GEOADD", "geo", "0", "0", "m")
        radius = ("GEORADIUS", "geo", "0", "0", "1", "km")
        for command in (("SORT", "list", b"STORE\0x", MARK), (*radius, "STORE", "a", "STORE", MARK),
                        (*radius, b"STORE\0", MARK)):
            with self.subTest(command=command):
                self.assert_error(client.call(*command), "FENCEDENY")
        self.assertEqual(self.cli.call("GET", MARK), b"34")

    def test_a_consumer_called_streams_hides_no_key(self):
        gate = self.gate(resources=[{"keys": "acct:{id}:*", "resource": "acct:{id}"}], unmatched="pass")
        self.cli.call("XADD", "acct:1:s", "1-1", "f", "v")
        self.cli.call("XGROUP", "CREATE", "acct:1:s", "g", "0")
        client = self.start(Resp(gate.port))
        reply = client.call("XREADGROUP", "COUNT", "1", "GROUP", "g", "STREAMS", "STREAMS", "acct:1:s", ">")
        self.assert_error(reply, "FENCEMISSING")

    def test_a_refused_multi_lets_nothing_run_bare(self):
        gate = self.gate()
        self.cli.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-multi")
        client = self.start(Resp(gate.port, user="app", password="pw"))
        replies = client.pipeline([("MULTI",), ("SET", "k", "v"), ("EXEC",)])
        self.assert_error(replies[0], "NOPERM")
        self.assert_error(replies[1], "FENCEMISSING")
        self.assertIsNone(self.cli.call("GET", "k"))

    def test_who_is_refused_an_exec_watches_no_more(self):
        """And nobody else: of every command that ends a watch, in every form, with and without the right to it."""
        gate = self.gate()
        user = ("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
        self.cli.call(*user)

        def ends(port, name, command, inside, allowed, subscribed):
            with Resp(port, user="app", password="pw", name=name) as client:
                told = [client.call("WATCH", "k")]
                if inside:
                    told.append(client.call("MULTI"))
                if subscribed:
                    client.call("SUBSCRIBE", "channel")
                if not allowed:
                    self.cli.call("ACL", "SETUSER", "app", "-" + command[0])
                told.append(client.call(*command))
                self.cli.call(*user)
                self.cli.call("SET", "k", "another's")
                if subscribed:
                    client.call("UNSUBSCRIBE")
                if told[-1] == b"RESET":
                    client.call("AUTH", "app", "pw")
                    if name:
                        client.call("CLIENT", "SETNAME", name)
                told += client.pipeline([("MULTI",), ("SET", "k", "mine"), ("EXEC",), ("SET", "k", "mine"), ("GET", "k")])
                return [one.code if isinstance(one, RespError) else one for one in told]

        for name in ("EXEC", "DISCARD", "UNWATCH", "RESET", "MULTI"):
            for command, inside, allowed in itertools.product(((name,), (name, "x")), (False, True), (False, True)):
                if command == ("DISCARD", "x") and inside and not allowed:
                    continue  # the gate cannot leave the transaction, and closes
                for subscribed in (False, True) if command == ("EXEC",) and not inside else (False,):
                    with self.subTest(command=command, inside=inside, allowed=allowed, subscribed=subscribed):
                        wanted = ends(self.redis.port, None, command, inside, allowed, subscribed)
                        self.assertEqual(ends(gate.port, "fence:orders=34", command, inside, allowed, subscribed), wanted)

    def test_reset_with_arguments_leaves_the_transaction_as_it_is(self):
        client = self.holder(self.gate())
        replies = client.pipeline([("MULTI",), ("RESET", "x"), ("SET", "k", "v"), ("EXEC",), ("SET", "k", "w")])
        self.assertEqual([replies[0], replies[2], replies[4]], [b"OK", b"QUEUED", b"OK"])
        self.assert_error(replies[3], "EXECABORT")

    def test_healing_a_mark_does_not_lose_the_clients_watch(self):
        client = self.holder(self.gate())
        self.assertEqual(client.call("WATCH", "k"), b"OK")
        self.cli.call("DEL", MARK)
        self.cli.call("SET", "k", "another's")
        transaction = [("MULTI",), ("SET", "k", "mine"), ("EXEC",)]
        self.assertIsNone(client.pipeline(transaction)[2])
        self.assertEqual(self.cli.call("GET", "k"), b"another's")
        self.assertEqual(client.pipeline(transaction)[2], [b"OK"])

    def test_a_transaction_behind_a_large_watch_is_guarded_by_it(self):
        client = self.holder(self.gate())
        client.send(encode("WATCH", "k", b"x" * 300_000) + encode("MULTI") + encode("SET", "k", "mine"))
        self.assertEqual([client.reply() for _ in range(3)], [b"OK", b"OK", b"QUEUED"])
        self.cli.call("SET", "k", "another's")
        self.assertIsNone(client.call("EXEC"))
        self.assertEqual(self.cli.call("GET", "k"), b"another's")
        self.assertEqual(client.pipeline([("MULTI",), ("SET", "k", "mine"), ("EXEC",)])[2], [b"OK"])

    def test_behind_a_watch_that_the_gate_refuses_no_transaction_runs(self):
        client = self.holder(self.gate())
        transaction = [("MULTI",), ("SET", "k", "mine"), ("EXEC",)]
        replies = client.pipeline([("WATCH", "k", MARK), *transaction, *transaction])
        self.assert_error(replies[0], "FENCEDENY")
        self.assertEqual([replies[3], replies[6]], [None, [b"OK"]])
        self.cli.call("DEL", "k")
        client.send(b"".join(encode(*one) for one in [("WATCH", "k", b"x" * 300_000, MARK), *transaction]))
        self.assert_error(client.reply(), "FENCEDENY")
        self.assertTrue(client.closed())
        self.assertIsNone(self.cli.call("GET", "k"))

    def test_who_waits_for_replicas_is_answered_as_by_redis(self):
        client = self.holder(self.gate(policy={"reads": "fence"}))
        self.assertEqual(client.pipeline([("SET", "k", "v"), ("WAIT", "0", "0"), ("WAIT", "1", "50")]), [b"OK", 0, 0])
        self.assertEqual(client.pipeline([("MULTI",), ("SET", "k", "w"), ("WAIT", "0", "0"), ("EXEC",)])[3], [b"OK", 0])
        for command in (("WAIT", "x", "0"), ("WAIT", "0"), ("WAITAOF", "1", "0", "0")):
            answers = [one.code if isinstance(one, RespError) else one
                       for one in (client.call(*command), self.cli.call(*command))]
            self.assertEqual(answers[0], answers[1], command)

    def test_a_streamed_value_under_one_use_tokens(self):
        gate = self.gate(policy={"equal_token": "reject"})
        client = self.holder(gate)
        bytes_ = encode("SET", "k", "x" * 600_000)
        client.send(bytes_[:400_000])
        # Redis is inside MULTI before the rest comes.
        eventually(lambda: any("multi=0" in line for line in self.cli.call("CLIENT", "LIST").decode().splitlines()))
        client.send(bytes_[400_000:])
        self.assertEqual(client.reply(), b"OK")
        self.assert_error(client.call("SET", "k", "again"), "FENCEUSED")

    def test_a_fenced_read_uses_no_token_up(self):
        client = self.holder(self.gate(policy={"reads": "fence", "equal_token": "reject"}))
        self.assertIsNone(client.call("GET", "k"))
        self.assertEqual(client.call("SET", "k", "v"), b"OK")

    def test_a_name_that_hides_a_tag_is_warned_of(self):
        for command in (("CLIENT", "SETNAME", "app_fence:orders=33"), ("HELLO", "2", "SETNAME", "app_fence:orders=33")):
            gate = self.gate(policy={"missing_token": "allow"})
            client = self.start(Resp(gate.port))
            client.call(*command)
            self.assertEqual(client.call("FENCE", "GET"), [], command)
            warning = eventually(gate.warnings)
            self.assertEqual([(line["gate"], line["name"]) for line in warning], [("cache", "app_fence:orders=33")])
            self.assertIn("is no tag", warning[0]["msg"])

    def test_xread_is_a_read(self):
        client = self.holder(self.gate(policy={"reads": "fence"}))
        self.cli.call("XADD", "s", "1-1", "f", "v")
        self.assertIsNotNone(client.call("XREAD", "STREAMS", "s", "0"))
        self.assert_error(client.call("XREAD", "BLOCK", "10", "STREAMS", "s", "$"), "FENCEDENY")
        self.cli.call("SET", MARK, "35")
        self.assert_error(client.call("XREAD", "STREAMS", "s", "0"), "FENCED")

    def test_an_enforced_rule_under_a_gate_in_monitor_mode_works_inside_multi(self):
        gate = self.gate(policy={"mode": "monitor"},
                         resources=[{"keys": "a:*", "resource": "a", "policy": {"mode": "enforce"}}])
        client = self.start(Resp(gate.port, name="fence:a=34"))
        self.assertEqual(client.pipeline([("MULTI",), ("SET", "a:1", "v"), ("EXEC",)])[2], [b"OK"])

    def test_a_rule_in_monitor_mode_under_an_enforcing_gate_forwards_and_counts(self):
        gate = self.gate(resources=[{"keys": "a:*", "resource": "a", "policy": {"mode": "monitor"}}])
        client = self.start(Resp(gate.port, name="fence:a=34"))
        self.assertEqual(client.call("SET", "a:1", "v"), b"OK")
        self.cli.call("SET", "fencegate:mark:{a}", "35")  # by another gate
        self.assertEqual(client.call("SET", "a:1", "w"), b"OK")
        self.assertEqual(client.call("SET", "a:1", "x" * 300_000), b"OK")
        self.assertEqual(client.pipeline([("MULTI",), ("SET", "a:1", "y"), ("EXEC",)])[2], [b"OK"])
        self.assertEqual(gate.metric("checks_total", outcome="stale"), 3)
        self.assertEqual(gate.metric("checks_total", outcome="admitted"), 1)

    def test_a_monitored_rule_beside_an_enforced_one_is_counted_and_disturbs_nobody(self):
        gate = self.gate(resources=[{"keys": "a:*", "resource": "a", "policy": {"mode": "monitor"}},
                                    {"keys": "b:*", "resource": "b"}])
        client = self.start(Resp(gate.port, name="fence:a=34,b=34"))
        writes = [("SET", "b:1", "v"), ("SET", "a:1", "v"), ("MSET", "a:2", "v", "b:2", "v")]
        self.assertEqual(client.pipeline(writes), [b"OK"] * 3)
        self.assertEqual(gate.metric("checks_total", outcome="admitted"), 3)
        self.cli.call("SET", "fencegate:mark:{a}", "35")  # by another gate
        self.assertEqual(client.pipeline(writes), [b"OK"] * 3)
        self.assertEqual(gate.metric("checks_total", outcome="admitted"), 4)
        self.assertEqual(gate.metric("checks_total", outcome="stale"), 2)
        self.assertEqual(client.call("SET", "a:1", "x" * 300_000), b"OK")
        self.assertEqual(client.call("FENCE", "SET", "a", "33"), b"OK")
        self.assertEqual(gate.metric("checks_total", outcome="stale"), 4)
        self.assert_error(client.call("SET", "b:1", "w", "NX", "XX"), "ERR")
        self.cli.call("SET", "fencegate:mark:{b}", "35")
        self.assert_error(client.call("SET", "b:1", "w"), "FENCED")

    # The mark moves while the value comes: an enforced one would be dropped.
    def test_a_large_write_of_a_monitored_rule_is_let_through(self):
        gate = self.gate(resources=[{"keys": "a:*", "resource": "a", "policy": {"mode": "monitor"}},
                                    {"keys": "b:*", "resource": "b"}])
        client = self.start(Resp(gate.port, name="fence:a=34,b=34"))
        bytes_ = encode("SET", "a:1", "x" * 500_000)
        client.send(bytes_[:400_000])
        self.cli.call("MSET", "fencegate:mark:{a}", "35", "fencegate:mark:{b}", "35")
        client.send(bytes_[400_000:])
        self.assertEqual(client.reply(), b"OK")
        eventually(lambda: gate.metric("checks_total", outcome="stale") == 1)

    def test_monitor_mode_counts_a_used_token_as_equal(self):
        gate = self.gate(policy={"mode": "monitor", "equal_token": "reject"})
        client = self.holder(gate)
        self.assertEqual(client.call("SET", "k", "1"), b"OK")
        eventually(lambda: self.cli.call("GET", MARK) == b"34")
        self.assertEqual(client.call("SET", "k", "2"), b"OK")
        self.assertEqual(self.holder(gate).call("SET", "k", "3"), b"OK")
        self.assertEqual(gate.metric("checks_total", outcome="admitted"), 1)
        self.assertEqual(gate.metric("checks_total", outcome="equal"), 3)  # its name and its write

    def test_an_error_of_an_old_arm_is_not_told_to_a_later_write(self):
        gate = self.gate()
        self.cli.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
        client = self.holder(gate, user="app", password="pw")
        self.assertEqual(client.call("SET", "k", "1"), b"OK")
        self.cli.call("ACL", "SETUSER", "app", "-mget")
        self.assertEqual(client.call("SET", "k", "2"), b"OK")  # proven before; the arm behind it fails
        self.cli.call("ACL", "SETUSER", "app", "+mget")
        self.assertEqual(client.call("SET", "k", "3"), b"OK")

    def test_the_head_timeout_begins_with_the_first_byte(self):
        gate = self.gate(extra={"timeouts": {"head": "4s"}})
        client = self.holder(gate)
        time.sleep(4.5)  # longer than the time-out, between two commands
        command = encode("SET", "k", "v")
        client.send(command[:10])
        time.sleep(1.2)  # more than two ticks, less than the time-out
        client.send(command[10:])
        self.assertEqual(client.reply(), b"OK")

    def test_a_client_is_not_read_for_ever_behind_a_blocked_command(self):
        gate = self.gate()
        client = self.start(Resp(gate.port))
        client.send_command("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        pieces = encode("SET", "k", "v") * 20_000
        sent = []

        def flood():
            try:
                for _ in range(60):
                    client.send(pieces)
                    sent.append(len(pieces))
            except OSError:
                pass  # the gate has stopped reading

        client.sock.settimeout(2)
        flooder = threading.Thread(target=flood)
        flooder.start()
        flooder.join()
        self.assertLess(sum(sent), 60 * len(pieces))


if __name__ == "__main__":
    main()
