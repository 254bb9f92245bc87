"""The API of leases (`leases.listen`): clients of a sidecar that take, renew and release leases, with real servers that grant
them and are sealed."""

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time

import documents
from lease_sidecar import PATIENCE, Api, Sidecar
from live_test import LiveTest, main
from postgres import PostgresServer, run_sql
from processes import die_with_parent, eventually
from redis_server import RedisServer
from test_hold import LEASES, TTL


class ApiTest(LiveTest):
    times, sidecar_of = LEASES, Sidecar

    @classmethod
    def setUpClass(cls):
        cls.database = cls.enterClassContext(PostgresServer())
        cls.redis = cls.enterClassContext(RedisServer())
        cls.database.sql("CREATE DATABASE app")
        cls.database.user("gate")
        cls.database.install("app", gate_users=("gate",))
        cls.admin = cls.database.connect(database="app")
        cls.addClassCleanup(cls.admin.close)
        cls.sidecar = cls.enterClassContext(cls.sidecar_of(cls.database, cls.redis, cls.times))
        cls.api = Api(cls.sidecar.socket)

    @classmethod
    def sql(cls, text, *values):
        return run_sql(cls.admin, text, *values)

    def name(self):
        """Of a resource that no other test uses."""
        return f"{self._testMethodName}-{secrets.token_hex(8)}"

    def taken(self, *resources, **wish):
        status, lease = self.api.take(*resources, **wish)
        self.assertEqual(status, 201, lease)
        return lease

    def marks(self, resource):
        ((mark,),) = self.sql("SELECT mark FROM fencegate.marks WHERE resource = %s", resource)
        return mark, int(self.redis.cli.call("GET", "fencegate:mark:{" + resource + "}"))


