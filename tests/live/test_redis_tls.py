"""TLS between Redis gates and their server: what it must prove, what passes through it, and what never goes without it."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess

from doctor import DoctorTest
from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import main
from processes import LOOPBACK, PATIENCE, eventually, free_port
from resp import Resp, RespError
from tls import Certificates, Load, PlainServer, Recorder, TlsRedis, read, replace

TAG = "fence:orders=34"
NEWER = "fence:orders=35"
BIG = 100 * 1024 * 1024


class TlsGate(Gate):
    """With this URL of its server."""

    def __init__(self, url, **options):
        super().__init__(None, **options)
        self.url = url

    def upstream_url(self):
        return self.url


class RedisTls(Certificates, DoctorTest):
    def server(self, certificates=None, **conf):
        return self.start(TlsRedis(self.authority, certificates or self.own, **conf))

    def gate(self, url, reaches=True, **options):
        gate = TlsGate(url, **options)
        gate.needs_backend = reaches
        return self.start(gate)

    def client(self, gate, name=TAG, **options):
        return self.start(Resp(gate.address, name=name, **options))


class WhatTheServerMustProve(RedisTls):
    def test_each_mode(self):
        redis = self.server()
        for parameters in ("?sslmode=require", self.checked + "&sslmode=verify-ca", self.checked,
                           self.checked + "&sslmode=verify-full"):
            with self.subTest(parameters):
                gate = self.gate(redis.url(parameters))
                self.assertEqual(self.client(gate).call("SET", "k", parameters), b"OK")
                self.assertEqual(redis.cli.call("GET", "k"), parameters.encode())

    def refused(self, url, words):
        """The clients are told, and so is the log of the gate's own connection."""
        gate = self.gate(url, reaches=False)
        eventually(lambda: words in gate.log())
        said = self.start(Resp(gate.port)).call("SET", "k", "v")
        self.assertIsInstance(said, RespError)
        self.assertIn(words, str(said))

    def test_another_name(self):
        self.refused(self.server().url(self.checked, host=LOOPBACK), "certificate is not accepted: IP address mismatch")
        other = self.server(self.authority.issue("other", "DNS:other.example"))
        self.refused(other.url(self.checked), "certificate is not accepted: hostname mismatch")

    def test_an_unknown_authority(self):
        redis = self.server()
        for mode in ("verify-ca", "verify-full"):
            self.refused(redis.url(f"?sslmode={mode}&cafile={self.rogue.certificate}"),
                         "certificate is not accepted: self-signed certificate in certificate chain")

    def test_an_expired_certificate(self):
        redis = self.server(self.authority.issue("expired", "DNS:localhost", days=-1))
        self.refused(redis.url(self.checked), "certificate is not accepted: certificate has expired")

    def test_the_gates_own_certificate(self):
        redis = self.server(clients="yes")
        self.refused(redis.url(self.checked), "certificate required")
        # With TLS 1.3 the server refuses behind the handshake: whoever speaks later is told, too.
        gate = self.gate(redis.url(self.checked), reaches=False)
        client = self.start(Resp(gate.port))
        eventually(lambda: gate.metric("connections_rejected_total", reason="backend") == 1)
        self.assert_error(client.call("SET", "k", "v"), "FENCEDOWN")
        certificate, key = self.authority.issue("gate")
        gate = self.gate(redis.url(f"{self.checked}&cert={certificate}&key={key}"))
        self.assertEqual(self.client(gate).call("SET", "k", "v"), b"OK")

    def test_a_server_without_tls_hears_nothing_of_the_client(self):
        plain = self.start(PlainServer(b"-ERR unknown command\r\n"))
        self.refused(f"rediss://:secret@localhost:{plain.port}{self.checked}", "TLS: the server does not speak it")
        self.assertLessEqual({one[:1] for one in plain.came}, {b"\x16", b"\x15"})  # handshakes and alerts
        self.assertNotIn(b"secret", b"".join(plain.came))

    def test_a_server_that_says_nothing(self):
        with contextlib.closing(socket.create_server((LOOPBACK, free_port()))) as silent:
            gate = self.gate(f"rediss://localhost:{silent.getsockname()[1]}{self.checked}", reaches=False,
                             extra={"timeouts": {"connect": "300ms"}})
            eventually(lambda: "connecting took too long" in gate.log())

    def test_certificates_are_replaced_under_load(self):
        """The server's, the gate's own and whom both trust, while clients come, write and go."""
        trusted, own = (os.path.join(self.folder, name) for name in ("trusted.crt", "own.pem"))
        replace(own, read(*self.authority.issue("own")))  # the key, too: both are replaced at once
        first, second = (read(one.certificate) for one in (self.authority, self.rogue))
        replace(trusted, first)
        redis = self.server(clients="yes", tls_ca_cert_file=trusted)
        gate = self.gate(redis.url(f"?cafile={trusted}&cert={own}&key={own}"))

        def write():
            with Resp(gate.port, name=TAG) as client:
                return client.call("INCR", "count")

        def trust(content):
            replace(trusted, content)
            self.assertEqual(redis.cli.call("CONFIG", "SET", "tls-ca-cert-file", trusted), b"OK")
            load.some_more()

        with Load(write, lambda said: isinstance(said, int)) as load:
            trust(first + second)
            fresh = self.rogue.issue("server", "DNS:localhost")
            self.assertEqual(redis.cli.call("CONFIG", "SET", "tls-cert-file", fresh[0], "tls-key-file", fresh[1]), b"OK")
            load.some_more()
            replace(own, read(*self.rogue.issue("own")))
            load.some_more()
            trust(second)  # nobody knows the first authority any more
        self.assertEqual(load.wrong, [])
        self.assertEqual(int(redis.cli.call("GET", "count")), len(load.done))
        self.assertEqual(self.client(gate).call("INCR", "count"), len(load.done) + 1)


