"""equal_token: reject at an HTTP gate: a token is good for one request, on routes of every kind, through several gates,
with everything that may go wrong in between."""

import collections
import http.client
import json
import threading

from cut_proxy import CutProxy
from documents import gates_user
from http_gate import HttpGate, start_services
from live_test import LiveTest, main
from postgres import PostgresServer
from processes import LOOPBACK, eventually
from redis_server import RedisServer

ROUTES = [
    {"match": "PUT /held/{id}", "resource": "held:{id}"},
    {"match": "PUT /checked/{id}", "resource": "checked:{id}", "store": "cache"},
    {"match": "PUT /compared/{id}", "resource": "compared:{id}", "guarantee": "checked"},
    {"match": "PUT /kv/{key}", "resource": "kv:{key}", "store": "cache", "redis": ["RPUSH", "{key}", "{body}"]},
    {"match": "GET /kv/{key}", "resource": "kv:{key}", "store": "cache", "redis": ["LRANGE", "{key}", "0", "-1"]},
    {"match": "PUT /rows/{id}", "resource": "rows:{id}", "params": ["{id}", "{body}"],
     "sql": "insert into entries (id, doc) values ($1, $2)"},
    {"match": "GET /rows/{id}", "resource": "rows:{id}", "params": ["{id}"], "sql": "select doc from entries where id = $1"},
    {"match": "PUT /any/{id}", "resource": "held:{id}", "policy": {"equal_token": "accept"}},
]
KINDS = ("held", "checked", "compared", "kv", "rows")
ATOMIC = ("kv", "rows")


class OnceTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        start_services(cls)
        cls.server.sql("CREATE TABLE entries (id text, doc text)")
        cls.server.sql("GRANT ALL ON entries TO gate")
        cls.gate = cls.enterClassContext(cls.make())

    @classmethod
    def make(cls, postgres=None, redis=None, policy=None, **extra):
        urls = {"ledger": f"postgres://gate@{LOOPBACK}:{postgres or cls.server.port}/postgres",
                "cache": f"redis://{LOOPBACK}:{redis or cls.redis.port}"}
        policy = {"equal_token": "reject"} | (policy or {})
        return HttpGate(cls.upstream, urls, ROUTES, extra={"policy": policy} | extra)

    def setUp(self):
        with self.upstream.lock:
            self.upstream.requests.clear()

    def put(self, target, token=None, body=b"x", gate=None):
        """(status, the problem or what else was answered)"""
        status, _, body = (gate or self.gate).request("PUT", target, body, token=token)
        return status, json.loads(body)

    def assert_used(self, answer, resource, token):
        status, problem = answer
        self.assertEqual((status, problem["type"], problem["resource"], problem["token"], problem["mark"],
                          problem["applied"]), (409, "urn:fencegate:equal", resource, token, token, "no"), answer)

    def applied(self, target):
        """The bodies that got through to whoever carries them out, in their order."""
        _, kind, name = target.split("/")
        if kind == "kv":
            return [body.decode() for body in self.redis.cli.call("LRANGE", name, "0", "-1")]
        if kind == "rows":
            return [doc for (doc,) in self.server.sql("SELECT doc FROM entries WHERE id = %s", name)]
        return [body.decode() for _, path, _, body in self.upstream.seen("PUT") if path == target]


