#!/usr/bin/env python3
"""The benchmark: what a fence costs, against plain Redis, against proxies that do not fence, and against fencing without
a proxy. All ways run in one sitting on the same Redis, one after the other within each round, and every figure is a
median over the rounds of a ratio to the same round's direct run: on a shared machine only ratios mean something.

    run.py [--quick] [--only ROW]... [--rounds N] [--seconds S] [--durable] [--fencegate PATH] [--load PATH]

ROW: 50x1, 50x16, 1x1, 1x64 (connections x pipeline), footprint (memory and start-up).
"""

import argparse
import contextlib
import os
import platform
import re
import statistics
import subprocess
import sys

from contenders import REPOSITORY, THREADS, all_contenders, bench_redis
from measure import allow_many_files, footprint, run_load

ROWS = {"50x1": (50, 1), "50x16": (50, 16), "1x1": (1, 1), "1x64": (1, 64)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--only", action="append", choices=[*ROWS, "footprint"], help="these rows only")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run")
    parser.add_argument("--durable", action="store_true", help="Redis with its append-only file, synced every second")
    parser.add_argument("--fencegate", default=os.environ.get("FENCEGATE", f"{REPOSITORY}/build/release/fencegate"))
    parser.add_argument("--load", default=os.environ.get("LOAD", f"{REPOSITORY}/build/release/tests/load"))
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.3
    if not os.path.exists(options.load):
        parser.error(f"{options.load} is missing: build the target `load`")
    if not os.path.exists(options.fencegate):
        print(f"No fencegate at {options.fencegate}: only the others are measured.\n")
        options.fencegate = None
    return options


# ------------------------------------------------------------------------------------------------------------ running


def run_rounds(options, rows, contenders):
    """{row: {column: [figures of each round]}}. The order turns by one column each round."""
    found = {row: {contender.key: [] for contender in contenders} for row in rows}
    for number in range(options.rounds):
        for row in rows:
            shift = number % len(contenders)
            for contender in contenders[shift:] + contenders[:shift]:
                progress(f"round {number + 1} of {options.rounds}: {row} {contender.title}")
                found[row][contender.key].append(run_load(options.load, contender, *ROWS[row], options.seconds))
    progress("")
    return found


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def ratio(found, row, column, to="direct", figure="rate"):
    """Median over the rounds of column / to, or None where one of them was not measured."""
    runs = found.get(row, {})
    if not runs.get(column) or not runs.get(to):
        return None
    return statistics.median(a[figure] / b[figure] for a, b in zip(runs[column], runs[to]))


def added(found, row, column, figure):
    """Median over the rounds of the microseconds above direct, or None."""
    runs = found.get(row, {})
    if not runs.get(column):
        return None
    return statistics.median(a[figure] - b[figure] for a, b in zip(runs[column], runs["direct"]))


# ---------------------------------------------------------------------------------------------------------- reporting


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    load1 = os.getloadavg()[0]
    yield f"Machine: {os.cpu_count()} x {model[1] if model else platform.machine()}, Linux {platform.release()}, loopback TCP"
    if load1 > 0.5:
        yield f"The machine was NOT quiet at the start: load average {load1:.2f}."


def version(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip().splitlines()[0]


def versions(options):
    yield "Versions: " + "; ".join([version("redis-server", "--version").split(" sha")[0], version("haproxy", "-v"),
                                    version("nutcracker", "-V"), *([version(options.fencegate, "--version")] if options.fencegate else [])])


def heading(options):
    yield from machine()
    yield from versions(options)
    yield (f"Measured: 64-byte SET, {options.rounds} interleaved rounds of {options.seconds} s, medians, every reply compared. "
           f"Redis {'with appendfsync everysec' if options.durable else 'without persistence'}. HAProxy: TCP mode, {THREADS} threads. "
           f"twemproxy: 1 thread, 1 backend connection. fencegate: {THREADS} threads; monitor: untagged writers; fenced: each "
           "connection named with a tag, each write proved against its mark. EVALSHA: a script per write compares mark and token; no proxy.")
    yield "The load generator, Redis and the proxy share the processors above.\n"


def table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def rate_rows(found, contenders):
    for row, runs in found.items():
        cells = [row.replace("x", " × ")]
        for contender in contenders:
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
        cells = [row.replace("x", " × ")]
        for contender in contenders:
            redis = statistics.median(run["redis_cpu"] for run in runs[contender.key])
            proxy = statistics.median(run["server_cpu"] for run in runs[contender.key])
            cells.append(f"{redis:.2f}" if contender.key in ("direct", "evalsha") else f"{proxy:.2f} + {redis:.2f}")
        yield cells


def report(found, contenders, sizes):
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
    yield from table(["target", "measured", ""], target_rows(found, sizes))


def target_rows(found, sizes):
    own = sizes.get("fencegate-fenced", {})
    p50, p50_haproxy = added(found, "1x1", "fenced", "p50_us"), added(found, "1x1", "haproxy", "p50_us")
    targets = [
        ("fenced ≥ HAProxy at 50 × 16", ratio(found, "50x16", "fenced", "haproxy"), ">=", 1.0, "{:.2f} of HAProxy"),
        ("fenced ≥ 0.9 of HAProxy at 50 × 1", ratio(found, "50x1", "fenced", "haproxy"), ">=", 0.9, "{:.2f} of HAProxy"),
        ("fenced ≥ 2.5 × EVALSHA per write at 1 × 64", ratio(found, "1x64", "fenced", "evalsha"), ">=", 2.5, "{:.2f} ×"),
        ("added p50 at 1 × 1 ≤ 1.5 × HAProxy's", None if p50 is None or not p50_haproxy else p50 / p50_haproxy, "<=", 1.5, "{:.2f} ×"),
        ("≤ 12 MB idle", own.get("idle"), "<=", 12, "{:.1f} MB"),
        ("≤ 40 MB with 1,000 connections", own.get("crowded"), "<=", 40, "{:.1f} MB"),
        ("≤ 30 MB above idle for a 256 MB value", own.get("large"), "<=", 30, "{:.1f} MB"),
    ]
    for text, value, side, bound, form in targets:
        if value is None:
            yield [text, "–", "not measured"]
        else:
            reached = value >= bound if side == ">=" else value <= bound
            yield [text, form.format(value), "reached" if reached else "MISSED"]


def main():
    options = arguments()
    allow_many_files()
    rows = [row for row in ROWS if not options.only or row in options.only]
    print("\n".join(heading(options)), flush=True)
    found, contenders, sizes = {}, [], {}
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(bench_redis(options.durable))
        if rows:
            contenders = all_contenders(stack, redis, options.fencegate)
            found = run_rounds(options, rows, contenders)
        if not options.only or "footprint" in options.only:
            sizes = footprint(redis, options.fencegate, options.quick)
    print("\n".join(report(found, contenders, sizes)))


if __name__ == "__main__":
    main()
