"""What real clients of HTTP make of a gate: urllib of Python, curl, fetch of Node.js."""

import json
import os
import subprocess
import tempfile
import urllib.error
import urllib.request

from http_gate import HttpGate, Upstream
from http_raw import RawUpstream
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE
from redis_server import RedisServer

MIB = 1 << 20
CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")
TRAILERS = os.path.join(CLIENTS, "http_trailers.mjs")
FETCH = os.path.join(CLIENTS, "http_fetch.mjs")


class ClientTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())
        cls.upstream = cls.enterClassContext(Upstream())
        stores = {"cache": f"redis://{LOOPBACK}:{cls.redis.port}"}
        routes = [{"match": "PUT,POST /orders/{id}", "resource": "order:{id}"},
                  {"match": "PUT /kv/{key}", "resource": "kv", "redis": ["SET", "{key}", "{body}"]}]
        cls.gate = cls.enterClassContext(HttpGate(cls.upstream, stores, routes))
        cls.url = f"http://{LOOPBACK}:{cls.gate.port}"

    def setUp(self):
        with self.upstream.lock:
            self.upstream.requests.clear()

    def bodies(self):
        return [len(body) for *_, body in self.upstream.seen()]


class Urllib(ClientTest):
    def ask(self, method, path, body=None, token=None):
        headers = {} if token is None else {"Fencing-Token": str(token)}
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.headers["Fencing-Mark"], answer.read()

    def test_writes_reads_and_errors(self):
        status, mark, body = self.ask("PUT", "/orders/7", b"x" * MIB, token=34)
        self.assertEqual((status, mark, json.loads(body)["bytes"]), (200, "34", MIB))
        self.assertEqual(self.ask("GET", "/orders/7")[:2], (200, None))
        for token, status in ((33, 412), (None, 428), ("x", 400)):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.ask("POST", "/orders/7", b"stale", token=token)
            with refused.exception as answer:
                self.assertEqual((answer.code, answer.headers["Content-Type"]), (status, "application/problem+json"))
                self.assertEqual(json.load(answer)["applied"], "no")
        self.assertEqual(self.bodies(), [MIB, 0])

    def test_a_body_of_unknown_length_goes_in_chunks(self):
        status, _, body = self.ask("PUT", "/orders/iterated", iter([b"a" * 1000] * 1000), token=34)
        self.assertEqual((status, json.loads(body)["bytes"]), (200, 1_000_000))

    def test_an_atomic_route(self):
        self.assertEqual(json.loads(self.ask("PUT", "/kv/urllib", b"value", token=1)[2]), {"reply": "OK"})
        self.assertEqual(self.redis.cli.call("GET", "urllib"), b"value")


