"""Clients that wait in Redis (BLPOP) while nothing comes: what they cost Redis and the gate in front of it."""

import contextlib
import selectors
import time

from contenders import TAG, FencedGate, Resp
from measure import cpu_seconds

CLIENTS = 1000
SETTLE_SECONDS = 5  # a client looks more and more seldom, up to every two seconds
MEASURE_SECONDS = 20
KEY = "bench:queue"


def waiting(redis, binary, quick):
    """The table's rows: how many wait, commands a second that Redis runs, and shares of a processor."""
    count, settle, seconds = (20, 0.5, 2) if quick else (CLIENTS, SETTLE_SECONDS, MEASURE_SECONDS)

    def row(title, server, gate=None):
        commands, *used = cost_of(redis, server, gate, count, settle, seconds)
        return [title, f"{count:,}", f"{commands:,.0f}", *(f"{one * 100:.1f} %" for one in used), *([] if gate else ["–"])]

    rows = [row("direct", redis)]
    if not binary:
        return rows
    redis.cli.call("ACL", "SETUSER", "waiting", "on", ">waiting", "~fencegate:*", "&*", "+@all")
    for title, rights in (("fencegate", {}),
                          ("fencegate, which may not watch the keys", {"user": "waiting", "password": "waiting"})):
        with FencedGate(redis, binary, **rights) as gate:
            rows.append(row(title, gate, gate))
    redis.cli.call("ACL", "DELUSER", "waiting")
    return rows


def cost_of(redis, server, gate, count, settle, seconds):
    """A second: commands, and processor seconds of Redis and of the gate."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(Resp(server.port, name=TAG if gate else None)))
            clients[-1].send_command("BLPOP", KEY, "0")
        time.sleep(settle)
        took, *spent = during(seconds, lambda: [time.monotonic(), commands_of(redis),
                                                *(cpu_seconds(one.pid) for one in (redis, gate) if one)])
        redis.cli.call("RPUSH", KEY, "first")
        if first_reply(clients) != [KEY.encode(), b"first"]:
            raise RuntimeError("nobody of those who waited was served")
    return [one / took for one in spent]


def first_reply(clients):
    with selectors.DefaultSelector() as ready:
        for one in clients:
            ready.register(one.sock, selectors.EVENT_READ, one)
        return next(key.data.reply() for key, _ in ready.select(timeout=10))


def during(seconds, figures):
    before = figures()
    time.sleep(seconds)
    return [after - one for after, one in zip(figures(), before)]


def commands_of(redis):
    return int(redis.info("stats")["total_commands_processed"])
