"""What operators rely on with a PostgreSQL gate: limits, time-outs, a backend that dies, draining, bounded memory."""

import contextlib
import http.client
import json
import os
import subprocess
import tempfile
import threading
import unittest

import psycopg2

from pg_wire import (COPY_DONE, SYNC, TERMINATE, Wire, bind, cancel_request, copy_data, describe, execute, extended,
                     fields, message, parse, query, startup)
from cut_proxy import CutProxy, SilentPort
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, run_sql
from processes import PATIENCE, connect, die_with_parent, eventually, free_port

MIB = 1024 * 1024
ALLOW = {"missing_token": "allow"}
LOCK = query("SELECT pg_advisory_lock(1)")


class OperationsTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.user("alice")
        cls.server.sql("CREATE TABLE writes (who text)")
        cls.server.sql("GRANT ALL ON writes TO alice")

    def setUp(self):
        self.server.sql("TRUNCATE writes")

    def gate(self, **options):
        return self.start(PgGate(self.server, **({"policy": ALLOW} | options)))

    def client(self, gate, **options):
        connection = gate.connect(user="alice", **options)
        self.addCleanup(connection.close)
        return connection

    def wire(self, gate, **parameters):
        wire = self.start(Wire(gate.address, user="alice", **parameters))
        wire.until_ready()
        return wire

    def lock(self):
        """A LOCK of a client waits from now on, until the test unlocks it."""
        self.server.sql("SELECT pg_advisory_lock(1)")
        self.addCleanup(self.server.sql, "SELECT pg_advisory_unlock_all()")

    def until_it_waits_for_the_lock(self):
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))

    def assert_fatal(self, wire, state):
        kind, body = wire.read()
        self.assertEqual((kind, fields(body)["C"], fields(body)["V"]), (b"E", state, "FATAL"))
        self.assertIn(wire.rest(), (b"", message(b"Z", b"I")))
        return fields(body)["M"]

    @staticmethod
    def is_closed_within(sock, seconds):
        sock.settimeout(seconds)
        try:
            while sock.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


