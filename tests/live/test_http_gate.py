"""The HTTP gate between real clients, an upstream, PostgreSQL and Redis: routes, tokens, holds, atomic routes."""

import json
import socket
import struct
import subprocess
import threading
import time

from http_gate import HttpGate, start_services
from http_raw import Client
from live_test import LiveTest, main
from postgres import PostgresServer
from processes import LOOPBACK, PATIENCE, eventually
from redis_server import RedisServer

ROUTES = [
    {"match": "PUT,DELETE /orders/{id}", "resource": "order:{id}"},
    {"match": "PUT /checked/{id}", "resource": "order:{id}", "store": "cache"},
    {"match": "PUT /kv/{key}", "resource": "kv", "store": "cache", "redis": ["SET", "{key}", "{body}"]},
    {"match": "GET /kv/{key}", "resource": "kv", "store": "cache", "redis": ["GET", "{key}"]},
    {"match": "POST /entries", "resource": "entries", "sql": "insert into entries(doc) values ($1::jsonb) returning id, doc",
     "params": ["{body}"]},
    {"match": "GET /entries/{id}", "resource": "entries", "sql": "select id, doc from entries where id = $1::bigint",
     "params": ["{id}"]},
    {"match": "PUT /blobs/{id}", "resource": "blobs", "params": ["{id}", "{body}"],
     "sql": "insert into blobs (id, body) values ($1, $2::bytea) returning length(body) as bytes"},
    {"match": "POST /wrong", "resource": "entries", "sql": "insert into entries(id, doc) values (1, $1::jsonb)",
     "params": ["{body}"]},
]


class HttpTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        start_services(cls)
        cls.server.sql("CREATE TABLE entries (id bigserial PRIMARY KEY, doc jsonb)")
        cls.server.sql("CREATE TABLE blobs (id text PRIMARY KEY, body bytea)")
        cls.server.sql("GRANT ALL ON entries, entries_id_seq, blobs TO gate")
        cls.gate = cls.enterClassContext(cls.make())

    @classmethod
    def make(cls, pool=10, routes=ROUTES, **extra):
        urls = {"ledger": f"postgres://gate@{LOOPBACK}:{cls.server.port}/postgres",
                "cache": f"redis://{LOOPBACK}:{cls.redis.port}"}
        stores = {name: {"url": url} for name, url in urls.items()}
        stores["ledger"]["pool"] = pool
        return HttpGate(cls.upstream, urls, routes, extra=extra, process={"stores": stores})

    def setUp(self):
        self.server.sql("TRUNCATE entries, blobs, fencegate.marks")
        for key in self.redis.cli.call("KEYS", "*"):
            if key != b"fencegate:epoch":
                self.redis.cli.call("DEL", key)
        with self.upstream.lock:
            self.upstream.requests.clear()

    def assert_problem(self, answer, status, reason=None, applied="no"):
        self.assertEqual(answer[0], status, answer)
        self.assertEqual(answer[1]["Content-Type"], "application/problem+json")
        problem = json.loads(answer[2])
        self.assertEqual((problem["status"], problem["applied"]), (status, applied))
        if reason:
            self.assertEqual(problem["type"], f"urn:fencegate:{reason}")
        return problem

    def mark(self, resource):
        return self.server.value("SELECT mark FROM fencegate.marks WHERE resource = %s", resource)


