"""The same bytes, sent to the server and through the gate, get the same bytes back, but for process id and key."""

from pg_wire import (COPY_DONE, FLUSH, PROTOCOL_3, SYNC, TERMINATE, Wire, bind, close, copy_data, copy_fail, describe,
                     execute, extended, function_call, parse, query, split, startup)
from live_test import LiveTest, main
from pg_versions import version
from postgres import PgGate, PostgresServer

INT4PL = 177  # the function int4pl(int4, int4), by its number in pg_proc
COPY_OUT = parse("COPY things TO STDOUT") + bind() + execute()
ROWS = "SELECT n, repeat('x', n) FROM generate_series(1, 10) n"


def raising(level, text, state="ZZ123"):
    return f"DO $$ BEGIN RAISE {level} USING MESSAGE = {text}, ERRCODE = '{state}', HINT = 'none'; END $$"


# What a session sends after its start. Each begins with an empty table `things (n int primary key, name text)`.
SCRIPTS = {
    "simple": [query("SELECT 1, 'a', NULL"), query("SELECT 1; SELECT 'b'; INSERT INTO things VALUES (1, 'one')"),
               query("TABLE things"), query("UPDATE things SET name = 'x'"), query("SELECT FROM things"), query(ROWS)],
    "empty": [query(""), query(";"), query("  ;; "), query("/* nothing */"), query("-- nothing"),
              parse(""), bind(), describe(b"P"), execute(), SYNC],
    "errors": [query("SELEC"), query("SELECT 1; SELECT 1/0; SELECT 2"), query("TABLE nowhere"), query("SELECT 'open"),
               query("INSERT INTO things VALUES (1, 'a')"), query("INSERT INTO things VALUES (1, 'b')")],
    "transactions": [query("BEGIN"), query("SELECT 1/0"), query("SELECT 1"), query("ROLLBACK"), query("COMMIT"),
                     query("BEGIN; INSERT INTO things VALUES (1, 'a')"), query("SAVEPOINT a"), query("SELECT 1/0"),
                     query("ROLLBACK TO a"), query("COMMIT AND CHAIN"), query("TABLE things"), query("COMMIT")],
    "notices": [query(raising("NOTICE", "'careful'")), query(raising("WARNING", "'careful'", "57P01") + "; SELECT 1"),
                query("SET client_min_messages = debug5"), query("SELECT 1"), query("SET client_min_messages = notice"),
                query("DROP TABLE IF EXISTS nowhere"), query(raising("NOTICE", "repeat('n', 200000)"))],
    "errors that look like others": [query(raising("EXCEPTION", "'mine'", "57P01")), query("SELECT 1"), extended(
        raising("EXCEPTION", "'mine'", "57P01")), SYNC, query("BEGIN"), query(raising("EXCEPTION", "'mine'", "ZF001")),
        query("ROLLBACK"), query(raising("EXCEPTION", "repeat('e', 200000)"))],
    "extended": [extended("SELECT $1::int + 1, $2::text", 41, "é"), SYNC, extended("SELECT $1::text", None), SYNC,
                 parse("SELECT $1::int", "named", (23,)), describe(b"S", "named"), SYNC, bind(1, statement="named"),
                 execute(),
                 bind(2, statement="named"), execute(), SYNC, parse("SELECT 1", "named"), SYNC, close(b"S", "named"),
                 close(b"S", "unknown"), close(b"P", "unknown"), SYNC, bind(1, statement="named"), execute(), SYNC,
                 describe(b"S", "named"), SYNC, parse("SELECT 2", "named"), bind(statement="named"), execute(), SYNC,
                 SYNC],
    "extended errors": [parse("SELEC"), bind(), execute(), SYNC, parse("SELECT $1::int"), bind("x"), execute(), SYNC,
                        parse("SELECT $1::int"), bind(), execute(), SYNC, extended("SELECT 1/0"),
                        extended("SELECT 2"), SYNC,
                        extended("INSERT INTO things VALUES (1, 'a')"),
                        extended("INSERT INTO things VALUES (1, 'b')"), SYNC,
                        extended("TABLE things"), SYNC, execute("nowhere"), SYNC],
    "portals": [parse(ROWS), bind(), execute(rows=3), execute(rows=3), FLUSH, execute(), execute(), SYNC, execute(),
                SYNC,
                query("BEGIN"), parse(ROWS), bind(portal="p"), execute("p", 4), SYNC, query("SELECT 1"),
                execute("p", 4), SYNC,
                query("FETCH 1 FROM p"), close(b"P", "p"), execute("p", 4), SYNC, query("ROLLBACK")],
    "pipelines": [extended("INSERT INTO things VALUES (1, 'a')") + SYNC + extended("SELECT 1/0")
                  + extended("SELECT 3") + SYNC
                  + extended("TABLE things") + SYNC + query("SELECT 4") + extended("BEGIN") + SYNC + query("SELECT 5")
                  + extended("COMMIT") + SYNC] + [extended("SELECT $1::int", n) + SYNC for n in range(3000)],
    "queries without sync": [extended("SELECT 1"), query("SELECT 2"), SYNC, extended("SELECT 1/0"), query("SELECT 3"),
                             SYNC,
                             query("SELECT 4"), extended("INSERT INTO things VALUES (1, 'a')"), query("SELECT 1/0"),
                             SYNC,
                             query("TABLE things")],
    "errors without sync": [extended("SELECT 1/0"), query("SELECT 3"), extended("SELECT 4"), SYNC, query("SELECT 5"),
                            extended("SELECT 1/0"), query("SELECT 3"), query("SELECT 3"), FLUSH, extended("SELECT 4"),
                            extended("INSERT INTO things VALUES (1, 'a')"), SYNC, extended("TABLE things"), SYNC,
                            query("BEGIN"), extended("SELECT 1/0"), query("ROLLBACK"), extended("COMMIT"), SYNC,
                            query("SELECT 6"), query("ROLLBACK"), query("SELECT 7")],
    "flush": [parse("SELECT 1"), FLUSH, bind(), FLUSH, execute(), FLUSH, SYNC, FLUSH, query("SELECT 2")],
    "function calls": [function_call(INT4PL, b"40", b"2"), function_call(INT4PL, b"x", b"2"), function_call(1, b""),
                       query("BEGIN"), function_call(INT4PL, b"1", b"2"), query("COMMIT")],
    "copy in": [query("COPY things FROM STDIN"), copy_data(b"1\ta\n2\tb\n"), copy_data(b"3\t"), copy_data(b"c\n"),
                COPY_DONE,
                query("COPY things FROM STDIN; SELECT 7; COPY things FROM STDIN"), copy_data(b"4\td\n"), COPY_DONE,
                copy_data(b"5\te\n"), COPY_DONE, query("TABLE things"), query("COPY things FROM STDIN"),
                copy_fail("no"),
                query("COPY things FROM STDIN"), copy_data(b"bad\n" * 1000), copy_data(b"1\tx\n"),
                COPY_DONE, query("SELECT 1"),
                query("COPY nowhere FROM STDIN"), copy_data(b"1\tx\n"), COPY_DONE, query("SELECT 1")],
    "copy in, extended": [parse("COPY things FROM STDIN"), bind(), execute(), copy_data(b"1\ta\n"), COPY_DONE, SYNC,
                          parse("COPY things FROM STDIN"), bind(), execute(), SYNC, FLUSH, copy_data(b"2\tb\n"),
                          COPY_DONE, SYNC,
                          parse("COPY things FROM STDIN"), bind(), execute(), copy_fail("no"), SYNC,
                          parse("COPY things FROM STDIN"), bind(), execute(), copy_data(b"bad\n"), COPY_DONE, SYNC,
                          query("TABLE things")],
    "copy data outside of it": [COPY_OUT, COPY_DONE, COPY_OUT, SYNC, COPY_OUT + copy_data(b"1\ta\n") + COPY_OUT, copy_fail("no"), SYNC,
                                COPY_DONE, parse("COPY things FROM STDIN"), bind(),
                                copy_data(b"1\ta\n"), execute(), copy_data(b"2\tb\n"), COPY_DONE, COPY_DONE, COPY_OUT, SYNC,
                                query("TABLE things"), COPY_DONE, copy_data(b"3\tc\n"), SYNC, query("TABLE things")],
    "skipped": [parse("SELECT 5") + parse("SELECT 6", "s") + SYNC, execute("nowhere") + close(b"S") + close(b"S", "s") + SYNC,
                bind() + execute() + SYNC, bind(statement="s") + execute() + SYNC, extended("SELECT 1/0"), close(b"S", "s"),
                parse("SELECT 7", "t"), SYNC, bind(statement="s") + execute() + SYNC, parse("SELECT 8", "t"), SYNC,
                close(b"S", "s") + extended("SELECT 1/0") + SYNC, parse("SELECT 9", "s") + bind(statement="s") + execute() + SYNC],
    "copy out": [query("COPY (SELECT * FROM generate_series(1, 3000)) TO STDOUT; SELECT 1"),
                 query("COPY things TO STDOUT"),
                 extended("COPY (SELECT 1) TO STDOUT"), SYNC,
                 query("COPY (SELECT 1/(3-n) FROM generate_series(1,5) n) TO STDOUT")],
    "settings": [query("SET application_name = 'other'"), query("SET application_name = ''"),
                 query("SET client_encoding = 'LATIN1'"),
                 query("SELECT U&'\\00e9'"), query("SET DateStyle = 'German'"), query("SET bytea_output = escape"),
                 query("SET standard_conforming_strings = off"), query("SELECT 'a\\'b'"), query("RESET ALL"),
                 query("DISCARD ALL")],
    "listen": [query("LISTEN channel"), query("NOTIFY channel, 'one'"), query("BEGIN; NOTIFY channel, 'two'"),
               query("COMMIT"),
               query("UNLISTEN *")],
    "large": [query("SELECT repeat('x', 3000000) FROM generate_series(1, 3)"), query("SELECT /*" + "c" * 1000000
              + "*/ 1"),
              extended("SELECT length($1::text)", "v" * 2000000), SYNC, query("SELECT '" + "y" * 700000 + "'"),
              parse("SELECT " + "1 + " * 100000 + "1"), SYNC, query("SELECT 1")],
    "terminate in a transaction": [query("BEGIN"), query("INSERT INTO things VALUES (1, 'a')")],
}

