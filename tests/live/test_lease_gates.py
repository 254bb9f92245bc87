"""Gates that hold the lease for their clients, with real servers: who is served, and what becomes of a holder that stood still."""

import contextlib
import http.client
import json
import os
import re
import secrets
import shutil
import tempfile
import threading
import time

import psycopg2

import documents
from http_gate import Upstream
from lease_gates import LeaseGates, boot_ms
from live_test import LiveTest, main
from pg_wire import SSL_REQUEST, query, startup
from postgres import PostgresServer, run_sql
from processes import LOOPBACK, PATIENCE, Process, connect, eventually
from redis_server import RedisServer
from resp import Resp
from test_hold import TTL


class Sleeper(Process):
    """A writer's process, which began behind the sidecar by more than a tick of /proc."""

    title = "sleeper"

    def prepare(self):
        began = boot_ms()
        eventually(lambda: boot_ms() > began + 20)

    def command(self):
        return ["sleep", "600"]

    def up(self):
        return True


class LeaseGatesTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.database = cls.enterClassContext(PostgresServer())
        cls.redis = cls.enterClassContext(RedisServer())
        cls.upstream = cls.enterClassContext(Upstream())
        cls.database.sql("CREATE DATABASE app")
        for user in ("gate", "orders"):
            cls.database.user(user)
        cls.database.install("app", gate_users=("gate",))
        cls.admin = cls.database.connect(database="app")
        cls.addClassCleanup(cls.admin.close)
        run_sql(cls.admin, "CREATE TABLE notes(what text)")
        run_sql(cls.admin, "GRANT ALL ON notes TO orders")

    def setUp(self):
        self.resource = f"{self._testMethodName}-{secrets.token_hex(4)}"[-60:]

    def sidecar(self, **how):
        return self.start(LeaseGates(self.database, self.redis, resource=self.resource, upstream=self.upstream, **how))

    def folder(self):
        path = tempfile.mkdtemp(prefix="fencegate-state-")
        self.addCleanup(shutil.rmtree, path)
        return path

    def two(self, **how):
        """One that holds, and one that stands by."""
        a, b = self.sidecar(**how), self.sidecar(**how)
        a.hold()
        eventually(lambda: b.report_start() == 204)
        eventually(lambda: b.writer()[1].get("held_by"))
        return a, b

    def notes(self):
        return [what for (what,) in run_sql(self.admin, "SELECT what FROM notes WHERE what LIKE %s", self.resource + "%")]

    def note(self, session, what):
        run_sql(session, "INSERT INTO notes VALUES (%s)", f"{self.resource} {what}")

    def sql_client(self, sidecar):
        session = psycopg2.connect(host=LOOPBACK, port=sidecar.pg_port, user="orders", dbname="app", connect_timeout=PATIENCE)
        session.autocommit = True
        self.addCleanup(session.close)
        return session

    def redis_client(self, sidecar):
        return self.start(Resp(sidecar.redis_port))

    def http_client(self, sidecar):
        talk = http.client.HTTPConnection(LOOPBACK, sidecar.http_port, timeout=PATIENCE)
        self.addCleanup(talk.close)
        return talk

    def put(self, talk, what):
        """(status, Retry-After, text)"""
        talk.request("PUT", "/orders/7", what)
        answer = talk.getresponse()
        return answer.status, answer.getheader("Retry-After"), answer.read().decode()

    def reached(self):
        """Of this test's requests, what the service got."""
        return [body.decode() for _, _, _, body in self.upstream.seen("PUT") if body.decode().startswith(self.resource)]

    def assert_refused(self, sidecar, why):
        """By each gate, in its protocol's words."""
        reply = self.redis_client(sidecar).call("SET", self.resource, "refused")
        self.assert_error(reply, "FENCEDOWN")
        self.assertTrue(str(reply).startswith(f"FENCEDOWN {why}"), reply)
        with self.assertRaises(psycopg2.OperationalError) as refused:
            self.sql_client(sidecar)
        self.assertIn(why, str(refused.exception))
        status, later, text = self.put(self.http_client(sidecar), f"{self.resource} refused")
        self.assertEqual((status, later), (503, "1"))
        self.assertIn(why, text)


