"""A sidecar that serves the API of leases, and its clients.

    sidecar = self.start(Sidecar(database, redis, {"ttl": "30s"}))
    status, lease = Api(sidecar.socket).take("orders", wait="10s")
"""

import contextlib
import http.client
import json
import os
import socket

import figures
from processes import LOOPBACK, free_port
from test_hold import Gates

PATIENCE = 20


class Api:
    """One client's connection to the API, at a unix socket."""

    def __init__(self, path):
        self.path = path

    @contextlib.contextmanager
    def connected(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(self.path)
            yield client

    def ask(self, method, target, body=None, client=None):
        """(status, what it says)"""
        with contextlib.ExitStack() as stack:
            talk = http.client.HTTPConnection("localhost")
            talk.sock = client or stack.enter_context(self.connected())
            talk.request(method, target, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            answer = talk.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def take(self, *resources, **wish):
        return self.ask("POST", "/v1/leases", {"resources": resources or ("orders",)} | wish)

    def renew(self, lease, tokens=None):
        return self.ask("PUT", f"/v1/leases/{lease['id']}", {"tokens": tokens or lease["tokens"]})

    def release(self, lease, tokens=None):
        return self.ask("DELETE", f"/v1/leases/{lease['id']}", {"tokens": tokens or lease["tokens"]})

    def all(self):
        return self.ask("GET", "/v1/leases")[1]["leases"]


class Sidecar(Gates):
    def prepare(self):
        super().prepare()
        self.socket = os.path.join(self.folder, "lease.sock")
        self.admin = free_port()
        self.port = free_port()
        self.configuration["leases"]["listen"] = [f"unix:{self.socket}", f"{LOOPBACK}:{self.port}"]
        self.configuration["admin"] = {"listen": f"{LOOPBACK}:{self.admin}"}
        self.path = self.write(self.configuration)

    def up(self):
        with contextlib.suppress(OSError), Api(self.socket).connected():
            return super().up()
        return False

    def figure(self, name):
        """The first whose name with labels begins with this."""
        read = figures.read(figures.ask(self.admin, "/metrics")[1])
        return next(value for at, value in read.items() if at.startswith(name))