class Leases(ApiTest):
    times = LEASES | {"ttl": "30s", "stop_grace": "5s"}

    def test_it_is_sealed_and_released(self):
        name = self.name()
        lease = self.taken(name, holder="me")
        token = lease["tokens"][name]
        self.assertEqual((lease["tag"], self.marks(name)), (f"{name}={token}", (token, token)))
        self.assertTrue(24_000 <= lease["act_for_ms"] <= 25_500, lease)
        self.assertEqual(lease["stop_ms"], 5_000)
        status, held = self.api.take(name)
        self.assertEqual((status, held["type"], held["resource"], held["holder"]), (409, "urn:fencegate:held", name, "me"))
        self.assertTrue(20_000 < held["left_ms"] <= 30_000, held)
        self.assertEqual(self.api.release(lease), (204, None))
        self.assertEqual(self.taken(name)["tokens"], {name: token + 1})

    def test_several_at_once(self):
        a, b = self.name(), self.name()
        self.taken(b)
        self.assertEqual(self.api.take(a, b)[0], 409)
        self.taken(a)

    def test_renewals(self):
        name = self.name()
        lease = self.taken(name)
        status, renewed = self.api.renew(lease)
        self.assertEqual(status, 200)
        self.assertTrue(24_000 <= renewed["act_for_ms"] <= 25_500, renewed)
        self.assertEqual(self.api.renew(lease, {name: lease["tokens"][name] + 1})[0], 410)
        self.assertEqual(self.api.renew({"id": secrets.token_hex(16), "tokens": lease["tokens"]})[0], 410)
        self.assertEqual(self.api.release(lease, {name: lease["tokens"][name] + 1}), (204, None))
        self.assertEqual(self.api.renew(lease)[0], 200)
        self.assertEqual(self.api.release(lease), (204, None))
        self.assertEqual(self.api.renew(lease)[0], 410)

    def test_another_client_with_the_same_tokens_renews_nothing(self):
        """However their requests fall together."""
        name = self.name()
        lease = self.taken(name)
        answers = []
        guesser = {"id": secrets.token_hex(16), "tokens": lease["tokens"]}
        clients = [threading.Thread(target=lambda one=one: answers.append((one["id"], self.api.renew(one)[0])))
                   for one in [lease, guesser] * 20]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(set(answers), {(lease["id"], 200), (guesser["id"], 410)})

    def test_the_same_wish_again(self):
        name, mine = self.name(), secrets.token_hex(16)
        lease = self.taken(name, id=mine)
        self.assertEqual(lease["id"], mine)
        self.assertEqual(self.taken(name, id=mine)["tokens"], lease["tokens"])
        self.assertEqual(self.api.take(self.name(), id=mine)[0], 422)
        self.api.release(lease)
        self.assertEqual(self.api.take(name, id=mine)[0], 410)

    def test_who_waits_is_next(self):
        # Who asks again may be granted it before the word of the release has come: then it is not known how long it took.
        eventually(lambda: self.four_wait() and self.sidecar.figure("fencegate_handover_seconds_count") >= 1)

    def four_wait(self):
        name = self.name()
        lease, told = self.taken(name), []
        waiters = [threading.Thread(target=lambda: told.append(self.api.take(name, wait="15s"))) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        eventually(lambda: sum("tokens" not in one and one["resources"] == [name] for one in self.api.all()) == 4)
        for so_many in range(1, 5):
            self.assertEqual(self.api.release(lease)[0], 204)
            eventually(lambda: len(told) == so_many)
            status, lease = told[-1]
            self.assertEqual(status, 201, lease)
        for waiter in waiters:
            waiter.join()
        tokens = [lease["tokens"][name] for _, lease in told]
        self.assertEqual(tokens, sorted(set(tokens)))
        return True

    def test_who_leaves_gets_nothing(self):
        name = self.name()
        lease = self.taken(name)
        with self.api.connected() as client:
            self.send(client, {"resources": [name], "wait": "1h"})
            eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 2)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 1)
        self.api.release(lease)
        self.assertEqual(self.taken(name)["tokens"], {name: lease["tokens"][name] + 1})

    def test_a_wish_can_be_taken_back_by_another_connection(self):
        name, mine = self.name(), secrets.token_hex(16)
        lease, told = self.taken(name), []
        waiter = threading.Thread(target=lambda: told.append(self.api.take(name, id=mine, wait="1h")))
        waiter.start()
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 2)
        self.assertEqual(self.api.release({"id": mine}, lease["tokens"]), (204, None))
        waiter.join(PATIENCE)
        self.assertEqual(told[0][0], 410)

    def test_an_id_whose_client_has_left_names_no_other_lease(self):
        """The release of what that client was granted, in the end, would end the other, too."""
        name, mine = self.name(), secrets.token_hex(16)
        self.api.release(self.taken(name))
        with self.database.connect(database="app") as locker:
            run_sql(locker, "BEGIN")
            run_sql(locker, "SELECT FROM fencegate.leases WHERE resource = %s FOR UPDATE", name)
            with self.api.connected() as client:
                self.send(client, {"resources": [name], "id": mine})
                eventually(lambda: [one for one in self.api.all() if one["resources"] == [name]])
            eventually(lambda: not [one for one in self.api.all() if one["resources"] == [name]])
            self.assertEqual(self.api.take(name, id=mine)[0], 410)
            run_sql(locker, "ROLLBACK")
        self.taken(name, wait="10s")
        self.assertEqual(self.api.take(name)[0], 409)

    def test_a_client_that_was_told_keeps_it_when_another_answer_cannot_be_written(self):
        name, mine = self.name(), secrets.token_hex(16)
        lease = self.taken(name, id=mine)
        for _ in range(40):
            with self.api.connected() as client:
                self.send(client, {"resources": [name], "id": mine})
        self.assertEqual(self.api.take(name)[0], 409)
        self.assertEqual(self.api.renew(lease)[0], 200)

    @staticmethod
    def send(client, wish):
        body = json.dumps(wish).encode()
        client.sendall(b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                       % len(body) + body)

    def test_no_id_is_told_to_others(self):
        lease = self.taken(self.name())
        self.assertNotIn(lease["id"], json.dumps(self.api.all()))

    def test_a_sidecar_that_was_started_anew_goes_on_with_it(self):
        name = self.name()
        lease = self.taken(name, ttl="20s")
        self.sidecar.child.send_signal(signal.SIGKILL)
        self.sidecar.child.wait()
        self.sidecar.start()
        status, renewed = self.api.renew(lease)
        self.assertEqual(status, 200, renewed)
        self.assertTrue(13_000 < renewed["act_for_ms"] <= 20_000, renewed)  # of the TTL of its grant
        self.assertEqual(self.api.take(name)[0], 409)
        self.assertEqual(self.api.release(lease)[0], 204)
        self.assertEqual(self.api.take(name)[0], 201)

    def test_a_locked_row_ends_no_other_lease(self):
        names = [self.name() for _ in range(8)]
        leases = [self.taken(name) for name in names]
        answers = {}
        with self.database.connect(database="app") as locker:
            run_sql(locker, "BEGIN")
            run_sql(locker, "SELECT FROM fencegate.leases WHERE resource = %s FOR UPDATE", names[0])
            clients = [threading.Thread(target=lambda one=one: answers.update({one["tag"]: self.api.renew(one)[0]}))
                       for one in leases]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            run_sql(locker, "ROLLBACK")
        self.assertEqual([answers[one["tag"]] for one in leases], [503] + 7 * [200])
        self.assertEqual(self.api.renew(leases[0])[0], 200)


