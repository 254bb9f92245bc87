"""What hostile clients and hostile upstreams send (tests/corpus), through a gate that lets everything pass."""

import itertools

from http_gate import HttpGate
from http_raw import Case, Client, Ended, RawUpstream, Recorder, read_corpus
from live_test import LiveTest, main
from postgres import PostgresServer
from processes import LOOPBACK, eventually
from redis_server import RedisServer

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"


class CorpusTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())

    def gate(self, upstream):
        routes = [{"match": "PUT /fenced/{id}", "resource": "order:{id}"}]
        stores = {"cache": f"redis://{LOOPBACK}:{self.redis.port}"}
        return self.start(HttpGate(upstream, stores, routes, extra={"unmatched": "pass"}))


class Requests(CorpusTest):
    def test_each_is_answered_as_written_down_and_nothing_else_reaches_the_upstream(self):
        cases = read_corpus("http_requests.txt")
        self.assertGreaterEqual(len(cases), 150)
        upstream = self.start(Recorder())
        gate = self.gate(upstream)
        for case in cases:
            with self.subTest(case.name):
                upstream.whole.clear()
                upstream.broken.clear()
                self.answers(gate, case)
                upstream.settle()
                self.assertEqual(upstream.errors, [])
                passed = [line for line in case.expected if line.startswith(b"pass ")]
                self.assertEqual([self.line_of(one) for one in upstream.whole], passed)
                # Of one whose body was broken or did not end, the upstream has seen a beginning, and no end.
                self.assertLessEqual(len(upstream.broken), len(case.expected) - len(passed))
        gate.assert_running()

    def answers(self, gate, case):
        with Client(gate.address) as client:
            client.send(case.bytes)
            for line in case.expected:
                if line == b"wait":
                    continue
                answer = client.answer(method=self.method_of(line))
                self.assertIsNotNone(answer, "closed without an answer")
                self.assertEqual(answer.status, 200 if line.startswith(b"pass ") else int(line))
                if not line.startswith(b"pass "):
                    self.assertEqual(answer["Connection"], b"close")
                    self.assertIsNone(client.answer(), "answered once more, behind an error")
                    return
            client.end()
            self.assertIsNone(client.answer(), "there is one answer more than requests")

    def test_what_hides_a_token_or_says_two_things_of_it_is_refused(self):
        upstream = self.start(Recorder())
        gate = self.gate(upstream)
        names = ("Fencing-Token", "fencing-token", "Fencing_Token", "X-Fencing-Token", "x_fencing_token")
        pairs = [(f"{a}: 1", f"{b}: {value}") for a, b in itertools.product(names, names) for value in (1, 2)
                 if value == 2 or a[:1].lower() == b[:1].lower()]  # the two fields may say the same
        hidden = [("Fencing-Token: 1", f"Connection: {name}") for name in names]
        values = [(f"Fencing-Token: {text}",) for text in ("", "01", "+1", "1, 1", "1;a", '"1"', "9223372036854775808",
                                                           "order:5=1,order:5=2", "order:5 =1", "order:5=1,")]
        broken = [("Fencing-Token : 1",), ("Fencing-Token: 1", " 2"), ("Fencing-Token\t: 1",), ("Fencing-Token:\0001",)]
        for fields in (*pairs, *hidden, *values, *broken):
            with self.subTest(fields), Client(gate.address) as client:
                client.send("\r\n".join(("PUT /fenced/5 HTTP/1.1", "Host: a.example", *fields, "", "")).encode())
                self.assertEqual(client.answer().status, 400)
        with Client(gate.address) as client:  # but this is a token
            client.ask("PUT /fenced/5", {"x_fencing_token": 1, "Fencing-Token": "order:5=1"})
            self.assertEqual(client.answer().status, 200)
        self.assertEqual(len(upstream.whole), 1)
        self.assertEqual((upstream.broken, upstream.errors), ([], []))

    @staticmethod
    def method_of(line):
        return line.split(b" ")[1].decode() if line.startswith(b"pass ") else "GET"

    @staticmethod
    def line_of(message):
        method, target, _ = message.start.split(b" ")
        return b"pass " + method + b" " + target + (b" " + message.body if message.body else b"")


