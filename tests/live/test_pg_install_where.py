"""fencegate install: in which databases, with which rights, and with which names."""

import json
import os
import subprocess
import urllib.parse

from live_test import LiveTest, main
from pg_versions import version
from postgres import PostgresServer, run_sql
from processes import LOOPBACK, PATIENCE

HOSTILE = """we"ird '; DROP TABLE kept; -- \\ $$ %s é表"""


class InstallTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())

    def setUp(self):
        self.databases = []
        self.roles = ["fencegate_owner", "fencegate_gate"]
        self.addCleanup(self.drop)

    def drop(self):
        for name in self.databases:
            self.server.sql(f"DROP DATABASE {quoted(name)} WITH (FORCE)")
        for name in self.roles:
            self.server.sql(f"DROP ROLE IF EXISTS {quoted(name)}")

    def database(self, name):
        self.databases.append(name)
        self.server.sql(f"CREATE DATABASE {quoted(name)}")
        connection = self.server.connect(database=name)
        self.addCleanup(connection.close)
        return lambda text, *values: run_sql(connection, text, *values)

    def role(self, name, *options):
        self.roles.append(name)
        self.server.sql(f"CREATE ROLE {quoted(name)} LOGIN {' '.join(options)}")
        if "CREATEROLE" in options and version() >= 16:  # where CREATEROLE gives no role that it does not administer
            self.server.sql(f"GRANT pg_signal_backend, pg_read_all_stats TO {quoted(name)} WITH ADMIN OPTION")
        return name

    def url(self, database, user="postgres"):
        return self.server.url(urllib.parse.quote(user, safe=""), urllib.parse.quote(database, safe=""))

    def install(self, *arguments, stores=None, **gates):
        """Runs it for gates and stores, name=url."""
        path = os.path.join(self.server.folder, "install.yaml")
        gates = [{"name": name, "protocol": "postgres", "listen": f"127.0.0.1:{6432 + at}", "upstream": url}
                 for at, (name, url) in enumerate(gates.items())]
        stores = {name: {"url": url} for name, url in (stores or {}).items()}
        with open(path, "w") as file:
            json.dump({"gates": gates, "stores": stores}, file)
        return subprocess.run([os.environ["FENCEGATE"], "install", "-c", path, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def psql(self, script, database, *options):
        return subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", *options, "-h", LOOPBACK, "-p",
                               str(self.server.port), "-U", "postgres", database], input=script, text=True,
                              capture_output=True, check=False)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def shown(name):
    """As a message has it."""
    return "".join(c if c.isascii() else "?" * len(c.encode()) for c in name)


INSTALLED = "SELECT to_regnamespace('fencegate') IS NOT NULL"


