"""guard: transaction under random conversations: writers on two resources, raises at any time, pauses between messages and
inside them, cancels, gates that are frozen. The judge is the server: by its times of commit nothing stale may be there, rows that
were acknowledged must be there once, rows that were rolled back must not. No client is left in a block that it never began.

$FENCEGATE_HISTORY_SECONDS: go on for that long, and until enough was acknowledged. $FENCEGATE_HISTORY_SEED: the random numbers."""

import collections
import contextlib
import itertools
import os
import random
import signal
import threading
import time

from guard.conversations import Talker
from guard.scripts import SCHEMA
from guard.told import Told
from live_test import LiveTest, main
from pg_wire import COPY_DONE, TERMINATE, Wire, cancel_request, fields
from postgres import PgBouncer, PgGate, PostgresServer
from processes import PATIENCE, connect

SECONDS = float(os.environ.get("FENCEGATE_HISTORY_SECONDS", "20"))
SEED = int(os.environ.get("FENCEGATE_HISTORY_SEED", str(time.time_ns() % 1_000_000)))
WRITERS = 8
ENOUGH = 50  # rows acknowledged, and one write refused as stale: a slow machine takes longer for them
SECONDS_MAX = SECONDS + 300


class Hung(Exception):
    """No answer came, though no raise was in the way."""


class LeftInBlock(Exception):
    """A client that has begun none is in a transaction block."""


