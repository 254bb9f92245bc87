"""TLS for the clients of gates: certificates on both sides, what is told and what is not, takeovers, floods and rotations."""

import contextlib
import functools
import hashlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile

import psycopg2

import test_lease_gates
import test_private_gate
from live_test import LiveTest, main
from pg_through_tls import ServerWithTls, ThroughTls
from pg_wire import GSS_REQUEST, SSL_REQUEST, Wire, cancel_request, fields, query, startup
from postgres import PgGate, PostgresServer, run_sql
from processes import PATIENCE, connect, eventually
from redis_server import RedisServer
from test_http_tls import ROUTES, SecuredGate, TlsUpstream
from test_redis_tls import NEWER, TAG, TlsGate
from tls import Authority, Certificates, Load, TlsRedis, TlsResp, client_context, read, replace, secure

BIG = 100 * 1024 * 1024


class TlsWire(Wire):
    """Through TLS, checked by `context`, behind an SSLRequest."""

    def __init__(self, address, context, **options):
        self.context = context
        super().__init__(address, **options)

    def connect(self, address, timeout):
        sock = connect(address, timeout)
        sock.sendall(SSL_REQUEST)
        if sock.recv(1) != b"S":
            sock.close()
            raise ConnectionError("no TLS")
        return secure(sock, self.context)


class Listeners(Certificates, LiveTest):
    """Servers with TLS, too."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shown = cls.authority.issue("gate", "DNS:localhost")
        cls.context = client_context(cls.authority)
        cls.redis = cls.enterClassContext(TlsRedis(cls.authority, cls.own))

    def setUp(self):
        self.redis.cli.call("FLUSHALL")

    def tls(self, shown=None, **more):
        certificate, key = shown or self.shown
        return {"tls": {"cert": certificate, "key": key} | more}

    def redis_gate(self, tls=None, **extra):
        return self.start(TlsGate(self.redis.url(self.checked), extra=(tls or self.tls()) | extra))

    def resp(self, gate, name=TAG, context=None):
        return self.start(TlsResp(gate.port, context or self.context, name=name))

    def whys(self, gate):
        return [line["detail"] for line in gate.log_lines() if line["msg"] == "a client was not served through TLS"]

    def not_served(self, gate, words, before):
        """It was counted and is in the log, where there is one line a second."""
        eventually(lambda: gate.metric("connections_rejected_total", reason="tls") > before)
        eventually(lambda: any(words in one for one in self.whys(gate)))

    def context_of(self, subject, authority=None, names=None, days=30):
        return client_context(self.authority, *(authority or self.authority).issue(subject, names, days))

    def writer(self, gate, context):
        """A client's socket, and what writes once and says whether that was done; in a context manager."""
        raise NotImplementedError

    def replace_under_load(self, start_gate):
        """While clients come, write and go and one stays: new ones see the new certificate, and no write fails. How many there
        were."""
        shown = [shutil.copy(path, os.path.join(self.folder, f"replaced{path[-4:]}")) for path in self.shown]
        gate = start_gate(tls=self.tls(shown))
        both = client_context(self.authority)
        both.load_verify_locations(self.rogue.certificate)

        def issuer():
            with self.writer(gate, both) as (sock, _):
                return dict(pair[0] for pair in sock.getpeercert()["issuer"])["commonName"]

        def write_anew():
            with self.writer(gate, both) as (_, write):
                return write()

        def load(write, **options):
            def once():
                try:
                    return write()
                except Exception as error:  # whatever a client's library makes of it
                    return error

            return Load(once, lambda said: said is True, **options)

        with self.writer(gate, both) as (_, stay), load(write_anew) as new, load(stay, threads=1) as kept:
            self.assertEqual(issuer(), "authority")
            for path, fresh in zip(shown, self.rogue.issue("gate", "DNS:localhost")):  # in between, they do not fit together
                replace(path, read(fresh))
                new.some_more()
            eventually(lambda: issuer() == "rogue")
            replace(shown[1], b"nonsense")
            new.some_more()
            self.assertEqual(issuer(), "rogue")
            kept.some_more()
        self.assertEqual((new.wrong, kept.wrong), ([], []))
        self.assertEqual(gate.metric("tls_files_refused_total"), 2)
        refused = [line for line in gate.log_lines() if line["msg"].startswith("new certificates cannot be used")]
        self.assertEqual(len(refused), 2, refused)
        self.assertIn("TLS: cannot use tls.key", refused[1]["detail"])
        return len(new.done) + len(kept.done)


