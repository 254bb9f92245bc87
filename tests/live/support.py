"""Shared support of the live tests: private servers, the gate under test, a raw Redis client, a proxy that cuts.

Everything listens on loopback, keeps its files in a temporary folder and is gone afterwards, also when a test fails or
is killed: each child is in a process group of its own, is killed by its pid, and dies with its parent. (The kernel ties
that to the thread that started it: start servers from a thread that lives as long as they should.)

    class Marks(LiveTest):
        def test_a_claim(self):
            redis = self.start(RedisServer())
            gate = self.start(Gate(redis, policy={"max_step": 10}))
            client = self.start(Resp(gate.port, name="fence:orders=34"))
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
"""

import contextlib
import ctypes
import functools
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

LOOPBACK = "127.0.0.1"
PATIENCE = 40  # seconds that a condition or an answer may take on a busy machine; what comes in time costs nothing
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def eventually(check, deadline=PATIENCE, every=0.02):
    """Calls `check` until it returns something true, and returns that; AssertionError after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s; the last answer was {value!r}")
        time.sleep(every)


_ports_given = {}  # port: an abstract unix socket that says to other processes, too, that it was given; they end with us


def free_port():
    """A loopback port below the range from which the kernel takes ports for outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        if port in _ports_given:
            continue
        given = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            given.bind(f"\0fencegate-test-port-{port}")  # who asked for it may not listen yet
            probe.bind((LOOPBACK, port))
            _ports_given[port] = given
            return port
        given.close()


def connect(address, timeout=PATIENCE):
    """`address`: a loopback port, or the path of a unix socket."""
    if isinstance(address, int):
        sock = socket.create_connection((LOOPBACK, address), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout)
    try:
        sock.connect(str(address))
    except OSError:
        sock.close()
        raise
    return sock


# ---------------------------------------------------------------------------------------------------- Redis protocol


class RespError(Exception):
    """An error reply. Returned, not raised: most tests want to look at it."""

    @property
    def code(self):
        return str(self).split(" ", 1)[0]

    def __eq__(self, other):
        return isinstance(other, RespError) and str(self) == str(other)

    __hash__ = Exception.__hash__


class Push(list):
    """A RESP3 push."""


def encode(*args):
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        data = arg if isinstance(arg, (bytes, bytearray)) else str(arg).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)


def _hashable(value):
    if isinstance(value, (list, set, frozenset)):
        return tuple(map(_hashable, value))
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


