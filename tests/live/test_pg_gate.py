"""The PostgreSQL gate as a client sees it: how a token is brought, what is refused, how a superseded session ends."""

import re
import threading
import unittest

import psycopg2

from postgres import PgGate, PostgresServer, PostgresStandby, run_sql
from support import LiveTest, eventually


class PgGateTest(LiveTest):
    gate_options = {}

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.user("alice")
        cls.server.sql("CREATE TABLE writes (who text, at timestamptz DEFAULT pg_catalog.clock_timestamp())")
        cls.server.sql("GRANT ALL ON writes TO alice")
        cls.gate = cls.enterClassContext(PgGate(cls.server, **cls.gate_options))

    def setUp(self):
        self.resource = self.id().rsplit(".", 1)[1]
        self.addCleanup(self.server.sql, "TRUNCATE writes")

    def connect(self, token=None, gate=None, user="alice", **more):
        tag = f"{self.resource}={token}" if token is not None else None
        connection = (gate or self.gate).connect(tag, user=user, **more)
        self.addCleanup(connection.close)
        return connection

    def mark(self):
        return self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", self.resource)

    def written(self):
        return [row[0] for row in self.server.sql("SELECT who FROM writes ORDER BY at")]

    def write(self, connection, who):
        run_sql(connection, "INSERT INTO writes (who) VALUES (%s)", who)

    def rejected(self, state, action, *arguments, **named):
        """The error of `action`, with this SQLSTATE; its `detail` is what the fence says in numbers."""
        with self.assertRaises(psycopg2.Error) as caught:
            action(*arguments, **named)
        error = caught.exception
        text = str(error)
        found = error.pgcode or next((code for code in ("ZF001", "ZF002", "ZF003", "ZF005", "ZF006", "ZF007")
                                      if SENTENCES[code] in text), text)
        self.assertEqual(found, state, text)
        return error


# psycopg2 gives no SQLSTATE for a refused connection, only the text.
SENTENCES = {"ZF001": "is below mark", "ZF002": "a write needs a fencing token", "ZF003": "no usable fencing token",
             "ZF005": "by more than max_step allows", "ZF006": "could not be checked", "ZF007": "escapes a session's fence"}


class Tokens(PgGateTest):
    def test_a_session_is_armed_before_its_first_statement(self):
        client = self.connect(34)
        self.assertEqual(self.mark(), 34)
        self.write(client, "34")
        self.assertEqual(self.written(), ["34"])

    def test_the_application_name_carries_a_tag(self):
        self.connect(application_name=f"billing fence:{self.resource}=7")
        self.assertEqual(self.mark(), 7)

    def test_a_stale_token_is_refused_and_named(self):
        self.connect(34)
        text = str(self.rejected("ZF001", self.connect, 33))
        for part in (f"token 33 of {self.resource} is below mark 34; not applied", '"mark":34', '"applied":"no"'):
            self.assertIn(part, text)

    def test_a_second_gate_refuses_what_the_first_has_raised(self):
        with PgGate(self.server) as other:
            self.connect(34)
            self.rejected("ZF001", self.connect, 33, gate=other)

    def test_no_token_is_refused(self):
        self.rejected("ZF002", self.connect)

    def test_a_malformed_tag_is_refused(self):
        for tag in ("orders", "orders=x", "orders=034", "orders=-1", "orders=9223372036854775808", "or ders=1"):
            with self.subTest(tag):
                self.rejected("ZF003", self.connect, options=f"-c fencing.tokens={tag}".replace("or ders", "or\\ ders"))

    def test_two_tags_that_disagree_are_refused(self):
        self.rejected("ZF003", self.connect, 34, application_name=f"fence:{self.resource}=35")

    def test_several_resources_are_armed_together(self):
        self.connect(options=f"-c fencing.tokens={self.resource}=5,{self.resource}.b=6")
        self.assertEqual(self.mark(), 5)
        self.rejected("ZF001", self.connect, options=f"-c fencing.tokens={self.resource}.b=5")

    def test_the_session_is_the_servers_own(self):
        client = self.connect(34)
        self.assertIn(client.info.backend_pid,
                      [row[0] for row in self.server.sql("SELECT pid FROM pg_stat_activity WHERE usename = 'alice'")])
        self.assertEqual(run_sql(client, "SHOW transaction_isolation; SHOW statement_timeout"), [("0",)])

    def test_settings_of_the_role_do_not_disturb_arming(self):
        self.server.user("careful")
        for setting in ("default_transaction_isolation = 'serializable'", "default_transaction_read_only = on",
                        "statement_timeout = 1", "search_path = pg_temp", "lock_timeout = 1"):
            self.server.sql(f"ALTER ROLE careful SET {setting}")
        client = self.connect(5, user="careful", options=f"-c fencing.tokens={self.resource}=5")
        self.assertEqual(self.mark(), 5)
        self.assertEqual(run_sql(client, "SHOW transaction_isolation"), [("serializable",)])


