"""PostgreSQL: direct, through proxies that do not fence, through fencegate, and with a mark raised by hand."""

import contextlib
import math
import statistics

from contenders import OUR_THREADS, THREADS
from postgres import binary
from postgres_contenders import TABLES, TUNED, BenchServer, all_ways
from postgres_measure import CONNECTIONS, commit_durably, first_uses, memory, run_copy, run_pgbench, takeovers
from report import interleave, median, ratio, table, target_table, version

# Row: what it is called, durable, script, clients. What only reads waits for a disk where a mark is raised by hand.
CELLS = {
    "durable-1": ("INSERT, durable, 1 client", True, "insert", 1),
    "durable-8": ("INSERT, durable, 8 clients", True, "insert", 8),
    "async-1": ("INSERT, synchronous_commit=off, 1 client", False, "insert", 1),
    "async-8": ("INSERT, synchronous_commit=off, 8 clients", False, "insert", 8),
    "select-1": ("SELECT 1, 1 client", False, "select", 1),
    "select-8": ("SELECT 1, 8 clients", False, "select", 8),
    "durable-select-1": ("SELECT 1, durable, 1 client", True, "select", 1),
    "durable-select-8": ("SELECT 1, durable, 8 clients", True, "select", 8),
}
# guard: transaction by pgbench's protocols: row → what it is called, protocol, clients. All commit asynchronously.
MODES = {f"{mode}-{clients}": (f"a row by its key, {mode}, {clients} client{'s' if clients > 1 else ''}", mode, clients)
         for mode in ("simple", "extended", "prepared") for clients in (1, 8)}
GUARDED = ("direct", "pool", "transaction")  # the columns of these rows
ALL_ROWS = [*CELLS, *MODES, "connect", "copy", "takeover", "memory"]
ROUNDS = 7
CONNECTING = 8  # clients of the row "connect"


