"""One writer to PostgreSQL. Started by pg_run.py.

    pg_writer.py NAME RESOURCE SEED ISSUER_PORT RECORDS GUARD GATE_PORT…"""

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.holder import Holder, Superseded
from history.pg_clients import Failure, Psql, Psycopg, Psycopg3

LEVELS = ("read committed", "repeatable read", "serializable")
CONFLICTS = ("40001", "40P01")  # the server undid the transaction
SERVER_LOG = "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint"


class Watch:
    """Ends a connection whose answer takes longer than its user likes, while writes are still on their way."""

    def __init__(self):
        self._lock = threading.Lock()
        self._end = self._client = None
        threading.Thread(target=self._run, daemon=True).start()

    def expect(self, client, seconds):
        with self._lock:
            self._client, self._end = client, time.monotonic() + seconds

    def done(self):
        with self._lock:
            self._client = None

    def _run(self):
        while True:
            time.sleep(0.02)
            with self._lock:
                if self._client is not None and time.monotonic() > self._end:
                    self._client.abort()
                    self._client = None


class Writer(Holder):
    doubts_max = 4  # each costs a connection

    def __init__(self, name, resource, seed, issuer_port, records, guard, gate_ports):
        super().__init__(name, resource, seed, issuer_port, records)
        self.pooled = guard == "transaction"
        self.gate_ports = gate_ports
        self.watch = Watch()
        self.ways = {}  # → weights

    def ways_of(self, kind):
        ways = {self.single: 30, self.transaction: 35, self.copy: 12, self.function: 12}
        ways |= {self.call: 4, self.messages: 8} if self.pooled else {self.call: 8, self.script: 8}
        ways |= {self.message: 12} if self.pooled else {}
        if kind is Psycopg3:
            ways |= {self.pipeline: 35}
        return {way: weight for way, weight in ways.items()
                if kind.glue or way not in (self.script, self.message, self.messages)}

    # ── connections ──

    def connect(self, token):
        port, tag = self.random.choice(self.gate_ports), f"{self.resource}={token}"
        level = self.random.choice(LEVELS).replace(" ", "\\ ")
        settings = [f"-c default_transaction_isolation={level}"]
        name, comment, way = "history", "", self.random.random()
        if way < 0.6:
            settings.append(f"-c fencing.tokens={tag}")
        elif way < 0.8 or self.pooled:
            name = f"history fence:{tag}"
        else:  # bound to something else first
            name, comment = f"history fence:own.{self.name}=1", f"/*fence:{tag}*/ "
        # Impatient: gives up on a frozen gate while its writes still wait there.
        self.patience = self.random.choice((0.2, 0.6, 5))
        self.connections += 1
        self.inside = False  # a transaction
        kind = self.random.choices((Psql, Psycopg, Psycopg3), (3, 3, 4))[0]
        self.ways = self.ways_of(kind)
        try:
            self.client = kind(port, " ".join(settings), name)
            self.token = token
            position = self.do(lambda: self.client.value(comment + SERVER_LOG))
            if self.pooled:  # it takes no options; this stays in one of its sessions, for whoever gets that next
                self.execute(f"SET default_transaction_isolation = '{self.random.choice(LEVELS)}'")
        except Failure as failure:
            self.note_failure(failure)
            raise (Superseded if failure.stale else ConnectionError)(str(failure)) from None
        self.recorder.note([("b", token, int(position))])

    def note_failure(self, failure):
        """Of something that is no write."""
        if failure.bare_end and not self.pooled:
            self.recorder.note([("x", str(failure).replace("\n", " "))])
        elif failure.stale:
            self.recorder.note([("n", "old holder refused at its start")])

    def do(self, action):
        self.watch.expect(self.client, self.patience)
        try:
            return action()
        finally:
            self.watch.done()

    def execute(self, sql):
        self.do(lambda: self.client.execute(sql))

    # ── ways of writing ──

    def write_some(self, token):
        way = self.random.choices(list(self.ways), self.ways.values())[0]
        count = 1 if way == self.single else self.random.randint(2, 5)
        seqs = self.announce(token, count)
        try:
            kept = way(seqs)
        except Failure as failure:
            left = self.unanswered(seqs, failure)
            if way == self.messages:  # it does not say which of its two transactions failed
                self.recorder.note([("u", left.pop(0), f"{failure.sqlstate or 'lost'} (messages)")])
            return self.judge(failure, left, way)
        self.recorder.note([("a", seq) if kept else ("r", seq, "ROLLBACK") for seq in seqs])
        if kept:
            self.recorder.note([("n", f"{way.__name__} kept")])
        return (count, 0) if kept else (0, 0)

    def judge(self, failure, seqs, way):
        """→ acknowledged, stale; Superseded or ConnectionError when the connection is lost."""
        inside, self.inside = self.inside, False
        code = failure.sqlstate or "lost"
        atomic = way not in (self.call, self.script)
        if failure.bare_end and not self.pooled:  # behind a pooler, others end sessions too
            note = ("e", str(failure).replace("\n", " "))
        elif failure.applied == "no" and (failure.sqlstate or "").startswith("ZF"):
            note = ("r", code)
        elif inside:
            note = ("r", f"{code} before COMMIT")  # whatever the answer was: COMMIT has not been sent
        elif code in CONFLICTS and atomic:
            note = ("r", code)
        elif code == "2D000" and self.pooled:
            note = ("r", code)  # a COMMIT inside of a CALL, which is in a block of the gate's own
        elif failure.lost or failure.applied == "unknown" or code in CONFLICTS:
            note = ("u", code)
        else:
            note = ("e", f"{code} {failure}".replace("\n", " "))
        self.recorder.note([(note[0], seq, f"{note[1]} ({way.__name__})") for seq in seqs])
        if failure.stale:
            cut = f"cut {'inside a transaction' if inside else 'outside'}, applied: {failure.applied}"
            self.recorder.note([("n", cut if failure.lost else "old holder refused at its next transaction")])
        if failure.lost:
            raise (Superseded if failure.stale else ConnectionError)(str(failure))
        if inside or way in (self.message, self.messages, self.pipeline):  # they may have begun one
            self.rollback()
        return 0, int(failure.stale)

    def rollback(self):
        try:
            self.execute("ROLLBACK")
        except Failure as failure:
            self.note_failure(failure)
            raise (Superseded if failure.stale else ConnectionError)(str(failure)) from None

    def rows(self, seqs):
        return ", ".join(f"('{self.resource}', {self.token}, '{self.name}', {seq})" for seq in seqs)

    def insert(self, seqs):
        return f"INSERT INTO writes (resource, token, writer, seq) VALUES {self.rows(seqs)}"

    def numbers(self, seqs):
        return f"'{self.resource}', {self.token}, '{self.name}', '{{{','.join(map(str, seqs))}}}', {self.nap(0.02):.3f}"

    def nap(self, longest):
        """Seconds; mostly none."""
        return self.random.uniform(0, longest) if self.random.random() < 0.4 else 0

    def single(self, seqs):
        self.execute(self.insert(seqs))
        return True

    def transaction(self, seqs):
        """Paused in the middle, sometimes with a lock that its successor wants."""
        self.execute(f"BEGIN ISOLATION LEVEL {self.random.choice(LEVELS)}")
        self.inside = True
        if self.random.random() < 0.5:
            self.execute(f"UPDATE heads SET token = {self.token} WHERE resource = '{self.resource}'")
        for seq in seqs:
            time.sleep(self.nap(0.06))
            if self.random.random() < 0.2:
                self.execute("SAVEPOINT here")
            self.execute(self.insert([seq]))
        time.sleep(self.nap(0.1))
        if self.random.random() < 0.1:
            self.execute("ROLLBACK")
            self.inside = False
            return False
        self.inside = False
        self.execute("COMMIT")
        return True

    def copy(self, seqs):
        lines = [f"{self.resource}\t{self.token}\t{self.name}\t{seq}" for seq in seqs]
        self.do(lambda: self.client.copy("writes (resource, token, writer, seq)", lines, self.nap(0.05)))
        return True

    def function(self, seqs):
        self.execute(f"SELECT write_all({self.numbers(seqs)})")
        return True

    def call(self, seqs):
        """Commits behind each write."""
        self.execute(f"CALL write_each({self.numbers(seqs)})")
        return True

    def script(self, seqs):
        """Several transactions in one message."""
        begin = f"BEGIN ISOLATION LEVEL {self.random.choice(LEVELS)}"
        self.execute(self.client.glue.join([begin, self.insert(seqs[:1]), "COMMIT", self.insert(seqs[1:])]))
        return True

    def message(self, seqs):
        """Several statements, one transaction, in one message."""
        texts = [self.insert(seqs[:1]), self.insert(seqs[1:])]
        if self.random.random() < 0.5:
            texts = ["BEGIN", *texts, "COMMIT"]
        self.execute(self.client.glue.join(texts))
        return True

    def messages(self, seqs):
        """A transaction, and what commits by itself, in one message."""
        self.execute(self.client.glue.join(["BEGIN", self.insert(seqs[:1]), "COMMIT", self.insert(seqs[1:])]))
        return True

    def pipeline(self, seqs):
        """Up to two transactions, and what commits with the Sync."""
        ends = sorted(self.random.choices(range(len(seqs) + 1), k=2))
        self.parts = [part for part in (seqs[: ends[0]], seqs[ends[0] : ends[1]]) if part]
        level = self.random.choice(LEVELS)
        transactions = [[f"BEGIN ISOLATION LEVEL {level}", *map(self.insert, ([seq] for seq in part)), "COMMIT"]
                        for part in self.parts]
        if rest := seqs[ends[1] :]:
            transactions.append([self.insert([seq]) for seq in rest])
        self.do(lambda: self.client.pipeline(transactions))
        return True

    def unanswered(self, seqs, failure):
        """Notes what a pipeline did before it failed. → the others"""
        done = sum(map(len, self.parts[: failure.done])) if failure.done else 0
        self.recorder.note([("a", seq) for seq in seqs[:done]])
        return seqs[done:]


if __name__ == "__main__":
    me, lease, seed_text, port_text, path, kept_by, *ports = sys.argv[1:]
    Writer(me, lease, seed_text, int(port_text), path, kept_by, list(map(int, ports))).run()
