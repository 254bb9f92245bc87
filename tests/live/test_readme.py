"""What README.md shows works as it stands: the access rights on a real Redis, the configuration, the links."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import Gate, LiveTest, RedisServer, Resp, RespError, main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MARK = "fencegate:mark:{orders}"


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```$", README, re.M | re.S).group(1)


class AccessRights(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        admin = self.redis.cli  # stays authenticated when the default user is switched off
        for line in block("acl").splitlines():
            self.assertEqual(admin.call(*line.split()), b"OK", line)

    def as_writer(self, port, name=None):
        return self.start(Resp(port, name=name, user="orders", password="orders-secret"))

    def through_gate(self):
        return self.start(Gate(self.redis, user="fencegate", password="gate-secret"))

    def test_fence_with_all_that_it_needs(self):
        gate = self.through_gate()
        old = self.as_writer(gate.port, "fence:orders=33")
        self.assertEqual(old.call("SET", "orders:1", "by 33"), b"OK")
        new = self.as_writer(gate.port, "fence:orders=34")
        self.assert_error(old.call("SET", "orders:1", "late"), "FENCED")
        self.assertEqual(new.call("GET", "orders:1"), b"by 33")
        self.assertEqual(new.call("SET", "orders:1", "by 34"), b"OK")

    def test_serve_the_commands_that_run_in_a_script(self):
        writer = self.as_writer(self.through_gate().port, "fence:orders=34")
        self.assertEqual(writer.call("FENCE", "CALL", "orders", "35", "SET", "orders:1", "x"), b"OK")
        self.assertIn("35", str(writer.call("FENCE", "MARK", "orders")))

    def test_keep_marks_from_writers_that_go_around_the_gate(self):
        self.as_writer(self.through_gate().port, "fence:orders=34")
        writer = self.as_writer(self.redis.port)
        for command in (
            ("SET", MARK, "99"),
            ("DEL", MARK),
            ("RENAME", "orders:1", MARK),
            ("EVAL", "return redis.call('SET', ARGV[1], '99')", 0, MARK),
            ("EVAL", "return redis.call('SET', KEYS[1], '99')", 1, MARK),
            ("FLUSHALL",),
            ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
        ):
            self.assertIsInstance(writer.call(*command), RespError, command)
        self.assertEqual(writer.call("GET", MARK), b"34")

    def test_keep_the_gates_user_from_data(self):
        with Resp(self.redis.port, user="fencegate", password="gate-secret") as gate:
            for command in (("SET", "orders:1", "x"), ("FLUSHALL",), ("CONFIG", "GET", "*")):
                self.assert_error(gate.call(*command), "NOPERM")

    def test_let_nobody_in_without_a_password(self):
        with Resp(self.redis.port) as nobody:
            self.assert_error(nobody.call("GET", "orders:1"), "NOAUTH")


class Page(unittest.TestCase):
    def test_the_configuration_is_valid(self):
        with tempfile.TemporaryDirectory() as folder:
            secret = Path(folder) / "password"
            secret.write_text("gate-secret\n")
            config = Path(folder) / "fencegate.yaml"
            config.write_text(block("yaml").replace("/run/secrets/redis-password", str(secret)))
            checked = subprocess.run([os.environ["FENCEGATE"], "check", "-c", str(config)], capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_links_lead_somewhere(self):
        for page in (ROOT / "README.md", ROOT / "src" / "README.md"):
            for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page}: {target}")


if __name__ == "__main__":
    main()
