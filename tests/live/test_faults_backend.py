"""The server is in a state in which it refuses, delays or forgets: the table of those states against each step."""

import contextlib
import os
import threading

from cut_proxy import CutProxy
from fault_table import Bench, Fault, FaultTest, LiveGate, answer, arrives, between_batches, bound, in_flight, raises
from gate_process import Gate
from live_test import main
from processes import LOOPBACK, eventually, free_port
from redis_server import RedisServer
from resp import Resp, RespError


def config(name, setting, value, usual, **more):
    return Fault(name, lambda bench: bench.must("CONFIG", "SET", setting, value),
                 lambda bench: bench.must("CONFIG", "SET", setting, usual), **more)


class Backend(FaultTest):
    def test_script_cache_is_flushed_all_the_time(self):
        bench = Bench(self)
        stop = threading.Event()
        threads = []

        def flush():
            with Resp(bench.redis.port) as client:
                while not stop.is_set():
                    client.call("SCRIPT", "FLUSH")

        def inject(_):
            stop.clear()
            threads.append(threading.Thread(target=flush))
            threads[-1].start()

        def undo(_):
            stop.set()
            threads.pop().join()

        self.through(bench, Fault("SCRIPT FLUSH", inject, undo, harmless=True))

    def test_out_of_memory(self):
        self.through(Bench(self), config("OOM", "maxmemory", "1", "0", denies_writes=True, own_words=True))

    def test_a_fenced_client_can_free_memory(self):
        bench = Bench(self)
        for title, prepare in (("fresh", ()), ("armed", (("SET", "data:x", "1"),)),
                               ("watching", (("WATCH", "data:x"),)), ("selected",
                                       (("SELECT", "1"), ("SET", "data:x", "1"), ("SELECT", "0")))):
            with self.subTest(title):
                bench.next_resource()
                client = bench.writer(33)
                self.assertEqual(client.call("SET", "data:big", "v" * 10000), b"OK")
                for command in prepare:
                    self.assertEqual(client.call(*command), b"OK")
                bench.must("CONFIG", "SET", "maxmemory", "1")
                try:
                    self.assert_error(client.call("SET", "data:y", "1"), "OOM")
                    replies = client.pipeline([("SET", "data:y", "1"), ("DEL", "data:big"), ("GET", "data:big"),
                                               ("SET", "data:y", "1"), ("LPOP", "data:none"),
                                               ("EXPIRE", "data:none", "1")])
                    self.assertEqual([replies[1], replies[2], replies[4], replies[5]], [1, None, None, 0])
                    self.assert_error(replies[0], "OOM")
                    self.assert_error(replies[3], "OOM")
                    if title != "watching":  # where they are refused
                        self.assert_error(client.call("EVAL", "return redis.call('DEL', KEYS[1])", "1", "data:none"), "OOM")
                        self.waits_on_a_full_server(bench, client)
                    bench.must("CONFIG", "SET", "maxmemory", "0")
                    bench.must("SET", bench.mark_key, 34)
                    bench.must("SET", "data:big", "kept")
                    bench.must("CONFIG", "SET", "maxmemory", "1")
                    self.assert_error(client.call("DEL", "data:big"), "FENCED")
                    self.assertEqual(bench.must("GET", "data:big"), b"kept")
                finally:
                    bench.must("CONFIG", "SET", "maxmemory", "0")

    def waits_on_a_full_server(self, bench, client):
        """What waits takes what is there, waits for what comes, and ends in time, as direct."""
        def fill(*command):
            bench.must("CONFIG", "SET", "maxmemory", "0")
            bench.must(*command)
            bench.must("CONFIG", "SET", "maxmemory", "1")

        for come, waits, answer in ((("RPUSH", "data:l", "a"), ("BLPOP", "data:none", "data:l", "0"), [b"data:l", b"a"]),
                                    (("RPUSH", "data:l", "a"), ("BLMPOP", "0", "1", "data:l", "LEFT"), [b"data:l", [b"a"]]),
                                    (("ZADD", "data:z", "1.5", "m"), ("BZPOPMIN", "data:z", "0"), [b"data:z", b"m", b"1.5"])):
            for there in (True, False):
                if there:
                    fill(*come)
                client.send_command(*waits)
                if not there:
                    fill(*come)
                self.assertEqual(client.reply(), answer)
        self.assertIsNone(client.call("BLPOP", "data:none", "0.1"))

    def test_snapshots_fail(self):
        bench = Bench(self)

        def inject(bench):
            bench.must("CONFIG", "SET", "save", "3600 1000000")
            os.makedirs(os.path.join(bench.redis.folder, "dump.rdb", "x"),
                        exist_ok=True)  # nothing can be renamed onto it
            bench.must("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
            if bench.redis.info("persistence")["rdb_last_bgsave_status"] != "err":
                bench.must("BGSAVE")
                eventually(lambda: bench.redis.info("persistence")["rdb_last_bgsave_status"] == "err")

        self.through(bench, Fault("MISCONF", inject, lambda bench: bench.must("CONFIG", "SET",
                "stop-writes-on-bgsave-error", "no"), denies_writes=True, own_words=True))

    def test_demoted_to_a_replica(self):
        fault = Fault("READONLY", lambda bench: bench.must("REPLICAOF", "127.0.0.1", free_port()),
                      lambda bench: bench.must("REPLICAOF", "NO", "ONE"), denies_writes=True)
        self.through(Bench(self), fault)

    def test_a_promoted_replica_that_missed_a_mark(self):
        """What this gate has seen it knows: the mark is put back, whoever asks first."""
        for proto, first in ((2, 33), (3, 33), (2, 34)):
            with self.subTest(first=first, proto=proto):
                primary, replica = (self.start(RedisServer(repl_diskless_sync_delay="0")) for _ in range(2))
                replica.cli.call("REPLICAOF", LOOPBACK, primary.port)
                door = self.start(CutProxy(primary.port))
                gate = self.start(Gate(door))
                old = self.start(Resp(gate.port, name="fence:orders=33"))
                self.assertEqual(old.call("RPUSH", "log", "33"), 1)
                eventually(lambda: replica.cli.call("LLEN", "log") == 1)
                replica.cli.call("REPLICAOF", "NO", "ONE")
                with Resp(gate.port, name="fence:orders=34") as holder:
                    self.assertEqual([holder.named, holder.call("RPUSH", "log", "34")], [b"OK", 2])
                self.assertEqual(replica.cli.call("GET", "fencegate:mark:{orders}"), b"33")
                door.target_port = replica.port
                door.cut_all()
                self.assertTrue(old.closed())

                def write(token):
                    with contextlib.suppress(OSError), Resp(gate.port, name=f"fence:orders={token}", proto=proto) as late:
                        reply = late.call("RPUSH", "log", token)
                        return None if isinstance(reply, RespError) and reply.code == "FENCEDOWN" else reply
                answered = eventually(lambda: write(first))
                self.assertEqual(getattr(answered, "code", answered), "FENCED" if first == 33 else 2)
                self.assertEqual(replica.cli.call("LRANGE", "log", 0, -1), [b"33"] if first == 33 else [b"33", b"34"])
                eventually(lambda: replica.cli.call("GET", "fencegate:mark:{orders}") == b"34")
                self.assertGreaterEqual(gate.metric("regressions_total"), 1)

    def test_too_few_replicas(self):
        self.through(Bench(self), config("NOREPLICAS", "min-replicas-to-write", "1", "0", denies_writes=True,
                                         own_words=True))

    def test_a_script_runs_for_ever(self):
        bench = Bench(self, busy_reply_threshold="20")
        looping = []

        def inject(bench):
            looping.append(Resp(bench.redis.port))
            looping[-1].send_command("EVAL", "while true do end", 0)
            eventually(lambda: isinstance(bench.cli.call("GET", "x"), RespError))

        def undo(bench):
            def kill():
                reply = bench.cli.call("SCRIPT", "KILL")
                return reply == b"OK" or reply.code == "NOTBUSY"
            eventually(kill)
            looping[-1].reply()
            looping.pop().close()
            eventually(lambda: bench.cli.call("PING") == b"PONG")

        self.through(bench, Fault("BUSY", inject, undo, denies_writes=True))

    def test_a_client_may_end_what_runs_for_ever(self):
        """FUNCTION KILL, and SCRIPT KILL where an operator allows it, also from a link that stands inside MULTI."""
        for prepare, run, kill in (
                (("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() while true do end end)"),
                 ("FCALL", "f", 0), ("FUNCTION", "KILL")),
                (("PING",), ("EVAL", "while true do end", 0), ("SCRIPT", "KILL"))):
            with self.subTest(kill=kill):
                redis = self.start(RedisServer(busy_reply_threshold="20"))
                gate = self.start(Gate(redis, allow_commands=["script|kill"]))
                client = self.start(Resp(gate.port, name="fence:orders=34"))
                looping = self.start(Resp(redis.port))
                looping.call(*prepare)
                self.assertEqual(client.call("SET", "k", "before"), b"OK")
                looping.send_command(*run)
                eventually(lambda: isinstance(redis.cli.call("GET", "x"), RespError))
                self.assert_error(client.call("SET", "k", "meanwhile"), "BUSY")
                self.assertEqual(client.call(*kill), b"OK")
                self.assertIsInstance(looping.reply(), RespError)
                self.assertEqual([client.call("GET", "k"), client.call("SET", "k", "after")], [b"before", b"OK"])

    def test_behind_a_long_script_the_next_write_passes(self):
        """The gate was answered BUSY meanwhile, and so were others, in whatever database they are."""
        redis = self.start(RedisServer(busy_reply_threshold="20"))
        gate = self.start(Gate(redis))
        for database in (0, 3):
            clients = [self.start(Resp(gate.port, name="fence:orders=34")) for _ in range(3)]
            for client in clients:
                self.assertEqual(client.call("SELECT", database), b"OK")
            runs, armed, new = clients
            self.assertEqual(armed.call("SET", "k", "before"), b"OK")
            runs.send_command("EVAL", "local t = redis.call('TIME')[1] while redis.call('TIME')[1] - t < 4 do end", 0)
            eventually(lambda: isinstance(redis.cli.call("GET", "x"), RespError))
            for client in (armed, new):
                for command in (("GET", "k"), ("SET", "k", "meanwhile"), ("GET", "k")):
                    self.assert_error(client.call(*command), "BUSY")
            self.assertIsNone(runs.reply())
            for client in clients:
                self.assertEqual(client.call("SET", "k", "after"), b"OK")

    def test_loading(self):
        bench = Bench(self, appendonly="no", key_load_delay="3000", loading_process_events_interval_bytes="1024")
        bench.cli.pipeline([("SET", f"data:fill:{n}", "v" * 300) for n in range(2000)])

        def inject(bench):
            bench.must("SAVE")
            bench.redis.up = lambda: True  # do not wait until it is loaded
            bench.redis.restart()
            eventually(lambda: self.is_loading(bench))

        def undo(bench):
            bench.must("CONFIG", "SET", "key-load-delay", "0")
            del bench.redis.up
            eventually(bench.redis.up)
            bench.must("CONFIG", "SET", "key-load-delay", "3000")

        self.through(bench, Fault("LOADING", inject, undo, denies_writes=True),
                     (arrives, bound, between_batches, in_flight, raises))

    @staticmethod
    def is_loading(bench):
        bench.redis._drop_cli()
        try:
            return getattr(bench.cli.call("GET", "x"), "code", "") == "LOADING"
        except OSError:
            return False

    def test_restarted(self):
        bench = Bench(self, appendfsync="always")  # else Redis may put off writing what it has acknowledged
        self.through(bench, Fault("restart", lambda bench: bench.redis.restart(), lambda bench: None, denies_writes=True))

    def test_links_are_killed(self):
        fault = Fault("CLIENT KILL", lambda bench: bench.must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
                      lambda bench: None)
        self.through(Bench(self), fault)

    def test_writes_are_paused(self):
        fault = Fault("CLIENT PAUSE", lambda bench: bench.must("CLIENT", "PAUSE", "700", "WRITE"),
                      lambda bench: bench.must("CLIENT", "UNPAUSE"), denies_writes=True)
        self.through(Bench(self), fault, (arrives, bound, between_batches, in_flight))

    def test_the_server_is_frozen(self):
        """What was sent is executed when it thaws, so the answer may come late; a stale write must not be among it."""
        bench = Bench(self)
        for round_ in range(3):
            bench.next_resource()
            client = bench.writer(33)
            self.assertEqual(bench.write(client, 33), "done")
            bench.redis.stop_process()
            try:
                client.send_command("RPUSH", bench.log_key, "first")
                successor = Resp(bench.redis.port)
                successor.send_command("SET", bench.mark_key, "34")
                client.send_command("RPUSH", bench.log_key, "second")
            finally:
                bench.redis.continue_process()
            self.assertEqual(successor.reply(), b"OK")
            successor.call("RPUSH", bench.log_key, "34")
            answers = [answer(client.reply), answer(client.reply)]
            log = bench.log()
            self.assertEqual(log[0], b"33")
            self.assertEqual([b"first" in log, b"second" in log],
                             [got == "done" for got in answers] if "closed" not in answers else [b"first" in log,
                                     b"second" in log])
            self.assertIn(b"34", log)
            bench.check_recovery()
            self.note("SIGSTOP of the server", f"round {round_}", " ".join(answers))

    # ----------------------------------------------------------------------------- servers that must not be used at all

    def test_eviction_of_all_keys_is_refused(self):
        fault = Fault("allkeys-lru", lambda bench: (bench.must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
                                                    bench.must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
                      lambda bench: bench.must("CONFIG", "SET", "maxmemory-policy", "noeviction"))
        bench = Bench(self)
        self.through(bench, fault, (arrives, raises))
        bench.next_resource()
        with bench.faulty(fault):
            eventually(lambda: bench.fresh_write(33) == "FENCEDOWN")
            self.assertEqual(bench.log(), [])

    def test_eviction_from_the_start(self):
        self.never_served(RedisServer(maxmemory_policy="allkeys-random"), "evict")

    def test_a_cluster_is_refused(self):
        redis = RedisServer(cluster_enabled="yes", cluster_port=free_port(), databases="1")
        self.never_served(redis, "luster", lambda cli: cli.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383))

    def test_a_replica_is_refused(self):
        self.never_served(RedisServer(replicaof=f"127.0.0.1 {free_port()}"), "replica")

    def never_served(self, server, word, prepare=lambda cli: None):
        redis = self.start(server)
        prepare(redis.cli)
        gate = self.start(LiveGate(redis))

        def refused():
            with contextlib.suppress(OSError), Resp(gate.port, name="fence:orders=34") as client:
                self.assert_error(client.named, "FENCEDOWN")
                if word in str(client.named):  # before the gate has looked at the server, it closes
                    self.assert_error(client.call("SET", "k", "v"), "FENCEDOWN")
                    return True
            return False
        eventually(refused)
        self.assertNotEqual(redis.cli.call("GET", "k"), b"v")


if __name__ == "__main__":
    main(at_once=2)