class Limits(OperationsTest):
    def test_connections_max(self):
        gate = self.gate(extra={"connections_max": 2})
        first = self.client(gate)
        self.client(gate)
        self.assertIn("connections_max of gate db", self.assert_fatal(self.start(Wire(gate.address)), "53300"))
        with self.assertRaisesRegex(psycopg2.OperationalError, "too many connections"):
            self.client(gate, sslmode="disable")
        self.assertEqual(gate.metric("connections_rejected_total", reason="limit"), 2)
        first.close()
        eventually(lambda: gate.metric("connections") == 1)
        self.assertEqual(run_sql(self.client(gate), "SELECT 1"), [(1,)])

    def test_a_storm_of_one_tag_leaves_room_for_another(self):
        gate = self.gate(extra={"connections_max": 16})
        storm = [self.client(gate, tag="orders=34") for _ in range(14)]
        late = self.start(Wire(gate.address, user="alice", options="-c fencing.tokens=orders=34"))
        self.assertIn("14 have the tag orders=34", self.assert_fatal(late, "53300"))
        other = self.client(gate, tag="stock=1")
        self.assertEqual(run_sql(other, "SELECT 1"), [(1,)])
        self.assertEqual(gate.metric("connections_rejected_total", reason="limit"), 1)
        storm.pop().close()
        eventually(lambda: gate.metric("connections") == 14)
        for client in (*storm, self.client(gate, tag="orders=34")):
            self.assertEqual(run_sql(client, "SELECT 1"), [(1,)])
        self.assertEqual(run_sql(self.client(gate, tag="orders=35"), "SELECT 1"), [(1,)])  # and ends the others
        for client in storm:
            with self.assertRaises(psycopg2.Error):
                run_sql(client, "SELECT 1")

    @unittest.skipIf("FENCEGATE_SANITIZED" in os.environ, "how many descriptors are left is another number")
    def test_without_a_file_descriptor_clients_are_told(self):
        gate = PgGate(self.server, policy=ALLOW)
        gate.files = (64, 64)
        self.start(gate)
        for _ in range(64):
            self.start(Wire(gate.address, user="alice"))

        def rejected():
            with contextlib.suppress(OSError, http.client.HTTPException):  # the page takes one, too
                return gate.metric("connections_rejected_total", reason="files") > 0
        eventually(rejected)
        self.assertEqual((gate.http("/readyz")[0], gate.http("/livez")[0]), (503, 200))

        def told():
            """One that found room stays, so that the next has less. Where there was none for its link to the server (08006),
            it goes: one that says nothing takes its place."""
            kind, body = self.start(Wire(gate.address)).read()
            if kind == b"E" and fields(body)["C"] == "53300":
                return fields(body)
            self.addCleanup(connect(gate.address).close)
            return None
        said = eventually(told)
        self.assertEqual(said["V"], "FATAL")
        self.assertIn("no file descriptor is left", said["M"])

    def test_every_gauge_returns_to_zero(self):
        gate = self.gate()
        clients = [self.client(gate) for _ in range(10)]
        self.assertEqual(gate.metric("connections"), 10)
        for client in clients:
            client.close()
        eventually(lambda: gate.metric("connections") == 0)
        eventually(lambda: not self.server.sql("SELECT 1 FROM pg_stat_activity WHERE usename = 'alice'"))

    def test_a_silent_client_is_cut_after_the_idle_timeout(self):
        gate = self.gate(extra={"timeouts": {"idle": "700ms"}})
        self.assertIn("idle timeout", self.assert_fatal(self.wire(gate), "57P05"))

    def test_a_client_that_waited_for_its_answer_was_not_idle(self):
        gate = self.gate(extra={"timeouts": {"idle": "5s"}})
        wire = self.wire(gate)
        wire.send(query("SELECT pg_sleep(6)"))
        wire.until_ready()
        self.assertFalse(self.is_closed_within(wire.sock, 1))
        self.assertTrue(self.is_closed_within(wire.sock, PATIENCE))

    def test_an_open_transaction_is_not_idle(self):
        gate = self.gate(extra={"timeouts": {"idle": "500ms"}})
        wire = self.start(Wire(gate.address, user="alice"))
        wire.send(query("BEGIN"))  # at once: so there is no idle moment before it
        for status in (b"I", b"T"):
            self.assertEqual(wire.until_ready()[-1][1], status)
        self.assertFalse(self.is_closed_within(wire.sock, 2))

    def test_half_an_opening_is_cut_after_the_head_timeout(self):
        gate = self.gate(extra={"timeouts": {"head": "3s"}})  # which includes what the server does for a whole one
        for opening in (b"", startup(user="alice")[:10]):
            with contextlib.closing(connect(gate.address)) as sock:
                sock.sendall(opening)
                self.assertTrue(self.is_closed_within(sock, 15))
        self.assertFalse(self.is_closed_within(self.wire(gate).sock, 4))

    def test_a_client_that_never_reads_is_cut_after_the_write_timeout(self):
        gate = self.gate(extra={"timeouts": {"write": "1s"}})
        wire = self.wire(gate)
        wire.send(query("SELECT repeat('x', 1000000) FROM generate_series(1, 100)"))
        eventually(lambda: gate.metric("connections") == 0)
        eventually(lambda: not self.server.sql("SELECT 1 FROM pg_stat_activity WHERE usename = 'alice'"))

    def test_a_password_that_never_comes_is_cut(self):
        server = self.start(PostgresServer(hba=["host all bob 127.0.0.1/32 scram-sha-256"]))
        server.install()
        server.user("bob", password="secret")
        gate = self.start(PgGate(server, policy=ALLOW, extra={"timeouts": {"head": "700ms"}}))
        self.assertTrue(self.is_closed_within(self.start(Wire(gate.address, user="bob")).sock, PATIENCE))


