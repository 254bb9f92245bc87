"""What becomes of batches. Of SETs, which reach Redis as one SET and one MSET: what they do is what SETs do, and what
Redis refuses of it is refused as SETs are. And of rights that change between a batch's queueing and EXEC."""

import random
import threading

from cut_proxy import CutProxy
from gate_process import Gate
from live_test import LiveTest, main
from processes import eventually
from redis_server import RedisServer
from resp import Resp, encode

TAG = "fence:orders=34"


def sets(count, value="v"):
    return [("SET", f"data:{n}", value) for n in range(count)]


class BeforeExec(CutProxy):
    """In front of a server to which, once the next batch with SETs is `queued`, something `happens` before EXEC arrives."""

    happens, happened = None, None

    def __init__(self, redis, queued):
        super().__init__(redis.port)
        self.redis, self.queued = redis, b"multi=%d" % queued

    def relay(self, pair, sink, data):
        if self.happens and b"data:" in data and encode("EXEC") in data:
            commands, exec_name, rest = data.partition(encode("EXEC"))
            sink.sendall(commands)
            eventually(lambda: self.queued in self.redis.cli.call("CLIENT", "LIST"))
            self.happened, self.happens = self.redis.cli.call(*self.happens), None
            data = exec_name + rest
        super().relay(pair, sink, data)


