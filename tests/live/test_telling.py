"""What HTTP gates tell of their requests: an access log, traces, statuses, pools, and what nobody knows."""

from cut_proxy import CutProxy
from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from processes import LOOPBACK, eventually
from redis_server import RedisServer
from resp import Resp

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ROUTES = [{"match": "PUT /orders/{id}", "resource": "order:{id}"}]


class TellingTest(LiveTest):
    def setUp(self):
        self.redis, self.upstream = self.start(RedisServer()), self.start(Upstream())

    def gate(self, **extra):
        return self.start(HttpGate(self.upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"}, ROUTES, extra=extra))

    @staticmethod
    def lines(gate, message):
        return [line for line in gate.log_lines() if line["msg"] == message]


class AccessLog(TellingTest):
    def test_a_line_for_each_request(self):
        gate = self.gate(access_log=1)
        self.assertEqual(gate.request("PUT", "/orders/7?secret=hush", b"body", token=34, traceparent=TRACE)[0], 200)
        self.assertEqual(gate.request("PUT", "/orders/7", b"body", token=33)[0], 412)
        self.assertEqual(gate.request("GET", "/orders/7", X_Status="404")[0], 404)
        lines = eventually(lambda: len(self.lines(gate, "request")) == 3 and self.lines(gate, "request"))
        told = [{key: one.get(key) for key in ("gate", "method", "path", "status", "resource", "token", "traceparent")} for one in lines]
        common = {"gate": "api", "path": "/orders/7", "traceparent": None}
        self.assertEqual(told, [
            common | {"method": "PUT", "status": 200, "resource": "order:7", "token": 34, "traceparent": TRACE},
            common | {"method": "PUT", "status": 412, "resource": "order:7", "token": 33},
            common | {"method": "GET", "status": 404, "resource": None, "token": None},
        ])
        self.assertTrue(all(one["microseconds"] > 0 and one["client"].startswith(LOOPBACK) for one in lines))
        self.assertNotIn("hush", gate.log())

    def test_a_sample(self):
        gate = self.gate(access_log=10)
        for _ in range(40):
            self.assertEqual(gate.request("GET", "/x")[0], 200)
        # Four, and one more of each thread that began to count.
        self.assertIn(len(self.lines(gate, "request")), range(4, 7))

    def test_none_by_default(self):
        gate = self.gate()
        self.assertEqual(gate.request("GET", "/x")[0], 200)
        self.assertEqual(self.lines(gate, "request"), [])


class Traces(TellingTest):
    def test_they_go_on_unchanged_and_name_a_rejection(self):
        gate = self.gate()
        self.assertEqual(gate.request("PUT", "/orders/7", b"", token=34, traceparent=TRACE, tracestate="a=b,c=d")[0], 200)
        fields = self.upstream.seen("PUT")[-1][2]
        self.assertEqual((fields["traceparent"], fields["tracestate"]), (TRACE, "a=b,c=d"))
        self.assertEqual(gate.request("PUT", "/orders/7", b"", token=33, traceparent=TRACE)[0], 412)
        (line,) = eventually(lambda: self.lines(gate, "write rejected"))
        self.assertEqual((line["traceparent"], line["resource"]), (TRACE, "order:7"))
        self.assertIn(f'"traceparent":"{TRACE}"', gate.http("/api/v1/status")[1])

    def test_a_malformed_one_goes_on_and_is_not_logged(self):
        gate = self.gate(access_log=1)
        self.assertEqual(gate.request("PUT", "/orders/7", b"", token=34, traceparent="00-hush")[0], 200)
        self.assertEqual(self.upstream.seen("PUT")[-1][2]["traceparent"], "00-hush")
        self.assertEqual(gate.request("PUT", "/orders/7", b"", token=33, traceparent="00-hush")[0], 412)
        eventually(lambda: self.lines(gate, "write rejected") and len(self.lines(gate, "request")) == 2)
        self.assertNotIn("hush", gate.log())


class Figures(TellingTest):
    def test_statuses_by_class(self):
        gate = self.gate()
        for status in ("200", "204", "301", "404", "500"):
            gate.request("GET", "/x", X_Status=status)
        gate.request("PUT", "/orders/7", b"")
        counted = {name: gate.metric("http_responses_total", **{"class": name}) for name in ("2xx", "3xx", "4xx", "5xx")}
        self.assertEqual(counted, {"2xx": 2, "3xx": 1, "4xx": 2, "5xx": 1})

    def test_a_store_by_its_name(self):
        proxy = self.start(CutProxy(self.redis.port))
        gate = self.start(HttpGate(self.upstream, {"cache": f"redis://{LOOPBACK}:{proxy.port}"}, ROUTES))
        self.assertEqual(gate.metric("store_up", store="cache"), 1)
        proxy.refuse = True
        proxy.cut_all()
        eventually(lambda: gate.metric("store_up", store="cache") == 0)

    def test_an_unknown_outcome_of_redis(self):
        proxy = self.start(CutProxy(self.redis.port))
        gate = self.start(Gate(proxy))
        client = self.start(Resp(gate.address, name="fence:orders=34"))
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(gate.metric("unknown_outcomes_total"), 0)
        proxy.freeze()
        writes = gate.metric("requests_total", **{"class": "write"})
        client.send_command("SET", "k", "in flight")
        eventually(lambda: gate.metric("requests_total", **{"class": "write"}) > writes)
        proxy.cut_all()
        eventually(lambda: gate.metric("unknown_outcomes_total") == 1)


if __name__ == "__main__":
    main(at_once=2)
