"""The story over HTTP, played with curl: a late request that a statement, a command or a service behind the gate would
carry out, with the fence and with check-then-forward."""

import json
import sys
from pathlib import Path

import database
from stage import Process, Trouble, eventually, free_port, unread_bytes
from story import Story, quoted

MORE = """\
    store: ledger
    routes:
      - {{ match: "PUT /orders/{{id:int}}", resource: "order:{{id}}",
          sql: "UPDATE http_orders SET by = $2 WHERE id = $1::int", params: ["{{id}}", "{{body}}"] }}
      - {{ match: "GET /orders/{{id:int}}", resource: "order:{{id}}",
          sql: "SELECT by FROM http_orders WHERE id = $1::int", params: ["{{id}}"] }}
      - {{ match: "PUT /carts/{{id}}", resource: "cart:{{id}}", store: cache,
          redis: [SET, "http:cart:{{id}}", "{{body}}"] }}
      - {{ match: "GET /carts/{{id}}", resource: "cart:{{id}}", store: cache, redis: [GET, "http:cart:{{id}}"] }}
      - {{ match: "PUT /files/{{id}}", resource: "file:{{id}}", guarantee: held }}
stores:
  ledger: {{ url: "postgres://fencegate@127.0.0.1:{postgres}/{database}" }}
  cache: {{ url: "redis://127.0.0.1:{redis}" }}
"""


class Curl:
    """One request, by the program that everybody has."""

    count = 0

    def __init__(self, stage, port, method, target, token=None, body=None):
        Curl.count += 1
        # -q: whatever the user's own .curlrc says. The last line is for us.
        command = ["curl", "-q", "-sS", "--noproxy", "*", "--max-time", "15", "-X", method, "-w",
                   r"\n%{http_code} %{content_type} %header{fencing-mark}", f"http://127.0.0.1:{port}{target}"]
        command += ["-H", f"Fencing-Token: {token}"] if token is not None else []
        command += ["--data-binary", body] if body is not None else []
        self.process = stage.enter_context(Process(f"curl {Curl.count}", command, stage.folder))
        said = f" {quoted(body)}" if body is not None else ""
        self.shown = f"{method} {target}{said}" + (f" Fencing-Token: {token}" if token is not None else "")

    def answer(self):
        """`200, Fencing-Mark: 33, {"reply":"OK"}`; of a problem document its detail; of a read its body alone."""
        eventually(f"curl's {self.shown}", lambda: self.process.child.poll() is not None)
        output = self.process.log.read_text(errors="replace")
        if self.process.child.returncode != 0:
            raise Trouble(f"{self.shown}: {output.strip()}")
        body, _, last = output.rpartition("\n")
        status, kind, mark = last.split(" ", 2)
        if status == "200" and self.shown.startswith("GET"):
            return body
        if kind == "application/problem+json":
            body = f"problem+json: {json.loads(body)['detail']}"
        return ", ".join(filter(None, (status, mark and f"Fencing-Mark: {mark}", body)))


def is_stale(resource):
    wanted = f"412, Fencing-Mark: 34, problem+json: token 33 of {resource} is below mark 34; not applied"
    return lambda answer: answer.startswith(wanted)


def database_is_up(sidecar):
    """It is ready when Redis has answered, too; connections to PostgreSQL come when they come."""
    return any('"msg":"backend up"' in line and '"store":"ledger"' in line for line in sidecar.log.read_text().splitlines())