class WhatGoesThrough(RedisTls):
    def test_a_takeover(self):
        redis = self.server()
        gate = self.gate(redis.url(self.checked))
        old = self.client(gate)
        self.assertEqual(old.call("SET", "k", "old"), b"OK")
        self.assertEqual(self.client(gate, NEWER).call("SET", "k", "new"), b"OK")
        self.assert_error(old.call("SET", "k", "old"), "FENCED")
        self.assertEqual(redis.cli.call("GET", "k"), b"new")

    def test_nothing_can_be_read_on_the_way(self):
        redis = self.server(requirepass="for-the-server-only")
        recorder = self.start(Recorder(redis.tls_port))
        gate = self.gate(f"rediss://:for-the-server-only@localhost:{recorder.port}{self.checked}", threads=1,
                         extra={"share_writes": "always"})
        client = self.client(gate, password="for-the-server-only")

        def shared():
            self.assertEqual(client.call("SET", "seldom", "not-for-others"), b"OK")
            return gate.metric("shared_writes_total")

        eventually(shared)
        waits = self.client(gate, password="for-the-server-only")
        waits.send_command("BLPOP", "a-queue", "0")
        eventually(lambda: b"tracking" in redis.cli.call("INFO", "everything").lower() and
                   int(redis.info("stats")["tracking_clients" if "tracking_clients" in redis.info("stats") else
                                           "tracking_total_keys"]) > 0)
        self.assertEqual(client.call("RPUSH", "a-queue", "not-for-others"), 1)
        self.assertEqual(waits.reply(), [b"a-queue", b"not-for-others"])
        self.assertGreater(len(recorder.seen), 4)
        for readable in (b"for-the-server-only", b"not-for-others", b"seldom", b"a-queue", b"fence", b"MULTI", b"HELLO"):
            self.assertNotIn(readable, recorder.bytes())

    def test_a_huge_value_both_ways(self):
        redis = self.server()
        gate = self.gate(redis.url(self.checked))
        client = self.client(gate)
        value = os.urandom(1 << 20) * (BIG >> 20)
        self.assertEqual(client.call("SET", "huge", value), b"OK")
        self.assertEqual(redis.cli.call("STRLEN", "huge"), BIG)
        self.assertEqual(hashlib.sha256(client.call("GET", "huge")).digest(), hashlib.sha256(value).digest())

    def test_a_pipeline(self):
        redis = self.server()
        client = self.client(self.gate(redis.url(self.checked)))
        sizes = [1, 5, 16383, 16384, 16385, 40000]
        commands = [("SET", f"k{i}", b"x" * sizes[i % len(sizes)]) for i in range(3000)]
        self.assertEqual(set(client.pipeline(commands)), {b"OK"})
        answers = client.pipeline([("GET", f"k{i}") for i in range(3000)])
        self.assertEqual([len(one) for one in answers], [sizes[i % len(sizes)] for i in range(3000)])

    def test_a_client_that_reads_late(self):
        """More than all buffers hold, so that both sides have to wait; then all of it arrives."""
        redis = self.server()
        gate = self.gate(redis.url(self.checked))
        client = self.client(gate)
        self.assertEqual(client.call("SET", "k", b"y" * 1_000_000), b"OK")
        for _ in range(60):
            client.send_command("GET", "k")
        held = lambda: sum(int(one.split("omem=")[1].split(" ")[0])  # noqa: E731
                           for one in redis.cli.call("CLIENT", "LIST").decode().splitlines())
        eventually(lambda: held() > 1_000_000)
        self.assertEqual({len(client.reply()) for _ in range(60)}, {1_000_000})

    def test_a_server_that_ends_in_a_record(self):
        redis = self.server()
        proxy = self.start(Recorder(redis.tls_port))
        gate = self.gate(f"rediss://localhost:{proxy.port}{self.checked}")
        client = self.client(gate)
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        proxy.cut_all()
        self.assertTrue(client.closed())
        eventually(lambda: self.client(gate).call("SET", "k", "w") == b"OK")