class Where(InstallTest):
    def test_gates_and_stores_of_one_file(self):
        bases = {name: self.database(name) for name in ("one", "two", "three")}
        gates = {"first": self.url("one"), "second": self.url("two")}

        def installed():
            return [name for name, run in bases.items() if run(INSTALLED) == [(True,)]]

        def lines(done):
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [line.replace(f"127.0.0.1:{self.server.port}/", "") for line in done.stdout.splitlines()]
        stores = {"ledger": self.url("three"), "cache": "redis://127.0.0.1:6379"}
        self.assertEqual(lines(self.install("--gate", "second", stores=stores, **gates)), ["gate second: two: installed"])
        self.assertEqual(installed(), ["two"])
        self.assertEqual(lines(self.install("--store", "ledger", stores=stores, **gates)), ["store ledger: three: installed"])
        self.assertEqual(installed(), ["two", "three"])
        self.assertEqual(lines(self.install(stores=stores, **gates)),
                         ["gate first: one: installed", "gate second: two: installed", "store ledger: three: installed"])
        self.assertEqual(installed(), ["one", "two", "three"])
        for arguments, words in ((["--gate", "third"], "no postgres gate named third"),
                                 (["--store", "cache"], "store cache: "), (["--print"], "the SQL of one database"),
                                 (["--protect", "t"], "tables are those of one database")):
            done = self.install(*arguments, stores=stores, **gates)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(words, done.stderr)

    def test_what_fails_in_one_database_keeps_nobody_from_another(self):
        good, bad = self.database("good"), self.database("bad")
        self.role("maker", "CREATEROLE")
        self.server.sql("GRANT CREATE ON DATABASE good TO maker")
        gates = {"a": self.url("missing", "maker"), "b": self.url("bad", "maker"), "c": self.url("good", "maker")}
        done = self.install(**gates)
        place = f"127.0.0.1:{self.server.port}"
        self.assertEqual((done.returncode, done.stdout), (1, f"gate c: {place}/good: installed\n"))
        no_database, no_right = done.stderr.splitlines()
        self.assertIn('database "missing" does not exist', no_database)
        self.assertEqual(no_right, f"fencegate: gate b: {place}/bad: role maker may not create a schema in database bad "
                                   "(As its owner: GRANT CREATE ON DATABASE bad TO maker;)")
        self.assertEqual((good(INSTALLED), bad(INSTALLED)), ([(True,)], [(False,)]))

    def test_print_is_what_install_does(self):
        printed = self.install("--print", "--protect", "t", a=self.url("first"))
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        for name in ("first", "second", "third"):
            self.database(name)("CREATE TABLE t (id integer)")
        self.assertEqual(self.install("--protect", "t", a=self.url("first")).returncode, 0)
        for name, options in (("second", []), ("third", ["-1"])):
            for _ in range(2):  # again: no difference
                done = self.psql(printed.stdout, name, *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("ERROR", done.stderr)
            self.assertEqual(self.server.dump_schema(name), self.server.dump_schema("first"))
        self.assertIn("CREATE FUNCTION fencegate.arm_all(", "\n".join(self.server.dump_schema("first")))


class Rights(InstallTest):
    """A role that is no superuser, each time without one of the rights."""

    OWN_ROLES = "CREATE ROLE fencegate_owner NOLOGIN; CREATE ROLE fencegate_gate NOLOGIN"
    OWNERS = "GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner"
    MEMBER = "GRANT fencegate_owner TO plain"
    CREATES = "GRANT CREATE ON DATABASE app TO plain"
    ADMITS = "GRANT fencegate_gate TO plain"

    def setUp(self):
        super().setUp()
        self.app = self.database("app")
        self.role("plain")

    def fails(self, *arguments):
        """What it says."""
        done = self.install(*arguments, db=self.url("app", "plain"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        return done.stderr.removeprefix(f"fencegate: gate db: 127.0.0.1:{self.server.port}/app: ").rstrip("\n")

    def test_each_that_is_missing_is_named(self):
        everything = f"{self.OWNERS}; {self.MEMBER}; {self.ADMITS} WITH ADMIN OPTION"
        missing = [
            (self.OWN_ROLES, "role plain may not create the roles fencegate_owner and fencegate_gate (As a superuser: "
                             f"{self.OWN_ROLES}; {everything};)"),
            ("GRANT pg_signal_backend TO fencegate_owner", "role plain may not grant pg_signal_backend and pg_read_all_stats "
                                                           f"(As a superuser: {everything};)"),
            ("GRANT pg_read_all_stats TO fencegate_owner", "role plain may not grant pg_signal_backend and pg_read_all_stats "
                                                           f"(As a superuser: {everything};)"),
            (self.MEMBER, f"role plain is no member of fencegate_owner (As a superuser: {everything};)"),
            (self.CREATES, f"role plain may not create a schema in database app (As its owner: {self.CREATES};)"),
            (self.ADMITS, f"role plain may not grant fencegate_gate (As a superuser: {self.ADMITS};)"),
        ]
        for grant, words in missing:
            self.assertEqual(self.fails(), words)
            self.assertEqual(self.app(INSTALLED), [(False,)])
            self.server.sql(grant)
        self.assertEqual(self.install(db=self.url("app", "plain")).returncode, 0)

    def test_who_does_what_the_hints_say_can_install(self):
        hints = 0
        while (done := self.install(db=self.url("app", "plain"))).returncode != 0:
            self.assertLess(hints, 3, done.stderr)
            hints += 1
            self.server.sql(done.stderr.rsplit(": ", 1)[1].rstrip(")\n"))
        self.assertEqual(self.app(INSTALLED), [(True,)])

    def test_a_table_of_another_owner(self):
        for grant in (self.OWN_ROLES, self.OWNERS, self.MEMBER, self.CREATES, self.ADMITS):
            self.server.sql(grant)
        self.app("CREATE TABLE orders (id integer)")
        self.app("GRANT ALL ON orders TO plain")
        self.assertEqual(self.fails("--protect", "orders"), "must be owner of table orders")
        self.assertEqual(self.app("SELECT count(*) FROM pg_trigger WHERE tgname = 'fencegate_protect'"), [(0,)])
        self.app("ALTER TABLE orders OWNER TO plain")
        self.assertEqual(self.install("--protect", "orders", db=self.url("app", "plain")).returncode, 0)


class Names(InstallTest):
    def protected(self, run):
        return sorted(name for (name,) in run("SELECT n.nspname || '.' || c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
                                              "JOIN pg_namespace n ON n.oid = relnamespace WHERE tgname = 'fencegate_protect'"))

    def test_of_roles_and_databases(self):
        run = self.database(HOSTILE)
        run("CREATE TABLE kept (id integer)")
        self.role(HOSTILE, "CREATEROLE")
        done = self.install(db=self.url(HOSTILE, HOSTILE))
        self.assertEqual(done.returncode, 1)
        name = shown(quoted(HOSTILE))
        self.assertIn(f"(As its owner: GRANT CREATE ON DATABASE {name} TO {name};)", done.stderr)
        self.server.sql(f"GRANT CREATE ON DATABASE {quoted(HOSTILE)} TO {quoted(HOSTILE)}")
        done = self.install(db=self.url(HOSTILE, HOSTILE))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(run("SELECT pg_has_role(%s, 'fencegate_gate', 'USAGE')", HOSTILE), [(True,)])
        self.assertEqual(run("SELECT to_regclass('kept') IS NOT NULL"), [(True,)])

    def test_of_tables(self):
        run = self.database("app")
        run("CREATE SCHEMA \"Other.Schema\"")
        run("CREATE TABLE kept (id integer)")
        tables = [f"public.{quoted(HOSTILE)}", '"Other.Schema"."dot.ted"', '"Other.Schema".plain', "public.mixed", '"Mixed"', "été",
                  '"-dash"', '"[a,b]"', '"x\'::regclass); DROP TABLE kept; --"']
        for name in tables:
            run(f"CREATE TABLE {name} (id integer)")
        names = sorted(["public." + HOSTILE, "Other.Schema.dot.ted", "Other.Schema.plain", "public.mixed", "public.Mixed",
                        "public.été", "public.-dash", "public.[a,b]", "public.x'::regclass); DROP TABLE kept; --"])
        said = [*tables[:3], "MIXED", *tables[4:]]
        for role in ("", "ALTER ROLE postgres SET standard_conforming_strings = off"):
            if role:
                self.server.sql(role)
                self.addCleanup(self.server.sql, "ALTER ROLE postgres RESET standard_conforming_strings")
            done = self.install("--protect", *said, db=self.url("app"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.protected(run), names)
            done = self.install("--unprotect", *said, db=self.url("app"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.protected(run), [])
            done = self.psql(self.install("--print", "--protect", *said, db=self.url("app")).stdout, "app")
            self.assertEqual((done.returncode, self.protected(run)), (0, names), done.stderr)
            self.install("--unprotect", *said, db=self.url("app"))
        for bad in ("x'::regclass); DROP TABLE kept; --", "kept; DROP TABLE kept", 'ke"pt', "a.b.c.d", "", "pg_class"):
            done = self.install("--protect", bad, db=self.url("app"))
            self.assertEqual((done.returncode, done.stdout), (1, ""), bad)
        self.assertEqual(run("SELECT to_regclass('kept') IS NOT NULL"), [(True,)])
        self.assertEqual(self.protected(run), [])

    def test_a_search_path_of_the_databases_owner_changes_no_word_of_ours(self):
        run = self.database("app")
        run("CREATE SCHEMA evil")
        run("CREATE FUNCTION evil.taken(oid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN "
            "ALTER ROLE fencegate_gate LOGIN; RETURN true; END $$")
        run("CREATE DOMAIN evil.regclass AS pg_catalog.regclass CHECK (evil.taken(VALUE))")
        run("CREATE TABLE evil.orders (id integer)")
        run("ALTER DATABASE app SET search_path = evil, pg_catalog")
        done = self.install("--protect", "orders", db=self.url("app"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.protected(run), ["evil.orders"])
        self.assertEqual(run("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'fencegate_gate'"), [(False,)])


if __name__ == "__main__":
    main()
