"""psycopg2 and psycopg 3: what a superseded session sees in the middle of what it does; nothing is retried."""

import contextlib
import io
import logging

import psycopg
import psycopg2

from live_test import main
from postgres import PgGate, PostgresServer
from processes import LOOPBACK, eventually
from test_pg_gate import PgGateTest


logging.getLogger("psycopg").addHandler(logging.NullHandler())  # of what it does not raise, it tells this logger


class Superseded:
    """Subclasses say which driver. Each test is superseded in the middle of something, and then tries to finish it."""

    def setUp(self):
        super().setUp()
        self.client = self.open(34)
        self.addCleanup(self.client.close)

    def supersede(self):
        self.connect(35)
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'alice'") == 1)

    def fails(self, action, *arguments):
        with self.assertRaises(self.error) as caught:
            action(*arguments)
        self.assertIn(f"token 34 of {self.resource} is below mark 35", str(caught.exception))
        self.assertEqual(self.state_of(caught.exception), "ZF001")
        with self.assertRaises(self.error):
            self.run_on("SELECT 1")
        self.assertTrue(self.client.closed)
        self.assertEqual(self.written(), [])

    def run_on(self, sql, *values):
        cursor = self.client.cursor()
        cursor.execute(sql, values or None)
        return cursor

    def test_autocommit(self):
        self.client.autocommit = True
        self.run_on("SELECT 1")
        self.supersede()
        self.fails(self.run_on, "INSERT INTO writes (who) VALUES (%s)", "stale")
        with self.assertRaises(self.error):  # the driver does not connect again
            self.run_on("INSERT INTO writes (who) VALUES ('stale')")
        self.assertEqual(self.written(), [])

    def test_a_transaction(self):
        self.run_on("INSERT INTO writes (who) VALUES (%s)", "stale")
        self.supersede()
        self.fails(self.client.commit)

    def test_a_failed_transaction(self):
        with self.assertRaises(self.error):
            self.run_on("SELECT 1/0")
        self.supersede()
        self.fails(self.run_on, "ROLLBACK")

    def test_a_server_side_cursor(self):
        self.run_on("INSERT INTO writes (who) VALUES (%s)", "stale")
        cursor = self.client.cursor("rows")
        cursor.execute("SELECT n FROM generate_series(1, 10000) n")
        self.assertEqual(cursor.fetchone(), (1,))
        self.supersede()
        self.fails(lambda: [*cursor])
        with contextlib.suppress(self.error):
            cursor.close()

    def test_results_errors_and_copy_are_the_servers(self):
        self.assertEqual(self.run_on("SELECT %s::int, %s::text", 1, "é").fetchall(), [(1, "é")])
        self.copy_in(["a", "b"])
        self.client.commit()
        self.assertEqual(sorted(self.written()), ["a", "b"])
        with self.assertRaises(self.error) as caught:
            self.run_on("SELECT 1/0")
        self.assertEqual(self.state_of(caught.exception), "22012")
        self.client.rollback()
        self.assertEqual(len(self.run_on("SELECT n FROM generate_series(1, 20000) n").fetchall()), 20000)


class Psycopg2(Superseded, PgGateTest):
    error = psycopg2.Error

    def open(self, token):
        return self.connect(token, autocommit=False)

    def state_of(self, error):
        return error.pgcode

    def copy_in(self, lines):
        self.client.cursor().copy_expert("COPY writes (who) FROM STDIN", io.StringIO("\n".join(lines) + "\n"))

    def test_copy(self):
        test = self

        class Lines(io.StringIO):
            def read(self, *size):
                if self.tell() and not test.client.closed and not getattr(self, "cut", False):
                    self.cut = True
                    test.supersede()
                return super().read(*size)
        with contextlib.redirect_stderr(io.StringIO()):  # psycopg2 prints the error, too
            self.fails(self.client.cursor().copy_expert, "COPY writes (who) FROM STDIN", Lines("stale\n" * 5000))


class Psycopg3(Superseded, PgGateTest):
    error = psycopg.Error

    def open(self, token):
        return psycopg.connect(host=LOOPBACK, port=self.gate.port, user="alice", dbname="postgres",
                               options=f"-c fencing.tokens={self.resource}={token}")

    def state_of(self, error):
        return error.sqlstate

    def copy_in(self, lines):
        with self.client.cursor().copy("COPY writes (who) FROM STDIN") as copy:
            for line in lines:
                copy.write_row((line,))

    def test_copy(self):
        def copy_all():
            with self.client.cursor().copy("COPY writes (who) FROM STDIN") as copy:
                copy.write_row(("stale",))
                self.supersede()
                copy.write_row(("stale",))
        self.fails(copy_all)

    def test_prepared_statements(self):
        insert = "INSERT INTO writes (who) SELECT %s WHERE %s"
        self.client.execute(insert, ("stale", False), prepare=True)
        self.client.commit()
        self.client.execute(insert, ("stale", True), prepare=True)
        self.supersede()
        self.fails(lambda: self.client.execute(insert, ("stale", True), prepare=True))

    def test_pipeline_mode(self):
        def pipeline():
            with self.client.pipeline() as steps:
                self.client.execute("INSERT INTO writes (who) VALUES ('stale')")
                steps.sync()
                self.supersede()
                self.client.execute("INSERT INTO writes (who) VALUES ('stale')")
                steps.sync()
        # In a pipeline libpq may find the end of the connection before it reads why, or make a notice of that.
        with self.assertRaises(self.error):
            pipeline()
        self.assertTrue(self.client.closed)
        with self.assertRaises(self.error):
            self.client.execute("INSERT INTO writes (who) VALUES ('stale')")
        self.assertEqual(self.written(), [])


class Authentication(PgGateTest):
    @classmethod
    def setUpClass(cls):
        methods = {"scram": "scram-sha-256", "md5er": "md5", "plain": "password"}
        hba = [f"host all {user} 127.0.0.1/32 {method}" for user, method in methods.items()]
        cls.server = cls.enterClassContext(PostgresServer(hba=hba))
        cls.server.install()
        cls.server.sql("CREATE TABLE writes (who text)")
        for user in methods:
            encryption = "md5" if user == "md5er" else "scram-sha-256"
            cls.server.sql(f"SET password_encryption = '{encryption}'")
            cls.server.user(user, password="secret")
        cls.users = list(methods)
        cls.gate = cls.enterClassContext(PgGate(cls.server))

    def test_every_method_is_relayed(self):
        for user in self.users:
            with self.subTest(user), contextlib.closing(self.connect(34, user=user, password="secret")) as client:
                self.assertEqual(client.info.transaction_status, 0)
                self.assertEqual(self.mark(), 34)

    def test_a_wrong_password_raises_nothing(self):
        for user in self.users:
            refused = self.assertRaisesRegex(psycopg2.OperationalError, "password authentication failed")
            with self.subTest(user), refused:
                self.connect(99, user=user, password="wrong")
        self.assertIsNone(self.mark())

    def test_tls_is_declined(self):
        client = self.connect(34, user="scram", password="secret", sslmode="prefer")
        self.assertFalse(client.info.ssl_in_use)
        with self.assertRaisesRegex(psycopg2.OperationalError, "server does not support SSL"):
            self.connect(34, user="scram", password="secret", sslmode="require")


if __name__ == "__main__":
    main()