class Served(LeaseGatesTest):
    STEADY = {"ttl": "30s"}  # no lease runs out on a machine that is slow

    def test_the_holders_clients_only(self):
        a = self.sidecar(leases=self.STEADY)
        self.assertEqual((a.writer()[0], a.state_now()), (503, "unknown"))
        self.assert_refused(a, "unknown: ")
        token = a.hold()
        client = self.redis_client(a)
        self.assertEqual(client.call("FENCE", "GET"), [self.resource.encode(), str(token).encode()])
        self.assertEqual(client.call("SET", self.resource, "written"), b"OK")
        self.note(self.sql_client(a), "written")
        status, _, text = self.put(self.http_client(a), f"{self.resource} written")
        self.assertEqual(status, 200, text)
        self.assertEqual(self.redis.cli.call("GET", "fencegate:mark:{" + self.resource + "}"), str(token).encode())
        b = self.sidecar(leases=self.STEADY)
        self.assertEqual(b.report_start(), 204)
        eventually(lambda: b.writer()[1].get("held_by"))
        self.assertEqual(b.writer()[0], 200)
        self.assert_refused(b, "standby: held by ")
        self.assertEqual(self.notes(), [f"{self.resource} written"])
        self.assertEqual(self.reached(), [f"{self.resource} written"])
        self.assertEqual(self.redis.cli.call("GET", self.resource), b"written")

    def test_another_tag_than_the_grants_is_refused(self):
        a = self.sidecar(leases=self.STEADY)
        token = a.hold()
        client = self.redis_client(a)
        self.assertEqual(client.call("CLIENT", "SETNAME", f"fence:{self.resource}={token}"), b"OK")
        self.assertEqual(client.call("SET", self.resource, "mine"), b"OK")
        why = f"{self.resource}={token}, and nothing else: the listener's tag (tag_from: listen), or that of the lease"
        reply = client.call("CLIENT", "SETNAME", f"fence:{self.resource}={token + 1}")
        self.assert_error(reply, "FENCEBAD")
        self.assertIn(why, str(reply))
        self.assert_error(client.call("SET", self.resource, "another's"), "FENCEBAD")
        with self.assertRaisesRegex(psycopg2.OperationalError, re.escape(why)):
            psycopg2.connect(host=LOOPBACK, port=a.pg_port, user="orders", dbname="app",
                             options=f"-c fencing.tokens={self.resource}={token + 1}")
        talk = self.http_client(a)
        talk.request("PUT", "/orders/7", "x", {"Fencing-Token": str(token + 1)})
        self.assertEqual(talk.getresponse().status, 400)

    def test_a_refusal_behind_a_request_for_encryption(self):
        a = self.sidecar()
        with contextlib.closing(connect(a.pg_port)) as client:
            client.sendall(SSL_REQUEST)
            self.assertEqual(client.recv(1), b"N")
            client.sendall(startup(user="orders", database="app"))
            answer = b""
            while more := client.recv(4096):
                answer += more
        self.assertIn(b"\0C57P03\0", answer)

    def test_no_client_of_the_api_gets_it(self):
        a = self.sidecar()
        status, why = a.api.take(self.resource)
        self.assertEqual((status, why["type"]), (409, "urn:fencegate:held"))
        self.assertRegex(why["holder"], "^gate (cache|db|web)$")

    def test_a_waiting_standby_answers_when_it_holds(self):
        a, b = self.two(gate={"standby": "wait"})
        client, talk = self.redis_client(b), self.http_client(b)
        client.send_command("SET", self.resource, "waited")
        talk.request("PUT", "/orders/7", f"{self.resource} waited")
        a.terminate()
        self.assertEqual(client.reply(), b"OK")
        self.assertEqual(talk.getresponse().status, 200)

    def test_nothing_of_a_dead_writer_waits_for_the_grant(self):
        a, b = self.two(gate={"standby": "wait"})
        accepted = 'fencegate_connections_total{gate="cache"}'
        before = b.figure(accepted)
        gone, still_there = self.redis_client(b), self.redis_client(b)
        gone.send_command("SET", self.resource, "of a client that is gone")
        gone.close()
        still_there.send_command("SET", self.resource, "of its predecessor")
        eventually(lambda: b.figure(accepted) == before + 2)
        eventually(lambda: b.figure('fencegate_connections{gate="cache"}') == 1)
        eventually(lambda: b.report_start() == 204)
        self.assertTrue(still_there.closed())
        client = self.redis_client(b)
        client.send_command("GET", self.resource)
        a.terminate()
        self.assertIsNone(client.reply())

    def test_a_standby_waits_so_long_only(self):
        a, b = self.two(gate={"standby": "wait", "standby_wait": "300ms"})
        self.assert_refused(b, "standby: held by ")

    def test_so_long_only_however_many_come_behind(self):
        a, b = self.two(gate={"standby": "wait", "standby_wait": "300ms"})
        first, crowd, answered = self.redis_client(b), [], threading.Event()
        first.send_command("PING")

        def come():
            while not answered.wait(0.01):
                crowd.append(Resp(b.redis_port))

        coming = threading.Thread(target=come)
        coming.start()
        try:
            self.assert_error(first.reply(), "FENCEDOWN")
        finally:
            answered.set()
            coming.join()
            for client in crowd:
                client.close()

    def test_in_monitor_mode_a_standby_passes_and_is_counted(self):
        a, b = self.two(gate={"policy": {"mode": "monitor", "missing_token": "allow"}})
        passed = 'fencegate_checks_total{gate="cache",outcome="unavailable"}'
        before = b.figure(passed)
        self.assertEqual(self.redis_client(b).call("SET", self.resource, "passed"), b"OK")
        self.note(self.sql_client(b), "passed")
        self.assertEqual(b.figure(passed), before + 1)

    def test_figures(self):
        a = self.sidecar()
        self.assertEqual(a.figure('fencegate_writer_state{writer="app",state="unknown"}'), 1)
        a.hold()
        self.assertEqual(a.figure('fencegate_writer_state{writer="app",state="holding"}'), 1)
        self.assertEqual(a.figure('fencegate_writer_state{writer="app",state="unknown"}'), 0)
        self.assertEqual(a.figure('fencegate_leases{state="held"}'), 1)
        eventually(lambda: a.figure("fencegate_lease_renewals_total") >= 2)