class HttpStory(Story):
    def put(self, who, port, target, token, body, answer):
        request = Curl(self.stage, port, "PUT", target, token, body)
        self.expect(who, request.shown, request.answer(), lambda a: a.startswith(answer))

    def start(self):
        """The service, a table, and two sidecars."""
        stage = self.stage
        port = free_port()
        script = Path(__file__).with_name("service.py")
        stage.start("service", [sys.executable, str(script), str(port)], lambda p: "listening" in p.log.read_text())
        with database.Client(stage.postgres_port, user="postgres") as superuser:
            superuser.call("CREATE TABLE http_orders AS SELECT 7 AS id, 'nobody' AS by")
            superuser.call("GRANT ALL ON http_orders TO fencegate")
        more = MORE.format(postgres=stage.postgres_port, database=database.DATABASE, redis=stage.redis_port)
        sidecars = [stage.start_sidecar(name, "http", f"http://127.0.0.1:{port}", more)
                    for name in ("http sidecar A", "http sidecar B")]
        for process, *_ in sidecars:
            process.wait_until(database_is_up)
        return port, sidecars

    def fenced(self, title, target, resource, read):
        """Returns what A's late request was answered and what there is afterwards. `read`: looks around the gates, and says
        who does, how, and the answer."""
        say = self.page
        (sidecar_a, port_a, _), (_, port_b, _) = self.sidecars
        say.title(title)
        self.put("A", port_a, target, 33, "A, token 33", "200, Fencing-Mark: 33")
        sidecar_a.freeze()
        say.step("A's pod", "is frozen: SIGSTOP to its sidecar", "stopped")
        request = Curl(self.stage, port_a, "PUT", target, 33, "A, late")
        waiting = eventually("A's request to reach its sidecar's socket", lambda: unread_bytes(port_a))
        say.step("A", request.shown, f"{waiting} bytes lie unread in the sidecar's socket")
        self.put("B", port_b, target, 34, "B, token 34", "200, Fencing-Mark: 34")
        sidecar_a.thaw()
        say.step("A's pod", "goes on: SIGCONT", "running")
        late = self.expect("A", "…reads the answer to its late request", request.answer(), is_stale(resource))
        return late, self.expect(*read(), lambda a: a == "B, token 34")

    def in_service(self, target):
        request = Curl(self.stage, self.service, "GET", target)
        return "the service", request.shown, request.answer()

    def in_postgres(self):
        sql = "SELECT by FROM http_orders"
        with database.Client(self.stage.postgres_port, user="postgres") as superuser:
            return "in PostgreSQL", sql, superuser.call(sql)

    def in_redis(self):
        return "in Redis", "GET http:cart:7", self.stage.connect(self.stage.redis_port).call("GET", "http:cart:7")

    def unfenced(self):
        """The same with check-then-forward; returns what the late request was answered, what the service holds
        and which tokens it has seen."""
        say, stage, target = self.page, self.stage, "/files/8"
        say.title("The same forward with check-then-forward")
        upstream = stage.redis_port, self.service, "file:8"
        proxy_a, port_a = stage.start_naive("http proxy A", *upstream, 33, "freeze")
        self.put("A", port_a, target, 33, "A, token 33", "200")
        request = Curl(stage, port_a, "PUT", target, 33, "A, late")
        proxy_a.wait_until_frozen()
        say.step("A", request.shown, "checked: 33 is the mark, good")
        say.step("A's pod", "is frozen between check and forward", "stopped")
        _, port_b = stage.start_naive("http proxy B", *upstream, 34)
        self.put("B", port_b, target, 34, "B, token 34", "200")
        proxy_a.thaw()
        say.step("A's pod", "goes on: SIGCONT", "running")
        late = self.expect("A", "…reads the answer to its late request", request.answer(), lambda a: a == "200", False)
        stored = self.expect(*self.in_service(target), lambda a: a == "A, late", good=False)
        log = self.expect(*self.in_service(target + "?log"), lambda a: a == "33 34 33", good=False)
        return late, stored, log

    def tell(self):
        self.service, self.sidecars = self.start()
        self.page.line(f"\nA small HTTP service listens on 127.0.0.1:{self.service}; all requests are curl's.")
        self.fenced('Over HTTP, a statement: sql: "UPDATE http_orders …"', "/orders/7", "order:7", self.in_postgres)
        self.fenced("Over HTTP, a command: redis: [SET, …]", "/carts/7", "cart:7", self.in_redis)
        late, stored = self.fenced("Over HTTP, forwarded to the service: guarantee: held", "/files/7", "file:7",
                                   lambda: self.in_service("/files/7"))
        log = self.expect(*self.in_service("/files/7?log"), lambda a: a == "33 34")
        naive_late, naive_stored, naive_log = self.unfenced()
        self.page.title("Side by side, over HTTP, forwarded")
        self.page.line(f"     {'':20} {'fencegate':26} check, then forward")
        self.page.line(f"     {'A’s late request':20} {late.split(',')[0] + ', not applied':26} {naive_late}, applied")
        self.page.line(f"     {'what is there':20} {quoted(stored):26} {quoted(naive_stored)}")
        self.page.line(f"     {'tokens, as they came':20} {log:26} {naive_log}")

    def explain(self):
        (_, port_a, admin_a), (_, port_b, admin_b) = self.sidecars
        a, b = f"http://127.0.0.1:{port_a}", f"http://127.0.0.1:{port_b}"
        self.page.line()
        self.by_hand(
            (f"curl -X PUT -H 'Fencing-Token: 35' -d mine {a}/orders/7", f"a new holder; B has port {port_b}"),
            (f"curl -X PUT -H 'Fencing-Token: 34' -d late {b}/orders/7", "412: 34 is below the mark, problem+json"),
            (f"curl -X PUT -d x {b}/orders/7", "428: a write without a token"),
            (f"curl {a}/orders/7", "reads need none; /carts/7 and /files/7 are the others"),
            (f"curl -X PUT -H 'Fencing-Token: 36' {b}/.fencegate/marks/order:7", "raises the mark without a write"),
            (f"curl {b}/.fencegate/marks/order:7", "the mark"),
            (f"curl 'http://127.0.0.1:{self.service}/files/7?log'", "what reached the service, no gate between"),
            (f"curl -s http://127.0.0.1:{admin_a}/metrics", f"figures of http sidecar A; B's: port {admin_b}"),
        )

