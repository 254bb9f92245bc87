"""HTTP: to the service directly, through proxies that do not fence, and the four ways of a write through fencegate."""

import contextlib

from contenders import OUR_THREADS, TAG, THREADS, Contender, FencedGate, bench_redis
from http_contenders import IDS, POOL, BenchHttpGate, HttpHaproxy, NginxProxy, Service
from http_corpus import corpus_report
from http_measure import ROWS, FailedRun, FencedSet, Pgbench, Wrk, memory, whole_seconds
from measure import cpu_seconds
from postgres import binary
from postgres_contenders import TABLES, USER, BenchServer
from postgres_measure import commit_durably, server_seconds
from report import interleave, median, ratio, table, target_table, version

ALL_ROWS = [*ROWS, "http-memory", "corpus"]
ROUNDS = 5
_READS = {"read-1", "read-64"}
_WRITES = {"write-1", "write-64"}
_FENCED = _WRITES | {"hot-64"}


def run(options, names):
    """The lines of the report. What failed is added to options.failures."""
    found, ways, sizes, failed, strictness = {}, [], {}, [], []
    rows = [name for name in names if name in ROWS]
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(bench_redis(options.durable))
        if rows or "http-memory" in names:
            service, server = stack.enter_context(Service()), stack.enter_context(bench_server(options.durable))
        if rows:
            ways = all_ways(stack, service, redis, server, options)
            found = interleave(options.rounds, rows, ways, lambda row, way: measure(options, failed, row, way))
        if "http-memory" in names:
            sizes = memory(proxies(service, redis, server, options.fencegate))
        if "corpus" in names:
            strictness = list(corpus_report(redis, options.fencegate))
    for row, key, _ in failed:
        found[row][key] = []  # the rounds of the others would no longer be beside its own
    yield from report(found, ways, sizes, failed)
    yield from strictness
    yield from target_table(targets(found))
    options.failures += [text for *_, text in failed]


@contextlib.contextmanager
def bench_server(durable):
    with BenchServer() as server:
        server.install()
        server.sql(TABLES)
        server.sql(f"GRANT fencegate_gate TO {USER}")
        commit_durably(server, durable)
        yield server


def proxies(service, redis, server, fencegate):
    """(title, how to make the process)"""
    yield "nginx", lambda: NginxProxy(service)
    yield "HAProxy", lambda: HttpHaproxy(service)
    if fencegate:
        yield "fencegate", lambda: BenchHttpGate(service, redis, server, USER, fencegate)


def all_ways(stack, service, redis, server, options):
    """Starts what is needed (`stack`: an ExitStack) and returns the columns in the order of the table."""
    nginx, haproxy, *own = [stack.enter_context(make())
                            for _, make in proxies(service, redis, server, options.fencegate)]
    ways = [Wrk("direct", "direct", service, _READS | _WRITES, [service.requests]),
            Wrk("nginx", "nginx", nginx, _READS | _FENCED, [service.requests]),
            Wrk("haproxy", "HAProxy", haproxy, _READS | _WRITES, [service.requests])]
    for gate in own:
        gate.prove_fence()
        gate.raise_marks()
        arrived = {"checked": service.requests, "held": service.requests, "redis": gate.redis_sets, "sql": gate.rows}
        redis_used, server_used = (lambda: cpu_seconds(redis.pid)), (lambda: server_seconds(server))
        ways.append(Wrk("pass", "fencegate, read", gate, _READS, [service.requests]))
        ways += [Wrk(key, title, gate, _FENCED, [arrived[key], gate.admitted], f"/{key}/", used,
                     clear=server.clear if key == "sql" else None)
                 for key, title, used in (("checked", "checked", redis_used), ("held", "held", server_used),
                                          ("redis", "atomic, Redis", redis_used), ("sql", "atomic, SQL", server_used))]
        fenced = stack.enter_context(FencedGate(redis, options.fencegate))
        fenced.prove_fence()
        contender = Contender("fenced", "SET, Redis gate", fenced, name=TAG, counts_writes=fenced.admitted)
        ways += [FencedSet(contender), *(Pgbench(server, USER, way) for way in Pgbench.WAYS)]
    return ways


def measure(options, failed, row, way):
    """The figures of one cell; None where there is nothing to measure, or it failed."""
    if row not in way.rows:
        return None
    try:
        return way.run(row, options)
    except FailedRun as failure:
        failed.append((row, way.key, f"{ROWS[row][0]}, {way.title}: {failure}"))
        return None


# ----------------------------------------------------------------------------------------------------------- reporting


