"""A client cannot tell the gate from Redis: the same stories are told to a Redis directly, to a gate in monitor mode
and to a fenced connection, and every byte of every answer must be the same.

Each place has a Redis of its own, so that all three servers pass through the same states; each story uses keys of its
own."""

import re
import socket
import sys
import threading
import time
import unittest

from gate_process import Gate
from live_test import LiveTest, main
from processes import PATIENCE, eventually
from redis_server import RedisServer
from resp import Resp, encode

CHANGING = re.compile(rb"(\$2\r\nid\r\n):\d+\r\n")  # HELLO names the connection's id


class Recorder(Resp):
    def raw(self):
        """The next reply or push, byte for byte."""
        start = self._at
        self._value()
        return bytes(self._buffer[start : self._at])


class Play:
    """One telling of a story in one place. Clients appear when first named; `heard` is what all of them got."""

    def __init__(self, port, name, proto):
        self.port, self.name, self.proto = port, name, proto
        self.clients = {}
        self.heard = []

    def client(self, who):
        if who not in self.clients:
            self.clients[who] = Recorder(self.port, name=self.name, proto=self.proto)
            assert self.clients[who].named in (b"OK", None) or self.proto == 3, self.clients[who].named
        return self.clients[who]

    def say(self, *commands, who="a", replies=None):
        """All commands in one write, then their replies: one each, unless said otherwise."""
        data = b"".join(encode(*(c if isinstance(c, tuple) else c.split(" "))) for c in commands)
        return self.send(data, len(commands) if replies is None else replies, who)

    def send(self, data, replies, who="a"):
        client = self.client(who)
        sender = threading.Thread(target=client._send_quietly, args=(data,), daemon=True)
        sender.start()
        got = self.hear(replies, who)
        sender.join()
        return got

    def hear(self, replies, who="a"):
        got = []
        for _ in range(replies):
            try:
                got.append(CHANGING.sub(rb"\1:0\r\n", self.client(who).raw()))
            except TimeoutError:
                got.append(b"(nothing came)")
                break
            except ConnectionError:
                got.append(b"(closed)")
                break
        self.heard += [who.encode() + b"> " + reply for reply in got]
        return got

    def hear_close(self, who="a"):
        self.heard.append(who.encode() + (b"> closed" if self.client(who).closed() else b"> still open"))

    def end(self):
        for client in self.clients.values():
            client.close()


