"""redis-cli lives with the fence: commands piped in, mass insertion with --pipe, both versions of the protocol."""

import os
import re
import subprocess
from pathlib import Path

from gate_process import Gate
from live_test import LiveTest, main
from redis_server import RedisServer
from resp import Resp, encode

TAG = "fence:orders=34"
SESSION = f"""CLIENT SETNAME {TAG}
SET a "two words"
GET a
INCR a
INCR n
MSET b 1 c "\\x00\\r\\n"
MGET a b c none
HSET h f 1 g 2
HGETALL h
ZADD z 1.5 m
ZSCORE z m
SADD s only
SMEMBERS s
MULTI
INCR n
INCR a
GET n
EXEC
MULTI
SET n lost
DISCARD
EXEC
MULTI
NOSUCH command
EXEC
WATCH n
MULTI
INCR n
EXEC
EVAL "return {{KEYS[1], 1, redis.status_reply('FINE')}}" 1 k
EVAL "return redis.call('NOSUCH')" 0
EVAL "return redis.call('INCR', KEYS[1])" 1 n
SELECT 1
SET other 1
DBSIZE
SELECT 0
GET other
LPUSH l 1 2 3
BLPOP l 1
BLPOP none 0.05
XADD x 1-1 f v
XRANGE x - +
OBJECT ENCODING n
GET n
"""
PIPED = 100_000
ROOT = Path(__file__).resolve().parents[2]


def redis_cli(port, *arguments, text=None):
    done = subprocess.run(["redis-cli", "-p", str(port), *arguments], input=text, capture_output=True, timeout=120)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


class RedisCli(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        self.gate = self.start(Gate(self.redis))

    def supersede(self):
        with Resp(self.gate.port, name="fence:orders=35") as successor:
            self.assertEqual(successor.named, b"OK")

    def same_session(self, *arguments):
        plain = self.start(RedisServer())
        _, expected = redis_cli(plain.port, *arguments, text=SESSION.encode())
        _, fenced = redis_cli(self.gate.port, *arguments, text=SESSION.encode())
        self.assertIn("two words", expected)
        self.assertIn("EXECABORT", expected)
        self.assertEqual(fenced.splitlines(), expected.splitlines())
        self.assertGreater(self.gate.metric("checks_total", outcome="admitted"), 0)

    def test_a_piped_session_prints_what_it_prints_with_plain_redis(self):
        self.same_session("--no-raw")

    def test_a_piped_session_in_resp3_prints_what_it_prints_with_plain_redis(self):
        self.same_session("--no-raw", "-3")

    def test_scanning_and_command_tables_pass(self):
        for arguments in (["COMMAND", "COUNT"], ["COMMAND", "DOCS", "set"], ["--scan", "--pattern", "k*"], ["ping"]):
            self.redis.cli.call("MSET", *[word for i in range(5) for word in (f"k{i}", i)])
            expected, fenced = redis_cli(self.redis.port, *arguments), redis_cli(self.gate.port, *arguments)
            said = sorted(fenced[1].splitlines())
            self.assertEqual((fenced[0], said), (0, sorted(expected[1].splitlines())), arguments)

    def test_who_looks_for_big_keys_meets_those_of_the_fence(self):
        self.supersede()
        self.assertNotEqual(self.redis.cli.call("KEYS", "fencegate:mark:*"), [])
        for search in ("--bigkeys", "--memkeys"):
            status, said = redis_cli(self.gate.port, search)
            self.assertEqual((status, "FENCEDENY" in said), (0, False), said)
            self.assertIn("fencegate:", said)

    def pipe(self, count, value):
        """redis-cli's exit status, and the errors and replies that it counted."""
        stream = encode("CLIENT", "SETNAME", TAG) + b"".join(encode("SET", f"p:{i}", value) for i in range(count - 1))
        status, text = redis_cli(self.gate.port, "--pipe", text=stream)
        counted = re.search(r"errors: (\d+), replies: (\d+)", text)
        self.assertIsNotNone(counted, text[-1000:])
        return status, int(counted[1]), int(counted[2])

    def test_mass_insertion_gets_every_reply(self):
        self.assertEqual(self.pipe(PIPED, "x" * 64), (0, 0, PIPED))
        self.assertEqual(self.redis.cli.call("EVAL", "return #redis.call('KEYS', 'p:*')", 0), PIPED - 1)

    def test_a_stale_mass_insertion_applies_nothing(self):
        self.supersede()
        status, errors, replies = self.pipe(2000, "stale")
        self.assertEqual((errors, replies), (2000, 2000))
        self.assertNotEqual(status, 0)
        self.assertEqual(self.redis.cli.call("KEYS", "p:*"), [])

    def test_a_stale_write_prints_the_error_and_a_token_per_request_works(self):
        self.assertEqual(redis_cli(self.gate.port, "FENCE", "SET", "orders", "34"), (0, "OK\n"))
        self.assertEqual(redis_cli(self.gate.port, "FENCE", "CALL", "orders", "34", "SET", "k", "first"), (0, "OK\n"))
        self.supersede()
        _, text = redis_cli(self.gate.port, "FENCE", "CALL", "orders", "34", "SET", "k", "stale")
        self.assertTrue(text.startswith("FENCED "), text)
        _, text = redis_cli(self.gate.port, text=f"CLIENT SETNAME {TAG}\nSET k stale\nGET k\n".encode())
        self.assertEqual([line.split(" ")[0] for line in text.splitlines() if line], ["FENCED", "FENCED", "first"])
        _, text = redis_cli(self.gate.port, "SET", "k", "untagged")
        self.assertTrue(text.startswith("FENCEMISSING "), text)
        self.assertEqual(self.redis.cli.call("GET", "k"), b"first")

    def test_a_script_fails_when_its_write_is_rejected(self):
        """As docs/leases.md has it, with redis-cli -e."""
        line = re.search(r"`(redis-cli -e -p 6380 FENCE CALL orders .*?)`", (ROOT / "docs/leases.md").read_text())[1]
        command = ["sh", "-ec", line.replace("6380", str(self.gate.port))]

        def run():
            return subprocess.run(command, env=os.environ | {"FENCING_TOKEN": "34"}, capture_output=True).returncode
        self.assertEqual((run(), self.redis.cli.call("GETDEL", "orders:1")), (0, b"paid"))
        self.supersede()
        self.assertNotEqual(run(), 0)
        self.assertIsNone(self.redis.cli.call("GET", "orders:1"))


if __name__ == "__main__":
    main()