REFUSED_OPENINGS = {
    "unknown parameter": startup(user="postgres", database="postgres", nonsense="1"),
    "unknown database": startup(user="postgres", database="nowhere"),
    "unknown user": startup(user="nobody", database="postgres"),
    "no user": startup(database="postgres"),
}
OPENINGS = {
    "protocol 3.9999": startup(PROTOCOL_3 + 9999, user="postgres", database="postgres", **{"_pq_.nonsense": "1"}),
    "no database": startup(user="postgres"),
    "settings": startup(user="postgres", database="postgres", options="-c geqo=off --work-mem=1MB",
                        client_encoding="LATIN1"),
}


# With guard: transaction: why these differ.
GUARDED_OTHERWISE = {
    "notices": "client_min_messages = debug5 shows each message of the protocol",
    "extended": "a name that was not prepared is refused in other words",
}
if version() >= 18:
    GUARDED_OTHERWISE["queries without sync"] = "the server leaves the block open, and says XX000 (StartTransactionCommand)"


def without_places(replies):
    return [(kind, b"\0".join(part for part in body.split(b"\0") if part[:1] not in b"FLR") if kind in (b"E", b"N") else body)
            for kind, body in replies]


class Differential(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer(max_stack_depth="1MB"))
        cls.server.install()
        cls.server.sql("CREATE TABLE things (n int PRIMARY KEY, name text)")
        cls.server.user("alice")
        cls.server.sql("GRANT ALL ON things TO alice")
        cls.monitor = cls.enterClassContext(PgGate(cls.server, policy={"mode": "monitor"}))
        cls.enforce = cls.enterClassContext(PgGate(cls.server))
        cls.allow = cls.enterClassContext(PgGate(cls.server, policy={"missing_token": "allow"}))

    def replies(self, port, data, piece=1 << 16, opening=None, **parameters):
        self.server.sql("TRUNCATE things")
        with Wire(port, opening=opening, **parameters) as wire:
            return [self.comparable(*one) for one in split(wire.converse(data, piece))]

    @staticmethod
    def comparable(kind, body):
        """Process ids and keys differ; so does the place of a NOTIFY's sender."""
        return (kind, b"") if kind == b"K" else (kind, body[4:]) if kind == b"A" else (kind, body)

    def assert_same(self, found, expected):
        """Shows the first difference only: the rest is long, and follows from it."""
        differing = (n for n, both in enumerate(zip(found, expected)) if both[0] != both[1])
        at = next(differing, min(len(found), len(expected)))
        if found != expected:
            parts = (expected[max(0, at - 3) : at], found[at : at + 3], expected[at : at + 3])
            before, instead, wanted = ([(kind, body[:200]) for kind, body in part] for part in parts)
            self.fail(f"behind {before} came {instead}, not {wanted}")

    def same(self, gate, piece=1 << 16, but=(), places=True, **parameters):
        """`but`: without these scripts. `places`: in the server's source, where an error was raised, count, too."""
        for title, script in SCRIPTS.items():
            if title in but:
                continue
            with self.subTest(title, piece=piece):
                data = b"".join(script) + TERMINATE
                # Byte by byte, the large ones take too long.
                size = piece if len(data) < 1 << 18 else 1 << 16
                expected = self.replies(self.server.port, data, **parameters)
                found = self.replies(gate.port, data, size, **parameters)
                if not places:
                    found, expected = map(without_places, (found, expected))
                self.assert_same(found, expected)
                self.assertGreater(len(expected), 15)
        self.assertEqual(gate.metric("protocol_errors_total", side="client"), 0)
        self.assertEqual(gate.metric("protocol_errors_total", side="backend"), 0)

    def test_monitor_mode_without_a_tag(self):
        self.same(self.monitor)

    def test_monitor_mode_with_guard_transaction(self):
        self.same(self.start(PgGate(self.server, guard="transaction", policy={"mode": "monitor"})))

    def test_monitor_mode_in_pieces(self):
        self.same(self.monitor, piece=3)

    def test_armed_sessions(self):
        self.same(self.enforce, user="alice", options="-c fencing.tokens=orders=34")

    def test_armed_sessions_in_pieces(self):
        self.same(self.enforce, piece=7, user="alice", options="-c fencing.tokens=orders=34")

    def test_guarded_transactions(self):
        gate = self.start(PgGate(self.server, guard="transaction", extra={"pooled": False}))
        for piece in (1 << 16, 7):
            self.same(gate, piece, user="alice", options="-c fencing.tokens=orders=34", but=GUARDED_OTHERWISE, places=False)

    def test_sessions_without_a_token(self):
        self.same(self.allow)

    def test_openings(self):
        # Who sends more to a server that refuses risks a reset that overtakes the reason.
        for title, opening in (OPENINGS | REFUSED_OPENINGS).items():
            with self.subTest(title):
                data = query("SHOW geqo") + TERMINATE if title in OPENINGS else b""
                expected = self.replies(self.server.port, data, opening=opening)
                for gate in (self.monitor, self.allow):
                    self.assert_same(self.replies(gate.port, data, opening=opening), expected)


if __name__ == "__main__":
    main()