class Requests(OnceTest):

    def test_a_token_is_good_for_one_request(self):
        for kind in KINDS:
            with self.subTest(kind):
                target, resource = f"/{kind}/one", f"{kind}:one"
                self.assertEqual(self.put(target, 34, b"first")[0], 200)
                self.assert_used(self.put(target, 34, b"again"), resource, 34)
                with self.make() as other:  # which remembers nothing
                    self.assert_used(self.put(target, 34, b"again", other), resource, 34)
                self.assertEqual(self.put(target, 33, b"stale")[0], 412)
                self.assertEqual(self.put(target, None, b"none")[0], 428)
                self.assertEqual(self.put(target, "x", b"bad")[0], 400)
                answer = self.gate.request("PUT", target, b"second", token=36)
                self.assertEqual((answer[0], answer[1]["Fencing-Mark"]), (200, "36"))
                self.assertEqual(self.put(target, 35, b"late")[0], 412)
                self.assertEqual(self.applied(target), ["first", "second"])

    def test_of_many_at_the_same_time_one_gets_through(self):
        with self.make() as other:
            for kind in KINDS:
                with self.subTest(kind):
                    self.many(kind, [self.gate, other])

    def many(self, kind, gates, clients=50, tokens=(34, 35, 36)):
        """Every client sends the same tokens, one after the other."""
        target = f"/{kind}/many"
        start = threading.Barrier(clients)
        answers, lock = collections.defaultdict(collections.Counter), threading.Lock()

        def client(number):
            start.wait()
            for token in tokens:
                status, _ = self.put(target, token, str(token).encode(), gates[number % len(gates)])
                with lock:
                    answers[token][status] += 1

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for token in tokens:
            self.assertLessEqual(set(answers[token]), {200, 409, 412}, answers)
            # Between its raise and its forward, another client may be on with the next token: then it was for nobody.
            exactly_one = kind in ATOMIC or token == tokens[-1]
            self.assertIn(answers[token][200], (1,) if exactly_one else (0, 1), answers)
        self.assertEqual(answers[tokens[-1]][409], clients - 1, answers)
        through, applied = [str(token) for token in tokens if answers[token][200]], self.applied(target)
        self.assertEqual(applied if kind in (*ATOMIC, "held") else sorted(applied), through)

    def test_several_resources_are_used_together_or_not_at_all(self):
        for kind in KINDS:
            with self.subTest(kind):
                target, own, other = f"/{kind}/both", f"{kind}:both", f"{kind}:other"
                self.assertEqual(self.put(target, f"{own}=34, {other}=7")[0], 200)
                self.assert_used(self.put(target, f"{own}=35, {other}=7"), other, 7)
                self.assert_used(self.put(target, f"{other}=8, {own}=34"), own, 34)
                self.assertEqual(self.put(target, f"{own}=35, {other}=6")[0], 412)
                # Nothing of these was raised.
                self.assertEqual(self.put(target, f"{own}=35, {other}=8")[0], 200)
                self.assertEqual(len(self.applied(target)), 2)

    def test_what_fails_in_the_backend_has_used_nothing(self):
        self.redis.cli.call("SET", "broken", "no list")
        self.assertEqual(self.put("/kv/broken", 34)[0], 400)
        self.redis.cli.call("DEL", "broken")
        self.assertEqual(self.put("/kv/broken", 34)[0], 200)
        self.server.sql("ALTER TABLE entries ADD CONSTRAINT short CHECK (length(doc) < 100)")
        self.addCleanup(self.server.sql, "ALTER TABLE entries DROP CONSTRAINT short")
        self.assertEqual(self.put("/rows/broken", 34, b"x" * 200)[1]["sqlstate"], "23514")
        self.assertEqual(self.put("/rows/broken", 34)[0], 200)

    def test_with_the_rights_that_the_page_asks_for(self):
        redis = self.start(RedisServer())
        self.assertEqual(gates_user(redis, "~one", "+rpush"), b"OK")
        redis.cli.call("SET", "one", "no list")
        urls = {"ledger": f"postgres://gate@{LOOPBACK}:{self.server.port}/postgres",
                "cache": f"redis://fencegate:gate-secret@{LOOPBACK}:{redis.port}"}
        gate = self.start(HttpGate(self.upstream, urls, ROUTES, extra={"policy": {"equal_token": "reject"}}))
        self.assertEqual(self.put("/kv/one", 34, gate=gate)[0], 400)
        self.assertIsNone(redis.cli.call("GET", "fencegate:mark:{kv:one}"), "what it has done is not undone")
        redis.cli.call("DEL", "one")
        self.assertEqual(self.put("/kv/one", 34, gate=gate)[0], 200)
        self.assert_used(self.put("/kv/one", 34, gate=gate), "kv:one", 34)

    def test_reads_use_nothing_up(self):
        with self.make(policy={"reads": "fence"}) as gate:
            for kind in ATOMIC:
                target = f"/{kind}/read"
                self.assertEqual(self.put(target, 34, gate=gate)[0], 200)
                for token in (34, 34, 35, None):
                    self.assertEqual(gate.request("GET", target, token=token)[0], 200)
                self.assertEqual(gate.request("GET", target, token=33)[0], 412)
                self.assertEqual(self.put(target, 35, gate=gate)[0], 200)

    def test_marks_are_raised_to_where_they_are_as_often_as_anybody_likes(self):
        path = "/.fencegate/marks/held:sealed"
        for raised in (True, False, False):
            self.assertEqual(self.put(path, 34), (200, {"resource": "held:sealed", "mark": 34, "raised": raised}))
        self.assert_used(self.put("/held/sealed", 34), "held:sealed", 34)
        self.assertEqual(self.put("/held/sealed", 35)[0], 200)

    def test_a_route_that_accepts_goes_on_under_a_token_that_was_used(self):
        self.assertEqual(self.put("/held/mixed", 34)[0], 200)
        for _ in range(2):
            self.assertEqual(self.put("/any/mixed", 34)[0], 200)
        self.assert_used(self.put("/held/mixed", 34), "held:mixed", 34)

    def test_policies(self):
        with self.make(policy={"missing_token": "allow", "max_step": 10}) as gate:
            for kind in KINDS:
                with self.subTest(kind):
                    target = f"/{kind}/policies"
                    for _ in range(2):
                        self.assertEqual(self.put(target, None, b"unchecked", gate)[0], 200)
                    self.assertEqual(self.put(target, 34, b"34", gate)[0], 200)
                    status, problem = self.put(target, 45, b"jump", gate)
                    self.assertEqual((status, problem["type"], problem["mark"]), (403, "urn:fencegate:jump", 34))
                    self.assertEqual(self.put(target, 44, b"44", gate)[0], 200)
                    self.assertEqual(self.applied(target), ["unchecked", "unchecked", "34", "44"])

    def test_monitor_lets_it_through_and_counts(self):
        with self.make(policy={"mode": "monitor"}) as gate:
            for count, kind in enumerate(KINDS, 1):
                target = f"/{kind}/watched"
                self.assertEqual(self.put(target, 34)[0], 200)
                self.assertEqual(self.put(target, 34, gate=gate)[0], 200)
                self.assertEqual(gate.metric("checks_total", outcome="equal"), count)
                self.assertEqual(len(self.applied(target)), 2)


