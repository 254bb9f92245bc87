"""Atomic routes of the HTTP gate under hostile and odd requests and answers: spellings, sizes, numbers, time."""

import json
import os
import subprocess
import threading
import time

from http_gate import HttpGate, start_services
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually

MIB = 1024 * 1024
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
SQL = {"store": "ledger"}
ROUTES = [
    {"match": "PUT /rows/{id:int}", "resource": "row:{id}", "params": ["{id}", "{body}"],
     "sql": "insert into rows values ($1::bigint, $2::text) on conflict (id) do update set body = $2::text"} | SQL,
    {"match": "PUT /keys/{key:uuid}", "resource": "key:{key}", "params": ["{key}"],
     "sql": "insert into keys values ($1::uuid) on conflict do nothing"} | SQL,
    {"match": "PUT /pages/{name:slug}", "resource": "page:{name}"},
    {"match": "PUT /untyped/{id}", "resource": "untyped:{id}", "params": ["{id}"], "sql": "select $1::int"} | SQL,
    {"match": "POST /optional", "resource": "all", "params": ["{query.when?}", "{header.X-User?}"],
     "sql": "select $1::timestamptz is null as a, $2::text as b"} | SQL,
    {"match": "POST /wide/{bytes:int}", "resource": "all", "sql": "select repeat('x', $1::int) as wide", "params": ["{bytes}"]} | SQL,
    {"match": "POST /deep/{levels:int}", "resource": "all", "params": ["{levels}"],
     "sql": "select (repeat('[', $1::int) || repeat(']', $1::int))::jsonb as deep"} | SQL,
    {"match": "PUT /bytes", "resource": "all", "sql": "select encode(($1)::bytea, 'hex') as hex", "params": ["{body}"]} | SQL,
    {"match": "POST /nap/{seconds}", "resource": "all", "sql": "select pg_sleep($1::text::float)", "params": ["{seconds}"]} | SQL,
    {"match": "PUT /kv/{key}", "resource": "kv", "redis": ["SET", "{key}", "{body}"]},
    {"match": "GET /kv/{key}", "resource": "kv", "redis": ["GET", "{key}"]},
    {"match": "POST /getset/{key}", "resource": "kv", "redis": ["SET", "{key}", "{body}", "GET"]},
    {"match": "GET /list/{key}", "resource": "kv", "redis": ["LRANGE", "{key}", "0", "-1"]},
    {"match": "POST /count/{key}/{by}", "resource": "kv", "redis": ["INCRBY", "{key}", "{by}"]},
    {"match": "POST /once/{key}", "resource": "once:{key}", "redis": ["INCR", "{key}"], "policy": {"equal_token": "reject"}},
    {"match": "POST /field/{key}", "resource": "kv", "redis": ["HINCRBY", "{key}", "f", "1"]},
    {"match": "POST /bits/{key}", "resource": "kv", "redis": ["BITFIELD", "{key}", "SET", "i64", "0", "9007199254740993",
                                                             "GET", "i64", "0"]},
    {"match": "POST /group/{key}", "resource": "kv", "redis": ["XGROUP", "CREATE", "{key}", "g", "0", "MKSTREAM"]},
    {"match": "POST /restore/{key}", "resource": "kv", "redis": ["RESTORE", "{key}", "0", "{body}"]},
]


class RoutesTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        start_services(cls)
        cls.server.sql("CREATE TABLE rows (id bigint PRIMARY KEY, body text)")
        cls.server.sql("CREATE TABLE keys (key uuid PRIMARY KEY)")
        cls.server.sql("GRANT ALL ON rows, keys TO gate")
        cls.gate = cls.enterClassContext(cls.make(answer_timeout="60s"))

    @classmethod
    def make(cls, routes=ROUTES, stores=None, **extra):
        urls = {"cache": f"redis://{LOOPBACK}:{cls.redis.port}",
                "ledger": f"postgres://gate@{LOOPBACK}:{cls.server.port}/postgres"}
        return HttpGate(cls.upstream, urls | (stores or {}), routes, extra=extra)

    def ask(self, method, target, body=None, token=34, gate=None, **headers):
        """(status, body as JSON)"""
        status, _, body = (gate or self.gate).request(method, target, body, token, **headers)
        return status, json.loads(body)


