"""The ways of writing to PostgreSQL that are compared, and the processes they need."""

import contextlib
import os

import psycopg2
from contenders import BUSY_POLL, LOOPBACK, OUR_THREADS, Haproxy
from postgres import PgBouncer, PgGate, PostgresServer

USER = "bench"
TAG = "bench=34"
CONNECTIONS_MAX = 300
TUNED = "threads: 1, busy_poll_us: 100"  # for few clients, near their server

TABLES = """
CREATE TABLE bench_rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, client int NOT NULL, body text NOT NULL);
CREATE TABLE bench_marks (resource text PRIMARY KEY, mark bigint NOT NULL);
CREATE TABLE bench_account (id int PRIMARY KEY, uses bigint NOT NULL);
CREATE UNLOGGED TABLE bench_copy (body text NOT NULL);
INSERT INTO bench_marks VALUES ('bench', 34);
INSERT INTO bench_account VALUES (1, 0);
CREATE TABLE bench_accounts (aid int PRIMARY KEY, abalance int NOT NULL);
INSERT INTO bench_accounts SELECT aid, 0 FROM generate_series(1, 100000) aid;
ANALYZE bench_accounts;
CREATE ROLE bench LOGIN;
GRANT ALL ON bench_rows, bench_marks, bench_account, bench_accounts, bench_copy TO bench;
"""

_BODY = "'" + "x" * 64 + "'"
_INSERT = f"INSERT INTO bench_rows (client, body) VALUES (:client_id, {_BODY})"
_RAISE = "UPDATE bench_marks SET mark = 34 WHERE resource = 'bench' AND mark <= 34 RETURNING mark"

# What pgbench runs. Where a mark is raised by hand, a stale writer is noticed: \gset wants exactly one row.
SCRIPTS = {
    ("plain", "insert"): f"{_INSERT};",
    ("plain", "select"): "SELECT 1;",
    # What pgbench -S does.
    ("plain", "read"): "\\set aid random(1, 100000)\nSELECT abalance FROM bench_accounts WHERE aid = :aid;",
    ("update", "insert"): f"BEGIN;\n{_RAISE} \\gset\n{_INSERT};\nCOMMIT;",
    ("update", "select"): f"BEGIN;\n{_RAISE} \\gset\nSELECT 1;\nCOMMIT;",
    ("one", "insert"): f"WITH fence AS ({_RAISE})\n  INSERT INTO bench_rows (client, body)\n"
                       f"  SELECT :client_id, {_BODY} FROM fence RETURNING client \\gset",
    ("one", "select"): f"WITH fence AS ({_RAISE}) SELECT 1 AS one FROM fence \\gset",
}


class BenchServer(PostgresServer):
    """Synced to disk, without what works in the background at times of its own choosing."""

    def __init__(self):
        super().__init__(fsync="on", max_connections=CONNECTIONS_MAX, shared_buffers="128MB", autovacuum="off", max_wal_size="4GB",
                         checkpoint_timeout="1h")

    def prepare(self):
        super().prepare()
        for (kind, what), text in SCRIPTS.items():
            with open(self.script(kind, what), "w") as file:
                file.write(text + "\n")

    def script(self, kind, what):
        return os.path.join(self.folder, f"{kind}-{what}.sql")

    def clear(self):
        self.sql("TRUNCATE bench_rows, bench_copy")


class PgHaproxy(Haproxy):
    def up(self):
        with contextlib.suppress(psycopg2.OperationalError):
            psycopg2.connect(host=LOOPBACK, port=self.port, user=USER, dbname="postgres", connect_timeout=5).close()
            return True
        return False


class SessionPooler(PgBouncer):
    def __init__(self, server):
        super().__init__(server, pool_mode="session", default_pool_size=CONNECTIONS_MAX - 50, max_client_conn=1000,
                         user=USER)


class TransactionPooler(PgBouncer):
    def __init__(self, server):
        super().__init__(server, default_pool_size=20, max_client_conn=1000, user=USER)


class BenchGate(PgGate):
    def __init__(self, server, binary, guard, threads=OUR_THREADS, **settings):
        alone = {"pooled": False} if guard == "transaction" else None
        super().__init__(server, guard=guard, threads=threads, binary=binary, extra=alone, **settings)
        self.title = f"fencegate-{guard}"

    def prove_fence(self):
        """A benchmark of a fence that lets everything through would be worthless."""
        proof = f"proof-{self.port}"
        with contextlib.closing(self.connect(f"{proof}=7", user=USER)) as old:
            old.cursor().execute("INSERT INTO bench_rows (client, body) VALUES (7, 'first')")
            with contextlib.closing(self.connect(f"{proof}=8", user=USER)) as new:
                new.cursor().execute("INSERT INTO bench_rows (client, body) VALUES (8, 'new')")
            refused = None
            try:
                old.cursor().execute("INSERT INTO bench_rows (client, body) VALUES (7, 'stale')")
            except psycopg2.Error as error:
                refused = str(error)
        rows = self.server.sql("SELECT body FROM bench_rows ORDER BY id")
        if refused is None or rows != [("first",), ("new",)]:
            raise RuntimeError(f"the gate does not fence: {rows}, {refused}")
        self.server.clear()


class Way:
    """A column: where pgbench connects, what it runs there, and the process in between, if there is one."""

    def __init__(self, key, title, server, front=None, kind="plain", tag=None):
        self.key = key
        self.title = title
        self.server = server
        self.front = front
        self.kind = kind
        self.tag = tag

    @property
    def port(self):
        return (self.front or self.server).port

    def environment(self):
        login = {"PGHOST": LOOPBACK, "PGPORT": str(self.port), "PGUSER": USER, "PGDATABASE": "postgres"}
        return os.environ | login | ({"PGOPTIONS": f"-c fencing.tokens={self.tag}"} if self.tag else {})

    def connect(self, tag=None):
        """A psycopg2 connection with autocommit."""
        tag = tag or self.tag
        connection = psycopg2.connect(host=LOOPBACK, port=self.port, user=USER, dbname="postgres", connect_timeout=20,
                                      options=f"-c fencing.tokens={tag}" if tag else None)
        connection.autocommit = True
        return connection

    def checks(self):
        """How often its gate has checked a token so far; None without a gate."""
        if not self.tag:
            return None
        return sum(self.front.metric("checks_total", outcome=outcome) for outcome in ("admitted", "raised"))


def proxies(server, binary):
    """(key, title, how to make the process) of what can stand in front of PostgreSQL."""
    yield "haproxy", "HAProxy", lambda: PgHaproxy(server)
    yield "pgbouncer", "PgBouncer", lambda: SessionPooler(server)
    yield "pool", "PgBouncer, transaction mode", lambda: TransactionPooler(server)
    if binary:
        yield "session", "guard: session", lambda: BenchGate(server, binary, "session")
        yield "tuned", f"the same, {TUNED}", lambda: BenchGate(server, binary, "session", threads=1, process=BUSY_POLL)
        yield "transaction", "guard: transaction", lambda: BenchGate(server, binary, "transaction")


def all_ways(stack, server, binary):
    """Starts what is needed (`stack`: an ExitStack) and returns the columns in the order of the table."""
    ways = [Way("direct", "direct", server)]
    for key, title, make in proxies(server, binary):
        front = stack.enter_context(make())
        if isinstance(front, BenchGate):
            front.prove_fence()
        ways.append(Way(key, title, server, front, tag=TAG if isinstance(front, BenchGate) else None))
    return ways + [Way("update", "UPDATE by hand", server, kind="update"),
                   Way("one", "the same, 1 statement", server, kind="one")]