class Ends(ApiTest):
    """With a short TTL."""

    def events(self, lease):
        """Names of events, as they come."""
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(PATIENCE)
        client.connect(self.api.path)
        client.sendall(f"GET /v1/leases/{lease['id']}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        stream = client.makefile("r")
        self.addCleanup(stream.close)
        for line in stream:
            if line.startswith("event: "):
                yield line.split()[1]

    def test_the_lease_of_a_client_that_is_gone_ends(self):
        name = self.name()
        lease = self.taken(name)
        before = self.sidecar.figure('fencegate_lease_lost_total{reason="expired"}')
        self.assertEqual(list(self.events(lease)), ["granted", "expiring", "lost"])
        self.assertGreaterEqual(self.sidecar.figure('fencegate_lease_lost_total{reason="expired"}'), before + 1)
        self.assertEqual(self.taken(name, wait="10s")["tokens"], {name: lease["tokens"][name] + 1})
        self.assertEqual(self.api.renew(lease)[0], 410)

    def test_it_revives_while_nobody_has_taken_it(self):
        name = self.name()
        lease = self.taken(name)
        list(self.events(lease))
        self.assertEqual(self.api.renew(lease)[0], 200)
        self.assertEqual(self.api.take(name)[0], 409)

    def test_events_of_a_lease_that_is_renewed_and_then_anothers(self):
        name = self.name()
        lease = self.taken(name)
        seen = []
        reader = threading.Thread(target=lambda: seen.extend(self.events(lease)))
        reader.start()
        eventually(lambda: "granted" in seen)
        self.assertEqual(self.api.renew(lease)[0], 200)
        self.sql("UPDATE fencegate.leases SET token = token + 1 WHERE resource = %s", name)
        self.assertEqual(self.api.renew(lease)[0], 410)
        reader.join(PATIENCE)
        self.assertEqual(seen, ["granted", "renewed", "lost"])

    def test_a_database_that_stands_still(self):
        name = self.name()
        lease = self.taken(name)
        frozen = [self.database.pid, *self.database.backends()]
        for pid in frozen:
            self.database.freeze(pid)
        try:
            began = time.monotonic()
            status, told = self.api.renew(lease)
            self.assertEqual((status, told["type"]), (503, "urn:fencegate:unavailable"), time.monotonic() - began)
        finally:
            for pid in frozen:
                self.database.thaw(pid)
        eventually(lambda: self.api.renew(lease)[0] == 200)

    def test_a_frozen_sidecar_promises_nothing_that_is_over(self):
        """What it answers when it goes on counts from when the request was sent."""
        name = self.name()
        lease = self.taken(name)
        with self.api.connected() as client:
            os.kill(self.sidecar.child.pid, signal.SIGSTOP)
            sent = time.monotonic()
            body = json.dumps({"tokens": lease["tokens"]}).encode()
            client.sendall(b"PUT /v1/leases/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                           b"%d\r\n\r\n" % (lease["id"].encode(), len(body)) + body)
            eventually(lambda: time.monotonic() - sent > 2 * TTL)
            self.assertEqual(self.sql("SELECT count(*) FROM fencegate.leases WHERE resource = %s AND expires_at > now()", name), [(0,)])
            os.kill(self.sidecar.child.pid, signal.SIGCONT)
            status = client.recv(12)[-3:]
            self.assertIn(status, (b"200", b"410"))
        if status == b"200":  # revived: its row says for how long
            self.assertEqual(self.sql("SELECT count(*) FROM fencegate.leases WHERE resource = %s AND expires_at > now()", name), [(1,)])

    def test_many(self):
        """More than go into one statement; none is lost while they are renewed."""
        names = [self.name() for _ in range(600)]
        leases = [self.taken(*names[i:i + 20], ttl="30s", stop_grace="5s") for i in range(0, 600, 20)]
        answers = []
        clients = [threading.Thread(target=lambda one=one: answers.append(self.api.renew(one)[0])) for one in leases]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(answers, 30 * [200])
        for lease in leases:
            self.assertEqual(self.api.release(lease)[0], 204)


class Held(ApiTest):
    """`fencegate hold --api`: a job that knows no server but the sidecar."""
    times = LEASES | {"ttl": "30s", "stop_grace": "5s"}
    program = "FENCEGATE"  # where it is

    def hold(self, script, *words, resource=None, under=()):
        job = subprocess.Popen([*under, os.environ[self.program], "hold", resource or self.name(), "--api",
                                f"unix:{self.sidecar.socket}", "--ttl", "6s", "--stop-grace", "200ms", *words, "--", "sh", "-c",
                                script], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=die_with_parent)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        return job

    def test_a_job(self):
        name = self.name()
        job = self.hold('echo "$FENCE_TAG $FENCING_TOKEN"; exit 7', resource=name)
        self.assertEqual((job.communicate(timeout=PATIENCE)[0], job.returncode), (f"{name}=1 1\n", 7))
        self.assertEqual(self.marks(name), (1, 1))
        self.assertEqual(self.taken(name)["tokens"], {name: 2})

    def test_another_holds_it(self):
        name = self.name()
        lease = self.taken(name, holder="them")
        job = self.hold(":", "--no-wait", resource=name)
        self.assertIn(f"{name} is held by them", job.communicate(timeout=PATIENCE)[1])
        self.assertEqual(job.returncode, 75)
        waits = self.hold("echo up", resource=name)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 2)
        self.api.release(lease)
        self.assertEqual((waits.communicate(timeout=PATIENCE)[0], waits.returncode), ("up\n", 0))

    def test_who_is_told_to_end_while_waiting_leaves_nothing(self):
        name = self.name()
        self.taken(name)
        job = self.hold(":", resource=name)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 2)
        job.terminate()
        self.assertEqual(job.wait(PATIENCE), 128 + signal.SIGTERM)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 1)

    def test_it_is_renewed_also_by_a_sidecar_that_was_started_anew(self):
        name = self.name()
        job = self.hold("echo up; sleep 8; echo done", resource=name)
        self.assertEqual(job.stdout.readline(), "up\n")
        self.sidecar.kill()
        self.sidecar.start()
        self.assertEqual((job.communicate(timeout=PATIENCE)[0], job.returncode), ("done\n", 0))
        self.assertEqual(self.taken(name)["tokens"], {name: 2})

    def test_it_is_anothers(self):
        name = self.name()
        job = self.hold("echo up; sleep 100", resource=name)
        self.assertEqual(job.stdout.readline(), "up\n")
        self.sql("UPDATE fencegate.leases SET token = token + 1 WHERE resource = %s", name)
        self.assertIn("the lease was lost", job.communicate(timeout=PATIENCE)[1])
        self.assertEqual(job.returncode, 79)

    def test_no_sidecar(self):
        job = subprocess.run([os.environ[self.program], "hold", "orders", "--api", f"unix:{self.sidecar.socket}.not", "--", "true"],
                             text=True, capture_output=True)
        self.assertEqual(job.returncode, 69)
        self.assertIn(f"unix:{self.sidecar.socket}.not: No such file", job.stderr)


