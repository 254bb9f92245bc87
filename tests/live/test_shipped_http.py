"""The configurations with HTTP gates that are shipped, with the servers that they need: examples, and compose.yaml's."""

import json
import os
import re
import subprocess
import tempfile
import unittest.mock
import uuid
from pathlib import Path

from documents import ROOT, gates_user
from gate_process import GateProcess
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from postgres import PostgresServer, run_sql
from processes import LOOPBACK, eventually, free_port
from redis_server import RedisServer


class ShippedGate(HttpGate):
    """Serves a shipped file. `changes`: text of it, and what stands there instead, such as a server's address."""

    def __init__(self, path, changes):
        GateProcess.__init__(self, {})
        self.needs_backend = False
        self.text = (ROOT / path).read_text()
        self.changes = changes

    def prepare(self):
        self.binary = os.path.abspath(os.environ["FENCEGATE"])
        self.port, self.admin_port = free_port(), free_port()
        self.replace('listen: "127.0.0.1:9180"', f'listen: "{LOOPBACK}:{self.admin_port}"')
        for old, new in self.changes.items():
            self.replace(old, new)
        self.text = re.sub(r'listen: "[\d.]*:8081"', f'listen: "{LOOPBACK}:{self.port}"', self.text)
        (Path(self.folder) / "fencegate.yaml").write_text(self.text)

    def replace(self, old, new):
        if old not in self.text:
            raise AssertionError(f"the file has no {old!r}")
        self.text = self.text.replace(old, new)

    def put_when_up(self, *request, **more):
        """As soon as the stores can be reached."""
        return eventually(lambda: (answer := self.request(*request, **more))[0] != 503 and answer)


def install(gate, *options):
    config = str(Path(gate.folder) / "fencegate.yaml")
    command = [gate.binary, "install", "-c", config, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Shipped(LiveTest):
    def assert_status(self, answer, status):
        self.assertEqual(answer[0], status, answer)

    def test_what_compose_starts(self):
        server = self.start(PostgresServer())
        server.user("fencegate", "SUPERUSER")  # as its image makes POSTGRES_USER
        server.sql("CREATE DATABASE app OWNER fencegate")
        connection = server.connect("fencegate", "app")
        self.addCleanup(connection.close)
        run_sql(connection, (ROOT / "docker/postgres.sql").read_text())
        redis, upstream = self.start(RedisServer()), self.start(Upstream())
        gate = self.start(ShippedGate("docker/fencegate.yaml", {
            "@postgres/app": f"@{LOOPBACK}:{server.port}/app", "redis://redis:6379": f"redis://{LOOPBACK}:{redis.port}",
            "http://service:9000": f"http://{LOOPBACK}:{upstream.port}", '":6380"': f'"{LOOPBACK}:{free_port()}"',
            '":6432"': f'"{LOOPBACK}:{free_port()}"'}))
        compose = (ROOT / "docker/compose.yaml").read_text()
        install(gate, *re.search(r"command: \[install, -c, /etc/fencegate/fencegate.yaml, (.*)\]", compose)[1].split(", "))

        for method, target in (("PUT", "/files/7"), ("POST", "/orders"), ("PUT", "/settings/a")):
            self.assert_status(gate.put_when_up(method, target, b"by 33", token=33), 200)
            self.assert_status(gate.request(method, target, b"by 34", token=34), 200)
            self.assert_status(gate.request(method, target, b"late", token=33), 412)
        self.assertEqual([body for *_, body in upstream.seen()], [b"by 33", b"by 34"])
        self.assertEqual(run_sql(connection, "SELECT token FROM orders ORDER BY token"), [(33,), (34,)])
        self.assertEqual(redis.cli.call("GET", "settings:a"), b"by 34")

    def test_the_example_with_postgres(self):
        hba = ["host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256"]
        server = self.start(PostgresServer(hba=hba))
        server.user("fencegate", password="gate-secret")
        server.sql("CREATE DATABASE app")
        superuser = server.connect(database="app")
        self.addCleanup(superuser.close)
        upstream = self.start(Upstream())
        folder = self.start(tempfile.TemporaryDirectory())
        secret = Path(folder) / "password"
        secret.write_text("gate-secret\n")
        gate = self.start(ShippedGate("config/examples/http-postgres.yaml", {
            "postgres.internal": f"{LOOPBACK}:{server.port}", "127.0.0.1:9000": f"{LOOPBACK}:{upstream.port}",
            "/run/secrets/postgres-password": str(secret)}))
        run_sql(superuser, install(gate, "--store", "ledger", "--print"))
        run_sql(superuser, "CREATE TABLE postings (id uuid PRIMARY KEY, token bigint, doc jsonb)")
        run_sql(superuser, "GRANT ALL ON postings TO fencegate")

        self.assert_status(gate.put_when_up("PUT", "/orders/7", b"x", token=34), 200)
        self.assert_status(gate.request("POST", "/orders/7/lines/1", b"x", token=33), 412)
        self.assert_status(gate.request("PUT", "/orders/7", b"x", token=2000000), 403)  # max_step
        target = f"/postings/{uuid.uuid4()}"
        for token in (34, 35):  # a posting, and its retry by the next holder
            answer = gate.request("PUT", target, b'{"a": 1}', token=token)
            self.assertEqual(json.loads(answer[2])["rows"], [{"token": 34}], answer)
        self.assert_status(gate.request("PUT", target, b'{"a": 2}', token=34), 412)
        self.assertEqual(json.loads(gate.request("GET", target)[2])["rows"], [{"token": 34, "doc": {"a": 1}}])
        self.assert_status(gate.request("PUT", "/.fencegate/marks/order:7", token=99), 404)
        self.assert_status(gate.admin_request("PUT", "/.fencegate/marks/order:7", token=99), 200)
        self.assertEqual([body for *_, body in upstream.seen()], [b"x"])

    def test_the_example_with_redis(self):
        redis, upstream = self.start(RedisServer()), self.start(Upstream())
        example = (ROOT / "config/examples/http-redis.yaml").read_text()
        more = re.search(r"(~settings:\* .*)\.$", example, re.M)[1].split()
        self.assertEqual(gates_user(redis, *more), b"OK")
        self.assertEqual(redis.cli.call("ACL", "SETUSER", "default", "off"), b"OK")  # this connection stays
        changes = {"redis.internal:6379": f"{LOOPBACK}:{redis.port}", "127.0.0.1:9000": f"{LOOPBACK}:{upstream.port}"}
        with unittest.mock.patch.dict(os.environ, REDIS_PASSWORD="gate-secret"):
            gate = self.start(ShippedGate("config/examples/http-redis.yaml", changes))

        self.assert_status(gate.put_when_up("PUT", "/settings/shop/colour", b"red", token=34), 200)
        self.assert_status(gate.request("PUT", "/settings/shop/colour", b"late", token=33), 412)
        self.assertEqual(json.loads(gate.request("GET", "/settings/shop")[2]), {"reply": ["colour", "red"]})
        self.assert_status(gate.request("DELETE", "/settings/shop/colour", token=34), 200)
        self.assertEqual(redis.cli.call("EXISTS", "settings:shop"), 0)
        self.assert_status(gate.request("POST", "/reload/shop", token=33), 412)
        self.assert_status(gate.request("POST", "/reload/shop", token=34), 200)
        self.assertEqual(len(upstream.seen()), 1)


if __name__ == "__main__":
    main()
