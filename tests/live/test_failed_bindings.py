"""Where `missing_token: allow` lets writes without a token through: whoever has tried to bind one, and did not succeed, is
not taken for one without. Each way to fail, then each way to write, under a token that is stale: nothing is applied."""

import contextlib

from gate_process import Gate
from live_test import LiveTest, main
from processes import eventually
from redis_server import RedisServer
from resp import Resp, RespError, encode

MARK = "fencegate:mark:{orders}"
TAG = "fence:orders=33"
MANY = [word for number in range(33) for word in (f"r{number}", "1")]
LARGE = b"x" * 300_000

# What is wrong by itself.
MALFORMED = {
    "no token": [("FENCE", "SET", "orders")],
    "nothing": [("FENCE", "SET", "orders", "33", "payments")],
    "a token that is none": [("FENCE", "SET", "orders", "033")],
    "another word": [("FENCE", "SETT", "orders", "33")],
    "a name's form": [("FENCE", "SET", "orders=33", "33")],
    "33 resources": [("FENCE", "SET", *MANY[:-2], "x", "1", "orders", "33")],
    "a 33rd resource": [("FENCE", "SET", *MANY[:-2]), ("FENCE", "SET", "orders", "33")],
    "a name of 33 resources": [("CLIENT", "SETNAME", "fence:orders=33" + "".join(f",r{i}=1" for i in range(32)))],
    "one word more": [("CLIENT", "SETNAME", TAG, "x")],
    "one word in front": [("CLIENT", "SETNAME", "x", TAG)],
    "a name with a blank": [("CLIENT", "SETNAME", f"worker {TAG}")],
    "a disguised SETNAME": [("CLIENT", b"SETNAME\0", TAG)],
    "a disguised option": [("HELLO", "2", b"SETNAME\0", TAG)],
    "no protocol": [("HELLO", "SETNAME", TAG)],
    "an unknown protocol": [("HELLO", "9", "SETNAME", TAG)],
    "an unknown option": [("HELLO", "2", "SETNAMES", TAG)],
    "a wrong password": [("HELLO", "2", "AUTH", "nobody", "wrong", "SETNAME", TAG)],
    "a large name": [("CLIENT", "SETNAME", TAG.encode() + b" " + LARGE)],
    "a large FENCE SET": [("FENCE", "SET", "orders", "33", "x", LARGE)],
    "inside MULTI": [("MULTI",), ("CLIENT", "SETNAME", TAG), ("DISCARD",)],
    "FENCE SET inside MULTI": [("MULTI",), ("FENCE", "SET", "orders", "33"), ("DISCARD",)],
    "behind SUBSCRIBE": [("SUBSCRIBE", "c"), ("CLIENT", "SETNAME", TAG), ("UNSUBSCRIBE", "c")],
    "FENCE SET behind SUBSCRIBE": [("SUBSCRIBE", "c"), ("FENCE", "SET", "orders", "33"), ("UNSUBSCRIBE", "c")],
}
BINDS = {
    "FENCE SET": ("FENCE", "SET", "orders", "33"),
    "CLIENT SETNAME": ("CLIENT", "SETNAME", TAG),
    "HELLO": ("HELLO", "3", "SETNAME", TAG),
}
WRITES = {
    "one": [("SET", "k", "stale")],
    "a transaction": [("MULTI",), ("SET", "k", "stale"), ("EXEC",)],
    "a large one": [("SET", "k", LARGE)],
    "behind WATCH": [("WATCH", "other"), ("SET", "k", "stale")],
    "a script": [("EVAL", "return redis.call('SET', KEYS[1], 'stale')", "1", "k")],
    "one that waits": [("BLMOVE", "list", "k", "LEFT", "RIGHT", "0.05")],
}


