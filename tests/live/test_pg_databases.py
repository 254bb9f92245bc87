"""One gate before many databases, of which each has its own marks and connections of the gate's own."""

import concurrent.futures
import contextlib

import psycopg2

from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, run_sql
from processes import eventually


class Databases(LiveTest):
    many = 66

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer(max_connections=8 * cls.many))
        cls.server.user("alice")
        cls.server.install()
        cls.server.sql("CREATE TABLE writes (who text); GRANT ALL ON writes TO alice")
        cls.server.sql("CREATE DATABASE made TEMPLATE postgres")
        cls.names = [f"app{n}" for n in range(cls.many)]

        def make(name):
            with contextlib.closing(cls.server.connect()) as connection:
                run_sql(connection, f"CREATE DATABASE {name} TEMPLATE made")
        cls.at_once(make)

    @classmethod
    def at_once(cls, work):
        """`work` for each database, in its order."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return dict(zip(cls.names, pool.map(work, cls.names)))

    def held(self, gate, tag, name):
        client = gate.connect(tag, user="alice", database=name)
        self.addCleanup(client.close)
        return client

    def is_looked_after(self):
        """The databases in which the gate has a connection of its own."""
        rows = self.server.sql("SELECT DISTINCT datname FROM pg_stat_activity WHERE usename = 'postgres' AND query LIKE '%fencegate.%'")
        return {name for name, in rows} & set(self.names)

    def asked(self, name, sql):
        with contextlib.closing(self.server.connect(database=name)) as connection:
            return run_sql(connection, sql)

    def takes_over(self, gate, resource):
        old = self.at_once(lambda name: self.held(gate, f"{resource}=34", name))
        for client in old.values():
            run_sql(client, "INSERT INTO writes VALUES ('old')")
        eventually(lambda: self.is_looked_after() == set(self.names))
        for name in self.names[-2:]:
            run_sql(self.held(gate, f"{resource}=35", name), "TRUNCATE writes")
            with self.assertRaisesRegex(psycopg2.Error, f"token 34 of {resource} is below mark 35"):
                run_sql(old[name], "INSERT INTO writes VALUES ('stale')")
            with self.assertRaisesRegex(psycopg2.OperationalError, f"token 34 of {resource} is below mark 35; not applied"):
                self.held(gate, f"{resource}=34", name)
            self.assertEqual(self.asked(name, "SELECT who FROM writes"), [])
            self.assertEqual(self.asked(name, f"SELECT mark FROM fencegate.marks WHERE resource = '{resource}'"), [(35,)])
        run_sql(old[self.names[0]], "INSERT INTO writes VALUES ('still')")

    def test_sessions(self):
        self.takes_over(self.start(PgGate(self.server)), "sessions")

    def test_guarded_transactions(self):
        self.takes_over(self.start(PgGate(self.server, guard="transaction")), "transactions")


class Few(Databases):
    """What a version of the server could change."""
    many = 4


if __name__ == "__main__":
    main()
