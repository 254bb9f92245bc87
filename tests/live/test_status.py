"""The status of a process at its admin listener: as JSON, as server-sent events, and the page's own rules."""

import contextlib
import http.client
import json
import re

import documents
from cut_proxy import CutProxy
from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, connect, eventually
from redis_server import RedisServer
from resp import Resp, RespError
from test_lease_api import ApiTest

EVENTS = "/api/v1/status/events"
ATTACK = "<script>alert(1)</script>"


def status_of(gate):
    code, text = gate.http("/api/v1/status")
    assert code == 200, (code, text)
    return json.loads(text)


def only(all_of_them):
    (one,) = all_of_them
    return one


class Watcher:
    """Somebody who listens to the events."""

    def __init__(self, gate):
        self.talk = http.client.HTTPConnection(LOOPBACK, gate.admin_port, timeout=PATIENCE)

    def __enter__(self):
        self.talk.request("GET", EVENTS)
        self.answer = self.talk.getresponse()
        return self

    def __exit__(self, *_):
        self.answer.close()
        self.talk.close()

    def event(self):
        """The next one; None when there are no more."""
        lines = iter(self.answer.readline, b"\n")
        fields = {}
        for line in lines:
            if not line:
                return None
            name, _, value = line.decode().rstrip("\n").partition(": ")
            fields[name] = value
        assert set(fields) == {"event", "data"} and fields["event"] == "status", fields
        return json.loads(fields["data"])