class Responses(CorpusTest):
    """The first request gets what the case sends, those behind it get what is good."""

    tokens = itertools.count(1)

    def setUp(self):
        self.case, self.closes, self.served = None, True, []
        self.upstream = self.start(RawUpstream(self.serve))
        self.http_gate = self.gate(self.upstream)

    def serve(self, reader, number):
        while (head := reader.head()) is not None:
            reader.body(head)
            self.served.append((head.start.split(b" ")[1], number))
            if not head.start.split(b" ")[1].startswith(b"/case"):
                reader.sock.sendall(GOOD)
                continue
            reader.sock.sendall(self.case.bytes)
            if self.closes:
                return

    def cases(self):
        for case in read_corpus("http_responses.txt"):
            with self.subTest(case.name):
                self.case = case
                self.served.clear()
                yield case
                self.assertEqual(self.upstream.errors, [])

    def test_each_is_relayed_as_written_down_and_poisons_nothing(self):
        count = 0
        for case in self.cases():
            count += 1
            with Client(self.http_gate.address) as client:
                client.ask(f"{case.method} /case")
                if self.check_answer(client, case):
                    eventually(self.upstream.idle)  # it closes behind each answer; a request that met that would get 502
                    self.check_next(client)
        self.assertGreaterEqual(count, 40)
        self.http_gate.assert_running()

    def test_a_whole_answer_leaves_the_connection_to_the_next_request(self):
        self.closes, reused = False, 0
        for case in self.cases():
            if b" keep" not in case.expected[-1]:
                continue
            with Client(self.http_gate.address) as client:
                client.ask(f"{case.method} /case")
                self.assertTrue(self.check_answer(client, case))
                self.check_next(client)
            self.assertEqual(self.served, [(b"/case", self.served[0][1]), (b"/next", self.served[0][1])])
            reused += 1
        self.assertGreaterEqual(reused, 5)

    def check_answer(self, client, case):
        """Whether the client's connection goes on."""
        *interim, last = case.expected
        status, _, rest = last.partition(b" ")
        how, _, body = rest.partition(b" ")
        try:
            answer = client.answer(method=case.method)
        except Ended as ended:
            self.assertEqual((how, ended.args[0]), (b"cut", body))
            return False
        self.assertNotEqual(how, b"cut", "taken for whole")
        self.assertIsNotNone(answer, "closed without an answer")
        self.assertEqual((answer.status, answer.body if last != b"502" else b""), (int(status), body))
        # The gate has said 100 itself, if anybody asked for it.
        self.assertEqual(client.interim, [int(one) for one in interim if one != b"100"])
        if last == b"502":
            self.assertEqual(answer["Content-Type"], b"application/problem+json")
        return answer["Connection"] != b"close"

    def check_next(self, client, line="GET /next", fields=None):
        client.ask(line, fields)
        answer = client.answer()
        self.assertIsNotNone(answer, "closed instead of an answer to the next request")
        self.assertEqual((answer.status, answer.body), (200, b"good"))
        client.end()
        self.assertIsNone(client.answer(), "there is one answer more than requests")

    def test_trailers_go_on_to_who_wants_them_and_to_nobody_else(self):
        self.closes, count = False, 0
        for case in self.cases():
            if "trailer" not in case.name or b" keep" not in case.expected[-1]:
                continue
            count += 1
            for wanted in (True, False):
                with Client(self.http_gate.address) as client:
                    client.reader.wants_trailers = wanted
                    te = {"TE": "trailers", "Connection": "TE"} if wanted else {}
                    client.ask("PUT /case", {"Fencing-Token": next(self.tokens), "Content-Length": 0} | te)
                    answer = client.answer()
                    self.assertEqual(answer.trailers, case.trailers if wanted else b"")
                    announced = wanted and b"\nTrailer" in case.bytes.partition(b"\r\n\r\n")[0]
                    self.assertEqual(answer["Trailer"] is not None, announced)
                    self.check_next(client)
        self.assertGreaterEqual(count, 4)

    def test_what_comes_behind_an_answer_is_never_the_next_one(self):
        """However it meets the next request: the upstream sends it when that request has reached the gate."""
        smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
        for behind in (smuggled, smuggled[:1], b"\r\n", b"0\r\n\r\n"):
            self.case, self.closes = Case("behind"), False
            self.case.bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ncase"
            with Client(self.http_gate.address) as client:
                client.ask("GET /case")
                self.assertEqual(client.answer().body, b"case")
                self.http_gate.stop_process()  # both are there when it goes on
                try:
                    client.ask("GET /next")
                    with self.upstream.lock:
                        (link,) = self.upstream.open
                    link.sendall(behind)
                finally:
                    self.http_gate.continue_process()
                self.assertEqual(client.answer().body, b"good")
            eventually(self.upstream.idle)


class HeldResponses(Responses):
    """The same behind a held route: whatever the upstream does, nothing goes on holding the mark."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.user("gate")
        cls.server.install(gate_users=["gate"])

    def gate(self, upstream):
        stores = {"ledger": f"postgres://gate@{LOOPBACK}:{self.server.port}/postgres"}
        routes = [{"match": "* /{path...}", "resource": "orders"}]
        return self.start(HttpGate(upstream, stores, routes))

    def test_each_is_relayed_as_written_down_and_poisons_nothing(self):
        for case in self.cases():
            if case.method != "GET":
                continue
            with Client(self.http_gate.address) as client:
                client.ask("PUT /case", {"Fencing-Token": next(self.tokens)})
                if self.check_answer(client, case):
                    eventually(self.upstream.idle)
                    self.check_next(client, "PUT /next", {"Fencing-Token": next(self.tokens)})
            eventually(self.nobody_holds)
        self.assertGreater(next(self.tokens), 60)

    def nobody_holds(self):
        return not self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")


if __name__ == "__main__":
    main()
