"""What PostgreSQL gates let through, whether TLS is between them and their server, or between them and their clients."""

import hashlib
import io

import psycopg2

from pg_wire import fields, message, query
from postgres import PostgresServer, give_to_system_user, run_sql
from processes import eventually
from tls import Certificates

CIPHER_TEXT_IS_LONGER = 16 * 1024  # than one record of TLS


class ServerWithTls(Certificates):
    """In front of a test's other bases: a server that has its `own` certificate and lets in whom `rules` say, by its pg_hba.conf;
    an empty table; no marks."""

    rules = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        certificate, key = cls.own
        give_to_system_user(key)
        cls.server = cls.enterClassContext(PostgresServer(hba=cls.rules, ssl="on", ssl_cert_file=certificate, ssl_key_file=key,
                                                          ssl_ca_file=cls.authority.certificate))
        cls.server.user("gate")
        cls.server.install(gate_users=["gate"])
        cls.server.user("alice")
        cls.server.user("scram", password="secret")
        cls.server.sql("CREATE TABLE writes (who text)")
        cls.server.sql("GRANT ALL ON writes TO public")

    def setUp(self):
        super().setUp()
        self.server.sql("TRUNCATE writes")
        self.server.sql("DELETE FROM fencegate.marks")


class ThroughTls:
    """Of a test that has gate(), client(gate, tag) and wire(gate)."""

    copied_rows = None

    def test_a_takeover(self):
        gate = self.gate()
        old = self.wire(gate, options="-c fencing.tokens=orders=34")
        old.until_ready()
        old.send(query("BEGIN; INSERT INTO writes VALUES ('old')"))
        old.until_ready()
        new = self.client(gate, "orders=35")
        run_sql(new, "INSERT INTO writes VALUES ('new')")
        old.send(query("COMMIT"))
        kind, body = old.read()
        self.assertEqual((kind, fields(body)["C"], old.rest()), (b"E", "ZF001", message(b"Z", b"I")))
        self.assertIn("not applied", fields(body)["M"])
        self.assertEqual(self.server.sql("SELECT who FROM writes"), [("new",)])

    def test_copy_both_ways(self):
        client = self.client(self.gate(), "orders=34")
        line = b"x" * 1000 + b"\n"
        data = b"".join(b"%08d" % i + line for i in range(self.copied_rows))
        with client.cursor() as cursor:
            cursor.copy_expert("COPY writes FROM STDIN", io.BytesIO(data), size=CIPHER_TEXT_IS_LONGER * 7 + 1)
            back = io.BytesIO()
            cursor.copy_expert("COPY (SELECT who FROM writes ORDER BY who) TO STDOUT", back)
        self.assertEqual(hashlib.sha256(back.getvalue()).digest(), hashlib.sha256(data).digest())

    def test_a_client_that_reads_late(self):
        """More than all buffers hold, so that both sides have to wait; then all of it arrives."""
        gate = self.gate()
        wire = self.wire(gate)
        wire.until_ready()
        rows = 4_000
        wire.send(query(f"SELECT repeat('y', 10000) FROM generate_series(1, {rows})"))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE usename = 'alice' AND wait_event = 'ClientWrite'"
        eventually(lambda: self.server.sql(waiting))
        count = 0
        while (kind := wire.read()[0]) != b"Z":
            count += kind == b"D"
        self.assertEqual(count, rows)

    def test_guard_transaction(self):
        gate = self.gate(guard="transaction")
        old = self.client(gate, "orders=34")
        run_sql(old, "INSERT INTO writes VALUES ('old')")
        run_sql(self.client(gate, "orders=35"), "INSERT INTO writes VALUES ('new')")
        with self.assertRaisesRegex(psycopg2.Error, "stale|superseded|35"):
            run_sql(old, "INSERT INTO writes VALUES ('old')")
        self.assertEqual(self.server.sql("SELECT who FROM writes"), [("old",), ("new",)])
