"""No command that a server refuses inside a transaction lets what comes behind it run unfenced: each command of the
server's table, with too few and too many arguments, as the first, a middle and the last of a transaction, under a stale
token, without one, superseded meanwhile, refused by its form, by a missing right, and for want of memory."""

from gate_process import Gate
from live_test import LiveTest, main
from redis_server import RedisServer
from resp import Resp, RespError, encode

MANY = 12  # more arguments than any command with a fixed number takes


class Transactions(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer(appendonly="no"))
        cls.gate = cls.enterClassContext(Gate(cls.redis))
        policies = ({"missing_token": "allow"}, {"reads": "fence"}, {"equal_token": "reject"})
        cls.gates = [cls.gate, *(cls.enterClassContext(Gate(cls.redis, policy=policy)) for policy in policies)]
        cls.cli = cls.redis.cli
        cls.forms = []
        for entry in cls.cli.call("COMMAND"):
            for one in entry[9] if len(entry) > 9 and entry[9] else [entry]:
                words = one[0].decode().split("|")
                least = max(abs(one[1]), len(words))
                short = max(least - 2 - len(words) + 1, 0)
                cls.forms += [(words, short), (words, MANY)]

    def setUp(self):
        self.count = 0

    def streams(self, words, arguments):
        """Three transactions with the command in another place, and a write behind each. Each has keys of its own."""
        for place in range(3):
            self.count += 1
            command = (*words, *(f"t{self.count}:x" for _ in range(arguments)))
            writes = [("SET", f"t{self.count}:{i}", "v") for i in range(3)]
            yield [*writes[:place], command, *writes[place:2], ("EXEC",), writes[2]]

    def tell(self, client, commands):
        """Until all is answered, or the connection ends. (Who subscribes may say PING only, and either may be refused.)"""
        try:
            client.send(b"".join(encode(*one) for one in commands) + encode("ECHO", "over") + encode("PING", "over"))
            while client.read() not in (b"over", [b"pong", b"over"]):
                pass
        except ConnectionError:
            pass

    def applied(self, who="t"):
        keys = sorted(key.decode() for key in self.cli.call("KEYS", f"[{who}]*"))
        self.cli.call("DEL", "nothing", *keys)
        return keys

    def assert_nothing_applied(self):
        keys = self.applied()
        told = {int(key[1:].split(":")[0]) for key in keys if key.startswith("t")}
        self.assertEqual(keys, [], [self.forms[(one - 1) // 3 % len(self.forms)] for one in sorted(told)][:10])

    @staticmethod
    def gives_its_token_back(gate, form):
        """And may write without one."""
        return gate.gate.get("policy") == {"missing_token": "allow"} and form == (["reset"], 0)

    def test_under_a_stale_token(self):
        self.cli.call("SET", "fencegate:mark:{orders}", "34")
        for gate in self.gates:
            for number, form in enumerate(self.forms):
                if self.gives_its_token_back(gate, form):
                    continue
                with Resp(gate.port, name="fence:orders=33", proto=2 + number % 2) as client:
                    self.tell(client, [one for stream in self.streams(*form) for one in [("MULTI",), *stream]])
            self.assert_nothing_applied()

    def test_without_a_token(self):
        for form in self.forms:
            with Resp(self.gate.port) as client:
                self.tell(client, [one for stream in self.streams(*form) for one in [("MULTI",), *stream]])
        self.assert_nothing_applied()

    def test_superseded_behind_multi(self):
        """The transaction's MULTI is proven; the gate does not hear of the raise."""
        for number, form in enumerate(self.forms):
            for place, stream in enumerate(self.streams(*form)):
                gate, mark = self.gates[(number + place) % len(self.gates)], f"r{number}-{place}"
                if self.gives_its_token_back(gate, form):
                    gate = self.gate
                with Resp(gate.port, name=f"fence:{mark}=33", proto=2 + number % 2) as client:
                    self.assertEqual(client.call("MULTI"), b"OK")
                    self.cli.call("SET", "fencegate:mark:{%s}" % mark, "34")
                    self.tell(client, stream)
        self.assert_nothing_applied()

    def transactions(self, form, prefix):
        self.count += 1
        words, arguments = form
        for place in range(3):
            command = (*words, *(f"{prefix}{self.count}:x{place}" for _ in range(arguments)))
            writes = [("SET", f"{prefix}{self.count}:{place}{i}", "v") for i in range(3)]
            yield from (("MULTI",), *writes[:place], command, *writes[place:2], ("EXEC",), writes[2])

    def assert_no_more_than_redis_applies(self):
        # The write behind each transaction is the holder's own: the gate may have refused what stops it in Redis (SUBSCRIBE).
        keys = [key for key in self.applied("dg") if not key.endswith("2")]
        mine, redis = ({key[1:] for key in keys if key[0] == who} for who in "gd")
        self.assertGreater(len(redis), 0)
        self.assertEqual(mine - redis, set())

    def test_refused_by_its_form(self):
        with Resp(self.gate.port, name="fence:orders=34") as client:
            self.assertEqual(client.named, b"OK")
            refused = {tuple(words) for words, _ in self.forms
                       if (reply := self.only_refusal(client, words)) and reply.code == "FENCEDENY"}
        self.assertIn(("flushall",), refused)
        for form in self.forms:
            if tuple(form[0]) in refused:
                continue
            for who, port, name in (("d", self.redis.port, None), ("g", self.gate.port, "fence:orders=34")):
                with Resp(port, name=name) as client:
                    self.tell(client, list(self.transactions(form, who)))
                self.count -= who == "d"
        self.assert_no_more_than_redis_applies()

    def only_refusal(self, client, words):
        """The answer inside MULTI, where nothing that is not refused is run."""
        if words[0] in ("exec", "discard", "reset", "quit", "multi"):
            return None
        replies = client.pipeline([("MULTI",), words, ("DISCARD",)])
        return replies[1] if isinstance(replies[1], RespError) else None

    def test_refused_for_a_missing_right(self):
        names = sorted({tuple(words) for words, _ in self.forms})
        for words in names:
            self.cli.call("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", "-" + "|".join(words))
            for who, port, name in (("d", self.redis.port, None), ("g", self.gate.port, "fence:orders=34")):
                with Resp(port, user="app", password="pw", name=name) as client:
                    self.tell(client, list(self.transactions((words, 2), who)))
                self.count -= who == "d"
        self.assert_no_more_than_redis_applies()

    def test_refused_for_want_of_memory(self):
        for form in self.forms:
            with Resp(self.gate.port, name="fence:orders=34") as client:
                self.cli.call("CONFIG", "SET", "maxmemory", "1")
                self.tell(client, list(self.transactions(form, "t")))
            self.cli.call("CONFIG", "SET", "maxmemory", "0")
        self.assert_nothing_applied()


if __name__ == "__main__":
    main()
