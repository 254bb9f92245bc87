"""guard: transaction: each transaction proves its token, through a pooler that lends one server session to many clients."""

import asyncio
import contextlib
import io
import json
import os
import threading
import unittest

import psycopg
import psycopg2
import psycopg2.extensions

from live_test import LiveTest
from pg_wire import SYNC, Wire, bind, cancel_request, execute, fields, parse, query
from postgres import PgBouncer, PgGate, PostgresServer, run_sql
from processes import LOOPBACK, PATIENCE, connect, eventually

try:
    import asyncpg
except ImportError:
    asyncpg = None


class GuardTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.user("alice")
        cls.server.install(gate_users=["alice"])
        cls.server.sql("CREATE TABLE writes (who text, at timestamptz DEFAULT pg_catalog.clock_timestamp())")
        cls.server.sql("GRANT ALL ON writes TO alice")
        cls.server.sql("CREATE PROCEDURE commits(who text) LANGUAGE plpgsql AS "
                       "$$BEGIN INSERT INTO writes VALUES (who); COMMIT; INSERT INTO writes VALUES (who); END$$")
        cls.pooler = cls.enterClassContext(PgBouncer(cls.server, user="alice"))
        cls.gate = cls.enterClassContext(PgGate(cls.pooler, guard="transaction", user="alice"))
        cls.other = cls.enterClassContext(PgGate(cls.pooler, guard="transaction", user="alice"))

    def setUp(self):
        self.resource = self.id().rsplit(".", 1)[1]
        self.addCleanup(self.server.sql, "TRUNCATE writes")

    def connect(self, token, gate=None, **more):
        connection = (gate or self.gate).connect(f"{self.resource}={token}", user="alice", **more)
        self.addCleanup(connection.close)
        return connection

    def wire(self, token, gate=None):
        wire = self.enterContext(Wire((gate or self.gate).address, user="alice", options=f"-c fencing.tokens={self.resource}={token}"))
        wire.until_ready()
        return wire

    def write(self, connection, who):
        run_sql(connection, "INSERT INTO writes (who) VALUES (%s)", who)

    def written(self):
        return [row[0] for row in self.server.sql("SELECT who FROM writes ORDER BY at")]

    def refused(self, state, connection, text, *values):
        with self.assertRaises(psycopg2.Error) as caught:
            run_sql(connection, text, *values)
        self.assertEqual(caught.exception.pgcode, state, str(caught.exception))
        if state == "ZF007":  # what the connection brings, whatever was refused of it
            self.assertEqual(json.loads(caught.exception.diag.message_detail),
                             {"resource": self.resource, "token": 34, "mark": None, "applied": "no"})
        return caught.exception


