"""The store of HTTP gates in PostgreSQL: marks raised, held and looked at, and statements that run with their check;
what happens when the gate, the server or the connection freezes or goes away in the middle."""

import contextlib
import itertools
import os
import socket

import pg_wire
from cut_proxy import CutProxy
from live_test import main
from pg_fence import FenceTest, within
from postgres import PgBouncer
from processes import LOOPBACK, eventually, free_port
from store_probe import LinkProbe, PgProbe

INSERT = "INSERT INTO writes (note) VALUES ($1)"


def knocking(address, port):
    """How many sockets wait to be let in there, as the kernel tells."""
    there = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}:{port:04X}"
    syn_sent = "02"
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(1 for row in rows if row[2] == there and row[3] == syn_sent)


class AtCommit(CutProxy):
    """Holds back, once armed, what the server says behind the answer to this command."""

    armed, held_back = None, None

    def change(self, data):
        if self.armed and (found := data.find(self.armed + b"\0Z")) >= 0:
            end = found + len(self.armed) + 1
            self.armed, self.held_back = None, data[end:]
            return data[:end]
        return data


class InPlaceOfCommit(CutProxy):
    """Says, once armed, other words instead of that the server has committed: its answer to COMMIT or, where the Sync
    commits, that it is ready."""

    words = None
    told = False
    first = None  # of what it stands in for, where that is more

    def change(self, data):
        for commit in (self.first,) if self.first else (b"C\0\0\0\x0bCOMMIT\0", b"Z\0\0\0\x05I"):
            if self.words and (found := data.find(commit)) >= 0 and b"INSERT 0 1\0" in data:
                data, self.words, self.told = data[:found] + self.words, None, True
        return data


def error(**fields):
    return pg_wire.message(b"E", b"".join(pg_wire.text(key + words) for key, words in fields.items()) + b"\0")


class StoreTest(FenceTest):
    users = (*FenceTest.users, "gate")

    def base(self, mutate=None, **install):
        return super().base(mutate, **{"gate_users": ("gate",)} | install)

    def probe(self, base, port=None, **settings):
        probe = self.start(PgProbe(port or self.server.port, base.name, **settings))
        probe.wait_for_store()
        return probe

    def backends(self, base):
        return [pid for (pid,) in base.sql("SELECT pid FROM pg_stat_activity WHERE usename = 'gate' AND datname = %s "
                                           "AND backend_type = 'client backend'", base.name)]

    def holder(self, base):
        """The backend that holds a mark."""
        return base.value("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted "
                          "AND database = (SELECT oid FROM pg_database WHERE datname = %s)", base.name)

    def hold(self, probe, tag="orders=33"):
        asked = probe.ask("hold", tag)
        self.assertEqual(asked.answer(), ["held"])
        return asked

    def raising(self, base):
        """A session that raises the mark to 34, and does not commit yet."""
        other = base.writer("bob")
        other.begin()
        other.arm(34)
        return other

    def behind_a_lock(self, base, probe, tag, note):
        """(a session that has locked the table until it commits, an INSERT that is asked for and waits for that)"""
        other = base.writer("bob")
        other.begin()
        other.run("LOCK TABLE writes")
        return other, probe.ask("run", tag, INSERT, f"t:{note}", deadline_ms=60_000)


class Marks(StoreTest):

    def test_look_and_seal(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.look("orders", "new"), ["found", "orders=33", "new="])
        self.assertEqual(probe.seal("orders=34,payments=7"), ["sealed", "orders=34!", "payments=7!"])
        self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34"])
        self.assertEqual((base.mark(), base.mark("payments")), (34, 7))

    def test_rejections(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.seal("orders=32"), ["rejected", "stale", "orders", "32", "33", ""])
        self.assertEqual(probe.seal("orders=50", 10), ["rejected", "jump", "orders", "50", "33", ""])
        self.assertEqual(probe.run("orders=32", INSERT, "t:x"), ["rejected", "stale", "orders", "32", "33", ""])
        self.assertEqual(probe.ask("hold", "orders=32").answer(), ["rejected", "stale", "orders", "32", "33", ""])
        self.assertEqual(base.writes(), [])

    def test_what_was_seen_rejects_without_the_server(self):
        base = self.base()
        probe = self.probe(base)
        probe.seal("orders=40")
        base.sql("ALTER ROLE gate NOLOGIN")
        self.addCleanup(self.server.sql, "ALTER ROLE gate LOGIN")
        for pid in self.backends(base):
            base.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
        self.assertEqual(probe.run("orders=39", INSERT, "t:x"), ["rejected", "stale", "orders", "39", "40", ""])

    def test_a_mark_that_went_back_is_raised_again(self):
        base = self.base()
        probe = self.probe(base)
        probe.seal("orders=40")
        base.sql("UPDATE fencegate.marks SET mark = 33")
        eventually(lambda: base.mark() == 40)

    def test_no_schema(self):
        base = self.base()
        base.sql("DROP SCHEMA fencegate CASCADE")
        probe = self.start(PgProbe(self.server.port, base.name))
        eventually(lambda: "fencegate install" in probe.run("orders=33", INSERT, "t:x")[-1])
        self.assertEqual(base.writes(), [])

    def test_no_server(self):
        base = self.base()
        probe = self.start(PgProbe(free_port(), base.name))
        for _ in range(3):
            self.assertEqual(probe.run("orders=33", INSERT, "t:x")[:2], ["rejected", "unavailable"])


