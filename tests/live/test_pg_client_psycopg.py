"""psycopg2 and psycopg 3: what a superseded session sees in the middle of what it does; nothing is retried. And drivers that put
many statements into one message."""

import contextlib
import io
import logging
import re
import unittest

import psycopg
import psycopg2
import psycopg2.extras

from documents import text
from live_test import main
from postgres import PgBouncer, PgGate, PostgresServer
from processes import LOOPBACK, eventually
from test_pg_gate import PgGateTest

try:
    import sqlalchemy
except ImportError:
    sqlalchemy = None
try:
    import pyodbc
except ImportError:
    pyodbc = None


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


class Batches(PgGateTest):
    """Drivers that send a hundred rows as one message of as many statements: to a session, and guarded, through a pooler."""

    rows = [f"{number:03}" for number in range(300)]
    insert = "INSERT INTO writes (who) VALUES (%s)"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.sql("GRANT fencegate_gate TO alice")
        pooler = cls.enterClassContext(PgBouncer(cls.server, user="alice"))
        cls.pooled = cls.enterClassContext(PgGate(pooler, guard="transaction", user="alice"))

    def assert_fenced(self, connect, write, gates=None, but=""):
        """`connect(gate, autocommit)` with token 34; `write(client)` writes the rows. `but`: what else a driver may say of its end."""
        for gate in gates or (self.gate, self.pooled):
            self.resource += "."
            stale = f"token 34 of {self.resource} is below mark 35; not applied"
            clients = [connect(gate, autocommit) for autocommit in (True, False)]
            for client in clients:
                write(client)
                client.commit()
            self.assertEqual(sorted(self.written()), sorted(self.rows * 2))
            write(clients[1])
            self.connect(35, gate)
            for client in clients:
                with self.assertRaisesRegex(Exception, stale + but):
                    write(client)
            with self.assertRaisesRegex(Exception, stale):
                connect(gate, True)
            self.assertEqual(sorted(self.written()), sorted(self.rows * 2))
            self.server.sql("TRUNCATE writes")

    def test_execute_batch_of_psycopg2(self):
        for page_size in (100, 300):
            self.assert_fenced(lambda gate, autocommit: self.connect(34, gate, autocommit=autocommit),
                               lambda client: psycopg2.extras.execute_batch(client.cursor(), self.insert, [(row,) for row in self.rows],
                                                                            page_size=page_size))

    @unittest.skipUnless(sqlalchemy, "needs python3-sqlalchemy")
    def test_values_plus_batch_of_sqlalchemy(self):
        """It makes one statement of an `INSERT` of its own, and messages of a hundred statements of any other text."""
        def connect(gate, autocommit):
            client = sqlalchemy.create_engine("postgresql+psycopg2://", creator=lambda: self.connect(34, gate, autocommit=autocommit),
                                              executemany_mode="values_plus_batch", future=True).connect()
            self.addCleanup(client.invalidate)
            return client
        for insert in (sqlalchemy.table("writes", sqlalchemy.column("who")).insert(), sqlalchemy.text(self.insert.replace("%s", ":who"))):
            self.assert_fenced(connect, lambda client: client.execute(insert, [{"who": row} for row in self.rows]))

    @unittest.skipUnless(pyodbc, "needs odbc-postgresql and python3-pyodbc")
    def test_arrays_of_psqlodbc(self):
        """It sends savepoints, too. When the server prepares its statements, each row is a message, and the driver does not always say
        why its session ended: without a gate it does not, either."""
        row = re.search(r"^\| psqlODBC \| `(pqopt=.*?)`.*`(UseServerSidePrepare=0)`", text("docs/applications.md"), re.M)

        def connect(gate, autocommit, prepare=row[2]):
            client = pyodbc.connect(f"Driver=PostgreSQL Unicode;Server={LOOPBACK};Port={gate.port};Database=postgres;Uid=alice;{prepare};"
                                    + row[1].replace("orders", self.resource), autocommit=autocommit)
            self.addCleanup(client.close)
            return client

        def prepared(gate, autocommit):
            return connect(gate, autocommit, "UseServerSidePrepare=1")

        def write(client):
            cursor = client.cursor()
            cursor.fast_executemany = True  # as arrays
            cursor.executemany(self.insert.replace("%s", "?"), [(row,) for row in self.rows])
        guarded = self.start(PgGate(self.server, guard="transaction", user="alice", extra={"pooled": False}))
        self.assert_fenced(connect, write, (self.gate, guarded, self.pooled))
        self.assert_fenced(prepared, write, (self.gate, guarded), "|internal SAVEPOINT failed|connection lost")
        self.resource += "."
        with self.assertRaisesRegex(pyodbc.Error, "ZF007.*behind a pooler a prepared statement is known in the transaction of"):
            write(prepared(self.pooled, True))
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