def heading(options):
    own = [version(options.fencegate, "--version")] if options.fencegate else []
    redis = version("redis-server", "--version").split(" sha")[0]
    yield "Versions: " + "; ".join([version("wrk", "-v").split(" Copyright")[0], version("nginx", "-v"), redis,
                                    version("haproxy", "-v"), version(binary("postgres"), "--version"), *own])
    durable = "synced to disk" if options.durable else "without a wait for the disk"
    yield (f"Measured: wrk, 1 thread, {options.rounds} interleaved rounds of {whole_seconds(options)} s, medians, no "
           "error in any run, and what arrived counted at the other end. PUT: 64 bytes, one token, "
           f"{IDS:,} resources in turn, whose marks are at that token. The service: nginx, 1 worker, `return 200`. "
           f"nginx: {THREADS} workers, keeps its connections. HAProxy: HTTP mode, {THREADS} threads, "
           f"http-reuse always. fencegate: {OUR_THREADS} threads, {POOL} connections to PostgreSQL. Stores {durable}. "
           "SET: through the Redis gate, 64 connections, no pipeline. pgbench: the transaction of the SQL route, "
           f"{POOL} connections. Prepared: BEGIN, the check, the INSERT and COMMIT one by one; pipeline: these at once; "
           "as fencegate: what fencegate sends, the check and the INSERT at once.")
    yield "wrk, the service, the stores and the proxy share the processors above.\n"


def report(found, ways, sizes, failed):
    lost = {(row, key) for row, key, _ in failed}

    def cells(row, figure, form):
        for way in ways:
            runs = found[row][way.key]
            if (row, way.key) in lost or not runs or figure not in runs[0]:
                yield "FAILED" if (row, way.key) in lost else "–"
                continue
            text = form.format(median(found, row, way.key, figure))
            part = ratio(found, row, way.key, "nginx", figure) if way.key != "nginx" else None
            yield text if part is None else f"{part:.2f} ({text})"

    def rows(figure, form):
        return ([ROWS[row][0], *cells(row, figure, form)] for row in found)

    header = ["", *(way.title for way in ways)]
    if found:
        yield "Requests per second, as a ratio to nginx in the same round:\n"
        yield from table(header, rows("rate", "{:,.0f}/s"))
        yield "Microseconds of a request, median, as a ratio to nginx in the same round:\n"
        yield from table(header, rows("p50", "{:,.0f} µs"))
        yield "The same, 99th percentile:\n"
        yield from table(header, rows("p99", "{:,.0f} µs"))
        yield "Processor seconds per 1,000 requests (proxy, or service where it is direct, + store):\n"
        yield from table(header, ([ROWS[row][0], *processor_cells(found, row, ways, lost)] for row in found))
    if failed:
        yield "FAILED runs, whose cells have no figure:\n"
        yield from (f"- {text}" for *_, text in failed)
        yield ""
    if sizes:
        yield "Resident MB, idle and with 1,000 connections that have asked once and are kept:\n"
        yield from table(["", "idle", "1,000 connections"],
                         ([title, *(f"{size[when]:.1f} MB" for when in ("idle", "crowded"))]
                          for title, size in sizes.items()))


def processor_cells(found, row, ways, lost):
    for way in ways:
        used = [median(found, row, way.key, figure) for figure in ("front_cpu", "store_cpu")
                if figure in next(iter(found[row][way.key]), {})]
        yield " + ".join(f"{one:.4f}" for one in used) or ("FAILED" if (row, way.key) in lost else "–")


def targets(found):
    def of_nginx(row, column):
        return ratio(found, row, column, "nginx")

    return [
        *((f"reads ≥ 0.8 of nginx, {count}", of_nginx(f"read-{number}", "pass"), ">=", 0.8, "{:.2f} of nginx")
          for number, count in ((1, "1 connection"), (64, "64 connections"))),
        *((f"checked ≥ 0.5 of nginx, {count}", of_nginx(f"write-{number}", "checked"), ">=", 0.5, "{:.2f} of nginx")
          for number, count in ((1, "1 connection"), (64, "64 connections"))),
        ("atomic Redis ≥ 0.5 of SET through the Redis gate, 64 connections",
         ratio(found, "write-64", "redis", "set"), ">=", 0.5, "{:.2f} of SET"),
        *((f"atomic SQL, 64 connections ≥ 0.8 of pgbench, {POOL} connections, {how}",
           ratio(found, "write-64", "sql", way), ">=", 0.8, "{:.2f} of pgbench")
          for way, how in zip(Pgbench.WAYS, ("prepared", "in one pipeline", "in one pipeline, as fencegate"))),
    ]
