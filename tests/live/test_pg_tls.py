"""TLS between a PostgreSQL gate and its server: what it must prove, what passes through it, and what never goes without it."""

import contextlib
import json
import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time

import psycopg2

from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from pg_through_tls import ServerWithTls, ThroughTls
from pg_wire import SSL_REQUEST, Wire, cancel_request, fields, message, query
from postgres import PgGate, PostgresServer, give_to_system_user, run_sql
from processes import LOOPBACK, PATIENCE, connect, eventually, free_port
from test_pg_install import install
from tls import PlainServer, Recorder, openssl

ALLOW = {"missing_token": "allow"}
CANCEL_CODE = b"\x04\xd2\x16\x2e"


class Terminator:
    """Takes the TLS off for a server without. `pieces`: how many bytes of an answer go into each record, in turn; the last
    number stays. `context`: what else it wants of a client."""

    def __init__(self, port, certificate, key, pieces=(16384,)):
        self.target, self.pieces = port, pieces
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)

    def __enter__(self):
        self.listener = socket.create_server((LOOPBACK, free_port()))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, link):
        with link, contextlib.suppress(OSError), contextlib.closing(connect(self.target)) as server:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if link.recv(len(SSL_REQUEST)) != SSL_REQUEST:
                return
            link.sendall(b"S")
            with self.context.wrap_socket(link, server_side=True) as client:
                while True:
                    ready = [client] if client.pending() else select.select([client, server], [], [])[0]
                    for one in ready:
                        time.sleep(0.03 if one is server else 0)  # until the whole answer is there
                        data = one.recv(1 << 20)
                        if not data:
                            return
                        if one is client:
                            server.sendall(data)
                        else:
                            self._answer(client, data)

    def _answer(self, client, data):
        pieces = list(self.pieces)
        while data:
            size = pieces.pop(0) if len(pieces) > 1 else pieces[0]
            client.sendall(data[:size])
            data = data[size:]
            time.sleep(0.05 if data else 0)