class StatusTest(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        self.proxy = self.start(CutProxy(self.redis.port))

    def gate(self, **more):
        return self.start(Gate(self.proxy, **more))

    def client(self, gate, tag):
        return self.start(Resp(gate.address, name=f"fence:{tag}"))

    def supersede(self, gate, resource="orders"):
        """A holder writes, another takes over, and the first one tries again."""
        old = self.client(gate, f"{resource}=33")
        self.assertEqual(old.call("SET", "k", "old"), b"OK")
        new = self.client(gate, f"{resource}=34")
        self.assertEqual(new.call("SET", "k", "new"), b"OK")
        self.assert_refused(old.call("SET", "k", "late"))
        return old, new

    def assert_refused(self, answer, word="FENCED "):
        self.assertIsInstance(answer, RespError)
        self.assertTrue(str(answer).startswith(word), answer)


    def attacked(self):
        """A gate that has rejected what is markup."""
        stores = {"cache": f"redis://{LOOPBACK}:{self.redis.port}"}
        gate = self.start(HttpGate(self.start(Upstream()), stores, [{"match": "POST /x", "resource": "orders"}]))
        self.assertEqual(gate.request("POST", "/x", b"", token=ATTACK)[0], 400)
        return gate


class Document(StatusTest):
    def test_the_command_of_the_page(self):
        gate = self.gate()
        self.supersede(gate)
        line = documents.command("docs/operations.md", "curl -s http://127.0.0.1:9180/api/v1/status")
        told = json.loads(documents.run_shell(line.replace("9180", str(gate.admin_port)), gate.folder))
        page = documents.text("docs/operations.md")
        self.assertEqual([name for name in told if f"`{name}`" not in page and name != "complete"], [])
        self.assertEqual(only(told["rejections"])["resource"], "orders")

    def test_a_stale_writer_that_was_stopped(self):
        gate = self.gate()
        self.supersede(gate)
        status = status_of(gate)
        self.assertEqual((status["state"], status["draining"], status["complete"]), ("ready", False, True))
        one = only(status["rejections"])
        told = {"gate": "cache", "resource": "orders", "token": "33", "mark": "34", "reason": "stale", "code": "FENCED",
                "command": "set", "count": 1, "let_through": False}
        self.assertEqual(told, {key: one[key] for key in told})
        self.assertRegex(one["client"], rf"^{LOOPBACK}:\d+$")
        self.assertRegex(one["at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        resource = only(status["resources"])
        self.assertEqual((resource["resource"], resource["mark"], resource["rejected_token"], resource["rejections"]),
                         ("orders", "34", "33", 1))
        self.assertFalse(resource["first_seen"])
        of_gate = only(status["gates"])
        told = {"name": "cache", "protocol": "redis", "mode": "enforce", "listen": f"{LOOPBACK}:{gate.port}", "stale": 1,
                "marks_raised": 2, "admitted": 4, "rejected": 1, "connections": 2}
        self.assertEqual(told, {key: of_gate[key] for key in told})

    def test_monitor_lets_through_and_says_so(self):
        gate = self.gate(policy={"mode": "monitor"})
        new, old = self.client(gate, "orders=34"), self.client(gate, "orders=33")
        self.assertEqual([client.call("SET", "k", "v") for client in (new, old)], [b"OK", b"OK"])
        eventually(lambda: status_of(gate)["rejections"])
        status = status_of(gate)
        self.assertTrue(only(status["rejections"])["let_through"])
        self.assertEqual(only(status["gates"])["mode"], "monitor")

    def test_a_backend_that_fails_is_named_with_its_reason(self):
        gate = self.gate()
        backend = only(only(status_of(gate)["gates"])["backends"])
        self.assertEqual((backend["state"], backend["problem"]), ("up", ""))
        self.assertEqual(backend["address"], f"{LOOPBACK}:{self.proxy.port}")
        self.proxy.refuse = True
        self.proxy.cut_all()
        eventually(lambda: only(only(status_of(gate)["gates"])["backends"])["state"] == "down")
        self.assertNotEqual(only(only(status_of(gate)["gates"])["backends"])["problem"], "")
        self.proxy.refuse = False
        eventually(lambda: only(only(status_of(gate)["gates"])["backends"])["state"] == "up")

    def test_traffic_of_the_last_seconds(self):
        gate = self.gate()
        client = self.client(gate, "orders=33")
        for _ in range(10):
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
        # Its mark was raised, too.
        eventually(lambda: sum(only(status_of(gate)["gates"])["admitted_each_second"]) == 11)

    def test_no_secret_is_told(self):
        self.redis.cli.call("ACL", "SETUSER", "gatekeeper", "on", ">hush-hush", "~*", "&*", "+@all")
        gate = self.gate(user="gatekeeper", password="hush-hush")
        self.supersede(gate)
        for page in ("/api/v1/status", "/"):
            text = gate.http(page)[1]
            self.assertIn("orders", text)
            for secret in ("hush", "gatekeeper"):
                self.assertNotIn(secret, text)

    def test_a_storm_keeps_what_came_before_it(self):
        gate = self.gate()
        self.supersede(gate, "stock")
        old, _ = self.supersede(gate)
        for _ in range(500):
            self.assert_refused(old.call("SET", "k", "late"))
        told = [("orders", 501), ("stock", 1)]
        eventually(lambda: [(one["resource"], one["count"]) for one in status_of(gate)["rejections"]] == told)

    def test_what_is_remembered_is_bounded(self):
        gate = self.gate()
        for number in range(1010):
            with Resp(gate.address, name=f"fence:r{number}=1") as client:
                self.assertEqual(client.call("SET", "k", "v"), b"OK")
        names = [one["resource"] for one in status_of(gate)["resources"]]
        self.assertEqual(len(names), 1000)
        self.assertEqual((names[0], names[-1]), ("r1009", "r10"))


class Leases(ApiTest):
    def test_leases_with_holder_and_without_their_ids(self):
        lease = self.taken("orders", ttl="30s", holder=ATTACK)
        talk = http.client.HTTPConnection(LOOPBACK, self.sidecar.admin, timeout=PATIENCE)
        pages = {}
        for page in ("/api/v1/status", "/"):
            talk.request("GET", page)
            pages[page] = talk.getresponse().read().decode()
        talk.close()
        one = only(json.loads(pages["/api/v1/status"])["leases"])
        self.assertEqual((one["resources"], one["state"], one["holder"]), (["orders"], "held", ATTACK))
        self.assertEqual(one["tokens"], {"orders": str(lease["tokens"]["orders"])})
        self.assertGreater(one["act_for_ms"], 0)
        self.assertNotIn(ATTACK, pages["/"])
        for text in pages.values():
            self.assertNotIn(lease["id"], text)


class Page(StatusTest):
    def get(self, gate, page="/", **fields):
        talk = http.client.HTTPConnection(LOOPBACK, gate.admin_port, timeout=PATIENCE)
        try:
            talk.request("GET", page, headers=fields)
            answer = talk.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            talk.close()

    def test_it_runs_nothing_but_its_own_script(self):
        code, fields, text = self.get(self.gate())
        self.assertEqual((code, fields["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = dict(part.strip().split(" ", 1) for part in fields["Content-Security-Policy"].split(";"))
        self.assertEqual(policy["default-src"], "'none'")
        nonce = re.fullmatch(r"'nonce-([0-9a-f]{32})'", policy["script-src"])[1]
        self.assertEqual(set(re.findall(r"<script[^>]*nonce=\"([^\"]*)\"", text)), {nonce})
        self.assertEqual(text.count("<script"), text.count(f'nonce="{nonce}"') - text.count("<style"))
        self.assertIsNone(re.search(r"\son[a-z]+=|javascript:|https?://(?!www\.w3\.org/2000/svg)", text))
        told = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
                "Cross-Origin-Resource-Policy": "same-origin"}
        self.assertEqual(told, {name: fields[name] for name in told})

    def test_names_from_clients_are_no_markup(self):
        gate = self.attacked()
        self.assertIn(ATTACK, json.dumps(status_of(gate)["rejections"]))
        _, _, text = self.get(gate)
        self.assertIn("\\u003cscript>alert", text)
        self.assertNotIn("<script>alert", text)

    def test_a_page_of_elsewhere_learns_nothing(self):
        gate = self.gate()
        for page in ("/", "/api/v1/status", EVENTS):
            code, fields, text = self.get(gate, page, Host=f"rebound.example:{gate.admin_port}")
            self.assertEqual(code, 403, page)
            self.assertNotIn("cache", text)
        code, fields, _ = self.get(gate, "/api/v1/status", Origin="http://elsewhere.example")
        self.assertEqual(code, 200)
        self.assertNotIn("Access-Control-Allow-Origin", fields)


class Events(StatusTest):
    def test_first_all_then_what_changes(self):
        gate = self.gate()
        self.supersede(gate, "stock")
        with Watcher(gate) as watcher:
            self.assertEqual(watcher.answer.headers["Content-Type"], "text/event-stream")
            first = watcher.event()
            self.assertTrue(first["complete"])
            self.assertEqual(only(first["rejections"])["resource"], "stock")
            self.supersede(gate)
            event = first
            while not event["rejections"] or event["complete"]:
                event = watcher.event()
            self.assertEqual([one["resource"] for one in event["rejections"]], ["orders"])
            self.assertFalse(event["complete"])
            self.assertEqual(only(event["gates"])["stale"], 2)

    def test_watchers_are_limited_and_probes_are_not(self):
        gate = self.gate()
        with contextlib.ExitStack() as stack:
            watchers = [stack.enter_context(Watcher(gate)) for _ in range(4)]
            self.assertEqual([one.answer.status for one in watchers], [200] * 4)
            with Watcher(gate) as one_more:
                self.assertEqual(one_more.answer.status, 503)
            for _ in range(20):
                stack.enter_context(connect(gate.admin_address))  # who say nothing
            self.assertEqual(gate.http("/livez")[0], 200)
            self.assertEqual(gate.http("/readyz")[0], 200)
            self.assertTrue(all(one.event() and one.event() for one in watchers), "nobody displaces them")
        eventually(lambda: gate.http("/livez")[0] == 200)

        def watches():
            with Watcher(gate) as watcher:
                return watcher.answer.status == 200

        eventually(watches)

    def test_a_process_that_ends_ends_its_watchers(self):
        gate = self.gate(process={"drain_timeout": "15s"})
        self.client(gate, "orders=33")  # for which it waits a little
        with Watcher(gate) as watcher:
            watcher.event()
            gate.terminate()
            last = None
            while event := watcher.event():
                last = event
            self.assertTrue(last["draining"])
            self.assertEqual(last["state"], "draining")
            self.assertEqual(gate.wait(), 0)


if __name__ == "__main__":
    main(at_once=2)
