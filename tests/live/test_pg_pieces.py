"""guard: transaction before messages of several statements whose text is hard to split: the server's answers and data are
those of a direct client, and nothing of a stale one is stored. Where the two would differ is where the gate's reading of SQL
differs from the server's.

$FENCEGATE_PIECES_SEED: the random numbers."""

import contextlib
import os
import random
import time

from pg_wire import SYNC, Wire, bind, execute, fields, parse, query
from pg_versions import version
from postgres import PgGate, PostgresServer
from live_test import LiveTest, main
from test_pg_differential import without_places

SEED = int(os.environ.get("FENCEGATE_PIECES_SEED", str(time.time_ns() % 1_000_000)))
MESSAGES, STALE = 250, 50
SYNTAX_ERROR = "42601"

BLANKS = (" ", "\n", "\t\r\f", "/**/", " /* ; */ ", "/* /* ; */ ' */", "/*$$*/", '/*"*/', "/*'*/", " -- ;'\n", "--\r", "--$$;\n", "/*--*/",
          "/***/", "/*/**/*/", "--/*\n")
LITERALS = ("1", "4/2", "2-1", "1.5e0", "- -1", "'a;b'", "'it''s; --'", "'/*;'", "'$$;'", "''';'''", "N';'", "E'\\';'", "e'\\\\'", "E'''\\';'",
            "E'a' -- ;\n '\\';'", "'a' -- ;\n ';'", "$$;$$", "$$'$$", "$a$;$$;'$a$", "$\u00e9$;$\u00e9$", "$_1$ ; $a$ $_1$", "$a$$b$$a$",
            "(SELECT ';')", "ARRAY['(;', ')']", "CASE WHEN true THEN ';' END", "(VALUES (E'\\\\;'))", "X'3b'", "1::text", "'\\\\'", "'a' < ';'")
# How '…' is read is a setting; the server refuses U&'…' where backslashes escape.
CONFORMING = ("'\\'", "'\\' || ';'", "'\\'';'", "U&'\\003b;'", "U&'!003b;' UESCAPE '!'", "'a\\'\n';\\'")
ESCAPING = ("'\\';'", "'''\\';'", "'\\\\' || ';'", "'a\\\\\\';'", "'a\\''\n';\\''")
ALIASES = ("", "", " AS a", " a$$", " a$$b$$", " e$1$", " \u00e9$a$", ' "a;b"', ' "a"";"', ' "\\"', " \"'\"", ' "$$"', ' AS "--"', ' "/*"', " begin_", " AS end")
STATEMENTS = (
    "SELECT#@^,#@^", "SELECT#@^,@#", "INSERT INTO said#VALUES ((@)::text)", "INSERT INTO said SELECT(@)::text", "SELECT word || '' FROM said LIMIT 0", "(SELECT#@)",
    "WITH x AS (INSERT INTO said#VALUES ((@)::text) RETURNING 1)#SELECT @ FROM x", "VALUES#(@,(@)::text)#", "SELECT @ AS a WHERE#1=1",
    "DO $d$BEGIN#INSERT INTO said VALUES (';'); END$d$", "do 'BEGIN PERFORM 1; END'",
    "create or#replace FUNCTION f() RETURNS text BEGIN ATOMIC#SELECT (@)::text; SELECT CASE#WHEN true THEN (@)::text END; END",
    "CREATE OR REPLACE#PROCEDURE p() BEGIN ATOMIC INSERT INTO said VALUES ((@)::text); END", "CREATE OR REPLACE FUNCTION g() RETURNS text "
    "LANGUAGE sql AS $b$SELECT 1;#SELECT 'x;'$b$", "CREATE OR REPLACE FUNCTION h(a text DEFAULT @) RETURNS text LANGUAGE sql RETURN 'end;'",
    "CREATE OR REPLACE RULE r AS ON UPDATE TO said DO ALSO (NOTIFY a;#NOTIFY b)", "COMMENT ON TABLE said IS#$$;$$", "SHOW#work_mem", "SET#work_mem = '4MB'",
    "")
BLOCKS = ("BEGIN", "START#TRANSACTION", "COMMIT", "END", "ROLLBACK", "COMMIT#AND CHAIN", "SAVEPOINT a")
# Before PostgreSQL 15, a number ends where its digits do. The gate reads as the later ones, and has the others refuse it.
NUMBERS = ("SELECT 1a$$", "SELECT 1e$$; SELECT 1 AS b$$", "SELECT 0x$$; SELECT 1$$", "SELECT 1_$$", "SELECT 1.5a$$;SELECT 1 a$$")
REFUSED = ("SELEC", "SELECT 'no end;", "SELECT $$;", "SELECT $a$;$b$", "SELECT /* ;", "SELECT \"a;", "SELECT (1;SELECT 2)", "SELECT E'\\';",
           "SELECT 1);SELECT 2", "SELECT '\\'; SELECT ';'", "CREATE FUNCTION bad() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2",
           "CREATE TABLE end; BEGIN; SELECT 1; END", "SELECT 1; \\; SELECT 2", "SELECT 1 $$", "$$")
