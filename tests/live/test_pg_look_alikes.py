"""The gate's own statements run in sessions whose search_path the client chose. Nothing that is named like a function, an
operator, a type or a table of PostgreSQL's or of the fence is ever taken for it."""

import unittest

import psycopg2

from postgres import PgGate, run_sql
from test_pg_gate import PgGateTest

# One of each function and operator of PostgreSQL that a user can make, and of the fence; each fails when it is called.
LOOK_ALIKES = """
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false);
CREATE DOMAIN evil.int4 AS pg_catalog.int4 CHECK (false);
CREATE DOMAIN evil.int8 AS pg_catalog.int8 CHECK (false);
CREATE DOMAIN evil.bool AS pg_catalog.bool CHECK (false);
CREATE TABLE evil.marks AS SELECT 'none' AS resource, 99::pg_catalog.int8 AS mark;
CREATE TABLE evil.sessions AS SELECT 'none' AS resource;
GRANT ALL ON evil.marks, evil.sessions TO PUBLIC;
DO $do$
DECLARE
  one record;
  failing constant pg_catalog.text := 'LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION $t$fooled$t$; END $$';
BEGIN
  FOR one IN
    SELECT p.proname, p.proretset, p.prorettype::regtype AS result,
           (SELECT string_agg(format_type(t, NULL), ', ' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY x(t, n)) AS types
      FROM pg_proc p WHERE p.pronamespace IN ('pg_catalog'::regnamespace, 'fencegate'::regnamespace) LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s %s %s', one.proname, one.types,
                     CASE WHEN one.proretset THEN 'SETOF' END, one.result, failing);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  FOR one IN
    SELECT o.oid, o.oprname, format_type(nullif(o.oprleft, 0), NULL) AS l, format_type(o.oprright, NULL) AS r,
           o.oprresult::regtype AS result FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION evil.o%s(%s) RETURNS %s %s', one.oid, concat_ws(', ', one.l, one.r), one.result, failing);
      EXECUTE format('CREATE OPERATOR evil.%s (FUNCTION = evil.o%s, %s RIGHTARG = %s)', one.oprname, one.oid,
                     'LEFTARG = ' || one.l || ',', one.r);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
END $do$;
"""
TEMPORARY = [f"CREATE TEMP TABLE {name} ()" for name in ("marks", "sessions", "settings", "pg_locks", "pg_roles",
                                                         "pg_database", "pg_stat_activity")]
PATH = "-c search_path=evil,pg_catalog "


class LookAlikes(PgGateTest):
    gate_options = {"comment_tags": "lead"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.sql(LOOK_ALIKES)
        cls.server.sql("GRANT fencegate_gate TO alice")

    def hostile(self, token, gate=None, **more):
        client = self.connect(token, gate, options=PATH, **more)
        for text in TEMPORARY + ["SET search_path = pg_temp, evil, pg_catalog"]:
            run_sql(client, text)
        with self.assertRaisesRegex(psycopg2.Error, "fooled"):
            run_sql(client, "SELECT 1 WHERE 1 = 2")
        return client

    def write(self, connection, who):
        run_sql(connection, f"INSERT INTO public.writes (who) VALUES ('{who}')")

    def test_there_are_many(self):
        counts = self.server.sql("SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = 'evil'::regnamespace), "
                                 "(SELECT count(*) FROM pg_operator WHERE oprnamespace = 'evil'::regnamespace)")
        self.assertGreater(min(counts[0]), 700)

    def test_arming_cutting_and_refusing(self):
        old = self.hostile(34)
        self.assertEqual(self.mark(), 34)
        self.write(old, "old")
        run_sql(old, f"/*fence:{self.resource}.more=5*/ INSERT INTO public.writes (who) VALUES ('tagged')")
        self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", self.resource + ".more"), 5)
        self.rejected("ZF001", run_sql, old, f"/*fence:{self.resource}=33*/ INSERT INTO public.writes VALUES ('stale')")
        self.rejected("ZF003", run_sql, old, "/*fence:orders=x*/ INSERT INTO public.writes VALUES ('stale')")
        new = self.hostile(35)
        self.write(new, "new")
        with self.assertRaises(psycopg2.Error):
            self.write(old, "stale")
        self.assertIn(f"token 34 of {self.resource} is below mark 35", old.info.error_message)
        self.rejected("ZF001", self.hostile, 34)
        self.assertEqual(self.written(), ["old", "tagged", "new"])

    def test_guarded_transactions(self):
        with PgGate(self.server, guard="transaction", user="alice") as gate:
            old = self.hostile(34, gate)
            self.write(old, "old")
            for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
                run_sql(old, "BEGIN ISOLATION LEVEL " + level)
                self.write(old, level)
                run_sql(old, "COMMIT")
            new = self.hostile(35, gate)
            for begin in ([], ["BEGIN ISOLATION LEVEL SERIALIZABLE"]):
                for text in begin:
                    run_sql(old, text)
                self.rejected("ZF001", self.write, old, "stale")
            self.write(new, "new")
            self.assertEqual(self.written(), ["old", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "new"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
