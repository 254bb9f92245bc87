"""redis-benchmark runs through the gate: without a token where that is allowed, and with one in each request."""

import subprocess

from gate_process import Gate
from live_test import LiveTest, main
from redis_server import RedisServer
from resp import Resp

REQUESTS = 20_000
LOAD = ("-n", str(REQUESTS), "-c", "20", "-P", "16", "--csv")


def redis_benchmark(port, *arguments):
    done = subprocess.run(["redis-benchmark", "-p", str(port), *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


class RedisBenchmark(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())

    def test_untagged_clients_pass_where_the_policy_allows_it(self):
        gate = self.start(Gate(self.redis, policy={"missing_token": "allow"}))
        for protocol in ((), ("-3",)):
            before = {command: self.redis.calls(command) for command in ("set", "get", "incr", "lpush", "mset")}
            status, text = redis_benchmark(gate.port, *LOAD, *protocol, "-t", ",".join(before))
            self.assertEqual(status, 0, text)
            self.assertNotIn("rror", text)
            for command, calls in before.items():
                self.assertGreaterEqual(self.redis.calls(command) - calls, REQUESTS, command)

    def test_untagged_clients_pass_a_monitoring_gate_and_are_counted(self):
        gate = self.start(Gate(self.redis, policy={"mode": "monitor"}))
        status, text = redis_benchmark(gate.port, *LOAD, "-t", "set")
        self.assertEqual(status, 0, text)
        self.assertNotIn("rror", text)
        self.assertGreaterEqual(self.redis.calls("set"), REQUESTS)
        self.assertGreaterEqual(gate.metric("checks_total", outcome="missing"), REQUESTS)

    def test_untagged_clients_are_rejected_by_default(self):
        gate = self.start(Gate(self.redis))
        _, text = redis_benchmark(gate.port, *LOAD, "-t", "set")
        self.assertIn("FENCEMISSING", text)
        self.assertEqual(self.redis.cli.call("KEYS", "key:*"), [])

    def test_a_token_in_each_request_is_checked(self):
        gate = self.start(Gate(self.redis))
        with Resp(gate.port) as holder:
            self.assertEqual(holder.call("FENCE", "SET", "orders", 34), b"OK")
        command = ("-r", "1000", "FENCE", "CALL", "orders", "34", "SET", "key:__rand_int__", "value")
        status, text = redis_benchmark(gate.port, *LOAD, *command)
        self.assertEqual(status, 0, text)
        self.assertNotIn("rror", text)
        written = self.redis.cli.call("DBSIZE")
        self.assertGreater(written, 900)
        with Resp(gate.port) as successor:
            self.assertEqual(successor.call("FENCE", "SET", "orders", 35), b"OK")
            forget = "for _, k in ipairs(redis.call('KEYS', 'key:*')) do redis.call('DEL', k) end"
            self.assertEqual(self.redis.cli.call("EVAL", forget, 0), None)
        _, text = redis_benchmark(gate.port, *LOAD, *command)
        self.assertIn("FENCED", text)
        self.assertEqual(self.redis.cli.call("KEYS", "key:*"), [])


if __name__ == "__main__":
    main()
