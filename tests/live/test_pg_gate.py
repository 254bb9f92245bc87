"""The PostgreSQL gate as a client sees it: how a token is brought, what is refused, how a superseded session ends."""

import contextlib
import json
import re
import threading
import time
import unittest

import psycopg
import psycopg2

from cut_proxy import unread_bytes
from live_test import LiveTest
from pg_wire import SYNC, Wire, copy_data, fields, query, split
from postgres import PgGate, PostgresServer, PostgresStandby, run_sql
from processes import LOOPBACK, PATIENCE, eventually


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
SENTENCES = {"ZF001": "is below mark", "ZF002": "needs a fencing token", "ZF003": "no usable fencing token",
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
        text = str(self.rejected("ZF002", self.connect))
        self.assertIn("a connection through this gate needs a fencing token, and this connection brings none", text)

    def test_a_database_without_the_schema(self):
        self.server.sql("CREATE DATABASE bare")
        self.addCleanup(self.server.sql, "DROP DATABASE bare WITH (FORCE)")
        for guard, policies in (("session", ("reject", "allow", "read_only")), ("transaction", ("reject", "allow"))):
            for missing in policies:
                with self.subTest(guard, missing=missing), \
                        PgGate(self.server, guard=guard, policy={"missing_token": missing}) as gate:
                    text = str(self.rejected("ZF006", self.connect, 34, gate, database="bare"))
                    self.assertIn("no schema fencegate: run fencegate install", text)
                    self.assertIn("HINT:  fencegate install -c FILE --gate NAME", text)
                    if missing == "reject":
                        self.rejected("ZF002", self.connect, gate=gate, database="bare")
                    else:
                        self.assertEqual(run_sql(self.connect(gate=gate, database="bare"), "SELECT 1"), [(1,)])

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
                        "statement_timeout = 250", "search_path = pg_temp", "lock_timeout = 1"):
            self.server.sql(f"ALTER ROLE careful SET {setting}")
        client = self.connect(5, user="careful", options=f"-c fencing.tokens={self.resource}=5")
        self.assertEqual(self.mark(), 5)
        self.assertEqual(run_sql(client, "SHOW transaction_isolation"), [("serializable",)])


    def test_a_right_that_the_fence_misses_is_named(self):
        for right, why in (("pg_signal_backend", "fencegate may not end sessions"),
                           ("pg_read_all_stats", "the sessions of others are invisible")):
            self.server.sql(f"REVOKE {right} FROM fencegate_owner")
            try:
                error = self.rejected("ZF006", self.connect, 34)
            finally:
                self.server.sql(f"GRANT {right} TO fencegate_owner")
            self.assertIn(f"FATAL:  the mark of {self.resource} could not be checked: {why} (GRANT pg_signal_backend, "
                          "pg_read_all_stats TO fencegate_owner;) (token 34); not applied", str(error))
        self.assertIsNone(self.mark())


