"""The history test of the HTTP gate: as run.py, with writers to routes of all kinds at once: statements in PostgreSQL,
commands in Redis, the same with tokens that are good for one request, forwards that are held and forwards that are only
checked. The order of commits, of the list and of the upstream's own log are the judges.

    http_run.py [--binary PATH] [--takeovers N] [--seconds-max S]
                                                            exit 0: no violation, 1: violations, 2: too few takeovers,
                                                            stale tries or forwards that were cut
    FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the machine's)."""

import argparse
import contextlib
import http.client
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cut_proxy import CutProxy
from history.checker import Verdict, check
from history.http_forwards import judge_forwards, read_forwards
from history.http_once import judge_once, marks_in
from history.pg_run import Server
from history.rig import Rig, run_and_exit
from http_gate import HttpGate
from processes import LOOPBACK, Process, eventually, free_port
from redis_server import RedisServer

KINDS = ("sql", "redis", "held", "checked")
ONCE = ("oncesql", "onceredis")  # equal_token: reject
# What is in front of the dash says how it is written to.
RESOURCES = ("sql-orders", "redis-stock", "held-mail", "checked-jobs", "sql-ledger", "held-files", "oncesql-bids",
             "onceredis-votes")


def kind_of(resource):
    return resource.split("-")[0]


INSERT = ("insert into writes (resource, token, writer, seq) select $1, $2::bigint, $3, s"
          " from generate_series($4::integer, $5::integer) s, pg_sleep($6::double precision)")
ROUTES = [
    {"match": "POST /sql/{resource}/{lease}/{writer}/{first}/{last}", "resource": "{resource}", "sql": INSERT,
     "params": ["{resource}", "{lease}", "{writer}", "{first}", "{last}", "{query.nap}"]},
    {"match": "GET /position/{resource}", "resource": "{resource}",
     "sql": "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as position"},
    {"match": "PUT /redis/{resource}", "resource": "{resource}", "store": "cache",
     "redis": ["RPUSH", "log:{resource}", "{body}"]},
    {"match": "PUT /held/{resource}", "resource": "{resource}"},
    {"match": "PUT /checked/{resource}", "resource": "{resource}", "store": "cache"},
    {"match": "POST /oncesql/{resource}/{lease}/{writer}/{first}/{last}", "resource": "{resource}", "sql": INSERT,
     "params": ["{resource}", "{lease}", "{writer}", "{first}", "{last}", "{query.nap}"],
     "policy": {"equal_token": "reject"}},
    {"match": "GET /oncesql/{resource}/{lease}", "resource": "{resource}", "params": ["{resource}", "{lease}"],
     "sql": "select exists (select from writes where resource = $1 and token = $2::bigint) as applied"},
    {"match": "PUT /onceredis/{resource}", "resource": "{resource}", "store": "cache",
     "redis": ["RPUSH", "log:{resource}", "{body}"], "policy": {"equal_token": "reject"}},
    {"match": "GET /onceredis/{resource}/{lease}", "resource": "{resource}", "store": "cache",
     "redis": ["LRANGE", "log:{resource}", "-100", "-1"]},
]


