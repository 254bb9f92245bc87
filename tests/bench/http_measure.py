"""What is measured about HTTP: rates and latency by wrk, the same writes without HTTP, processor time, memory."""

import contextlib
import http.client
import json
import os
import re
import subprocess

from contenders import LOOPBACK
from http_contenders import BODY, IDS, POOL, TOKEN
from measure import IDLE_CONNECTIONS, cpu_seconds, run_load
from postgres import binary
from postgres_measure import server_seconds

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "http_wrk.lua")
# Row: what it is called, method, connections, resources.
ROWS = {
    "read-1": ("GET, 1 connection", "GET", 1, IDS),
    "read-64": ("GET, 64 connections", "GET", 64, IDS),
    "write-1": ("PUT, 1 connection", "PUT", 1, IDS),
    "write-64": ("PUT, 64 connections", "PUT", 64, IDS),
    "hot-64": ("PUT, 64 connections, one resource", "PUT", 64, 1),
}


class FailedRun(Exception):
    """Not a figure."""


def whole_seconds(options):
    return max(1, round(options.seconds))


class Wrk:
    """A column: wrk sends its requests to `front`, on paths that begin with `path`. `arrivals`: functions that count
    what has arrived where it should so far; each must have counted every request. `store_seconds`: the processor
    seconds that its store has used so far. `clear`: called before each run."""

    def __init__(self, key, title, front, rows, arrivals, path="/orders/", store_seconds=None, clear=None):
        self.key, self.title, self.front, self.rows, self.path = key, title, front, rows, path
        self.arrivals, self.store_seconds, self.clear = arrivals, store_seconds, clear

    def seconds(self):
        """Processor seconds of the process in front and of the store, so far."""
        return family_seconds(self.front.pid), self.store_seconds() if self.store_seconds else None

    def run(self, row, options):
        _, method, connections, ids = ROWS[row]
        if self.clear:
            self.clear()
        before, (front, store) = [count() for count in self.arrivals], self.seconds()
        write = [TOKEN, str(len(BODY))] if method == "PUT" else ["", "0"]
        seconds = whole_seconds(options)
        done = subprocess.run(["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "-s", SCRIPT,
                               f"http://{LOOPBACK}:{self.front.port}", "--", method, self.path, str(ids), *write],
                              capture_output=True, text=True, timeout=seconds + 60)
        front_after, store_after = self.seconds()
        if done.returncode != 0 or not done.stdout.strip():
            raise FailedRun(f"wrk ended with status {done.returncode}: {done.stderr.strip()}")
        figures = json.loads(done.stdout.splitlines()[-1])
        wrong = {name: count for name in ("connect", "read", "write", "status", "timeout") if (count := figures[name])}
        if wrong or not figures["requests"]:
            raise FailedRun(f"of {figures['requests']} requests, errors: {wrong}")
        for count, begin in zip(self.arrivals, before):
            if count() - begin < figures["requests"]:
                raise FailedRun(f"{figures['requests']} requests answered, {count() - begin} arrived")
        thousands = figures["requests"] / 1000
        out = {"rate": figures["requests"] / figures["seconds"], "p50": figures["p50_us"], "p99": figures["p99_us"],
               "front_cpu": (front_after - front) / thousands}
        return out if store is None else out | {"store_cpu": (store_after - store) / thousands}


class FencedSet:
    """A column: the same writes without HTTP, through a Redis gate (`contender`), by the load generator."""

    def __init__(self, contender, connections=64):
        self.key, self.title, self.rows = "set", "SET, Redis gate", {"write-64"}
        self.contender, self.connections = contender, connections

    def run(self, _, options):
        try:
            figures = run_load(options.load, self.contender, "set", self.connections, 1, options.seconds)
        except RuntimeError as error:
            raise FailedRun(str(error)) from error
        return {"rate": figures["rate"], "p50": figures["p50_us"], "p99": figures["p99_us"],
                "front_cpu": figures["server_cpu"] / 1000, "store_cpu": figures["redis_cpu"] / 1000}


