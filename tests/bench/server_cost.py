#!/usr/bin/env python3
"""What a way of fencing costs the Redis server itself: processor time per SET, by Redis's own account, without any proxy.

    server_cost.py [--rounds N] [--seconds S] [--connections N] [--load PATH]

plain        SET …
multi_ahead  SET … EXEC | WATCH mark epoch | MGET mark epoch | MULTI     the link waits inside MULTI for the next batch
wait_trip    MULTI | WAIT 99999 0 | SET … EXEC | WATCH … | MGET …        the trip-wire that blocks should MULTI be refused
evalsha      EVALSHA per SET: compare the mark, then SET
eval         the same with the script's text in every request, which cannot fail open on SCRIPT FLUSH

Rounds are interleaved; a figure is the median over the rounds of its ratio to plain in the same round.
"""

import argparse
import os
import statistics

from contenders import REPOSITORY, Contender, bench_redis
from measure import WARMUP_SECONDS, run_load
from report import machine, table

MODES = {"plain": "set", "multi_ahead": "multi_ahead", "wait_trip": "wait_trip", "evalsha": "evalsha", "eval": "eval"}
PIPELINES = (1, 16, 64)


def server_seconds(redis):
    used = redis.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def measure(options, redis):
    """{(mode, pipeline): [(microseconds of server time per SET, SETs per second) of each round]}"""
    found = {(mode, pipeline): [] for mode in MODES for pipeline in PIPELINES}
    for _ in range(options.rounds):
        for mode, pipeline in found:
            contender = Contender(mode, mode, redis, mode=MODES[mode])
            before = server_seconds(redis)
            figures = run_load(options.load, contender, "set", options.connections, pipeline, options.seconds)
            writes = figures["ops"] * (figures["seconds"] + WARMUP_SECONDS) / figures["seconds"]
            found[mode, pipeline].append(((server_seconds(redis) - before) / writes * 1e6, figures["rate"]))
    return found


def cells(found, mode, pipeline):
    pairs = list(zip(found[mode, pipeline], found["plain", pipeline]))
    cost = statistics.median(own[0] for own, _ in pairs)
    if mode == "plain":
        return f"{cost:.2f} µs ({statistics.median(own[1] for own, _ in pairs) / 1000:,.0f}k/s)"
    costs = statistics.median(own[0] / plain[0] for own, plain in pairs)
    rates = statistics.median(own[1] / plain[1] for own, plain in pairs)
    return f"{costs:.2f} × (rate {rates:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--load", default=os.environ.get("LOAD", f"{REPOSITORY}/build/release/tests/load"))
    options = parser.parse_args()
    print("\n".join(machine()))
    with bench_redis(durable=False) as redis:
        found = measure(options, redis)
    print(f"Redis processor time per 64-byte SET, {options.connections} connection(s), medians of {options.rounds} rounds:\n")
    rows = ([mode, *(cells(found, mode, pipeline) for pipeline in PIPELINES)] for mode in MODES)
    print("\n".join(table(["", *(f"pipeline {pipeline}" for pipeline in PIPELINES)], rows)))


if __name__ == "__main__":
    main()
