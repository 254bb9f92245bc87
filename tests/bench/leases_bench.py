"""Leases: renewals through the sidecar's API beside the same SQL sent directly, how long it takes until the next holder may
act, and what a sidecar with many leases needs."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time

from contenders import LOOPBACK, bench_redis
from lease_sidecar import Api, Sidecar
from measure import cpu_seconds
from postgres import binary
from postgres_contenders import BenchServer
from postgres_measure import commit_durably
from report import table

ALL_ROWS = ["lease-renew", "lease-handover", "lease-expiry", "lease-memory", "hold-start"]
ROUNDS = 3
LEASES = 1000
WAITERS = 4
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "leases_wrk.lua")
RENEW = ("\\set i random(1, {leases})\nSELECT * FROM fencegate.lease_renew(ARRAY['bench-' || :i::int], ARRAY[1::bigint], "
         "ARRAY[lpad(to_hex(:i::int), 32, '0')]);\n")


def heading(options):
    yield ""
    yield f"## Leases of a PostgreSQL, sealed in it and in a Redis; {options.rounds} rounds"


def run(options, names):
    if not options.fencegate:
        return
    os.environ["FENCEGATE"] = options.fencegate
    with contextlib.ExitStack() as stack:
        redis, server = stack.enter_context(bench_redis(options.durable)), stack.enter_context(BenchServer())
        server.sql("CREATE DATABASE app")
        server.user("gate")
        server.install("app", gate_users=("gate",))
        commit_durably(server, options.durable)
        sidecar = stack.enter_context(Sidecar(server, redis, {"ttl": "1h", "margin": "1s", "skew": "280ms",
                                                                   "round_trip": "500ms", "stop_grace": "5s"}))
        api = Api(sidecar.socket)
        before = sidecar.rss_bytes()
        if {"lease-renew", "lease-memory"} & set(names):
            for i in range(1, LEASES + 1):
                status, lease = api.take(f"bench-{i}", id=f"{i:032x}")
                if status != 201:
                    raise RuntimeError(f"no lease: {lease}")
        if "lease-memory" in names:
            yield from memory(sidecar, before, options.seconds)
        if "lease-renew" in names:
            yield from renewals(server, sidecar, options)
        if "lease-handover" in names:
            yield from handover(api, 20 if options.quick else 200)
        if "lease-expiry" in names:
            yield from expiry(api, options.rounds)
        if "hold-start" in names:
            yield from hold_start(sidecar, options, 10 if options.quick else 100)


def memory(sidecar, before, seconds):
    spent, began = cpu_seconds(sidecar.pid), time.monotonic()
    time.sleep(max(seconds, 2))
    share = (cpu_seconds(sidecar.pid) - spent) / (time.monotonic() - began)
    yield ""
    yield (f"{LEASES} leases held: {(sidecar.rss_bytes() - before) / LEASES / 1024:.1f} KiB of memory each, and "
           f"{share * 100:.1f} % of a processor while nobody asks.")


def renewals(server, sidecar, options):
    seconds = max(1, round(options.seconds))
    rows = []
    for clients in (1, 8, 64):
        ratios, rates = [], []
        for _ in range(options.rounds):
            direct, api = by_pgbench(server, clients, seconds), by_wrk(sidecar, clients, seconds)
            rates.append((direct, api))
            ratios.append(api / direct)
        middle = sorted(range(len(ratios)), key=ratios.__getitem__)[len(ratios) // 2]
        rows.append([str(clients), f"{rates[middle][0]:,.0f}", f"{rates[middle][1]:,.0f}", f"{ratios[middle]:.2f}"])
    yield ""
    yield from table(["renewals, clients", "the same SQL directly, a second", "API, a second", "ratio"], rows)


def by_wrk(sidecar, clients, seconds):
    done = subprocess.run(["wrk", "-t", "1", "-c", str(clients), "-d", f"{seconds}s", "-s", SCRIPT,
                           f"http://{LOOPBACK}:{sidecar.port}", "--", str(LEASES)],
                          capture_output=True, text=True, timeout=seconds + 60)
    figures = json.loads(done.stdout.splitlines()[-1])
    if figures["status"] or not figures["requests"]:
        raise RuntimeError(f"of {figures['requests']} renewals {figures['status']} failed")
    return figures["requests"] / figures["seconds"]


def by_pgbench(server, clients, seconds):
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(RENEW.format(leases=LEASES))
        script.flush()
        done = subprocess.run([binary("pgbench"), "-n", "-M", "prepared", "-f", script.name, "-c", str(clients), "-j", "1",
                               "-T", str(seconds), "-h", LOOPBACK, "-p", str(server.port), "-U", "gate", "app"],
                              capture_output=True, text=True, check=True, timeout=seconds + 60)
    return next(float(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("tps ="))


def percentiles(times):
    times = sorted(times)
    return f"p50 {times[len(times) // 2] * 1000:.1f} ms, p99 {times[len(times) * 99 // 100] * 1000:.1f} ms"


def handover(api, rounds):
    """Clients take the lease in turn; from the request that releases it until the next one has it."""
    released, took, left = [None], [], [rounds]

    def take_turns():
        while left[0] > 0:
            status, lease = api.take("handed-over", wait="1m")
            if status != 201:
                raise RuntimeError(f"no lease: {lease}")
            if released[0]:
                took.append(time.monotonic() - released[0])
            left[0] -= 1
            released[0] = time.monotonic()
            api.release(lease)

    clients = [threading.Thread(target=take_turns) for _ in range(WAITERS + 1)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    yield ""
    yield f"Hand-over by release, {WAITERS} waiters, {len(took)} times: {percentiles(took)}."


def expiry(api, rounds):
    took = []
    for i in range(rounds):
        began = time.monotonic()
        status, lease = api.take(f"expires-{i}", ttl="5s", stop_grace="500ms")
        if status != 201:
            raise RuntimeError(f"no lease: {lease}")
        api.take(f"expires-{i}", wait="1m")
        took.append(time.monotonic() - began)
    yield ""
    yield f"Hand-over by expiry, TTL 5 s, {rounds} times: {percentiles(took)} behind the last that was heard of the holder."


def median(times):
    return sorted(times)[len(times) // 2]


def milliseconds(seconds):
    return f"{seconds * 1000:.2f} ms"


def until_it_runs(words):
    """From the start of a program until it, or what it starts, has written its first byte."""
    began = time.monotonic()
    with subprocess.Popen([*words, "/bin/echo"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        if child.stdout.read(1) != b"\n":
            raise RuntimeError(f"{words[0]}: nothing came")
        return time.monotonic() - began


def stripped_bytes(program):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["strip", "-o", file.name, program], check=True)
        return os.stat(file.name).st_size


def hold_start(sidecar, options, rounds):
    """What hold puts in front of a command: in turns with the command alone, and with the grant alone."""
    fencegate = options.fencegate
    small = os.path.join(os.path.dirname(fencegate), "fencegate-hold")
    api = Api(sidecar.socket)
    by_api = ["--api", f"unix:{sidecar.socket}", "--"]
    ways = [("fencegate-hold hold", [small, "hold"], by_api), ("fencegate hold --api", [fencegate, "hold"], by_api),
            ("fencegate hold -c", [fencegate, "hold"], ["-c", sidecar.path, "--"])]
    alone, grants, took = [], [], {name: [] for name, _, _ in ways}
    for i in range(rounds):
        alone.append(until_it_runs([]))
        began = time.monotonic()
        status, lease = api.take(f"start-{i}")
        if status != 201:
            raise RuntimeError(f"no lease: {lease}")
        grants.append(time.monotonic() - began)
        api.release(lease)
        for name, program, words in ways:
            took[name].append(until_it_runs([*program, f"start-{i}", *words]))
    rows = []
    for name, program, _ in ways:
        before = median(took[name]) - median(alone)
        rows.append([name, milliseconds(before), milliseconds(before - median(grants)), f"{stripped_bytes(program[0]) / 1e6:.1f} MB"])
    yield ""
    yield f"A grant with its seals, by POST, {rounds} times: p50 {milliseconds(median(grants))}."
    yield ""
    yield from table(["from exec until the command runs, p50", "all", "less the grant", "the program, stripped"], rows)