class Resp:
    """A raw Redis client. `named` is the answer to CLIENT SETNAME or HELLO. ConnectionError when the peer closes."""

    connect = staticmethod(connect)

    def __init__(self, address, name=None, proto=2, user=None, password=None, timeout=PATIENCE):
        self.sock = self.connect(address, timeout)
        self.pushes = []  # those that came while `call` or `pipeline` waited for a reply
        self._buffer = bytearray()
        self._at = 0
        self.named = None
        if proto != 2:
            auth = ("AUTH", user or "default", password) if password else ()
            self.named = self.call("HELLO", proto, *auth, *(("SETNAME", name) if name else ()))
            return
        if password:
            answer = self.call("AUTH", *((user,) if user else ()), password)
            if answer != b"OK":
                raise ConnectionError(f"AUTH: {answer}")
        if name:
            self.named = self.call("CLIENT", "SETNAME", name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_command(self, *args):
        self.send(encode(*args))

    def call(self, *args):
        self.send_command(*args)
        return self.reply()

    def pipeline(self, commands):
        """Sends all while it reads, so that a long one cannot block itself; returns all replies."""
        data = b"".join(encode(*command) for command in commands)
        sender = threading.Thread(target=self._send_quietly, args=(data,), daemon=True)
        sender.start()
        replies = [self.reply() for _ in commands]
        sender.join()
        return replies

    def _send_quietly(self, data):
        with contextlib.suppress(OSError):  # the reader finds the connection closed
            self.sock.sendall(data)

    def reply(self):
        """The next reply; pushes before it are kept in `pushes`."""
        while isinstance(value := self.read(), Push):
            self.pushes.append(value)
        return value

    def read(self):
        """The next reply or push."""
        value = self._value()
        if self._at > 65536 or self._at == len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0
        return value

    def closed(self, deadline=PATIENCE):
        """True when the peer closes within the deadline; what it still sends is dropped."""
        end = time.monotonic() + deadline
        try:
            while (left := end - time.monotonic()) > 0:
                self.sock.settimeout(left)
                if not self.sock.recv(65536):
                    return True
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    def _more(self):
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionResetError("closed by the peer")
        self._buffer += data

    def _line(self):
        seen = self._at
        while (end := self._buffer.find(b"\r\n", seen)) < 0:
            seen = max(self._at, len(self._buffer) - 1)
            self._more()
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _bytes(self, count):
        while len(self._buffer) - self._at < count + 2:
            self._more()
        data = bytes(memoryview(self._buffer)[self._at : self._at + count])
        if self._buffer[self._at + count : self._at + count + 2] != b"\r\n":
            raise ValueError("a bulk string that does not end with CRLF")
        self._at += count + 2
        return data

    def _element(self):
        while isinstance(value := self._value(), Push):  # may stand between the elements of EXEC's reply
            self.pushes.append(value)
        return value

    def _value(self):
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return RespError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"(":  # a script may call any text a big number
            return int(rest) if rest.lstrip(b"+-").isdigit() else rest
        if kind == b"_":
            return None
        if kind == b"#":
            return {b"t": True, b"f": False}[rest]
        if kind == b",":
            return float(rest)
        count = int(rest)
        if kind in b"$!=":
            data = None if count < 0 else self._bytes(count)
            if kind == b"!":
                return RespError(data.decode(errors="replace"))
            return data[4:] if kind == b"=" else data
        if kind in b"*~>":
            items = None if count < 0 else [self._element() for _ in range(count)]
            return Push(items) if kind == b">" else set(map(_hashable, items)) if kind == b"~" else items
        if kind in b"%|":
            pairs = [(_hashable(self._element()), self._element()) for _ in range(count)]
            return dict(pairs) if kind == b"%" else self._value()  # an attribute precedes a value and is not one
        raise ValueError(f"not a reply: {line[:80]!r}")


# --------------------------------------------------------------------------------------------------------- processes


def die_with_parent():
    """For preexec_fn."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child with a temporary folder, and its output in a file there. A context manager that starts and ends it."""

    title = "process"

    def __init__(self):
        self.child = None
        self.folder = None
        self.show_log = False  # print the log at the end
        self.broke = None  # the status with which it ended, when nobody had told it to

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix=f"{self.title}-")
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.show_log = True
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, *_):
        self.kill()
        failed = self.show_log or self.broke or kind not in (None, unittest.SkipTest, SystemExit)
        if failed and (log := self.log()):
            print(f"\n--- log of {self.title}, last lines ---\n{log[-6000:]}---", file=sys.stderr, flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.broke and kind is None and not self.show_log:
            raise AssertionError(f"{self.title} ended by itself, status {self.broke}")

    def prepare(self):
        """Writes the configuration, once."""

    def command(self):
        raise NotImplementedError

    def up(self):
        """True when it answers."""
        raise NotImplementedError

    def start(self, deadline=PATIENCE):
        with open(self.log_path, "ab") as log:
            self.child = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                          process_group=0, preexec_fn=die_with_parent)
        eventually(self._up_or_dead, deadline)

    def _up_or_dead(self):
        if self.child.poll() is not None:
            raise RuntimeError(f"{self.title} ended with status {self.child.returncode}:\n{self.log()[-3000:]}")
        try:
            return self.up()
        except (OSError, http.client.HTTPException):
            return False

    @property
    def pid(self):
        return self.child.pid

    @property
    def log_path(self):
        return os.path.join(self.folder, "log")

    def log(self):
        with contextlib.suppress(FileNotFoundError), open(self.log_path, errors="replace") as file:
            return file.read()
        return ""

    def rss_bytes(self):
        """Its resident memory."""
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def rss_bytes_max(self):
        """The most resident memory it ever had."""
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))

    def stop_process(self):
        """Freezes it, and returns when it is frozen."""
        self._signal(signal.SIGSTOP)
        eventually(self._is_stopped)

    def _is_stopped(self):
        with open(f"/proc/{self.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "TtZX"

    def continue_process(self):
        self._signal(signal.SIGCONT)

    def terminate(self):
        self._signal(signal.SIGTERM)

    def wait(self, deadline=PATIENCE):
        """Its exit status."""
        return self.child.wait(deadline)

    def assert_running(self):
        if self.child.poll() is not None:
            raise AssertionError(f"{self.title} ended by itself, status {self.child.returncode}:\n{self.log()[-3000:]}")

    def kill(self):
        if self.child is not None and self.child.poll() is None:
            self._signal(signal.SIGKILL)
            self.child.wait()

    def restart(self):
        """On the same port, with the same files."""
        self.kill()
        self.start()

    def _signal(self, number):
        if self.child.poll() is None:
            os.kill(self.pid, number)


class RedisServer(Process):
    """A private redis-server, synced to disk every second. Settings are keyword arguments: `maxmemory="10mb"`,
    `maxmemory_policy="noeviction"`. With `unix=True` it listens on a unix socket only, and `address` is its path."""

    title = "redis"

    def __init__(self, unix=False, **conf):
        super().__init__()
        self.unix = unix
        self.conf = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "databases": "16"}
        self.conf.update({key.replace("_", "-"): value for key, value in conf.items()})
        self._cli = None

    def prepare(self):
        self.port = 0 if self.unix else free_port()
        self.address = os.path.join(self.folder, "redis.sock") if self.unix else self.port
        self.conf.update({"port": self.port, "bind": LOOPBACK, "dir": self.folder})
        if self.unix:
            self.conf["unixsocket"] = self.address
        with open(os.path.join(self.folder, "redis.conf"), "w") as file:
            for key, value in self.conf.items():
                file.write(f"{key} {value}\n" if value != "" else f'{key} ""\n')

    def command(self):
        return ["redis-server", os.path.join(self.folder, "redis.conf")]

    def up(self):
        self._drop_cli()
        return self.cli.call("PING") == b"PONG"

    @property
    def cli(self):
        """A connection of the default user."""
        if self._cli is None:
            self._cli = Resp(self.address, password=self.conf.get("requirepass"), timeout=30)
        return self._cli

    def _drop_cli(self):
        if self._cli is not None:
            self._cli.close()
            self._cli = None

    def kill(self):
        self._drop_cli()
        super().kill()

    def info(self, section="everything"):
        lines = self.cli.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls(self, command):
        """How often it has run the command."""
        return int(self.info("commandstats").get(f"cmdstat_{command}", "calls=0,").split(",")[0].removeprefix("calls="))


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
        config = self.process | {"admin": {"listen": self.admin_listen}, "gates": [gate | self.gate]}
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
        connection = http.client.HTTPConnection("localhost")
        connection.sock = connect(self.admin_address)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self):
        lines = [line for line in self.http("/metrics")[1].splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def metric(self, name, **labels):
        """One figure of this gate, 0 when it is not there yet: metric("checks_total", outcome="stale")."""
        gate = {f'gate="{self.name}"'} if name != "draining" else set()
        wanted = {f'{key}="{value}"' for key, value in labels.items()} | gate
        for key, value in self.metrics().items():
            base, _, rest = key.partition("{")
            if base == "fencegate_" + name and wanted <= set(rest.rstrip("}").split(",")):
                return value
        return 0.0

    def log_lines(self):
        lines = []
        for line in self.log().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict)]

    def warnings(self):
        """Its log lines of level warn or error, but those about how the test's servers are set up."""
        return [line for line in self.log_lines() if line["level"] in ("warn", "error") and line["msg"] != "hazard"]


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