class Backend(LiveTest):
    def setUp(self):
        self.server = self.start(PostgresServer())
        self.server.install()
        self.server.user("alice")
        self.proxy = self.start(CutProxy(self.server.port))
        self.gate = self.start(PgGate(self.proxy, policy=ALLOW))

    def client(self, tag=None):
        connection = self.gate.connect(tag, user="alice")
        self.addCleanup(connection.close)
        return connection

    def test_down_at_connect_is_said_clearly_and_recovers(self):
        self.server.kill()
        with self.start(Wire(self.gate.address, user="alice")) as wire:
            kind, body = wire.read()
            said = fields(body)
            self.assertEqual((kind, said["V"], said["C"]), (b"E", "FATAL", "08006"))
        eventually(lambda: self.gate.metric("backend_up") == 0)
        self.assertEqual(self.gate.http("/readyz")[0], 200, "a backend's hiccup must not evict the pod")
        self.server.restart()
        eventually(lambda: self.gate.metric("backend_up") == 1)
        self.assertEqual(run_sql(self.client("orders=3"), "SELECT 1"), [(1,)])

    def test_a_server_whose_name_is_unknown(self):
        gate = PgGate(self.server, policy=ALLOW, upstream_host="nowhere.invalid")
        gate.needs_backend = False
        self.start(gate)
        # The first client, too, learns that, and not that nothing is known yet.
        with self.assertRaisesRegex(psycopg2.OperationalError, "cannot be reached: cannot resolve nowhere.invalid: "):
            gate.connect()

    def test_refused_at_connect(self):
        server = self.start(PostgresServer())
        server.install()
        gate = self.start(PgGate(server, policy=ALLOW))
        server.kill()
        text = "server behind this gate cannot be reached: Connection refused"
        with self.assertRaisesRegex(psycopg2.OperationalError, text):
            gate.connect()
        self.assertEqual(gate.metric("connections_rejected_total", reason="backend"), 1)

    def test_killed_in_the_middle_of_a_statement(self):
        client = self.client("orders=3")
        outcome = []

        def run():
            try:
                outcome.append(run_sql(client, "SELECT pg_sleep(60)"))
            except psycopg2.Error as error:
                outcome.append(error)
        running = threading.Thread(target=run)
        running.start()
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1)
        self.server.kill()
        running.join(PATIENCE)
        self.assertIsInstance(outcome[0], psycopg2.Error)
        self.assertNotIn("ZF001", str(outcome[0]))
        with self.assertRaises(psycopg2.Error):
            run_sql(client, "SELECT 1")
        self.assertTrue(client.closed)

    def test_cut_off_in_the_middle_the_outcome_is_unknown_and_nothing_is_sent_again(self):
        self.server.sql("CREATE TABLE writes (who text); GRANT ALL ON writes TO alice")
        wire = self.start(Wire(self.gate.address, user="alice"))
        wire.until_ready()
        self.proxy.freeze()
        wire.send(query("INSERT INTO writes VALUES ('once')"))
        eventually(lambda: self.gate.metric("requests_total", **{"class": "other"}) >= 1)
        self.proxy.cut_all()  # drops it
        self.proxy.thaw()
        kind, body = wire.read()
        self.assertEqual((kind, fields(body)["C"]), (b"E", "08006"))
        self.assertIn("not known", fields(body)["M"])
        self.assertEqual(wire.rest(), message(b"Z", b"I"))
        eventually(lambda: self.gate.metric("connections") == 0)
        run_sql(self.client("orders=3"), "SELECT 1")
        self.assertEqual(self.server.value("SELECT count(*) FROM writes"), 0)

    def test_a_server_that_accepts_nobody_is_given_up(self):
        gate = PgGate(self.start(SilentPort()), policy=ALLOW, extra={"timeouts": {"connect": "500ms"}})
        gate.needs_backend = False
        self.start(gate)
        with self.assertRaisesRegex(psycopg2.OperationalError, "connecting took too long"):
            gate.connect()

    def test_a_server_that_never_answers_is_given_up(self):
        gate = self.start(PgGate(self.proxy, policy=ALLOW, extra={"timeouts": {"head": "700ms"}}))
        self.proxy.freeze()
        self.assertEqual(self.start(Wire(gate.address, user="alice", timeout=15)).rest(), b"")
        self.proxy.thaw()