class Upstream(Process):
    title = "upstream"

    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def prepare(self):
        self.port = free_port()

    def command(self):
        script = str(Path(__file__).resolve().parent / "upstream.py")
        return [sys.executable, script, str(self.port), self.writes, str(self.seed)]

    @property
    def writes(self):
        return os.path.join(self.folder, "writes")

    def others(self):
        """How many connections of others it serves."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            connection.request("GET", "/")
            return int(connection.getresponse().read())
        finally:
            connection.close()

    def up(self):
        return self.others() == 0

    def forwards(self):
        with open(self.writes) as file:
            return read_forwards(file)


class Backends:
    """All that is behind the gates, or behind proxies in front of it."""

    def __init__(self, seed):
        self.postgres, self.redis = Server(open_marks=False, pooled=False), RedisServer()
        self.upstream = Upstream(seed)
        self.show_log = False

    @property
    def all(self):
        return self.postgres, self.redis, self.upstream

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for one in self.all:
                stack.enter_context(one)
            self.postgres.sql("GRANT INSERT ON writes TO gate")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        for one in self.all:
            one.show_log = self.show_log
        return self._stack.__exit__(*exception)


class BackProxies:
    """In front of all three, as one network: held back and cut together."""

    def __init__(self, backends):
        self.postgres, self.redis, self.upstream = map(lambda one: CutProxy(one.port), backends.all)

    @property
    def all(self):
        return self.postgres, self.redis, self.upstream

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for one in self.all:
                stack.enter_context(one)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def freeze(self):
        for one in self.all:
            one.freeze()

    def thaw(self):
        """The upstream's answers come last: that a network brings them before the news that their holds have ended, a
        gate has no means to see."""
        self.postgres.thaw()
        self.redis.thaw()
        eventually(lambda: self.postgres.pieces == 0, every=0.001)
        self.upstream.thaw()

    def cut_all(self):
        return sum(one.cut_all() for one in self.all)


class HttpRun(Rig):
    """Writers to HTTP gates."""

    writers_count = 16
    resources = RESOURCES

    def __init__(self, binary=None, takeovers=300, seconds_max=240):
        super().__init__(binary, takeovers, seconds_max)

    def make_server(self):
        return Backends(self.seed)

    def make_back(self, upstream):
        return BackProxies(upstream)

    def make_gate(self, upstream):
        postgres, redis, _ = upstream.all
        stores = {"ledger": f"postgres://gate@{LOOPBACK}:{postgres.port}/postgres",
                  "cache": f"redis://{LOOPBACK}:{redis.port}"}
        gate = HttpGate(upstream.upstream, stores, ROUTES, extra={"hold_grace": "100ms"}, binary=self.binary)
        gate.needs_backend = False  # in the middle of the trouble, it may have to wait for a frozen session
        return gate

    def script_of(self, resource):
        return "http_once_writer.py" if kind_of(resource) in ONCE else "http_writer.py"

    def writer_arguments(self, resource, gate_ports):
        return gate_ports

    def trouble(self):
        postgres, redis, upstream = self.server.all

        def one_session(chaos):
            pids = postgres.processes("gate")
            return chaos.random.choice(pids) if pids else None

        def freeze_session(chaos):
            """The server's side of it, wherever it is: in a commit, with a lock."""
            if (pid := one_session(chaos)) is None:
                return False

            def freeze():
                with contextlib.suppress(ProcessLookupError):
                    postgres.freeze(pid)

            return chaos.freeze_for_a_while(pid, freeze, lambda: postgres.thaw(pid), 0.03, 0.4)

        def end_session(chaos):
            """As an administrator does, or a raise that means the request before."""
            if (pid := one_session(chaos)) is None:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            return True

        def crash_postgres(_):
            return postgres.crash()

        def freeze_redis(chaos):
            return chaos.freeze_for_a_while(redis, redis.stop_process, redis.continue_process, 0.03, 0.3)

        def freeze_upstream(chaos):
            return chaos.freeze_for_a_while(upstream, upstream.stop_process, upstream.continue_process, 0.03, 0.4)

        return {"more": {freeze_session: 15, end_session: 5, crash_postgres: 1, freeze_redis: 5, freeze_upstream: 10}}

    def left_alone(self):
        postgres, redis, upstream = self.server.all
        return (postgres.up() and redis.info("clients")["connected_clients"] == "1" and upstream.others() == 0
                and postgres.value("SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'gate'"))

    def judge(self, histories):
        of = {kind: [history for history in histories if kind_of(history.resource) == kind]
              for kind in KINDS + ONCE}
        forwards = self.server.upstream.forwards()
        commits = self.server.postgres.commits()
        verdicts = {kind: self._judge_sql(kind, commits, of[kind]) for kind in ("sql", "oncesql")}
        verdicts |= {kind: self._judge_redis(kind, of[kind]) for kind in ("redis", "onceredis")}
        for kind in ("held", "checked"):
            logs = {resource: forwards[resource] for resource in RESOURCES if kind_of(resource) == kind}
            verdicts[kind] = judge_forwards(logs, of[kind], kind)
        verdict = Verdict()
        for kind, one in verdicts.items():
            for what in ("stale", "mark", "unproven"):
                one.noted[f"{kind} {what}"] = one.violations[what]
            for history in of[kind]:
                for write in history.writes.values():
                    one.noted[f"{kind} {write.outcome} {write.code}".rstrip()] += 1
            verdict.include(one)
        return verdict

    def _judge_sql(self, kind, commits, histories):
        for history in histories:
            history.bound = [(token, commits.length_at(history.resource, position))
                             for token, position in history.bound]
        lists = {resource: commits.lists[resource] for resource in RESOURCES if kind_of(resource) == kind}
        verdict = check(lists, histories, commits.marks)
        if kind in ONCE:
            marks = {resource: [mark for mark, _ in commits.marks[resource]] for resource in lists}
            judge_once(verdict, lists, histories, marks)
        return verdict

    def _judge_redis(self, kind, histories):
        redis = self.server.redis
        lists = {}
        for resource in RESOURCES:
            if kind_of(resource) == kind:
                lists[resource] = [entry.decode() for entry in redis.cli.call("LRANGE", f"log:{resource}", 0, -1)]
        verdict = check(lists, histories)
        if kind in ONCE:
            (log,) = Path(redis.folder).glob("appendonlydir/*.incr.aof")
            judge_once(verdict, lists, histories, defaultdict(list, marks_in(log.read_bytes())))
        return verdict


def had_to_fence(verdict):
    """Old holders tried to write, and forwards were cut."""
    return all(verdict.noted[f"{kind} rejected 412"] > 0 for kind in KINDS) \
        and all(verdict.noted[f"{kind} rejected 409"] > 0 for kind in ONCE) \
        and verdict.noted["held unknown 504"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="default: $FENCEGATE")
    parser.add_argument("--takeovers", type=int, default=300)
    parser.add_argument("--seconds-max", type=float, default=240)
    options = parser.parse_args()
    return run_and_exit(HttpRun(options.binary, options.takeovers, options.seconds_max), had_to_fence)


if __name__ == "__main__":
    sys.exit(main())