# ------------------------------------------------------------------------------------------------------------- proxy


class CutProxy:
    """A TCP proxy on `port` in front of a loopback port. `freeze` holds bytes back in both directions until `thaw`,
    `cut_all` ends every connection with a reset and drops what was held, `delay` (seconds) slows each piece down."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.delay = 0.0
        self.refuse = False  # close new connections at once
        self._flowing = threading.Event()
        self._flowing.set()
        self.pieces = 0  # that were received, and not sent yet
        self._pairs = set()
        self._lock = threading.Lock()

    def __enter__(self):
        self._listener = socket.create_server((LOOPBACK, free_port()), backlog=512)
        self.port = self.address = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self.cut_all()
        self._flowing.set()

    def freeze(self):
        self._flowing.clear()

    def thaw(self):
        self._flowing.set()

    def cut_all(self):
        """Returns how many connections were cut."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            self._cut(pair)
        return len(pairs)

    @staticmethod
    def _cut(pair):
        for sock in pair:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RD)  # wakes the pump's recv; close alone would not
            sock.close()

    def change(self, data):
        """For subclasses: what goes on in place of a piece."""
        return data

    def relay(self, pair, sink, data):
        """For subclasses that wait for something first, or pass a piece on in parts. `pair`: client's side, server's."""
        sink.sendall(self.change(data))

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            try:
                if self.refuse:
                    raise ConnectionRefusedError
                server = connect(self.target_port)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            for sock in pair:
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(pair, source, sink), daemon=True).start()

    def _pump(self, pair, source, sink):
        try:
            while data := source.recv(65536):
                self._count(1)
                try:
                    self._flowing.wait()
                    if self.delay:
                        time.sleep(self.delay)
                    self.relay(pair, sink, data)
                finally:
                    self._count(-1)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            with self._lock:
                self._pairs.discard(pair)
            self._cut(pair)

    def _count(self, pieces):
        with self._lock:
            self.pieces += pieces


