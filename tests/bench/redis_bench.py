"""Writing to Redis: direct, through proxies that do not fence, through fencegate, and with a script that fences."""

import contextlib
import statistics

import waiting
from contenders import OUR_THREADS, THREADS, TUNED, all_contenders, bench_redis
from measure import footprint, run_load
from report import interleave, ratio, table, target_table, version

ROWS = {"50x1": ("set", 50, 1), "8x1": ("set", 8, 1), "50x16": ("set", 50, 16), "1x1": ("set", 1, 1), "1x64": ("set", 1, 64),
        "incr": ("incr", 50, 1), "hset": ("hset", 50, 1), "lpush": ("lpush", 50, 1), "mixed": ("mixed", 50, 1), "mixed-8": ("mixed", 8, 1)}
ALL_ROWS = [*ROWS, "footprint", "waiting"]
ROUNDS = 7


def run(options, names):
    """The lines of the report."""
    rows = [name for name in names if name in ROWS]
    found, contenders, sizes, waits = {}, [], {}, []
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(bench_redis(options.durable))
        if rows:
            contenders = all_contenders(stack, redis, options.fencegate)
            found = interleave(options.rounds, rows, contenders,
                               lambda row, contender: run_load(options.load, contender, *ROWS[row], options.seconds))
        if "footprint" in names:
            sizes = footprint(redis, options.fencegate, options.quick)
        if "waiting" in names:
            waits = waiting.waiting(redis, options.fencegate, options.quick)
    yield from report(found, contenders, sizes, waits)


def title_of(row):
    kind, connections, pipeline = ROWS[row]
    return f"{kind.upper() if kind != 'mixed' else kind} {connections} × {pipeline}"


def added(found, row, column, figure):
    """Median over the rounds of the microseconds above direct, or None."""
    runs = found.get(row, {})
    if not runs.get(column):
        return None
    return statistics.median(a[figure] - b[figure] for a, b in zip(runs[column], runs["direct"]))


# ----------------------------------------------------------------------------------------------------------- reporting


def versions(options):
    yield "Versions: " + "; ".join([version("redis-server", "--version").split(" sha")[0], version("haproxy", "-v"),
                                    version("nutcracker", "-V"), *([version(options.fencegate, "--version")] if options.fencegate else [])])


def heading(options):
    yield from versions(options)
    yield (f"Measured: writes of 64 bytes, {options.rounds} interleaved rounds of {options.seconds} s, medians, every reply compared. "
           f"Redis {'with appendfsync everysec' if options.durable else 'without persistence'}. HAProxy: TCP mode, {THREADS} threads. "
           f"twemproxy: 1 thread, 1 backend connection. fencegate: {OUR_THREADS} threads; monitor: untagged writers; fenced: each "
           f"connection named with a tag, each write proved against its mark; also with {TUNED}. Mixed: SET, INCR, HSET, LPUSH, EXPIRE and DEL. EVALSHA: a script per write compares mark and token; no proxy.")
    yield "The load generator, Redis and the proxy share the processors above.\n"


def rate_rows(found, contenders):
    for row, runs in found.items():
        cells = [title_of(row)]
        for contender in contenders:
            if not runs[contender.key]:
                cells.append("–")
                continue
            rate = statistics.median(run["rate"] for run in runs[contender.key])
            share = ratio(found, row, contender.key)
            cells.append(f"{rate / 1000:,.1f}k/s" if contender.key == "direct" else f"{share:.2f} ({rate / 1000:,.1f}k/s)")
        yield cells


def latency_rows(found, contenders):
    for figure in ("p50_us", "p99_us"):
        cells = [figure.split("_")[0]]
        for contender in contenders:
            if contender.key == "direct":
                cells.append(f"{statistics.median(run[figure] for run in found['1x1']['direct']):.1f} µs")
            else:
                cells.append(f"+{added(found, '1x1', contender.key, figure):.1f} µs".replace("+-", "-"))
        yield cells


def processor_rows(found, contenders):
    for row, runs in found.items():
        cells = [title_of(row)]
        for contender in contenders:
            if not runs[contender.key]:
                cells.append("–")
                continue
            redis = statistics.median(run["redis_cpu"] for run in runs[contender.key])
            proxy = statistics.median(run["server_cpu"] for run in runs[contender.key])
            cells.append(f"{redis:.2f}" if contender.key in ("direct", "evalsha") else f"{proxy:.2f} + {redis:.2f}")
        yield cells


def report(found, contenders, sizes, waits):
    titles = [contender.title for contender in contenders]
    if found:
        yield "Writes per second, as a ratio to direct in the same round (connections × pipeline):\n"
        yield from table(["", *titles], rate_rows(found, contenders))
    if "1x1" in found:
        yield "Time of one write at 1 × 1: direct, and what the others add:\n"
        yield from table(["", *titles], latency_rows(found, contenders))
    if found:
        yield "Processor seconds per million writes (proxy + Redis):\n"
        yield from table(["", *titles], processor_rows(found, contenders))
    if sizes:
        yield "Footprint: resident MB idle, with 1,000 idle connections, and above idle while a 256 MB value is written and read; start-up from exec to the first accepted connection:\n"
        labels = {"idle": "{:.1f} MB", "crowded": "{:.1f} MB", "large": "+{:.1f} MB", "startup": "{:.1f} ms"}
        yield from table(["", "idle", "1,000 connections", "256 MB value", "start-up"],
                         ([title, *(text.format(figures[key]) if key in figures else "–" for key, text in labels.items())]
                          for title, figures in sizes.items()))
    if waits:
        yield "Clients that wait by BLPOP and get nothing, under a tag where there is a fence:\n"
        yield from table(["", "clients", "commands a second", "Redis, of a processor", "fencegate, of a processor"], waits)
    yield from target_table(targets(found, sizes))


def targets(found, sizes):
    own = sizes.get("fencegate-fenced", {})
    p50, p50_haproxy = added(found, "1x1", "fenced", "p50_us"), added(found, "1x1", "haproxy", "p50_us")
    return [
        *[(f"fenced ≥ {least} of {other} at {title_of(row)}", ratio(found, row, "fenced", key), ">=", least, "{:.2f}")
          for row, haproxy, direct in (("50x1", 1.2, 0.9), ("8x1", 1.2, 0.9), ("50x16", 1.0, 0.75))
          for other, key, least in (("HAProxy", "haproxy", haproxy), ("direct", "direct", direct))],
        *[(f"processor time of Redis ≤ {most} of direct at {title_of(row)}", ratio(found, row, "fenced", figure="redis_cpu"), "<=", most,
           "{:.2f}") for row, most in (("50x1", 0.4), ("8x1", 1.0), ("50x16", 1.1))],
        ("fenced ≥ 2.5 × EVALSHA per write at SET 1 × 64", ratio(found, "1x64", "fenced", "evalsha"), ">=", 2.5, "{:.2f} ×"),
        ("added p50 at SET 1 × 1 ≤ HAProxy's", None if p50 is None or not p50_haproxy else p50 / p50_haproxy, "<=", 1.0, "{:.2f} ×"),
        ("≤ 12 MB idle", own.get("idle"), "<=", 12, "{:.1f} MB"),
        ("≤ 40 MB with 1,000 connections", own.get("crowded"), "<=", 40, "{:.1f} MB"),
        ("≤ 30 MB above idle for a 256 MB value", own.get("large"), "<=", 30, "{:.1f} MB"),
    ]
