"""The processes between an HTTP client and what it writes to, and the service that all of them forward to."""

import contextlib
import http.client
import os
import signal
import subprocess

from contenders import LOOPBACK, OUR_THREADS, THREADS, Haproxy
from http_gate import HttpGate
from processes import Process, free_port

TOKEN = "34"
BODY = "x" * 64
IDS = 1000  # resources that the writes go to in turn
CONNECTIONS_MAX = 2000
POOL = 10  # connections of fencegate to PostgreSQL: its default
ANSWER = "ok\n"


def get(port, path="/", timeout=5):
    """(status, text)"""
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=timeout)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class Nginx(Process):
    """`servers()`: what stands in its http block. Connections are kept for as long as the other side wants them."""

    title = "nginx"
    workers = 1

    def servers(self):
        raise NotImplementedError

    def prepare(self):
        self.port = free_port()
        paths = "".join(f"  {name}_temp_path {self.folder}/{name};\n"
                        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(os.path.join(self.folder, "nginx.conf"), "w") as file:
            file.write(f"""{"user root;" if os.geteuid() == 0 else ""}
daemon off;
worker_processes {self.workers};
pid {self.folder}/pid;
error_log stderr;
events {{ worker_connections {2 * CONNECTIONS_MAX}; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
{paths}{self.servers()}}}
""")

    def command(self):
        # Its workers outlive a master that is killed: it must be told to end, by its parent's death, too.
        return ["setpriv", "--pdeathsig", "TERM", "nginx", "-p", self.folder, "-e", "stderr", "-c",
                os.path.join(self.folder, "nginx.conf")]

    def up(self):
        return get(self.port)[0] == 200

    def kill(self):
        if self.child is None or self.child.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.child.wait()


class Service(Nginx):
    """What all forward to: one worker, which answers 200 to everything, and reads bodies away."""

    title = "service"

    def servers(self):
        return f"""  server {{
    listen {LOOPBACK}:{self.port};
    location / {{ return 200 "{ANSWER.strip()}\\n"; }}
    location = /status {{ stub_status; }}
  }}
"""

    def requests(self):
        """How many it has had so far."""
        return int(get(self.port, "/status")[1].splitlines()[2].split()[2])


class NginxProxy(Nginx):
    """Keeps its connections to the service; no log."""

    title = "nginx-proxy"
    workers = THREADS

    def __init__(self, service):
        super().__init__()
        self.service = service

    def servers(self):
        return f"""  upstream service {{
    server {LOOPBACK}:{self.service.port};
    keepalive 256;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
  }}
  server {{
    listen {LOOPBACK}:{self.port};
    location / {{
      proxy_pass http://service;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
"""


class HttpHaproxy(Haproxy):
    """HTTP mode; keeps its connections to the service, which all clients share; no log."""

    title = "haproxy-http"

    def __init__(self, service):
        super().__init__(service)
        self.service = service

    def settings(self):
        return ["timeout client 1h", "timeout server 1h", "timeout http-keep-alive 1h", "http-reuse always"]

    def prepare(self):
        self.port = free_port()
        lines = "".join(f"  {line}\n" for line in self.settings())
        with open(os.path.join(self.folder, "haproxy.cfg"), "w") as file:
            file.write(f"""global
  nbthread {THREADS}
  maxconn {CONNECTIONS_MAX}
defaults
  mode http
  timeout connect 5s
{lines}listen service
  bind {LOOPBACK}:{self.port}
  server service {LOOPBACK}:{self.service.port} maxconn {CONNECTIONS_MAX}
""")

    def up(self):
        return get(self.port)[0] == 200


class BenchHttpGate(HttpGate):
    """One route for each way of a write. Reads pass, whatever their path."""

    title = "fencegate-http"

    def __init__(self, service, redis, server, user, binary):
        resource = "order:{id}"
        routes = [
            {"match": "PUT /checked/{id}", "resource": resource, "store": "cache"},
            {"match": "PUT /held/{id}", "resource": resource, "store": "ledger"},
            {"match": "PUT /redis/{id}", "resource": resource, "store": "cache", "redis": ["SET", resource, "{body}"]},
            {"match": "PUT /sql/{id}", "resource": resource, "store": "ledger", "params": ["{id}", "{body}"],
             "sql": "INSERT INTO bench_rows (client, body) VALUES ($1::int, $2)"},
        ]
        stores = {"cache": f"redis://{LOOPBACK}:{redis.port}",
                  "ledger": f"postgres://{user}@{LOOPBACK}:{server.port}/postgres"}
        super().__init__(service, stores, routes, threads=OUR_THREADS, binary=binary)
        self.service, self.redis, self.server = service, redis, server

    def admitted(self):
        """How many writes it has checked and let through so far."""
        return sum(self.metric("checks_total", outcome=outcome) for outcome in ("admitted", "raised"))

    def prove_fence(self):
        """A benchmark of a fence that lets everything through would be worthless."""
        for way, applied in (("checked", self.service.requests), ("held", self.service.requests),
                             ("redis", self.redis_sets), ("sql", self.rows)):
            path = f"/{way}/0"
            if self.request("PUT", path, "new", token=8 if way in ("checked", "held") else 9)[0] != 200:
                raise RuntimeError(f"the gate refuses {path}")
            before = applied()
            status = self.request("PUT", path, "old", token=7)[0]
            more = applied() - before - (applied == self.service.requests)  # asking counts there
            if status != 412 or more != 0:
                raise RuntimeError(f"the gate does not fence {path}: {status}, applied {more} times")

    def raise_marks(self):
        """So that a run measures writes of a holder, and not how holders arrive."""
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=30)) as connection:
            for way in ("checked", "held", "redis", "sql"):
                for number in range(1, IDS + 1):
                    connection.request("PUT", f"/{way}/{number}", BODY, {"Fencing-Token": TOKEN})
                    answer = connection.getresponse()
                    if answer.read() and answer.status != 200:
                        raise RuntimeError(f"/{way}/{number}: {answer.status}")

    def redis_sets(self):
        line = self.redis.info("commandstats").get("cmdstat_set", "calls=0,")
        return int(line.split("calls=")[1].split(",")[0])

    def rows(self):
        return self.server.value("SELECT count(*) FROM bench_rows")