def unread_bytes(port):
    """What has arrived on connections to the port and was not read yet."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    established = "01"
    return sum(int(row[4].split(":")[1], 16) for row in rows
               if row[1].endswith(f":{port:04X}") and row[3] == established)


class SilentPort:
    """A loopback port whose queue is full: the kernel does not answer those who connect."""

    def __enter__(self):
        self._sockets = [socket.create_server((LOOPBACK, 0), backlog=0)]
        self.port = self.address = self._sockets[0].getsockname()[1]
        for _ in range(4):  # more than fit
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex((LOOPBACK, self.port))
            self._sockets.append(one)
        return self

    def __exit__(self, *_):
        for one in self._sockets:
            one.close()


# ------------------------------------------------------------------------------------------------------------- tests


class LiveTest(unittest.TestCase):
    """`start` enters a context manager for the time of the test; servers print their logs when the test failed."""

    def run(self, result=None):
        self._result = result
        return super().run(result)

    def start(self, context):
        value = context.__enter__()
        self.addCleanup(self._end, context)
        return value

    def _end(self, context):
        if isinstance(context, Process):
            context.show_log = any(test is self for test, _ in self._result.failures + self._result.errors)
        context.__exit__(None, None, None)

    def assert_error(self, reply, code):
        self.assertIsInstance(reply, RespError)
        self.assertEqual(reply.code, code, str(reply))


def clean_up_on_sigterm():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main(at_once=1):
    """Runs the tests of the calling file. `at_once`: so many at a time, each in one of as many processes, in a file whose
    tests wait rather than work. Those that are named on the command line run one after the other."""
    clean_up_on_sigterm()
    if at_once > 1 and len(sys.argv) == 1:
        sys.exit(_run_side_by_side(at_once))
    unittest.main(module="__main__", verbosity=2)


class _Share(unittest.TestSuite):
    """Always the next of the tests that no other process has taken."""

    def __init__(self, tests, taken):
        super().__init__(tests)
        self.taken = taken
        self._cleanup = False

    def __iter__(self):
        while True:
            with self.taken.get_lock():
                at = self.taken.value
                self.taken.value += 1
            if at >= len(self._tests):
                return
            yield self._tests[at]


class _WholeLines(unittest.TextTestResult):
    """A test is named when it is known how it ended: others end meanwhile."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)


def _each(suite):
    for one in suite:
        yield from _each(one) if isinstance(one, unittest.TestSuite) else (one,)


def _take_no_more(taken, count, *_):
    """The test at hand is broken off, which cleans up behind it, and is the last."""
    taken.value = count
    sys.exit(143)


def _run_side_by_side(count):
    """The exit status: 0 when each process has passed all that it took."""
    tests = list(_each(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    taken = multiprocessing.Value("i", 0)
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, functools.partial(_take_no_more, taken, len(tests)))
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            result = unittest.TextTestRunner(verbosity=2, resultclass=_WholeLines).run(_Share(tests, taken))
            sys.exit(not result.wasSuccessful())
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return 1 if any(ended) else 0