class Guarded(GuardTest):
    def test_a_write_passes_under_the_mark(self):
        client = self.connect(34)
        for _ in range(3):
            self.write(client, "34")
        self.assertEqual(self.written(), ["34"] * 3)

    def test_binding_raises_at_once(self):
        self.connect(34)
        self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", self.resource), 34)

    def test_a_gate_for_sessions_arms_none_behind_a_pooler(self):
        """The session that answers is one of many, and the client's next statement may go to another."""
        gate = self.start(PgGate(self.pooler, user="alice"))
        with self.assertRaisesRegex(psycopg2.OperationalError, "a pooler in between takes guard: transaction"):
            gate.connect(user="alice", application_name=f"fence:{self.resource}=34")
        self.assertEqual(self.server.sql("SELECT 1 FROM fencegate.sessions WHERE resource = %s", self.resource), [])

    def test_several_marks_rise_together_or_not_at_all(self):
        one, two = f"{self.resource}.one", f"{self.resource}.two"
        self.other.connect(f"{one}=5,{two}=5", user="alice").close()
        for tag in (f"{one}=6,{two}=4", f"{two}=6,{one}=4"):
            with self.assertRaisesRegex(psycopg2.OperationalError, "is below mark 5; not applied"):
                self.gate.connect(tag, user="alice")
        marks = self.server.sql("SELECT mark FROM fencegate.marks WHERE resource IN (%s, %s)", one, two)
        self.assertEqual(marks, [(5,), (5,)])

    def test_the_gates_max_step_holds(self):
        gate = self.start(PgGate(self.pooler, guard="transaction", user="alice", policy={"max_step": 10}))
        self.connect(5, gate)
        with self.assertRaisesRegex(psycopg2.OperationalError, "by more than max_step allows"):
            self.connect(16, gate)
        self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", self.resource), 5)
        self.connect(15, gate)

    def test_raises_and_cuts_are_counted(self):
        gate = self.start(PgGate(self.pooler, guard="transaction", user="alice"))
        old = self.connect(34, gate, autocommit=False)
        self.write(old, "stale")
        self.connect(35, gate)
        self.connect(35, gate)
        self.assertEqual([gate.metric(name) for name in ("raises_total", "takeover_seconds_count")], [2, 2])
        eventually(lambda: gate.metric("sessions_cut_total") == 1)
        line = eventually(lambda: next((one for one in gate.log_lines() if "higher token" in one["msg"]), None))
        self.assertEqual([line["resource"], line["token"], line["mark"], line["applied"]],
                         [self.resource, 34, 35, "no"])

    def raised_at_last(self, gate, token):
        """What lifts a limit of 1 ms has to fit into it itself, once in a few times; a raise never does."""
        for last in (False, False, False, False, True):
            try:
                return gate.connect(f"{self.resource}={token}", user="alice").close()
            except psycopg2.OperationalError as error:
                if last or "statement timeout" not in str(error):
                    raise

    def test_settings_that_a_client_left_in_a_pooled_session_stop_no_raise(self):
        self.server.sql("CREATE ROLE nobody; GRANT nobody TO alice")
        self.addCleanup(self.server.sql, "DROP ROLE nobody")
        for token, setting in enumerate(("default_transaction_isolation = 'repeatable read'", "role = nobody",
                                         "default_transaction_read_only = on", "statement_timeout = 1"), 1):
            with self.subTest(setting):
                # The gate's own connection uses the same session as the client.
                pooler = self.start(PgBouncer(self.server, user="alice", default_pool_size=1))
                gate = self.start(PgGate(pooler, guard="transaction", user="alice"))
                client = gate.connect(f"{self.resource}={10 * token}", user="alice")
                self.addCleanup(client.close)
                run_sql(client, f"SET {setting}")
                self.raised_at_last(gate, 10 * token + 1)
                self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s",
                                                   self.resource), 10 * token + 1)

    def test_a_stale_connection_is_refused(self):
        self.connect(34)
        with self.assertRaisesRegex(psycopg2.OperationalError, "token 33 of .* is below mark 34; not applied"):
            self.connect(33, self.other)

    def test_a_superseded_client_is_refused_at_its_next_transaction(self):
        old = self.connect(34)
        self.write(old, "old")
        self.connect(35, self.other)
        error = self.refused("ZF001", old, "INSERT INTO writes VALUES ('stale')")
        self.assertIn('"mark":35', error.diag.message_detail.replace('": ', '":'))
        # The session goes on: the next statement is refused in the same way, and reads are transactions too.
        self.refused("ZF001", old, "INSERT INTO writes VALUES ('stale')")
        self.assertEqual(self.written(), ["old"])

    def test_a_raise_ends_an_open_transaction(self):
        old = self.connect(34, autocommit=False)
        self.write(old, "stale")
        self.connect(35, self.other)
        with self.assertRaises(psycopg2.Error) as caught:
            old.commit()
        self.assertEqual(caught.exception.pgcode, "ZF001")
        self.assertRegex(str(caught.exception), rf'token 34 of {self.resource} is below mark 35(?s:.*)"applied":"no"')
        self.assertEqual(self.written(), [])

    def test_transactions_at_every_isolation_level(self):
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            with self.subTest(level):
                client = self.connect(34)
                run_sql(client, f"BEGIN ISOLATION LEVEL {level}")
                self.assertEqual(run_sql(client, "SHOW transaction_isolation"), [(level.lower(),)])
                self.write(client, level)
                run_sql(client, "COMMIT")
                self.assertEqual(self.written()[-1], level)

    def test_a_stale_transaction_at_every_isolation_level(self):
        old = [self.connect(34) for _ in range(3)]
        for client, level in zip(old, ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")):
            run_sql(client, f"BEGIN ISOLATION LEVEL {level}")
        self.connect(35, self.other)
        for client in old:
            self.refused("ZF001", client, "INSERT INTO writes VALUES ('stale')")
            run_sql(client, "ROLLBACK")
        self.assertEqual(self.written(), [])

    def test_set_transaction_goes_before_the_guard(self):
        client = self.connect(34)
        run_sql(client, "BEGIN")
        run_sql(client, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        self.write(client, "34")
        run_sql(client, "COMMIT")
        self.assertEqual(self.written(), ["34"])

    def test_who_waited_for_a_table_sees_what_it_waited_for(self):
        for level in ("REPEATABLE READ", "SERIALIZABLE"):
            with self.subTest(level):
                first, second = self.connect(34), self.connect(34)
                for client in (first, second):
                    run_sql(client, f"BEGIN ISOLATION LEVEL {level}")
                run_sql(first, "LOCK TABLE writes IN EXCLUSIVE MODE")
                waits = threading.Thread(target=run_sql, args=(second, "LOCK TABLE writes IN EXCLUSIVE MODE"))
                waits.start()
                eventually(lambda: self.server.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1)
                self.write(first, level)
                run_sql(first, "COMMIT")
                waits.join()
                seen = run_sql(second, "SELECT who FROM writes WHERE who = %s", level)
                run_sql(second, "COMMIT")
                self.assertEqual(seen, [(level,)])

    def test_who_waits_for_two_tables_sees_what_it_waited_for_in_each(self):
        """A guard behind the first LOCK would take the snapshot before the second one has waited."""
        self.server.sql("CREATE TABLE first (); GRANT ALL ON first TO alice")
        self.addCleanup(self.server.sql, "DROP TABLE first")
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            with self.subTest(level):
                first, second = self.connect(34), self.connect(34)
                run_sql(first, "BEGIN")
                run_sql(first, "LOCK TABLE writes")
                run_sql(second, f"BEGIN ISOLATION LEVEL {level}")
                run_sql(second, "LOCK TABLE first")
                waits = threading.Thread(target=run_sql, args=(second, "LOCK TABLE writes"))
                waits.start()
                eventually(lambda: self.server.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1)
                self.write(first, level)
                run_sql(first, "COMMIT")
                waits.join()
                seen = run_sql(second, "SELECT who FROM writes WHERE who = %s", level)
                run_sql(second, "COMMIT")
                self.assertEqual(seen, [(level,)])

    def test_a_holder_that_pauses_behind_lock_does_not_hold_up_its_successor(self):
        old = self.connect(34)
        run_sql(old, "BEGIN")
        run_sql(old, "LOCK TABLE writes")
        new = self.connect(35, self.other)
        run_sql(new, "BEGIN; SET LOCAL lock_timeout = '5s'; INSERT INTO writes VALUES ('new'); COMMIT")
        with self.assertRaises(psycopg2.Error):
            self.write(old, "stale")
        self.assertIn(f"token 34 of {self.resource} is below mark 35", old.info.error_message)
        self.assertEqual(self.written(), ["new"])

    def test_a_stale_lock_is_refused_and_frees_its_transaction(self):
        old = self.connect(34)
        run_sql(old, "BEGIN")
        self.connect(35, self.other)
        self.refused("ZF001", old, "LOCK TABLE writes")
        self.assertEqual(self.server.value("SELECT count(*) FROM pg_locks WHERE relation = 'writes'::regclass"), 0)
        run_sql(old, "ROLLBACK")

    def test_a_guard_leaves_nothing_in_the_transaction_but_its_lock(self):
        # A pooler of its own: sessions of the shared one keep what clients of other tests have prepared.
        pooler = self.start(PgBouncer(self.server, user="alice"))
        client = self.connect(34, self.start(PgGate(pooler, guard="transaction", user="alice")), autocommit=False)
        # These would see the guard's own names; the second statement runs in a transaction that has its guard.
        for text in ("SELECT name FROM pg_catalog.pg_cursors WHERE name <> ''", "SELECT name FROM pg_catalog.pg_prepared_statements"):
            for _ in range(2):
                self.assertEqual(run_sql(client, text), [], text)
        pid = run_sql(client, "SELECT pg_catalog.pg_backend_pid()")[0][0]
        # A snapshot that is kept holds back vacuum for as long as the transaction is idle.
        self.assertEqual(self.server.sql("SELECT state, backend_xmin FROM pg_stat_activity WHERE pid = %s", pid),
                         [("idle in transaction", None)])
        self.assertEqual(self.server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", pid),
                         1)

    def test_copy_freeze(self):
        client = self.connect(34, autocommit=False)
        run_sql(client, "CREATE TEMP TABLE frozen (n int)")
        with client.cursor() as cursor:
            cursor.copy_expert("COPY frozen FROM STDIN (FREEZE)", io.StringIO("1\n2\n"))
        self.assertEqual(run_sql(client, "SELECT n FROM frozen"), [(1,), (2,)])

    def test_several_statements_in_one_message(self):
        client = self.connect(34)
        run_sql(client, "INSERT INTO writes VALUES ('a'); INSERT INTO writes VALUES ('b')")
        run_sql(client, "BEGIN; INSERT INTO writes VALUES ('c'); COMMIT")
        run_sql(client, "BEGIN; INSERT INTO writes VALUES ('d'); COMMIT; INSERT INTO writes VALUES ('e')")
        run_sql(client, "BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO writes VALUES ('f'); COMMIT")
        run_sql(client, "INSERT INTO writes VALUES ('g'); BEGIN")
        run_sql(client, "INSERT INTO writes VALUES ('h'); ROLLBACK")
        many = [f"{number:04}" for number in range(2000)]  # more than the gate sends ahead of their answers
        run_sql(client, "; ".join(f"INSERT INTO writes VALUES ('{one}')" for one in many))
        self.assertEqual(self.written(), ["a", "b", "c", "d", "e", "f", *many])

    @staticmethod
    def migration(*middle):
        """A file of 2 MB, many statements of all kinds, with these in its middle."""
        inserts = [f"INSERT INTO writes VALUES ('{number:05}{'x' * 1000}')" for number in range(2000)]
        step = ["CREATE TEMP TABLE IF NOT EXISTS migrated (text text); -- ;", "INSERT INTO migrated VALUES ($body$;'$body$)"]
        return ";\n".join(["BEGIN", *step, *inserts[:1000], *middle, *inserts[1000:], "DROP TABLE migrated; COMMIT"])

    def test_a_whole_migration_file_in_one_message(self):
        client = self.connect(34)
        text = self.migration()
        self.assertGreater(len(text), 2_000_000)
        before = self.gate.rss_bytes()
        for _ in range(3):
            run_sql(client, text)
        if "FENCEGATE_SANITIZED" not in os.environ:  # which keep what was freed
            self.assertLess(self.gate.rss_bytes(), before + 16 * 1024 * 1024)
        self.assertEqual([who[:5] for who in self.written()], [f"{number:05}" for number in range(2000)] * 3)
        run_sql(client, "BEGIN")
        run_sql(client, text)  # in an open transaction, too
        self.assertEqual(len(self.written()), 8000)

    def test_a_migration_file_that_fails_in_its_middle_leaves_nothing(self):
        client = self.connect(34)
        self.refused("22012", client, self.migration("SELECT 1/0"))
        self.assertEqual(self.written(), [])
        run_sql(client, "ROLLBACK")
        text = self.migration("SELEC 'é'")
        error = self.refused("42601", client, text)
        self.assertEqual(error.diag.statement_position, str(text.index("SELEC ") + 1))
        run_sql(client, "ROLLBACK")
        text = self.migration("COMMIT", "SELECT 1/0")
        self.refused("22012", client, text)
        self.assertEqual(len(self.written()), 1000)

    def test_a_migration_file_of_a_superseded_holder_stores_nothing(self):
        old = self.connect(34)
        self.connect(35, self.other)
        self.refused("ZF001", old, self.migration())
        run_sql(old, "ROLLBACK")

    def test_a_migration_file_of_a_holder_that_is_superseded_in_its_middle(self):
        """What it committed before is stored; of the rest nothing, though the gate has all of it."""
        old, blocks = self.connect(34), self.enterContext(contextlib.closing(self.server.connect()))
        run_sql(blocks, "SELECT pg_advisory_lock(77)")
        outcome = []

        def migrate():
            try:
                run_sql(old, self.migration("COMMIT", "SELECT pg_advisory_xact_lock(77)"))
            except psycopg2.Error as error:
                outcome.append(error.pgcode)

        migrates = threading.Thread(target=migrate)
        migrates.start()
        self.addCleanup(migrates.join)
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND objid = 77"))
        self.connect(35, self.other)
        migrates.join()
        self.assertEqual((outcome, len(self.written())), (["ZF001"], 1000))

    def test_a_message_that_is_too_large_is_refused(self):
        client = self.connect(34)
        text = "INSERT INTO writes VALUES ('x');" * (16 * 1024 * 1024 // 32 + 1)
        error = self.refused("ZF007", client, text)
        self.assertIn("16 MiB", str(error))
        self.write(client, "a")
        self.assertEqual(self.written(), ["a"])

    def test_a_message_that_fails_late_is_undone_as_a_whole(self):
        client = self.connect(34)
        error = self.refused("42601", client, "INSERT INTO writes VALUES ('é'); SELECT 1; SELEC 2")
        self.assertEqual(error.diag.statement_position, "44")
        self.refused("22012", client, "INSERT INTO writes VALUES ('x'); SELECT 1/0; INSERT INTO writes VALUES ('y')")
        self.assertEqual(self.written(), [])

    def test_a_message_that_changes_its_own_reading_is_refused(self):
        client = self.connect(34)
        self.refused("ZF007", client, "SET standard_conforming_strings = off; INSERT INTO writes VALUES ('\\')")
        self.refused("ZF007", client, "SET client_encoding = LATIN1; INSERT INTO writes VALUES ('é')")
        self.assertEqual(self.written(), [])

    def test_commit_and_chain_is_guarded_anew(self):
        old = self.connect(34)
        run_sql(old, "BEGIN")
        self.write(old, "old")
        run_sql(old, "COMMIT AND CHAIN")
        self.connect(35, self.other)
        self.refused("ZF001", old, "INSERT INTO writes VALUES ('stale')")
        run_sql(old, "ROLLBACK")
        self.assertEqual(self.written(), ["old"])

    def test_what_commits_inside_runs_in_a_transaction_that_is_not_its_own(self):
        client = self.connect(34)
        self.refused("2D000", client, "CALL commits('x')")
        self.refused("2D000", client, "DO $$BEGIN INSERT INTO writes VALUES ('x'); COMMIT; END$$")
        self.refused("25001", client, "COMMIT PREPARED 'x'")
        self.refused("ZF007", client, "PREPARE TRANSACTION 'x'")
        self.assertEqual(self.written(), [])
        run_sql(client, "DO $$BEGIN INSERT INTO writes VALUES ('a'); END$$")
        run_sql(client, "INSERT INTO writes VALUES ('b'); DO $$BEGIN INSERT INTO writes VALUES ('c'); END$$")
        self.refused("22012", client, "DO $$BEGIN INSERT INTO writes VALUES ('x'); PERFORM 1/0; END$$")
        self.write(client, "d")  # the block of the gate's own was rolled back
        self.assertEqual(self.written(), ["a", "b", "c", "d"])

    def test_what_was_prepared_in_an_earlier_transaction(self):
        """Behind a pooler the name may by now be that of another client."""
        wire = self.wire(34)
        for name in ("", "s"):
            wire.send(parse("INSERT INTO writes VALUES ('x')", name), SYNC)
            wire.until_ready()
            wire.send(bind(statement=name), execute(), SYNC)
            replies = wire.until_ready()
            self.assertEqual([fields(body)["C"] for kind, body in replies if kind == b"E"], ["ZF007"], name)
            self.assertEqual(replies[-1][1], b"I")
        wire.send(query("BEGIN"))
        wire.until_ready()
        wire.send(parse("INSERT INTO writes VALUES ('block')"), SYNC)
        wire.until_ready()
        wire.send(bind(), execute(), SYNC)
        wire.until_ready()
        wire.send(query("COMMIT"))
        wire.until_ready()
        self.assertEqual(self.written(), ["block"])

    def test_without_a_pooler_prepared_statements_are_used_again(self):
        gate = self.start(PgGate(self.server, guard="transaction", user="alice", extra={"pooled": False}))
        wire = self.wire(34, gate)
        for text, name in (("INSERT INTO writes VALUES ('in')", ""), ("INSERT INTO writes VALUES ('in')", "s"),
                           ("CALL commits('x')", "c"), ("BEGIN", "b"), ("END", "e")):
            wire.send(parse(text, name), SYNC)
            wire.until_ready()
            if name == "":
                wire.send(bind(), execute(), SYNC)
                wire.until_ready()
        for name, state, status in (("s", None, b"I"), ("c", "2D000", b"I"), ("b", None, b"T"), ("s", None, b"T"),
                                    ("e", None, b"I"), ("s", None, b"I")):
            wire.send(bind(statement=name), execute(), SYNC)
            replies = wire.until_ready()
            errors = [fields(body)["C"] for kind, body in replies if kind == b"E"]
            self.assertEqual((errors, replies[-1][1]), ([state] if state else [], status), name)
        self.assertEqual(self.written(), ["in"] * 4)
        self.connect(35, self.other)
        wire.send(bind(statement="s"), execute(), SYNC)
        self.assertEqual([fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"], ["ZF001"])

    def test_without_a_pooler_a_session_must_be_the_one_that_was_announced(self):
        gate = self.start(PgGate(self.pooler, guard="transaction", user="alice", extra={"pooled": False}))
        with self.assertRaisesRegex(psycopg2.OperationalError, "with a pooler in between the gate needs pooled: true"):
            self.connect(34, gate)

    def test_a_name_that_was_never_prepared(self):
        wire = self.wire(34)
        wire.send(bind(statement="nobody"), execute(), SYNC)
        self.assertEqual([fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"], ["ZF007"])

    def test_a_connection_is_bound_at_its_start_or_never(self):
        """So that nothing was prepared before."""
        for pooled, upstream in ((True, self.pooler), (False, self.server)):
            gate = self.start(PgGate(upstream, guard="transaction", user="alice", policy={"missing_token": "allow"},
                                     extra={"pooled": pooled}))
            wire = self.enterContext(Wire(gate.address, user="alice"))
            wire.until_ready()
            for said, states in ((parse("COMMIT", "x") + SYNC, []), (query(f"SET application_name = 'fence:{self.resource}=34'"), []),
                                 (parse("SELECT 1", "x") + SYNC, ["ZF003"]), (query("BEGIN"), ["ZF003"]),
                                 (query("INSERT INTO writes VALUES ('x')"), ["ZF003"]),
                                 (parse("INSERT INTO writes VALUES ('x')") + bind() + execute() + SYNC, ["ZF003"])):
                wire.send(said)
                errors = [fields(body) for kind, body in wire.until_ready() if kind == b"E"]
                self.assertEqual([e["C"] for e in errors], states, said)
                for e in errors:
                    self.assertEqual(json.loads(e["D"]), {"resource": self.resource, "token": 34, "mark": None, "applied": "no"})
            logged = [line for line in gate.log_lines() if line.get("reason") == "malformed"]
            self.assertEqual({(line["resource"], line["token"]) for line in logged}, {(self.resource, 34)})
        self.assertIsNone(self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", self.resource))
        self.assertEqual(self.written(), [])

    def test_a_prepare_of_sql_stays_in_no_pooled_session(self):
        client = self.connect(34)
        self.refused("ZF007", client, "PREPARE s AS SELECT 1")

    def test_names_that_the_server_takes_for_one(self):
        """It compares 63 bytes: what the gate has seen as SELECT is COMMIT, and what follows it a transaction of its own."""
        gate = self.start(PgGate(self.server, guard="transaction", user="alice", extra={"pooled": False}))
        wire, name = self.wire(34, gate), "n" * 63
        for text, one in (("COMMIT", name + "1"), ("SELECT 1", name + "2")):
            wire.send(parse(text, one), SYNC)
            wire.until_ready()
        wire.send(query("BEGIN"))
        wire.until_ready()
        late = parse("INSERT INTO writes SELECT left($1, 5)") + bind("stale" + "x" * 1_000_000)
        wire.send(parse("INSERT INTO writes VALUES ('first')"), bind(), execute(), bind(statement=name + "2"), execute(),
                  late[:500_000])
        self.assertTrue(eventually(lambda: self.written() == ["first"]))
        self.connect(35, self.other)
        with contextlib.suppress(ConnectionError):
            wire.send(late[500_000:], execute(), SYNC)
            wire.until_ready()
        self.assertEqual(self.written(), ["first"])

    def test_a_check_of_what_only_reads_ends_with_its_savepoint(self):
        """RELEASE makes the transaction read-write again, in which a guard must look harder."""
        exporter = self.server.connect()
        self.addCleanup(exporter.close)
        run_sql(exporter, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        old = self.connect(34)
        snapshot = run_sql(exporter, "SELECT pg_export_snapshot()")[0][0]
        self.connect(35, self.other)
        run_sql(old, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        run_sql(old, f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        run_sql(old, "SAVEPOINT s")
        run_sql(old, "SET transaction_read_only = on")
        run_sql(old, "SELECT 1")
        run_sql(old, "RELEASE s")
        self.refused("ZF001", old, "INSERT INTO writes VALUES ('stale')")
        run_sql(old, "ROLLBACK")
        self.assertEqual(self.written(), [])

    def test_a_block_of_the_gates_own_leaves_no_trace(self):
        """The state behind a message is the one that it would have without the gate."""
        failing = "DO $$BEGIN INSERT INTO writes VALUES ('x'); PERFORM 1/0; END$$"
        working = "DO $$BEGIN INSERT INTO writes VALUES ('x'); END$$"
        idle, failed = (psycopg2.extensions.TRANSACTION_STATUS_IDLE, psycopg2.extensions.TRANSACTION_STATUS_INERROR)
        for first, text, state, status in (
                ("SELECT 1", f"{failing}; COMMIT", "22012", idle), ("SELECT 1", f"{failing}; BEGIN; SELECT 1", "22012", idle),
                ("BEGIN", f"SELECT 1/0; COMMIT; {working}", "22012", failed), ("BEGIN", failing, "22012", failed),
                ("BEGIN; SAVEPOINT a; SELECT 1", failing, "22012", failed), ("SELECT 1", f"{working}; SAVEPOINT a", "ZF007", idle),
                ("SELECT 1", f"{working}; COMMIT AND CHAIN; SELECT 1", "ZF007", idle)):
            with self.subTest(first=first, text=text):
                client = self.connect(34)
                run_sql(client, first)
                self.refused(state, client, text)
                self.assertEqual(client.info.transaction_status, status)
                run_sql(client, "ROLLBACK")
                self.assertEqual(self.written(), [])

    def test_savepoints_do_not_loosen_the_guard(self):
        client = self.connect(34)
        run_sql(client, "BEGIN")
        run_sql(client, "SAVEPOINT a")
        self.write(client, "a")
        run_sql(client, "ROLLBACK TO a")  # which drops what was locked behind the savepoint
        self.write(client, "b")
        self.assertEqual(self.server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"), 1)
        run_sql(client, "COMMIT")
        self.assertEqual(self.written(), ["b"])

    def test_text_that_the_server_reads_otherwise_hides_no_commit(self):
        """In SJIS the second byte of one character is that of a backslash: who does not know that takes the quote for
        escaped. The server takes each piece for one statement, or for none."""
        hidden = b"E'\x83\x5c'%s; COMMIT; SELECT pg_sleep(1); INSERT INTO writes VALUES ('stale'); --'"
        for title, *first, text in (("unguarded", b"SET application_name = " + hidden % b""),
                                    ("guarded", b"SELECT 1", b"INSERT INTO writes VALUES (" + hidden % b")")):
            with self.subTest(title):
                self.resource += "." + title
                old = self.wire(34)
                for one in (b"BEGIN", *first, b"SET client_encoding = 'SJIS'"):
                    old.send(query(one))
                    old.until_ready()
                old.send(query(text))
                states = [fields(body)["C"] for kind, body in old.until_ready() if kind == b"E"]
                self.connect(35, self.other)
                self.assertEqual((states, self.written()), (["42601"], []))

    def test_what_drops_prepared_statements_drops_no_check(self):
        old = self.connect(34)
        run_sql(old, "DEALLOCATE ALL")
        run_sql(old, "DISCARD ALL")
        self.refused("25001", old, "CREATE DATABASE other")
        self.refused("25001", old, "CREATE INDEX CONCURRENTLY one ON writes (who)")
        self.write(old, "old")
        self.connect(35, self.other)
        for text in ("DEALLOCATE ALL", "INSERT INTO writes VALUES ('stale')"):
            self.refused("ZF001", old, text)
        self.assertEqual(self.written(), ["old"])

    def test_errors_of_the_client_stay_its_own(self):
        client = self.connect(34)
        self.refused("42P01", client, "INSERT INTO missing VALUES (1)")
        run_sql(client, "BEGIN")
        self.refused("22012", client, "SELECT 1/0")
        self.refused("25P02", client, "SELECT 1")
        run_sql(client, "ROLLBACK")
        self.write(client, "on")
        self.assertEqual(self.written(), ["on"])

    def test_a_copy_is_guarded_to_its_end(self):
        old = self.connect(34)
        new_gate_is_asked = threading.Event()

        class Rows:
            sent = 0

            def read(self, _):
                Rows.sent += 1
                if Rows.sent == 1:
                    return "stale\n"
                new_gate_is_asked.wait(PATIENCE)
                return ""

        with self.assertRaises(psycopg2.Error):
            raiser = threading.Thread(target=lambda: (self.connect(35, self.other), new_gate_is_asked.set()))
            raiser.start()
            with old.cursor() as cursor:
                cursor.copy_expert("COPY writes (who) FROM STDIN", Rows())
        raiser.join(PATIENCE)
        self.assertEqual(self.written(), [])


class Cancelling(GuardTest):
    def test_a_cancel_reaches_the_statement_of_its_own_session_through_the_pooler(self):
        clients = []
        for _ in range(2):
            wire = self.start(Wire(self.gate.address, user="alice", options=f"-c fencing.tokens={self.resource}=34"))
            key = next(body for kind, body in wire.until_ready() if kind == b"K")
            wire.send(query("INSERT INTO writes SELECT 'slept' FROM pg_sleep(60)"))
            clients.append((wire, key))
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 2)
        (first, key), (second, other) = clients
        for wire, one, left in ((first, key, 1), (second, other, 0)):
            with contextlib.closing(connect(self.gate.address)) as sock:
                sock.sendall(cancel_request(int.from_bytes(one[:4], "big", signed=True), one[4:]))
                errors = [fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"]
            self.assertEqual(errors, ["57014"])
            self.assertEqual(self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), left)
        first.send(query("INSERT INTO writes VALUES ('on')"))  # it is guarded as before
        self.assertEqual(first.until_ready()[-1][1], b"I")
        self.assertEqual(self.written(), ["on"])
        self.connect(35, self.other)
        first.send(query("INSERT INTO writes VALUES ('stale')"))
        self.assertEqual([fields(body)["C"] for kind, body in first.until_ready() if kind == b"E"], ["ZF001"])
        self.assertEqual(self.written(), ["on"])


class Extended(GuardTest):
    """The extended protocol, as psycopg 3 speaks it: in pipeline mode BEGIN and what follows it go in one stretch."""

    def connect3(self, token, gate=None, **more):
        gate = gate or self.gate
        connection = psycopg.connect(host=gate.host, port=gate.port, user="alice", dbname="postgres",
                                     options=f"-c fencing.tokens={self.resource}={token}", prepare_threshold=None, **more)
        self.addCleanup(connection.close)
        return connection

    def guards(self):
        return self.gate.metric("checks_total", outcome="admitted")

    @unittest.skipUnless(asyncpg, "needs python3-asyncpg")
    def test_asyncpg(self):
        """It describes a statement, and then says a simple query, as before a COPY."""
        async def story(**how):
            client = await asyncpg.connect(host=LOOPBACK, port=gate.port, user="alice", database="postgres",
                                           server_settings={"application_name": f"fence:{self.resource}=34"}, **how)
            for who in ("a", "b"):
                await client.copy_records_to_table("writes", columns=["who"], records=[(who,)])
                await client.execute("INSERT INTO writes VALUES ('simple'); SELECT 1")
                async with client.transaction():
                    await client.executemany("INSERT INTO writes VALUES ($1)", [("many",), ("more",)])
                    await client.copy_records_to_table("writes", columns=["who"], records=[("block",)])
            async with client.transaction():  # it may say Sync between a statement's Parse and Bind
                self.assertEqual(await client.fetchval("SELECT count(*) FROM writes"), 10)
            with self.assertRaises(asyncpg.DataError):
                await client.copy_to_table("writes", source=io.BytesIO(b"x\tno time\n"), columns=["who", "at"])
            await client.close()
        for pooled in (False, True):
            gate = self.gate if pooled else self.start(PgGate(self.server, guard="transaction", user="alice", extra={"pooled": False}))
            asyncio.run(story(**({"statement_cache_size": 0} if pooled else {})))
            self.assertEqual(self.written()[:5], ["a", "simple", "many", "more", "block"])
            self.server.sql("TRUNCATE writes")

    def test_a_pipeline_is_one_guarded_transaction(self):
        client = self.connect3(34)
        before = self.guards()
        with client.pipeline():
            for number in range(20):
                client.execute("INSERT INTO writes (who) VALUES (%s)", (str(number),))
        client.commit()
        self.assertEqual(self.written(), [str(number) for number in range(20)])
        self.assertEqual(self.guards() - before, 1)

    def test_a_stale_pipeline_applies_nothing(self):
        old = self.connect3(34)
        self.connect(35, self.other)
        with self.assertRaises(psycopg.Error) as caught, old.pipeline():
            for _ in range(20):
                old.execute("INSERT INTO writes (who) VALUES ('stale')")
        self.assertEqual(caught.exception.sqlstate, "ZF001")
        old.rollback()
        self.assertEqual(self.written(), [])

    def test_each_transaction_of_a_pipeline_has_its_guard(self):
        client = self.connect3(34, autocommit=True)
        before = self.guards()
        with client.pipeline() as pipeline:
            for number in range(5):
                client.execute("BEGIN")
                client.execute("INSERT INTO writes (who) VALUES (%s)", (str(number),))
                client.execute("COMMIT")
            pipeline.sync()
        self.assertEqual(self.written(), [str(number) for number in range(5)])
        self.assertEqual(self.guards() - before, 5)

    def test_a_transaction_that_follows_another_in_a_pipeline_is_fenced(self):
        old = self.connect3(34, autocommit=True)
        sleeper = threading.Thread(target=lambda: (
            eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")),
            self.connect(35, self.other)))
        sleeper.start()
        with self.assertRaises(psycopg.Error), old.pipeline() as pipeline:
            old.execute("BEGIN")
            old.execute("INSERT INTO writes (who) VALUES ('old')")
            old.execute("COMMIT")
            old.execute("SELECT pg_sleep(60)")  # the guard in front of it is ended by the raise
            old.execute("INSERT INTO writes (who) VALUES ('stale')")
            pipeline.sync()
        sleeper.join(PATIENCE)
        self.assertEqual(self.written(), ["old"])

    def test_a_pipeline_that_begins_with_lock(self):
        old = self.connect3(34, autocommit=True)
        with old.pipeline():
            old.execute("BEGIN")
            old.execute("LOCK TABLE writes")
        new = self.connect3(35, self.other, autocommit=True)
        new.execute("SELECT 1")
        with new.transaction():
            new.execute("SET LOCAL lock_timeout = '5s'")
            new.execute("INSERT INTO writes VALUES ('new')")
        with self.assertRaises(psycopg.Error):
            old.execute("INSERT INTO writes VALUES ('stale')")
        self.assertEqual(self.written(), ["new"])

    def test_what_is_refused_is_answered(self):
        client = self.connect3(34, autocommit=True)
        for text, state in (("COMMIT PREPARED 'x'", "25001"), ("PREPARE TRANSACTION 'x'", "ZF007"),
                            ("CALL commits('x')", "2D000")):
            with self.subTest(text):
                for _ in range(2):
                    with self.assertRaises(psycopg.Error) as caught:
                        client.execute(text, prepare=True)
                    self.assertEqual(caught.exception.sqlstate, state)
                with self.assertRaises(psycopg.Error) as caught, client.pipeline():
                    client.execute("SELECT 1")
                    client.execute(text)
                    client.execute("SELECT 1")
                self.assertEqual(caught.exception.sqlstate, state)
        self.assertEqual(client.execute("SELECT 5").fetchall(), [(5,)])
        self.assertEqual(self.written(), [])

    def test_lock_behind_an_error_in_a_pipeline(self):
        client = self.connect3(34, autocommit=True)
        for wrong, state in (("SELECT 1/0", "22012"), ("SHOW nothing", "42704"), ("SELEC", "42601")):
            with self.subTest(wrong):
                with self.assertRaises(psycopg.Error) as caught, client.pipeline() as pipeline:
                    client.execute("BEGIN")
                    client.execute(wrong)
                    client.execute("LOCK TABLE writes")
                    client.execute("INSERT INTO writes VALUES ('never')")
                    pipeline.sync()
                self.assertEqual(caught.exception.sqlstate, state)
                client.execute("ROLLBACK")
        client.execute("INSERT INTO writes VALUES ('on')")
        self.assertEqual(self.written(), ["on"])

    def test_prepared_statements_and_portals(self):
        client = self.connect3(34)
        with client.transaction(), client.cursor(name="portal") as cursor:
            cursor.execute("SELECT generate_series(1, 10)")
            self.assertEqual(cursor.fetchmany(3), [(1,), (2,), (3,)])
            client.execute("INSERT INTO writes (who) VALUES ('a')", prepare=True)
            client.execute("INSERT INTO writes (who) VALUES ('b')", prepare=True)
        self.assertEqual(self.written(), ["a", "b"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
