"""What is measured about PostgreSQL and what stands in front of it: rates by pgbench, COPY, a takeover, memory."""

import contextlib
import os
import re
import subprocess
import time

import psycopg2
from measure import cpu_seconds
from postgres import binary
from postgres_contenders import TAG, BenchGate, Way, proxies
from processes import eventually

THREADS = 2  # of pgbench
CONNECTIONS = 200  # of the memory measured
COPY_LINE = b"c" * 999 + b"\n"
_TICKS = os.sysconf("SC_CLK_TCK")


def commit_durably(server, durable):
    """synchronous_commit of all sessions, also of those that a pooler keeps."""
    value = "on" if durable else "off"
    server.sql(f"ALTER SYSTEM SET synchronous_commit = {value}")
    server.sql("SELECT pg_reload_conf()")
    eventually(lambda: server.value("SHOW synchronous_commit") == value)


def run_pgbench(way, what, clients, seconds, connect=False, mode="prepared"):
    """One run; transactions per second, and processor seconds of the process in front and of PostgreSQL per 1,000."""
    way.server.clear()
    front, server, checks = _front_seconds(way), server_seconds(way.server), way.checks()
    command = [binary("pgbench"), "-n", "-M", mode, "-f", way.server.script(way.kind, what), "-c", str(clients),
               "-j", str(min(clients, THREADS)), "-T", str(max(1, round(seconds))), *(["-C"] if connect else [])]
    done = subprocess.run(command, env=way.environment(), capture_output=True, text=True, timeout=seconds + 120)
    rate = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
    count = re.search(r"^number of transactions actually processed: ([0-9]+)", done.stdout, re.M)
    failed = re.search(r"^number of failed transactions: ([0-9]+)", done.stdout, re.M)
    if done.returncode != 0 or not rate or not count or int(count[1]) == 0 or (failed and int(failed[1])):
        raise RuntimeError(f"{way.title}, {what} by {clients}: status {done.returncode}\n{done.stdout}{done.stderr}")
    _prove_work(way, what, int(count[1]), clients, checks)
    thousands = int(count[1]) / 1000
    return {"rate": float(rate[1]), "front_cpu": (_front_seconds(way) - front) / thousands,
            "server_cpu": (server_seconds(way.server) - server) / thousands}


def _prove_work(way, what, transactions, clients, checks_before):
    """What was counted is in the table, and a gate has checked what it should: each session, or each transaction."""
    rows = way.server.value("SELECT count(*) FROM bench_rows")
    if what == "insert" and rows < transactions:
        raise RuntimeError(f"{way.title}: {transactions} transactions, {rows} rows")
    if checks_before is None:
        return
    checked, wanted = way.checks() - checks_before, transactions if way.key == "transaction" else clients
    if checked < wanted:
        raise RuntimeError(f"{way.title}: {checked} checks of {wanted} in {transactions} transactions")


def _front_seconds(way):
    return cpu_seconds(way.front.pid) if way.front else 0.0


def server_seconds(server):
    """Of the postmaster, of the processes below it, and of those that have ended."""
    with open(f"/proc/{server.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ended = sum(int(ticks) for ticks in fields[13:15]) / _TICKS
    return ended + cpu_seconds(server.pid) + sum(cpu_seconds(pid) for pid in server.backends())


# -------------------------------------------------------------------------------------------------------------- COPY


def run_copy(way, megabytes):
    """MB/s of one COPY in and one COPY out by psql, its start and connect included; into an unlogged table."""
    way.server.clear()
    path = os.path.join(way.server.folder, "copied")
    if not os.path.exists(path) or os.path.getsize(path) != megabytes * 1_000_000:
        with open(path, "wb") as file:
            file.writelines(COPY_LINE for _ in range(megabytes * 1_000_000 // len(COPY_LINE)))
    with open(path, "rb") as source:
        inward = _copy(way, "COPY bench_copy FROM STDIN", stdin=source, stdout=subprocess.DEVNULL)
    arrived = way.server.value("SELECT count(*) FROM bench_copy")
    if arrived != megabytes * 1_000_000 // len(COPY_LINE):
        raise RuntimeError(f"{way.title}: COPY brought {arrived} rows")
    back = path + "-out"
    with open(back, "wb") as sink:
        outward = _copy(way, "COPY bench_copy TO STDOUT", stdin=subprocess.DEVNULL, stdout=sink)
    if os.path.getsize(back) != os.path.getsize(path):
        raise RuntimeError(f"{way.title}: COPY gave {os.path.getsize(back)} bytes")
    return {"in": megabytes / inward, "out": megabytes / outward}


def _copy(way, command, **files):
    begin = time.perf_counter()
    done = subprocess.run([binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", command], env=way.environment(),
                          stderr=subprocess.PIPE, text=True, timeout=120, **files)
    if done.returncode != 0:
        raise RuntimeError(f"{way.title}: {command}: {done.stderr}")
    return time.perf_counter() - begin


# ---------------------------------------------------------------------------------------------------------- takeover

_USE = "UPDATE bench_account SET uses = uses + 1 WHERE id = 1"


def takeovers(way, times):
    """Milliseconds, sorted, from the connect of a new holder to the end of its first statement, which needs a row that
    the old holder, paused in an open transaction, has locked. The old one's transaction must be gone."""
    used = way.server.value("SELECT uses FROM bench_account")
    seen = []
    for number in range(times):
        with contextlib.closing(way.connect(f"takeover={2 * number + 1}")) as old:
            old.autocommit = False
            old.cursor().execute(_USE)
            seen.append(_use_milliseconds(lambda token=2 * number + 2: way.connect(f"takeover={token}")))
            try:
                old.commit()
            except psycopg2.Error:
                pass
            else:
                raise RuntimeError(f"{way.title}: the old holder has committed")
    if way.server.value("SELECT uses FROM bench_account") != used + times:
        raise RuntimeError(f"{way.title}: not one use each")
    return sorted(seen)


def first_uses(way, times):
    """The same without an old holder, where nothing fences."""
    return sorted(_use_milliseconds(way.connect) for _ in range(times))


def _use_milliseconds(connect):
    begin = time.perf_counter()
    with contextlib.closing(connect()) as connection:
        connection.cursor().execute(_USE)
        return (time.perf_counter() - begin) * 1000


# ------------------------------------------------------------------------------------------------------------ memory


def memory(server, fencegate):
    """{title: resident megabytes of a fresh process, idle and with 200 connections that have run a statement}."""
    found = {}
    for key, title, make in proxies(server, fencegate):
        with make() as front, contextlib.ExitStack() as clients:
            idle = front.rss_bytes()
            way = Way(key, title, server, front, tag=TAG if isinstance(front, BenchGate) else None)
            for _ in range(CONNECTIONS):
                clients.enter_context(contextlib.closing(way.connect())).cursor().execute("SELECT 1")
            found[title] = {"idle": idle / 1e6, "crowded": front.rss_bytes() / 1e6}
    return found
