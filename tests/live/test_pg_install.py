"""fencegate install: new, again, older, newer; what is refused; who may do what afterwards."""

import contextlib
import json
import os
import re
import subprocess

from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE
from documents import block
from pg_fence import FenceTest, Rejected
from postgres import PostgresServer, run_sql, schema_text, skip_without_client_tools
from pg_versions import version


def install(folder, *arguments, **gate):
    """Runs it with one gate; the finished process."""
    path = os.path.join(folder, "install.yaml")
    with open(path, "w") as file:
        json.dump({"gates": [{"name": "db", "protocol": "postgres", "listen": "127.0.0.1:6432"} | gate]}, file)
    return subprocess.run([os.environ["FENCEGATE"], "install", "-c", path, *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)


class Command(LiveTest):

    def setUp(self):
        self.server = self.start(PostgresServer())

    def run_install(self, *arguments, user="postgres", database="postgres", **gate):
        return install(self.server.folder, *arguments, upstream=self.server.url(user, database), **gate)

    def assert_installed(self, done, database="postgres"):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"gate db: 127.0.0.1:{self.server.port}/{database}: installed\n")

    def assert_failed(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for word in words:
            self.assertIn(word, done.stderr)

    def test_new_and_again(self):
        self.assert_installed(self.run_install(cut_timeout="7s", policy={"max_step": 9}))
        self.assertEqual(self.server.sql("SELECT max_step, cut_ms FROM fencegate.settings"), [(9, 7000)])
        self.server.user("alice")
        alice = self.server.connect("alice")
        run_sql(alice, "SELECT fencegate.arm('orders', 34)")
        state = "SELECT (SELECT array_agg(m) FROM fencegate.marks m), (SELECT array_agg(s) FROM fencegate.sessions s), " \
                "(SELECT secret FROM fencegate.secret)"
        before = self.server.sql(state)
        self.assert_installed(self.run_install())
        self.assertEqual(self.server.sql(state), before)
        self.assertEqual(self.server.sql("SELECT max_step, cut_ms FROM fencegate.settings"), [(2**40, 5000)])
        self.assertEqual(run_sql(alice, "SELECT fencegate.arm('orders', 34)"), [(34,)])
        alice.close()

    def test_what_is_printed_is_what_psql_can_run(self):
        self.server.sql("CREATE TABLE orders (id integer)")
        printed = self.run_install("--print", "--protect", "orders", "--resource", "orders", policy={"max_step": 3})
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        self.assertIsNone(self.server.value("SELECT to_regnamespace('fencegate')"))
        subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", LOOPBACK, "-p", str(self.server.port), "-U",
                        "postgres"], input=printed.stdout, text=True, stdout=subprocess.DEVNULL, check=True)
        self.assertEqual(self.server.sql("SELECT fencegate.version(), max_step FROM fencegate.settings"), [(NEWEST, 3)])
        self.assertEqual(self.server.value("SELECT count(*) FROM pg_trigger WHERE tgname = 'fencegate_protect'"), 1)

    def test_protect_and_unprotect(self):
        self.server.sql("CREATE TABLE orders (id integer)")
        self.assert_installed(self.run_install("--protect", "public.orders"))
        with self.assertRaisesRegex(Exception, "a write needs a fencing token"):
            self.server.sql("INSERT INTO orders VALUES (1)")
        self.assert_installed(self.run_install("--unprotect", "public.orders"))
        self.server.sql("INSERT INTO orders VALUES (1)")
        self.assert_failed(self.run_install("--protect", "nothing"), 'relation "nothing" does not exist')

    def protected(self):
        return [name for (name,) in self.server.sql("SELECT tgrelid::regclass::text FROM pg_trigger "
                                                    "WHERE tgname = 'fencegate_protect' ORDER BY 1")]

    def test_several_tables_behind_one_switch(self):
        tables = ["a", "b", "c", "d", "serve", "install"]  # some are called like commands
        for name in tables:
            self.server.sql(f"CREATE TABLE {name} (id integer)")
        self.assert_installed(self.run_install("--protect", "a", "serve", "install", "--gate", "db", "--protect=b", "--protect", "c"))
        self.assertEqual(self.protected(), ["a", "b", "c", "install", "serve"])
        self.assert_installed(self.run_install("--unprotect", "a", "b", "--protect", "d", "--database", "postgres"))
        self.assertEqual(self.protected(), ["c", "d", "install", "serve"])
        self.assert_failed(self.run_install("--protect", "a", "nothing", "b"), 'relation "nothing" does not exist')
        self.assertEqual(self.protected(), ["c", "d", "install", "serve"])  # all of them, or none

    def test_a_switch_without_its_table(self):
        for arguments in (["--protect"], ["--protect", "--print"], ["--protect", "--gate", "db"], ["--unprotect", "--print"]):
            done = self.run_install(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        self.assertIsNone(self.server.value("SELECT to_regnamespace('fencegate')"))

    def test_over_a_unix_socket_with_a_password(self):
        with PostgresServer(unix=True, hba=["local all maker scram-sha-256"]) as server:
            server.user("maker", "SUPERUSER", password="se@cret")
            url = f"postgres://maker:{{}}@/postgres?host={server.folder}&port={server.port}"
            done = install(server.folder, upstream=url.format("se%40cret"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = install(server.folder, upstream=url.format("wrong-one"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot connect", done.stderr)
            self.assertNotIn("wrong-one", done.stderr)

    def test_without_superuser(self):
        self.server.sql("CREATE DATABASE app")
        self.server.user("plain")
        self.assert_failed(self.run_install(user="plain", database="app"), "may not create the roles", "GRANT fencegate_owner TO plain")
        self.server.user("maker", "CREATEROLE")
        if version() >= 16:  # where CREATEROLE gives no role that it does not administer
            self.server.sql("GRANT pg_signal_backend, pg_read_all_stats TO maker WITH ADMIN OPTION")
        self.assert_failed(self.run_install(user="maker", database="app"), "GRANT CREATE ON DATABASE app TO maker")
        self.server.sql("GRANT CREATE ON DATABASE app TO maker")
        self.assert_installed(self.run_install(user="maker", database="app"), "app")
        self.assert_installed(self.run_install(user="maker", database="app"), "app")
        self.assert_failed(self.run_install(user="plain", database="app"), "GRANT fencegate_owner TO plain")
        # It left fencegate_owner again. (From 16 on, who made a role may grant it.)
        uses = self.server.sql("SELECT r FROM unnest('{fencegate_owner,fencegate_gate}'::text[]) r WHERE pg_has_role('maker', r, 'USAGE')")
        self.assertEqual(uses, [("fencegate_gate",)])
        gate = self.server.connect("maker", "app")
        self.assertEqual(run_sql(gate, "SELECT fencegate.raise('orders', 34)"), [(34,)])
        with self.assertRaisesRegex(Exception, "permission denied"):
            run_sql(gate, "UPDATE fencegate.marks SET mark = 1")
        gate.close()

    def test_what_the_hint_says_is_enough(self):
        self.server.sql("CREATE DATABASE app")
        self.server.sql("GRANT CREATE ON DATABASE app TO PUBLIC")
        for user, options in (("plain", []), ("maker", ["CREATEROLE"])):
            self.server.user(user, *options)
            done = self.run_install(user=user, database="app")
            if user == "maker" and version() < 16:
                self.assert_installed(done, "app")
            else:
                self.assertEqual(done.returncode, 1, done.stdout)
                self.server.sql(re.search(r"As a superuser: (.*;)", done.stderr).group(1))
                self.assert_installed(self.run_install(user=user, database="app"), "app")
            self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'app'")
            self.server.sql("DROP DATABASE app")
            self.server.sql("DROP ROLE fencegate_owner, fencegate_gate")
            self.server.sql("CREATE DATABASE app")
            self.server.sql("GRANT CREATE ON DATABASE app TO PUBLIC")

    def test_grants_that_a_superuser_made_before_are_enough(self):
        self.server.sql("CREATE DATABASE app")
        self.server.user("plain")
        self.server.sql("CREATE ROLE fencegate_owner NOLOGIN; CREATE ROLE fencegate_gate NOLOGIN; "
                        "GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner; GRANT fencegate_owner TO plain; "
                        "GRANT fencegate_gate TO plain WITH ADMIN OPTION; GRANT CREATE ON DATABASE app TO plain")
        self.assert_installed(self.run_install(user="plain", database="app"), "app")

    def test_users_with_an_isolation_of_their_own(self):
        self.server.sql("ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'")
        self.server.sql("ALTER ROLE postgres SET default_transaction_read_only = on")
        self.server.sql("ALTER ROLE postgres SET standard_conforming_strings = off")
        self.assert_installed(self.run_install())

    def test_a_server_that_is_not_there(self):
        self.server.kill()
        self.assert_failed(self.run_install(), "cannot connect")


NEWEST = 8
RAISED = "TABLE (resource text, mark bigint, raised boolean, cut integer)"
STUB = "LANGUAGE plpgsql AS 'BEGIN END'"

# What an upgrade finds of an older version: how each differs from the next in what is not made anew by name and arguments.
OLDER = {
    7: f"""DROP FUNCTION fencegate.lower, fencegate.check_lowering, fencegate.begin_change, fencegate.put_back, fencegate.stale,
             fencegate.used, fencegate.take, fencegate.arm_all, fencegate.raise_all, fencegate.spend, fencegate.look, fencegate.ended,
             fencegate.hold, fencegate.hold_one, fencegate.hold_all, fencegate.guard_under, fencegate.guard_one_under, fencegate.guard_all,
             fencegate.guarded_mark;
           DROP TABLE fencegate.lowerings;
           ALTER TABLE fencegate.marks DROP COLUMN lowering, DROP COLUMN was, DROP COLUMN lowered_from, DROP COLUMN lowered_by,
             DROP COLUMN lowered_role, DROP COLUMN lowered_why, DROP COLUMN lowered_at;
           CREATE FUNCTION fencegate.stale(r text, t bigint, m bigint) RETURNS void {STUB};
           CREATE FUNCTION fencegate.used(r text, t bigint) RETURNS void {STUB};
           CREATE FUNCTION fencegate.take(resources text[], tokens bigint[], cut_ms integer, max_step bigint, registers boolean,
             grace_ms integer DEFAULT 0, by_issuer uuid DEFAULT NULL, by_grant bytea DEFAULT NULL) RETURNS {RAISED} {STUB};
           CREATE FUNCTION fencegate.arm_all(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
             max_step bigint DEFAULT 0) RETURNS {RAISED} {STUB};
           CREATE FUNCTION fencegate.raise_all(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
             max_step bigint DEFAULT 0, grace_ms integer DEFAULT 0) RETURNS {RAISED} {STUB};
           CREATE FUNCTION fencegate.put_back(name text, seen bigint, cut_ms integer DEFAULT NULL, grace_ms integer DEFAULT 0)
             RETURNS {RAISED} {STUB};
           CREATE FUNCTION fencegate.spend(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
             max_step bigint DEFAULT 0, grace_ms integer DEFAULT 0) RETURNS {RAISED} {STUB};
           CREATE FUNCTION fencegate.look(resources text[]) RETURNS TABLE (resource text, mark bigint) {STUB};
           CREATE FUNCTION fencegate.ended(pid integer) RETURNS TABLE (resource text, token bigint, mark bigint, raising boolean)
             {STUB};
           CREATE FUNCTION fencegate.hold(resources text[], tokens bigint[], wait_ms integer DEFAULT NULL) RETURNS void {STUB};
           CREATE FUNCTION fencegate.hold_one(r text, t bigint) RETURNS boolean {STUB};
           CREATE FUNCTION fencegate.hold_all(resources text[], tokens bigint[], wait_ms integer) RETURNS void {STUB};
           CREATE FUNCTION fencegate.guard_all(resources text[], tokens bigint[], wait_ms integer) RETURNS void {STUB};
           CREATE FUNCTION fencegate.guarded_mark(r text, t bigint) RETURNS bigint {STUB}""",
    6: f"""DROP FUNCTION fencegate.seal, fencegate.lease_grant, fencegate.lease_renew, fencegate.lease_release,
             fencegate.lease_list, fencegate.lease_forget_store, fencegate.lease_thaw, fencegate.lease_wait, fencegate.lease_waiters,
             fencegate.move_issuer, fencegate.left_ms, fencegate.free_at,
             fencegate.begin_lease, fencegate.identity, fencegate.grant_hash,
             fencegate.incarnation, fencegate.check_sealed, fencegate.not_the_issuer, fencegate.raise_one, fencegate.take,
             fencegate.hold_one, fencegate.guard_one;
           DROP TABLE fencegate.leases, fencegate.waiters;
           ALTER TABLE fencegate.marks DROP COLUMN sealed, DROP COLUMN issuer, DROP COLUMN grant_hash;
           ALTER TABLE fencegate.settings DROP COLUMN store_id, DROP COLUMN issuer_id, DROP COLUMN incarnation;
           CREATE FUNCTION fencegate.raise_one(r text, t bigint, k bigint, spared timestamptz, deadline timestamptz,
             max_step bigint) RETURNS boolean {STUB};
           CREATE FUNCTION fencegate.hold_one(resources text[], tokens bigint[]) RETURNS boolean {STUB};
           CREATE FUNCTION fencegate.take(resources text[], tokens bigint[], cut_ms integer, max_step bigint, registers boolean,
             grace_ms integer DEFAULT 0) RETURNS {RAISED} {STUB}""",
    5: """DROP FUNCTION fencegate.guard_all;
          CREATE FUNCTION fencegate.seal_of(names text) RETURNS text LANGUAGE sql AS 'SELECT names'""",
    4: """DROP FUNCTION fencegate.is_copy, fencegate.accept_copy, fencegate.locks_of;
          CREATE FUNCTION fencegate.locks_of(key bigint) RETURNS TABLE (pid integer, mode text) LANGUAGE sql AS 'SELECT 1, $$$$';
          DROP MATERIALIZED VIEW fencegate.secret;
          DROP SCHEMA fencegate_private CASCADE;
          ALTER TABLE fencegate.settings DROP COLUMN secret_hash, ADD COLUMN secret text NOT NULL DEFAULT gen_random_uuid()::text;
          REVOKE ALL ON ALL TABLES IN SCHEMA fencegate FROM PUBLIC""",
    3: f"""DROP FUNCTION fencegate.guard(text[], bigint[], integer);
           CREATE FUNCTION fencegate.guard(resources text[], tokens bigint[]) RETURNS void {STUB} SECURITY DEFINER;
           GRANT EXECUTE ON FUNCTION fencegate.guard(text[], bigint[]) TO PUBLIC""",
    2: "DROP FUNCTION fencegate.spend, fencegate.used",
    1: f"""DROP FUNCTION fencegate.hold, fencegate.hold_all, fencegate.hold_one, fencegate.raise_all, fencegate.lock_exclusive,
             fencegate.raise_one, fencegate.take;
           CREATE FUNCTION fencegate.lock_exclusive(r text, t bigint, k bigint, deadline timestamptz) RETURNS void {STUB};
           CREATE FUNCTION fencegate.raise_one(r text, t bigint, k bigint, deadline timestamptz, max_step bigint) RETURNS boolean {STUB};
           CREATE FUNCTION fencegate.take(resources text[], tokens bigint[], cut_ms integer, max_step bigint, registers boolean)
             RETURNS {RAISED} {STUB};
           ALTER TABLE fencegate.settings DROP COLUMN grace_ms""",
}


class Schema(FenceTest):
    """The SQL alone."""

    def assert_refused(self, database, words, mutate=None, text=None):
        with self.assertRaisesRegex(Exception, words):
            self.server.install(database, mutate=mutate or (lambda schema: text or schema))

    def empty(self):
        name = f"empty{id(self)}"
        self.server.sql(f"CREATE DATABASE {name}")
        connection = self.server.connect(database=name)
        self.addCleanup(connection.close)
        return name, lambda text, *values: run_sql(connection, text, *values)

    def test_an_older_version_is_upgraded_with_its_marks(self):
        base = self.base(lambda schema: schema.replace(f"this_version constant integer := {NEWEST}", "this_version constant integer := 0")
                         .replace(f"PARALLEL SAFE RETURN {NEWEST};", "PARALLEL SAFE RETURN 0;")
                         .replace("FUNCTION fencegate.sweep() RETURNS", "FUNCTION fencegate.sweep(patience integer) RETURNS")
                         .replace("fencegate.sweep() TO", "fencegate.sweep(integer) TO"))
        self.assertEqual(base.value("SELECT fencegate.version()"), 0)
        base.sql("SELECT fencegate.protect('writes')")
        old = base.armed(33)
        self.server.install(base.name)
        self.assertEqual(base.value("SELECT fencegate.version()"), NEWEST)
        self.assertEqual(base.sql("SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'sweep'"),
                         [("fencegate.sweep()",)])
        self.assertEqual(base.mark(), 33)
        self.assertTrue(old.write("still armed"))
        self.assert_rejected(base.writer().run("INSERT INTO writes VALUES (1, 'x')"), "ZF002")
        base.armed(34)
        self.assertFalse(old.alive())

    def test_each_older_version_is_upgraded_and_again(self):
        newest = self.server.dump_schema(self.base().name)
        for found in OLDER:
            base = self.base()
            base.sql("SELECT fencegate.protect('writes', 'orders')")
            armed = base.armed(33)
            base.sql("SET ROLE fencegate_owner")
            for step in range(max(OLDER), found - 1, -1):
                base.sql(OLDER[step])
            base.sql("CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE "
                     f"RETURN {found}")
            base.sql("RESET ROLE")
            before = base.sql("SELECT max_step, cut_ms FROM fencegate.settings")
            self.assertNotEqual(self.server.dump_schema(base.name), newest)
            for _ in range(2):
                self.server.install(base.name)
                self.assertEqual(self.server.dump_schema(base.name), newest, found)
                self.assertEqual((base.value("SELECT fencegate.version()"), base.mark()), (NEWEST, 33))
                self.assertEqual(base.sql("SELECT max_step, cut_ms FROM fencegate.settings"), before)
                self.assertFalse(base.value("SELECT fencegate.is_copy()"))
                self.assertTrue(armed.write("still armed"))
                self.assert_rejected(base.writer().run("INSERT INTO writes VALUES (1, 'x')"), "ZF002")
            base.armed(34)
            self.assertFalse(armed.alive())

    def test_version_7_is_upgraded_and_who_may_call_what_still_may(self):
        """Its marks were never lowered, and nobody knows what they were before."""
        base = self.base()
        base.sql("SET ROLE fencegate_owner")
        base.sql(OLDER[7])
        base.sql("CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 7")
        base.sql("GRANT EXECUTE ON FUNCTION fencegate.raise_all(text[], bigint[], integer, bigint, integer), "
                 "fencegate.put_back(text, bigint, integer, integer), fencegate.look(text[]) TO bob")
        base.sql("RESET ROLE")
        self.server.install(base.name)
        self.assertEqual(base.sql("SELECT mark, was, lowering, lowered_at FROM fencegate.marks"), [(33, None, 0, None)])
        bob = base.writer("bob")
        self.assertEqual(bob.run("SELECT * FROM fencegate.look('{orders}')"), [("orders", 33, 0)])
        self.assertEqual(bob.run("SELECT mark, lowering FROM fencegate.raise_all('{orders}', '{34}')"), [(34, 0)])
        self.assertEqual(bob.run("SELECT fencegate.put_back('orders', 34, 0, 1, 0)").state, "42501")
        self.assertEqual(bob.run("SELECT fencegate.put_back('orders', 34)").state, "42883")
        self.assertEqual(base.value("SELECT was FROM fencegate.marks"), 33)

    def test_a_guard_that_was_parsed_before_an_upgrade_goes_on(self):
        base = self.base()
        client = base.writer("bob")
        client.run("PREPARE guard AS SELECT fencegate.guard_one('orders', 33), fencegate.guard('{orders}', '{33}')")
        client.run("EXECUTE guard")
        base.sql("SET ROLE fencegate_owner")
        base.sql(OLDER[7])
        base.sql("CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 7")
        base.sql("RESET ROLE")
        self.server.install(base.name)
        self.assertEqual(client.run("EXECUTE guard"), [("", "")])

    def test_version_4_as_it_was_is_upgraded(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "older/schema_4.sql")) as file:
            text = file.read()
        base = self.base(lambda _: text)
        self.assertEqual(base.value("SELECT fencegate.version()"), 4)
        base.sql("SELECT fencegate.protect('writes', 'orders')")
        armed = base.armed(33)
        newer = base.writer("bob")
        self.server.install(base.name)
        self.assertEqual((base.value("SELECT fencegate.version()"), base.mark()), (NEWEST, 33))
        self.assertTrue(armed.write("still armed"))
        self.assert_rejected(base.writer().run("INSERT INTO writes VALUES (1, 'x')"), "ZF002")
        self.assertEqual(newer.arm(34), [(34,)])
        self.assertFalse(armed.alive())
        self.assertEqual(self.server.dump_schema(base.name), self.server.dump_schema(self.base().name))

    def test_everybody_may_read_the_tables_as_pg_dump_does(self):
        base = self.base()
        base.armed(34)
        base.sql("SELECT fencegate.lease_grant('{orders}', 'a grant', '', 1000, '{0}', '{}', 1)")
        base.sql("SELECT fencegate.lease_wait('orders', 'another', '', 60000)")
        tables = base.sql("SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                          "WHERE n.nspname LIKE 'fencegate%' AND c.relkind IN ('r', 'p', 'S', 'f')")
        base.sql("SELECT fencegate.raise('payments', 9)")
        base.sql("SELECT fencegate.lower('payments', 9, 8, 'somebody', 'a test', true)")
        base.sql("DELETE FROM fencegate.marks WHERE resource = 'payments'")
        self.assertEqual(len(tables), 6)
        client = base.writer("bob")
        client.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for (table,) in tables:
            self.assertIsNone(client.run(f"LOCK TABLE {table} IN ACCESS SHARE MODE"))
            self.assertEqual(len(client.run(f"SELECT * FROM {table}")), 1)

    def test_a_dump_by_any_role_and_what_is_restored_from_it(self):
        skip_without_client_tools()  # here, not in one sub-test after the other
        base = self.base()
        base.sql("SELECT fencegate.protect('writes', 'orders')")
        base.armed(34)
        base.sql(f"ALTER DATABASE {base.name} OWNER TO bob")
        secrets = {base.value("SELECT secret FROM fencegate.secret")}
        for user in ("alice", "bob", "postgres"):
            with self.subTest(user):
                self.server.sql(f"CREATE DATABASE copy_by_{user}")
                path = os.path.join(self.server.folder, user)
                self.server.client_tool("pg_dump", "-Fc", "-f", path, base.name, user=user)
                self.server.client_tool("pg_restore", "--exit-on-error", "-d", f"copy_by_{user}", path)
                with contextlib.closing(self.server.connect(database=f"copy_by_{user}")) as connection:
                    def run(text, copy=connection):
                        return run_sql(copy, text)
                    self.assertEqual(run("SELECT mark, fencegate.is_copy() FROM fencegate.marks"), [(34, True)])
                    secrets.add(run("SELECT secret FROM fencegate.secret")[0][0])
                    self.server.install(f"copy_by_{user}")
                    raise_it, accept_it = block("docs/operations.md", "sql").splitlines()
                    self.assertEqual(run(raise_it), [(40,)])
                    self.assertEqual(run("SELECT fencegate.is_copy()"), [(True,)])
                    run(accept_it)
                    self.assertEqual(run("SELECT fencegate.is_copy()"), [(False,)])
        self.assertEqual(len(secrets), 4)
        self.assertFalse(base.value("SELECT fencegate.is_copy()"))

    def older(self):
        return self.base(lambda schema: schema.replace(f"this_version constant integer := {NEWEST}", "this_version constant integer := 0")
                         .replace(f"PARALLEL SAFE RETURN {NEWEST};", "PARALLEL SAFE RETURN 0;"))

    def test_an_upgrade_keeps_what_users_have_built_on_it(self):
        base = self.older()
        base.sql("CREATE VIEW own AS SELECT fencegate.arm('orders', 33) AS mark")
        base.sql("ALTER TABLE writes ENABLE ROW LEVEL SECURITY")
        base.sql("CREATE POLICY own ON writes AS RESTRICTIVE USING (fencegate.version() >= 0)")
        base.sql("GRANT EXECUTE ON FUNCTION fencegate.list() TO bob")
        self.server.install(base.name)
        self.assertEqual(base.value("SELECT fencegate.version()"), NEWEST)
        self.assertEqual(base.sql("SELECT pg_get_viewdef('own'::regclass) LIKE '%%fencegate.arm(%%', "
                                  "(SELECT count(*) FROM pg_policy WHERE polname = 'own'), "
                                  "has_function_privilege('bob', 'fencegate.list()', 'EXECUTE')"), [(True, 1, True)])

    def test_a_function_whose_arguments_have_changed_gives_way(self):
        """With what version 1 called fencegate.take, calls of the new one would be ambiguous."""
        base = self.older()
        base.sql("DROP FUNCTION fencegate.take; SET ROLE fencegate_owner; CREATE FUNCTION fencegate.take(resources text[], "
                 "tokens bigint[], cut_ms integer, max_step bigint, registers boolean) RETURNS TABLE (resource text, "
                 "mark bigint, raised boolean, cut integer) LANGUAGE sql AS 'SELECT NULL, 1::bigint, true, 1'; RESET ROLE")
        self.server.install(base.name)
        self.assertEqual(base.sql("SELECT pronargs FROM pg_proc WHERE proname = 'take'"), [(8,)])
        base.armed(33)
        self.assertEqual(base.mark(), 33)

    def test_an_upgrade_that_would_drop_what_users_have_built_is_refused(self):
        base = self.older()
        base.sql("SET ROLE fencegate_owner; CREATE FUNCTION fencegate.gone() RETURNS integer LANGUAGE sql RETURN 1; RESET ROLE")
        base.sql("CREATE VIEW own AS SELECT fencegate.gone()")
        self.assert_refused(base.name, "cannot drop function fencegate.gone")
        self.assertEqual(base.value("SELECT fencegate.version()"), 0)

    def test_it_waits_for_nobody_who_works(self):
        """Whoever waits for a table's lock has all others wait behind it."""
        base = self.base()
        busy = base.armed(33)
        busy.begin()
        busy.run("SELECT fencegate.guard('{orders}', '{33}')")
        arming = base.writer("bob")
        arming.begin()
        arming.arm(33)
        self.server.install(base.name, mutate=lambda schema: schema.replace("lock_timeout = '10s'", "lock_timeout = '100ms'"))
        self.assertIsNone(busy.run("COMMIT"))
        self.assertIsNone(arming.run("COMMIT"))

    def test_a_newer_version_is_left_alone(self):
        newer = lambda schema: schema.replace(
            f"constant integer := {NEWEST};", "constant integer := 99;").replace(f"RETURN {NEWEST};", "RETURN 99;")
        base = self.base(newer)
        self.assertEqual(base.value("SELECT fencegate.version()"), 99)
        self.assert_refused(base.name, f"has version 99 of the fence, this fencegate knows version {NEWEST}")
        self.assertEqual(base.value("SELECT fencegate.version()"), 99)

    def test_a_schema_of_somebody_else_is_refused(self):
        name, run = self.empty()
        run("CREATE SCHEMA fencegate AUTHORIZATION bob")
        self.assert_refused(name, "schema fencegate exists and belongs to bob")
        self.assertEqual(run("SELECT count(*) FROM pg_class WHERE relnamespace = 'fencegate'::regnamespace"), [(0,)])

    def test_foreign_objects_in_the_schema_are_refused(self):
        for text in ("CREATE TABLE fencegate.marks (resource text)", "CREATE TYPE fencegate.t AS (a integer)",
                     "CREATE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql AS 'SELECT 1'"):
            base = self.base()
            base.sql("DROP SCHEMA fencegate CASCADE; CREATE SCHEMA fencegate AUTHORIZATION fencegate_owner; "
                     "GRANT CREATE, USAGE ON SCHEMA fencegate TO bob")
            outcome = base.writer("bob").run(text)
            self.assertNotIsInstance(outcome, Rejected)
            self.assert_refused(base.name, "holds a foreign object")

    def test_tables_without_a_version_are_refused(self):
        base = self.base()
        base.sql("DROP FUNCTION fencegate.version()")
        self.assert_refused(base.name, "has tables but no version")
        self.assertEqual(base.mark(), 33)

    def test_an_owner_that_may_log_in_is_refused(self):
        base = self.base()
        base.sql("ALTER ROLE fencegate_owner LOGIN")
        self.addCleanup(self.server.sql, "ALTER ROLE fencegate_owner NOLOGIN")
        self.assert_refused(base.name, "fencegate_owner may log in")

    def test_a_failed_installation_changes_nothing(self):
        name, run = self.empty()
        self.assert_refused(name, "division by zero", lambda schema: schema.replace("RESET ROLE;\n-- ", "SELECT 1 / 0;\n-- "))
        self.assertEqual(run("SELECT to_regnamespace('fencegate')"), [(None,)])

    def test_the_script_does_not_look_where_its_user_says(self):
        name, run = self.empty()
        run("CREATE SCHEMA evil")
        run("CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS $$ SELECT 'forged' $$")
        run(f"ALTER DATABASE {name} SET search_path = evil, pg_catalog")
        self.server.install(name)
        self.assertEqual(run("SELECT fencegate.version()"), [(NEWEST,)])

    def test_rights(self):
        base = self.base()
        client = base.writer()
        for text in ("SELECT * FROM fencegate.secret", "UPDATE fencegate.marks SET mark = 1", "DELETE FROM fencegate.sessions",
                     "INSERT INTO fencegate.marks VALUES ('a', 1)", "TRUNCATE fencegate.sessions",
                     "REFRESH MATERIALIZED VIEW fencegate.secret", "SELECT fencegate.accept_copy()",
                     "UPDATE fencegate.settings SET cut_ms = 1", "SELECT * FROM fencegate.marks FOR KEY SHARE",
                     "SELECT fencegate.show_raise()", "PREPARE p AS SELECT * FROM fencegate_private.raising",
                     "DO $$ BEGIN LOCK TABLE fencegate_private.raising IN ROW EXCLUSIVE MODE; END $$",
                     "DO $$ BEGIN LOCK TABLE fencegate.marks; END $$", "SELECT fencegate.sweep()", "SELECT * FROM fencegate.list()",
                     "SELECT * FROM fencegate.look('{orders}')", "SELECT * FROM fencegate.ended(1)",
                     "SELECT fencegate.lower('orders', 33, 32, 'who', 'why', true)", "DELETE FROM fencegate.lowerings",
                     "INSERT INTO fencegate.lowerings VALUES (1, 'orders', 2, 1, 'who', 'who', 'why', now())",
                     "SELECT fencegate.put_back('orders', 34, 0, 1, 0)", "SELECT fencegate.check_lowering('orders', 33, 0, 32, true)",
                     "SELECT fencegate.raise('orders', 34)", "SELECT fencegate.cut_once('orders', 34, true)",
                     "SELECT fencegate.end_idle_holders(1)", "SELECT fencegate.end_intruders(1, true)", "SELECT * FROM fencegate.take('{orders}', '{34}', 1, 0, false)",
                     "SELECT fencegate.hold_one('orders', 34)", "SELECT fencegate.guard_all('{orders}', '{34}', 1)", "SET ROLE fencegate_owner", "CREATE TABLE fencegate.mine ()",
                     "DROP SCHEMA fencegate CASCADE"):
            outcome = client.run(text)
            self.assertIsInstance(outcome, Rejected, text)
            self.assertEqual(outcome.state, "42501", outcome)

    def test_every_function_has_its_owner_and_a_fixed_search_path(self):
        """But for two that need none: see the mutations of their names' schemas."""
        base = self.base()
        self.assertEqual(base.sql("""
            SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'fencegate'::regnamespace
               AND (p.proowner <> 'fencegate_owner'::regrole
                    OR p.prosqlbody IS NULL AND p.proconfig IS DISTINCT FROM '{"search_path=pg_catalog, pg_temp"}'
                       AND p.proname NOT IN ('guard_one', 'guard_one_under', 'hold_one'))"""), [])

    def test_what_everybody_may_call_as_the_owner(self):
        base = self.base()
        listed = base.sql("""
            SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'fencegate'::regnamespace AND p.prosecdef
               AND has_function_privilege('alice', p.oid, 'EXECUTE') ORDER BY 1""")
        self.assertEqual([name for (name,) in listed], ["arm", "arm_all", "guard", "guard_one", "guard_one_under", "guard_under",
                                                             "refuse_unarmed"])
        outcome = base.writer().run("SELECT fencegate.refuse_unarmed()")
        self.assertIn("can only be called as trigger", outcome.message)

    def test_gates_may_do_their_work_and_no_more(self):
        base = self.base(gate_users=["bob"])
        gate = base.writer("bob")
        for text in ("SELECT fencegate.sweep()", "SELECT * FROM fencegate.list()", "SELECT * FROM fencegate.look('{orders}')",
                     "SELECT * FROM fencegate.ended(1)", "SELECT fencegate.raise('orders', 34)"):
            self.assertNotIsInstance(gate.run(text), Rejected, text)
        self.assertEqual(gate.run("UPDATE fencegate.marks SET mark = 1").state, "42501")
        base.sql("REVOKE fencegate_gate FROM bob")


if __name__ == "__main__":
    assert schema_text()
    main()
