"""What the demo's story is played on: processes, a small Redis client, and the look of a line. Standard library only."""

import contextlib
import ctypes
import http.client
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 15  # seconds that anything may take before the demo gives up


class Trouble(Exception):
    """The story cannot go on; the text says why and, where possible, what to do."""


class Missing(Trouble):
    """Something that the demo needs is not on this machine."""


LIBC = ctypes.CDLL(None)  # loaded here, since the child of a fork should do as little as possible


def eventually(what, condition):
    """Waits until condition() is true and returns its value; Trouble names what was waited for."""
    give_up = time.monotonic() + DEADLINE
    while time.monotonic() < give_up:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise Trouble(f"waited {DEADLINE} s in vain for: {what}")


def free_port():
    """A loopback port below the range from which the kernel takes ports for outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def find_fencegate():
    """The binary in $FENCEGATE, else the release build, else the one on the PATH."""
    named = os.environ.get("FENCEGATE")
    if named:
        if os.access(named, os.X_OK):
            return named
        raise Missing(f"FENCEGATE={named} is not an executable file")
    built = ROOT / "build" / "release" / "fencegate"
    found = str(built) if os.access(built, os.X_OK) else shutil.which("fencegate")
    if not found:
        raise Missing(f"there is no {built} and no fencegate on the PATH: run `./dev build` first")
    return found


def find_curl():
    if not shutil.which("curl"):
        raise Missing("curl is not installed: run `./dev setup`, or `apt-get install curl`")


def find_redis_server():
    found = shutil.which("redis-server")
    if not found:
        raise Missing("redis-server is not installed: run `./dev setup`, or `apt-get install redis-server`")
    return found


def die_with_parent():
    """In the child: be killed when the demo ends, even by SIGKILL and even while stopped."""
    pr_set_pdeathsig = 1
    LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


class Process:
    """A child with a log file. Ended by its pid, stopped or not, when the context is left."""

    def __init__(self, name, command, folder):
        self.name = name
        self.log = Path(folder) / f"{name.replace(' ', '-')}.log"
        with open(self.log, "wb") as log:
            # A session of its own: Ctrl-C at the terminal reaches the demo only, which then ends things in order.
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                                          start_new_session=True, preexec_fn=die_with_parent)
        self.pid = self.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.terminate()
            self.child.send_signal(signal.SIGCONT)
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()

    def wait_until(self, ready):
        def ready_or_ended():
            if self.child.poll() is not None:
                tail = self.log.read_text(errors="replace").splitlines()[-8:]
                raise Trouble(f"{self.name} ended with status {self.child.returncode}:\n  " + "\n  ".join(tail))
            return ready(self)

        eventually(f"{self.name} to answer (its log: {self.log})", ready_or_ended)
        return self

    def is_frozen(self):
        """Every thread is: they stop one by one, and one that still runs could read what should lie unread."""
        states = [re.search(r"^State:\s+(\w)", (task / "status").read_text(), re.M).group(1)
                  for task in Path(f"/proc/{self.pid}/task").iterdir()]
        return set(states) == {"T"}

    def freeze(self):
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_frozen()

    def freeze_before_a_client(self, what, port, patience):
        """Stops it so that what a client of its port sends lies unread: how many bytes. A client that waits for an answer by then
        sends no more: it gets its answer first, when nothing has come for `patience` seconds."""
        def frozen_with_some():
            self.freeze()
            give_up = time.monotonic() + patience
            while time.monotonic() < give_up:
                if waiting := unread_bytes(port):
                    return waiting
                time.sleep(0.01)
            self.thaw()
            time.sleep(0.1)
            return 0
        return eventually(what, frozen_with_some)

    def wait_until_frozen(self):
        eventually(f"{self.name} to be stopped", self.is_frozen)

    def thaw(self):
        os.kill(self.pid, signal.SIGCONT)


class Redis:
    """A connection that speaks RESP2. Errors come back as text that starts with '-', like the wire has it."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.socket.settimeout(DEADLINE)
        self.stream = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.socket.close()

    def send(self, *words):
        parts = [str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))

    def read(self):
        try:
            line = self.stream.readline()
        except TimeoutError:
            raise Trouble(f"no answer within {DEADLINE} s") from None
        if not line.endswith(b"\r\n"):
            return "(connection closed)"
        kind, rest = line[:1], line[1:-2].decode(errors="replace")
        if kind == b"$":
            return None if rest == "-1" else self.stream.read(int(rest) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if rest == "-1" else [self.read() for _ in range(int(rest))]
        return line[:-2].decode(errors="replace")  # "+OK", "-FENCED …", ":3"

    def call(self, *words):
        self.send(*words)
        return self.read()


def unread_bytes(listening_port, client=None):
    """Bytes of this connected socket that wait in the kernel for the process behind listening_port to read them; without
    a socket: of all of its clients."""
    found = 0
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues = row.split()[:5]
        ends = int(local.split(":")[1], 16), int(remote.split(":")[1], 16)
        here = client.getsockname()[1] if client else ends[1]
        if state == "01" and ends == (listening_port, here):  # 01: established
            found += int(queues.split(":")[1], 16)
    return found


def answers_ping(port):
    try:
        with Redis(port) as r:
            return r.call("PING") == "+PONG"
    except OSError:
        return False


def is_ready(admin_port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=1)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


CONFIGURATION = """\
admin: {{ listen: "127.0.0.1:{admin}" }}
drain_timeout: 2s
gates:
  - name: demo
    protocol: {protocol}
    listen: "127.0.0.1:{listen}"
    upstream: "{upstream}"
{more}"""


class Stage(contextlib.ExitStack):
    """A temporary folder, a Redis and what is started in front of it; all of it is gone when the context is left."""

    redis_port = postgres_port = None  # of the servers that run already

    def __enter__(self):
        super().__enter__()
        self.folder = self.enter_context(tempfile.TemporaryDirectory(prefix="fencegate-demo-"))
        return self

    def start(self, name, command, ready):
        return self.enter_context(Process(name, command, self.folder)).wait_until(ready)

    def start_redis(self):
        port = free_port()
        self.start("redis", [find_redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", self.folder,
                             "--appendonly", "yes", "--save", ""], lambda _: answers_ping(port))
        return port

    def start_sidecar(self, name, protocol, upstream, more=""):
        """A fencegate with one gate in front of `upstream`; returns the process, its port and its admin port. `more`:
        the rest of its configuration, the gate's keys first."""
        listen, admin = free_port(), free_port()
        path = Path(self.folder) / f"{name.replace(' ', '-')}.yaml"
        path.write_text(CONFIGURATION.format(admin=admin, listen=listen, protocol=protocol, upstream=upstream,
                                             more=more))
        process = self.start(name, [find_fencegate(), "serve", "-c", str(path)], lambda _: is_ready(admin))
        return process, listen, admin

    def start_naive(self, name, redis_port, upstream_port, resource, token, *options):
        """A proxy that checks and then forwards; returns the process and its port."""
        port = free_port()
        script = Path(__file__).with_name("check_then_forward.py")
        command = [sys.executable, str(script), *map(str, (port, redis_port, upstream_port, resource, token, *options))]
        return self.start(name, command, lambda p: "listening" in p.log.read_text()), port

    def connect(self, port):
        return self.enter_context(Redis(port))


class Page:
    """Prints the story; colours only where somebody watches a terminal."""

    def __init__(self, out):
        self.out = out
        self.colours = out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.number = 0

    def paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.colours else text

    def line(self, text=""):
        print(text, file=self.out, flush=True)

    def title(self, text):
        self.number = 0
        self.line("\n" + self.paint("1", text))

    def step(self, who, what, answer, good=True):
        """One line: who, what was sent or done, what came back. `good` only chooses the colour."""
        self.number += 1
        shown = self.paint("32" if good else "31", answer)
        self.line(f" {self.number:2}. {who:<13} {what:<46} {shown}".rstrip())

    def trouble(self, text):
        print(self.paint("31", text), file=sys.stderr, flush=True)
