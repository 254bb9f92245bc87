"""Tokens that come with single statements, in a comment: psycopg2 (simple protocol) and psycopg 3 (extended, too)."""

import psycopg
import psycopg2

from live_test import main
from pg_wire import SYNC, Wire, bind, execute, extended, fields, message, parse, query
from processes import LOOPBACK
from test_pg_gate import PgGateTest


class Comments:
    """Subclasses say which driver: `open()` and `run_on(connection, sql)`; `error` is its class of errors."""

    gate_options = {"policy": {"missing_token": "allow"}, "comment_tags": "lead"}

    def tagged(self, token, sql):
        return f"/*fence:{self.resource}={token}*/ {sql}"

    def insert(self, connection, token):
        self.run_on(connection, self.tagged(token, f"INSERT INTO writes (who) VALUES ('{token}')"))

    def refused(self, state, action, *arguments):
        with self.assertRaises(self.error) as caught:
            action(*arguments)
        self.assertEqual(self.state_of(caught.exception), state, str(caught.exception))
        return caught.exception

    def test_a_comment_arms_and_a_higher_one_arms_anew(self):
        client = self.open()
        self.run_on(client, "INSERT INTO writes (who) VALUES ('untagged')")
        for token in (34, 34, 35):
            self.insert(client, token)
            self.assertEqual(self.mark(), token)
        self.assertEqual(self.written(), ["untagged", "34", "34", "35"])

    def test_a_stale_comment_fails_alone(self):
        client = self.open()
        self.insert(client, 35)
        self.refused("ZF001", self.insert, client, 34)
        self.insert(client, 35)
        self.assertEqual(self.written(), ["35", "35"])

    def test_inside_a_transaction_another_token_is_malformed(self):
        client = self.open()
        self.insert(client, 34)
        self.run_on(client, "BEGIN")
        self.insert(client, 34)
        self.refused("ZF003", self.insert, client, 35)
        self.run_on(client, "ROLLBACK")
        self.assertEqual((self.written(), self.mark()), (["34"], 34))
        self.insert(client, 35)

    def test_a_malformed_comment(self):
        client = self.open()
        for tag in ("x", "034", "-1"):
            self.refused("ZF003", self.insert, client, tag)
        self.assertEqual(self.written(), [])

    def test_what_a_comment_armed_is_superseded(self):
        client = self.open()
        self.insert(client, 34)
        self.run_on(client, "BEGIN")
        self.insert(client, 34)
        self.connect(35)
        with self.assertRaises(self.error) as caught:
            self.run_on(client, "COMMIT")
        self.assertIn(f"token 34 of {self.resource} is below mark 35", self.last_words(client, caught.exception))
        self.assertEqual(self.written(), ["34"])


class Psycopg2(Comments, PgGateTest):
    error = psycopg2.Error

    def open(self):
        return self.connect()

    def run_on(self, connection, sql):
        with connection.cursor() as cursor:
            cursor.execute(sql)

    def state_of(self, error):
        return error.pgcode

    def last_words(self, connection, error):
        return connection.info.error_message


class Psycopg3(Comments, PgGateTest):
    error = psycopg.Error
    prepare = False

    def open(self):
        client = psycopg.connect(host=LOOPBACK, port=self.gate.port, user="alice", dbname="postgres", autocommit=True)
        self.addCleanup(client.close)
        return client

    def run_on(self, connection, sql):
        connection.execute(sql, prepare=self.prepare)

    def state_of(self, error):
        return error.sqlstate

    def last_words(self, connection, error):
        return str(error) + connection.info.error_message


class Psycopg3Prepared(Psycopg3):
    prepare = True

    def test_a_prepared_statement_keeps_its_token(self):
        client = self.open()
        self.insert(client, 34)
        self.insert(client, 35)
        self.refused("ZF001", self.insert, client, 34)
        self.insert(client, 35)
        self.assertEqual(self.written(), ["34", "35", "35"])

    def test_pipeline_mode(self):
        client = self.open()
        with client.pipeline():
            for _ in range(3):
                self.insert(client, 34)
        self.assertEqual(self.written(), ["34"] * 3)
        with self.assertRaises(psycopg.Error):
            with client.pipeline():
                self.insert(client, 33)
                self.insert(client, 34)
        self.assertEqual(self.written(), ["34"] * 3)
        self.insert(client, 35)


class RawMessages(PgGateTest):
    gate_options = Comments.gate_options

    def test_a_statement_that_was_parsed_under_an_older_token_is_stale_when_it_is_bound(self):
        wire = self.enterContext(Wire(self.gate.port, user="alice"))
        wire.until_ready()
        insert = "/*fence:%s=%d*/INSERT INTO writes (who) VALUES ('%d')"
        wire.send(parse(insert % (self.resource, 34, 34), "old"), SYNC)
        wire.until_ready()
        wire.send(query(insert % (self.resource, 35, 35)))
        wire.until_ready()
        for _ in range(3):
            wire.send(bind(statement="old"), execute(), SYNC)
            kinds = wire.until_ready()
            self.assertEqual([kind for kind, _ in kinds], [b"E", b"Z"])
            self.assertEqual(fields(kinds[0][1])["C"], "ZF001")
        self.assertEqual(self.written(), ["35"])

    def test_nothing_runs_an_older_statement_under_a_newer_token(self):
        wire = self.enterContext(Wire(self.gate.port, user="alice"))
        wire.until_ready()
        insert = "/*fence:%s=%d*/INSERT INTO writes (who) VALUES ('%d')"
        latin, utf8 = b"\xe9", "\u00e9".encode()
        for sent in (query("CREATE FUNCTION pg_temp.runs() RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE 'EXECUTE old'; END$$"),
                     query("SET client_encoding = 'LATIN1'"), parse("EXECUTE old", "runs") + SYNC,
                     parse(insert % (self.resource, 34, 34), "old") + SYNC,
                     parse(insert % (self.resource, 34, 34), latin) + SYNC,
                     query("SET client_encoding = 'UTF8'"), query(insert % (self.resource, 35, 35)),
                     message(b"C", b"Sold\0x\0") + SYNC):
            wire.send(sent)
            wire.until_ready()
        for sent in (query("EXECUTE old"), query(f"/*fence:{self.resource}=35*/ EXECUTE old"),
                     query("SELECT pg_temp.runs()"), query("EXPLAIN (ANALYZE) EXECUTE old"), query("DO $$BEGIN EXECUTE 'EXECUTE old'; END$$"),
                     bind(statement="runs") + execute() + SYNC, bind(statement="old") + execute() + SYNC,
                     bind(statement=utf8) + execute() + SYNC):
            wire.send(sent)
            self.assertIn(b"E", [kind for kind, _ in wire.until_ready()], sent)
        self.assertEqual(self.written(), ["35"])

    def test_another_token_in_the_middle_of_a_pipeline(self):
        wire = self.enterContext(Wire(self.gate.port, user="alice"))
        wire.until_ready()
        tagged = [f"/*fence:{self.resource}={token}*/INSERT INTO writes (who) VALUES ('{token}')" for token in (34, 35)]
        wire.send(extended(tagged[0]), extended(tagged[1]), SYNC, extended(tagged[1]), SYNC)
        first, second = wire.until_ready(), wire.until_ready()
        self.assertEqual([fields(body)["C"] for kind, body in first if kind == b"E"], ["ZF003"])
        self.assertNotIn(b"E", [kind for kind, _ in second])
        self.assertEqual((self.written(), self.mark()), (["35"], 35))


if __name__ == "__main__":
    main()
