"""What a client does around its fenced writes, and what happens to the gate meanwhile, opens no way past the check."""

import contextlib
import random
import threading
import time

from fault_table import FaultTest, answer
from gate_process import Gate
from live_test import main
from processes import eventually
from redis_server import RedisServer
from resp import Push, Resp, RespError, encode

STRAYS = ("EXEC", "DISCARD", "RESET", "UNWATCH", "MULTI", "MULTI EXEC", "MULTI DISCARD", "MULTI MULTI EXEC",
          "WATCH data:x", "MULTI RESET", "MULTI UNWATCH DISCARD", "EXEC EXEC", "DISCARD EXEC",
          "WATCH data:x UNWATCH", "SELECT 1", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT CACHING YES", "HELLO 3",
          "AUTH x", "PING", "SUBSCRIBE c", "UNSUBSCRIBE", "MONITOR", "QUIT", "NOSUCH",
          "EVAL x 0", "CLIENT NO-EVICT OFF", "FENCE CLEAR", "FENCE GET")


def stray_commands(text):
    """"WATCH data:x UNWATCH" is two commands."""
    one_word = {"EXEC", "DISCARD", "RESET", "UNWATCH", "MULTI", "PING", "UNSUBSCRIBE", "MONITOR", "QUIT", "NOSUCH"}
    commands = []
    for word in text.split():
        if word in one_word or not commands or commands[-1][0] in one_word:
            commands.append([word])
        else:
            commands[-1].append(word)
    return [["WATCH", "data:x"] if c[0] == "WATCH" else c for c in commands if c[0] != "data:x"]


