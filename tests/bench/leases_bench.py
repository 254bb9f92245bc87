"""Leases of both issuers: grants and renewals through the sidecar's API beside the same SQL and Lua sent directly, how long it
takes until the next holder may act, and what a sidecar with many leases needs."""

import contextlib
import os
import random
import subprocess
import tempfile
import threading
import time

import leases_drivers
from contenders import bench_redis
from lease_sidecar import Api, Sidecar
from leases_drivers import by_wrk
from measure import cpu_seconds
from postgres import run_sql
from postgres_contenders import BenchServer
from postgres_measure import commit_durably
from processes import eventually
from report import table
from test_hold import Hold

ALL_ROWS = ["lease-grant", "lease-renew", "lease-many", "lease-handover", "lease-expiry", "lease-memory", "hold-start"]
ROUNDS = 3
LEASES = 1000
AT_ONCE = 32  # resources of one request, at most
WAITERS = 4
TTL = 30
TIMES = {"ttl": "1h", "margin": "1s", "skew": "280ms", "round_trip": "500ms", "stop_grace": "500ms"}


class LeaseServer(BenchServer):
    def prepare_leases(self, durable):
        self.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            self.user(name)
        self.install("app", gate_users=("gate",))
        self.sql_in_app("CREATE TABLE written (by text); GRANT ALL ON written TO orders")
        commit_durably(self, durable)

    def sql_in_app(self, text):
        with contextlib.closing(self.connect(database="app")) as connection:
            return run_sql(connection, text)


class Alone(Sidecar):
    """With the gate and the store of its issuer alone, so that nothing but that is sealed."""

    def configure(self):
        whole = super().configure()
        gate = "db" if self.issuer == "ledger" else "cache"
        self.pg_port = self.redis_port = self.pg_port if self.issuer == "ledger" else self.redis_port
        return whole | {"stores": {self.issuer: whole["stores"][self.issuer]}, "gates": [one for one in whole["gates"] if one["name"] == gate]}


def heading(options):
    yield ""
    yield f"## Leases; {options.rounds} rounds"


def run(options, names):
    if not options.fencegate:
        return
    os.environ["FENCEGATE"] = options.fencegate
    for issuer, title in (("ledger", "PostgreSQL"), ("cache", "Redis")):
        with contextlib.ExitStack() as stack:
            redis, server = stack.enter_context(bench_redis(options.durable)), stack.enter_context(LeaseServer())
            server.prepare_leases(options.durable)
            yield ""
            yield f"### Leases of a {title}"
            alone = stack.enter_context(Alone(server, redis, TIMES, issuer=issuer))
            direct = leases_drivers.Postgres(server) if issuer == "ledger" else leases_drivers.Redis(redis)
            yield from with_one_place(alone, direct, options, names)
            alone.kill()
            yield from with_both(stack.enter_context(Sidecar(server, redis, TIMES, issuer=issuer)), options, names)


def with_one_place(sidecar, direct, options, names):
    api = Api(sidecar.socket)
    take(api, "first")  # who grants, and what is sealed, is known from then on
    before = sidecar.rss_bytes()
    if {"lease-renew", "lease-memory"} & set(names):
        for i in range(1, LEASES + 1):
            take(api, f"bench-{i}", id=f"{i:032x}", ttl=f"{TTL}s" if "lease-renew" not in names else "1h")
    if "lease-memory" in names:
        yield from memory(sidecar, api, before, options.seconds)
    if "lease-renew" in names:
        yield from compared("renewals", direct, options, lambda clients, seconds: direct.renewals(clients, seconds, LEASES),
                            lambda clients, seconds: by_wrk(sidecar, clients, seconds, "leases_wrk.lua", LEASES))
    if "lease-grant" in names:
        yield from compared("grants, seals and releases", direct, options, direct.grants,
                            lambda clients, seconds: by_wrk(sidecar, clients, seconds, "leases_grant_wrk.lua",
                                                            int(time.monotonic() * 1000) % (1 << 31), threads=clients) / 2)
    if "lease-many" in names:
        yield from many(api, options)


def with_both(sidecar, options, names):
    api = Api(sidecar.socket)
    if "lease-handover" in names:
        yield from handover(api, 20 if options.quick else 200)
    if "lease-expiry" in names:
        yield from expiry(sidecar, 1 if options.quick else 10)
    if "hold-start" in names and sidecar.issuer == "ledger":
        yield from hold_start(sidecar, options, 10 if options.quick else 100)


def take(api, *resources, **wish):
    status, lease = api.take(*resources, **wish)
    if status != 201:
        raise RuntimeError(f"no lease: {lease}")
    return lease


def memory(sidecar, api, before, seconds):
    """While nobody asks, and while each lease is renewed at a third of its TTL."""
    def share(work):
        spent, began = cpu_seconds(sidecar.pid), time.monotonic()
        work(began + max(seconds, 5))
        return (cpu_seconds(sidecar.pid) - spent) / (time.monotonic() - began) * 100

    def renew(end):
        with api.connected() as client:
            i = 0
            while (now := time.monotonic()) < end:
                i = i % LEASES + 1
                if api.ask("PUT", f"/v1/leases/{i:032x}", {"tokens": {f"bench-{i}": 1}}, client)[0] != 200:
                    raise RuntimeError("not renewed")
                time.sleep(max(0, now + TTL / 3 / LEASES - time.monotonic()))
    idle = share(lambda end: time.sleep(end - time.monotonic()))
    yield ""
    yield (f"{LEASES} leases held: {(sidecar.rss_bytes() - before) / LEASES / 1024:.1f} KiB of memory each; {idle:.1f} % of a "
           f"processor while nobody asks, {share(renew):.1f} % with {LEASES / (TTL / 3):.0f} renewals a second.")