class Spellings(RoutesTest):
    def test_two_spellings_of_one_row_have_one_mark(self):
        self.assertEqual(self.ask("PUT", "/rows/7", b"new", token=34)[0], 200)
        for path in ("07", "0000007", "%307", "7"):
            self.assertEqual(self.ask("PUT", f"/rows/{path}", b"old", token=33)[0], 412, path)
        for path in ("+7", "%2B7", "%207", "7%20", "0x7", "7.0", "7e0", "1_0", "%D9%A7", "9223372036854775808", "-", "7;a=1"):
            self.assertEqual(self.ask("PUT", f"/rows/{path}", b"old", token=33)[0], 400, path)
        self.assertEqual(self.ask("PUT", "/rows/-007", b"less than none", token=1)[0], 200)
        self.assertEqual(self.ask("PUT", "/rows/-9223372036854775808", b"least", token=1)[0], 200)
        rows = self.server.sql("SELECT id::text, body FROM rows ORDER BY rows.id")
        self.assertEqual([tuple(row) for row in rows],
                         [("-9223372036854775808", "least"), ("-7", "less than none"), ("7", "new")])

    def test_of_uuids_too(self):
        self.assertEqual(self.ask("PUT", f"/keys/{UUID}", token=34)[0], 200)
        for path in (UUID.upper(), UUID.replace("-", ""), f"%7B{UUID}%7D", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11"):
            self.assertEqual(self.ask("PUT", f"/keys/{path}", token=33)[0], 412, path)
        for path in (f"%7B{UUID}", f"urn:uuid:{UUID}", UUID[:-1], f"-{UUID}"):
            self.assertEqual(self.ask("PUT", f"/keys/{path}", token=33)[0], 400, path)
        self.assertEqual(self.server.value("SELECT count(*) FROM keys"), 1)

    def test_the_upstream_gets_the_spelling_that_was_fenced(self):
        self.assertEqual(self.ask("PUT", "/pages/About-%55s?x=%41", b"1")[0], 200)
        self.assertEqual(self.upstream.seen()[-1][1], "/pages/about-us?x=%41")
        self.assertEqual(self.ask("PUT", "/pages/about.us", b"1")[0], 400)
        self.assertEqual(self.ask("PUT", "/pages/ABOUT-US", b"1", token=33)[0], 412)

    def test_check_warns_of_a_route_that_leaves_them_apart(self):
        path = os.path.join(self.gate.folder, "fencegate.yaml")
        done = subprocess.run([self.gate.binary, "check", "-c", path], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (0, 1), done.stderr)
        self.assertIn("warning: $1 is {id} of the path", done.stderr)
        self.assertIn("warning: $1 is {id} of the path", self.gate.log())


class Values(RoutesTest):
    def test_what_is_missing_is_null_where_the_route_says_so(self):
        self.assertEqual(self.ask("POST", "/optional")[1]["rows"], [{"a": True, "b": None}])
        self.assertEqual(self.ask("POST", "/optional?when=2020-01-01", X_User="me")[1]["rows"], [{"a": False, "b": "me"}])
        self.assertEqual(self.ask("POST", "/optional?when=now&when=now")[0], 400)

    def test_bytes_are_bytes_in_brackets(self):
        body = bytes(range(256))
        self.assertEqual(self.ask("PUT", "/bytes", body)[1]["rows"], [{"hex": body.hex()}])

    def test_json_may_be_deep(self):
        answer = self.ask("POST", "/deep/900")[1]["rows"][0]["deep"]
        levels = 0
        while answer:
            answer, levels = answer[0], levels + 1
        self.assertEqual(levels, 899)

    def test_integers_are_exact(self):
        for by, is_ in ((9007199254740993, 9007199254740993), (-1, 9007199254740992), (1 << 62, (1 << 62) + (1 << 53))):
            self.assertEqual(self.ask("POST", f"/count/far/{by}"), (200, {"reply": is_}))
        self.redis.cli.call("SET", "once", str((1 << 53) + 6))
        self.assertEqual(self.ask("POST", "/once/once", token=1), (200, {"reply": (1 << 53) + 7}))
        self.redis.cli.call("HSET", "hash", "f", str(-(1 << 60) - 2))
        self.assertEqual(self.ask("POST", "/field/hash"), (200, {"reply": -(1 << 60) - 1}))
        # Of others it is not said what nobody knows.
        self.assertEqual(self.ask("POST", "/bits/map"), (200, {"reply": [0, None], "inexact": True}))

    def test_what_redis_says_of_the_data_is_not_for_later(self):
        self.assertEqual(self.ask("POST", "/group/stream")[0], 200)
        for target, code in (("/group/stream", "BUSYGROUP"), ("/restore/stream", "BUSYKEY")):
            dump = self.redis.cli.call("DUMP", "stream")
            status, headers, body = self.gate.request("POST", target, dump, token=34)
            self.assertEqual((status, headers.get("Retry-After")), (400, None))
            self.assertIn(code, json.loads(body)["detail"])


class Sizes(RoutesTest):
    def test_a_large_reply_of_redis_is_refused_alone(self):
        self.redis.cli.call("SET", "large", b"x" * (20 * MIB))
        self.redis.cli.call("SET", "swap", b"x" * (9 * MIB))
        self.redis.cli.call("RPUSH", "long", *range(100_000))
        self.redis.cli.call("RPUSH", "long", *range(100_000))
        self.redis.cli.call("SET", "fits", b"y" * (7 * MIB))
        stop, outcomes = threading.Event(), []

        def writer():
            while not stop.is_set():
                status, answer = self.ask("PUT", "/kv/small", b"v")
                outcomes.append((status, answer.get("detail")))
        writers = [threading.Thread(target=writer) for _ in range(4)]
        for one in writers:
            one.start()
            self.addCleanup(one.join)
            self.addCleanup(stop.set)
        for _ in range(3):
            for target in ("/kv/large", "/list/long"):
                status, problem = self.ask("GET", target)
                self.assertEqual((status, problem["applied"]), (502, "no"))
                self.assertIn("larger than 8388608 bytes", problem["detail"])
        self.assertEqual(self.ask("GET", "/kv/fits"), (200, {"reply": "y" * (7 * MIB)}))
        self.assertEqual(self.ask("POST", "/getset/swap", b"applied"), (200, {"reply": None, "truncated": True}))
        self.assertEqual(self.redis.cli.call("GET", "swap"), b"applied")
        stop.set()
        for one in writers:
            one.join()
        self.assertEqual(set(outcomes), {(200, None)})
        self.assertEqual(self.gate.log().count('"backend lost"'), 0)
        if "FENCEGATE_SANITIZED" not in os.environ:  # a sanitizer keeps what was freed, and shadows what is used
            eventually(lambda: self.gate.rss_bytes() < 100 * MIB)

    def test_a_large_row_ends_its_connection_and_no_memory_stays(self):
        gate = self.start(self.make(answer_timeout="60s"))
        self.assertEqual(self.ask("POST", f"/wide/{MIB}", gate=gate)[0], 200)
        status, answer = self.ask("POST", f"/wide/{10 * MIB}", gate=gate)
        self.assertEqual((status, answer["rows"], answer["truncated"]), (200, [], True))
        status, problem = self.ask("POST", f"/wide/{400 * MIB}", gate=gate)
        self.assertEqual((status, problem["applied"]), (502, "unknown"))
        self.assertIn("larger than 16777216 bytes", problem["detail"])
        if "FENCEGATE_SANITIZED" not in os.environ:
            # libpq reads on as long as more has come, where the server is fast to the end; nothing holds the row twice.
            self.assertLess(gate.rss_bytes_max(), 464 * MIB)
        self.assertEqual(self.ask("POST", f"/wide/{MIB}", gate=gate)[0], 200)
        if "FENCEGATE_SANITIZED" not in os.environ:
            eventually(lambda: gate.rss_bytes() < 64 * MIB)
        self.assertEqual(gate.log().count('"backend not usable"'), 0)  # the store was there all the time


class Time(RoutesTest):
    def timed(self, *request, gate):
        began = time.monotonic()
        return self.ask(*request, gate=gate), time.monotonic() - began

    def test_answer_timeout_is_kept_by_postgres(self):
        gate = self.start(self.make(answer_timeout="2s"))
        (status, problem), took = self.timed("POST", "/nap/20", gate=gate)
        self.assertEqual((status, problem["applied"], problem["sqlstate"]), (504, "no", "57014"))
        self.assertLess(took, 4)
        pids = [row[0] for row in self.server.sql("SELECT pid FROM pg_stat_activity WHERE usename = 'gate'")]
        self.server.stop_process()
        for pid in pids:
            self.server.freeze(pid)
        try:
            (status, problem), took = self.timed("PUT", "/rows/1", b"x", gate=gate)
        finally:
            for pid in pids:
                self.server.thaw(pid)
            self.server.continue_process()
        self.assertIn(status, (502, 503))
        self.assertLess(took, 4.5)

    def test_answer_timeout_is_kept_by_redis_be_it_shorter_or_longer_than_the_links_own_patience(self):
        gate = self.start(self.make(answer_timeout="1s"))
        patient = self.start(self.make(answer_timeout="8s", timeouts={"connect": "1s"}))
        self.assertEqual(self.ask("PUT", "/kv/a", b"1", gate=gate)[0], 200)
        self.assertEqual(self.ask("PUT", "/kv/a", b"1", gate=patient)[0], 200)
        self.redis.stop_process()
        try:
            answers = []
            waiting = threading.Thread(target=lambda: answers.append(self.ask("PUT", "/kv/a", b"2", gate=patient)))
            waiting.start()
            (status, problem), took = self.timed("PUT", "/kv/a", b"2", gate=gate)
            self.assertEqual((status, problem["applied"]), (502, "unknown"))
            self.assertIn("no answer in time", problem["detail"])
            self.assertTrue(0.9 < took < 1.9, took)
            time.sleep(2)  # longer than its link waits for an answer of its own
        finally:
            self.redis.continue_process()
        waiting.join()
        self.assertEqual(answers[0][0], 200)
        self.assertGreaterEqual(gate.metric("checks_total", outcome="unknown"), 1)
        eventually(lambda: self.ask("PUT", "/kv/a", b"3", gate=gate)[0] == 200)


if __name__ == "__main__":
    main()