class Databases(OperationsTest):
    def made_and_used(self, gate, token):
        """Until the gate has a connection of its own there; that of the client has another user."""
        self.server.sql("CREATE DATABASE app TEMPLATE template0")
        self.server.install("app")
        with contextlib.closing(gate.connect(f"orders={token}", user="alice", database="app")) as client:
            self.assertEqual(run_sql(client, "SELECT 1"), [(1,)])
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE datname = 'app' AND usename = 'postgres'"))

    def test_one_that_was_used_is_dropped_with_force_and_may_be_made_anew(self):
        gate = self.gate()
        self.addCleanup(self.server.sql, "DROP DATABASE IF EXISTS app WITH (FORCE)")
        self.made_and_used(gate, 34)
        with self.assertRaises(psycopg2.errors.ObjectInUse):
            self.server.sql("DROP DATABASE app")
        self.server.sql("DROP DATABASE app WITH (FORCE)")
        self.made_and_used(gate, 35)


class Draining(OperationsTest):
    def test_who_listens_hears_until_it_asks_for_something(self):
        gate = self.gate(process={"drain_timeout": "60s"}, threads=1)  # when one has heard of it, all have
        listening, asking = self.wire(gate), self.wire(gate)
        listening.send(query("LISTEN news"))
        listening.until_ready()
        gate.terminate()
        eventually(lambda: gate.metric("draining") == 1)
        asking.send(query("SELECT 1"))
        self.assert_fatal(asking, "57P01")
        self.server.sql("NOTIFY news")
        self.assertEqual(listening.read()[0], b"A")
        listening.send(query("INSERT INTO writes VALUES ('late')"))
        self.assert_fatal(listening, "57P01")
        self.assertEqual(gate.wait(40), 0)
        self.assertEqual(self.server.value("SELECT count(*) FROM writes"), 0)

    def test_idle_sessions_end_last_and_transactions_at_their_end(self):
        gate = self.gate(process={"drain_timeout": "30s"})
        idle, busy = self.wire(gate), self.wire(gate)
        busy.send(query("BEGIN"))
        busy.until_ready()
        gate.terminate()
        self.assertIn("shutting down", self.assert_fatal(idle, "57P01"))
        for sql in ("INSERT INTO writes VALUES ('kept')", "SELECT 1"):
            busy.send(query(sql))
            self.assertEqual(busy.until_ready()[-1][1], b"T")
        self.assertEqual(gate.http("/readyz")[0], 503)
        busy.send(query("COMMIT"))
        self.assertEqual(busy.until_ready()[-1][1], b"I")
        self.assert_fatal(busy, "57P01")
        self.assertEqual(gate.wait(20), 0)
        self.assertEqual(self.server.value("SELECT count(*) FROM writes"), 1)

    def test_a_pipeline_is_finished_first(self):
        gate = self.gate(process={"drain_timeout": "30s"})
        idle, wire = self.wire(gate), self.wire(gate)
        self.lock()
        wire.send(LOCK, *[extended("INSERT INTO writes VALUES ('x')") + SYNC for _ in range(50)])
        self.until_it_waits_for_the_lock()
        gate.terminate()
        self.assert_fatal(idle, "57P01")  # now sessions are being ended
        self.server.sql("SELECT pg_advisory_unlock(1)")
        for _ in range(51):
            self.assertEqual(wire.until_ready()[-1][1], b"I")
        self.assert_fatal(wire, "57P01")
        self.assertEqual(gate.wait(20), 0)
        self.assertEqual(self.server.value("SELECT count(*) FROM writes"), 50)

    def test_it_ends_at_the_drain_timeout(self):
        gate = self.gate(process={"drain_timeout": "1s"})
        wire = self.wire(gate)
        wire.send(query("BEGIN"))
        wire.until_ready()
        gate.terminate()
        self.assertEqual(gate.wait(15), 0)
        self.assertTrue(self.is_closed_within(wire.sock, 2))