class OtherConnections(RedisTls):
    def run_words(self, folder, *words, **config):
        path = os.path.join(folder, "other.yaml")
        with open(path, "w") as file:
            json.dump(config, file)
        return subprocess.run([os.environ["FENCEGATE"], words[0], *words[1:], "-c", path], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def gates(self, url):
        return [{"name": "cache", "protocol": "redis", "listen": f"{LOOPBACK}:{free_port()}", "upstream": url}]

    def test_doctor(self):
        redis = self.server(appendfsync="always")
        hazards, unknown = self.look(redis.folder, gates=self.gates(redis.url(self.checked)))
        self.assertEqual((list(hazards), unknown), (["redis-open-default"], []))
        hazards, unknown = self.look(redis.folder, gates=self.gates(redis.url(f"?cafile={self.rogue.certificate}")))
        self.assertEqual(hazards, {})
        self.assertIn("self-signed certificate in certificate chain", unknown[0])

    def test_marks(self):
        redis = self.server()
        gates = self.gates(redis.url(self.checked))
        done = self.run_words(redis.folder, "marks", "raise", "orders", "--to", "34", gates=gates)
        self.assertEqual((done.returncode, done.stdout), (0, "gate:cache: orders: the mark is 34\n"), done.stderr)
        done = self.run_words(redis.folder, "marks", "list", "--json", gates=gates)
        self.assertEqual(json.loads(done.stdout), [{"place": "gate:cache", "resource": "orders", "mark": 34}])

    def test_leases(self):
        """Granted and sealed there."""
        redis = self.server()
        config = {"stores": {"ledger": {"url": redis.url(self.checked)}}, "gates": self.gates(redis.url(self.checked)),
                  "leases": {"issuers": {"main": {"store": "ledger"}}, "issuer": "main", "ttl": "120s"}}  # the longer, the more patient
        path = os.path.join(redis.folder, "other.yaml")
        with open(path, "w") as file:
            json.dump(config, file)
        done = subprocess.run([os.environ["FENCEGATE"], "hold", "-c", path, "orders", "--", "sh", "-c", "echo $FENCING_TOKEN"],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        mark = [key for key in redis.cli.call("KEYS", "*") if b"orders" in key and b"mark" in key]
        self.assertTrue(mark, redis.cli.call("KEYS", "*"))

    def test_a_store_of_an_http_gate(self):
        redis = self.server()
        routes = [{"match": "POST /writes", "resource": "orders", "redis": ["SET", "k", "{body}"]}]
        gate = self.start(HttpGate(self.start(Upstream()), {"ledger": redis.url(self.checked)}, routes))
        self.assertEqual(gate.request("POST", "/writes", b"http", token=34)[0], 200)
        self.assertEqual(redis.cli.call("GET", "k"), b"http")
        self.assertEqual(gate.request("POST", "/writes", b"http", token=33)[0], 412)

    def test_check(self):
        redis = self.server()
        for url, words in ((f"unix://{redis.address}?sslmode=require", "there is no TLS on a unix socket"),
                           (redis.url(""), "sslmode=verify-full needs cafile"),
                           (redis.url("?cafile=/none"), "cannot read cafile"),
                           (f"redis://localhost:1{self.checked}", "write rediss://")):
            done = self.run_words(redis.folder, "check", gates=self.gates(url))
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stdout + done.stderr)


if __name__ == "__main__":
    main(at_once=2)