class Statements(StoreTest):

    def test_it_runs_behind_its_check(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.run("orders=33", INSERT, "t:in time"), ["done", "1"])
        self.assertEqual(probe.run("orders=34", INSERT, "t:raised first"), ["done", "1"])
        self.assertEqual(base.mark(), 34)
        self.assertEqual(base.writes(), ["in time", "raised first"])

    def test_requests_that_only_read(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.run("read orders=33", "SELECT 7 AS n"), ["done", "1", "n:23", "7"])
        self.assertEqual(probe.run("read orders=50,new=1", "SELECT 7 AS n"), ["done", "1", "n:23", "7"])
        self.assertEqual(probe.run("read orders=32", "SELECT 7 AS n"), ["rejected", "stale", "orders", "32", "33", ""])
        self.assertEqual(probe.run("read orders=33", INSERT, "t:x")[:2], ["failed", "25006"])
        self.assertEqual((base.mark(), base.mark("new")), (33, None))

    def test_requests_without_a_token(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.run("none", INSERT, "t:unchecked"), ["done", "1"])

    def test_parameters_rows_and_types(self):
        base = self.base()
        probe = self.probe(base)
        text = "SELECT $1::int4 AS n, $2::bytea AS b, $3::text AS t"
        self.assertEqual(probe.run("orders=33", text, "t:7", "x:\u20ac", "n:"),
                         ["done", "1", "n:23", "b:17", "t:25", "7", "\\xe282ac", "(null)"])
        self.assertEqual(probe.run("orders=33", "UPDATE writes SET note = 'x' RETURNING note"),
                         ["done", "0", "note:25"])
        self.assertEqual(probe.run("orders=33", "LOCK TABLE writes"), ["done", ""])
        big = probe.run("orders=33", "SELECT repeat('x', 1000000) FROM generate_series(1, 30)")
        self.assertEqual((big[1], big[-1]), ("30", "cut off"))
        self.assertLess(len(big), 15)

    def test_errors_are_whole_and_nothing_is_applied(self):
        base = self.base()
        probe = self.probe(base)
        base.sql("ALTER TABLE writes ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
        probe.run("orders=33", INSERT, "t:once")
        for text, state in ((INSERT, "23505"), ("SELECT 1 / 0 + length($1)", "22012"),
                            ("SELECT $1 FROM nowhere", "42P01")):
            failed = probe.run("orders=33", text, "t:once")
            self.assertEqual(failed[:2], ["failed", state])
            self.assertTrue(failed[2])
        self.assertEqual(base.writes(), ["once"])

    def test_statements_that_would_escape_the_check(self):
        base = self.base()
        probe = self.probe(base)
        for text in ("COMMIT", "/* x */ rollback", "BEGIN", "SAVEPOINT a", "PREPARE TRANSACTION 'x'",
                     "SET search_path = x", "", "COPY writes FROM STDIN", "DISCARD ALL",
                     "COMMIT; INSERT INTO writes (note) VALUES ('a stale write')"):
            self.assertEqual(probe.run("orders=33", text)[:2], ["failed", "0A000"], text)
        base.sql("CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO writes (note) VALUES ('a stale write'); "
                 "COMMIT; END $$; GRANT EXECUTE ON PROCEDURE commits() TO gate")
        for text in ("DO $$ BEGIN COMMIT; END $$", "CALL commits()", "/**/ call commits()",
                     "DO $$ BEGIN CALL commits(); END $$"):
            self.assertEqual(probe.run("orders=33", text)[:2], ["failed", "2D000"], text)
        for text in ("VACUUM writes", "CREATE INDEX CONCURRENTLY own ON writes (note)"):
            self.assertEqual(probe.run("orders=33", text)[:2], ["failed", "25001"], text)
        self.assertEqual(base.writes(), [])
        self.assertEqual(probe.run("orders=33", INSERT, "t:ok"), ["done", "1"])

    def test_a_statement_that_takes_too_long(self):
        """The server ends it, so it is certain that nothing was applied."""
        base = self.base()
        probe = self.probe(base)
        late = probe.ask("run", "orders=33",
                         "WITH w AS (INSERT INTO writes (note) VALUES ('late')) SELECT pg_sleep(60)", deadline_ms=300)
        self.assertEqual(late.answer()[:2], ["failed", "57014"])
        self.assertEqual(base.writes(), [])

    def test_a_raise_that_takes_too_long(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.run("orders=33", INSERT, "t:in time"), ["done", "1"])
        raising = self.raising(base)
        late = probe.ask("run", "orders=33", INSERT, "t:late", deadline_ms=300)
        self.assertEqual(late.answer()[:2], ["rejected", "unavailable"])
        raising.run("COMMIT")
        self.assertEqual(base.writes(), ["in time"])

    def test_whatever_transactions_are_by_default(self):
        for default in ("isolation = 'serializable'", "isolation = 'repeatable read'", "read_only = on"):
            with self.subTest(default=default):
                base = self.base()
                base.sql("CREATE FUNCTION writes() RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO writes (note) VALUES "
                         "(current_setting('transaction_isolation')); RETURN 'written'; EXCEPTION WHEN OTHERS THEN "
                         "RETURN 'not written'; END $$")
                base.sql(f"ALTER DATABASE {base.name} SET default_transaction_{default}")
                probe = self.probe(base)
                for _ in range(2):
                    self.assertEqual(probe.run("orders=33", "SELECT writes()")[-1], "written")
                self.assertEqual(probe.run("orders=32", INSERT, "t:stale")[:2], ["rejected", "stale"])
                self.assertEqual(base.writes(), ["read committed"] * 2)

    def test_a_time_limit_of_the_database_is_not_for_raises(self):
        base = self.base()
        base.sql(f"ALTER DATABASE {base.name} SET statement_timeout = 300")
        probe = self.probe(base)
        self.assertEqual(probe.run("orders=33", INSERT, "t:in time"), ["done", "1"])
        raising = self.raising(base)
        asked = probe.ask("run", "orders=33", INSERT, "t:late", deadline_ms=60_000)
        # The first try has ended, the second waits.
        eventually(lambda: base.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'gate' AND datname = %s AND "
                                      "wait_event = 'advisory' AND backend_xmin IS NOT NULL AND xact_start < clock_timestamp() "
                                      "- interval '1 s'", base.name))
        raising.run("ROLLBACK")
        self.assertEqual(asked.answer(), ["done", "1"])

    def test_a_statement_that_fails_is_not_run_again(self):
        base = self.base()
        probe = self.probe(base)
        base.sql("CREATE SEQUENCE runs; GRANT ALL ON SEQUENCE runs TO gate; CREATE FUNCTION fails(state text) RETURNS void "
                 "LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('runs'); RAISE EXCEPTION 'no' USING ERRCODE = state; END $$")
        states = ("25000", "25006", "42883", "40001")
        for state in states:
            self.assertEqual(probe.run("orders=33", "SELECT fails($1)", f"t:{state}")[:2], ["failed", state])
        self.assertEqual(base.value("SELECT last_value FROM runs"), len(states))

    def test_the_guard_of_an_older_fence(self):
        """It has no limit of its own: the gate sends what it sent then."""
        base = self.base()
        base.sql("DROP FUNCTION fencegate.guard_under; SET ROLE fencegate_owner; CREATE FUNCTION fencegate.guard_under(resources "
                 "text[], tokens bigint[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN "
                 "IF fencegate.hold_one(resources[1], tokens[1]) IS NULL THEN PERFORM fencegate.stale('orders', 0, 33); END IF; "
                 "END $$; RESET ROLE")
        probe = self.probe(base)
        self.assertEqual(probe.run("orders=33", INSERT, "t:in time"), ["done", "1"])
        self.assertEqual(probe.run("orders=32", INSERT, "t:stale")[:2], ["rejected", "stale"])
        base.sql("DROP FUNCTION fencegate.guard_under")
        self.assertEqual(probe.run("orders=33", INSERT, "t:unchecked")[:2], ["rejected", "unavailable"])
        self.assertEqual(base.writes(), ["in time"])

    def sleeping(self, base, probe):
        """A statement of an old holder that has written, and not committed yet."""
        asked = probe.ask("run", "orders=33",
                          "WITH w AS (INSERT INTO writes (note) VALUES ('a stale write')) SELECT pg_sleep(60)",
                          deadline_ms=60_000)
        pid = eventually(lambda: base.value("SELECT pid FROM pg_stat_activity WHERE usename = 'gate' "
                                            "AND datname = %s AND wait_event = 'PgSleep'", base.name))
        return asked, pid

    def test_a_raise_ends_it(self):
        base = self.base()
        probe = self.probe(base)
        asked, _ = self.sleeping(base, probe)
        self.assertEqual(base.writer().arm(34), [(34,)])
        self.assertEqual(asked.answer()[:2], ["rejected", "stale"])
        self.assertEqual(base.writes(), [])

    def test_a_raise_that_comes_back_to_its_lock_late(self):
        """It leaves the line for the lock while it ends who holds it: there the gate comes to ask, and is first."""
        ended = "PERFORM fencegate.end_idle_holders(k);"
        base = self.base(within("lock_exclusive", ended, f"{ended} PERFORM pg_sleep(0.1);"))
        probe = self.probe(base)
        asked, _ = self.sleeping(base, probe)
        self.assertEqual(base.writer().arm(34), [(34,)])
        self.assertEqual(asked.answer()[:2], ["rejected", "stale"])

    def test_a_frozen_server_between_check_and_commit(self):
        """The raise cannot end it, and fails; when it goes on, its write is not stale."""
        base = self.base(cut_ms=500)
        probe = self.probe(base)
        asked, pid = self.sleeping(base, probe)
        self.freeze(pid)
        self.assert_rejected(base.writer().arm(34), "ZF006")
        self.assertEqual(base.mark(), 33)
        self.server.thaw(pid)
        self.assertEqual(asked.answer()[:2], ["rejected", "unavailable"])
        self.assertEqual(base.writes(), [])

    def test_a_frozen_gate(self):
        """Its statement waits for a lock; a raise comes; the gate wakes up and learns what became of it."""
        base = self.base()
        probe = self.probe(base)
        other, asked = self.behind_a_lock(base, probe, "orders=33", "a stale write")
        self.assertTrue(eventually(lambda: self.holder(base)))
        probe.stop_process()
        self.assertEqual(base.writer().arm(34), [(34,)])
        other.run("COMMIT")
        probe.continue_process()
        self.assertEqual(asked.answer()[:2], ["rejected", "stale"])
        self.assertEqual(base.writes(), [])

    def test_a_connection_that_is_lost_leaves_the_outcome_unknown(self):
        base = self.base()
        proxy = self.start(CutProxy(self.server.port))
        probe = self.probe(base, port=proxy.port)
        asked, pid = self.sleeping(base, probe)
        proxy.cut_all()
        self.assertEqual(asked.answer()[0], "unknown")
        base.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
        probe.wait_for_store()
        self.assertEqual(base.writes(), [])  # not sent again
        self.assertEqual(probe.run("orders=33", INSERT, "t:later"), ["done", "1"])

    def test_a_session_that_ends_behind_its_commit_has_committed(self):
        base = self.base()
        proxy = self.start(AtCommit(self.server.port))
        probe = self.probe(base, port=proxy.port)
        self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34!"])
        # Where the Sync commits, only what comes behind that is the answer.
        for tag, command, outcome in (("once orders=35", b"COMMIT", ["done", "1"]),
                                      ("orders=35", b"INSERT 0 1", ["unknown"])):
            proxy.held_back, proxy.armed = None, command
            asked = probe.ask("run", tag, INSERT, f"t:{tag}")
            eventually(lambda: proxy.held_back)
            for pid in self.backends(base):
                base.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
            self.assertEqual(asked.answer()[: len(outcome)], outcome)
            self.assertIn(tag, base.writes())
            probe.wait_for_store()
            self.assertEqual(probe.run("orders=35", "UPDATE writes SET note = note"), ["done", str(len(base.writes()))])

    def test_what_a_pooler_says_in_place_of_a_commits_answer_proves_nothing(self):
        """As Pgpool-II does, whose server has gone."""
        base = self.base()
        proxy = self.start(InPlaceOfCommit(self.server.port))
        probe = self.probe(base, port=proxy.port)
        idle, lost = pg_wire.message(b"Z", b"I"), {"C": "XX000", "M": "unable to read data"}
        for turn, (words, tag) in enumerate((words, tag) for tag in ("orders=34", "once payments={}") for words in (
                error(S="ERROR", **lost), error(S="ERROR", **lost) + idle, error(S="ERROR", V="ERROR", **lost),
                error(S="ERROR", V="ERROR", **{**lost, "C": "23505"}) + idle, error(S="FATAL", V="FATAL", **lost),
                error(S="FATAL", **{**lost, "C": "57P01"}))):
            with self.subTest(words=words, tag=tag):
                proxy.told, text = False, tag.format(turn + 1)
                self.assertEqual(eventually(lambda: (one := probe.run("orders=34", "SELECT 1"))[0] == "done" and one)[1], "1")
                proxy.words = words
                asked = probe.ask("run", text, INSERT, f"t:{turn}")
                eventually(lambda: proxy.told and proxy.pieces == 0)
                proxy.cut_all()
                self.assertEqual(asked.answer()[0], "unknown")
                self.assertEqual(base.value("SELECT count(*) FROM writes WHERE note = %s", str(turn)), 1)

    def test_what_a_pooler_says_in_place_of_all_answers_proves_nothing(self):
        """The server says all that it has to say behind the commit."""
        base = self.base()
        proxy = self.start(InPlaceOfCommit(self.server.port))
        probe = self.probe(base, port=proxy.port)
        ready = pg_wire.message(b"Z", b"I")
        for turn, (first, state) in enumerate((first, state) for first in (True, False)
                                              for state in ("58000", "57014", "25000", "ZF001")):
            with self.subTest(first=first, state=state):
                proxy.told, proxy.first = False, b"1" if first else b"INSERT 0 1\0"
                eventually(lambda: probe.run("orders=33", "SELECT 1")[0] == "done")
                proxy.words = error(S="ERROR", V="ERROR", C=state, M="the server has gone") + ready
                self.assertEqual(probe.run("orders=33", INSERT, f"t:{turn}")[0], "unknown")
                self.assertTrue(proxy.told)
                self.assertEqual(base.value("SELECT count(*) FROM writes WHERE note = %s", str(turn)), 1)

    def test_an_error_behind_the_commit(self):
        """What the session hears cannot be said in its encoding. A server of some versions ends the session, others do not."""
        base = self.base()
        probe = self.probe(base, pool=2)
        base.sql("CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.note = 'hears' THEN LISTEN news; "
                 "PERFORM set_config('client_encoding', 'LATIN1', false); ELSE PERFORM pg_notify('news', chr(8364)); END IF; "
                 "RETURN NEW; END $$; CREATE TRIGGER tells BEFORE INSERT ON writes FOR EACH ROW EXECUTE FUNCTION tells()")
        self.assertEqual(probe.run("orders=33", INSERT, "t:hears"), ["done", "1"])
        self.assertEqual(probe.run("orders=33", INSERT, "t:tells")[0], "unknown")
        self.assertEqual(base.writes(), ["hears", "tells"])

    def test_what_the_session_hears_is_dropped(self):
        base = self.base()
        probe = self.probe(base, pool=2)
        base.sql("CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LISTEN news; PERFORM pg_notify('news', "
                 "NEW.note); RETURN NEW; END $$; CREATE TRIGGER tells BEFORE INSERT ON writes FOR EACH ROW EXECUTE FUNCTION tells()")
        text = "INSERT INTO writes (note) SELECT lpad(n::text, 7000, 'x') FROM generate_series(1, $1::int) n"
        self.assertEqual(probe.run("orders=33", text, "t:2"), ["done", "2"])
        before = probe.rss_bytes()
        for _ in range(10):
            self.assertEqual(probe.run("orders=33", text, "t:1000"), ["done", "1000"])
        if "FENCEGATE_SANITIZED" not in os.environ:  # a sanitizer keeps what was freed
            self.assertLess(probe.rss_bytes() - before, 40_000_000)

    def test_nothing_stays_in_the_session_that_could_stand_in_for_the_check(self):
        """A trigger could put another statement under the name of a prepared one; and what is prepared keeps the types
        and the constants of when it was."""
        base = self.base()
        probe = self.probe(base, pool=2)  # one for statements
        base.sql("CREATE TABLE times (at timestamptz, n int); GRANT ALL ON times TO gate")
        insert = "INSERT INTO times VALUES ('now', $1) RETURNING n"
        for _ in range(7):
            self.assertEqual(probe.run("orders=33", insert, "t:007")[-1], "7")
        self.assertEqual(base.value("SELECT count(DISTINCT at) FROM times"), 7)
        base.sql("ALTER TABLE times ALTER n TYPE text")
        self.assertEqual(probe.run("orders=33", insert, "t:007")[-1], "007")
        self.assertEqual(probe.run("orders=33", "SELECT count(*) FROM pg_prepared_statements")[-1], "0")

    def test_nobody_is_told_who_has_left(self):
        base = self.base()
        probe = self.probe(base)
        asked, pid = self.sleeping(base, probe)
        self.assertEqual(asked.leave(), ["left"])
        base.sql("SELECT pg_cancel_backend(%s)", pid)
        eventually(lambda: base.waits_for(pid) == "Client")
        self.assertEqual(probe.run("orders=33", INSERT, "t:next"), ["done", "1"])
        self.assertFalse(asked.answered())