class Redis(Listeners):
    def redis_cli(self, gate, *words, **options):
        return subprocess.run(["redis-cli", "--tls", "--cacert", self.authority.certificate, "--sni", "localhost", "-h",
                               "localhost", "-p", str(gate.port), *words], capture_output=True, timeout=120, check=True,
                              **options).stdout

    def test_a_takeover(self):
        gate = self.redis_gate()
        old = self.resp(gate)
        self.assertEqual(old.call("SET", "k", "old"), b"OK")
        self.assertEqual(self.resp(gate, NEWER).call("SET", "k", "new"), b"OK")
        self.assert_error(old.call("SET", "k", "old"), "FENCED")
        self.assertEqual(self.redis.cli.call("GET", "k"), b"new")

    def test_what_clients_must_prove(self):
        gate = self.redis_gate(self.tls(client_ca=self.authority.certificate,
                                        client_name=["app.orders", "spiffe://prod/orders", "by-common-name"]))
        for subject, names in (("a", "DNS:other,DNS:APP.orders"), ("b", "URI:spiffe://prod/orders"), ("by-common-name", None)):
            self.assertEqual(self.resp(gate, context=self.context_of(subject, names=names)).call("SET", "k", "v"), b"OK")
        for context, words in ((self.context, "TLS: the client has sent no certificate"),
                               (self.context_of("c", self.rogue, "DNS:app.orders"), "unable to get local issuer certificate"),
                               (self.context_of("d", names="DNS:app.orders", days=-1), "certificate has expired"),
                               (self.context_of("e", names="DNS:*.orders,DNS:app.orders.evil,URI:app.orders/"),
                                "has none of client_name")):
            with self.subTest(words):
                before = gate.metric("connections_rejected_total", reason="tls")
                with self.assertRaises(OSError):
                    self.resp(gate, context=context)
                eventually(lambda before=before: gate.metric("connections_rejected_total", reason="tls") > before)
                before = len(self.whys(gate))

                def seen(context=context, words=words):
                    with contextlib.suppress(OSError):
                        self.resp(gate, context=context)
                    return any(words in one for one in self.whys(gate))

                eventually(seen)
        eventually(lambda: gate.metric("connections") == 3)  # the last rejected one may be on its way out

    def test_optional_certificates(self):
        gate = self.redis_gate(self.tls(client_ca=self.authority.certificate, client_certificate="optional"))
        self.assertEqual(self.resp(gate).call("SET", "k", "v"), b"OK")
        self.assertEqual(self.resp(gate, context=self.context_of("a")).call("SET", "k", "v"), b"OK")
        with self.assertRaises(OSError):
            self.resp(gate, context=self.context_of("b", self.rogue))

    def test_clients_in_plain_text_hear_nothing(self):
        gate = self.redis_gate()
        with connect(gate.port) as sock:
            sock.sendall(b"*1\r\n$4\r\nPING\r\n")
            with contextlib.suppress(ConnectionResetError):
                said = sock.recv(1000)
                self.assertNotIn(b"PONG", said)
                self.assertIn(said[:1], (b"", b"\x15"))  # an alert
        self.not_served(gate, "TLS: the client does not speak it", 0)

    def test_a_client_that_says_nothing(self):
        gate = self.redis_gate(timeouts={"head": "500ms"}, connections_max=3)
        silent = [connect(gate.port) for _ in range(2)]
        half = connect(gate.port)
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        eventually(lambda: gate.metric("connections") == 3 or gate.metric("connections_rejected_total", reason="tls"))
        for sock in (*silent, half):
            with sock:
                self.assertIn(sock.recv(10), (b"",))
        self.not_served(gate, "in time", 2)
        eventually(lambda: gate.metric("connections") == 0)
        self.assertEqual(self.resp(gate).call("SET", "k", "v"), b"OK")

    def test_who_only_knocks_is_not_logged(self):
        gate = self.redis_gate()
        connect(gate.port).close()
        eventually(lambda: gate.metric("connections_total") == 1 and gate.metric("connections") == 0)
        self.assertEqual((self.whys(gate), gate.metric("connections_rejected_total", reason="tls")), ([], 0))

    def test_too_many_are_told_nothing_in_plain_text(self):
        gate = self.redis_gate(connections_max=1)
        self.assertEqual(self.resp(gate).call("SET", "k", "v"), b"OK")
        with connect(gate.port) as sock:
            self.assertEqual(sock.recv(100), b"")

    def test_old_versions_are_refused(self):
        gate = self.redis_gate()
        context = client_context(self.authority)
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaises(ssl.SSLError):
            self.resp(gate, context=context)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(self.authority)
            context.minimum_version = context.maximum_version = version
            self.assertEqual(self.resp(gate, context=context).call("SET", "k", "v"), b"OK")

    def test_openssl_says_what_there_is(self):
        """No renegotiation, no tickets, no compression."""
        gate = self.redis_gate()
        told = subprocess.run(["openssl", "s_client", "-connect", f"localhost:{gate.port}", "-CAfile", self.authority.certificate,
                               "-verify_return_error", "-verify_hostname", "localhost", "-tls1_2"], input=b"R\n",
                              capture_output=True, timeout=PATIENCE, check=False)
        self.assertIn(b"Verify return code: 0 (ok)", told.stdout)
        self.assertIn(b"Compression: NONE", told.stdout)
        self.assertNotIn(b"TLS session ticket:", told.stdout)
        self.assertIn(b"no renegotiation", told.stderr)

    def test_redis_cli_with_a_pipeline_and_a_huge_value(self):
        gate = self.redis_gate(self.tls(), policy={"missing_token": "allow"})
        commands = b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\nk%d\r\n$%d\r\n%s\r\n" % (len(b"k%d" % i), i, size, b"x" * size)
                            for i in range(3000) for size in [[1, 16383, 16384, 16385, 40000][i % 5]])
        self.assertIn(b"errors: 0, replies: 3000", self.redis_cli(gate, "--pipe", input=commands))
        self.assertEqual(len(self.redis.cli.call("KEYS", "k*")), 3000)
        value = os.urandom(1 << 20) * (BIG >> 20)
        self.assertEqual(self.redis_cli(gate, "-x", "SET", "huge", input=value), b"OK\n")
        back = self.redis_cli(gate, "GET", "huge")
        self.assertEqual(hashlib.sha256(back[:-1]).digest(), hashlib.sha256(value).digest())

    def test_a_client_that_reads_late(self):
        gate = self.redis_gate()
        client = self.resp(gate)
        self.assertEqual(client.call("SET", "k", b"y" * 1_000_000), b"OK")
        for _ in range(60):
            client.send_command("GET", "k")
        eventually(lambda: sum(int(one.split("omem=")[1].split(" ")[0])
                               for one in self.redis.cli.call("CLIENT", "LIST").decode().splitlines()) > 1_000_000)
        self.assertEqual({len(client.reply()) for _ in range(60)}, {1_000_000})

    def test_blocked_clients(self):
        gate = self.redis_gate()
        waits, gives = self.resp(gate), self.resp(gate)
        waits.send_command("BLPOP", "queue", "0")
        self.assertEqual(gives.call("RPUSH", "queue", "one"), 1)
        self.assertEqual(waits.reply(), [b"queue", b"one"])

    @contextlib.contextmanager
    def writer(self, gate, context):
        with TlsResp(gate.port, context, name=TAG) as client:
            yield client.sock, lambda: isinstance(client.call("INCR", "count"), int)

    def test_certificates_are_replaced_under_load(self):
        written = self.replace_under_load(self.redis_gate)
        self.assertEqual(int(self.redis.cli.call("GET", "count")), written)

    def test_authorities_of_clients_are_replaced(self):
        known = os.path.join(self.folder, "clients.crt")
        authorities = {one: read(one.certificate) for one in (self.authority, self.rogue)}
        contexts = {one: self.context_of(f"client-of-{one.name}", one) for one in authorities}
        replace(known, authorities[self.authority])
        gate = self.redis_gate(self.tls(client_ca=known))
        kept = self.resp(gate, context=contexts[self.authority])
        for trusted in ([self.authority], [self.authority, self.rogue], [self.rogue]):
            replace(known, b"".join(authorities[one] for one in trusted))
            for one, context in contexts.items():
                with self.subTest(trusted=[each.name for each in trusted], client=one.name):
                    if one in trusted:
                        self.assertEqual(self.resp(gate, context=context).call("SET", "k", "v"), b"OK")
                        continue
                    before = gate.metric("connections_rejected_total", reason="tls")
                    with self.assertRaises(OSError):
                        self.resp(gate, context=context)
                    self.not_served(gate, "unable to get local issuer certificate", before)
            self.assertEqual(kept.call("SET", "k", "v"), b"OK")

    def test_files_that_cannot_be_used_at_the_start(self):
        gate = TlsGate(self.redis.url(self.checked), extra=self.tls((self.shown[0], self.own[1])))
        with self.assertRaisesRegex(RuntimeError, r"yaml:\d+:\d+: TLS: cannot use tls.key: key values mismatch"):
            gate.__enter__()
        path = os.path.join(self.folder, "mismatch.yaml")
        with open(path, "w") as file:
            json.dump({"gates": [{"name": "cache", "protocol": "redis", "listen": ":6380", "upstream": "redis://cache:6379"} |
                                 self.tls((self.shown[0], self.own[1]))]}, file)
        check = subprocess.run([os.environ["FENCEGATE"], "check", "-c", path], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(check.returncode, 2)
        self.assertIn("TLS: cannot use tls.key: key values mismatch", check.stderr)

    def test_a_drain(self):
        gate = self.redis_gate()
        client = self.resp(gate)
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        with connect(gate.port):
            eventually(lambda: gate.metric("connections") == 2)
            gate.terminate()
            self.assertTrue(client.closed())
            self.assertEqual(gate.wait(), 0)


class Postgres(ThroughTls, ServerWithTls, Listeners):
    rules = ["hostssl all scram 127.0.0.1/32 scram-sha-256", "hostnossl all all 127.0.0.1/32 reject"]
    copied_rows = 100_000

    def gate(self, tls=None, **options):
        return self.start(PgGate(self.server, policy={"missing_token": "allow"}, user="gate", upstream_host="localhost",
                                 upstream_parameters=f"?sslmode=verify-full&sslrootcert={self.authority.certificate}", extra=tls or self.tls(),
                                 **options))

    def client(self, gate, tag=None, user="alice", **options):
        if tag:
            options["options"] = f"-c fencing.tokens={tag}"
        connection = psycopg2.connect(host="localhost", port=gate.port, user=user, dbname="postgres", connect_timeout=PATIENCE,
                                      **{"sslmode": "verify-full", "sslrootcert": self.authority.certificate} | options)
        connection.autocommit = True
        self.addCleanup(connection.close)
        return connection

    def wire(self, gate, context=None, **options):
        return self.start(TlsWire(gate.port, context or self.context, user="alice", **options))

    @contextlib.contextmanager
    def writer(self, gate, context):
        with TlsWire(gate.port, context, user="alice", options="-c fencing.tokens=orders=34") as wire:
            wire.until_ready()

            def write():
                wire.send(query("INSERT INTO writes VALUES ('a')"))
                return wire.until_ready() == [(b"C", b"INSERT 0 1\0"), (b"Z", b"I")]

            yield wire.sock, write

    def test_certificates_are_replaced_under_load(self):
        written = self.replace_under_load(self.gate)
        self.assertEqual(self.server.value("SELECT count(*) FROM writes"), written)

    def test_psql(self):
        gate = self.gate()
        where = f"host=localhost port={gate.port} user=alice dbname=postgres sslmode=verify-full"
        def psql(root):
            return subprocess.run(["psql", "-Atc", "SELECT 'through'", f"{where} sslrootcert={root}"], capture_output=True,
                                  text=True, timeout=PATIENCE, check=False)
        self.assertEqual(psql(self.authority.certificate).stdout, "through\n")
        self.assertIn("certificate verify failed", psql(self.rogue.certificate).stderr)

    def test_clients_in_plain_text_are_told_so(self):
        gate = self.gate()
        with self.assertRaisesRegex(psycopg2.OperationalError, "this gate is reached through TLS only"):
            self.client(gate, sslmode="disable")
        self.not_served(gate, "does not ask for it", 0)
        with connect(gate.port) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(sock.recv(100), b"")

    def test_what_stands_behind_the_request_is_refused(self):
        """CVE-2021-23214."""
        gate = self.gate()
        with connect(gate.port) as sock:
            sock.sendall(SSL_REQUEST + startup(user="alice", database="postgres"))
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(sock.recv(100), b"")
        self.not_served(gate, "plain text behind its request for TLS", 0)

    def test_a_second_request_inside_of_tls_ends_it(self):
        for request in (SSL_REQUEST, GSS_REQUEST):
            with TlsWire(self.gate().port, self.context, opening=request) as wire, contextlib.suppress(ConnectionError):
                kind, body = wire.read()
                self.assertEqual((kind, fields(body)["C"]), (b"E", "08P01"))

    def test_gss_is_answered_with_no(self):
        gate = self.gate()
        sock = connect(gate.port)
        for byte in GSS_REQUEST:
            sock.sendall(bytes([byte]))
        self.assertEqual(sock.recv(1), b"N")
        sock.sendall(SSL_REQUEST)
        self.assertEqual(sock.recv(1), b"S")
        with self.context.wrap_socket(sock, server_hostname="localhost") as secured:
            secured.sendall(startup(user="alice", database="postgres"))
            self.assertEqual(secured.recv(1), b"R")

    def test_directly(self):
        """As PostgreSQL 17: no request in front, and the protocol's name."""
        gate = self.gate()
        context = client_context(self.authority)
        for names, served in ((["postgresql"], True), (["http/1.1"], False), ([], False)):
            context.set_alpn_protocols(names)
            with contextlib.closing(connect(gate.port)) as sock:
                try:
                    with context.wrap_socket(sock, server_hostname="localhost") as secured:
                        secured.sendall(startup(user="alice", database="postgres"))
                        self.assertEqual(secured.recv(1), b"R" if served else b"")
                except OSError:
                    self.assertFalse(served)
        # Behind a request, too, another name is refused, and none is fine.
        context.set_alpn_protocols(["http/1.1"])
        with self.assertRaises(OSError):
            self.wire(gate, context)

    def test_a_cancel(self):
        """Through TLS, and as older libpq sends it."""
        gate = self.gate()
        wire = self.wire(gate)
        key = next(body for kind, body in wire.until_ready() if kind == b"K")
        request = cancel_request(int.from_bytes(key[:4], "big"), key[4:])
        for secured in (True, False):
            wire.send(query("SELECT pg_sleep(60)"))
            eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
            # Until the server has closed: it signals twice, and the second one may meet the next query.
            if secured:
                self.assertEqual(self.start(TlsWire(gate.port, self.context, opening=request)).rest(), b"")
            else:
                with connect(gate.port) as sock:
                    sock.sendall(request)
                    sock.recv(1)
            self.assertEqual([fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"], ["57014"])

    def test_scram(self):
        gate = self.gate()
        login = {"user": "scram", "password": "secret"}
        self.assertEqual(run_sql(self.client(gate, channel_binding="disable", **login), "SELECT 1"), [(1,)])
        with self.assertRaisesRegex(psycopg2.OperationalError, "server did not offer"):
            self.client(gate, channel_binding="require", **login)
        with self.assertRaisesRegex(psycopg2.OperationalError, "channel binding negotiation error"):
            self.client(gate, **login)  # the server takes the gate for an attacker

    def test_scram_bound_to_the_certificate_that_both_show(self):
        """RFC 5929, tls-server-end-point: neither the client nor the server sees that TLS ends in between."""
        path = os.path.join(self.folder, "shared")
        own = tuple(shutil.copyfile(file, path + end) for file, end in zip(self.own, (".crt", ".key")))
        gate = self.gate(self.tls(own))
        login = {"user": "scram", "password": "secret"}
        for wish in ("require", "prefer", "disable"):
            self.assertEqual(run_sql(self.client(gate, channel_binding=wish, **login), "SELECT 1"), [(1,)])
        armed = self.client(gate, "orders=34", channel_binding="require", **login)
        run_sql(armed, "INSERT INTO writes VALUES ('bound')")
        run_sql(self.client(gate, "orders=35", channel_binding="require", **login), "SELECT 1")
        with self.assertRaisesRegex(psycopg2.Error, "not applied"):
            run_sql(armed, "INSERT INTO writes VALUES ('stale')")
        self.assertEqual(self.server.sql("SELECT who FROM writes"), [("bound",)])
        # Once the gate shows another one, the offer lacks it again.
        for file, fresh in zip(own, self.shown):
            replace(file, read(fresh))
        with self.assertRaisesRegex(psycopg2.OperationalError, "server did not offer"):
            self.client(gate, channel_binding="require", **login)

    def test_what_clients_must_prove(self):
        gate = self.gate(self.tls(client_ca=self.authority.certificate, client_name=["app.orders"]))
        certificate, key = self.authority.issue("app.orders")
        self.assertEqual(run_sql(self.client(gate, sslcert=certificate, sslkey=key), "SELECT 1"), [(1,)])
        with self.assertRaises(psycopg2.OperationalError):
            self.client(gate)
        self.not_served(gate, "the client has sent no certificate", 0)


class Http(Listeners):
    def gate(self, upstream, tls=None, **options):
        url = f"https://localhost:{upstream.port}{self.checked}"
        return self.start(SecuredGate(upstream, url, {"marks": self.redis.url(self.checked)}, ROUTES, tls or self.tls(),
                                      **options))

    @staticmethod
    def connection(gate, context):
        return contextlib.closing(http.client.HTTPSConnection("localhost", gate.port, timeout=PATIENCE, context=context))

    @staticmethod
    def put(connection, token, body=b"x"):
        connection.request("PUT", "/orders/7", body, {"Fencing-Token": str(token)})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def request(self, gate, token, body=b"x", context=None):
        with self.connection(gate, context or self.context) as connection:
            return self.put(connection, token, body)

    @contextlib.contextmanager
    def writer(self, gate, context):
        with self.connection(gate, context) as connection:
            connection.connect()
            connection.auto_open = False  # who stays does not come anew
            yield connection.sock, lambda: self.put(connection, 34) == 200

    def test_certificates_are_replaced_under_load(self):
        upstream = self.start(TlsUpstream(self.own))
        written = self.replace_under_load(functools.partial(self.gate, upstream))
        self.assertEqual(len(upstream.seen("PUT")), written)

    def test_a_takeover(self):
        upstream = self.start(TlsUpstream(self.own))
        gate = self.gate(upstream)
        self.assertEqual(self.request(gate, 34, b"old"), 200)
        self.assertEqual(self.request(gate, 35, b"new"), 200)
        self.assertEqual(self.request(gate, 34, b"old"), 412)
        self.assertEqual([one[3] for one in upstream.seen("PUT")], [b"old", b"new"])

    def test_curl(self):
        upstream = self.start(TlsUpstream(self.own))
        gate = self.gate(upstream)
        path = os.path.join(gate.folder, "body")
        with open(path, "wb") as file:
            file.write(os.urandom(1 << 20) * (BIG >> 20))
        command = ["curl", "-sS", "--http2", "-H", "Fencing-Token: 34", "-T", path, f"https://localhost:{gate.port}/orders/7"]

        def curl(root):
            return subprocess.run([*command, "--cacert", root, "-w", " %{http_version}"], capture_output=True, text=True,
                                  timeout=120, check=False)

        done = curl(self.authority.certificate)
        self.assertIn(f'"bytes": {BIG}', done.stdout)
        self.assertTrue(done.stdout.endswith(" 1.1"))
        self.assertEqual(curl(self.rogue.certificate).returncode, 60)

    def test_what_clients_must_prove(self):
        upstream = self.start(TlsUpstream(self.own))
        gate = self.gate(upstream, self.tls(client_ca=self.authority.certificate))
        self.assertEqual(self.request(gate, 34, context=self.context_of("a")), 200)
        with self.assertRaises(OSError):
            self.request(gate, 34)
        self.not_served(gate, "the client has sent no certificate", 0)
        self.assertEqual(len(upstream.seen()), 1)

    def test_plain_text(self):
        gate = self.gate(self.start(TlsUpstream(self.own)))
        for method in (b"GET", b"DELETE"):
            with connect(gate.address) as sock:
                sock.sendall(method + b" /orders/7 HTTP/1.1\r\nHost: h\r\n\r\n")
                said = b"".join(iter(lambda: sock.recv(1 << 16), b""))  # the end is clean
            self.assertTrue(said.startswith(b"HTTP/1.1 400 "), said)
            self.assertIn(b"The plain HTTP request was sent to a TLS port", said)
        self.not_served(gate, "TLS: the client does not speak it", 0)


class LeaseGates(test_lease_gates.LeaseGatesTest):
    """Whom they do not serve, they tell so behind the handshake."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.mkdtemp(prefix="fencegate-tls-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        authority = Authority(folder, "authority")
        certificate, key = authority.issue("gate", "DNS:localhost")
        cls.context = client_context(authority)
        cls.keys = {"tls": {"cert": certificate, "key": key}}

    def test_a_standby_refuses_and_a_holder_serves(self):
        a, b = self.two(gate=self.keys)
        holder = self.start(TlsResp(a.redis_port, self.context))
        self.assertEqual(holder.call("SET", self.resource, "held"), b"OK")
        refused = self.start(TlsResp(b.redis_port, self.context))
        self.assertIn("standby: held by ", str(refused.call("SET", self.resource, "not")))
        self.assertTrue(refused.closed())
        wire = self.start(TlsWire(b.pg_port, self.context, user="orders", database="app"))
        kind, body = wire.read()
        self.assertEqual((kind, fields(body)["C"]), (b"E", "57P03"))
        talk = http.client.HTTPSConnection("localhost", b.http_port, timeout=PATIENCE, context=self.context)
        talk.request("PUT", "/orders/7", b"not")
        self.assertEqual(talk.getresponse().status, 503)
        talk.close()
        self.assertEqual(self.redis.cli.call("GET", self.resource), b"held")

    def test_a_loss_cuts_who_shakes_hands_too(self):
        """What was bound to the lease that is gone is served no more."""
        a, b = self.two(gate=self.keys)
        holder = self.start(TlsResp(a.redis_port, self.context))
        self.assertEqual(holder.call("SET", self.resource, "held"), b"OK")
        with connect(a.redis_port) as silent:
            eventually(lambda: a.figure('fencegate_connections{gate="cache"}') == 2)
            a.stop_process()
            b.eventually("holding")
            a.continue_process()
            self.assertTrue(holder.closed())
            self.assertEqual(silent.recv(1), b"")


class PrivateSidecar(test_private_gate.PrivateSidecar):
    tls = None

    def configure(self):
        configuration = super().configure()
        for gate in configuration["gates"]:
            gate["tls"] = self.tls
        return configuration


class PrivateGates(LiveTest):
    def test_a_commands_own_gate_is_plain_text(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="fencegate-tls-"))
        certificate, key = Authority(folder, "authority").issue("gate", "DNS:localhost")
        database, redis = self.start(PostgresServer()), self.start(RedisServer())
        database.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            database.user(name)
        database.install("app", gate_users=("gate",))
        PrivateSidecar.tls = {"cert": certificate, "key": key, "client_ca": certificate}
        sidecar = self.start(PrivateSidecar(database, redis))
        for gate, script, told in (("cache", f"{test_private_gate.REDIS} SET k v", "OK\n"), ("db", "psql -qXAtc 'SELECT 7'", "7\n")):
            hold = test_private_gate.Dynamic(sidecar, "orders", "--private-gate", gate, command=["sh", "-c", script],
                                             environment={"TMPDIR": folder, "XDG_RUNTIME_DIR": ""})
            with hold:
                self.assertEqual((hold.ended(), hold.told, hold.said), (0, told, ""))


if __name__ == "__main__":
    main(at_once=2)