class History:
    def __init__(self, server, gates, pooled, seconds=SECONDS, seed=SEED, seconds_max=None):
        self.server, self.gates, self.pooled, self.seed = server, gates, pooled, seed
        self.until = time.monotonic() + seconds
        self.until_at_most = time.monotonic() + (seconds_max or seconds)
        self.counted = collections.Counter()
        self.acknowledged, self.rolled_back = set(), set()
        self.failures = []
        self._ids, self._lock = itertools.count(1), threading.Lock()
        self._keys = {}  # of the sessions that are open: number of the writer → gate, process id and secret
        self._tokens = {"A": itertools.count(1), "B": itertools.count(1)}

    def new_id(self):
        with self._lock:
            return next(self._ids)

    def over(self):
        now = time.monotonic()
        return now > self.until and (now > self.until_at_most or self.has_enough())

    def has_enough(self):
        return len(self.acknowledged) >= ENOUGH and self.counted["ZF001"] > 0

    def run(self):
        threads = [threading.Thread(target=self._guarded, args=(self._write, number)) for number in range(WRITERS)]
        threads += [threading.Thread(target=self._guarded, args=(work, 0)) for work in (self._freeze, self._cancel)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def _guarded(self, work, number):
        try:
            luck = random.Random(self.seed * 1000 + number)
            work(luck, number) if work == self._write else work(luck)
        except Exception as error:  # a thread's own failure must be seen
            self.failures.append(repr(error))

    def _freeze(self, luck):
        while not self.over():
            time.sleep(luck.random() * 1.5)
            gate = luck.choice(self.gates)
            os.kill(gate.pid, signal.SIGSTOP)
            time.sleep(luck.choice([.1, .5, 1.2]))
            os.kill(gate.pid, signal.SIGCONT)
            self.counted["freezes"] += 1

    def _cancel(self, luck):
        while not self.over():
            time.sleep(luck.random() * .1)
            with self._lock:
                key = luck.choice(list(self._keys.values())) if self._keys else None
            if key is None:
                continue
            gate, body = key
            with contextlib.suppress(ConnectionError, TimeoutError), connect(gate.address, PATIENCE) as sock:
                sock.sendall(cancel_request(int.from_bytes(body[:4], "big", signed=True), body[4:]))
                sock.recv(1)
            self.counted["cancels"] += 1

    def _write(self, luck, number):
        while not self.over():
            resource = luck.choice("AB")
            with self._lock:
                token = next(self._tokens[resource])
            with contextlib.suppress(ConnectionError, TimeoutError):
                gate = luck.choice(self.gates)
                wire = Wire(gate.address, user="writer", timeout=PATIENCE,
                            options=f"-c fencing.tokens={resource}={token}")
                with wire:
                    greeting = dict(wire.until_ready())
                    if b"E" in greeting:
                        continue
                    self.counted["holders"] += 1
                    with self._lock:
                        self._keys[number] = gate, greeting[b"K"]
                    self._hold(luck, wire, Talker(luck, resource, token, self.new_id, named=not self.pooled))
            with self._lock:
                self._keys.pop(number, None)

    def _hold(self, luck, wire, talker):
        told = Told(self.acknowledged, self.rolled_back)
        leaves = time.monotonic() + luck.choice([.5, 2, 5])
        while time.monotonic() < leaves and not self.over():
            self.counted["conversations"] += 1
            said, before = talker.conversation(), told.status
            try:
                self._say(luck, wire, told, said)
            except TimeoutError:
                raise Hung(repr(said)) from None
            begins_none = len(said) == 1 and all(one == ("Z",) or one[1][0] == "rows" for one in said[0][1])
            if before == b"I" and begins_none and told.status != b"I":
                raise LeftInBlock(repr(said))
            if luck.random() < .2:
                time.sleep(luck.choice([.05, .3]))
        wire.send(TERMINATE)

    def _say(self, luck, wire, told, said):
        slow, owed = luck.random() < .35, 0
        for data, *expectations in said:
            if data == "await data":
                if not self._data_is_asked_for(wire, told):
                    return
                continue
            told.expected.extend(expectations[0])
            owed += sum(1 for one in expectations[0] if one[0] == "Z")
            if slow and luck.random() < .5:
                cut = luck.randrange(len(data))
                wire.send(data[:cut])
                time.sleep(luck.choice([.01, .1, .4]))
                data = data[cut:]
            wire.send(data)
        while owed > 0:
            kind, body = wire.read()
            if kind == b"E":
                self.counted[fields(body)["C"]] += 1
            if kind == b"G":
                wire.send(COPY_DONE)
            elif told.reply(kind, body):
                owed -= 1

    def _data_is_asked_for(self, wire, told):
        while True:
            kind, body = wire.read()
            if kind == b"G":
                return True
            if told.reply(kind, body):
                return False

    def violations(self):
        rows = [row[0] for row in self.server.sql("SELECT id FROM app.w")]
        there = set(rows)
        return {
            "stale": [row[0] for row in self.server.sql("SELECT id FROM app.stale")],
            "lost": sorted(self.acknowledged - there),
            "not rolled back": sorted((self.rolled_back - self.acknowledged) & there),
            "twice": len(rows) - len(there),
            "failures": self.failures[:3],
        }


class GuardHistoryTest(LiveTest):
    def served(self, pooled, **gate):
        """(server, its two gates)"""
        server = self.start(PostgresServer(fsync="on", track_commit_timestamp="on", autovacuum="off"))
        server.user("writer")
        server.install(gate_users=["writer"])
        server.sql(SCHEMA)
        upstream = self.start(PgBouncer(server, user="writer", default_pool_size=12)) if pooled else server
        return server, [self.start(PgGate(upstream, guard="transaction", user="writer", extra={"pooled": pooled}, **gate))
                        for _ in range(2)]


class GuardHistory(GuardHistoryTest):
    def judge(self, pooled):
        server, gates = self.served(pooled)
        history = History(server, gates, pooled, seconds_max=SECONDS_MAX)
        history.run()
        raises = server.value("SELECT count(*) FROM app.raises")
        print(f"seed {SEED}: {dict(history.counted)}, {raises} raises, {len(history.acknowledged)} rows acknowledged, "
              f"{len(history.rolled_back)} rolled back")
        self.assertEqual(history.violations(), {"stale": [], "lost": [], "not rolled back": [], "twice": 0, "failures": []})
        self.assertTrue(history.has_enough())

    def test_direct(self):
        self.judge(False)

    def test_behind_a_pooler(self):
        self.judge(True)


if __name__ == "__main__":
    main(at_once=2)