class Cancelling(OperationsTest):
    def test_a_cancel_whose_sender_does_not_wait(self):
        gate = self.gate()
        wire = self.start(Wire(gate.address, user="alice"))
        key = next(body for kind, body in wire.until_ready() if kind == b"K")
        wire.send(query("SELECT pg_sleep(60)"))
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
        gate.stop_process()  # so that the sender has gone before its bytes are read
        with contextlib.closing(connect(gate.address)) as sock:
            sock.sendall(cancel_request(int.from_bytes(key[:4], "big"), key[4:]))
        gate.continue_process()
        errors = [fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"]  # behind the row's description
        self.assertEqual(errors, ["57014"])
        eventually(lambda: gate.metric("connections") == 1)

    def test_a_cancel_with_another_key_does_nothing(self):
        gate = self.gate()
        wire = self.start(Wire(gate.address, user="alice"))
        key = next(body for kind, body in wire.until_ready() if kind == b"K")
        self.lock()
        wire.send(LOCK)
        self.until_it_waits_for_the_lock()
        with contextlib.closing(connect(gate.address)) as sock:
            sock.sendall(cancel_request(int.from_bytes(key[:4], "big"), bytes(255 - b for b in key[4:])))
            self.assertTrue(self.is_closed_within(sock, PATIENCE))
        self.server.sql("SELECT pg_advisory_unlock(1)")
        self.assertNotIn(b"E", [kind for kind, _ in wire.until_ready()])


class RejectionsInTheLog(OperationsTest):
    SECRET = "what-only-the-server-may-know"

    def lines(self, gate, count):
        """What they say of each rejection, when there are so many."""
        def found():
            return [line for line in gate.log_lines() if "rejected" in line["msg"]]
        eventually(lambda: len(found()) >= count)
        self.assertNotIn(self.SECRET, gate.log())
        for line in found():
            self.assertEqual((line["gate"], line["level"], line["client"].split(":")[0]), ("db", "warn", "127.0.0.1"))
        return [tuple(line.get(key) for key in ("reason", "resource", "token", "mark", "command")) for line in found()]

    def fails(self, action, *arguments, **named):
        with self.assertRaises(psycopg2.Error):
            action(*arguments, **named)

    def test_one_line_for_each_with_what_is_known_of_it(self):
        gate = self.gate(policy={"max_step": 10}, comment_tags="lead")
        write = f"INSERT INTO writes VALUES ('{self.SECRET}')"
        client = self.client(gate, tag="log.a=34,log.b=5")
        self.fails(self.client, gate, tag="log.a=33")
        self.fails(self.client, gate)
        self.fails(self.client, gate, tag="log.c=x")
        self.fails(self.client, gate, tag="log.a=99")
        self.fails(run_sql, client, f"/*fence:log.b=4*/ {write}")
        self.fails(run_sql, client, f"PREPARE TRANSACTION '{self.SECRET}'")
        run_sql(client, write)
        self.assertEqual(self.lines(gate, 6), [
            ("stale", "log.a", 33, 34, "startup"), ("missing", None, None, None, "startup"),
            ("malformed", None, None, None, "startup"), ("jump", "log.a", 99, 34, "startup"),
            ("stale", "log.b", 4, 5, "INSERT"), ("refused", None, None, None, "PREPARE")])

    def test_guarded_transactions(self):
        self.server.sql("GRANT fencegate_gate TO alice")
        gate = self.gate(guard="transaction", user="alice", process={"drain_timeout": "1s"})
        old = self.client(gate, tag="log.guarded=34")
        self.client(gate, tag="log.guarded=35")
        for _ in range(3):
            self.fails(run_sql, old, "INSERT INTO writes VALUES (%s)", self.SECRET)
        self.assertEqual(self.lines(gate, 1), [("stale", "log.guarded", 34, 35, "guard")])
        self.assertEqual(gate.metric("checks_total", outcome="stale"), 3)
        gate.terminate()
        gate.wait()
        self.assertEqual([line.get("repeated") for line in gate.log_lines() if "rejected" in line["msg"]], [None, 2])


class Notifications(OperationsTest):
    def notified(self, wire):
        """The payload of the next message, which has to be one."""
        kind, body = wire.read()
        self.assertEqual(kind, b"A")
        return body[4:].split(b"\0")[1].decode()

    def test_they_reach_a_client_that_is_idle(self):
        gate = self.gate()
        wire = self.wire(gate, options="-c fencing.tokens=orders=34")
        wire.send(query("LISTEN channel"))
        wire.until_ready()
        for number in range(3):
            self.server.sql("SELECT pg_notify('channel', %s)", str(number))
            self.assertEqual(self.notified(wire), str(number))
        self.server.sql("SELECT pg_notify('channel', n::text || repeat('x', 5000)) FROM generate_series(1, 1000) n")
        self.assertEqual([self.notified(wire).rstrip("x") for _ in range(1000)], [str(n) for n in range(1, 1001)])

    def test_one_that_comes_while_a_comment_arms_anew(self):
        """The server sends it in the middle of the replies that are the gate's."""
        gate = self.gate(comment_tags="lead")
        wire = self.wire(gate)
        wire.send(query("LISTEN channel"))
        wire.until_ready()
        # What arms waits for this lock, and hears of the notification at its end.
        self.server.sql("BEGIN")
        self.addCleanup(self.server.sql, "ROLLBACK")
        self.server.sql("SELECT pg_advisory_xact_lock(fencegate.lock_key('heard'))")
        wire.send(query("/*fence:heard=5*/ SELECT 7"))
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        with contextlib.closing(self.server.connect()) as other:
            run_sql(other, "NOTIFY channel, 'in the middle'")
        self.server.sql("ROLLBACK")
        messages = wire.until_ready()
        self.assertEqual([kind for kind, _ in messages], [b"A", b"T", b"D", b"C", b"Z"])
        self.assertIn(b"in the middle", messages[0][1])


class Memory(OperationsTest):
    RSS_MAX = 64 * MIB

    def assert_small(self, gate):
        if "FENCEGATE_SANITIZED" not in os.environ:  # a sanitizer keeps what was freed, and shadows what is used
            self.assertLess(gate.rss_bytes_max(), self.RSS_MAX)

    def test_a_slow_reader_is_not_buffered_without_end(self):
        gate = self.gate()
        slow, other = self.wire(gate), self.client(gate)
        slow.send(query("SELECT repeat('x', 1000000) FROM generate_series(1, 150)"))
        for number in range(100):  # the others are served meanwhile
            self.assertEqual(run_sql(other, "SELECT %s", number), [(number,)])
        self.assert_small(gate)
        self.assertEqual(sum(len(body) for kind, body in slow.until_ready() if kind == b"D"), 150 * 1000006)
        self.assert_small(gate)

    def test_a_long_pipeline_sent_before_any_reply_is_read(self):
        gate = self.gate()
        wire = self.start(Wire(gate.address, user="alice"))
        steps = [parse("SELECT $1::int", "s"), SYNC] + [bind(n, statement="s") + describe(b"P") + execute() + SYNC
                                                       for n in range(100_000)]
        replies = wire.converse(b"".join(steps) + TERMINATE)
        self.assertEqual(replies.count(b"SELECT 1\0"), 100_000)
        self.assert_small(gate)

    def test_a_server_that_is_frozen_amid_copy(self):
        """Then the client cannot go on either, and nobody keeps what it wants to send."""
        gate = self.gate()
        wire = self.start(Wire(gate.address, user="alice", options="-c fencing.tokens=memory=5"))
        pid = int.from_bytes(next(body for kind, body in wire.until_ready() if kind == b"K")[:4], "big")
        wire.send(query("COPY writes FROM STDIN"))
        self.assertEqual(wire.read()[0], b"G")
        piece = copy_data((b"x" * 1023 + b"\n") * 64)
        pieces, accepted = 100 * MIB // len(piece), 0
        self.server.freeze(pid)
        try:
            wire.sock.settimeout(3)  # for so long nothing more is taken
            with self.assertRaises(TimeoutError):
                for _ in range(pieces):
                    left = piece
                    while left:
                        sent = wire.sock.send(left)
                        accepted, left = accepted + sent, left[sent:]
        finally:
            self.server.thaw(pid)
        self.assertLess(accepted, 50 * MIB)
        wire.sock.settimeout(60)
        wire.send(left, *[piece] * (pieces - accepted // len(piece) - 1), COPY_DONE)
        self.assertEqual([body for kind, body in wire.until_ready() if kind == b"C"], [b"COPY %d\0" % (pieces * 64)])
        self.assertEqual(self.server.value("SELECT count(*) FROM writes WHERE who = repeat('x', 1023)"), pieces * 64)
        self.assert_small(gate)

    def test_a_parameter_of_100_mb(self):
        gate = self.gate()
        wire = self.start(Wire(gate.address, user="alice", options="-c fencing.tokens=memory=5"))
        replies = wire.converse(extended("SELECT length($1::text)", b"v" * (100 * MIB)) + SYNC + TERMINATE)
        self.assertIn(str(100 * MIB).encode(), replies)
        self.assert_small(gate)

    def test_a_statement_of_30_mb(self):
        gate = self.gate()
        wire = self.start(Wire(gate.address, user="alice", options="-c fencing.tokens=memory=5"))
        replies = wire.converse(query("SELECT length('" + "v" * (30 * MIB) + "')") + TERMINATE)
        self.assertIn(str(30 * MIB).encode(), replies)
        self.assert_small(gate)


class Library(LiveTest):
    """libpq is loaded where it is needed, and only there."""

    def setUp(self):
        self.folder = self.start(tempfile.TemporaryDirectory())
        with open(os.path.join(self.folder, "libpq.so.5"), "w"):
            pass  # an empty file is no library

    def serve(self, protocol):
        """Starts a gate of this kind where libpq cannot be loaded. Its status (ready ones are ended by SIGTERM), and its log."""
        port = free_port()
        config, log = (os.path.join(self.folder, name) for name in ("fencegate.yaml", "log"))
        with open(config, "w") as file:
            json.dump({"admin": {"listen": f"127.0.0.1:{port}"},
                       "gates": [{"name": protocol, "protocol": protocol, "listen": f"127.0.0.1:{free_port()}",
                                  "upstream": f"{protocol}://127.0.0.1:{free_port()}"}]}, file)
        with open(log, "w") as file:
            child = subprocess.Popen([os.environ["FENCEGATE"], "serve", "-c", config], stdout=file, stderr=file,
                                     env=os.environ | {"LD_LIBRARY_PATH": self.folder}, preexec_fn=die_with_parent)

        def settled():
            with contextlib.suppress(OSError), connect(port):
                return True
            return child.poll() is not None

        try:
            eventually(settled)
            child.terminate()
            child.wait(PATIENCE)
        finally:
            child.kill()
        with open(log) as file:
            return child.returncode, file.read()

    def test_a_postgres_gate_does_not_start_without_it(self):
        status, log = self.serve("postgres")
        self.assertEqual(status, 1)
        self.assertIn("apt-get install libpq5", log)

    def test_a_redis_gate_does_not_miss_it(self):
        status, log = self.serve("redis")
        self.assertNotEqual(status, 1, log)
        self.assertNotIn("libpq", log)


class UnixSockets(LiveTest):
    def test_both_sides(self):
        server = self.start(PostgresServer(unix=True))
        server.install()
        server.user("alice")
        gate = self.start(PgGate(server, unix=True))
        with contextlib.closing(gate.connect("orders=34", user="alice")) as client:
            self.assertEqual(run_sql(client, "SELECT 1"), [(1,)])
            with contextlib.closing(gate.connect("orders=35", user="alice")):
                with self.assertRaises(psycopg2.Error):
                    run_sql(client, "SELECT 1")
            self.assertIn("is below mark 35", client.info.error_message)
        gate.terminate()
        self.assertEqual(gate.wait(30), 0)


if __name__ == "__main__":
    main(at_once=4)