class Failures(OnceTest):

    def test_who_asks_again_learns_whether_it_was_applied(self):
        """The connection to the database is cut while the statement waits; then it commits, or not."""
        for commits in (False, True):
            target = f"/rows/cut-{commits}"
            proxy = self.start(CutProxy(self.server.port))
            with self.make(postgres=proxy.port) as gate:
                blocker = self.server.connect()
                with blocker.cursor() as cursor:
                    cursor.execute("BEGIN")
                    cursor.execute("LOCK TABLE entries IN EXCLUSIVE MODE")
                    answers = []
                    asking = threading.Thread(target=lambda: answers.append(self.put(target, 34, b"once", gate)))
                    asking.start()
                    waits = "SELECT pid FROM pg_stat_activity WHERE usename = 'gate' AND wait_event = 'relation'"
                    pid = eventually(lambda: self.server.value(waits))
                    proxy.cut_all()
                    asking.join()
                    self.assertEqual((answers[0][0], answers[0][1]["applied"]), (502, "unknown"))
                    if not commits:
                        self.server.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
                    cursor.execute("ROLLBACK")
                blocker.close()
                eventually(lambda: not self.server.sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
                again = eventually(lambda: (answer := self.put(target, 34, b"once", gate))[0] != 503 and answer)
                if commits:
                    self.assert_used(again, f"rows:cut-{commits}", 34)
                else:
                    self.assertEqual(again[0], 200)
                self.assertEqual(self.applied(target), ["once"])

    def test_an_answer_that_got_lost(self):
        """The client goes away; asking again proves that the first was applied."""
        for kind in ATOMIC:
            connection = http.client.HTTPConnection(LOOPBACK, self.gate.port)
            connection.request("PUT", f"/{kind}/left", b"once", {"Fencing-Token": "34"})
            eventually(lambda target=f"/{kind}/left": self.applied(target))
            connection.close()
            self.assert_used(self.put(f"/{kind}/left", 34, b"twice"), f"{kind}:left", 34)
            self.assertEqual(self.applied(f"/{kind}/left"), ["once"])

    def test_a_frozen_gate_lets_nothing_through_twice(self):
        """Requests of one gate that stops and goes on, while another brings the same tokens."""
        with self.make() as frozen:
            for kind in KINDS:
                with self.subTest(kind):
                    self.freeze_and_ask(f"/{kind}/frozen", frozen)

    def freeze_and_ask(self, target, frozen):
        answers = []
        for token in range(34, 40):
            def ask(gate, token=token):
                answers.append((token, self.put(target, token, str(token).encode(), gate)[0]))

            asking = [threading.Thread(target=ask, args=(gate,)) for gate in (frozen, self.gate)]
            asking[0].start()
            frozen.stop_process()
            asking[1].start()
            asking[1].join(0.2)  # it may have to wait for what the frozen gate has begun
            frozen.continue_process()
            for one in asking:
                one.join()
        through = [str(token) for token, status in answers if status == 200]
        self.assertEqual(len(through), len(set(through)), answers)
        self.assertLessEqual({status for _, status in answers}, {200, 409, 412}, answers)
        self.assertEqual(sorted(self.applied(target)), sorted(through))

    def test_a_store_that_is_away_uses_nothing(self):
        with PostgresServer() as server, RedisServer() as redis:
            server.user("gate")
            server.install(gate_users=["gate"])
            server.sql("CREATE TABLE entries (id text, doc text)")
            server.sql("GRANT ALL ON entries TO gate")
            with self.make(postgres=server.port, redis=redis.port) as gate:
                for kind in KINDS:
                    self.assertEqual(self.put(f"/{kind}/away", 34, gate=gate)[0], 200)
                server.kill()
                redis.kill()
                for kind in KINDS:
                    # What it has seen used, it need not ask for.
                    self.assert_used(self.put(f"/{kind}/away", 34, gate=gate), f"{kind}:away", 34)
                    eventually(lambda k=kind: self.put(f"/{k}/away", 35, b"lost", gate)[0] == 503)
        self.assertNotIn(b"lost", [body for *_, body in self.upstream.seen()])


if __name__ == "__main__":
    main()