class Batches(LiveTest):
    def servers(self, **conf):
        redis = self.start(RedisServer(**conf))
        return redis, self.start(Gate(redis))

    def writer(self, gate, **login):
        client = self.start(Resp(gate.port, name=TAG, **login))
        self.assertEqual(client.named, b"OK")
        return client

    def test_they_do_what_sets_do(self):
        """The same pipelines to a server of its own and through a gate: replies, data, times to live, events."""
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        draw = random.Random(seed)
        (plain, gated), worlds = [RedisServer(notify_keyspace_events="KEA") for _ in range(2)], []
        gate = None
        for redis in (plain, gated):
            self.start(redis)
            if redis is gated:
                gate = self.start(Gate(redis))
            events = self.start(Resp(redis.port))
            events.send_command("PSUBSCRIBE", "__keyspace@0__:data:*")
            events.reply()
            worlds.append((redis, self.start(Resp(redis.port)) if redis is plain else self.writer(gate), events))
        values = [b"", b"0", b"-7", b"9223372036854775807", b"x" * 44, b"x" * 45, b"\r\n$3\r\nSET\r\n", bytes(range(256)),
                  b"y" * 20_000]
        preset = [("SET", "data:0", "x", "PX", 1_000_000), ("RPUSH", "data:1", "a"), ("HSET", "data:2", "f", "v"), ("INCR", "data:3")]
        for _ in range(60):
            pipeline = [("SET", f"data:{draw.randrange(8)}", draw.choice(values)) for _ in range(draw.choice((1, 2, 3, 17, 600)))]
            if draw.random() < 0.3:
                pipeline.insert(draw.randrange(len(pipeline)), ("GET", "data:1"))
            replies, states = [], []
            for redis, client, _ in worlds:
                redis.cli.call("DEL", *(f"data:{n}" for n in range(8)))
                for command in preset:
                    redis.cli.call(*command)
                replies.append(client.pipeline(pipeline))
                states.append([(redis.cli.call("DUMP", f"data:{n}"), redis.cli.call("OBJECT", "ENCODING", f"data:{n}"),
                                redis.cli.call("TTL", f"data:{n}") > 0) for n in range(4)])
            self.assertEqual(*replies)
            self.assertEqual(*states)
        for redis, _, _ in worlds:
            redis.cli.call("SET", "data:last", "")
        happened = [[], []]
        for (_, _, events), told in zip(worlds, happened):
            while not told or told[-1][0] != b"__keyspace@0__:data:last":
                told.append(events.reply()[2:])
        self.assertEqual(*happened)
        self.assertGreater(gated.calls("mset"), 10)

    def test_invalidations_are_those_of_sets(self):
        redis, gate = self.servers()
        reader = self.start(Resp(redis.port, proto=3))
        self.assertEqual(reader.call("CLIENT", "TRACKING", "ON"), b"OK")
        for command in sets(5):
            reader.call("GET", command[1])
        self.writer(gate).pipeline(sets(5))
        reader.call("PING")
        self.assertEqual(reader.pushes, [[b"invalidate", [f"data:{n}".encode()]] for n in range(5)])
        self.assertGreater(redis.calls("mset"), 0)

    def test_a_user_who_may_not_do_one_of_both(self):
        users = {"both": "+@all", "sets": "+@all -mset", "msets": "+@all -set"}
        redis, gate = self.servers(user="\nuser ".join(f"{name} on >pw %R~fencegate:* ~data:* {may}" for name, may in users.items()))
        for name in users:
            with self.subTest(user=name):
                writer = self.writer(gate, user=name, password="pw")
                for number in range(3):
                    replies = writer.pipeline(sets(20, f"{name}{number}"))
                    held = set(redis.cli.call("MGET", *(f"data:{n}" for n in range(20))))
                    if name == "msets":
                        self.assertEqual({reply.code for reply in replies}, {"NOPERM"})
                        self.assertIn("'set' command", str(replies[7]))
                        self.assertNotIn(f"{name}{number}".encode(), held)
                    else:
                        self.assertEqual((set(replies), held), ({b"OK"}, {f"{name}{number}".encode()}))
        self.assertGreater(redis.calls("mset"), 0)

    def test_a_key_that_is_not_the_users(self):
        redis, gate = self.servers(user="app on >pw %R~fencegate:* ~data:* +@all")
        replies = self.writer(gate, user="app", password="pw").pipeline([*sets(5), ("SET", "other", "v"), *sets(5)])
        self.assertEqual([getattr(reply, "code", reply) for reply in replies], [*[b"OK"] * 5, "NOPERM", *[b"OK"] * 5])
        self.assertEqual(redis.cli.call("EXISTS", "other"), 0)

    def test_mset_has_another_name(self):
        for renamed in ('MSET ""', "MSET other"):
            with self.subTest(renamed=renamed):
                redis, gate = self.servers(rename_command=renamed)
                replies = self.writer(gate).pipeline(sets(20))
                self.assertEqual((set(replies), redis.cli.call("GET", "data:19")), ({b"OK"}, b"v"))
                self.assertEqual(redis.calls("mset"), 0)

    def test_a_full_server(self):
        redis, gate = self.servers()
        writer = self.writer(gate)
        writer.pipeline(sets(20, "before"))
        redis.cli.call("CONFIG", "SET", "maxmemory", "1")
        self.assertEqual({reply.code for reply in writer.pipeline(sets(20, "full"))}, {"OOM"})
        self.assertEqual(set(redis.cli.call("MGET", *(f"data:{n}" for n in range(20)))), {b"before"})
        redis.cli.call("CONFIG", "SET", "maxmemory", "0")
        merged = redis.calls("mset")
        for _ in range(200):
            self.assertEqual(set(writer.pipeline(sets(20, "after"))), {b"OK"})
        self.assertGreater(redis.calls("mset"), merged)  # merging came back

    def test_something_happens_between_queueing_and_exec(self):
        """EXEC looks at the user's rights again: who may SET is refused nothing. And at the mark."""
        may = ("ACL", "SETUSER", "app", "on", ">pw", "%R~fencegate:*", "~data:*", "+@all")
        cases = {"no MSET any more": (("ACL", "SETUSER", "app", "-mset"), None),
                 "one key less": (("ACL", "SETUSER", "app", "resetkeys", "%R~fencegate:*", "~data:1*", "~data:0"), "NOPERM"),
                 "raised": (("SET", "fencegate:mark:{orders}", 99), "FENCED")}
        for name, (change, code) in cases.items():
            with self.subTest(case=name):
                redis = self.start(RedisServer())
                redis.cli.call(*may)
                proxy = self.start(BeforeExec(redis, queued=2))
                gate = self.start(Gate(proxy))
                writer = self.writer(gate, user="app", password="pw")
                proxy.happens = change
                replies = writer.pipeline(sets(20))
                self.assertEqual(proxy.happened, b"OK")
                refused = {f"data:{n}" for n, reply in enumerate(replies) if getattr(reply, "code", "") == code}
                absent = {f"data:{n}" for n in range(20) if not redis.cli.call("EXISTS", f"data:{n}")}
                self.assertEqual(refused, absent)
                self.assertEqual(len(refused), {None: 0, "NOPERM": 8, "FENCED": 20}[code])
                self.assertEqual(replies.count(b"OK"), 20 - len(refused))

    def test_a_token_that_could_not_be_used_up_is_used_up_later(self):
        """EXEC refuses the mark and runs the writes. The gate that sees it raises the mark itself."""
        for change, database in ((("resetkeys", "%R~fencegate:*", "~data:*"), 0), (("-select",), 3)):
            with self.subTest(change=change):
                redis = self.start(RedisServer())
                redis.cli.call("ACL", "SETUSER", "app", "on", ">pw", "~fencegate:*", "~data:*", "+@all")
                proxy = self.start(BeforeExec(redis, queued=2 if database == 0 else 4))
                gate = self.start(Gate(proxy, policy={"equal_token": "reject"}))
                writer = self.writer(gate, user="app", password="pw")
                writer.call("SELECT", database)
                proxy.happens = ("ACL", "SETUSER", "app", *change)
                writer.send_command("SET", "data:0", "v")
                self.assertTrue(writer.closed())
                self.assertEqual(proxy.happened, b"OK")
                eventually(lambda: redis.cli.call("GET", "fencegate:mark:{orders}") == b"34")
                with Resp(gate.port, name="fence:orders=33") as older:
                    self.assertEqual(older.call("SET", "data:0", "w").code, "FENCED")

    def test_none_lands_behind_a_raise(self):
        """Older holders write without pause while others take over: what the new one finds stays as it is."""
        redis, gate = self.servers()
        other = self.start(Gate(redis))
        keys = [key for _, key, _ in sets(50)]
        for older in range(10, 600, 10):
            stop, refused = threading.Event(), []

            def write(token=older, stop=stop, refused=refused):
                with Resp(gate.port, name=f"fence:orders={token}") as writer:
                    while not stop.is_set():
                        refused += [reply for reply in writer.pipeline(sets(50, token)) if reply != b"OK"]
            writers = [threading.Thread(target=write) for _ in range(3)]
            for one in writers:
                one.start()
            try:
                eventually(lambda token=older: redis.cli.call("GET", keys[-1]) == b"%d" % token)
                with Resp(other.port, name=f"fence:orders={older + 5}") as holder:
                    found = holder.call("MGET", *keys)
                    eventually(lambda refused=refused: len(refused) >= 500)
                    self.assertEqual((holder.named, holder.call("MGET", *keys)), (b"OK", found))
            finally:
                stop.set()
                for one in writers:
                    one.join()
            self.assertEqual({reply.code for reply in refused}, {"FENCED"})
        self.assertGreater(redis.calls("mset"), 60)


if __name__ == "__main__":
    main()
