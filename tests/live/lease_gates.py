"""Sidecars whose gates hold the lease, and the writers behind them.

    sidecar = self.start(LeaseGates(database, redis))
    sidecar.report_start()          # as the hook of a writer that has just been started
    sidecar.eventually("holding")
"""

import http.client
import os
import socket
import time

from http_gate import Upstream
from lease_sidecar import PATIENCE, Api, Sidecar
from processes import LOOPBACK, eventually, free_port
from resp import Resp


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class LeaseGates(Sidecar):
    """`fencegate serve` with a gate of each protocol that holds the lease of `orders` for the writer app. `gate`: keys of all its
    gates; `state`: a directory that outlives it."""

    def __init__(self, database, redis, leases=(), gate=(), writers=(), state=None, resource="orders", upstream=None,
                 issuer="ledger"):
        super().__init__(database, redis, leases, issuer)
        self.keys = {"lease": resource, "writer": "app"} | dict(gate)
        self.writers, self.state, self.upstream = dict(writers), state, upstream

    def prepare(self):
        self.http_port, self.probes = free_port(), free_port()
        super().prepare()
        self.configuration["leases"] |= {"state_dir": self.state or os.path.join(self.folder, "state"),
                                         "probes": f"{LOOPBACK}:{self.probes}"}
        if self.writers:
            self.configuration["leases"]["writers"] = {"app": self.writers}
        self.configuration["drain_timeout"] = "2s"
        self.path = self.write(self.configuration)

    def configure(self):
        out = super().configure()
        out["stores"]["cache"] = {"url": self.redis_url()}
        if self.upstream:
            out["gates"].append({"name": "web", "protocol": "http", "listen": f"{LOOPBACK}:{self.http_port}", "store": "cache",
                                 "upstream": f"http://{LOOPBACK}:{self.upstream.port}",
                                 "routes": [{"match": "PUT /orders/{id}", "resource": self.keys["lease"]}]})
        for gate in out["gates"]:
            gate |= self.keys
        return out

    def start(self, deadline=PATIENCE):
        self.began = boot_ms()
        super().start(deadline)

    @property
    def api(self):
        return Api(self.socket)

    def report_start(self, when=None, container=None):
        """A writer that was started now, or then. The status."""
        told = {"started_ms": boot_ms() if when is None else when} | ({"container": container} if container else {})
        return self.api.ask("POST", "/v1/writers/app/started", told)[0]

    def writer(self, gate="cache"):
        """(status, what is told)"""
        return self.api.ask("GET", f"/v1/gates/{gate}/writer")

    def state_now(self):
        return self.writer()[1]["state"]

    def eventually(self, state):
        eventually(lambda: self.state_now() == state)
        return self.writer()[1]

    def hold(self):
        """A writer is started; the token that it works under."""
        eventually(lambda: self.report_start() == 204)
        return self.eventually("holding")["tokens"][self.keys["lease"]]

    def probe(self, target="/v1/gates/cache/writer"):
        talk = http.client.HTTPConnection(LOOPBACK, self.probes, timeout=PATIENCE)
        talk.request("GET", target)
        status = talk.getresponse().status
        talk.close()
        return status

    def resp(self):
        return Resp(self.redis_port)