class AroundTheWrites(FaultTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        self.gate = self.start(Gate(self.redis))
        self.other_gate = self.start(Gate(self.redis))
        self.numbers = iter(range(1, 10000))

    def next_resource(self):
        self.resource = f"c{next(self.numbers)}"
        self.key = f"data:{self.resource}"

    def client(self, token=33, **more):
        client = self.start(Resp(self.gate.port, name=f"fence:{self.resource}={token}", **more))
        self.assertNotIsInstance(client.named, RespError)
        return client

    def supersede(self, token=34):
        with Resp(self.other_gate.port, name=f"fence:{self.resource}={token}") as successor:
            self.assertEqual(successor.named, b"OK")

    def in_redis(self, database=0):
        with Resp(self.redis.port) as cli:
            cli.call("SELECT", database)
            return cli.call("LRANGE", self.key, 0, -1)

    def drain(self, client):
        """All that comes until it is quiet or closed."""
        got = []
        client.sock.settimeout(0.4)
        with contextlib.suppress(OSError):
            while True:
                got.append(client.read())
        return got

    # --------------------------------------------------------------------------------------------------- strays

    def test_strays_around_stale_writes_of_resp2(self):
        self.strays_around_stale_writes(2)

    def test_strays_around_stale_writes_of_resp3(self):
        self.strays_around_stale_writes(3)

    def strays_around_stale_writes(self, proto):
        for stray in STRAYS:
            with self.subTest(stray=stray):
                self.next_resource()
                client = self.client(proto=proto)
                self.assertEqual(client.call("RPUSH", self.key, "33"), 1)
                self.supersede()
                write = encode("RPUSH", self.key, "stale")
                between = b"".join(encode(*command) for command in stray_commands(stray))
                client.send(write + between + write + between + write + write + encode("EXEC") + write)
                got = self.drain(client)
                self.assertEqual(self.in_redis(), [b"33"], got)
                self.assertEqual(self.in_redis(1), [], got)
                self.assertFalse(any(reply == 2 for reply in got if isinstance(reply, int)))
                self.note("stale writes around " + stray, f"RESP{proto}", "closed")
        for number in range(1, next(self.numbers)):  # nothing came late
            self.assertIn(self.redis.cli.call("LRANGE", f"data:c{number}", 0, -1), ([], [b"33"]))

    def test_strays_at_the_moment_of_the_takeover(self):
        """A stream of writes and strays while the mark rises: no stale write behind the successor's first."""
        for stray in ("EXEC", "DISCARD", "UNWATCH", "MULTI EXEC", "MULTI DISCARD", "WATCH data:x UNWATCH",
                      "CLIENT REPLY SKIP PING", "SELECT 0", "NOSUCH", "PING"):
            with self.subTest(stray=stray):
                self.next_resource()
                client = self.client()
                burst = (encode("RPUSH", self.key, 33) + b"".join(encode(*c) for c in stray_commands(stray))) * 20
                stop = threading.Event()
                seen = []

                def read():
                    with contextlib.suppress(OSError):
                        while True:
                            seen.append(client.read())

                def write():
                    with contextlib.suppress(OSError):
                        while not stop.is_set():
                            known = len(seen)  # before: the answers may be quick
                            client.send(burst)
                            eventually(lambda: len(seen) > known or stop.is_set())

                threads = [threading.Thread(target=read), threading.Thread(target=write)]
                for thread in threads:
                    thread.start()
                try:
                    eventually(lambda: len(seen) > 300)
                    self.supersede()
                    with Resp(self.other_gate.port, name=f"fence:{self.resource}=34") as successor:
                        self.assertIsInstance(successor.call("RPUSH", self.key, 34), int)
                    eventually(lambda: any(isinstance(reply,
                                                      RespError) and reply.code == "FENCED" for reply in seen[-50:]))
                finally:
                    stop.set()
                    client.sock.shutdown(2)
                    for thread in threads:
                        thread.join()
                log = self.in_redis()
                self.assertEqual(log.index(b"34"), len(log) - 1)
                self.note("takeover with " + stray, "in flight", "closed")

    def test_quit_in_the_middle(self):
        self.next_resource()
        client = self.client()
        client.send(encode("RPUSH", self.key, "a") + encode("QUIT") + encode("RPUSH", self.key, "b"))
        self.assertEqual([client.read(), client.read(), client.closed()], [1, b"OK", True])
        self.assertEqual(self.in_redis(), [b"a"])

    def test_reply_off_hides_rejections_but_not_the_fence(self):
        self.next_resource()
        client = self.client()
        client.send(encode("CLIENT", "REPLY", "OFF") + encode("RPUSH", self.key, "a"))
        eventually(lambda: self.in_redis() == [b"a"])
        self.supersede()
        client.send(encode("RPUSH", self.key, "stale") * 3 + encode("CLIENT", "REPLY", "ON") + encode("CLIENT", "REPLY",
                "SKIP") + encode("RPUSH", self.key, "stale") + encode("RPUSH", self.key, "stale"))
        self.assertEqual(client.read(), b"OK")
        self.assert_error(client.read(), "FENCED")
        self.assertEqual(self.in_redis(), [b"a"])

    def test_caching_stays_with_its_read(self):
        self.next_resource()
        self.redis.cli.call("MSET", "data:x", 1, "data:y", 1, "data:z", 1)
        client = self.client(proto=3)
        self.assertEqual(client.call("CLIENT", "TRACKING", "ON", "OPTIN"), b"OK")
        replies = client.pipeline([("RPUSH", self.key, 1), ("CLIENT", "CACHING", "YES"), ("GET", "data:x"),
                                   ("GET", "data:y"), ("RPUSH", self.key, 2), ("CLIENT", "CACHING", "YES"),
                                   ("RPUSH", self.key, 3), ("GET", "data:z")])
        self.assertEqual(replies, [1, b"OK", b"1", b"1", 2, b"OK", 3, b"1"])
        self.redis.cli.call("MSET", "data:y", 2, "data:z", 2, "data:x", 2)
        self.supersede()
        self.assert_error(client.call("RPUSH", self.key, "stale"), "FENCED")
        self.assertEqual(client.call("PING"), b"PONG")
        self.assertEqual(client.pushes, [Push([b"invalidate", [b"data:x"]])])

    def test_caching_reaches_transactions(self):
        self.next_resource()
        client = self.client(proto=3)
        self.assertEqual(client.call("CLIENT", "TRACKING", "ON", "OPTIN"), b"OK")
        caching = ("CLIENT", "CACHING", "YES")
        for place, how in ("in front", (caching, ("MULTI",))), ("behind", (("MULTI",), caching)):
            with self.subTest(place):
                client.pushes.clear()
                client.pipeline([("RPUSH", self.key, 1), *how, ("GET", "data:x"), ("EXEC",)])
                self.redis.cli.call("SET", "data:x", place)
                eventually(lambda: client.call("PING") == b"PONG" and client.pushes)
                self.assertEqual(client.pushes, [Push([b"invalidate", [b"data:x"]])])

    def test_pushes_between_the_elements_of_exec(self):
        """A client that hears its own messages, in RESP3: each lands inside the reply of the batch."""
        self.next_resource()
        client = self.client(proto=3)
        client.send_command("SUBSCRIBE", "own")
        self.assertEqual(client.read(), [b"subscribe", b"own", 1])
        for round_ in range(20):
            replies = client.pipeline([("RPUSH", self.key, round_), ("PUBLISH", "own", round_), ("LLEN", self.key),
                                       ("PUBLISH", "own", "again"), ("RPUSHX", "none", "x")])
            self.assertEqual(replies, [round_ + 1, 1, round_ + 1, 1, 0])
        client.call("PING")
        self.assertEqual(len(client.pushes), 40)
        self.supersede()
        replies = client.pipeline([("PUBLISH", "own", "stale"), ("RPUSH", self.key, "stale"), ("GET", "data:none")])
        self.assert_error(replies[0], "FENCED")
        self.assert_error(replies[1], "FENCED")
        self.assertIsNone(replies[2])
        client.call("PING")
        self.assertEqual(len(client.pushes), 40)

    # ------------------------------------------------------------------------------------- the gate, and its links

    def test_gate_frozen_at_random_points(self):
        seed = random.randrange(1 << 32)
        dice = random.Random(seed)
        self.next_resource()
        fenced = 0
        for token in range(33, 73):
            with self.subTest(seed=seed, token=token):
                fenced += self.freeze_once(token, dice)
        self.assertGreater(fenced, 5, "the gate was never frozen with writes in it")
        self.note("gate frozen", "40 takeovers", f"{fenced} rejected")

    def freeze_once(self, token, dice):
        with Resp(self.gate.port, name=f"fence:{self.resource}={token}") as client:
            self.assertEqual(client.named, b"OK")
            stop = threading.Event()
            replies = []

            def stream():
                with contextlib.suppress(OSError):
                    while not stop.is_set():
                        count = dice.choice((1, 3, 40))
                        client.send(encode("RPUSH", self.key, token) * count)
                        replies.extend(client.read() for _ in range(count))

            thread = threading.Thread(target=stream)
            thread.start()
            try:
                eventually(lambda: len(replies) > 5)
                time.sleep(dice.random() * 0.01)  # where it is frozen is left to chance
                self.gate.stop_process()
                try:
                    with Resp(self.other_gate.port, name=f"fence:{self.resource}={token + 1}") as successor:
                        self.assertEqual(successor.named, b"OK")
                        self.assertIsInstance(successor.call("RPUSH", self.key, token + 1), int)
                finally:
                    self.gate.continue_process()
                eventually(lambda: any(isinstance(reply, RespError) for reply in replies[-300:]))
            finally:
                stop.set()
                client.sock.shutdown(2)
                thread.join()
        tokens = [int(entry) for entry in self.in_redis()]
        self.assertEqual(tokens, sorted(tokens))
        for reply in replies:
            if isinstance(reply, RespError):
                self.assertEqual(reply.code, "FENCED")
        return sum(isinstance(reply, RespError) for reply in replies)

    def test_links_killed_during_batches(self):
        """Each acknowledged write is there once, no write twice; a closed connection leaves only what was sent."""
        self.next_resource()
        acknowledged, cut = [], 0
        for round_ in range(100):
            with eventually(self.client_or_none) as client:
                values = [f"{round_}:{n}" for n in range(20_000)]  # so many that the end comes in the middle
                sender = threading.Thread(target=client._send_quietly,
                                          args=(b"".join(encode("RPUSH", self.key, value) for value in values),))
                sender.start()
                for value in values:
                    got = answer(client.read)
                    if got != "done":
                        break
                    if not acknowledged or not acknowledged[-1].startswith(f"{round_}:"):
                        self.redis.cli.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                    acknowledged.append(value)
                self.assertIn(got, ("done", "closed", "FENCEDOWN"))
                cut += got != "done"
                with contextlib.suppress(OSError):  # it may have been reset
                    client.sock.shutdown(2)
                sender.join()
            if cut == 10:
                break
        log = [entry.decode() for entry in self.in_redis()]
        self.assertEqual(len(log), len(set(log)), "a write was applied twice")
        self.assertLessEqual(set(acknowledged), set(log))
        self.note("CLIENT KILL during a batch", f"{cut} cut", f"{len(acknowledged)} acknowledged, {len(log)} applied")
        self.assertEqual(cut, 10, "hardly anything was ever cut")

    def client_or_none(self):
        """A client, once the gate's own links are back; each of its threads has one."""
        with contextlib.suppress(OSError):
            client = Resp(self.gate.port, name=f"fence:{self.resource}=33")
            if client.named == b"OK":
                return client
            client.close()
        return None

    def test_gate_killed_while_it_is_frozen(self):
        self.next_resource()
        client = self.client()
        self.assertEqual(client.call("RPUSH", self.key, "33"), 1)
        self.gate.stop_process()
        client.send(encode("RPUSH", self.key, "stale") * 10)
        self.supersede()
        self.gate.kill()
        self.assertTrue(client.closed())
        self.gate.start()
        with Resp(self.gate.port, name=f"fence:{self.resource}=33") as late:
            self.assert_error(late.named, "FENCED")
        self.assertEqual(self.in_redis(), [b"33"])


if __name__ == "__main__":
    main(at_once=3)
