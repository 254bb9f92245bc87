"""A drain under constant load loses nothing: of two gates the one drains, and clients go to whichever says that it is ready."""

import contextlib
import functools
import http.client
import itertools
import time

import psycopg2

from gate_process import Gate
from http_gate import HttpGate
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, run_sql
from processes import LOOPBACK, PATIENCE, eventually
from redis_server import RedisServer
from resp import Resp
from test_http_operations import Scripted
from workers import Workers

KEPT, FRESH = 16, 4


class Load(Workers):
    """Threads that write again and again, each through one of the gates that were ready a moment ago. `failed`: what went
    wrong; nothing is tried twice."""

    def __init__(self, gates, writers):
        super().__init__(self._watch, *(functools.partial(self._run, one) for one in writers))
        self.gates, self.writers = gates, writers
        self.ready = list(gates)
        self.failed, self.done = [], itertools.count()

    def __exit__(self, *how):
        super().__exit__(*how)
        for one in self.writers:
            one.leave()

    def _watch(self):
        """As a balancer that asks twice a second."""
        while not self.over.wait(0.5):
            self.ready = [one for one in self.gates if self._is_ready(one)]

    @staticmethod
    def _is_ready(gate):
        with contextlib.suppress(OSError):
            return gate.http("/readyz")[0] == 200
        return False

    def _run(self, writer):
        turn = itertools.count(id(writer))
        while not self.over.is_set():
            gates = self.ready
            try:
                writer(gates[next(turn) % len(gates)])
                next(self.done)
            except Exception as e:  # whatever it is, it is a failed request
                self.failed.append(repr(e))
                writer.leave()

    def count(self):
        return int(repr(self.done)[6:-1])

    def some_more(self):
        before = self.count()
        eventually(lambda: self.count() > before + 200 or self.failed)


class Kept:
    connection = None

    def leave(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class KeptHttp(Kept):
    """Asks on one connection until the gate says that it was the last time, and then on another."""

    def __call__(self, gate):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(LOOPBACK, gate.port, timeout=PATIENCE)
        self.connection.request("PUT", "/ok", b"x", {"Fencing-Token": "34"})
        answer = self.connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")
        if answer.will_close:
            self.leave()


class FreshHttp(KeptHttp):
    def __call__(self, gate):
        super().__call__(gate)
        self.leave()


class KeptRedis(Kept):
    """As a pool does it: a connection that has ended while it lay there is none, and where it ends between that look and the
    command, the command is sent again, once. `counted`: what INCR answered."""

    def __init__(self):
        self.counted = []

    def __call__(self, gate):
        if self.connection is not None and self._has_ended():
            self.leave()
        try:
            self._count(gate)
        except ConnectionError:
            self.leave()
            self._count(gate)
        time.sleep(0.002)  # what the writer does with it

    def _count(self, gate):
        if self.connection is None:
            self.connection = Resp(gate.address, name="fence:orders=34", timeout=PATIENCE)
        self.counted.append(self.connection.call("INCR", "n"))

    def _has_ended(self):
        sock = self.connection.sock
        sock.setblocking(False)
        try:
            return sock.recv(1) == b""
        except BlockingIOError:
            return False
        finally:
            sock.settimeout(30)


class KeptPostgres(Kept):
    """One row each time. Who is told that the server ends the connection has not been heard, and asks again."""

    numbers = itertools.count()

    def __init__(self):
        self.written = []

    def __call__(self, gate):
        number = next(self.numbers)
        for _ in range(2):
            try:
                if self.connection is None:
                    self.connection = gate.connect("orders=34", user="alice")
                run_sql(self.connection, "INSERT INTO numbers VALUES (%s)", number)
                self.written.append(number)
                return
            except psycopg2.errors.AdminShutdown:
                self.leave()
        raise AssertionError("told so twice")


class Drain(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())

    def drained(self, gates, writers):
        """Nothing fails while one of two gates drains, and the other is the only one that is left."""
        with Load(gates, writers) as load:
            gates[0].terminate()
            self.assertEqual(gates[0].wait(60), 0)
            load.some_more()
        self.assertEqual(load.failed, [])

    def test_http(self):
        upstream = self.start(Scripted())
        gates = [self.start(HttpGate(upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"},
                                     [{"match": "PUT /{path...}", "resource": "orders"}])) for _ in range(2)]
        self.drained(gates, [KeptHttp() for _ in range(KEPT)] + [FreshHttp() for _ in range(FRESH)])

    def test_postgres(self):
        server = self.start(PostgresServer())
        server.install()
        server.sql("CREATE ROLE alice LOGIN")
        server.sql("CREATE TABLE numbers (n bigint)")
        server.sql("GRANT ALL ON numbers TO alice")
        gates = [self.start(PgGate(server)) for _ in range(2)]
        first = KeptPostgres()
        first(gates[1])  # nobody raises the mark later
        first.leave()
        writers = [KeptPostgres() for _ in range(KEPT)]
        self.drained(gates, writers)
        written = sorted(number for one in [first, *writers] for number in one.written)
        self.assertEqual([n for (n,) in server.sql("SELECT n FROM numbers ORDER BY n")], written, "each once")

    def test_redis(self):
        writers = [KeptRedis() for _ in range(KEPT)]
        self.drained([self.start(Gate(self.redis)) for _ in range(2)], writers)
        counted = sorted(number for one in writers for number in one.counted)
        self.assertEqual(counted, list(range(1, len(counted) + 1)), "each once")
        self.assertEqual(int(self.redis.cli.call("GET", "n")), len(counted))


if __name__ == "__main__":
    main(at_once=3)