class Superseded(PgGateTest):
    def raise_to(self, token):
        return self.connect(token)

    def cut(self, old, action):
        """`action` fails because of the raise to 35: what the client is told of what was applied."""
        with self.assertRaises(psycopg2.Error):
            action()
        # psycopg2 forgets the error of a connection that was closed before the statement, its connection does not.
        said = old.info.error_message
        self.assertIn(f"FATAL:  token 34 of {self.resource} is below mark 35", said)
        self.assertTrue(old.closed)
        return re.search(r'"applied":"(\w+)"', said)[1]

    def test_an_idle_session_ends(self):
        old = self.connect(34)
        self.raise_to(35)
        self.assertEqual(self.cut(old, lambda: self.write(old, "stale")), "no")
        self.assertEqual(self.written(), [])

    def test_an_open_transaction_is_rolled_back_and_its_locks_are_free(self):
        self.server.sql("INSERT INTO writes (who) VALUES ('row')")
        old = self.connect(34, autocommit=False)
        run_sql(old, "UPDATE writes SET who = 'stale'")
        new = self.raise_to(35)
        run_sql(new, "SET lock_timeout = '5s'; UPDATE writes SET who = 'new'")
        self.assertEqual(self.cut(old, old.commit), "no")
        self.assertEqual(self.written(), ["new"])

    def test_a_running_statement_ends(self):
        old = self.connect(34)
        outcome = []
        sleeping = threading.Thread(target=lambda: outcome.append(self.cut(
            old, lambda: run_sql(old, "INSERT INTO writes (who) SELECT 'stale' FROM pg_sleep(60)"))))
        sleeping.start()
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1)
        self.raise_to(35)
        sleeping.join(20)
        self.assertEqual(outcome, ["unknown"])
        self.assertEqual(self.written(), [])

    def test_the_same_token_shares(self):
        first, second = self.connect(34), self.connect(34)
        self.write(first, "first")
        self.write(second, "second")
        self.assertEqual(self.written(), ["first", "second"])

    def test_a_session_that_armed_itself_is_told_too(self):
        with PgGate(self.server, policy={"missing_token": "allow"}) as gate:
            old = self.connect(gate=gate)
            run_sql(old, "SELECT fencegate.arm(%s, 34)", self.resource)
            self.raise_to(35)
            self.assertEqual(self.cut(old, lambda: self.write(old, "stale")), "no")

    def test_an_administrators_end_stays_an_administrators(self):
        client = self.connect(34)
        self.server.sql("SELECT pg_terminate_backend(%s)", client.info.backend_pid)
        with self.assertRaises(psycopg2.Error):
            self.write(client, "never")
        self.assertIn("terminating connection due to administrator command", client.info.error_message)

    def test_a_raise_that_fails_leaves_the_mark_and_says_so_to_those_it_ended(self):
        with PgGate(self.server, cut_timeout="1s") as gate:
            ended, frozen = self.connect(34, gate=gate), self.connect(34, gate=gate)
            self.server.freeze(frozen.info.backend_pid)
            self.addCleanup(self.server.thaw, frozen.info.backend_pid)
            self.rejected("ZF006", self.connect, 35, gate=gate)
            self.assertEqual(self.mark(), 34)
            with self.assertRaises(psycopg2.Error):
                self.write(ended, "nothing")
            self.assertIn("a takeover ended this session and then failed; connect again", ended.info.error_message)
            self.connect(34, gate=gate)

    def test_it_is_counted_and_logged(self):
        with PgGate(self.server) as gate:
            self.connect(34, gate=gate)
            self.connect(35, gate=gate)
            self.assertEqual(gate.metric("sessions_cut_total"), 1)
            self.assertEqual(gate.metric("raises_total"), 2)
            line = eventually(lambda: next((one for one in gate.log_lines() if "higher token" in one["msg"]), None))
            self.assertEqual([line["resource"], line["token"], line["mark"], line["applied"]],
                             [self.resource, "34", "35", "no"])


class Standby(PgGateTest):
    def test_nobody_is_admitted(self):
        with PostgresStandby(self.server) as standby:
            for policy in ({}, {"missing_token": "allow"}):
                with self.subTest(policy), PgGate(standby, policy=policy) as gate:
                    self.rejected("ZF006", self.connect, None if policy else 34, gate=gate)


if __name__ == "__main__":
    unittest.main(verbosity=2)