class TlsTest(ServerWithTls, LiveTest):
    # Nobody but the fence's owner gets in without TLS.
    rules = ["hostssl all scram 127.0.0.1/32 scram-sha-256", "hostssl all bob 127.0.0.1/32 cert",
             "hostssl all all 127.0.0.1/32 trust", "hostnossl all all 127.0.0.1/32 reject"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.user("bob")

    def gate(self, parameters="?sslmode=require", **options):
        defaults = {"policy": ALLOW, "user": "gate", "upstream_parameters": parameters}
        return self.start(PgGate(options.pop("server", self.server), **(defaults | options)))

    def client(self, gate, tag=None, user="alice", **options):
        connection = gate.connect(tag, user=user, **options)
        self.addCleanup(connection.close)
        return connection

    def wire(self, gate, **options):
        return self.start(Wire(gate.address, user="alice", **options))

    def verified(self, mode="verify-full", authority=None):
        return f"?sslmode={mode}&sslrootcert={(authority or self.authority).certificate}"

    def refused(self, gate, words, **options):
        with self.assertRaisesRegex(psycopg2.OperationalError, words):
            self.client(gate, **options)


class WhatTheServerMustProve(TlsTest):
    def assert_encrypted(self, gate):
        client = self.client(gate, "orders=34")
        self.assertEqual(run_sql(client, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), [(True,)])
        run_sql(client, "INSERT INTO writes VALUES ('a')")
        self.assertEqual(self.server.sql("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                                         "WHERE usename = 'gate'"), [(True,)])
        client.close()

    def test_each_mode(self):
        for parameters in ("?sslmode=require", self.verified("verify-ca"), self.verified()):
            with self.subTest(parameters):
                gate = self.gate(parameters, upstream_host="localhost")
                self.assert_encrypted(gate)
                gate.terminate()
                self.assertEqual(gate.wait(), 0)

    def gate_without_control(self, parameters, **options):
        gate = PgGate(options.pop("server", self.server), policy=ALLOW, user="gate", upstream_parameters=parameters,
                      **options)
        gate.needs_backend = False
        return self.start(gate)

    def test_the_address_is_no_name_in_the_certificate(self):
        gate = self.gate_without_control(self.verified())
        self.refused(gate, "cannot be reached: TLS: the server's certificate is not accepted: IP address mismatch")

    def test_another_authority(self):
        for mode in ("verify-ca", "verify-full"):
            gate = self.gate_without_control(self.verified(mode, self.rogue), upstream_host="localhost")
            self.refused(gate, "the server's certificate is not accepted: (unable to get local issuer|self-signed) certificate")
            # Its own connections are no less careful.
            eventually(lambda gate=gate: "certificate verify failed" in gate.log())

    def test_an_expired_certificate_and_one_for_another_name(self):
        for subject, name, days, told, logged in (
                ("expired", "localhost", -1, "certificate has expired", "certificate verify failed"),  # libpq's words
                ("other", "other.example", 2, "hostname mismatch", "does not match host name")):
            with self.subTest(subject):
                server = self.start(Terminator(self.server.port, *self.authority.issue(subject, f"DNS:{name}", days)))
                gate = self.gate_without_control(self.verified(), server=server, upstream_host="localhost")
                self.refused(gate, f"cannot be reached: TLS: the server's certificate is not accepted: {told}")
                eventually(lambda gate=gate, logged=logged: logged in gate.log())

    def test_certificates_are_replaced_under_a_running_gate(self):
        path = os.path.join(self.folder, "replaced.crt")
        shutil.copy(self.rogue.certificate, path)
        gate = self.gate_without_control(f"?sslmode=verify-full&sslrootcert={path}", upstream_host="localhost")
        self.refused(gate, "not accepted")
        shutil.copy(self.authority.certificate, path + ".new")
        os.replace(path + ".new", path)
        client = self.client(gate)
        self.assertEqual(run_sql(client, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), [(True,)])
        os.remove(path)
        self.refused(gate, "TLS: cannot use sslrootcert: No such file")
        with open(path, "w") as file:
            file.write("nonsense")
        self.refused(gate, "TLS: cannot use sslrootcert")
        self.assertEqual(run_sql(client, "SELECT 1"), [(1,)])

    def test_a_key_with_a_passphrase(self):
        certificate, key = self.authority.issue("locked")
        openssl(self.folder, "ec", "-in", key, "-out", "locked.key", "-aes256", "-passout", "pass:secret")
        os.chmod(os.path.join(self.folder, "locked.key"), 0o600)
        with self.assertRaisesRegex(RuntimeError, r"yaml:\d+:\d+: upstream: TLS: cannot use sslkey"):
            self.gate_without_control(f"?sslmode=require&sslcert={certificate}&sslkey={self.folder}/locked.key")

    def test_nobody_is_asked_for_a_passphrase(self):
        """libpq would wait for it at the terminal, or where there is none at the standard input."""
        certificate, key = self.authority.issue("asked")
        openssl(self.folder, "ec", "-in", key, "-out", "asked.key", "-aes256", "-passout", "pass:secret")
        os.chmod(os.path.join(self.folder, "asked.key"), 0o600)
        path = os.path.join(self.folder, "asked.yaml")
        with open(path, "w") as file:
            json.dump({"gates": [{"name": "db", "protocol": "postgres", "listen": "127.0.0.1:6432", "upstream":
                       f"{self.server.url()}?sslmode=require&sslcert={certificate}&sslkey={self.folder}/asked.key"}]}, file)
        command = [os.environ["FENCEGATE"], "install", "-c", path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              start_new_session=True, text=True) as child:
            self.addCleanup(child.kill)
            self.assertEqual(child.wait(PATIENCE), 2)
            self.assertIn("TLS: cannot use sslkey", child.stderr.read())

    def test_a_certificate_that_is_not_checked_is_not_complained_about(self):
        terminator = Terminator(self.server.port, *self.authority.issue("strict", "DNS:localhost"))
        terminator.context.maximum_version = ssl.TLSVersion.TLSv1_2  # a newer one refuses behind the handshake
        terminator.context.verify_mode = ssl.CERT_REQUIRED
        gate = self.gate_without_control("?sslmode=require", server=self.start(terminator))
        self.refused(gate, "TLS: .*handshake failure")

    def test_the_gate_has_a_certificate(self):
        certificate, key = self.authority.issue("bob")
        gate = self.gate(f"?sslmode=require&sslcert={certificate}&sslkey={key}")
        client = self.client(gate, user="bob")
        self.assertEqual(run_sql(client, "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), [("/CN=bob",)])
        self.refused(self.gate(), "requires a valid client certificate", user="bob")

    def test_a_certificate_that_the_server_does_not_accept(self):
        certificate, key = self.rogue.issue("bob")
        gate = self.gate_without_control(f"?sslmode=require&sslcert={certificate}&sslkey={key}")
        self.refused(gate, "08006|the server closed the connection before the session began|TLS: ")
        eventually(lambda: "unknown ca" in gate.log())


class WhatNeverGoesInPlainText(TlsTest):
    """Servers that want no TLS, or pretend to."""

    def scripted(self, answer):
        """A gate in front of a server that sends this when the first bytes have come; and the server."""
        server = self.start(PlainServer(answer))
        gate = PgGate(self.server, policy=ALLOW, user="gate", upstream_parameters="?sslmode=require")
        gate.upstream_url = lambda: f"postgres://gate@{LOOPBACK}:{server.port}/postgres?sslmode=require"
        gate.needs_backend = False
        return self.start(gate), server

    def test_a_server_that_declines(self):
        gate, server = self.scripted(b"N")
        self.refused(gate, "cannot be reached: TLS: the server does not offer it")
        eventually(lambda: server.ended)
        self.assertEqual(set(server.came), {SSL_REQUEST})

    def test_an_error_in_plain_text_is_not_passed_on(self):
        gate, server = self.scripted(message(b"E", b"SFATAL\0VFATAL\0C28000\0Mcall this number\0\0"))
        wire = self.wire(gate)
        kind, body = wire.read()
        self.assertEqual((kind, fields(body)["C"]), (b"E", "08006"))
        self.assertNotIn("call this number", fields(body)["M"])
        eventually(lambda: server.ended)
        self.assertEqual(set(server.came), {SSL_REQUEST})

    def test_what_stands_behind_the_answer_is_not_taken_for_the_servers(self):
        ready = message(b"R", b"\0\0\0\0") + message(b"Z", b"I")
        gate, server = self.scripted(b"S" + ready)
        wire = self.wire(gate)
        kind, body = wire.read()
        self.assertEqual((kind, fields(body)["C"], wire.rest()), (b"E", "08006", b""))
        self.assertIn("TLS: ", fields(body)["M"])
        eventually(lambda: server.ended)
        self.assertNotIn(b"alice", b"".join(server.came))

    def test_nothing_can_be_read_on_the_way(self):
        recorder = self.start(Recorder(self.server.port))
        gate = self.gate(server=recorder)
        wire = self.wire(gate, options="-c fencing.tokens=orders=34")
        key = next(body for kind, body in wire.until_ready() if kind == b"K")
        wire.send(query("SELECT pg_sleep(60), 'not for others'"))
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
        with contextlib.closing(connect(gate.address)) as sock:
            sock.sendall(cancel_request(int.from_bytes(key[:4], "big"), key[4:]))
        self.assertEqual([fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"], ["57014"])
        self.assertGreaterEqual(recorder.seen.count(SSL_REQUEST), 3)  # the gate's own, the client's, the cancel's
        for readable in (b"alice", b"not for others", b"fencegate.", b"orders", CANCEL_CODE):
            self.assertNotIn(readable, recorder.bytes())


class WhatGoesThrough(ThroughTls, TlsTest):
    copied_rows = 40_000

    def test_scram_without_channel_binding(self):
        gate = self.gate()
        client = self.client(gate, "orders=34", user="scram", password="secret")
        self.assertEqual(run_sql(client, "SELECT current_user::text"), [("scram",)])
        self.refused(gate, "password authentication failed", user="scram", password="wrong")
        self.refused(gate, "channel binding", user="scram", password="secret", channel_binding="require")
        # The server does offer it.
        self.server.connect("scram", password="secret", channel_binding="require").close()

    def test_a_server_that_is_killed(self):
        with contextlib.ExitStack() as own:
            certificate, key = self.authority.issue("second", "DNS:localhost")
            give_to_system_user(key)
            server = own.enter_context(PostgresServer(ssl="on", ssl_cert_file=certificate, ssl_key_file=key))
            server.install()
            server.user("alice")
            gate = self.gate(server=server, user="postgres")
            client = self.client(gate, "orders=34")
            server.kill()
            with self.assertRaisesRegex(psycopg2.OperationalError, "closed the connection|57P0|terminat|crash"):
                run_sql(client, "SELECT 1")


class OtherConnections(TlsTest):
    def test_install(self):
        where = f"postgres://postgres@localhost:{self.server.port}/postgres"
        done = install(self.folder, upstream=where + self.verified())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = install(self.folder, upstream=where + self.verified(authority=self.rogue))
        self.assertEqual(done.returncode, 1)
        self.assertIn("certificate verify failed", done.stderr)
        done = install(self.folder, upstream=where)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no encryption", done.stderr)

    def test_a_store_of_an_http_gate(self):
        url = f"postgres://gate@localhost:{self.server.port}/postgres" + self.verified()
        routes = [{"match": "POST /writes", "resource": "orders", "sql": "INSERT INTO writes VALUES ($1)",
                   "params": ["{body}"]}]
        gate = self.start(HttpGate(self.start(Upstream()), {"ledger": url}, routes))
        self.assertEqual(gate.request("POST", "/writes", b"http", token=34)[0], 200)
        self.assertEqual(self.server.sql("SELECT who FROM writes"), [("http",)])
        self.assertEqual(self.server.sql("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                                         "WHERE usename = 'gate'"), [(True,)])

    def test_answers_in_records_that_libpq_takes_in_halves(self):
        """It has room for the first half of the second record, in which the answer ends."""
        server = self.start(PostgresServer())
        server.user("gate")
        server.install(gate_users=["gate"])
        server.sql("CREATE TABLE writes (who text)")
        server.sql("GRANT ALL ON writes TO public")
        terminator = self.start(Terminator(server.port, *self.authority.issue("halves"), pieces=(2999, 16384)))
        routes = [{"match": "POST /writes", "resource": "orders",
                   "sql": "INSERT INTO writes SELECT repeat('x', 3000) FROM generate_series(1, $1::int) RETURNING who",
                   "params": ["{body}"]}]
        url = f"postgres://gate@{LOOPBACK}:{terminator.port}/postgres?sslmode=require"
        gate = self.start(HttpGate(self.start(Upstream()), {"ledger": url}, routes))
        for rows in (1, 5, 6, 7, 30):
            status, _, body = gate.request("POST", "/writes", b"%d" % rows, token=34)
            self.assertEqual((status, body.count(b"who")), (200, rows))


if __name__ == "__main__":
    main(at_once=2)
