"""guard: transaction under attack. Each conversation of guard/scripts.py is held once for every place between two of its
pieces, with a raise at that place: behind it, nothing of the old token may be committed. The judge is the server, by its
times of commit.

$FENCEGATE_ATTACKS_ONLY: words; only the conversations whose title has one of them."""

import itertools
import os
import queue
import threading
import time

from guard.scripts import SCHEMA, scripts
from live_test import LiveTest, main
from pg_wire import TERMINATE, Wire, fields
from postgres import PgBouncer, PgGate, PostgresServer
from processes import PATIENCE, eventually

ONLY = os.environ.get("FENCEGATE_ATTACKS_ONLY", "").split()
AT_ONCE = 8
CONNECTED = 0.05  # seconds that a connection takes where the machine does nothing else
SLOW = ("call", "CALL", "do ", "middle", "junk", "timeout")  # what sleeps, to commit later
_resources = itertools.count()


class Conversation:
    """One client with token 1; its replies in short."""

    def __init__(self, address, resource):
        self.replies = []
        eventually(lambda: self.open(address, resource))

    def open(self, address, resource):
        """False where the check of the mark met the end of its connection: behind a pooler another conversation had that one
        before, and a raise ended it."""
        self.wire = Wire(address, user="writer", options=f"-c fencing.tokens={resource}=1", timeout=PATIENCE)
        try:
            self.wire.until_ready()
        except ConnectionError as error:
            self.wire.sock.close()
            if "ZF006" in str(error):
                return False
            raise
        return True

    def listen(self, seconds):
        """What comes in that time; longer where something comes."""
        self.wire.sock.settimeout(seconds)
        try:
            while True:
                kind, body = self.wire.read()
                self.replies.append(kind.decode() + (":" + fields(body)["C"] if kind == b"E" else ""))
        except (TimeoutError, ConnectionError):
            self.wire.sock.settimeout(PATIENCE)

    def close(self):
        try:
            self.wire.send(TERMINATE)
        except OSError:
            pass
        self.wire.sock.close()


class Attacks(LiveTest):
    def stale(self, gate, server, only=(), without=()):
        """Holds the conversations whose titles have one of these words, and none of those; those of them that committed something
        stale."""
        ids = itertools.count(1)
        function = server.value("SELECT 'app.ff'::regproc::oid::int")
        titles = {title: len(pieces) for title, pieces in scripts("R", ids, function).items()
                  if (not only or any(word in title for word in only)) and not any(word in title for word in without)}
        runs = [(title, place) for title, pieces in titles.items() for place in range(pieces + 1)]
        names = [f"R{next(_resources)}" for _ in runs]
        jobs, failures, making = queue.Queue(), [], threading.Lock()
        for number, run in enumerate(runs):
            jobs.put((names[number], *run))

        def work():
            connection = server.connect()
            while True:
                try:
                    resource, title, place = jobs.get_nowait()
                except queue.Empty:
                    return connection.close()
                with making:
                    pieces = scripts(resource, ids, function)[title]
                try:
                    self.converse(gate, connection, resource, pieces, place, any(word in title for word in SLOW))
                except Exception as error:  # a thread's own failure must be seen
                    failures.append(f"{title}, raise at {place}: {error!r}")

        threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(failures[:5], [])
        stale = {row[0] for row in server.sql("SELECT DISTINCT resource FROM app.stale")}
        found = [f"{title}, raise at {place}" for name, (title, place) in zip(names, runs) if name in stale]
        written = server.value("SELECT count(*) FROM app.w")
        print(f"{len(runs)} runs of {len(titles)} conversations, {written} rows, {len(found)} stale")
        if not only:
            self.assertGreater(written, len(runs) // 3)
        return found

    def converse(self, gate, connection, resource, pieces, place, slow):
        began = time.monotonic()
        client = Conversation(gate.address, resource)
        # Where the machine is busy, the server comes to its part later.
        pace = min(max((time.monotonic() - began) / CONNECTED, 1), 10)
        try:
            for number, piece in enumerate(pieces):
                if number == place:
                    client.listen(0.02 * pace)
                    self.take_over(connection, resource)
                if isinstance(piece, float):
                    time.sleep(piece)
                    continue
                client.wire.send(piece)
                client.listen((0.004 if number < place else 0.03) * pace)
            if place == len(pieces):
                self.take_over(connection, resource)
            client.listen((0.35 if slow else 0.06) * pace)
        except ConnectionError:
            pass  # a raise ends who is in its way
        finally:
            client.close()

    def take_over(self, connection, resource):
        with connection.cursor() as cursor:
            cursor.execute("SELECT fencegate.raise(%s, 2)", (resource,))

    def served(self, pooled, **gate):
        server = self.start(PostgresServer(fsync="on", track_commit_timestamp="on", max_prepared_transactions=2, autovacuum="off"))
        server.user("writer")
        server.install(gate_users=["writer"])  # behind a pooler the gate's own connections are among the others
        server.sql(SCHEMA)
        server.sql("GRANT EXECUTE ON FUNCTION fencegate.lock_key(text) TO writer")
        upstream = self.start(PgBouncer(server, user="writer")) if pooled else server
        return server, self.start(PgGate(upstream, guard="transaction", user="writer", extra={"pooled": pooled}, **gate))


class Direct(Attacks):
    def test_nothing_escapes_its_guard(self):
        server, gate = self.served(False)
        self.assertEqual(self.stale(gate, server, ONLY), [])


class Pooled(Attacks):
    def test_nothing_escapes_its_guard_behind_a_pooler(self):
        server, gate = self.served(True)
        # There a name of an earlier transaction is refused, and a guard is never kept.
        self.assertEqual(self.stale(gate, server, ONLY, without=("unnamed",)), [])


if __name__ == "__main__":
    main(at_once=2)
