"""guard: transaction: a raise waits for its own resource only, not for ever, and only for a client that is still there."""

import contextlib
import re
import threading
import time

import psycopg2

from live_test import LiveTest, main
from pg_wire import Wire
from postgres import PgGate, PostgresServer, run_sql
from processes import eventually


class Raises(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.user("alice")
        cls.server.install(gate_users=["alice"], cut_ms=20000)
        cls.gate = cls.enterClassContext(PgGate(cls.server, guard="transaction", user="alice", cut_timeout="20s"))
        cls.hasty = cls.enterClassContext(PgGate(cls.server, guard="transaction", user="alice", cut_timeout="500ms"))

    def setUp(self):
        self.resource = self.id().rsplit(".", 1)[1]

    @contextlib.contextmanager
    def stuck(self, resource):
        """A superuser's transaction, which fencegate may not end, holds its lock."""
        with contextlib.closing(self.server.connect()) as holder:
            run_sql(holder, "SELECT pg_advisory_lock_shared(fencegate.lock_key(%s))", resource)
            yield

    def connect(self, resource, token, gate=None):
        return contextlib.closing((gate or self.gate).connect(f"{resource}={token}", user="alice"))

    def in_background(self, resource, token, gate=None):
        """Connects; the list has the mark, or the error, when it is through."""
        outcome = []

        def run():
            try:
                with self.connect(resource, token, gate) as client:
                    outcome.append(run_sql(client, "SELECT 1"))
            except psycopg2.Error as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return outcome

    def waiting_raises(self):
        return self.server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    def mark(self, resource):
        return self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", resource)

    def test_a_stuck_resource_stops_no_other(self):
        with self.stuck("first"), self.stuck("second"):
            waiting = [self.in_background(name, token) for token in (34, 35) for name in ("first", "second")]
            eventually(lambda: self.waiting_raises() == 2)
            for token in range(34, 37):
                with self.connect(self.resource, token) as client:
                    self.assertEqual(run_sql(client, "SELECT 1"), [(1,)])
            self.assertEqual([len(one) for one in waiting], [0, 0, 0, 0])
            self.assertEqual(self.mark("first"), None)
        for outcome in waiting:
            eventually(lambda one=outcome: one)
        self.assertEqual((self.mark("first"), self.mark("second")), (35, 35))

    def test_who_brings_the_mark_waits_for_no_raise(self):
        with self.connect(self.resource, 34):
            pass
        with self.stuck(self.resource):
            waiting = self.in_background(self.resource, 35)
            eventually(lambda: self.waiting_raises() == 1)
            with self.connect(self.resource, 34):
                self.assertEqual(waiting, [])
        eventually(lambda: waiting)
        self.assertEqual((waiting, self.mark(self.resource)), ([[(1,)]], 35))

    def test_who_is_stale_waits_for_no_raise(self):
        self.server.sql("SELECT fencegate.raise(%s, 34)", self.resource)  # which the gate has not seen
        with self.stuck(self.resource):
            waiting = self.in_background(self.resource, 35)
            eventually(lambda: self.waiting_raises() == 1)
            with self.assertRaisesRegex(psycopg2.OperationalError, "token 33 of .* is below mark 34"):
                self.connect(self.resource, 33)
            self.assertEqual(waiting, [])
        eventually(lambda: waiting)

    def test_what_a_client_wanted_that_has_left_is_not_raised(self):
        with self.stuck(self.resource):
            first = self.in_background(self.resource, 34)
            eventually(lambda: self.waiting_raises() == 1)
            before = self.gate.metric("connections")
            with Wire(self.gate.address, user="alice", options=f"-c fencing.tokens={self.resource}=40"):
                # When its own session at the server is up, its raise is in line.
                eventually(lambda: self.gate.metric("connections") == before + 1)
                eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'alice' "
                                                     "AND backend_type = 'client backend'") >= 4)
            eventually(lambda: self.gate.metric("connections") == before)
        eventually(lambda: first)
        self.assertEqual(first, [[(1,)]])
        with self.connect(self.resource, 35):  # it would be stale
            self.assertEqual(self.mark(self.resource), 35)

    def test_nobody_stands_in_line_for_ever(self):
        """One is at it at a time, for half a second; who stands in line for two and a half is told."""
        with self.stuck(self.resource):
            waiting = [self.in_background(self.resource, token, self.hasty) for token in range(34, 46)]
            began = time.monotonic()
            for outcome in waiting:
                eventually(lambda one=outcome: one)
            self.assertLess(time.monotonic() - began, 10)
        told = {re.search("it is locked|raises in front|$", str(outcome[0])).group() for outcome in waiting}
        self.assertEqual(told, {"it is locked", "raises in front"})
        with self.connect(self.resource, 34):
            self.assertEqual(self.mark(self.resource), 34)

    @contextlib.contextmanager
    def many_stuck(self, gate):
        """Of more resources than the gate has connections for raises: who wants them waits."""
        with contextlib.ExitStack() as stuck:
            names = [f"{self.resource}.{number}" for number in range(20)]
            for name in names:
                stuck.enter_context(self.stuck(name))
            waiting = [self.in_background(name, 34, gate) for name in names]
            eventually(lambda: self.waiting_raises() >= 15)
            yield names, waiting

    def test_behind_many_stuck_resources_others_wait_for_a_turn(self):
        with self.many_stuck(self.gate) as (names, waiting):
            for token in (34, 35):
                with self.connect(self.resource, token) as client:
                    self.assertEqual(run_sql(client, "SELECT 1"), [(1,)])
            self.assertEqual([outcome for outcome in waiting if outcome], [])
            self.assertEqual(self.mark(self.resource), 35)
        for name, outcome in zip(names, waiting):
            eventually(lambda one=outcome: one)
            self.assertEqual((outcome, self.mark(name)), ([[(1,)]], 34))

    def test_many_stuck_resources_are_given_up_each_at_its_time(self):
        gate = self.start(PgGate(self.server, guard="transaction", user="alice", cut_timeout="3s"))
        with self.many_stuck(gate) as (names, waiting):
            for outcome in waiting:
                eventually(lambda one=outcome: one)
            told = {re.search("it is locked|$", str(outcome[0])).group() for outcome in waiting}
            self.assertEqual((told, {self.mark(name) for name in names}), ({"it is locked"}, {None}))
            eventually(lambda: self.waiting_raises() == 0)
        with self.connect(names[0], 34, gate):
            self.assertEqual(self.mark(names[0]), 34)


if __name__ == "__main__":
    main()
