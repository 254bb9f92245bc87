"""The program under test, as a sidecar with one gate."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import urllib.parse

import figures
from held import state
from processes import LOOPBACK, PATIENCE, Process, eventually, free_port


class GateProcess(Process):
    """`fencegate serve` (the binary named in $FENCEGATE, or `binary`) with one gate and an admin listener; subclasses say
    which. `gate`: its keys but name, protocol, listen and upstream; those that are None are left out. `process`: further
    top-level keys. With `unix=True` it listens on a unix socket, whose path is then `address`; with `unix_admin=True` its
    admin listener does. `files`: its soft and hard limit of file descriptors."""

    title = "fencegate"
    name = protocol = None  # of the gate

    def __init__(self, gate, threads=2, process=None, unix=False, unix_admin=False, files=None, binary=None):
        super().__init__()
        self.unix, self.unix_admin, self.files = unix, unix_admin, files
        self.binary = binary
        self.needs_backend = True  # counts as started when it has reached its backend, too
        self.links = 1  # connections of its own to the backend
        self.gate = {key: value for key, value in gate.items() if value is not None}
        self.process = {"threads": threads, "log": {"level": "info", "format": "json"}} | (process or {})

    def upstream_url(self):
        raise NotImplementedError

    def prepare(self):
        self.binary = os.path.abspath(self.binary or os.environ["FENCEGATE"])
        self.port = free_port()
        self.admin_port = free_port()
        self.address = os.path.join(self.folder, self.socket_name()) if self.unix else self.port
        gate = {
            "name": self.name,
            "protocol": self.protocol,
            "listen": f"unix:{self.address}" if self.unix else f"{LOOPBACK}:{self.port}",
            "upstream": self.upstream_url(),
        }
        config = self.process | {"admin": self.process.get("admin", {}) | {"listen": self.admin_listen}, "gates": [gate | self.gate]}
        with open(os.path.join(self.folder, "fencegate.yaml"), "w") as file:
            json.dump(config, file, indent=1)  # YAML contains JSON

    @property
    def admin_address(self):
        return os.path.join(self.folder, "admin.sock") if self.unix_admin else self.admin_port

    @property
    def admin_listen(self):
        return f"unix:{self.admin_address}" if self.unix_admin else f"{LOOPBACK}:{self.admin_port}"

    def socket_name(self):
        return "gate.sock"

    def command(self):
        limits = ["prlimit", "--nofile={}:{}".format(*self.files)] if self.files else []
        return [*limits, self.binary, "serve", "-c", os.path.join(self.folder, "fencegate.yaml")]

    def says(self, *words):
        """The exit status of a subcommand that asks its admin listener."""
        command = [self.binary, *words, "--admin", self.admin_listen]
        return subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode

    def start(self, deadline=PATIENCE):
        self._log_before = len(self.log())
        super().start(deadline)

    def up(self):
        # A gate is ready without its backend, but most tests want to begin with both.
        return self.http("/readyz")[0] == 200 and (not self.needs_backend or self._links_up() >= self.links)

    def _links_up(self):
        return self.log()[self._log_before :].count('"msg":"backend up"')

    def kill(self):
        # An assertion of its own, a sanitizer: perhaps after the last answer that the test wanted.
        if self.child is not None and self.child.poll() not in (None, 0, -signal.SIGKILL):
            self.broke = self.child.returncode
        super().kill()

    def http(self, path, method="GET"):
        """(status, text) of the admin listener."""
        return figures.ask(self.admin_address, path, method)

    def metrics(self):
        return figures.read(self.http("/metrics")[1])

    def metric(self, name, **labels):
        """One figure of this gate, 0 when it is not there yet: metric("checks_total", outcome="stale")."""
        gate = {f'gate="{self.name}"'} if name != "draining" else set()
        return figures.find(self.metrics(), name, {f'{key}="{value}"' for key, value in labels.items()} | gate)

    def log_lines(self):
        """All that it has logged so far. A thread of its own writes that."""
        if self.child.poll() is None and state(self.child.pid) != "T":
            with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                eventually(lambda: self.metrics()["fencegate_log_lines_queued"] == 0)
        return figures.log_lines(self.log())

    def warnings(self):
        """Its log lines of level warn or error, but those about how the test's servers and machine are set up."""
        of_setup = ("hazard", "too few file descriptors")
        return [line for line in self.log_lines() if line["level"] in ("warn", "error") and line["msg"] not in of_setup]


class Gate(GateProcess):
    """With one Redis gate called "cache". `redis`: a server or a CutProxy in front of it. `extra`: further keys of the
    gate."""

    name, protocol = "cache", "redis"

    def __init__(self, redis, policy=None, resources=None, unmatched=None, allow_commands=None, user=None, password=None,
                 extra=None, **process):
        gate = {"policy": policy, "resources": resources, "unmatched": unmatched, "allow_commands": allow_commands}
        super().__init__(gate | (extra or {}), **process)
        self.redis = redis
        self.links = self.process["threads"]  # one on each thread
        self.credentials = f"{user or ''}:{urllib.parse.quote(password, safe='')}@" if password else ""

    def upstream_url(self):
        upstream = self.redis.address
        if isinstance(upstream, int):
            return f"redis://{self.credentials}{LOOPBACK}:{upstream}"
        return f"unix://{self.credentials}{upstream}"