def compared(what, direct, options, first, second):
    seconds = max(1, round(options.seconds))
    rows = []
    for clients in (1, 8, 64):
        rates = []
        for _ in range(options.rounds):
            rates.append((first(clients, seconds), second(clients, seconds)))
        by_ratio = sorted(rates, key=lambda one: one[1] / one[0])
        one = by_ratio[len(by_ratio) // 2]
        rows.append([str(clients), f"{one[0]:,.0f}", f"{one[1]:,.0f}", f"{one[1] / one[0]:.2f}"])
    yield ""
    yield from table([f"{what}, clients", direct.first, "API, a second", "ratio"], rows)


def many(api, options):
    """1,000 leases: taken and renewed, then released."""
    def took(groups, clients):
        waiting, lock, times = list(groups), threading.Lock(), {}

        def pass_on(what, ask):
            left = list(waiting)

            def work():
                with api.connected() as client:
                    while True:
                        with lock:
                            if not left:
                                return
                            group = left.pop()
                        ask(group, client)
            threads = [threading.Thread(target=work) for _ in range(clients)]
            began = time.monotonic()
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            times[what] = time.monotonic() - began
        held = {}

        def grant(group, client):
            status, lease = api.ask("POST", "/v1/leases", {"resources": group}, client)
            if status != 201:
                raise RuntimeError(f"no lease: {lease}")
            held[group] = lease
        pass_on("taken", grant)
        for what, method in (("renewed", "PUT"), ("released", "DELETE")):
            pass_on(what, lambda group, client, method=method: api.ask(method, f"/v1/leases/{held[group]['id']}",
                                                                       {"tokens": held[group]["tokens"]}, client))
        return times
    names = [f"many-{i}" for i in range(LEASES)]
    singly = [(name,) for name in names]
    ways = [("singly, one client", singly, 1), (f"singly, {AT_ONCE} clients", singly, AT_ONCE),
            (f"{AT_ONCE} in one request, one client", [tuple(names[i:i + AT_ONCE]) for i in range(0, LEASES, AT_ONCE)], 1)]
    rows = []
    for title, groups, clients in ways:
        times = sorted((took(groups, clients) for _ in range(options.rounds)), key=lambda one: one["taken"])
        middle = times[len(times) // 2]
        rows.append([title, *(f"{middle[what] * 1000:,.0f} ms" for what in ("taken", "renewed", "released"))])
    yield ""
    yield from table([f"{LEASES} leases", "taken", "renewed", "released"], rows)


def percentiles(times):
    times = sorted(times)
    return f"p50 {times[len(times) // 2] * 1000:.1f} ms, p99 {times[len(times) * 99 // 100] * 1000:.1f} ms"


def handover(api, rounds):
    """Clients take the lease in turn, and keep it for a moment; from the request that releases it until one of all the others, who
    have been waiting, has it."""
    released, took, turn, changed = [None], [], [0], threading.Condition()

    def take_turns():
        while turn[0] < rounds + WAITERS:
            lease = take(api, "handed-over", wait="1m")
            with changed:
                if released[0] and turn[0] < rounds:
                    took.append(time.monotonic() - released[0])
                turn[0] += 1
                mine = turn[0]
                changed.notify_all()
            time.sleep(random.uniform(0.05, 0.25))
            released[0] = time.monotonic()
            api.release(lease)
            with changed:
                changed.wait_for(lambda: turn[0] != mine or mine >= rounds)

    clients = [threading.Thread(target=take_turns) for _ in range(WAITERS + 1)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    yield ""
    yield f"Hand-over by release, {WAITERS} waiters, {len(took)} times: {percentiles(took)}."


def expiry(sidecar, rounds):
    """From SIGSTOP of a holder, with all its processes, until the next one's first write is committed, by psql through the gate."""
    took = []
    for i in range(rounds):
        words = (f"expires-{i}", "--ttl", "5s")
        with Hold(sidecar, *words, command=["sh", "-c", "echo up; sleep 1000"]) as old:
            if old.child.stdout.readline() != "up\n":
                raise RuntimeError(f"no lease: {old.ended()}, {old.said}")
            job = "psql -qXc \"INSERT INTO written VALUES ('next')\" && echo written"
            with Hold(sidecar, *words, command=["sh", "-c", job]) as new:
                eventually(lambda: "waiting" in new.child.stderr.readline())
                old.freeze()
                began = time.monotonic()
                if new.child.stdout.readline() != "written\n":
                    raise RuntimeError(f"not written: {new.ended()}, {new.said}")
                took.append(time.monotonic() - began)
    yield ""
    yield f"Hand-over by expiry, TTL 5 s, {rounds} times, from SIGSTOP to the next one's first write: {percentiles(took)}."


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
        lease = take(api, f"start-{i}")
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