class Spending(StoreTest):
    """equal_token: reject."""

    def test_a_token_is_good_for_one(self):
        base = self.base()
        probe = self.probe(base)
        self.assertEqual(probe.run("once orders=34", INSERT, "t:first"), ["done", "1"])
        used = ["rejected", "equal", "orders", "34", "34", ""]
        self.assertEqual(probe.run("once orders=34", INSERT, "t:again"), used)
        self.assertEqual(self.probe(base).run("once orders=34", INSERT, "t:again"), used)  # remembers nothing
        self.assertEqual(probe.run("once orders=33", INSERT, "t:stale")[:2], ["rejected", "stale"])
        self.assertEqual(probe.seal("once orders=35"), ["sealed", "orders=35!"])
        self.assertEqual(probe.seal("once orders=35"), ["rejected", "equal", "orders", "35", "35", ""])
        self.assertEqual(probe.seal("orders=35"), ["sealed", "orders=35"])
        held = self.hold(probe, "once orders=36")
        self.assertTrue(held.alive())
        self.assertEqual(probe.ask("hold", "once orders=36").answer(), ["rejected", "equal", "orders", "36", "36", ""])
        self.assertEqual(probe.run("once orders=36", INSERT, "t:again")[:2], ["rejected", "equal"])
        self.assertEqual(probe.run("none", INSERT, "t:unchecked"), ["done", "1"])
        self.assertEqual((base.mark(), base.writes()), (36, ["first", "unchecked"]))

    def test_what_fails_has_used_nothing(self):
        base = self.base()
        probe = self.probe(base)
        base.sql("ALTER TABLE writes ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
        base.sql("INSERT INTO writes (note) VALUES ('there')")
        for text, state in (("SELECT 1 / 0", "22012"), ("INSERT INTO writes (note) VALUES ('there')", "23505")):
            self.assertEqual(probe.run("once orders=34,new=1", text)[:2], ["failed", state])
            self.assertEqual((base.mark(), base.mark("new")), (33, None))
        self.assertEqual(probe.run("once orders=34,new=0", INSERT, "t:ok"), ["done", "1"])
        self.assertEqual(probe.run("once orders=35,new=0", INSERT, "t:x")[:3], ["rejected", "equal", "new"])
        self.assertEqual((base.mark(), base.writes()), (34, ["there", "ok"]))

    def test_of_many_at_the_same_time_one_gets_through(self):
        base = self.base()
        probes = [self.probe(base) for _ in range(2)]
        for token, what, words in ((34, "run", (INSERT, "t:34")), (35, "seal", (0,)), (36, "hold", ())):
            asked = [probe.ask(what, f"once orders={token}", *words, deadline_ms=30_000)
                     for _ in range(20) for probe in probes]
            answers = [one.answer() for one in asked]
            through = [one for one in answers if one[0] != "rejected"]
            self.assertEqual(len(through), 1, through)
            self.assertEqual({tuple(one[:5]) for one in answers if one[0] == "rejected"},
                             {("rejected", "equal", "orders", str(token), str(token))})
        self.assertEqual(base.writes(), ["34"])

    def test_a_lost_connection_leaves_the_outcome_unknown_and_asking_again_tells(self):
        for commits in (False, True):
            base = self.base()
            proxy = self.start(CutProxy(self.server.port))
            probe = self.probe(base, port=proxy.port)
            other, asked = self.behind_a_lock(base, probe, "once orders=34", "once")
            pid = eventually(lambda: base.value("SELECT pid FROM pg_stat_activity WHERE usename = 'gate' "
                                                "AND datname = %s AND wait_event_type = 'Lock'", base.name))
            proxy.cut_all()
            self.assertEqual(asked.answer()[0], "unknown")
            if not commits:
                base.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
            other.run("COMMIT")
            eventually(lambda: base.gone(pid))
            probe.wait_for_store()
            self.assertEqual(base.mark(), 34 if commits else 33)
            again = probe.run("once orders=34", INSERT, "t:once")
            self.assertEqual(again[:2], ["rejected", "equal"] if commits else ["done", "1"])
            self.assertEqual(base.writes(), ["once"])

    def test_a_new_holder_ends_forwards_of_the_old_one_that_take_all_connections(self):
        base = self.base()
        probe = self.probe(base, pool=2, grace_ms=500)
        old = self.hold(probe)
        self.assertEqual(probe.ask("run", "once orders=34", INSERT, "t:new", deadline_ms=20_000).answer(), ["done", "1"])
        self.assertEqual(old.answer(), ["cut"])

    def test_statements_that_spend_leave_a_connection_for_raises(self):
        base = self.base()
        probe = self.probe(base, pool=4)
        blocker = base.writer("bob")
        blocker.begin()
        blocker.run("LOCK TABLE writes")
        slow = [probe.ask("run", f"once slow{n}=1", INSERT, "t:slow") for n in range(8)]
        eventually(lambda: base.value("SELECT count(*) = 3 FROM pg_stat_activity WHERE usename = 'gate' "
                                      "AND datname = %s AND wait_event = 'relation'", base.name))
        self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34!"])
        blocker.run("COMMIT")
        self.assertEqual([one.answer() for one in slow], [["done", "1"]] * 8)

    def test_a_frozen_gate(self):
        """Its statement was sent whole: the newer holder waits for it, and it is told what became of it."""
        base = self.base()
        probe = self.probe(base)
        other, asked = self.behind_a_lock(base, probe, "once orders=34", "in front")
        eventually(lambda: base.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'gate' "
                                      "AND datname = %s AND wait_event = 'relation'", base.name))
        probe.stop_process()
        raising = base.writer().in_background("SELECT fencegate.arm('orders', 35)")
        self.assertTrue(raising.wait_until_blocked())
        self.assertEqual(base.mark(), 33)
        other.run("COMMIT")
        self.assertEqual(raising.outcome(), [(35,)])
        self.assertEqual((base.mark(), base.writes()), (35, ["in front"]))
        probe.continue_process()
        self.assertEqual(asked.answer(), ["done", "1"])
        self.assertEqual(probe.run("once orders=34", INSERT, "t:again")[0], "rejected")


