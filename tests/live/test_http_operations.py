"""What operators rely on with an HTTP gate: limits, time-outs, an upstream that dies, draining, bounded memory."""

import contextlib
import http.client
import json
import os
import select
import signal
import tempfile
import threading
import zlib

from http_gate import HttpGate
from http_raw import Client, Ended, RawUpstream
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually
from redis_server import RedisServer

MIB = 1 << 20
PIECE = bytes(range(256)) * 4096
LARGE = 2048 * MIB
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Scripted(RawUpstream):
    """Does what the request's path says; `served` holds the paths, `go` lets those answer that wait."""

    def __init__(self, path=None):
        super().__init__(self._serve, path)
        self.served, self.go, self.sums = [], threading.Event(), {}

    def __exit__(self, *how):
        self.go.set()
        super().__exit__(*how)

    def _serve(self, reader, _):
        while (head := reader.head()) is not None:
            target = head.start.split(b" ")[1].decode()
            self.served.append(target)
            name, _, rest = target.lstrip("/").partition("/")
            if not getattr(self, "do_" + name)(reader, head, rest):
                return

    def do_ok(self, reader, head, _):
        self.last = reader.body(head)
        reader.sock.sendall(OK if not head.start.startswith(b"HEAD") else OK[:-2])
        return True

    def do_wait(self, reader, head, _):
        reader.body(head)
        self.go.wait(60)
        reader.sock.sendall(OK)
        return True

    def do_slow(self, reader, *_):
        reader.sock.sendall(OK[:-2])
        self.go.wait(60)
        reader.sock.sendall(OK[-2:])
        return True

    def do_silent(self, reader, head, _):
        reader.body(head)
        reader.rest()  # until the gate has closed

    def do_deaf(self, reader, *_):
        self.go.wait(60)

    def do_die(self, reader, head, _):
        reader.body(head)

    def do_half(self, reader, head, _):
        reader.body(head)
        reader.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    def do_early(self, reader, *_):
        reader.sock.sendall(b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 2\r\n\r\nno")
        reader.rest()

    def do_chunks(self, reader, head, _):
        reader.body(head)
        reader.sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
        return True

    def do_down(self, reader, _, size):
        reader.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % int(size))
        for _ in range(int(size) // len(PIECE)):
            reader.sock.sendall(PIECE)
        return True

    def do_up(self, reader, head, name):
        self.sums[name] = sum_of(reader, int(head["Content-Length"]))
        reader.sock.sendall(OK)
        return True


def sum_of(reader, size):
    """Of the next bytes, which are not kept."""
    total, buffer = zlib.crc32(reader.data), bytearray(MIB)
    left, reader.data = size - len(reader.data), b""
    while left > 0:
        got = reader.sock.recv_into(buffer, min(left, len(buffer)))
        if not got:
            raise Ended(None)
        total, left = zlib.crc32(memoryview(buffer)[:got], total), left - got
    return total


def expected_sum(size):
    total = 0
    for _ in range(size // len(PIECE)):
        total = zlib.crc32(PIECE, total)
    return total


class OperationsTest(LiveTest):
    ROUTES = [{"match": "PUT /{path...}", "resource": "orders"}]

    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())

    def setUp(self):
        self.upstream = self.start(Scripted())

    def make(self, upstream=None, **how):
        return self.start(HttpGate(upstream or self.upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"},
                                   self.ROUTES, **how))

    def client(self, gate, timeout=PATIENCE):
        return self.start(Client(gate.address, timeout))

    def assert_ok(self, client, text="GET /ok"):
        client.ask(text)
        self.assertEqual(client.answer().body, b"ok")

    def assert_problem(self, answer, status, applied):
        self.assertIsNotNone(answer, "closed without an answer")
        self.assertEqual((answer.status, answer["Content-Type"]), (status, b"application/problem+json"))
        self.assertEqual(json.loads(answer.body)["applied"], applied)

    def put(self, client, path, length, body=b""):
        client.ask(f"PUT {path}", fields={"Fencing-Token": 5, "Content-Length": length}, body=body)


class Start(OperationsTest):
    def begin(self):
        """A gate whose store does not answer yet, and a write that it got."""
        os.kill(self.redis.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.redis.pid, signal.SIGCONT)
        gate = HttpGate(self.upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"}, self.ROUTES)
        gate.needs_backend = False
        self.start(gate)
        client = self.client(gate)
        self.put(client, "/ok", 1, b"x")
        return gate, client

    def test_a_request_that_comes_before_the_store_has_answered_waits(self):
        _, client = self.begin()
        os.kill(self.redis.pid, signal.SIGCONT)
        self.assertEqual(client.answer().body, b"ok")

    def test_it_can_end_before_the_store_has_answered(self):
        gate, _ = self.begin()
        gate.terminate()
        self.assertEqual(gate.wait(), 0)
        self.assertEqual(self.upstream.served, [])


class TimeOuts(OperationsTest):
    def assert_late(self, client, applied):
        answer = client.answer()
        self.assert_problem(answer, 408, applied)
        self.assertEqual(answer["Connection"], b"close")
        self.assertIsNone(client.answer())

    def test_a_slow_head_is_cut_however_busily_it_comes(self):
        gate = self.make(extra={"timeouts": {"head": "1s"}})
        client = self.client(gate)
        client.send(b"GET /ok HTTP/1.1\r\nHost: a.example\r\n")
        over = threading.Event()

        def drip():
            while not over.wait(0.1):
                client.send(b"X-More: and more\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            self.assert_late(client, "no")
        finally:
            over.set()
            dripping.join()
        self.assertEqual(self.upstream.served, [])
        eventually(lambda: gate.metric("connections") == 0)

    def test_a_slow_body_is_cut_and_its_request_with_it(self):
        gate = self.make(extra={"body_timeout": "1s"})
        client = self.client(gate)
        self.put(client, "/ok", 10, b"half")
        self.assert_late(client, "unknown")
        eventually(lambda: self.upstream.served and self.upstream.idle())
        self.assertFalse(hasattr(self.upstream, "last"), "half a body was taken for a whole one")

    def test_a_connection_that_asks_nothing_more_is_closed(self):
        client = self.client(self.make(extra={"keep_alive": "1s"}))
        self.assert_ok(client)
        self.assertIsNone(client.answer())

    def test_the_time_of_an_answer_is_no_idle_time(self):
        gate = self.make(extra={"keep_alive": "2s", "timeouts": {"head": "1s"}})
        client = self.client(gate)
        client.ask("GET /wait")
        eventually(lambda: self.upstream.served)
        with self.client(gate) as idle:  # when this one has been closed, more than keep_alive has passed
            self.assertIsNone(idle.answer())
        self.upstream.go.set()
        self.assertEqual(client.answer().body, b"ok")
        self.assert_ok(client)

    def test_an_upstream_that_does_not_answer_is_given_up_and_nobody_knows(self):
        gate = self.make(extra={"response_timeout": "1s"})
        client = self.client(gate)
        self.put(client, "/silent", 0)
        self.assert_problem(client.answer(), 504, "unknown")
        self.assert_ok(client)

    def test_an_upstream_that_does_not_take_the_body_is_to_blame_not_the_client(self):
        gate = self.make(extra={"response_timeout": "2s", "body_timeout": "1s"})
        client = self.client(gate)
        sender = threading.Thread(target=self.put, args=(client, "/deaf", 64 * MIB, PIECE * 64))
        sender.start()
        self.assert_problem(client.answer(), 504, "unknown")
        sender.join()

    def test_a_client_that_takes_no_answer_is_cut(self):
        gate = self.make(extra={"timeouts": {"write": "1s"}})
        self.client(gate).ask(f"GET /down/{64 * MIB}")
        eventually(lambda: gate.metric("connections_total") == 1 and gate.metric("connections") == 0)
        eventually(self.upstream.idle)

    def test_a_slow_reader_gets_everything_though_it_takes_longer_than_any_limit(self):
        limits = {"keep_alive": "1s", "body_timeout": "1s", "response_timeout": "1s", "timeouts": {"head": "1s"}}
        gate = self.make(extra=limits)
        slow = self.client(gate)
        slow.ask(f"GET /down/{16 * MIB}")
        self.assertEqual(slow.reader.head().status, 200)
        for _ in range(3):  # each is closed when more than a second has passed
            with self.client(gate) as idle:
                self.assertIsNone(idle.answer())
        self.assertEqual(sum_of(slow.reader, 16 * MIB), expected_sum(16 * MIB))


class Limits(OperationsTest):
    def test_a_thousand_idle_connections(self):
        gate = self.make()
        self.assert_ok(self.client(gate))
        before = gate.rss_bytes()
        idle = [self.client(gate) for _ in range(1000)]
        eventually(lambda: gate.metric("connections") == 1001)
        self.assert_ok(self.client(gate))
        if "FENCEGATE_SANITIZED" not in os.environ:
            self.assertLess(gate.rss_bytes() - before, 20 * MIB)
        for one in idle[::100]:
            self.assert_ok(one)
        for one in idle:
            one.sock.close()
        eventually(lambda: gate.metric("connections") == 2)

    def test_connections_max(self):
        gate = self.make(extra={"connections_max": 2})
        first, second = self.client(gate), self.client(gate)
        self.assert_ok(first)
        self.assert_ok(second)
        self.assert_problem(self.client(gate).answer(), 503, "no")
        self.assert_ok(first)
        second.sock.close()
        eventually(lambda: gate.metric("connections") == 1)
        self.assert_ok(self.client(gate))

    def test_a_storm_of_one_tag_leaves_room_for_another(self):
        routes = [{"match": "PUT /ok", "resource": "orders"}, {"match": "PUT /chunks", "resource": "stock"}]
        gate = self.start(HttpGate(self.upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"}, routes,
                                   extra={"connections_max": 16}))
        storm = [self.client(gate) for _ in range(14)]
        for client in storm:
            self.put(client, "/ok", 1, b"x")
            self.assertEqual(client.answer().status, 200)
        late, other = self.client(gate), self.client(gate)
        self.put(late, "/ok", 1, b"x")
        answer = late.answer()
        self.assert_problem(answer, 503, "no")
        self.assertEqual(answer["Connection"], b"close")
        self.put(other, "/chunks", 1, b"x")
        self.assertEqual(other.answer().status, 200)
        self.assertEqual(gate.metric("connections_rejected_total", reason="limit"), 1)
        # A connection counts for what it asked for last.
        self.put(storm[0], "/chunks", 1, b"x")
        self.assertEqual(storm[0].answer().status, 200)
        self.put(other, "/ok", 1, b"x")
        self.assertEqual(other.answer().status, 200)
        self.assert_ok(storm[0])

    def test_body_max(self):
        gate = self.make(extra={"body_max": 1000})
        client = self.client(gate)
        self.put(client, "/ok", 1001, b"x" * 1001)
        self.assert_problem(client.answer(), 413, "no")
        self.assertEqual(self.upstream.served, [])
        self.put(client, "/ok", 1000, b"x" * 1000)
        self.assertEqual(client.answer().body, b"ok")

    def test_body_max_of_chunks(self):
        client = self.client(self.make(extra={"body_max": 1000}))
        client.ask("PUT /ok", fields={"Fencing-Token": 5, "Transfer-Encoding": "chunked"})
        chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
        client.send(chunk * 10)
        client.send(chunk + b"0\r\n\r\n")
        self.assert_problem(client.answer(), 413, "unknown")
        eventually(self.upstream.idle)
        self.assertFalse(hasattr(self.upstream, "last"), "what was too large has arrived")


class Semantics(OperationsTest):
    def test_http_1_0(self):
        gate = self.make()
        client = self.client(gate)
        client.send(b"GET /chunks HTTP/1.0\r\n\r\n")
        answer = client.answer()
        self.assertEqual((answer.body, answer["Transfer-Encoding"], answer["Content-Length"]), (b"hi", None, None))
        client = self.client(gate)
        for _ in range(2):
            client.send(b"GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            self.assertEqual(client.reader.body(client.reader.head())["Connection"], b"keep-alive")

    def test_head(self):
        client = self.client(self.make())
        client.ask("HEAD /ok")
        answer = client.answer(method="HEAD")
        self.assertEqual((answer.status, answer["Content-Length"]), (200, b"2"))
        self.assert_ok(client)

    def test_expect_is_answered_once_the_token_is_good(self):
        gate = self.make()
        client = self.client(gate)
        client.ask("PUT /ok", fields={"Fencing-Token": 5, "Content-Length": 2, "Expect": "100-continue"})
        self.assertEqual(client.reader.head().status, 100)
        client.send(b"hi")
        self.assertEqual(client.answer().body, b"ok")
        self.assertEqual(self.upstream.last.body, b"hi")
        client.ask("PUT /ok", fields={"Fencing-Token": 4, "Content-Length": 2, "Expect": "100-continue"})
        self.assert_problem(client.answer(), 412, "no")
        self.assertEqual(client.interim, [])

    def test_all_that_was_asked_in_front_of_a_half_close_is_answered(self):
        client = self.client(self.make())
        client.ask("GET /wait")
        for _ in range(3):
            self.put(client, "/ok", 2, b"hi")
        client.ask("GET /chunks")
        client.end()
        eventually(lambda: self.upstream.served)
        self.upstream.go.set()
        answers = [client.answer() for _ in range(5)]
        self.assertNotIn(None, answers, "closed before all was answered")
        self.assertEqual([one.body for one in answers], [b"ok"] * 4 + [b"hi"])
        self.assertEqual([one["Connection"] for one in answers], [None] * 4 + [b"close"])
        self.assertIsNone(client.answer())

    def test_an_early_answer_ends_the_request(self):
        client = self.client(self.make())
        self.put(client, "/early", 64 * MIB, b"x" * MIB)
        answer = client.answer()
        self.assertEqual((answer.status, answer.body, answer["Connection"]), (422, b"no", b"close"))
        eventually(self.upstream.idle)

    def test_an_upstream_that_dies_in_the_middle_leaves_the_outcome_unknown(self):
        gate = self.make()
        client = self.client(gate)
        self.put(client, "/die", 0)
        self.assert_problem(client.answer(), 502, "unknown")
        self.put(client, "/half", 0)
        with self.assertRaises(Ended) as ended:
            client.answer()
        self.assertEqual(ended.exception.args[0], b"half")
        self.assertEqual(self.upstream.served, ["/die", "/half"])

    def test_an_idle_link_that_has_ended_costs_no_write(self):
        client = self.client(self.make())
        for _ in range(20):
            self.assert_ok(client)
            for sock in list(self.upstream.open):
                sock.shutdown(2)
            eventually(self.upstream.idle)
            self.put(client, "/ok", 0)
            self.assertEqual(client.answer().body, b"ok")

    def test_an_upstream_that_is_away(self):
        upstream = self.start(Scripted())
        gate = self.make(upstream)
        upstream.listener.close()
        eventually(lambda: self.refused(gate))
        client = self.client(gate)
        self.put(client, "/ok", 2, b"hi")
        answer = client.answer()
        self.assert_problem(answer, 503, "no")
        self.assertIsNotNone(answer["Retry-After"])

    def refused(self, gate):
        with Client(gate.address) as client:
            client.ask("GET /ok")
            return client.answer().status == 503

    def test_a_client_that_leaves_in_the_middle_of_its_body(self):
        gate = self.make()
        client = self.client(gate)
        self.put(client, "/ok", 10, b"half")
        client.end()
        self.assertIsNone(client.answer())
        eventually(lambda: gate.metric("connections") == 0 and self.upstream.idle())
        self.assertFalse(hasattr(self.upstream, "last"))


class Draining(OperationsTest):
    def test_an_answer_that_did_not_say_so_is_not_the_last_one(self):
        gate = self.make(process={"drain_timeout": "30s"}, threads=1)
        connection = http.client.HTTPConnection(LOOPBACK, gate.port, timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request("GET", "/slow")
        answer = connection.getresponse()
        self.assertFalse(answer.will_close)
        gate.terminate()
        eventually(lambda: gate.metric("draining") == 1)
        self.upstream.go.set()
        self.assertEqual(answer.read(), b"ok")
        connection.request("GET", "/ok")
        answer = connection.getresponse()
        self.assertEqual((answer.read(), answer.will_close), (b"ok", True))

    def test_what_is_in_flight_is_finished(self):
        gate = self.make(process={"drain_timeout": "10s"}, threads=1)  # when one has heard of it, all have
        busy, idle = self.client(gate), self.client(gate)
        self.assert_ok(idle)
        busy.ask("GET /wait")
        eventually(lambda: "/wait" in self.upstream.served)
        gate.terminate()
        eventually(lambda: gate.http("/readyz")[0] == 503)
        self.assert_ok(self.client(gate))  # others are still finishing
        self.assertIsNone(idle.answer())
        self.assertEqual((gate.http("/livez")[0], gate.metric("draining")), (200, 1))
        self.upstream.go.set()
        answer = busy.answer()
        self.assertEqual((answer.body, answer["Connection"]), (b"ok", b"close"))
        self.assertEqual(gate.wait(20), 0)

    def test_a_second_signal_ends_it_at_once(self):
        gate = self.make(process={"drain_timeout": "60s"})
        client = self.client(gate)
        client.ask("GET /wait")
        eventually(lambda: self.upstream.served)
        gate.terminate()
        eventually(lambda: gate.http("/readyz")[0] == 503)
        self.assertIsNone(gate.child.poll(), "a request is in flight")
        gate.terminate()
        gate.wait()
        self.assertIsNone(client.answer())

    def test_it_ends_at_the_drain_timeout(self):
        gate = self.make(process={"drain_timeout": "1s"})
        client = self.client(gate)
        client.ask("GET /wait")
        eventually(lambda: self.upstream.served)
        gate.terminate()
        self.assertEqual(gate.wait(20), 0)
        self.assertIsNone(client.answer())


class UnixSockets(OperationsTest):
    def test_both_sides(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        upstream = self.start(Scripted(path=os.path.join(folder, "upstream.sock")))
        gate = self.make(upstream, unix=True)
        client = self.client(gate)
        self.put(client, "/ok", 2, b"hi")
        self.assertEqual((client.answer().body, upstream.last.body), (b"ok", b"hi"))
        self.put(client, "/ok", 0)
        self.assertEqual(client.answer()["Fencing-Mark"], b"5")
        gate.terminate()
        client.sock.close()
        self.assertEqual(gate.wait(20), 0)


class Memory(OperationsTest):
    RSS_MAX = 40 * MIB
    ROUTES = [{"match": "POST /held/{key}", "resource": "orders", "redis": ["SET", "k:{key}", "{body}"]}, *OperationsTest.ROUTES]

    def assert_small(self, gate, most=RSS_MAX):
        if "FENCEGATE_SANITIZED" not in os.environ:  # a sanitizer keeps what was freed, and shadows what is used
            self.assertLess(gate.rss_bytes_max(), most)

    def test_large_bodies_that_are_held_have_64_mib_together(self):
        """All but their last byte: who finds no room is told so, the others are carried out, and then there is room again."""
        gate = self.make()
        clients, room = [self.client(gate) for _ in range(128)], 64

        def post(client, number, body):
            with contextlib.suppress(ConnectionError):  # it was refused, and has its answer
                client.ask(f"POST /held/{number}", fields={"Fencing-Token": 5, "Content-Length": MIB}, body=body)

        for number, one in enumerate(clients):
            post(one, number, b"x" * (MIB - 1))
        eventually(lambda: len(select.select([one.sock for one in clients], [], [], 0)[0]) == len(clients) - room)
        self.assert_small(gate, (room + 40) * MIB)
        self.assertIsNone(self.redis.cli.call("GET", "k:0"), "it is not whole")
        done = 0
        for number, one in enumerate(clients):
            with contextlib.suppress(ConnectionError):
                one.send(b"y")
            answer = one.answer()
            if answer.status != 200:
                self.assert_problem(answer, 503, "no")
            done += answer.status == 200
            self.assertEqual(self.redis.cli.call("STRLEN", f"k:{number}"), MIB if answer.status == 200 else 0)
        self.assertEqual(done, room)
        late = self.client(gate)
        post(late, "late", b"z" * MIB)
        self.assertEqual(late.answer().status, 200)

    def test_2_gb_up_and_down(self):
        gate = self.make()
        client = self.client(gate, timeout=120)
        self.put(client, "/up/large", LARGE)
        for _ in range(LARGE // len(PIECE)):
            client.sock.sendall(PIECE)
        self.assertEqual(client.answer().body, b"ok")
        self.assertEqual(self.upstream.sums["large"], expected_sum(LARGE))
        client.ask(f"GET /down/{LARGE}")
        self.assertEqual(client.reader.head()["Content-Length"], b"%d" % LARGE)
        self.assertEqual(sum_of(client.reader, LARGE), expected_sum(LARGE))
        self.assert_ok(client)
        self.assert_small(gate)

    def test_a_slow_reader_is_not_buffered_without_end(self):
        gate = self.make()
        slow, other = self.client(gate), self.client(gate)
        slow.ask(f"GET /down/{256 * MIB}")
        self.assertEqual(slow.reader.head().status, 200)
        for _ in range(200):  # the others are served meanwhile
            self.assert_ok(other)
        self.assert_small(gate)
        self.assertEqual(sum_of(slow.reader, 256 * MIB), expected_sum(256 * MIB))
        self.assert_small(gate)

    def test_requests_sent_ahead_are_bounded(self):
        gate = self.make()
        client = self.client(gate)
        count, head = 20_000, b"GET /ok HTTP/1.1\r\nHost: a.example\r\n\r\n"
        sender = threading.Thread(target=client.send, args=(head * count,))
        sender.start()
        for _ in range(count):
            self.assertEqual(client.answer().body, b"ok")
        sender.join()
        self.assert_small(gate)


if __name__ == "__main__":
    main(at_once=3)
