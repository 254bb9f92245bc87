"""The ways of writing to Redis that are compared, and the processes they need."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live"))

from gate_process import Gate  # noqa: E402
from processes import LOOPBACK, Process, free_port  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from resp import Resp  # noqa: E402

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TAG = "fence:bench=34"
THREADS = 2  # of HAProxy; twemproxy has one
OUR_THREADS = max(1, (os.cpu_count() or 1) // 2)  # as fencegate has by itself


class Haproxy(Process):
    """TCP mode, no logs, no checks, no time-out that could fall into a run. TCP_NODELAY is its default."""

    title = "haproxy"

    def __init__(self, redis):
        super().__init__()
        self.redis = redis

    def prepare(self):
        self.port = free_port()
        with open(os.path.join(self.folder, "haproxy.cfg"), "w") as file:
            file.write(f"""global
  nbthread {THREADS}
  maxconn 4000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen redis
  bind {LOOPBACK}:{self.port}
  server redis {LOOPBACK}:{self.redis.port} maxconn 4000
""")

    def command(self):
        return ["haproxy", "-db", "-q", "-f", os.path.join(self.folder, "haproxy.cfg")]

    def up(self):
        with Resp(self.port) as client:
            return client.call("PING") == b"PONG"


class Twemproxy(Process):
    """One server, one connection to it (its default): all clients share one pipeline."""

    title = "twemproxy"

    def __init__(self, redis):
        super().__init__()
        self.redis = redis

    def prepare(self):
        self.port = free_port()
        self.statistics_port = free_port()
        with open(os.path.join(self.folder, "nutcracker.yml"), "w") as file:
            file.write(f"""redis:
  listen: {LOOPBACK}:{self.port}
  redis: true
  hash: fnv1a_64
  distribution: modula
  auto_eject_hosts: false
  backlog: 1024
  servers:
    - {LOOPBACK}:{self.redis.port}:1
""")

    def command(self):
        return ["nutcracker", "-c", os.path.join(self.folder, "nutcracker.yml"), "-v", "4", "-s", str(self.statistics_port),
                "-a", LOOPBACK]

    def up(self):
        with Resp(self.port) as client:
            return client.call("GET", "nothing") is None


class MonitorGate(Gate):
    """Untagged writers in monitor mode: what fencegate costs before it fences."""

    title = "fencegate-monitor"

    def __init__(self, redis, binary):
        super().__init__(redis, policy={"mode": "monitor"}, threads=OUR_THREADS, binary=binary)


class FencedGate(Gate):
    title = "fencegate-fenced"

    def __init__(self, redis, binary, **settings):
        super().__init__(redis, threads=OUR_THREADS, binary=binary, **settings)

    def admitted(self):
        return self.metric("checks_total", outcome="admitted")

    def prove_fence(self):
        """A benchmark of a fence that lets everything through would be worthless."""
        resource = f"proof:{self.port}"
        with Resp(self.port, name=f"fence:{resource}=7") as old, Resp(self.port, name=f"fence:{resource}=8") as new:
            answers = [old.named, new.named, new.call("SET", "bench:proof", "new"), old.call("SET", "bench:proof", "old")]
            good = answers[:3] == [b"OK"] * 3 and getattr(answers[3], "code", "") == "FENCED"
            if not good or self.redis.cli.call("GET", "bench:proof") != b"new":
                raise RuntimeError(f"the gate does not fence: {answers}")


# Columns of fenced writes: by default, and with what helps some loads.
BUSY_POLL = {"busy_poll_us": 100}
TUNED = "share_writes: always, busy_poll_us: 100"
FENCED = [("fenced", "fencegate fenced", {}),
          ("tuned", f"fenced, {TUNED}", {"extra": {"share_writes": "always"}, "process": BUSY_POLL})]


class Contender:
    """A column: where the load generator connects, and how it writes there."""

    def __init__(self, key, title, server, mode=None, name=None, counts_writes=None):
        self.key = key
        self.title = title
        self.server = server
        self.mode = mode
        self.name = name
        self.counts_writes = counts_writes  # () -> how many writes the gate has checked so far

    def options(self, mode):
        """For the load generator; None: this way has no writes of that kind."""
        if self.mode and mode != "set":
            return None
        return ["--port", str(self.server.port), "--mode", self.mode or mode, *(["--name", self.name] if self.name else [])]


def bench_redis(durable):
    """Nothing written to disk unless asked for: the harder comparison for whatever stands in front."""
    return RedisServer(appendonly="yes" if durable else "no", io_threads=1)


def all_contenders(stack, redis, binary):
    """Starts what is needed (`stack`: an ExitStack) and returns the columns in the order of the table."""
    haproxy = stack.enter_context(Haproxy(redis))
    twemproxy = stack.enter_context(Twemproxy(redis))
    columns = [Contender("direct", "direct", redis), Contender("haproxy", "HAProxy", haproxy),
               Contender("twemproxy", "twemproxy", twemproxy)]
    if binary:
        monitor = stack.enter_context(MonitorGate(redis, binary))
        columns.append(Contender("monitor", "fencegate monitor", monitor))
        for key, title, settings in FENCED:
            fenced = stack.enter_context(FencedGate(redis, binary, **settings))
            fenced.prove_fence()
            columns.append(Contender(key, title, fenced, name=TAG, counts_writes=fenced.admitted))
    return columns + [Contender("evalsha", "EVALSHA per write", redis, mode="evalsha")]