class Curl(ClientTest):
    def curl(self, *arguments):
        """[(status, body)] of each URL, on one connection; curl ends with status 0."""
        with tempfile.TemporaryDirectory() as folder:
            large = os.path.join(folder, "large")
            with open(large, "wb") as file:
                file.write(bytes(range(256)) * (3 * MIB // 256))
            said = subprocess.run(["curl", "-sS", "-w", r"\n%{http_code} %{num_connects}\n", *arguments], cwd=folder,
                                  capture_output=True, timeout=PATIENCE, check=True)
        return said.stdout.decode().splitlines()

    def test_an_upload_in_chunks_that_waits_for_100_continue(self):
        said = self.curl("-T", "large", "-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", "-H",
                         "Fencing-Token: 34", self.url + "/orders/chunks")
        self.assertEqual((json.loads(said[0])["bytes"], said[1]), (3 * MIB, "200 1"))
        self.assertEqual(self.upstream.seen()[0][3], bytes(range(256)) * (3 * MIB // 256))

    def test_a_stale_upload_is_refused_and_curl_sees_why(self):
        self.gate.request("PUT", "/orders/stale", b"new", token=35)
        for expect in ("Expect: 100-continue", "Expect:"):
            said = self.curl("-T", "large", "-H", expect, "-H", "Fencing-Token: 34", self.url + "/orders/stale")
            self.assertEqual((json.loads(said[0])["type"], said[1]), ("urn:fencegate:stale", "412 1"))
        self.assertEqual(self.bodies(), [3])

    def test_a_connection_is_used_again_behind_a_refusal(self):
        url = self.url + "/orders/7"
        said = self.curl("-X", "PUT", "-d", "x", url, "-H", "Fencing-Token: x", url, url)
        self.assertEqual(said[1::2], ["400 1", "400 0", "400 0"])

    def test_an_offer_of_http_2_is_not_taken_up(self):
        said = self.curl("--http2", "-X", "PUT", "-d", "x", "-H", "Fencing-Token: 34", self.url + "/orders/http2")
        self.assertEqual(said[1], "200 1")
        self.assertEqual(self.bodies(), [1])

    def test_http_1_0_and_head(self):
        self.assertEqual(self.curl("-0", self.url + "/a")[1], "200 1")
        self.assertEqual(self.curl("-I", self.url + "/a")[-1], "200 1")


class Fetch(ClientTest):
    def test_writes_reads_and_errors(self):
        ran = subprocess.run(["node", FETCH, str(self.gate.port)], capture_output=True, timeout=PATIENCE, check=True)
        first, stale, missing, large, *reads = json.loads(ran.stdout)
        self.assertEqual(first[:3], [200, "34", "application/json"])
        self.assertEqual(json.loads(first[3]), {"method": "PUT", "path": "/orders/node-7", "bytes": 4})
        self.assertEqual(stale[:3], [412, "34", "application/problem+json"])
        self.assertEqual(missing[0], 428)
        self.assertEqual(large[:2] + [json.loads(large[3])["bytes"]], [200, "35", 64 * 65536])
        paths = {json.loads(one[3])["path"] for one in reads}
        self.assertEqual(paths, {f"/anything?{number}" for number in range(20)})
        self.assertEqual(len(self.upstream.seen("PUT")), 2)


class Trailers(LiveTest):
    """In front of an upstream that sends some with each answer, good ones and others."""

    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())

    def setUp(self):
        self.heads = []
        self.upstream = self.start(RawUpstream(self.serve))
        stores = {"cache": f"redis://{LOOPBACK}:{self.redis.port}"}
        routes = [{"match": "PUT /orders/{id}", "resource": "order:{id}"}]
        self.gate = self.start(HttpGate(self.upstream, stores, routes))

    def serve(self, reader, _):
        reader.wants_trailers = True  # would take them, from a gate that sent them on
        while (head := reader.head()) is not None:
            self.heads.append(head)
            self.assertEqual(reader.body(head).trailers, b"")
            reader.sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Set-Cookie\r\n\r\n"
                                b"2\r\nhi\r\n0\r\nX-Sum: 7\r\nFencing-Mark: 99\r\nSet-Cookie: a=b\r\n\r\n")

    def tearDown(self):
        self.assertEqual(self.upstream.errors, [])

    def test_node(self):
        ran = subprocess.run(["node", TRAILERS, str(self.gate.port)], capture_output=True, timeout=PATIENCE, check=True)
        wanted, unwanted, sent, late = json.loads(ran.stdout)
        self.assertEqual(wanted, [200, "X-Sum", "34", "hi", ["X-Sum", "7"]])
        self.assertEqual(unwanted, [200, None, "34", "hi", []])
        # Trailers of a request, and a token that is one.
        self.assertEqual(sent, [200, "X-Sum", "34", "hi", ["X-Sum", "7"]])
        self.assertEqual(late[0], 428)
        self.assertEqual([(head["TE"], head["Connection"], head["Trailer"]) for head in self.heads],
                         [(b"trailers", b"TE", None), (None, None, None), (b"trailers", b"TE", None)])

    def test_curl(self):
        said = subprocess.run(["curl", "-sS", "-D", "-", "-H", "TE: trailers", f"http://{LOOPBACK}:{self.gate.port}/a"],
                              capture_output=True, timeout=PATIENCE, check=True).stdout.replace(b"\r", b"")
        self.assertIn(b"X-Sum: 7\n", said)
        self.assertNotIn(b"99", said)
        self.assertNotIn(b"Set-Cookie", said)


if __name__ == "__main__":
    main()