class Pgbench:
    """A column: the transaction of the sql route without HTTP, from as many connections as fencegate has to PostgreSQL.
    (pgbench 15 does not prepare what is in a pipeline.)"""

    WAYS = ("prepared", "pipeline", "same")
    ID = f"\\set id random(1, {IDS})\n"
    INSERT = f"INSERT INTO bench_rows (client, body) VALUES (:id::int, '{BODY}');\n"
    CLAIM = f"ARRAY['order:' || :id::text], ARRAY[{TOKEN}::int8]"
    BY_HAND = f"BEGIN;\nSELECT fencegate.guard_under({CLAIM});\n{INSERT}COMMIT;\n"
    AS_FENCEGATE = f"SELECT fencegate.guard_under({CLAIM}, 10000), pg_catalog.set_config('statement_timeout', '10000', true);\n{INSERT}"

    def __init__(self, server, user, way):
        self.key, self.rows, self.server, self.user = way, {"write-64"}, server, user
        self.title, self.mode, statements = {
            "prepared": ("pgbench, prepared", "prepared", self.BY_HAND),
            "pipeline": ("pgbench, pipeline", "extended", self.BY_HAND),
            "same": ("pgbench, as fencegate", "extended", self.AS_FENCEGATE),
        }[way]
        begin, end = ("", "") if way == "prepared" else ("\\startpipeline\n", "\\endpipeline\n")
        self.script = os.path.join(server.folder, f"{way}.sql")
        with open(self.script, "w") as file:
            file.write(self.ID + begin + statements + end)

    def run(self, _, options):
        self.server.clear()
        used = server_seconds(self.server)
        login = {"PGHOST": LOOPBACK, "PGPORT": str(self.server.port), "PGUSER": self.user, "PGDATABASE": "postgres"}
        done = subprocess.run([binary("pgbench"), "-n", "-M", self.mode, "-f", self.script, "-c", str(POOL), "-j", "2",
                               "-T", str(whole_seconds(options))],
                              env=os.environ | login, capture_output=True, text=True, timeout=options.seconds + 60)
        used = server_seconds(self.server) - used
        rate = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
        count = re.search(r"^number of transactions actually processed: ([0-9]+)", done.stdout, re.M)
        failed = re.search(r"^number of failed transactions: ([0-9]+)", done.stdout, re.M)
        if done.returncode != 0 or not rate or not count or not failed or int(failed[1]):
            raise FailedRun(f"pgbench ended with status {done.returncode}: {done.stdout}{done.stderr}")
        rows = self.server.value("SELECT count(*) FROM bench_rows")
        if rows < int(count[1]):
            raise FailedRun(f"{count[1]} transactions, {rows} rows")
        return {"rate": float(rate[1]), "store_cpu": used / int(count[1]) * 1000}


# --------------------------------------------------------------------------------------------------------- processes


def family(pid):
    """The process and those below it."""
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{pid}/children") as file:
        return [pid, *(int(child) for child in file.read().split())]
    return [pid]


def family_seconds(pid):
    return sum(cpu_seconds(one) for one in family(pid))


def family_megabytes(pid):
    """Resident; what the processes share is counted once."""
    own, shared = 0, [0]
    for one in family(pid):
        with open(f"/proc/{one}/smaps_rollup") as file:
            sizes = {name: int(text.split()[0]) for name, text in (line.split(":", 1) for line in list(file)[1:])}
        own += sizes["Private_Clean"] + sizes["Private_Dirty"]
        shared.append(sizes["Shared_Clean"] + sizes["Shared_Dirty"])
    return (own + max(shared)) * 1024 / 1e6


def memory(makers):
    """{title: resident megabytes of a fresh process, idle and with 1,000 connections that have asked once}."""
    found = {}
    for title, make in makers:
        with make() as front, contextlib.ExitStack() as clients:
            idle = family_megabytes(front.pid)
            for number in range(IDLE_CONNECTIONS):
                connection = http.client.HTTPConnection(LOOPBACK, front.port, timeout=20)
                clients.enter_context(contextlib.closing(connection))
                connection.request("GET", f"/orders/{number}")
                answer = connection.getresponse()
                if answer.read() and answer.status != 200:
                    raise RuntimeError(f"{title}: {answer.status}")
            found[title] = {"idle": idle, "crowded": family_megabytes(front.pid)}
    return found