class Poolers(StoreTest):

    def test_a_poolers_own_words_say_nothing_of_a_commit(self):
        """It gives up on a COMMIT that waits for a standby, and the row is there afterwards."""
        self.server.install(gate_users=["gate"])
        self.server.sql("CREATE TABLE writes (note text)")
        self.server.sql("GRANT ALL ON writes TO gate")
        pooler = self.start(PgBouncer(self.server, user="gate", query_timeout=1))
        probe = self.start(PgProbe(pooler.port, "postgres"))
        probe.wait_for_store()
        tokens = itertools.count(1)
        for tag in ("orders=0", "once payments={}"):
            with self.subTest(tag):
                self.assertEqual(probe.run(tag.format(next(tokens)), INSERT, "t:before"), ["done", "1"])
                self.wait_for_a_standby("nobody")
                self.addCleanup(self.wait_for_a_standby, "")

                def a_commit_that_waits():  # the server's processes learn it some time later
                    text = tag.format(next(tokens))
                    answer = probe.run(text, INSERT, "t:" + text)
                    return answer[0] != "done" and (text, answer)

                text, answer = eventually(a_commit_that_waits)
                self.assertEqual(answer[0], "unknown", answer)
                self.wait_for_a_standby("")
                eventually(lambda: self.server.value("SELECT count(*) > 0 FROM writes WHERE note = %s", text))
                if text.startswith("once"):
                    again = eventually(lambda: (one := probe.run(text, INSERT, "t:again"))[1] != "unavailable" and one)
                    self.assertEqual(again[:2], ["rejected", "equal"])

    def wait_for_a_standby(self, name):
        self.server.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.server.sql("SELECT pg_reload_conf()")


