"""Private processes of the live tests, and the loopback ports that they listen on.

Everything listens on loopback, keeps its files in a temporary folder and is gone afterwards, also when a test fails or
is killed: each child is in a process group of its own, is killed by its pid, and dies with its parent. (The kernel ties
that to the thread that started it: start servers from a thread that lives as long as they should.)"""

import contextlib
import ctypes
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

LOOPBACK = "127.0.0.1"
PATIENCE = 90  # seconds that a condition or an answer may take on a busy machine; what comes in time costs nothing
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def eventually(check, deadline=PATIENCE, every=0.02):
    """Calls `check` until it returns something true, and returns that; AssertionError after `deadline` seconds. To wait takes
    no more than half a processor, however dear `check` is, and ever less of it; no more than a twentieth of the time is late."""
    begin = time.monotonic()
    while True:
        asked = time.monotonic()
        value = check()
        if value:
            return value
        now = time.monotonic()
        if now - begin > deadline:
            raise AssertionError(f"not within {deadline} s; the last answer was {value!r}")
        time.sleep(max(every, now - asked, (now - begin) / 20))


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


def die_with_parent(number=signal.SIGKILL):
    """For preexec_fn, or behind a fork."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


class Process:
    """A child with a temporary folder, and its output in a file there. A context manager that starts and ends it."""

    title = "process"

    def __init__(self):
        self.child = None
        self.folder = None
        self.show_log = False  # print the log at the end
        self.broke = None  # the status with which it ended, when nobody had told it to

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix=f"{self.title}-", dir=self.place())
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

    def place(self):
        """Where its folder is made; None: where temporary files are."""
        return None

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