class FailedBindings(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer(appendonly="no", busy_reply_threshold="20"))
        cls.cli = cls.redis.cli
        cls.gate = cls.enterClassContext(Gate(cls.redis, policy={"missing_token": "allow"}))

    def setUp(self):
        self.addCleanup(self.cli.call, "DEL", "k", "list")

    def assert_stays_shut(self, failing, behind=(), during=contextlib.nullcontext, **how):
        """`failing` fails to bind, while `during` lasts; then comes `behind`, then each kind of write, with all that is in
        front in one piece where nothing has to happen meanwhile."""
        for what, writes in WRITES.items():
            self.cli.pipeline([("SET", MARK, "34"), ("DEL", "k", "list"), ("RPUSH", "list", "stale")])
            with self.subTest(writes=what), Resp(self.gate.port, **how) as client:
                if during is contextlib.nullcontext:
                    replies = self.tell(client, [*failing, *behind, *writes])
                else:
                    with during():
                        replies = self.tell(client, failing)
                    replies += self.tell(client, [*behind, *writes])
                self.assertTrue(any(isinstance(one, RespError) for one in replies[: len(failing)]), replies)
                self.assertRegex(str(replies[-1]), "^FENCE(D|BAD|MISSING|DOWN) ")
                self.assertEqual(self.cli.call("EXISTS", "k"), 0)
                self.assertEqual(self.cli.call("LLEN", "list"), 1)

    @staticmethod
    def tell(client, commands):
        client.send(b"".join(encode(*one) for one in commands))
        return [client.reply() for _ in commands]

    def test_who_does_not_try_writes(self):
        self.cli.call("RPUSH", "list", "v")
        for writes in WRITES.values():
            with Resp(self.gate.port) as client:
                self.assertFalse(any(isinstance(one, RespError) for one in self.tell(client, writes)))
            self.assertEqual(self.cli.call("DEL", "k"), 1)

    def test_what_is_malformed(self):
        for name, failing in MALFORMED.items():
            with self.subTest(failing=name):
                self.assert_stays_shut(failing)

    def test_before_it_has_signed_in(self):
        self.cli.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
        self.addCleanup(self.cli.call, "ACL", "SETUSER", "default", "on", "nopass")
        self.cli.call("ACL", "SETUSER", "default", "resetpass", ">secret")
        for name, command in BINDS.items():
            with self.subTest(binds=name):
                self.assert_stays_shut([command], behind=[("AUTH", "app", "pw")])

    def test_without_the_right_to_say_so(self):
        for name, missing in (("FENCE SET", "ping"), ("CLIENT SETNAME", "client|setname"), ("HELLO", "hello")):
            self.cli.call("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", "-" + missing)
            with self.subTest(binds=name):
                self.assert_stays_shut([BINDS[name]], user="app", password="pw")

    @contextlib.contextmanager
    def busy(self):
        with Resp(self.redis.port) as other:
            other.send_command("EVAL", "while true do end", "0")
            eventually(lambda: getattr(self.cli.call("PING"), "code", "") == "BUSY")
            try:
                yield
            finally:
                self.assertEqual(self.cli.call("SCRIPT", "KILL"), b"OK")
                self.assertIsInstance(other.reply(), RespError)

    def test_while_redis_is_busy(self):
        for name, command in BINDS.items():
            with self.subTest(binds=name):
                self.assert_stays_shut([command], during=self.busy)

    def test_a_stale_token(self):
        for name, command in BINDS.items():
            with self.subTest(binds=name):
                self.assert_stays_shut([command])

    def test_it_is_mended_by_binding_what_is_good(self):
        for name, command in BINDS.items():
            self.cli.call("SET", MARK, "34")
            good = [word.replace("33", "34") for word in command]
            with self.subTest(binds=name), Resp(self.gate.port) as client:
                replies = self.tell(client, [("CLIENT", "SETNAME", TAG, "x"), ("SET", "k", "v"), good, ("SET", "k", "v")])
                self.assert_error(replies[1], "FENCEMISSING")
                self.assertFalse(isinstance(replies[2], RespError), replies)
                self.assertEqual(replies[3], b"OK")


if __name__ == "__main__":
    main()
