"""Each encoding in which a client may speak to PostgreSQL, through the gate: what it says and hears is what it would be
without the gate, and its tags are found."""

from live_test import LiveTest, main
from pg_wire import SYNC, TERMINATE, Wire, bind, describe, execute, fields, parse, query, split
from postgres import PgGate, PostgresServer

# Of each alphabet a few; among them characters with the byte of a quote's neighbour, a backslash or a bracket, in theirs.
CHARACTERS = "éÿőĭşĒĄЯжΩאغกơ日本ソ表能功한뱇똠¥€"


class Encodings(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.user("alice")
        cls.server.sql("GRANT fencegate_gate TO alice")
        cls.server.sql("CREATE TABLE writes (who text)")
        cls.server.sql("GRANT ALL ON writes TO alice")
        cls.server.sql("""CREATE FUNCTION bytes_in(text text, encoding text) RETURNS bytea LANGUAGE plpgsql AS
            $$ BEGIN RETURN CASE WHEN convert_from(convert_to(text, encoding), encoding) = text
                                 THEN convert_to(text, encoding) END; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$""")
        # Into UTF8 there is no way from MULE_INTERNAL: the server refuses it.
        cls.encodings = [row[0] for row in cls.server.sql(
            "SELECT pg_encoding_to_char(n) FROM generate_series(0, 99) n "
            "WHERE pg_encoding_to_char(n) NOT IN ('', 'MULE_INTERNAL')")]
        assert len(cls.encodings) > 39, cls.encodings

    def sample(self, encoding):
        """Characters that it has, and their bytes. Some are not read back as they were written."""
        pairs = self.server.sql("SELECT c, bytes_in(c, %s) FROM unnest(%s) c", encoding, list(CHARACTERS))
        kept = [(character, bytes(data)) for character, data in pairs if data is not None]
        return "".join(c for c, _ in kept), b"".join(data for _, data in kept)

    def replies(self, port, encoding, data, **parameters):
        with Wire(port, user="alice", client_encoding=encoding, **parameters) as wire:
            return [(kind, b"" if kind == b"K" else body) for kind, body in split(wire.converse(data))]

    def test_what_is_said_and_heard_is_the_same(self):
        gate = self.start(PgGate(self.server))
        for encoding in self.encodings:
            with self.subTest(encoding):
                text, data = self.sample(encoding)
                says = [query(b"SELECT '" + data + b"', length('" + data + b"')"), query(b"/* " + data + b" */ SELECT 1"),
                        query(b'SELECT "' + data + b'"'), query(b"DO $$BEGIN RAISE NOTICE '" + data + b"'; END$$"),
                        parse(b"SELECT $1::text, '" + data + b"'") + bind(data) + describe(b"P") + execute() + SYNC,
                        query(b"SELECT 'one', E'\\n" + data + b"' /* " + data + b" */"), TERMINATE]
                expected = self.replies(self.server.port, encoding, b"".join(says))
                found = self.replies(gate.port, encoding, b"".join(says),
                                     options=f"-c fencing.tokens=encodings.{encoding}=34")
                self.assertEqual(found, expected)
                if encoding != "SQL_ASCII":  # which says nothing of such characters
                    self.assertTrue(text)
                    self.assertEqual(sum(data in body for kind, body in expected if kind == b"D"), 3)

    def test_a_tag_is_found_beside_it(self):
        gate = self.start(PgGate(self.server, policy={"missing_token": "allow"}, comment_tags="lead"))
        for encoding in self.encodings:
            with self.subTest(encoding):
                data = self.sample(encoding)[1] or b"ascii"
                resource = f"tags.{encoding}"
                for statement in (f"/*fence:{resource}=5*/ SELECT '".encode() + data + b"'",
                                  b"SELECT '" + data + f"' /*fence:{resource}=6*/".encode()):
                    found = self.replies(gate.port, encoding, query(statement) + TERMINATE)
                    self.assertEqual([body for kind, body in found if kind == b"E"], [])
                    self.assertEqual(self.server.sql("SELECT mark FROM fencegate.marks WHERE resource = %s", resource), [(5,)])

    def test_guarded_transactions_write_what_was_said(self):
        gate = self.start(PgGate(self.server, guard="transaction", user="alice"))
        for encoding in self.encodings:
            if encoding == "SQL_ASCII":
                continue
            with self.subTest(encoding):
                self.server.sql("TRUNCATE writes")
                text, data = self.sample(encoding)
                found = self.replies(gate.port, encoding, query(b"INSERT INTO writes VALUES ('" + data + b"')") + TERMINATE,
                                     options=f"-c fencing.tokens=encodings.{encoding}=34")
                states = [fields(body)["C"] for kind, body in found if kind == b"E"]
                written = [row[0] for row in self.server.sql("SELECT who FROM writes")]
                self.assertEqual((states, written), ([], [text]))


if __name__ == "__main__":
    main()