class Protocol(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.places = {}
        for place, policy, name in (("direct", None, "fence:orders=34"), ("monitor", {"mode": "monitor"}, "plain"),
                                    ("fenced", {}, "fence:orders=34")):
            redis = cls.enterClassContext(RedisServer())
            redis.cli.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
            if policy is None:
                cls.places[place] = (redis.port, name)
            else:
                gate = cls.enterClassContext(Gate(redis, policy=policy))
                cls.places[place] = (gate.port, name)
        cls.fenced_redis, cls.fenced_gate = redis, gate

    def same(self, story, protos=(2, 3), pushes_anywhere=False):
        """`pushes_anywhere`: a push must come, but may stand in front of another reply than without the gate."""
        for proto in protos:
            told = {place: self.tell(story, port, name, proto) for place, (port, name) in self.places.items()}
            if pushes_anywhere:
                told = {place: sorted(heard, key=lambda one: one[3:4] == b">") for place, heard in told.items()}
            for place in ("monitor", "fenced"):
                with self.subTest(place=place, proto=proto):
                    self.compare(told["direct"], told[place])

    def tell(self, story, port, name, proto):
        play = Play(port, name, proto)
        try:
            story(play)
        finally:
            play.end()
        self.assertNotIn(b"(nothing came)", b"".join(play.heard) if port == self.places["direct"][0] else b"")
        return play.heard

    def compare(self, wanted, got):
        for at, (one, other) in enumerate(zip(wanted, got)):
            self.assertEqual(one[:2000], other[:2000], f"reply {at}")
            self.assertTrue(one == other, f"reply {at} differs behind its first 2000 bytes")
        self.assertEqual(len(wanted), len(got))

    # ------------------------------------------------------------------------------------------------ values

    def test_every_kind_of_value(self):
        def story(play):
            play.say("DEL v:s v:l v:h v:z v:set v:n v:st", "SET v:s hello", "GET v:s", "GET v:none", "STRLEN v:s",
                     "APPEND v:s x")
            play.say("RPUSH v:l a b c", "LRANGE v:l 0 -1", "LRANGE v:none 0 -1", "LPOP v:l", "LPOP v:none",
                     "LPOP v:none 2", "LPOS v:l c")
            play.say("HSET v:h f 1 g 2", "HGETALL v:h", "HGETALL v:none", "HMGET v:h f x", "HINCRBYFLOAT v:h f 0.1")
            play.say("ZADD v:z 1.5 one", "ZSCORE v:z one", "ZRANGE v:z 0 -1 WITHSCORES", "ZADD v:z INCR 1 one",
                     "ZMSCORE v:z one two", "ZPOPMIN v:z")
            play.say("SADD v:set m", "SMEMBERS v:set", "SISMEMBER v:set m", "SMISMEMBER v:set m n")
            play.say("XADD v:st 1-1 f v", "XRANGE v:st - +", "XREAD STREAMS v:st 0", "XREAD STREAMS v:st 1-1",
                     "TYPE v:st", "OBJECT ENCODING v:h")
            play.say("SET v:s 1 NX", "SET v:s 2 XX GET", "GETDEL v:s", "EXISTS v:s", "TTL v:s", "PING", "PING hi",
                     "ECHO x", "DEL v:none")
            play.say(("SET", "v:bin", b"\x00\r\n\xff*3\r\n$3"), "GET v:bin", ("SET", "v:empty", ""), "GET v:empty",
                     ("GET", ""))
        self.same(story)

    def test_integers_at_their_limit(self):
        def story(play):
            play.say("SET i:n 9223372036854775806", "INCR i:n", "INCR i:n", "GET i:n", "DECRBY i:n -1",
                     "SET i:n -9223372036854775808",
                     "DECR i:n", "INCRBY i:n 9223372036854775808", "INCRBYFLOAT i:n 1.5e300",
                     ("EVAL", "return 9007199254740993", "0"),
                     "SET i:n 9007199254740993", "INCR i:n", "SETRANGE i:n 536870911 xx",
                     "BITFIELD i:b SET u63 0 9223372036854775807")
        self.same(story)

    def test_errors_between_good_commands(self):
        def story(play):
            play.say("SET e:s x", "LPUSH e:s y", "SET e:s", "GET e:s", "NOSUCH a b", "INCR e:s", "SET e:s y", "GET e:s",
                     "HSET e:s f",
                     "SET e:s z WRONG", "EXPIRE e:s notanumber", "GET e:s", "EVAL bad( 0",
                     "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
                     "SET e:t 1", "OBJECT NOSUCH", "XADD e:s * f v", "GET e:t", "SELECT 99", "SETEX e:t 0 x", "GET e:t",
                     "RENAME e:none e:t")
        self.same(story)

    def test_scripts_and_functions(self):
        def story(play):
            play.say(("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "s:k", "v"),
                     ("EVAL", "return {1, 'two', {3}, false}", "0"),
                     ("EVAL", "return redis.error_reply('MINE of mine')", "0"),
                     ("EVAL", "return redis.call('LPUSH', KEYS[1], 'x')", "1", "s:k"),
                     ("EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "s:k"),
                     ("EVAL", "redis.setresp(3); return {map={a=1}}", "0"),
                     ("SCRIPT", "LOAD", "return 7"), ("EVALSHA", "4ca238f611c9d0ae4e9a75a5dbac22aedc1e44c8", "0"),
                     "SCRIPT EXISTS abc",
                     ("FUNCTION", "LOAD", "REPLACE",
                      "#!lua name=lib\nredis.register_function('f', function(k, a) return redis.call('GET', k[1]) end)"),
                     "FCALL f 1 s:k", "FCALL nosuch 0")
        self.same(story)

    def test_what_only_scripts_answer(self):
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(100_000)  # for the reader of replies
        self.addCleanup(sys.setrecursionlimit, limit)
        nested = "local a = {} for _ = 2, ARGV[1] do a = {a} end return a"

        def story(play):
            play.say(*(("EVAL", nested, "0", depth) for depth in (129, 7990, 9000)), "PING")
            play.say("MULTI", ("EVAL", nested, "0", "7990"), "EXEC", "PING")
            play.say(*(("EVAL", f"return {{{value}}}", "0") for value in (
                "double = 0/0", "double = 1/0", "big_number = '123\\r\\n123'", "big_number = ''",
                "verbatim_string = {format = 'x', string = 'y'}", "set = {a = true}", "map = {[true] = false}")), "PING")
            play.say(*(("EVAL", f"redis.setresp(3); return {{{value}}}", "0") for value in (
                "double = 0/0", "big_number = 'x y'", "map = {a = {map = {b = {double = -1/0}}}}")), "PING")
        self.same(story)

    def test_large_replies_and_many_arguments(self):
        def story(play):
            play.say(("DEL", "big:l"), ("RPUSH", "big:l", *range(5000)), "LRANGE big:l 0 -1", "LLEN big:l",
                     ("DEL", *(f"big:{n}" for n in range(3000))))
            play.say(*("LRANGE big:l 0 200",) * 300)
        self.same(story)

    def test_large_values(self):
        def story(play):
            value = bytes(range(256)) * 8192  # 2 MB
            play.say("SET huge:x before", ("SET", "huge:k", value), "GET huge:k", ("APPEND", "huge:k", value),
                     "STRLEN huge:k", "GET huge:x")
            play.say(("MSET", "huge:a", value, "huge:b", b"2"), "GET huge:b", ("MULTI",), ("SET", "huge:k", value),
                     "STRLEN huge:k", "EXEC")
            play.say(("LPUSH", "huge:k", value), "GET huge:x", ("SET", "huge:k", value, "NONSENSE"),
                     "DEL huge:k huge:a huge:b")
        self.same(story)

    def test_deep_pipelines(self):
        def story(play):
            play.say("DEL p:n", *(command for n in range(3000) for command in ("INCR p:n", f"SET p:{n % 7} {n}",
                    f"GET p:{n % 7}")))
            play.say(*("PING", "INCR p:n", "LPUSH p:n x", "GET p:n") * 500)
        self.same(story)

    def test_introspection(self):
        def story(play):
            play.say("COMMAND COUNT", "COMMAND INFO get", "COMMAND GETKEYS MSET a 1 b 2", "CONFIG GET maxmemory",
                     "CONFIG GET appendonly",
                     "ACL WHOAMI", "CLIENT NO-EVICT OFF", "LATENCY HISTORY x", "MEMORY USAGE in:none", "WAIT 0 0",
                     "OBJECT HELP")
            # Known to newer servers, of a cluster, or about waiting: none may fail otherwise than with Redis, in any place.
            play.say("SET in:w 1", "CLIENT SETINFO LIB-NAME x", "CLIENT SETINFO LIB-VER 1", "ASKING", "READONLY",
                     "READWRITE", "WAITAOF 0 0 0", "SET in:w 2", "WAIT 1 20", "GET in:w", "CLIENT SETINFO", "SET in:w 3",
                     "CLIENT NO-TOUCH ON", "GET in:w")
        self.same(story, protos=(2,))

    # ------------------------------------------------------------------------------------------------ framing

    def test_inline_and_empty_commands(self):
        def story(play):
            play.send(b"PING\r\n", 1)
            play.send(b"*0\r\n*-1\r\n\r\n\nPING\r\n*0\r\n", 1)
            play.send(b"SET in:k 'a b'\r\nget in:k\n"
                      b"SET in:k \"x\\x41\\n\\\"\"\r\nGET in:k\r\nSET in:k 'it\\'s'\r\nGET   in:k  \r\n", 6)
            play.send(b"EXISTS in:k\r\n*1\r\n$4\r\nPING\r\nSET in:k\r\n$$$\r\n", 4)
            play.send(b"SET in:k \"open\r\n", 1)
            play.hear_close()
        self.same(story)

    def test_framing_errors_are_answered_and_closed(self):
        for n, bad in enumerate((b"*1\r\n$-1\r\n", b"*1\r\n$abc\r\n", b"*x\r\n", b"*1\r\n+PING\r\n",
                                 b"*1\r\n$99999999999\r\n")):
            def story(play, bad=bad, n=n):
                play.send(encode("SET", f"f:{n}", "1") + encode("GET", f"f:{n}") + bad + encode("SET", f"f:{n}", "2"),
                          3)
                play.hear_close()
                play.say(f"GET f:{n}", who="b")
            with self.subTest(bad=bad):
                self.same(story, protos=(2,))

    def test_commands_that_arrive_byte_by_byte(self):
        def story(play):
            client = play.client("a")
            for byte in encode("SET", "slow:k", "va\r\nlue") + b"GET slow:k\r\n" + encode("MULTI") + encode("GET",
                    "slow:k") + encode("EXEC"):
                client.send(bytes([byte]))
            play.hear(5)
        self.same(story)

    # ------------------------------------------------------------------------------------------------ subscriptions

    def test_subscribe_resp2(self):
        def story(play):
            play.say("SET sub:k 1", "SUBSCRIBE sub:a sub:b", "PSUBSCRIBE sub:*", "PING", "PING x", "GET sub:k",
                     "SET sub:k 2", replies=8)
            play.say("PUBLISH sub:a one", "GET sub:k", who="b")
            play.hear(2)
            play.say("UNSUBSCRIBE sub:a", "PUNSUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE nosuch",
                     "GET sub:k", "PING", "SET sub:k 3")
            play.say("SSUBSCRIBE sub:shard", "SUNSUBSCRIBE", "SUNSUBSCRIBE", "GET sub:k")
            play.say("SUBSCRIBE sub:a", "RESET", "PING", replies=3)
        self.same(story, protos=(2,))

    def test_subscribe_resp3(self):
        def story(play):
            play.say("SET sub3:k 1", "SUBSCRIBE sub3:b", "GET sub3:k", "SET sub3:k 2", "GET sub3:k",
                     "PSUBSCRIBE sub3:*", "PING", replies=7)
            play.say("PUBLISH sub3:b one", who="b")
            play.hear(2)
            play.say("UNSUBSCRIBE", "PUNSUBSCRIBE", "UNSUBSCRIBE", "SET sub3:k 3", "GET sub3:k", replies=5)
        self.same(story, protos=(3,))

    def test_a_push_between_the_elements_of_exec(self):
        def story(play):
            play.say("SUBSCRIBE own:ch")
            play.say("MULTI", "SET own:k 1", "PUBLISH own:ch hello", "GET own:k", "EXEC")
            play.say("SET own:k 2", "PUBLISH own:ch again", "GET own:k", replies=4)
        self.same(story, protos=(3,))

    def test_unsubscribing_to_none_in_one_write(self):
        def story(play):
            play.say("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUBSCRIBE u:a", "UNSUBSCRIBE u:a", "SET u:k 1", "SUBSCRIBE u:b",
                     "UNSUBSCRIBE", "GET u:k")
        self.same(story)

    def test_monitor_shows_commands(self):
        for place in ("monitor", "fenced"):
            port, name = self.places[place]
            with self.subTest(place=place), Recorder(port) as watcher, Recorder(port, name=name) as writer:
                self.assertEqual(watcher.call("MONITOR"), b"OK")
                writer.call("SET", "mon:k", "seen")
                while b'"SET" "mon:k" "seen"' not in watcher.raw():
                    pass
                watcher.send_command("QUIT")
                self.assertTrue(watcher.closed())

    # ------------------------------------------------------------------------------------------------ blocking

    def test_blocking_pops_time_out(self):
        def story(play):
            play.say("BLPOP b:none 0.05", "BRPOP b:none b:two 0.05", "BLMOVE b:none b:x LEFT RIGHT 0.05",
                     "BRPOPLPUSH b:none b:x 0.05",
                     "BLMPOP 0.05 1 b:none LEFT", "BZPOPMIN b:none 0.05", "BZPOPMAX b:none 0.05",
                     "BZMPOP 0.05 1 b:none MIN", "PING")
            play.say("SET b:s x", "BLPOP b:s 1", "BLPOP b:none -1", "BLPOP b:none abc", "BLPOP b:none",
                     "BLMPOP 0 0 b:none LEFT", "BZPOPMIN b:s 1", "GET b:s")
        self.same(story)

    def test_blocking_pops_find_what_is_there(self):
        def story(play):
            play.say("DEL b:l b:m b:z", "RPUSH b:l 1 2 3 4 5 6", "BLPOP b:none b:l 0", "BRPOP b:l 0",
                     "BLMOVE b:l b:m LEFT RIGHT 0", "BRPOPLPUSH b:l b:m 0",
                     "BLMPOP 0 2 b:none b:l LEFT COUNT 2", "LRANGE b:m 0 -1", "ZADD b:z 1 a 2.5 b 3 c",
                     "BZPOPMIN b:z 0", "BZPOPMAX b:none b:z 0", "BZMPOP 0 1 b:z MIN")
            play.say("RPUSH b:l 1", "MULTI", "BLPOP b:l 0", "BLPOP b:l 0", "BZPOPMIN b:none 0", "EXEC",
                     "BLPOP b:none 0.01", "SET b:s x")
        self.same(story)

    def test_blocking_pops_are_woken_by_another_client(self):
        wakers = {"BLPOP bw:l 0": "RPUSH bw:l x y", "BRPOP bw:none bw:l 0": "RPUSH bw:l x y",
                  "BLMOVE bw:l bw:m LEFT RIGHT 0": "RPUSH bw:l x",
                  "BRPOPLPUSH bw:l bw:m 0": "LPUSH bw:l x", "BLMPOP 0 1 bw:l LEFT COUNT 5": "RPUSH bw:l x",
                  "BZPOPMIN bw:z 0": "ZADD bw:z 1 x",
                  "BZPOPMAX bw:z 0": "ZADD bw:z 1.5 x", "BZMPOP 0 1 bw:z MIN": "ZADD bw:z 1 x"}

        def story(play):
            for pop, push in wakers.items():
                play.say("DEL bw:l bw:z bw:m", who="b")
                play.client("a").send(encode(*pop.split()) + encode("SET", "bw:after", pop) + encode("GET", "bw:after"))
                play.say(push, "PING", who="b")
                play.hear(3)
        self.same(story)

    def test_blocking_group_reads(self):
        def story(play):
            play.say("DEL st:x", "XGROUP CREATE st:x g $ MKSTREAM", "XREADGROUP GROUP g c BLOCK 30 STREAMS st:x >",
                     "XREADGROUP GROUP no c BLOCK 30 STREAMS st:x >")
            read = encode(*"XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS st:x >".split())
            play.client("a").send(read + encode("XACK", "st:x", "g", "5-1"))
            play.say("XADD st:x 5-1 f v", who="b")
            play.hear(2)
            play.client("a").send(encode(*"XREAD BLOCK 0 STREAMS st:x 5-1".split()) + encode("XLEN", "st:x"))
            play.say("XADD st:x 6-1 f v", who="b")
            play.hear(2)
            play.say("XREAD BLOCK 30 STREAMS st:x $", "XREADGROUP GROUP g c STREAMS st:x >",
                     "XREADGROUP GROUP g c STREAMS st:x 0", "XREADGROUP GROUP g c BLOCK -1 STREAMS st:x >")
        self.same(story)

    def test_a_superseded_client_pops_nothing(self):
        port, _ = self.places["fenced"]
        with Resp(port, name="fence:pop-old=1") as old:
            with self.assertRaises(TimeoutError):  # it waits, and is not answered before there is a reason
                old.sock.settimeout(0.5)
                old.call("BLPOP", "pops:q", "0")
            old.sock.settimeout(PATIENCE)
            with Resp(port, name="fence:pop-old=2") as new:
                self.assertEqual(new.call("RPUSH", "pops:q", "job"), 1)
            answer = old.reply()
        self.assertEqual(self.fenced_redis.cli.call("LRANGE", "pops:q", 0, -1), [b"job"])
        self.assert_error(answer, "FENCED")

    def test_a_blocked_client_that_is_superseded_is_told(self):
        port, _ = self.places["fenced"]
        with Resp(port, name="fence:pops=11") as old:
            old.send_command("BLPOP", "pops:none", "0")
            with Resp(port, name="fence:pops=12") as new:
                self.assertEqual(new.named, b"OK")
                self.assert_error(old.reply(), "FENCED")
            self.assertEqual(old.call("PING"), b"PONG")

    def test_a_client_that_half_closes_behind_a_blocking_pop(self):
        pop, write = "BLPOP half:l 0", "SET half:w 1"
        for commands in ((pop,), (pop, write), (write, pop, write), (pop, "MULTI", write, "EXEC"),
                         ("XREAD BLOCK 0 STREAMS half:s $", write), ("WAIT 9 0", write)):
            def story(play, commands=commands):
                play.say("DEL half:l half:m half:w", who="b")
                client = play.client("a")
                client.send(b"".join(encode(*command.split()) for command in commands))
                client.sock.shutdown(socket.SHUT_WR)
                began = time.monotonic()
                play.hear(commands.index(pop) if pop in commands else 0)
                play.hear_close()
                self.assertLess(time.monotonic() - began, 4)  # the session's limit for such clients is 5 s
                play.say("RPUSH half:l job", "LRANGE half:l 0 -1", "GET half:w", who="b")
            with self.subTest(commands=commands):
                self.same(story, protos=(2,))

    def test_a_client_that_half_closes_behind_a_pop_that_finds_something(self):
        def story(play):
            play.say("DEL half:l half:w", "RPUSH half:l x y z", who="b")
            client = play.client("a")
            client.send(b"".join(encode(*c.split()) for c in ("BLPOP half:l 0", "SET half:w 1", "BLPOP half:l 0")))
            client.sock.shutdown(socket.SHUT_WR)
            play.hear(3)
            play.hear_close()
            play.say("LRANGE half:l 0 -1", "GET half:w", who="b")
        self.same(story, protos=(2,))

    def test_a_client_that_leaves_while_it_blocks_pops_nothing(self):
        port, _ = self.places["fenced"]
        name = "fence:left=1"
        eventually(lambda: self.fenced_gate.metric("connections") == 0)  # those of other tests have left
        with Resp(port, name=name) as gone:
            gone.send_command("BLPOP", "left:q", "0")
            eventually(lambda: self.fenced_gate.metric("connections") == 1)
        eventually(lambda: self.fenced_gate.metric("connections") == 0)
        self.fenced_redis.cli.call("RPUSH", "left:q", "job")
        with Resp(port, name=name) as alive:
            self.assertEqual(alive.call("LRANGE", "left:q", 0, -1), [b"job"])
            self.assertEqual(alive.call("BLPOP", "left:q", "0"), [b"left:q", b"job"])

    # ------------------------------------------------------------------------------------------------ connection state

    def test_client_reply(self):
        def story(play):
            play.say("SET cr:k 1", "CLIENT REPLY OFF", "SET cr:k 2", "INCR cr:k", "NOSUCH", "CLIENT REPLY ON",
                     "GET cr:k", replies=3)
            play.say("CLIENT REPLY SKIP", "SET cr:k 9", "GET cr:k", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP",
                     "INCR cr:k", "INCR cr:k", "CLIENT REPLY ON", replies=3)
            play.say("CLIENT REPLY NONSENSE", "CLIENT REPLY", "CLIENT REPLY OFF", "CLIENT REPLY SKIP",
                     "CLIENT REPLY ON", "GET cr:k", replies=4)
            play.say("CLIENT REPLY SKIP", "MULTI", "SET cr:k 5", "EXEC", "GET cr:k", replies=3)
        self.same(story)

    def test_client_reply_off_writes_are_applied(self):
        def story(play):
            play.say("DEL cro:l", "CLIENT REPLY OFF", *(f"RPUSH cro:l {n}" for n in range(100)), "CLIENT REPLY ON",
                     "LRANGE cro:l 0 -1", replies=3)
        self.same(story)

    def test_select(self):
        def story(play):
            play.say("SET sel:k zero", "SELECT 1", "SET sel:k one", "GET sel:k", "SELECT 0", "GET sel:k", "SELECT 15",
                     "GET sel:k", "SELECT 99", "SELECT x", "SELECT",
                     "INCR sel:n", "SELECT 1", "GET sel:k", "MULTI", "SELECT 2", "SET sel:k two", "EXEC", "GET sel:k",
                     "SET sel:j 2", "SELECT 2", "GET sel:j")
            play.say("MULTI", "SELECT 3", "DISCARD", "GET sel:k", "DEL sel:k sel:j", "SELECT 0", "GET sel:k")
        self.same(story)

    def test_hello_in_a_pipeline(self):
        def story(play):
            play.say("HSET h:k f 1", "HELLO 3", "HGETALL h:k", "HGET h:k none", "SET h:s 1", "HELLO 2", "HGETALL h:k",
                     "HGET h:k none", "HELLO 4", "HELLO x",
                     "HELLO", "HELLO 3 SETNAME fence:orders=34", "SET h:s 2", "GET h:s", "HELLO 3 NONSENSE",
                     "HELLO 2 AUTH app secret", "SET h:s 3",
                     "HELLO 3 AUTH app wrong", "GET h:s")
        self.same(story)

    def test_reset(self):
        def story(play):
            play.say("SELECT 1", "SET re:k 1", "RESET", f"CLIENT SETNAME {play.name}", "GET re:k", "SET re:k 0",
                     "MULTI", "SET re:k 2", "RESET", "EXEC", f"CLIENT SETNAME {play.name}",
                     "GET re:k", "WATCH re:k", "RESET", f"CLIENT SETNAME {play.name}", "SET re:k 3", "GET re:k",
                     "HGETALL re:none")
        self.same(story)

    def test_auth(self):
        def story(play):
            play.say("SET au:k 1", "AUTH wrong", "AUTH app wrong", "AUTH app secret", "ACL WHOAMI", "SET au:k 2",
                     "GET au:k", "AUTH a b c", "AUTH default anything", "SET au:k 3", "GET au:k")
        self.same(story)

    def test_an_unprivileged_user_hears_the_servers_own_words(self):
        port, name = self.places["fenced"]
        self.fenced_redis.cli.call("ACL", "SETUSER", "narrow", "on", ">pw", "~narrow:*", "%R~fencegate:*", "+@all",
                                   "-lpush")
        with Resp(port, name=name, user="narrow", password="pw") as client:
            replies = client.pipeline([("SET", "narrow:k", "1"), ("SET", "other", "1"), ("LPUSH", "narrow:l", "1"),
                                       ("GET", "narrow:k"), ("SET", "narrow:k", "2")])
        self.assertEqual((replies[0], replies[3], replies[4]), (b"OK", b"1", b"OK"))
        self.assert_error(replies[1], "NOPERM")
        self.assert_error(replies[2], "NOPERM")
        self.assertNotIn("fencegate", str(replies[1]) + str(replies[2]))

    def test_quit_in_the_middle(self):
        def story(play):
            play.say("SET q:k 1", "QUIT", "SET q:k 2", replies=2)
            play.hear_close()
            play.say("GET q:k", who="b")
        self.same(story)

    def test_transactions(self):
        def story(play):
            play.say("SET tx:k 1", "MULTI", "INCR tx:k", "GET tx:k", "EXEC", "INCR tx:k", "MULTI", "EXEC", "MULTI",
                     "SET tx:k 9", "DISCARD", "GET tx:k", "EXEC", "DISCARD",
                     "MULTI", "NOSUCH", "SET tx:k 5", "EXEC", "MULTI", "LPUSH tx:k x", "INCR tx:k", "EXEC", "GET tx:k",
                     "MULTI", "GET", "EXEC", "SET tx:k 7", "GET tx:k",
                     "MULTI", "GET tx:k", "EXEC", "MULTI", "PING", "EXEC", "PING")
        self.same(story, protos=(2,))

    def test_subscribing_inside_a_transaction_is_refused(self):
        for place in ("monitor", "fenced"):
            port, name = self.places[place]
            with self.subTest(place=place), Resp(port, name=name) as client:
                replies = client.pipeline([("MULTI",), ("SET", "txs:k", 1), ("SUBSCRIBE", "c"), ("EXEC",), ("PING",)])
                self.assertEqual([replies[0], replies[1], replies[4]], [b"OK", b"QUEUED", b"PONG"])
                self.assert_error(replies[2], "ERR")
                self.assert_error(replies[3], "EXECABORT")

    def test_tracking_invalidations(self):
        def story(play):
            play.say("SET tr:k 1", "CLIENT TRACKING ON", "GET tr:k", "SET tr:mine 1", "GET tr:mine")
            play.say("SET tr:k 2", who="b")
            play.hear(1)
            play.say("GET tr:k", "SET tr:mine 2", "PING", replies=4)
            play.say("CLIENT TRACKING OFF", "CLIENT TRACKING ON OPTIN", "GET tr:k", "CLIENT CACHING YES", "GET tr:mine",
                     "CLIENT TRACKINGINFO")
            play.say("SET tr:k 3", "SET tr:mine 3", who="b")
            play.hear(1)
            play.say("CLIENT CACHING YES", "SET tr:x 1", "GET tr:k", "PING", "CLIENT CACHING NO", "CLIENT TRACKING OFF")
        self.same(story, protos=(3,), pushes_anywhere=True)

    def test_marks_are_not_seen_by_a_tracking_client(self):
        port, name = self.places["fenced"]
        with Resp(port, name=name, proto=3) as client:
            self.assertEqual(client.call("CLIENT", "TRACKING", "ON", "BCAST"), b"OK")
            with Resp(port, name="fence:other=7") as raiser:
                self.assertEqual(raiser.named, b"OK")
                raiser.call("SET", "bc:k", "1")
            self.assertEqual(client.read(), [b"invalidate", [b"bc:k"]])
            self.assertEqual(client.call("SET", "bc:own", "1"), b"OK")
            pushes = client.pushes
            while [b"invalidate", [b"bc:own"]] not in pushes:
                pushes.append(client.read())
            self.assertFalse([push for push in pushes if b"fencegate" in repr(push).encode()])


if __name__ == "__main__":
    main()