class StoodStill(LeaseGatesTest):
    """The holder stands still for longer than its TTL, and another takes over."""

    def overtaken(self, **how):
        a, b = self.two(**how)
        self.first_start = boot_ms() - 1
        self.old = self.redis_client(a), self.sql_client(a), self.http_client(a)
        client, session, talk = self.old
        self.assertEqual(client.call("SET", self.resource, "before"), b"OK")
        self.note(session, "before")
        self.assertEqual(self.put(talk, f"{self.resource} before")[0], 200)
        a.stop_process()
        token = b.eventually("holding")["tokens"][self.resource]
        return a, b, token

    def test_its_clients_are_cut_and_nothing_of_theirs_is_applied(self):
        a, b, token = self.overtaken()
        client, session, talk = self.old
        client.send_command("SET", self.resource, "late")
        talk.request("PUT", "/orders/7", f"{self.resource} late")
        self.assertEqual(self.redis_client(b).call("SET", self.resource, "new"), b"OK")
        a.continue_process()
        with contextlib.suppress(ConnectionError):
            self.assert_error(client.reply(), "FENCED")
        self.assertTrue(client.closed())
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.assertIn(talk.getresponse().status, (412, 503))
        with self.assertRaises(psycopg2.Error) as ended:
            self.note(session, "late")
        self.assertIn(ended.exception.pgcode, ("57P03", "ZF001"))
        a.eventually("lost")
        self.assertEqual(self.redis.cli.call("GET", self.resource), b"new")
        self.assertEqual(self.notes(), [f"{self.resource} before"])
        self.assertEqual(self.reached(), [f"{self.resource} before"])
        self.assert_refused(a, "lost: ")

    def lost_by_a_mark(self, raised, write, issuer="ledger"):
        """`raised(TOKEN)` puts a mark above it into a gate's own store, and `write(SIDECAR)` meets it there."""
        sidecar = self.sidecar(issuer=issuer, leases={"ttl": "600s"})
        token = sidecar.hold()
        raised(token)
        write(sidecar)
        sidecar.eventually("lost")
        self.assert_refused(sidecar, "lost: ")
        lost = 'fencegate_lease_lost_total{reason="superseded"}'
        self.assertEqual(sidecar.figure(lost), 1)
        return sidecar, token

    def raise_in_redis(self, token):
        self.redis.cli.call("SET", f"fencegate:mark:{{{self.resource}}}", str(token + 5))

    def test_by_a_mark_that_a_redis_client_meets(self):
        def write(sidecar):
            client = self.redis_client(sidecar)
            with contextlib.suppress(ConnectionError):
                self.assert_error(client.call("SET", self.resource, "late"), "FENCED")

        sidecar, token = self.lost_by_a_mark(self.raise_in_redis, write)
        self.assertGreater(sidecar.hold(), token + 5)
        self.assertEqual(self.redis_client(sidecar).call("SET", self.resource, "new"), b"OK")

    def test_by_a_mark_that_an_http_client_meets(self):
        def write(sidecar):
            self.assertEqual(self.put(self.http_client(sidecar), f"{self.resource} late")[0], 412)

        self.lost_by_a_mark(self.raise_in_redis, write)

    def test_by_a_mark_that_an_sql_client_meets(self):
        def write(sidecar):
            with self.assertRaises(psycopg2.Error):
                self.note(self.sql_client(sidecar), "late")

        def raised(token):
            run_sql(self.admin, "UPDATE fencegate.marks SET mark = mark + 5 WHERE resource = %s", self.resource)

        self.lost_by_a_mark(raised, write, issuer="cache")

    def test_by_a_mark_for_which_an_sql_session_is_ended(self):
        sidecar = self.sidecar(issuer="cache", leases={"ttl": "600s"})
        sidecar.hold()
        session = self.sql_client(sidecar)
        self.note(session, "before")
        ((process,),) = run_sql(session, "SELECT pg_backend_pid()")
        run_sql(self.admin, "UPDATE fencegate.marks SET mark = mark + 5 WHERE resource = %s", self.resource)
        run_sql(self.admin, "SELECT pg_terminate_backend(%s)", process)
        sidecar.eventually("lost")
        self.assertEqual(sidecar.figure('fencegate_lease_lost_total{reason="superseded"}'), 1)

    def test_it_is_lost_until_its_writer_was_started_later(self):
        a, b, token = self.overtaken()
        a.continue_process()
        a.eventually("lost")
        for when in (self.first_start, a.began, 0):
            self.assertEqual(a.report_start(when), 409, when)
        self.assertEqual(a.report_start(boot_ms() + 60_000), 409)
        self.assertEqual((a.writer()[0], a.state_now()), (503, "lost"))
        later = boot_ms()
        self.assertEqual([a.report_start(later) for _ in range(3)], [204] * 3)
        self.assertEqual(a.state_now(), "standby")
        self.assertEqual(a.report_start(self.first_start), 409)
        b.terminate()
        self.assertEqual(a.eventually("holding")["tokens"], {self.resource: token + 1})
        self.assertEqual(self.redis_client(a).call("SET", self.resource, "again"), b"OK")

    def test_each_of_its_containers_starts_anew(self):
        a = self.sidecar(writers={"containers": ["app", "worker"]})
        self.assertEqual(a.report_start(), 404)
        self.assertEqual(a.report_start(container="app"), 204)
        self.assertEqual(a.state_now(), "unknown")
        self.assertEqual(a.report_start(container="worker"), 204)
        a.eventually("holding")

    def test_a_request_in_the_old_queue_is_not_applied(self):
        a, b, token = self.overtaken(gate={"standby": "wait"})
        a.continue_process()
        a.eventually("lost")
        b.terminate()
        b.wait()
        for turn in range(5):
            a.stop_process()
            dead = [Resp(a.redis_port) for _ in range(20)]
            for client in dead:
                client.send_command("SET", self.resource, "of the dead")
            with contextlib.ExitStack() as stack:
                told = stack.enter_context(a.api.connected())
                body = f'{{"started_ms":{boot_ms()}}}'
                told.sendall(b"POST /v1/writers/app/started HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             + f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
                a.continue_process()
                self.assertIn(b" 204 ", told.recv(4096))
            a.eventually("holding")
            for client in dead:
                with contextlib.suppress(ConnectionError):
                    self.assert_error(client.reply(), "FENCEDOWN")
                client.close()
            self.assertEqual(self.redis.cli.call("GET", self.resource), b"before")
            a.stop_process()
            time.sleep(2 * TTL)
            a.continue_process()
            a.eventually("lost")

    def test_with_rebind_it_takes_the_lease_again_by_itself(self):
        a, b = self.sidecar(gate={"on_loss": "rebind"}), self.sidecar(gate={"on_loss": "rebind"})
        first, second = (a, b) if a.eventually("holding") else (b, a)
        old = self.redis_client(first)
        self.assertEqual(old.call("SET", self.resource, "before"), b"OK")
        first.stop_process()
        token = second.eventually("holding")["tokens"][self.resource]
        first.continue_process()
        self.assertTrue(old.closed())
        first.eventually("standby")
        second.terminate()
        self.assertEqual(first.eventually("holding")["tokens"], {self.resource: token + 1})
        self.assertEqual(self.redis_client(first).call("SET", self.resource, "after"), b"OK")


class StartedAnew(LeaseGatesTest):
    """The sidecar itself."""

    LONG = {"ttl": "4s", "margin": "200ms", "skew": "50ms", "round_trip": "100ms", "stop_grace": "200ms"}

    def test_within_its_ttl_it_goes_on_with_its_term(self):
        state = self.folder()
        a = self.sidecar(leases=self.LONG, state=state)
        token = a.hold()
        self.assertEqual(oct(os.stat(os.path.join(state, "app.term")).st_mode & 0o777), "0o600")
        a.restart()
        self.assertEqual(a.eventually("holding")["tokens"], {self.resource: token})
        self.assertEqual(self.redis_client(a).call("SET", self.resource, "on"), b"OK")

    def test_behind_its_ttl_it_does_not(self):
        a, b = self.two(leases=self.LONG)
        a.kill()
        b.eventually("holding")
        a.start()
        eventually(lambda: "no term is resumed" in a.log())
        self.assertEqual(a.state_now(), "unknown")
        self.assert_refused(a, "unknown: ")
        self.assertEqual(a.report_start(a.began), 409)
        self.assertEqual(a.report_start(), 204)
        self.assertEqual(a.state_now(), "standby")

    def test_a_state_directory_is_one_processs_alone(self):
        a = self.sidecar()
        second = LeaseGates(self.database, self.redis, resource=self.resource, upstream=self.upstream,
                            state=os.path.join(a.folder, "state"))
        with self.assertRaisesRegex(RuntimeError, "another fencegate uses the state_dir"):
            second.__enter__()

    def test_sigterm_hands_over_at_once(self):
        """Long before the TTL is over."""
        a, b = self.two(leases={"ttl": "60s"})
        client = self.redis_client(a)
        self.assertEqual(client.call("SET", self.resource, "last"), b"OK")
        a.terminate()
        b.eventually("holding")
        self.assertEqual(a.wait(), 0)
        self.assertFalse(os.path.exists(os.path.join(a.folder, "state", "app.term")))


class OfRedis(LeaseGatesTest):
    """Leases that a Redis grants."""

    def test_another_takes_over_and_the_first_one_comes_back(self):
        a, b = self.two(issuer="cache", leases=StartedAnew.LONG)
        old = self.redis_client(a)
        a.restart()
        before = a.eventually("holding")["tokens"][self.resource]
        self.assertTrue(old.closed())
        old = self.redis_client(a)
        a.stop_process()
        self.assertGreater(b.eventually("holding")["tokens"][self.resource], before)
        old.send_command("SET", self.resource, "late")
        a.continue_process()
        a.eventually("lost")
        self.assertIsNone(self.redis.cli.call("GET", self.resource))
        self.assertEqual(a.report_start(), 204)
        b.terminate()
        a.eventually("holding")


class Probes(LeaseGatesTest):
    def test_what_they_are_answered(self):
        a = self.sidecar()
        self.assertEqual([a.probe(path) for path in ("/livez", "/readyz", "/v1/gates/cache/writer", "/v1/gates/none/writer",
                                                     "/metrics", "/v1/leases")], [200, 200, 503, 404, 404, 404])
        a.hold()
        self.assertEqual([a.probe(f"/v1/gates/{gate}/writer") for gate in ("cache", "db", "web")], [200] * 3)
        self.assertEqual(a.api.ask("POST", "/v1/writers/app/heartbeat")[0], 200)
        self.assertEqual(a.api.ask("POST", "/v1/writers/app/heartbeat?holding")[0], 200)

    def test_a_writer_that_falls_silent_loses_the_lease(self):
        a, b = self.two(writers={"writer_timeout": "1s"})
        client = self.redis_client(a)
        self.assertEqual(client.call("PING"), b"PONG")
        self.assertEqual(a.probe(), 200)
        b.eventually("holding")
        self.assertEqual((a.writer()[0], a.state_now()), (503, "lost"))
        self.assertTrue(client.closed())

    def test_of_what_is_in_flight_at_the_loss_nothing_is_claimed(self):
        a = self.sidecar(writers={"writer_timeout": "1s"})
        a.hold()
        session, client = self.sql_client(a), self.redis_client(a)
        client.send_command("BLPOP", self.resource, "30")
        self.assertEqual(a.probe(), 200)
        with self.assertRaises(psycopg2.Error) as ended:
            run_sql(session, "SELECT pg_sleep(30)")
        self.assertEqual(ended.exception.pgcode, "57P03")
        self.assertIn("unknown", ended.exception.diag.message_detail)
        self.assertTrue(client.closed())

    def test_who_sent_no_probe_is_not_missed(self):
        a = self.sidecar(writers={"writer_timeout": "1s"})
        a.hold()
        since = a.writer()[1]["since"]
        eventually(lambda: a.figure("fencegate_lease_renewals_total") >= 5)
        self.assertEqual((a.state_now(), a.writer()[1]["since"]), ("holding", since))


class Documented(LeaseGatesTest):
    """The commands of docs/leases.md, as they stand there."""

    page = "docs/leases.md"

    def run_here(self, sidecar, start):
        line = documents.command(self.page, start).replace("86400123", str(boot_ms()))
        socket = documents.command(self.page, "api() {").replace("/run/fencegate/lease.sock", sidecar.socket)
        return documents.run_shell(f"{socket}\n{line}", sidecar.folder)

    def test_a_units_hook_and_its_probe(self):
        a = self.sidecar()
        unit = self.start(Sleeper())
        api = f" --api unix:{a.socket}"
        documents.run_shell(documents.command(self.page, "fencegate-hold lease restarted app --pid") + api, a.folder, MAINPID=str(unit.pid))
        a.eventually("holding")
        documents.run_shell(documents.command(self.page, "fencegate-hold lease writer app") + api, a.folder)

    def test_a_start_is_reported_and_the_writer_asked_for(self):
        a = self.sidecar(writers={"containers": ["app"]})
        self.assertEqual(self.run_here(a, "api http://localhost/v1/writers/app/started -d"), "")
        a.eventually("holding")
        self.assertEqual(json.loads(self.run_here(a, "api http://localhost/v1/gates/cache/writer"))["state"], "holding")


if __name__ == "__main__":
    main(at_once=2)