class Forwarding(HttpTest):
    def test_a_write_with_a_good_token_goes_through_and_raises(self):
        status, headers, body = self.gate.request("PUT", "/orders/first", b"x" * 1000, token=34)
        self.assertEqual((status, headers["Fencing-Mark"], json.loads(body)["bytes"]), (200, "34", 1000))
        self.assertEqual(self.mark("order:first"), 34)
        self.assertEqual(self.upstream.seen()[0][2]["Fencing-Token"], "34")

    def test_stale_and_missing_never_reach_the_upstream(self):
        self.gate.request("PUT", "/orders/stale", b"new", token=35)
        problem = self.assert_problem(self.gate.request("PUT", "/orders/stale", b"old", token=34), 412, "stale")
        self.assertEqual((problem["resource"], problem["token"], problem["mark"]), ("order:stale", 34, 35))
        self.assert_problem(self.gate.request("PUT", "/orders/stale", b"none"), 428, "missing")
        self.assert_problem(self.gate.request("PUT", "/orders/stale", b"bad", token="x"), 400, "malformed")
        self.assert_problem(self.gate.request("POST", "/elsewhere", b"", token=99), 403, "refused")
        self.assertEqual([body for *_, body in self.upstream.seen()], [b"new"])

    def test_reads_need_nothing(self):
        self.assertEqual(self.gate.request("GET", "/orders/7")[0], 200)
        self.assertEqual(self.gate.request("HEAD", "/anything?x=1")[0], 200)

    def test_a_raise_waits_for_a_forward(self):
        def put(body, token, **fields):
            return threading.Thread(target=lambda: self.gate.request("PUT", "/orders/7", body, token=token, **fields))
        first, second = put(b"old", 34, X_Sleep_Until="go"), put(b"new", 35)
        first.start()
        eventually(lambda: self.upstream.seen("PUT"))
        second.start()
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        self.assertEqual(self.mark("order:7"), 34)
        self.assertEqual([body for *_, body in self.upstream.seen()], [b"old"])
        self.upstream.event("go").set()
        first.join()
        second.join()
        self.assertEqual([body for *_, body in self.upstream.seen()], [b"old", b"new"])

    def test_a_client_that_leaves_does_not_take_its_hold_along(self):
        for leave in ("close", "reset"):
            resource, go = f"left-{leave}", self.upstream.event(leave)
            client = Client(self.gate.address)
            fields = {"Fencing-Token": 34, "X-Sleep-Until": leave, "Content-Length": 3}
            client.ask(f"PUT /orders/{resource}", fields, b"old")
            eventually(lambda path=f"/orders/{resource}": any(one[1] == path for one in self.upstream.seen("PUT")))
            if leave == "reset":
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sock.close()
            newer = threading.Thread(target=self.gate.request, args=("PUT", f"/orders/{resource}", b"new", 35))
            newer.start()
            eventually(lambda: self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            self.assertEqual(self.mark(f"order:{resource}"), 34)
            go.set()  # the write that nobody waits for has ended
            newer.join()
            self.assertEqual(self.mark(f"order:{resource}"), 35)
            eventually(lambda: not self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"))

    def test_a_forward_that_outlasts_the_grace_is_cut_and_told_unknown(self):
        with self.make(hold_grace="300ms") as gate:
            answers = []

            def slow():
                answers.append(gate.request("PUT", "/orders/8", b"old", token=34, X_Sleep_Until="never"))

            thread = threading.Thread(target=slow)
            thread.start()
            eventually(lambda: self.upstream.seen("PUT"))
            self.assertEqual(gate.request("PUT", "/orders/8", b"new", token=35)[0], 200)
            thread.join()
            problem = self.assert_problem(answers[0], 504, applied="unknown")
            self.assertIn("a newer holder has taken over", problem["detail"])
            self.assertEqual((problem["token"], problem["mark"], answers[0][1]["Fencing-Mark"]), (34, 35, "35"))
            self.assertEqual(self.mark("order:8"), 35)
            self.assertEqual(gate.metric("checks_total", outcome="unknown"), 1)

    def test_reads_do_not_wait_for_a_store_whose_connections_are_all_taken(self):
        with self.make(pool=2, answer_timeout="6s") as gate:
            go, answers = self.upstream.event("taken"), []
            thread = threading.Thread(target=lambda: answers.append(
                gate.request("PUT", "/orders/a", b"x", token=1, X_Sleep_Until="taken")))
            thread.start()
            eventually(lambda: self.upstream.seen("PUT"))
            self.assert_problem(gate.request("PUT", "/orders/b", b"x", token=1), 503, "unavailable")
            self.assertEqual(gate.request("GET", "/orders/a")[0], 200)
            self.assertTrue(thread.is_alive())
            go.set()
            thread.join()
            self.assertEqual(answers[0][0], 200)
            self.assertEqual(gate.request("PUT", "/orders/b", b"x", token=1)[0], 200)

    def slow_clients(self, gate, length, sent):
        clients = [self.start(Client(gate.address)) for _ in range(4)]
        for number, client in enumerate(clients):
            client.ask(f"PUT /orders/slow-{number}", {"Fencing-Token": 1, "Content-Length": length}, b"x" * sent)
        eventually(lambda: gate.metric("requests_total", **{"class": "write"}) == len(clients))
        return clients

    def test_clients_that_send_a_small_body_slowly_keep_no_hold_from_others(self):
        with self.make(pool=2, answer_timeout="6s", body_timeout="0") as gate:
            slow = self.slow_clients(gate, 10, 5)
            self.assertEqual(gate.request("PUT", "/orders/quick", b"x", token=1)[0], 200)
            for client in slow:
                client.send(b"x" * 5)
                self.assertEqual(client.answer().status, 200)

    def test_clients_that_send_a_large_body_slowly_keep_a_hold_no_longer_than_request_timeout(self):
        with self.make(pool=2, request_timeout="1s", answer_timeout="20s") as gate:
            slow, over = self.slow_clients(gate, 1 << 20, 1 << 17), threading.Event()
            eventually(lambda: self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"))

            def drip():
                while not over.wait(0.1):
                    for client in slow:
                        client.send(b"x")

            dripping = threading.Thread(target=drip)
            dripping.start()
            try:
                self.assertEqual(gate.request("PUT", "/orders/quick", b"x", token=1)[0], 200)
                self.assertEqual([client.answer().status for client in slow], [408] * len(slow))
            finally:
                over.set()
                dripping.join()

    def test_checked_compares_and_raises_in_redis(self):
        self.assertEqual(self.gate.request("PUT", "/checked/7", b"x", token=5)[1]["Fencing-Mark"], "5")
        self.assert_problem(self.gate.request("PUT", "/checked/7", b"x", token=4), 412, "stale")
        self.assertEqual(self.redis.cli.call("GET", "fencegate:mark:{order:7}"), b"5")

    def test_checked_asks_redis_each_time(self):
        """What another gate has raised meanwhile holds for connections on all threads of this one."""
        with self.make() as other:
            self.assertEqual(self.gate.request("PUT", "/checked/12", b"x", token=5)[0], 200)
            clients = [self.start(Client(self.gate.address)) for _ in range(4)]
            for token in (5, 6):
                for client in clients:
                    client.ask("PUT /checked/12", {"Fencing-Token": token, "Content-Length": 1}, b"x")
                    self.assertEqual(client.answer().status, 200)
                self.assertEqual(other.request("PUT", "/checked/12", b"x", token=token + 1)[0], 200)
                arrived = len(self.upstream.seen())
                for client in clients:
                    client.ask("PUT /checked/12", {"Fencing-Token": token, "Content-Length": 1}, b"x")
                    self.assertEqual(client.answer().status, 412)
                self.assertEqual(len(self.upstream.seen()), arrived)

    def test_checked_forwards_that_were_overtaken_are_counted(self):
        """By a holder at another gate: then the mark rises while the service is at work."""
        with self.make() as gate:
            self.assertEqual(gate.request("PUT", "/checked/8", b"x", token=33)[0], 200)
            answers, go = [], self.upstream.event("overtaken")
            thread = threading.Thread(target=lambda: answers.append(
                gate.request("PUT", "/checked/8", b"old", token=33, X_Sleep_Until="overtaken")))
            thread.start()
            eventually(lambda: any(body == b"old" for *_, body in self.upstream.seen("PUT")))
            self.assertEqual(gate.metric("forwards_overtaken_total"), 0)
            sent = time.monotonic()
            self.redis.cli.call("SET", "fencegate:mark:{order:8}", "34")
            eventually(lambda: time.monotonic() - sent > 0.1)  # below 50 ms nobody looks
            go.set()
            thread.join()
            self.assertEqual(answers[0][0], 200)  # as it would be without the fence
            eventually(lambda: gate.metric("forwards_overtaken_total") == 1)
            self.assert_problem(gate.request("PUT", "/checked/8", b"x", token=33), 412, "stale")

    def test_a_request_for_several_resources_goes_through_for_all_or_for_none(self):
        def ask(method, target, tag):
            return self.gate.request(method, target, b"1", token=tag)

        for method, target, own in (("PUT", "/orders/9", "order:9"), ("PUT", "/checked/9", "order:9"),
                                    ("PUT", "/kv/9", "kv"), ("POST", "/entries", "entries")):
            with self.subTest(target):
                status, headers, _ = ask(method, target, f"{own}=34, order:more=12")
                self.assertEqual((status, headers["Fencing-Mark"]), (200, f"{own}=34, order:more=12"))
                for stale in (f"{own}=34,order:more=11", f"{own}=33,order:more=12", f"order:more=12, {own}=33"):
                    self.assert_problem(ask(method, target, stale), 412, "stale")
                self.assert_problem(ask(method, target, "order:more=12"), 428, "missing")
                self.assert_problem(ask(method, target, f"{own}=34, order:more=x"), 400, "malformed")
        self.assertEqual(self.server.value("SELECT count(*) FROM entries"), 1)

    def test_a_mark_that_no_route_of_the_gate_is_about_is_another_gates(self):
        for method, target, tag in (("PUT", "/.fencegate/marks/secret", 34), ("PUT", "/orders/9", "order:9=34, secret=34"),
                                    ("PUT", "/.fencegate/marks/kv", 34)):  # whose store is another
            self.assert_problem(self.gate.request(method, target, b"1", token=tag), 403, "refused")
        self.assertIsNone(self.mark("secret") or self.mark("kv") or self.mark("order:9"))
        self.assertEqual(self.upstream.seen(), [])

    def test_a_store_that_is_away_closes(self):
        with PostgresServer() as server:
            server.user("gate")
            server.install(gate_users=["gate"])
            routes = [{"match": "PUT /orders/{id}", "resource": "order:{id}"}]
            stores = {"ledger": f"postgres://gate@{LOOPBACK}:{server.port}/postgres"}
            with HttpGate(self.upstream, stores, routes) as gate:
                self.assertEqual(gate.request("PUT", "/orders/7", b"x", token=1)[0], 200)
                server.kill()
                answer = gate.request("PUT", "/orders/7", b"y", token=1)
                self.assert_problem(answer, 503, "unavailable")
                self.assertIn("Retry-After", answer[1])
                self.assertEqual((json.loads(answer[2])["resource"], json.loads(answer[2])["token"]), ("order:7", 1))
                self.assertEqual((gate.http("/readyz")[0], gate.http("/livez")[0]), (200, 200))
                self.assertEqual(gate.request("GET", "/orders/7")[0], 200)
        self.assertEqual([body for *_, body in self.upstream.seen("PUT")], [b"x"])


class Atomic(HttpTest):
    def test_sql(self):
        status, headers, body = self.gate.request("POST", "/entries", b'{"a": 1}', token=34)
        self.assertEqual((status, headers["Fencing-Mark"]), (200, "34"))
        row = json.loads(body)
        self.assertEqual((row["rows"][0]["doc"], row["affected"]), ({"a": 1}, 1))
        number = row["rows"][0]["id"]
        self.assertEqual(json.loads(self.gate.request("GET", f"/entries/{number}")[2])["rows"][0]["doc"], {"a": 1})
        self.assertEqual(self.upstream.seen(), [])

    def test_sql_refuses_the_stale_and_says_what_the_server_said(self):
        self.gate.request("POST", "/entries", b"1", token=35)
        self.assert_problem(self.gate.request("POST", "/entries", b"2", token=34), 412, "stale")
        self.assert_problem(self.gate.request("POST", "/entries", b"3"), 428, "missing")
        problem = self.assert_problem(self.gate.request("POST", "/entries", b"{no json", token=35), 400)
        self.assertEqual(problem["sqlstate"], "22P02")
        self.gate.request("POST", "/wrong", b"1", token=35)
        problem = self.assert_problem(self.gate.request("POST", "/wrong", b"1", token=35), 409)
        self.assertEqual(problem["sqlstate"], "23505")
        self.assertEqual(self.server.value("SELECT count(*) FROM entries WHERE doc::text IN ('2', '3')"), 0)

    def test_no_text_becomes_sql(self):
        attack = "1'); DROP TABLE entries; --"
        self.gate.request("POST", "/entries", json.dumps(attack).encode(), token=1)
        self.assertEqual(self.server.value("SELECT doc #>> '{}' FROM entries"), attack)

    def test_a_body_of_any_bytes(self):
        """Also such as look like an escape of bytea's text format."""
        for name, body in (("all", bytes(range(256))), ("hex", b"\\x4142"), ("escape", b"a\\101"), ("none", b"")):
            answer = self.gate.request("PUT", f"/blobs/{name}", body, token=34)
            self.assertEqual(json.loads(answer[2])["rows"], [{"bytes": len(body)}], answer)
            self.assertEqual(bytes(self.server.value("SELECT body FROM blobs WHERE id = %s", name)), body)

    def test_redis(self):
        status, headers, body = self.gate.request("PUT", "/kv/a", b"\x00\xff value", token=7)
        self.assertEqual((status, headers["Fencing-Mark"], json.loads(body)), (200, "7", {"reply": "OK"}))
        self.assertEqual(self.redis.cli.call("GET", "a"), b"\x00\xff value")
        self.assert_problem(self.gate.request("PUT", "/kv/a", b"old", token=6), 412, "stale")
        self.gate.request("PUT", "/kv/b", b"text", token=7)
        self.assertEqual(json.loads(self.gate.request("GET", "/kv/b")[2]), {"reply": "text"})

    def test_fenced_reads_are_refused_when_stale_and_raise_nothing(self):
        with self.make(policy={"reads": "fence"}) as gate:
            for write, read, body in (("POST", "/entries/1", b"1"), ("PUT", "/kv/a", b"1")):
                target = "/entries" if write == "POST" else read
                self.assertEqual(gate.request(write, target, body, token=35)[0], 200)
                self.assert_problem(gate.request("GET", read, token=34), 412, "stale")
                for token in (35, 36, None):
                    self.assertEqual(gate.request("GET", read, token=token)[0], 200)
                self.assertEqual(gate.request(write, target, body, token=35)[1]["Fencing-Mark"], "35")

    def test_each_check_is_measured(self):
        ways = {"held": {}, "checked": {"store": "cache"}, "redis": {"store": "cache", "redis": ["SET", "timed", "{body}"]},
                "sql": {"sql": "select $1", "params": ["{body}"]}}
        routes = [{"match": f"PUT /{way}", "resource": f"timed:{way}"} | route for way, route in ways.items()]
        gate = self.enterContext(self.make(routes=routes))
        for way in ways:
            self.assertEqual(gate.request("PUT", f"/{way}", b"x", token=1)[0], 200)  # raises
            before = gate.metric("check_duration_seconds_count")
            self.assertEqual(gate.request("PUT", f"/{way}", b"x", token=1)[0], 200)
            self.assertEqual(gate.metric("check_duration_seconds_count") - before, 1, way)

    def test_what_the_gate_adds_is_measured(self):
        gate = self.enterContext(self.make(routes=[{"match": "PUT /forward", "resource": "timed"},
                                                   {"match": "PUT /sql", "resource": "timed", "sql": "select 1"},
                                                   {"match": "PUT /checked", "resource": "checked", "store": "cache"}]))

        def added(path, token):
            before = gate.metric("overhead_seconds_count")
            self.assertEqual(gate.request("PUT", path, b"x", token=token)[0], 200)
            return gate.metric("overhead_seconds_count") - before
        for path in ("/forward", "/checked"):  # once for each piece that arrives by itself: the client sends head and body apart
            self.assertIn(added(path, 1), (1, 2), path)
        self.assertEqual(gate.metric("backend_seconds_count"), 2)  # once for each that was sent on
        self.assertEqual(added("/sql", 2), 0)  # nothing was sent on
        self.assertFalse([name for name in gate.metrics() if "takeover" in name])

    def test_marks(self):
        self.assert_problem(self.gate.request("GET", "/.fencegate/marks/order:3"), 404)
        answer = self.gate.request("PUT", "/.fencegate/marks/order:3", token=34)
        self.assertEqual(json.loads(answer[2]), {"resource": "order:3", "mark": 34, "raised": True})
        self.assert_problem(self.gate.request("PUT", "/.fencegate/marks/order:3", token=33), 412, "stale")
        self.assertEqual(json.loads(self.gate.request("GET", "/.fencegate/marks/order:3")[2])["mark"], 34)

    def test_marks_at_the_admin_listener(self):
        path = "/.fencegate/marks/order:7"
        with self.make(seal="admin") as gate:
            self.assert_problem(gate.request("PUT", path, token=34), 404)
            self.assert_problem(gate.admin_request("GET", path), 404)
            answer = gate.admin_request("PUT", path, token=34)
            self.assertEqual((answer[0], answer[1]["Fencing-Mark"]), (200, "34"))
            self.assertEqual(json.loads(answer[2]), {"resource": "order:7", "mark": 34, "raised": True})
            self.assertEqual(json.loads(gate.admin_request("GET", path)[2]), {"resource": "order:7", "mark": 34})
            self.assert_problem(gate.request("PUT", "/orders/7", b"late", token=33), 412, "stale")
            self.assert_problem(gate.admin_request("PUT", path, token=33), 412, "stale")
            self.assert_problem(gate.admin_request("PUT", path), 428, "missing")
            self.assertEqual(gate.admin_request("DELETE", path)[1]["Allow"], "GET, HEAD, PUT")
            for forged in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                self.assertEqual(gate.admin_request("PUT", path, token=99, **forged)[0], 403)
            self.assertEqual(gate.metric("checks_total", outcome="stale"), 2)
        self.assertEqual(self.mark("order:7"), 34)
        self.assertEqual(self.upstream.seen(), [])

    def test_the_admin_listener_serves_no_marks_unless_told(self):
        for seal in ("gate", "off"):
            with self.make(seal=seal) as gate:
                self.assertEqual(gate.admin_request("PUT", "/.fencegate/marks/untold", token=34)[0], 404)
        self.assertIsNone(self.mark("untold"))  # the class's gate raises again what other tests have raised

    def test_a_store_that_hangs_does_not_take_the_admin_listener_along(self):
        redis = self.start(RedisServer())
        routes = [{"match": "PUT /orders/{id}", "resource": "order:{id}"}]
        stores = {"cache": f"redis://{LOOPBACK}:{redis.port}"}
        with HttpGate(self.upstream, stores, routes, extra={"seal": "admin", "answer_timeout": "2s"}) as gate:
            redis.stop_process()
            answers = []
            waiting = threading.Thread(
                target=lambda: answers.append(gate.admin_request("PUT", "/.fencegate/marks/order:7", token=34)))
            waiting.start()
            while waiting.is_alive():  # it waits for 2 s
                self.assertEqual(gate.http("/livez")[0], 200)
                waiting.join(0.2)
            redis.continue_process()
            self.assert_problem(answers[0], 503, "unavailable")
            self.assertEqual(answers[0][1]["Retry-After"], "1")

    def test_a_gate_is_up_while_all_of_its_stores_are(self):
        self.assertEqual(self.gate.metric("backend_up"), 1)
        with RedisServer() as other:
            routes = [{"match": "PUT /a", "resource": "a"}, {"match": "PUT /b", "resource": "b", "store": "other"}]
            stores = {"ledger": f"postgres://gate@{LOOPBACK}:{self.server.port}/postgres",
                      "other": f"redis://{LOOPBACK}:{other.port}"}
            with HttpGate(self.upstream, stores, routes) as gate:
                other.kill()
                eventually(lambda: gate.metric("backend_up") == 0)
                lost = eventually(lambda: next((line for line in gate.log_lines() if line["msg"] == "backend lost"), None))
                self.assertEqual(lost["store"], "other")
                for _ in range(50):  # while the ledger says that it is up, and the other is tried anew
                    self.assertEqual(gate.metric("backend_up"), 0)
                    time.sleep(0.1)


class Clients(HttpTest):
    def test_curl(self):
        said = subprocess.run(["curl", "-sS", "-i", "-X", "PUT", "-H", "Fencing-Token: 34", "--data-binary", "@-",
                               f"http://{LOOPBACK}:{self.gate.port}/orders/curl"], input=b"z" * (3 << 20),
                              capture_output=True, timeout=PATIENCE, check=True).stdout
        self.assertIn(b"HTTP/1.1 200", said)
        self.assertEqual(len(self.upstream.seen("PUT")[-1][3]), 3 << 20)


if __name__ == "__main__":
    main(at_once=2)
