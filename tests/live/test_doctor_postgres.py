"""fencegate doctor in front of PostgreSQL: each hazard in a database that has it, and none in one that has none."""

import contextlib

from cut_proxy import CutProxy
from doctor import DoctorTest
from live_test import main
from pg_versions import version
from postgres import PgGate, PostgresServer, PostgresStandby, run_sql, schema_text
from processes import eventually, free_port


class Postgres(DoctorTest):

    def server(self, install=True, **conf):
        server = self.start(PostgresServer(**{"fsync": "on", "full_page_writes": "on"} | conf))
        server.user("gate")
        if install:
            server.install(gate_users=["gate"])
        return server

    def look_at(self, server, user="gate", database="postgres", port=None, **gate):
        url = f"postgres://{user}@127.0.0.1:{port or server.port}/{database}"
        return self.look(server.folder, gates=[{"name": "db", "protocol": "postgres", "listen": f"127.0.0.1:{free_port()}",
                                                "upstream": url} | gate])

    def assert_only(self, server, hazard, *words, **look):
        hazards, unknown = self.look_at(server, **look)
        self.assertEqual((list(hazards), unknown), ([hazard], []))
        for word in words:
            self.assertIn(word, " ".join(hazards[hazard]))

    def test_none(self):
        server = self.server()
        self.assertEqual(self.look_at(server), ({}, []))
        self.assertEqual(self.look_at(server, user="postgres"), ({}, []))

    def test_fsync(self):
        self.assert_only(self.server(fsync="off"), "postgres-fsync-off", "fsync is off")

    def test_synchronous_commit(self):
        server = self.server()
        server.sql("ALTER ROLE gate SET synchronous_commit = off")
        self.assert_only(server, "postgres-synchronous-commit", "is off for role gate")
        server.sql("ALTER ROLE gate RESET synchronous_commit")
        server.sql("ALTER DATABASE postgres SET synchronous_commit = off")
        self.assert_only(server, "postgres-synchronous-commit", "for the sessions of this database")
        server.sql("ALTER DATABASE postgres SET synchronous_commit = local")  # nobody else has to have it
        self.assertEqual(self.look_at(server), ({}, []))

    def test_standbys(self):
        server = self.server()
        standby = self.start(PostgresStandby(server))
        eventually(lambda: server.value("SELECT state FROM pg_stat_replication") == "streaming")
        self.assert_only(server, "postgres-asynchronous-standby", "1 standby streams")
        hazards, _ = self.look_at(standby)
        self.assertIn("postgres-standby", hazards)
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        server.sql("SELECT pg_reload_conf()")
        eventually(lambda: server.value("SELECT sync_state FROM pg_stat_replication") == "sync")
        hazards, unknown = self.look_at(server)
        self.assertEqual(hazards, {})
        self.assertEqual(len(unknown), 1)
        self.assertIn("whether its standbys are synchronous: the gate's user may not see that", unknown[0])
        server.sql("GRANT pg_read_all_stats TO gate")
        self.assertEqual(self.look_at(server), ({}, []))
        server.sql("ALTER ROLE postgres SET synchronous_commit = local")
        self.assert_only(server, "postgres-synchronous-commit", "is local for role postgres")

    def test_the_schema(self):
        server = self.server(install=False)
        self.assert_only(server, "postgres-schema-missing")
        server.install(gate_users=["gate"])
        server.sql("CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE RETURN 6")
        self.assert_only(server, "postgres-schema-older", "version 6")
        server.sql("CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE RETURN 99")
        self.assert_only(server, "postgres-schema-newer", "version 99")

    def test_rights(self):
        server = self.server()
        server.sql("REVOKE fencegate_gate FROM gate")
        hazards, unknown = self.look_at(server)
        self.assertEqual(hazards, {"postgres-gate-rights": ["gate is no member of fencegate_gate"]})
        self.assertEqual(len(unknown), 1)
        server.sql("GRANT fencegate_gate TO gate")
        for role in ("pg_signal_backend", "pg_read_all_stats"):
            server.sql(f"REVOKE {role} FROM fencegate_owner")
            self.assert_only(server, "postgres-cannot-end-sessions", f"lacks {role}")
            server.sql(f"GRANT {role} TO fencegate_owner")

    def test_who_may_change_marks(self):
        server = self.server()
        server.user("mallory")
        for grant in ("pg_write_all_data TO", "fencegate_owner TO", "UPDATE ON fencegate.marks TO", "DELETE ON fencegate.sessions TO"):
            server.sql(f"GRANT {grant} mallory")
            self.assert_only(server, "postgres-forgeable-marks", "mallory may write")
            server.sql(f"REVOKE {grant.removesuffix('TO')} FROM mallory")
        self.assertEqual(self.look_at(server), ({}, []))

    def test_protected_tables(self):
        server = self.server()
        server.sql("CREATE TABLE orders (id integer) PARTITION BY RANGE (id)")
        server.sql("CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (10)")
        server.sql("SELECT fencegate.protect('orders', 'orders')")
        self.assertEqual(self.look_at(server), ({}, []))
        server.sql("CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (10) TO (20)")
        self.assert_only(server, "postgres-unprotected", "public.orders_2: a partition or child without the trigger")
        server.sql("SELECT fencegate.protect('orders', 'orders')")
        server.sql("ALTER TABLE orders_1 DISABLE TRIGGER fencegate_protect")
        self.assert_only(server, "postgres-unprotected", "public.orders_1: its trigger is not ENABLE ALWAYS")
        server.sql("SELECT fencegate.protect('orders', 'orders')")
        server.sql("CREATE TABLE above (id integer)")
        server.sql("CREATE TABLE items (id integer)")
        server.sql("SELECT fencegate.protect('items', 'orders')")
        server.sql("ALTER TABLE items INHERIT above")
        self.assert_only(server, "postgres-unprotected", "public.items: writes by the name of its parent")
        server.sql("SELECT fencegate.protect('items', 'orders')")
        self.assertEqual(self.look_at(server), ({}, []))

    def test_owners_of_protected_tables(self):
        server = self.server()
        server.user("alice")
        server.sql("CREATE TABLE items (id integer)")
        server.sql("SELECT fencegate.protect('items', 'orders')")
        server.sql("ALTER TABLE items OWNER TO alice")
        self.assert_only(server, "postgres-protected-owner", "alice owns public.items")
        server.sql("CREATE ROLE owners NOLOGIN")
        server.sql("ALTER TABLE items OWNER TO owners")
        self.assertEqual(self.look_at(server), ({}, []))
        server.sql("GRANT owners TO alice")
        self.assert_only(server, "postgres-protected-owner", "alice owns public.items")
        server.sql("REVOKE owners FROM alice")
        server.sql("ALTER ROLE alice NOINHERIT")
        server.sql("GRANT owners TO alice")
        self.assertEqual(self.look_at(server), ({}, []))

    def test_what_blocks_raises(self):
        server = self.server()
        with contextlib.closing(server.connect()) as holder:
            holder.autocommit = False
            run_sql(holder, "LOCK TABLE fencegate.marks IN SHARE MODE")
            self.assert_only(server, "postgres-blocked-raises", "table fencegate.marks by postgres")
        eventually(lambda: self.look_at(server) == ({}, []))

    def test_prepared_transactions(self):
        server = self.server(max_prepared_transactions=5)
        self.assert_only(server, "postgres-prepared-transactions", "max_prepared_transactions is 5")
        with contextlib.closing(server.connect()) as session:
            session.autocommit = False
            run_sql(session, "CREATE TABLE left_behind ()")
            run_sql(session, "PREPARE TRANSACTION 'forgotten'")
        self.assert_only(server, "postgres-prepared-transactions", "the database has 1 now")
        server.sql("ROLLBACK PREPARED 'forgotten'")

    def test_a_restored_copy(self):
        server = self.server()
        server.sql("CREATE DATABASE copy")
        # What pg_restore does: the settings of the one, and a secret that is filled anew.
        server.install("copy")
        with contextlib.closing(server.connect(database="copy")) as copy:
            run_sql(copy, "UPDATE fencegate.settings SET secret_hash = %s", server.value("SELECT secret_hash FROM fencegate.settings"))
            self.assert_only(server, "postgres-restored-copy", database="copy")
            run_sql(copy, "SELECT fencegate.accept_copy()")
        self.assertEqual(self.look_at(server, database="copy"), ({}, []))

    def test_names_are_the_servers_own(self):
        server = self.server()
        server.sql("CREATE SCHEMA evil")
        server.sql("CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'off' $$")
        server.sql("GRANT USAGE ON SCHEMA evil TO PUBLIC")
        server.sql("ALTER DATABASE postgres SET search_path = evil, pg_catalog")
        self.assertEqual(self.look_at(server), ({}, []))

    def test_who_does_not_answer(self):
        server = self.server()
        proxy = self.start(CutProxy(server.port))
        proxy.freeze()
        hazards, unknown = self.look_at(server, port=proxy.port, timeouts={"connect": "300ms"})
        self.assertEqual((hazards, len(unknown)), ({}, 1))
        self.assertIn("anything of it: ", unknown[0])
        with contextlib.closing(server.connect()) as holder:
            holder.autocommit = False
            run_sql(holder, "LOCK TABLE pg_trigger IN ACCESS EXCLUSIVE MODE")  # in the middle of what is asked
            hazards, unknown = self.look_at(server, timeouts={"connect": "300ms"})
            self.assertEqual((hazards, len(unknown)), ({}, 1))
            self.assertIn("anything of it: ", unknown[0])
        _, unknown = self.look_at(server, user="nobody")
        self.assertIn('role "nobody" does not exist', unknown[0])

    def test_strict(self):
        server = self.server(fsync="off")
        with self.assertRaisesRegex(RuntimeError, "(?s)postgres-fsync-off.*strict: true, and there is 1 hazard"):
            with PgGate(server, user="gate", process={"strict": True}):
                pass
        safe = self.server()
        self.start(PgGate(safe, user="gate", process={"strict": True}))


if __name__ == "__main__":
    main()
