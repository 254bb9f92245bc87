"""The story on PostgreSQL: a writer that is paused inside a transaction, with the fence and without."""

import subprocess
from pathlib import Path

import database
from stage import Trouble, eventually, find_fencegate, unread_bytes
from story import Story, quoted

ROW = "SELECT by FROM orders"
MARK = "SELECT mark FROM fencegate.marks"


class PostgresStory(Story):
    def connect(self, who, port, tag=None, right=lambda a: a.startswith("connected"), good=True):
        client = self.stage.enter_context(database.Client(port, tag))
        self.expect(who, f"connects: -c fencing.tokens={tag}" if tag else "connects", client.greeting, right, good)
        return client

    def call(self, who, client, sql, answer, good=True):
        return self.expect(who, sql, client.call(sql), lambda a: a.startswith(answer), good)

    def update(self, who, client, text, answer="UPDATE 1", good=True):
        return self.call(who, client, f"UPDATE orders SET by = '{text}'", answer, good)

    def install(self, server, config):
        """The schema of the fence, by who may; the gate's own user gets no right but to call its functions."""
        shown = subprocess.run([find_fencegate(), "install", "-c", config, "--print"], capture_output=True, text=True)
        if shown.returncode != 0:
            raise Trouble(f"fencegate install --print: {shown.stderr.strip()}")
        with database.Client(server.port, user="postgres") as superuser:
            superuser.call(shown.stdout)
            version = superuser.call("SELECT 'version ' || fencegate.version()")
        self.expect("superuser", "fencegate install --print | psql", version, lambda a: a.startswith("version "))

    def fenced(self, server):
        """Returns what A's COMMIT was answered and what the row holds afterwards."""
        say, stage = self.page, self.stage
        say.title("On PostgreSQL, with fencegate: A is paused while it holds a row's lock")
        upstream = f"postgres://fencegate@127.0.0.1:{server.port}/{database.DATABASE}"
        sidecar_a, port_a, admin_a = stage.start_sidecar("postgres sidecar A", "postgres", upstream)
        _, port_b, admin_b = stage.start_sidecar("postgres sidecar B", "postgres", upstream)
        self.ports = server.port, port_a, admin_a, port_b, admin_b
        self.install(server, Path(stage.folder) / "postgres-sidecar-A.yaml")
        superuser = stage.enter_context(database.Client(server.port, user="postgres"))

        a = self.connect("A", port_a, "orders=33")
        self.call("in PostgreSQL", superuser, MARK, "33")
        self.call("A", a, "BEGIN", "BEGIN")
        self.update("A", a, "A, token 33")
        sidecar_a.freeze()
        say.step("A's pod", "is frozen: SIGSTOP to its sidecar", "stopped")
        a.send("COMMIT")
        waiting = eventually("A's COMMIT to reach its sidecar's socket", lambda: unread_bytes(port_a, a.socket))
        say.step("A", "COMMIT", f"{waiting} bytes lie unread in the sidecar's socket")

        b = self.connect("B", port_b, "orders=34")
        self.call("in PostgreSQL", superuser, MARK, "34")
        self.update("B", b, "B, token 34")
        sidecar_a.thaw()
        say.step("A's pod", "goes on: SIGCONT", "running")
        late = self.expect("A", "…reads the answer to its COMMIT", a.read(), is_stale)
        self.connect("A", port_a, "orders=33", right=is_stale)
        stored = self.call("in PostgreSQL", superuser, ROW, "B, token 34")
        return late, stored

    def unfenced(self, server):
        """The same without a gate; returns what A's last write was answered and what the row holds afterwards."""
        say, stage = self.page, self.stage
        say.title("On PostgreSQL, without fencegate")
        superuser = stage.enter_context(database.Client(server.port, user="postgres"))
        a, b = self.connect("A", server.port), self.connect("B", server.port)
        self.call("A", a, "BEGIN", "BEGIN")
        self.update("A", a, "A, token 33")
        say.step("A's pod", "is paused; its lease runs out", "A holds the row's lock")
        self.update("B", b, "B, token 34", "55P03: ", good=False)
        self.call("A", a, "ROLLBACK", "ROLLBACK")
        self.update("B", b, "B, token 34")
        late = self.update("A", a, "A, late", good=False)
        stored = self.call("in PostgreSQL", superuser, ROW, "A, late", good=False)
        return late, stored

    def tell(self):
        server = self.stage.enter_context(database.private_server())
        self.stage.postgres_port = server.port
        self.page.line(f"\nA private PostgreSQL listens on 127.0.0.1:{server.port}; its lock_timeout is 1 s.")
        with database.Client(server.port) as owner:
            owner.call("CREATE TABLE orders AS SELECT 1 AS id, 'nobody' AS by")
        late, stored = self.fenced(server)
        bare_late, bare_stored = self.unfenced(server)
        self.page.title("Side by side, on PostgreSQL")
        self.page.line(f"     {'':20} {'fencegate':26} without")
        self.page.line(f"     {'B, while A is paused':20} {'is served at once':26} waits for A's lock")
        self.page.line(f"     {'A’s late write':20} {late.split(':')[0] + ', not applied':26} {bare_late}, applied")
        self.page.line(f"     {'what the row holds':20} {quoted(stored):26} {quoted(bare_stored)}")

    def explain(self):
        port, port_a, admin_a, port_b, admin_b = self.ports
        psql = f"psql -h 127.0.0.1 -U {database.USER} -p"
        self.page.line()
        self.by_hand(
            (f"PGOPTIONS='-c fencing.tokens=orders=35' {psql} {port_a}", f"sidecar A; B has port {port_b}"),
            ("  > BEGIN; UPDATE orders SET by = 'me';", "leave it open: it holds the row's lock"),
            (f"PGOPTIONS='-c fencing.tokens=orders=36' {psql} {port_b}", "a new holder: the server ends A's session"),
            ("  > UPDATE orders SET by = 'new';", "UPDATE 1, at once; then look what A's COMMIT says"),
            (f"{psql} {port_b}", "refused: a connection without a token"),
            (f"psql -h 127.0.0.1 -U postgres -p {port} {database.DATABASE} -c 'TABLE fencegate.marks'", "the marks"),
            (f"curl -s http://127.0.0.1:{admin_a}/metrics", f"figures of postgres sidecar A; B's: port {admin_b}"),
        )


def is_stale(answer):
    return answer.startswith("ZF001: token 33 of orders is below mark 34; not applied")
