"""Random sessions of transactions, watches, mistakes and reads, told to a Redis and, in front of another, to a gate: every
answer is the same. And the same sessions of a writer that is superseded in the middle: nothing that follows is applied.

The seed is printed; FENCEGATE_SEED repeats one."""

import os
import random

from gate_process import Gate
from live_test import LiveTest, main
from redis_server import RedisServer
from resp import Resp, RespError, encode

KEYS = ("k", "j", "l", "h")
SESSIONS = 150
RIGHTS = ("exec", "discard", "multi", "watch", "unwatch", "mget", "select", "eval", "set", "get")  # one may be missing


def session(chance):
    """Pieces of a session: each is sent in one write. A string is what somebody else writes meanwhile."""
    pieces = []
    for _ in range(chance.randint(4, 12)):
        if chance.random() < 0.15:
            pieces.append(chance.choice(KEYS[:2]))
        else:
            pieces.append([command(chance) for _ in range(chance.randint(1, 6))])
    return pieces


def command(chance):
    key, value = chance.choice(KEYS), str(chance.randint(0, 99))
    control = [("MULTI",), ("EXEC",), ("DISCARD",), ("WATCH", key), ("UNWATCH",), ("WATCH",), ("MULTI",), ("EXEC",),
               ("EXEC", "x"), ("DISCARD", "x"), ("MULTI", "x"), ("UNWATCH", "x"), ("RESET", "x"), ("SELECT", "1"),
               ("SELECT", "0"), ("SELECT", "99"), ("NOSUCH", key), ("SET", key)]
    work = [("SET", key, value), ("INCR", key), ("GET", key), ("DEL", key), ("RPUSH", "l", value), ("LRANGE", "l", "0", "-1"),
            ("MGET", "none", "k", "none", "j"), ("HSET", "h", "f", value), ("HMGET", "h", "none", "f"), ("HINCRBY", "h", "f", "1"),
            ("SETNX", "k", value), ("GETSET", "k", value), ("LPOP", "l", "2"), ("LPOP", "none", "2"), ("PING",), ("ECHO", value),
            ("BITFIELD", "b", "OVERFLOW", "FAIL", "INCRBY", "u2", "0", "3"), ("APPEND", "k", "x"), ("TYPE", key),
            ("XADD", "x", "*", "f"), ("EXISTS", *KEYS)]
    return chance.choice(control if chance.random() < 0.45 else work)


class RandomSessions(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.seed = int(os.environ.get("FENCEGATE_SEED") or random.SystemRandom().randrange(10**9))
        print(f"seed {cls.seed}", flush=True)
        cls.plain = cls.enterClassContext(RedisServer(appendonly="no"))
        cls.fenced = cls.enterClassContext(RedisServer(appendonly="no"))
        cls.gates = [cls.enterClassContext(Gate(cls.fenced, policy={"reads": reads})) for reads in ("pass", "fence")]

    def empty(self):
        for redis in (self.plain, self.fenced):
            redis.cli.pipeline([(*one,) for db in ("1", "0") for one in (("SELECT", db), ("DEL", "k", "j", "l", "h", "b", "x"))])

    def tell(self, client, redis, pieces, heard):
        for piece in pieces:
            if isinstance(piece, str):
                redis.cli.call("SET", piece, "7")
                continue
            client.send(b"".join(encode(*one) for one in piece))
            for one in piece:
                reply = client.reply()
                unknown = one[0] == "NOSUCH"  # may be refused, or be called queued where the transaction is over for Redis
                heard.append((one, unknown or (f"-{reply.code}" if isinstance(reply, RespError) else reply)))

    def test_answers_are_those_of_redis(self):
        for number in range(SESSIONS):
            chance = random.Random(self.seed * 1000 + number)
            pieces, proto = session(chance), chance.choice((2, 3))
            self.empty()
            wanted, got = [], []
            with Resp(self.plain.port, proto=proto) as direct:
                self.tell(direct, self.plain, pieces, wanted)
            with Resp(chance.choice(self.gates).port, name="fence:orders=34", proto=proto) as client:
                self.tell(client, self.fenced, pieces, got)
            with self.subTest(seed=self.seed, number=number, proto=proto, pieces=pieces):
                self.assertEqual(got, wanted)

    def data(self):
        return [self.fenced.cli.pipeline([("SELECT", db), *(("DUMP", key) for key in ("k", "j", "l", "h", "b", "x"))])[1:]
                for db in ("1", "0")]

    def ends(self, client, pieces):
        """Whether the gate closes, as it does when it may not leave a transaction."""
        try:
            self.tell(client, self.fenced, pieces, [])
        except ConnectionError:
            return True
        return False

    def test_nothing_of_a_superseded_session_is_applied(self):
        for number in range(SESSIONS):
            chance = random.Random(self.seed * 1000 + number)
            pieces = [piece for piece in session(chance) if not isinstance(piece, str)]
            at = chance.randrange(len(pieces) + 1)
            resource, lost = f"r{number}", chance.choice(("", *RIGHTS))
            self.empty()
            self.fenced.cli.call("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all")
            with Resp(chance.choice(self.gates).port, name=f"fence:{resource}=33", proto=chance.choice((2, 3)), user="app",
                      password="pw") as client:
                if lost:
                    self.fenced.cli.call("ACL", "SETUSER", "app", "-" + lost)
                ended = self.ends(client, pieces[:at])
                self.fenced.cli.call("SET", "fencegate:mark:{%s}" % resource, "34")
                before = self.data()
                ended or self.ends(client, pieces[at:])
            with self.subTest(seed=self.seed, number=number, at=at, lost=lost, pieces=pieces):
                self.assertEqual(self.data(), before)


if __name__ == "__main__":
    main()