class Documented(ApiTest):
    """The commands of docs/leases.md, as they stand there, with its TTL: half a second may be short for a first connection."""
    times = LEASES | {"ttl": "30s"}
    page = "docs/leases.md"

    def line(self, start, lease=None):
        line = documents.command(self.page, start)
        if lease:
            line = line.replace("5f…", lease["id"]).replace('"orders":35', f'"orders":{lease["tokens"]["orders"]}')
        socket = documents.command(self.page, "api() {").replace("/run/fencegate/lease.sock", self.sidecar.socket)
        return f"{socket}\n{line}"

    def run_here(self, *command):
        return documents.run_shell(self.line(*command), self.sidecar.folder)

    def test_a_lease_from_its_grant_to_its_release(self):
        lease = json.loads(self.run_here("api http://localhost/v1/leases -d"))
        watch = self.line("api -N http://localhost/v1/leases/5f…/events", lease)
        events = subprocess.Popen(["bash", "-c", watch], text=True, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(events.communicate)
        self.addCleanup(events.kill)
        self.assertEqual(events.stdout.readline(), "event: granted\n")
        self.assertGreater(json.loads(self.run_here("api http://localhost/v1/leases/5f… -X PUT", lease))["act_for_ms"], 20_000)
        self.assertEqual(self.run_here("api http://localhost/v1/leases/5f… -X DELETE", lease), "")
        told = events.communicate(timeout=PATIENCE)[0]
        self.assertEqual([line for line in told.splitlines() if line.startswith("event: ")], ["event: renewed", "event: lost"])
        self.assertIn('"act_for_ms":0,"stop_ms":0', told.splitlines()[-2])
        self.assertEqual(self.api.all(), [])


if __name__ == "__main__":
    main(at_once=2)