def run(options, names):
    """The lines of the report."""
    rows = [name for name in names if name in CELLS or name in MODES or name in ("connect", "copy")]
    times, sizes = {}, {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(BenchServer())
        server.install()
        server.sql(TABLES)
        ways = all_ways(stack, server, options.fencegate)
        found = interleave(options.rounds, rows, ways, lambda row, way: measure(options, row, way))
        if "takeover" in names:
            count = 5 if options.quick else 100
            times = {way.key: first_uses(way, count) for way in ways if way.key in ("direct", "haproxy")}
            times |= {way.key: takeovers(way, count) for way in ways if way.key == "session"}
        if "memory" in names:
            sizes = memory(server, options.fencegate)
    yield from report(found, ways, times, sizes)


def measure(options, row, way):
    """The figures of one cell; None where it would say nothing new: marks raised by hand are not in the way here."""
    if row in MODES:
        return measure_mode(options, row, way) if way.key in GUARDED else None
    if way.key == "pool" or (row in ("connect", "copy") and way.kind != "plain"):
        return None
    if row == "copy":
        return run_copy(way, 4 if options.quick else 100)
    if row == "connect":
        commit_durably(way.server, False)
        return run_pgbench(way, "select", CONNECTING, options.seconds, connect=True)
    _, durable, what, clients = CELLS[row]
    commit_durably(way.server, durable)
    return run_pgbench(way, what, clients, options.seconds)


def measure_mode(options, row, way):
    """None where the pooler serves no prepared statements."""
    _, mode, clients = MODES[row]
    if way.key == "pool" and mode == "prepared":
        return None
    commit_durably(way.server, False)
    return run_pgbench(way, "read", clients, options.seconds, mode=mode)


# ----------------------------------------------------------------------------------------------------------- reporting


def heading(options):
    own = [version(options.fencegate, "--version")] if options.fencegate else []
    yield "Versions: " + "; ".join([version(binary("postgres"), "--version"), version(binary("pgbench"), "--version"),
                                    version("haproxy", "-v"), version("pgbouncer", "--version"), *own])
    seconds = max(1, round(options.seconds))
    yield (f"Measured: pgbench -M prepared, {options.rounds} interleaved rounds of {seconds} s, medians, rows counted. "
           "PostgreSQL synced to disk, autovacuum off. One row of 64 bytes per INSERT. "
           f"HAProxy: TCP mode, {THREADS} threads. PgBouncer: session pooling, 1 thread; keeps its connections to the "
           f"server. fencegate: {OUR_THREADS} threads, each connection with a token. guard: session arms each session once; "
           "also with settings for few clients. guard: transaction proves the token in each transaction, here without a "
           "pooler behind it. UPDATE by hand: BEGIN, UPDATE of a mark if it is not higher, the statement, COMMIT, without "
           "a proxy; and all of it as one statement.")
    yield "pgbench, PostgreSQL and the proxy share the processors above.\n"


def cell(value, form):
    return "–" if value is None else form.format(value)


def shares(found, row, ways, figure, form):
    """Of direct the figure itself, of the others the ratio to it, too."""
    for way in ways:
        value, share = median(found, row, way.key, figure), ratio(found, row, way.key, figure=figure)
        yield cell(value, form) if way.key == "direct" or share is None else f"{share:.2f} ({form.format(value)})"


def processor_cells(found, row, ways):
    for way in ways:
        front, server = median(found, row, way.key, "front_cpu"), median(found, row, way.key, "server_cpu")
        yield "–" if server is None else f"{front:.3f} + {server:.3f}" if way.front else f"{server:.3f}"


def report(found, ways, times, sizes):
    labels = {row: title for row, (title, *_) in CELLS.items()}
    labels["connect"] = f"a connection each, {CONNECTING} clients"
    rated = {row: title for row, title in labels.items() if row in found}
    pool = [way for way in ways if way.key == "pool"]
    ways = [way for way in ways if way.key != "pool"]
    header = ["", *(way.title for way in ways)]
    if rated:
        yield "Transactions per second, as a ratio to direct in the same round:\n"
        yield from table(header, ([title, *shares(found, row, ways, "rate", "{:,.0f}/s")]
                                  for row, title in rated.items()))
        yield "Processor seconds per 1,000 transactions (proxy + PostgreSQL):\n"
        yield from table(header, ([title, *processor_cells(found, row, ways)] for row, title in rated.items()))
    modes = {row: title for row, (title, *_) in MODES.items() if row in found}
    if modes:
        those = [way for way in [*ways, *pool] if way.key in GUARDED]
        yield "guard: transaction by protocol, without a pooler behind it; transactions per second as above:\n"
        yield from table(["", *(way.title for way in those)],
                         ([title, *shares(found, row, those, "rate", "{:,.0f}/s")] for row, title in modes.items()))
        yield from table(["", *(way.title for way in those)],
                         ([title, *processor_cells(found, row, those)] for row, title in modes.items()))
    if "copy" in found:
        yield "COPY, as a ratio to direct in the same round (unlogged table, lines of 1,000 bytes):\n"
        yield from table(header, ([f"COPY {side}", *shares(found, "copy", ways, side, "{:,.0f} MB/s")]
                                  for side in ("in", "out")))
    if times:
        yield ("Takeover: from the connect of the new holder to the end of its first statement, which needs a row that "
               "the old holder locked before it paused in its transaction. The others: the same without an old holder, "
               "whom they would wait for:\n")
        yield from table(["", "median", "p99", "times"],
                         ([way.title, f"{statistics.median(seen):.1f} ms", f"{percentile(seen, 0.99):.1f} ms",
                           str(len(seen))]
                          for way in ways if (seen := times.get(way.key))))
    if sizes:
        yield f"Resident memory, idle and with {CONNECTIONS} connections:\n"
        yield from table(["", "idle", f"{CONNECTIONS} connections"],
                         ([title, f"{size['idle']:.1f} MB", f"{size['crowded']:.1f} MB"]
                          for title, size in sizes.items()))
    yield from target_table(targets(found, times))


def percentile(ordered, share):
    """Nearest rank."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def targets(found, times):
    cells = [row for row in found if row in CELLS]
    takeover = times.get("session")
    return [
        ("guard: session ≥ PgBouncer in every cell", least(found, cells, "session", "pgbouncer"), ">=", 1.0,
         "{:.2f} of PgBouncer"),
        (f"… with {TUNED}", least(found, cells, "tuned", "pgbouncer"), ">=", 1.0, "{:.2f} of PgBouncer"),
        ("guard: session ≥ 0.95 of HAProxy in every cell", least(found, cells, "session", "haproxy"), ">=", 0.95,
         "{:.2f} of HAProxy"),
        (f"… with {TUNED}", least(found, cells, "tuned", "haproxy"), ">=", 0.95, "{:.2f} of HAProxy"),
        ("guard: transaction ≥ 2 × UPDATE by hand, 8 clients",
         least(found, [row for row in cells if row.endswith("-8")], "transaction", "update"), ">=", 2.0,
         "{:.2f} ×"),
        ("guard: transaction, simple, 8 clients ≥ 0.40 of direct", least(found, ["simple-8"], "transaction", "direct"), ">=",
         0.40, "{:.2f} of direct"),
        ("guard: transaction, prepared, 8 clients ≥ 0.37 of direct", least(found, ["prepared-8"], "transaction", "direct"),
         ">=", 0.37, "{:.2f} of direct"),
        ("median takeover ≤ 20 ms", statistics.median(takeover) if takeover else None, "<=", 20, "{:.1f} ms"),
        ("guard: session, COPY ≥ 0.8 of direct in and out",
         least(found, [row for row in found if row == "copy"], "session", "direct", ("in", "out")), ">=", 0.8,
         "{:.2f} of direct"),
    ]


def least(found, rows, column, to, figures=("rate",)):
    """The smallest of the medians of the ratios, or None where one is missing."""
    seen = [ratio(found, row, column, to, figure) for row in rows for figure in figures]
    return min(seen) if seen and None not in seen else None