class Superseded(PgGateTest):
    def raise_to(self, token):
        return self.connect(token)

    def cut(self, old, action):
        """`action` fails because of the raise to 35: what the client is told of what was applied."""
        with self.assertRaises(psycopg2.Error) as caught:
            action()
        said = str(caught.exception)
        self.assertEqual(caught.exception.pgcode, "ZF001", said)
        self.assertTrue(said.startswith(f"token 34 of {self.resource} is below mark 35"), said)
        with self.assertRaises(psycopg2.Error):
            run_sql(old, "SELECT 1")
        self.assertTrue(old.closed)
        return re.search(r'"applied":"(\w+)"', said)[1]

    def test_an_idle_session_ends(self):
        old = self.connect(34)
        self.raise_to(35)
        self.assertEqual(self.cut(old, lambda: self.write(old, "stale")), "no")
        self.assertEqual(self.written(), [])

    def test_the_status_page_knows_who_was_cut(self):
        old = self.connect(34)
        self.raise_to(35)
        self.cut(old, lambda: self.write(old, "stale"))
        status = json.loads(self.gate.http("/api/v1/status")[1])
        (cut,) = [one for one in status["rejections"] if one["resource"] == self.resource]
        self.assertEqual([cut[name] for name in ("token", "mark", "reason", "command", "count")], ["34", "35", "stale", "session", 1])
        (resource,) = [one for one in status["resources"] if one["resource"] == self.resource]
        self.assertEqual(resource["rejections"], 1)

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
        sleeping.join(PATIENCE)
        self.assertEqual(outcome, ["unknown"])
        self.assertEqual(self.written(), [])

    def in_background(self, action):
        """Calls `action` in a thread; → a list that will hold what it returned, and the thread."""
        outcome = []
        thread = threading.Thread(target=lambda: outcome.append(action()))
        thread.start()
        self.addCleanup(thread.join, 30)
        return outcome, thread

    def waits_for(self, client, kind):
        """Until the server's session waits for this."""
        eventually(lambda: self.server.value("SELECT wait_event_type || ':' || wait_event FROM pg_stat_activity "
                                             "WHERE pid = %s", client.info.backend_pid) == kind)

    def commit_until_it_waits(self):
        """For a standby: the checkpointer tells all sessions, some time after the configuration was read again."""
        probe, enough = self.server.connect(), threading.Event()
        self.addCleanup(probe.close)

        def commit():
            while not enough.is_set():
                run_sql(probe, "SELECT pg_logical_emit_message(true, 'a', 'commit')")
        self.in_background(commit)
        self.waits_for(probe, "IPC:SyncRep")
        enough.set()

    def test_a_statement_that_waits_for_a_lock_ends(self):
        for begin, applied in (("SELECT 1", "unknown"), ("BEGIN", "no")):
            with self.subTest(begin):
                old, holder = self.connect(34), self.server.connect()
                self.addCleanup(holder.close)
                run_sql(holder, "BEGIN; LOCK TABLE writes")
                run_sql(old, begin)
                outcome, thread = self.in_background(lambda: self.cut(old, lambda: self.write(old, "stale")))
                self.waits_for(old, "Lock:relation")
                self.raise_to(35)
                run_sql(holder, "ROLLBACK")
                thread.join(PATIENCE)
                self.assertEqual((outcome, self.written()), ([applied], []))
                self.resource += ".again"

    def test_a_commit_that_waits_for_a_standby_is_unknown_and_kept(self):
        old = self.connect(34, autocommit=False)
        self.write(old, "in time")
        standbys = "ALTER SYSTEM SET synchronous_standby_names = '{}'"
        self.addCleanup(self.server.sql, "SELECT pg_reload_conf()")
        self.addCleanup(self.server.sql, standbys.format(""))
        self.server.sql(standbys.format("nobody"))
        self.server.sql("SELECT pg_reload_conf()")
        self.commit_until_it_waits()
        outcome, thread = self.in_background(lambda: self.cut(old, old.commit))
        self.waits_for(old, "IPC:SyncRep")
        raised, raiser = self.in_background(lambda: self.raise_to(35))
        eventually(lambda: not self.server.sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", old.info.backend_pid))
        self.assertEqual((self.mark(), raised), (34, []))
        self.server.sql("SET synchronous_commit = local")
        self.server.sql(standbys.format(""))
        self.server.sql("SELECT pg_reload_conf()")
        thread.join(PATIENCE)
        raiser.join(PATIENCE)
        self.assertEqual((outcome, len(raised), self.mark(), self.written()), (["unknown"], 1, 35, ["in time"]))

    def test_a_session_whose_client_does_not_read_ends(self):
        old = self.start(Wire(self.gate.address, user="alice", options=f"-c fencing.tokens={self.resource}=34"))
        old.until_ready()
        old.send(query("BEGIN; INSERT INTO writes (who) VALUES ('stale'); "
                       "SELECT repeat('x', 100000) FROM generate_series(1, 1000)"))
        blocked = "SELECT pid FROM pg_stat_activity WHERE usename = 'alice' AND wait_event = 'ClientWrite'"
        pid = eventually(lambda: self.server.value(blocked))
        self.raise_to(35)
        self.assertFalse(self.server.sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
        messages = split(old.rest())
        errors = [fields(body) for kind, body in messages if kind == b"E"]
        if messages[-1][0]:  # otherwise the server's end cut a row in two, and there is no place for a word
            self.assertEqual([(error["C"], error["S"]) for error in errors], [("ZF001", "FATAL")])
        self.assertNotIn("57P01", [error["C"] for error in errors])
        self.assertEqual(self.written(), [])

    def test_a_copy_ends(self):
        """Before its data has ended, nothing of it can be committed; but what went before it in the message may be."""
        for begin, copy, applied in (("SELECT 1", "COPY writes (who) FROM STDIN", "unknown"),
                                     ("BEGIN", "COPY writes (who) FROM STDIN", "no"),
                                     ("BEGIN", "COMMIT; COPY writes (who) FROM STDIN", "unknown")):
            with self.subTest(begin=begin, copy=copy):
                old = self.start(Wire(self.gate.address, user="alice", options=f"-c fencing.tokens={self.resource}=34"))
                old.send(query(begin), query(copy), copy_data(b"stale\n"))
                while old.read()[0] != b"G":
                    pass
                self.raise_to(35)
                errors = [fields(body) for kind, body in split(old.rest()) if kind == b"E"]
                self.assertEqual([(error["C"], error["S"]) for error in errors], [("ZF001", "FATAL")])
                self.assertIn(f'"token":34,"mark":35,"applied":"{applied}"', errors[0]["D"])
                self.assertEqual(self.written(), [])
                self.resource += ".again"

    def test_two_raises_at_once(self):
        with PgGate(self.server) as other:
            for low in range(40, 60, 2):
                def start_low():
                    return self.start(Wire(self.gate.address, user="alice",
                                           options=f"-c fencing.tokens={self.resource}={low}"))

                def start_high():
                    return self.in_background(lambda token=low + 1: self.connect(token, gate=other))
                if low % 4:
                    old, (raised, raiser) = start_low(), start_high()
                else:
                    (raised, raiser), old = start_high(), start_low()
                raiser.join(PATIENCE)
                # Either it came second, or it was ended while it raised, or just after it.
                with contextlib.suppress(OSError):  # it was refused at once
                    old.send(SYNC)
                errors = [fields(body) for kind, body in split(old.rest()) if kind == b"E"]
                self.assertEqual([(error["C"], error["S"]) for error in errors], [("ZF001", "FATAL")])
                self.assertIn(f"token {low} of {self.resource} is below mark {low + 1}", errors[0]["M"])
                self.assertEqual(self.mark(), low + 1)
                self.write(raised[0], str(low + 1))
        self.assertEqual(self.written(), [str(token) for token in range(41, 61, 2)])

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

    def test_nothing_that_a_session_says_of_itself_takes_it_from_the_fence(self):
        old = self.connect(34)
        for text in ("DISCARD ALL", "RESET ALL", "SET application_name = 'nobody'", "SELECT pg_advisory_unlock_all()",
                     "SET ROLE alice", "DEALLOCATE ALL", "UNLISTEN *"):
            run_sql(old, text)
        for text in ("DELETE FROM fencegate.sessions", "UPDATE fencegate.sessions SET token = 99"):
            with self.assertRaises(psycopg2.errors.InsufficientPrivilege):
                run_sql(old, text)
        self.raise_to(35)
        self.assertEqual(self.cut(old, lambda: self.write(old, "stale")), "no")
        self.assertEqual(self.written(), [])

    def test_a_session_that_raised_its_token_itself_gets_no_older_tag_through(self):
        arm = "SELECT fencegate.arm('{}', 35)"
        tagged = "/*fence:{}=34*/ INSERT INTO writes (who) VALUES ('stale')"
        ways = {"at_once": ([arm, tagged], "ZF001"), "prepared": (["PREPARE own AS " + arm, "EXECUTE own", tagged], "ZF001"),
                "twice": ([tagged.replace("stale", "good"), arm, tagged], "ZF001"),
                "in_one_transaction": (["BEGIN", arm, tagged], "ZF003")}
        gate = self.start(PgGate(self.server, comment_tags="lead"))
        for way, (texts, state) in ways.items():
            with self.subTest(way):
                self.resource = f"self_raised_{way}"
                old = self.connect(34, gate)
                for text in texts[:-1]:
                    run_sql(old, text.replace("{}", self.resource))
                self.rejected(state, run_sql, old, texts[-1].replace("{}", self.resource))
                old.close()
                self.assertNotIn("stale", self.written())

    # Such text is what anybody may type into a form.
    def test_text_of_end_users_moves_no_mark(self):
        nasty = f"O\\' /*fence:{self.resource}=9223372036854775807*/"
        for kind in ({}, {"comment_tags": "lead"}, {"guard": "transaction", "extra": {"pooled": False}}):
            gate = self.start(PgGate(self.server, **kind))
            with self.subTest(**kind):
                writer = self.connect(34, gate)
                self.write(writer, nasty)
                for text in (f"it\\'s; end of story; /*fence:{self.resource}=x*/", nasty.replace("922", "/*fence:")):
                    self.write(writer, text)
                    with psycopg.connect(host=LOOPBACK, port=gate.port, user="alice", dbname="postgres", autocommit=True,
                                         options=f"-c fencing.tokens={self.resource}=34") as client:
                        client.execute("SELECT %s", [text], prepare=True)
                        client.execute(psycopg.sql.SQL("SELECT {}").format(text))
                self.assertEqual(self.mark(), 34)
                self.write(writer, "alive")
                self.assertEqual(self.written()[::3], [nasty, "alive"])
                self.server.sql("TRUNCATE writes")
        old = self.connect(34)
        self.raise_to(35)
        self.assertEqual(self.cut(old, lambda: self.write(old, nasty.replace("9223372036854775807", "36"))), "no")
        self.assertEqual((self.mark(), self.written()), (35, []))

    def test_a_client_that_was_refused_does_not_revive_itself_by_text(self):
        self.raise_to(34)
        with PgGate(self.server, policy={"missing_token": "allow"}) as gate:
            client = self.connect(gate=gate)
            self.write(client, f"O\\' /*fence:{self.resource}=35*/")
            self.rejected("ZF001", self.connect, 33, gate)
            self.assertEqual(self.mark(), 34)

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
            said = str(self.rejected("ZF006", self.connect, 35, gate=gate))
            self.assertEqual(said.count("could not be checked: "), 1, said)
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
                             [self.resource, 34, 35, "no"])


class RaisedAhead(PgGateTest):
    """Marks that are known to be lower rise on a connection of the gate's own, behind which the session is armed."""

    RAISED = ("SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'idle' "
              "AND query LIKE '%%fencegate.raise_all(%%' AND query NOT LIKE '%%fencegate.ended(%%'")

    def ended(self, old):
        with self.assertRaises(psycopg2.Error):
            self.write(old, "stale")
        self.assertIn(f"of {self.resource} is below mark", old.info.error_message)

    def take_over_until_ahead(self, gate):
        """The last of takeovers of which one was made by the gate's connection; each ends its predecessor."""
        token = 1
        old = self.connect(token, gate=gate)
        while self.server.value(self.RAISED) == 0:
            self.assertLess(token, 200, "no raise ever runs on the gate's own connection")
            token += 1
            new = self.connect(token, gate=gate)
            self.ended(old)
            self.write(new, "new")
            old = new
        return old, token

    def test_each_takeover_ends_its_predecessor_and_counts_once(self):
        with PgGate(self.server) as gate:
            _, token = self.take_over_until_ahead(gate)
            self.assertEqual(self.mark(), token)
            self.assertEqual(self.written(), ["new"] * (token - 1))
            self.assertEqual(gate.metric("raises_total"), token)
            self.assertEqual(gate.metric("sessions_cut_total"), token - 1)

    def test_what_the_gate_adds_is_measured(self):
        with PgGate(self.server, comment_tags="lead") as gate:
            wire = self.enterContext(Wire(gate.address, user="alice", options=f"-c fencing.tokens={self.resource}=1"))
            backend = int.from_bytes(next(body for kind, body in wire.until_ready() if kind == b"K")[:4], "big")

            def figures():
                return [gate.metric(f"overhead_seconds_{figure}") for figure in ("count", "sum")]
            count, _ = figures()
            waited = gate.metric("backend_seconds_sum")
            wire.send(query("SELECT pg_sleep(0.2)"))
            wire.until_ready()
            self.assertEqual(figures()[0], count + 1)
            self.assertGreaterEqual(gate.metric("backend_seconds_sum") - waited, 0.2)
            count, added = figures()
            self.server.freeze(backend)
            wire.send(query(f"/*fence:{self.resource}=2*/ SELECT 1"))
            eventually(lambda: unread_bytes(self.server.port) > 0)  # the arm in front of it
            time.sleep(0.3)
            self.server.thaw(backend)
            wire.until_ready()
            self.assertEqual(figures()[0], count + 1)
            self.assertGreater(figures()[1], added + 0.3)

    def test_where_the_gates_user_may_not_raise_the_session_does(self):
        with PgGate(self.server) as gate:
            old, token = self.take_over_until_ahead(gate)
            name = "fencegate.raise_all(text[], bigint[], integer, bigint, integer)"
            self.server.sql(f"REVOKE EXECUTE ON FUNCTION {name} FROM fencegate_gate")
            self.addCleanup(self.server.sql, f"GRANT EXECUTE ON FUNCTION {name} TO fencegate_gate")
            new = self.connect(token + 1, gate=gate)
            self.assertEqual(self.mark(), token + 1)
            self.ended(old)
            self.write(new, "newest")

    def test_a_session_that_does_not_end_fails_the_raise_and_keeps_the_mark(self):
        with PgGate(self.server, cut_timeout="300ms") as gate:
            old, token = self.take_over_until_ahead(gate)
            pid = old.info.backend_pid
            self.server.freeze(pid)
            try:
                self.rejected("ZF006", self.connect, token + 1, gate=gate)
                self.assertEqual(self.mark(), token)
            finally:
                self.server.thaw(pid)
            self.connect(token + 1, gate=gate)
            self.assertRaises(psycopg2.Error, self.write, old, "stale")
            self.assertEqual(self.written(), ["new"] * (token - 1))

    def test_a_connection_that_was_lost_comes_back(self):
        with PgGate(self.server) as gate:
            old, token = self.take_over_until_ahead(gate)
            self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                            "AND query LIKE '%%fencegate.%%'")
            new = self.connect(token + 1, gate=gate)
            self.ended(old)
            self.write(new, "newest")
            new.close()
            self.resource += ".again"
            self.take_over_until_ahead(gate)


    def test_where_there_is_room_for_one_connection_the_other_gives_way(self):
        """Without the one that says why sessions end and looks after marks, the one that raises is of little use."""
        self.server.user("gateway", "CONNECTION LIMIT 2", "IN ROLE fencegate_gate")
        own = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'gateway' AND query LIKE '%%fencegate.look(%%'"
        with PgGate(self.server, user="gateway") as gate:
            old, token = self.take_over_until_ahead(gate)
            self.server.sql("ALTER ROLE gateway CONNECTION LIMIT 1")
            self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gateway' "
                            "AND query NOT LIKE '%%fencegate.raise_all(%%'")
            eventually(lambda: self.server.value(self.RAISED) == 0)
            eventually(lambda: self.server.value(own) == 1)
            new = self.connect(token + 1, gate=gate)
            self.ended(old)
            self.write(new, "newest")


class Standby(PgGateTest):
    def test_nobody_is_admitted(self):
        with PostgresStandby(self.server) as standby:
            for policy in ({}, {"missing_token": "allow"}):
                with self.subTest(policy), PgGate(standby, policy=policy) as gate:
                    self.rejected("ZF006", self.connect, None if policy else 34, gate=gate)


if __name__ == "__main__":
    unittest.main(verbosity=2)