LARGE = f"SELECT 1;SELECT length('{'x' * 300_000}');"  # in front of others: then the gate splits the message when it has all of it


class Talker:
    def __init__(self, luck, conforming, doubtful):
        self.luck, self.doubtful = luck, doubtful
        self.literals = LITERALS + (CONFORMING if conforming else ESCAPING)

    def filled(self, pattern):
        made = {"#": BLANKS, "@": self.literals, "^": ALIASES}
        return "".join(self.luck.choice(made[one]) if one in made else one for one in pattern)

    def message(self):
        luck = self.luck
        count = luck.randrange(1, 7)
        texts = [self.filled("#" + luck.choice(STATEMENTS)) for _ in range(count)]
        odds = luck.random()
        if odds < .3:
            texts.insert(luck.randrange(count), self.filled(luck.choice(self.doubtful)))
        elif odds < .5:
            texts = [one for one in texts if "$d$" not in one and "PERFORM" not in one]  # a DO gets a block of the gate's own
            for _ in range(luck.randrange(1, 4)):
                texts.insert(luck.randrange(len(texts) + 1), self.filled("#" + luck.choice(BLOCKS)))
        elif odds < .55:
            texts.append("SELECT 1/0")
        large = LARGE if luck.random() < .05 else ""
        return large + self.filled("#;").join(texts) + self.filled(luck.choice(("", ";", "#", "#;#")))


class Pieces(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.user("alice")
        for schema in ("direct", "guarded", "stale"):
            cls.server.sql(f"CREATE SCHEMA {schema} AUTHORIZATION alice; SET ROLE alice; CREATE TABLE {schema}.said (word text); RESET ROLE")
        cls.gate = cls.enterClassContext(PgGate(cls.server, guard="transaction", extra={"pooled": False}))

    def wire(self, port, schema, conforming, token=""):
        wire = self.start(Wire(port, user="alice", options=f"-c search_path={schema} {token} "
                               f"-c standard_conforming_strings={conforming} -c escape_string_warning=off"))
        wire.until_ready()
        return wire

    @staticmethod
    def answers(wire, sql):
        wire.send(query(sql))
        found = without_places(wire.until_ready())
        # Success in front of a COMMIT is told behind what that has to say.
        return [one for one in found if one[0] == b"N"] + [one for one in found if one[0] not in (b"N", b"S")]

    @staticmethod
    def is_refused(answers):
        """By the grammar, as a whole."""
        errors = [fields(body)["C"] for kind, body in answers if kind == b"E"]
        return errors == [SYNTAX_ERROR] and {kind for kind, _ in answers} <= {b"N", b"E", b"Z"}

    def compare(self, conforming, luck):
        talker = Talker(luck, conforming == "on", REFUSED + (NUMBERS if version() >= 15 else ()))
        direct = self.wire(self.server.port, "direct", conforming)
        guarded = self.wire(self.gate.port, "guarded", conforming, f"-c fencing.tokens={conforming}=1")
        accepted = 0
        for _ in range(MESSAGES):
            sql = talker.message()
            expected, found = (self.answers(wire, sql) for wire in (direct, guarded))
            if self.is_refused(expected):
                # What stands in front of the error was run, may have failed first, and is taken back.
                found, expected = ([one[-2][0], one[-1]] for one in (found, expected))
            else:
                accepted += 1
            self.assertEqual(found, expected, f"seed {SEED}: {sql[-5000:]!r}")
            if expected[-1] != (b"Z", b"I"):
                self.assertEqual(self.answers(guarded, "COMMIT"), self.answers(direct, "COMMIT"))
        return accepted

    def test_answers_and_data_are_the_servers(self):
        luck = random.Random(SEED)
        for conforming in ("on", "off"):
            self.assertGreater(self.compare(conforming, luck), MESSAGES // 2)
        words = [self.server.sql(f"SELECT word, count(*) FROM {schema}.said GROUP BY 1 ORDER BY 1") for schema in ("direct", "guarded")]
        self.assertEqual(*words)
        self.assertGreater(len(words[0]), 20)

    def test_nothing_stale_is_stored(self):
        luck = random.Random(SEED)
        for number in range(STALE):
            conforming = luck.choice(("on", "off"))
            talker = Talker(luck, conforming == "on", REFUSED + NUMBERS)
            stale = self.wire(self.gate.port, "stale", conforming, f"-c fencing.tokens=r{number}=1")
            self.server.sql("SELECT fencegate.raise(%s, 2)", f"r{number}")
            write = talker.filled("#INSERT INTO said#VALUES ((@)::text)#")
            if luck.random() < .3:
                stale.send(parse(write) + bind() + execute() + SYNC)
            else:
                stale.send(query(";".join((talker.message(), write, talker.message()))))
            with stale, contextlib.suppress(ConnectionError):  # it is told that it is stale, or that its text is wrong
                stale.until_ready()
        self.assertEqual(self.server.sql("SELECT * FROM stale.said"), [])


if __name__ == "__main__":
    main()
