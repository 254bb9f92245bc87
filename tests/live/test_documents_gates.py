"""The pages about Redis and PostgreSQL are true as they stand: access rights, the schema, tags, errors, limits."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import psycopg2

from documents import block, command, run_shell, text
from gate_process import Gate
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, binary, run_sql
from processes import LOOPBACK, eventually
from redis_server import RedisServer
from resp import Resp, RespError

MARK = "fencegate:mark:{orders}"
PAGE = text("docs/postgresql.md")
PROTECT = "fencegate install -c fencegate.yaml --gate db --protect"
UNPROTECT = "fencegate install -c fencegate.yaml --gate db --unprotect"


def configuration(folder, postgres_port=5432):
    """The file with the configuration that the page shows."""
    secret = Path(folder) / "password"
    secret.write_text("gate-secret\n")
    config = Path(folder) / "fencegate.yaml"
    shown = re.sub(r"/run/secrets/\w+-password", str(secret), block("docs/configuration.md", "yaml"))
    config.write_text(shown.replace("127.0.0.1:5432", f"127.0.0.1:{postgres_port}"))
    return config


class AccessRights(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        admin = self.redis.cli  # stays authenticated when the default user is switched off
        for line in block("docs/redis.md", "acl").splitlines():
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

    def least_rights(self, *more):
        words = block("docs/redis.md", "redis").split()
        self.assertEqual(self.redis.cli.call(*words[:3], "reset", *words[3:], *more), b"OK")

    def test_a_right_that_a_writer_lacks_is_named(self):
        self.least_rights("-watch")
        writer = self.as_writer(self.through_gate().port, "fence:orders=34")
        for commands in ([("SET", "orders:1", "x")], [("MULTI",), ("SET", "orders:1", "x"), ("EXEC",)]):
            reply = writer.pipeline(commands)[-1]
            self.assert_error(reply, "NOPERM")
            self.assertIn("'watch'", str(reply))
            self.assertIn("not applied", str(reply))
        self.assertIsNone(writer.call("GET", "orders:1"))

    def test_what_some_writers_need_besides(self):
        self.least_rights("+select", "+info", "+eval")
        gate = self.start(Gate(self.redis, user="fencegate", password="gate-secret", extra={"share_writes": "always"}))
        writers = [self.as_writer(gate.port) for _ in range(3)]
        for writer in writers:
            for command in (("FENCE", "SET", "orders", "34"), ("SET", "orders:1", "a"), ("SELECT", "3"), ("SET", "orders:1", "b"),
                            ("WATCH", "orders:1"), ("SET", "orders:1", "c"), ("UNWATCH",),
                            ("FENCE", "CALL", "orders", "34", "SET", "orders:1", "d"), ("FENCE", "MARK", "orders")):
                self.assertNotIsInstance(reply := writer.call(*command), RespError, (command, reply))

    def test_put_marks_back_that_were_lost(self):
        gate = self.through_gate()
        self.as_writer(gate.port, "fence:orders=34")
        self.redis.cli.call("FLUSHALL")
        opened = lambda: self.as_writer(gate.port, "fence:orders=34").call("SET", "orders:1", "v") == b"OK"
        eventually(opened, every=0.2)
        self.assert_error(self.as_writer(gate.port, "fence:orders=33").named, "FENCED")

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

    def test_the_least_that_a_writer_needs(self):
        line = block("docs/redis.md", "redis").split()
        gate = self.through_gate()
        self.assertEqual(self.redis.cli.call(*line[:3], "reset", *line[3:]), b"OK")
        self.assertEqual(self.refusals(gate, 34), [])
        for token, needed in enumerate(line[line.index("+client|setname"):], 35):
            if needed == "+unwatch":
                continue  # behind proofs that fail, which are rarer
            self.assertEqual(self.redis.cli.call(*line[:3], needed.replace("+", "-")), b"OK")
            self.assertNotEqual(self.refusals(gate, token), [], f"{needed} is not needed")
            self.assertEqual(self.redis.cli.call(*line[:3], needed), b"OK")

    def refusals(self, gate, token):
        """Of a writer that binds by its name and by a command, and whose mark is touched meanwhile."""
        with self.as_writer(gate.port, f"fence:orders={token}") as writer:
            answers = [writer.named]
            try:
                for command_of_its in (("SET", "orders:1", "v"), ("FENCE", "SET", "orders", token), ("SET", "orders:1", "v")):
                    answers.append(writer.call(*command_of_its))
                    self.redis.cli.call("SET", MARK, token)
            except OSError as error:
                answers.append(error)
        return [answer for answer in answers if answer != b"OK"]

    def test_let_nobody_in_without_a_password(self):
        with Resp(self.redis.port) as nobody:
            self.assert_error(nobody.call("GET", "orders:1"), "NOAUTH")


class Postgres(LiveTest):
    """The server, its users and the gate, set up as the page says."""

    @classmethod
    def setUpClass(cls):
        hba = ["host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256"]
        cls.server = cls.enterClassContext(PostgresServer(hba=hba, max_prepared_transactions=5))
        cls.server.sql("CREATE DATABASE app")
        cls.server.sql(block("docs/postgresql.md", "sql"))
        cls.run_command("fencegate install -c fencegate.yaml --gate db --print")
        with cls.server.connect(database="app") as superuser:
            run_sql(superuser, "CREATE TABLE orders (id int); CREATE TABLE items (id int); CREATE TABLE other (id int)")
            run_sql(superuser, "GRANT ALL ON orders, items TO orders")
        superuser.close()

    @classmethod
    def run_command(cls, start, page="docs/postgresql.md"):
        with tempfile.TemporaryDirectory() as folder:
            config = configuration(folder, cls.server.port)
            if page == "docs/http.md":
                config.write_text(block(page, "yaml"))
            run_shell(command(page, start), folder, PGHOST=LOOPBACK, PGPORT=str(cls.server.port))

    def setUp(self):
        self.addCleanup(self.sql, "SELECT fencegate.unprotect('orders'), fencegate.unprotect('items'); TRUNCATE orders")
        self.addCleanup(self.sql, "DELETE FROM fencegate.marks")

    def sql(self, text):
        superuser = self.server.connect(database="app")
        self.addCleanup(superuser.close)
        return run_sql(superuser, text)

    def gate(self, guard="session", **policy):
        return self.start(PgGate(self.server, user="fencegate", password="gate-secret", database="app", guard=guard,
                                 comment_tags="lead" if guard == "session" else None, policy=policy))

    def connect(self, gate, tag=None, **more):
        connection = gate.connect(tag, user="orders", password="orders-secret", database="app", **more)
        self.addCleanup(connection.close)
        return connection

    def psql(self, gate, *arguments, **environment):
        login = {"PGPASSWORD": "orders-secret", "PGUSER": "orders"}
        return subprocess.run([binary("psql"), "-X", "-At", *arguments, "-c", "SELECT current_user"], text=True,
                              capture_output=True, check=False, env=os.environ | login | environment)

    def assert_mark(self, mark):
        self.assertEqual(self.sql("SELECT resource, mark FROM fencegate.marks"), [("orders", mark)])

    def test_a_writer_is_fenced(self):
        gate = self.gate()
        old = self.connect(gate, "orders=33")
        run_sql(old, "INSERT INTO orders VALUES (33)")
        new = self.connect(gate, "orders=34")
        with self.assertRaises(psycopg2.Error):
            run_sql(old, "INSERT INTO orders VALUES (33)")
        said = old.info.error_message
        self.assertIn("FATAL:  token 33 of orders is below mark 34; not applied", said)
        self.assertIn(re.search(r'`(\{"resource":.*?\})`', PAGE)[1], said)
        self.assertEqual(run_sql(new, "SELECT * FROM orders"), [(33,)])

    def test_the_example_of_pgoptions(self):
        gate = self.gate()
        options = re.match(r'PGOPTIONS="(.*?)" psql -h 127.0.0.1 -p 6432 app$', command("docs/postgresql.md", "PGOPTIONS="))[1]
        asked = self.psql(gate, "-h", "127.0.0.1", "-p", str(gate.port), "app", PGOPTIONS=options)
        self.assertEqual((asked.stdout, asked.stderr), ("orders\n", ""))
        self.assert_mark(34)

    def test_the_url(self):
        gate = self.gate()
        url = re.search(r"`(postgres://127.0.0.1:6432/app\?options=.*?)`", PAGE)[1].replace("6432", str(gate.port))
        self.assertEqual(self.psql(gate, url).stdout, "orders\n")
        self.assert_mark(34)

    def test_the_application_name(self):
        name = re.search(r"an application name like `(.*?)`", PAGE)[1]
        self.connect(self.gate(), application_name=name)
        self.assert_mark(34)

    def test_the_comment(self):
        comment = re.search(r"`(/\*fence:.*?\*/) UPDATE", PAGE)[1]
        self.assertIn("`comment_tags: lead`", PAGE)
        run_sql(self.connect(self.gate(missing_token="allow")), f"{comment} INSERT INTO orders VALUES (34)")
        self.assert_mark(34)

    def test_the_function(self):
        call = re.search(r"`(SELECT fencegate\.arm\(.*?\))`", PAGE)[1]
        run_sql(self.connect(self.gate(missing_token="allow")), call)
        self.assert_mark(34)

    def test_the_sqlstates(self):
        gate = self.gate(missing_token="allow", max_step=10)
        armed, client = self.connect(gate, "orders=34"), self.connect(gate)
        self.run_command(PROTECT)
        found = {
            "the token is below the mark": self.state(client, "/*fence:orders=33*/ SELECT 1"),
            "without a token": self.state(client, "INSERT INTO orders VALUES (1)"),
            "not a canonical integer": self.state(client, "/*fence:orders=034*/ SELECT 1"),
            "more than `max_step` above": self.state(client, "/*fence:orders=45*/ SELECT 1"),
            "would escape the fence": self.state(armed, "PREPARE TRANSACTION 'escaped'"),
        }
        self.sql("BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'old'")
        self.addCleanup(self.sql, "ROLLBACK PREPARED 'old'")
        found["could not be checked or raised"] = self.state(client, "/*fence:orders=35*/ SELECT 1")
        rows = re.findall(r"^\| `-FENCE\w+` \| (ZF\d+) \| \d+ \| (.*) \|$", text("docs/guarantee.md"), re.M)
        self.assertEqual(len(rows), 7)
        for code, meaning in rows:
            if code != "ZF004":  # of redis gates only
                self.assertEqual([state for words, state in found.items() if words in meaning], [code], meaning)

    def state(self, connection, sql):
        with self.assertRaises(psycopg2.Error) as caught:
            run_sql(connection, sql)
        self.assertFalse(connection.closed)
        return caught.exception.pgcode

    def test_protected_tables(self):
        self.run_command(PROTECT)
        gate = self.gate(missing_token="allow")
        run_sql(self.connect(gate, "orders=1"), "INSERT INTO orders VALUES (1)")
        around = self.server.connect("orders", "app", password="orders-secret")
        self.addCleanup(around.close)
        for client in (around, self.connect(gate), self.connect(gate, "payments=1")):
            self.assertEqual(self.state(client, "INSERT INTO orders VALUES (2)"), "ZF002")
        self.run_command(UNPROTECT)
        run_sql(around, "INSERT INTO orders VALUES (3)")
        self.assertEqual(self.sql("SELECT * FROM orders"), [(1,), (3,)])

    def test_a_store_has_the_schema_of_the_gates(self):
        self.connect(self.gate(), "orders=34")
        self.run_command("fencegate install -c fencegate.yaml --store ledger", page="docs/http.md")
        self.assert_mark(34)

    def test_guard_transaction(self):
        gate = self.gate("transaction")
        old = self.connect(gate, "orders=34")
        run_sql(old, "INSERT INTO orders VALUES (34)")
        for code, text in (("ZF007", "PREPARE TRANSACTION 'x'"), ("ZF007", "PREPARE s AS SELECT 1"),
                           ("ZF007", "SET standard_conforming_strings = off; SELECT '\\\\'"),
                           ("ZF007", "SET client_encoding = LATIN1; SELECT '\u00e9'"),
                           ("25001", "VACUUM orders"), ("25001", "CREATE DATABASE other"),
                           ("25001", "ALTER SYSTEM SET work_mem = '5MB'"), ("25001", "COMMIT PREPARED 'x'"),
                           ("2D000", "DO $$BEGIN INSERT INTO orders VALUES (1); COMMIT; END$$"),
                           ("42601", "INSERT INTO orders VALUES (1); SELEC"), ("08P01", "SELECT $1")):
            self.assertEqual(self.state(old, text), code, text)
        run_sql(old, "DO $$BEGIN INSERT INTO orders VALUES (35); END$$")
        self.assertEqual(run_sql(old, "SELECT now() = statement_timestamp()"), [(False,)])
        self.connect(gate, "orders=35")
        for text in ("SELECT 1", "INSERT INTO orders VALUES (1)"):
            self.assertEqual(self.state(old, text), "ZF001")
        self.assertEqual(self.sql("SELECT * FROM orders"), [(34,), (35,)])

    def test_read_only_is_no_fence(self):
        client = self.connect(self.gate(missing_token="read_only"))
        self.assertEqual(self.state(client, "INSERT INTO orders VALUES (1)"), "25006")
        run_sql(client, "BEGIN READ WRITE; INSERT INTO orders VALUES (1); COMMIT")
        self.assertEqual(self.sql("SELECT * FROM orders"), [(1,)])

    def test_tls_is_answered_with_no(self):
        gate = self.gate()
        self.connect(gate, "orders=34", sslmode="prefer")
        with self.assertRaises(psycopg2.OperationalError) as caught:
            self.connect(gate, "orders=34", sslmode="require")
        self.assertIn("does not support SSL", str(caught.exception))

    def test_what_escapes_is_refused(self):
        gate = self.gate(missing_token="allow")
        for words, options in (("a superuser session cannot be fenced", {"user": "postgres"}),
                               ("a replication connection outlives", {"replication": "database"})):
            more = {"user": "orders", "password": "orders-secret", "database": "app"} | options
            with self.assertRaisesRegex(psycopg2.OperationalError, words):
                gate.connect("orders=34", **more)


if __name__ == "__main__":
    main()