class Holds(StoreTest):

    def test_hold_and_release(self):
        base = self.base()
        probe = self.probe(base)
        held = self.hold(probe, "orders=34")  # raised first
        self.assertTrue(held.alive())
        raising = base.writer("gate").in_background("SELECT mark FROM fencegate.raise_all('{orders}', '{35}', "
                                                    "grace_ms => 60000)")
        self.assertTrue(raising.wait_until_blocked())
        self.assertEqual(base.mark(), 34)
        self.assertEqual(held.release(), ["released"])
        self.assertEqual(raising.outcome(), [(35,)])

    def test_one_that_is_cut_is_told_so(self):
        base = self.base()
        probe = self.probe(base)
        held = self.hold(probe)
        self.assertEqual(base.writer().arm(34), [(34,)])
        self.assertEqual(held.answer(), ["cut"])
        self.assertFalse(held.alive())
        self.assertEqual(probe.ask("hold", "orders=33").answer()[:2], ["rejected", "stale"])

    def test_a_gate_that_was_frozen_does_not_believe_what_it_knew(self):
        base = self.base()
        probe = self.probe(base)
        held = self.hold(probe)
        probe.stop_process()
        self.assertEqual(base.writer().arm(34), [(34,)])
        probe.send(held.name, "alive")  # asked before anything else happens in that process
        probe.continue_process()
        self.assertIn(["alive", "no"], [held.answer(), held.answer()])

    def test_a_new_holder_through_the_same_gate_waits_for_the_grace_and_no_longer(self):
        """Forwards of the old holder take all the connections that they may take."""
        base = self.base()
        probe = self.probe(base, pool=4, grace_ms=500)
        old = [self.hold(probe) for _ in range(3)]
        queued = probe.ask("hold", "orders=33")
        new = probe.ask("hold", "orders=34", deadline_ms=20_000)
        self.assertEqual([one.answer() for one in old], [["cut"]] * 3)
        self.assertEqual(new.answer(), ["held"])
        self.assertEqual(queued.answer()[:2], ["rejected", "stale"])
        self.assertTrue(new.alive())
        self.assertEqual(base.mark(), 34)

    def test_who_waits_too_long_for_a_connection(self):
        base = self.base()
        probe = self.probe(base, pool=2)
        held = self.hold(probe)
        late = probe.ask("hold", "orders=33", deadline_ms=300).answer()
        self.assertEqual(late[:2], ["rejected", "unavailable"])
        self.assertIn("in use", late[-1])
        self.assertEqual(probe.look("orders"), ["found", "orders=33"])
        held.release()
        self.hold(probe)

    def test_who_waits_is_served_in_turn_and_those_behind_too_many_are_told_so(self):
        waiting_max = 1024  # limits::pg_pool_waiting_max
        base = self.base()
        probe = self.probe(base, pool=2)
        held = self.hold(probe)
        line = [probe.ask("hold", "orders=33", deadline_ms=60_000) for _ in range(waiting_max + 10)]
        for one in line[waiting_max:]:
            answer = one.answer()
            self.assertEqual(answer[:2], ["rejected", "unavailable"])
            self.assertIn("too many requests wait", answer[-1])
        for one in line[:5]:
            self.assertEqual(held.release(), ["released"])
            self.assertEqual(one.answer(), ["held"])
            held = one
        self.assertFalse(any(one.answered() for one in line[5:waiting_max]))

    def test_a_storm_of_one_keeps_no_other_waiting(self):
        base = self.base()
        probe = self.probe(base, pool=8)  # six of them for holds
        for name in ("stock", "mail"):  # their marks rise: who raises one waits for another turn
            before = probe.ask("hold", f"{name}=7")
            self.assertEqual(before.answer(), ["held"])
            self.assertEqual(before.release(), ["released"])
        storm = [self.hold(probe)]
        storm += [probe.ask("hold", "orders=33", deadline_ms=60_000) for _ in range(20)]
        self.assertEqual([one.answer() for one in storm[1:5]], [["held"]] * 4)
        first = probe.ask("hold", "stock=7", deadline_ms=60_000)
        self.assertEqual(first.answer(), ["held"])
        # All six are taken. Each owner has its turn when one is free.
        others = [probe.ask("hold", f"{name}=7", deadline_ms=60_000) for name in ("stock", "mail")]
        self.assertEqual(storm[0].release(), ["released"])
        self.assertEqual(storm[1].release(), ["released"])
        self.assertEqual(storm[2].release(), ["released"])
        for one in (storm[5], *others):
            self.assertEqual(one.answer(), ["held"])
        self.assertFalse(any(one.answered() for one in storm[6:]))
        self.assertEqual(others[0].release(), ["released"])
        self.assertEqual(storm[6].answer(), ["held"])

    def test_of_too_many_those_give_way_who_are_most(self):
        waiting_max = 1024  # limits::pg_pool_waiting_max
        base = self.base()
        probe = self.probe(base, pool=2)
        held = self.hold(probe)
        storm = [probe.ask("hold", "orders=33", deadline_ms=60_000) for _ in range(waiting_max)]
        other = probe.ask("hold", "stock=7", deadline_ms=60_000)
        self.assertEqual(storm[-1].answer()[:2], ["rejected", "unavailable"])
        for one in (storm[0], other, storm[1]):
            self.assertEqual(held.release(), ["released"])
            self.assertEqual(one.answer(), ["held"])
            held = one

    def test_a_gate_that_dies_lets_go(self):
        base = self.base()
        probe = self.probe(base)
        self.hold(probe)
        probe.kill()
        self.assertEqual(base.writer().arm(34), [(34,)])

    def test_a_session_that_has_ended_does_not_hold(self):
        base = self.base()
        probe = self.probe(base)
        blocker = base.writer("gate")
        blocker.begin()
        blocker.run("SELECT * FROM fencegate.raise_all('{orders}', '{34}')")
        asked = probe.ask("hold", "orders=34")
        eventually(lambda: base.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1)
        self.assertEqual(asked.leave(), ["left"])
        blocker.run("COMMIT")
        eventually(lambda: self.holder(base) is None)
        self.assertEqual(base.writer().arm(35), [(35,)])
        self.assertFalse(asked.answered())

    def test_a_held_mark_survives_a_reload_of_the_servers_settings(self):
        """The server may say something without being asked."""
        base = self.base()
        probe = self.probe(base)
        held = self.hold(probe)
        base.sql("ALTER SYSTEM SET datestyle = 'German'")
        self.addCleanup(self.server.sql, "SELECT pg_reload_conf()")
        self.addCleanup(self.server.sql, "ALTER SYSTEM RESET datestyle")
        base.sql("SELECT pg_reload_conf()")
        eventually(lambda: held.alive())
        self.assertEqual(held.release(), ["released"])


class Connecting(StoreTest):

    def test_a_server_that_refuses_late_is_not_the_last_one_asked(self):
        base = self.base()
        silent = "127.0.0.2", self.server.port
        with socket.socket() as listener, socket.socket() as queued:
            listener.bind(silent)
            listener.listen(0)
            queued.connect(silent)  # all that there is room for
            link = self.start(LinkProbe(self.server.port, base.name, silent[0], LOOPBACK))
            eventually(lambda: knocking(*silent))
        # Where it knocks again, nobody is. The socket to the next address has the number of this one.
        self.assertEqual(link.opening.answer(), ["connected"])


class Restarts(StoreTest):

    def test_the_store_finds_its_server_again(self):
        base = self.base()
        probe = self.probe(base)
        held = self.hold(probe)
        with contextlib.suppress(Exception):
            base.owner.close()
        self.server.restart()
        self.assertEqual(held.answer(), ["cut"])
        probe.wait_for_store()
        self.assertEqual(probe.run("orders=33", INSERT, "t:again"), ["done", "1"])


if __name__ == "__main__":
    main(at_once=2)
