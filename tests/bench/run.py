#!/usr/bin/env python3
"""The benchmark: what a fence costs, against the plain server, against proxies that do not fence, and against fencing
without a proxy. All ways run in one sitting on the same server, one after the other within each round, and every figure
is a median over the rounds of a ratio to the same round's direct run: on a shared machine only ratios mean something.

    ./dev bench [redis] [postgres] [http] [leases] [--quick] [--only ROW]... [--rounds N] [--seconds S] [--durable]
                [--fencegate PATH] [--load PATH]

Without redis, postgres, http or leases all are measured. Rows of redis: 50x1, 8x1, 50x16, 1x1, 1x64 (SET, connections x
pipeline), incr, hset, lpush, mixed (50 x 1), mixed-8 (8 x 1), footprint (memory and start-up), waiting (clients that block). Rows of postgres: durable-1, durable-8, async-1, async-8 (INSERT with
synchronous_commit on and off, by 1 and 8 clients), select-1, select-8 (`SELECT 1`), connect (a new connection per
transaction), copy, takeover, memory, simple-1 to prepared-8 (guard: transaction by protocol: simple, extended, prepared, by
1 and 8 clients). Rows of http: read-1, read-64, write-1, write-64 (GET and PUT by 1 and 64
connections), hot-64 (PUT to one resource), http-memory, corpus (who lets which hostile requests and responses through). Rows of
leases: lease-grant, lease-renew, lease-many (1,000 at once), lease-handover, lease-expiry, lease-memory, hold-start (what hold puts
in front of a command).

--quick: one short round, to see that it runs. --rounds: default 7, http 5. --seconds: the length of one run, default 2.
--durable: Redis with an append-only file, synced every second; PostgreSQL behind HTTP synced, too. --fencegate, --load:
the programs, instead of those in build/release.
"""

import argparse
import os
import sys

import http_bench
import leases_bench
import postgres_bench
import redis_bench
from contenders import REPOSITORY
from measure import allow_many_files
from report import machine

BENCHMARKS = {"redis": redis_bench, "postgres": postgres_bench, "http": http_bench, "leases": leases_bench}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help="redis, postgres, http, leases; all without it")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--only", action="append", metavar="ROW", help="these rows only",
                        choices=[row for benchmark in BENCHMARKS.values() for row in benchmark.ALL_ROWS])
    parser.add_argument("--rounds", type=int, help="default: 7; http: 5")
    parser.add_argument("--seconds", type=float, default=2.0,
                        help="length of one run; with PostgreSQL and HTTP whole seconds")
    parser.add_argument("--durable", action="store_true",
                        help="Redis with its append-only file, synced every second; PostgreSQL behind HTTP synced, too")
    parser.add_argument("--fencegate", default=os.environ.get("FENCEGATE", f"{REPOSITORY}/build/release/fencegate"))
    parser.add_argument("--load", default=os.environ.get("LOAD", f"{REPOSITORY}/build/release/tests/load"))
    options = parser.parse_args()
    unknown = set(options.servers) - set(BENCHMARKS)
    if unknown:
        parser.error(f"there is no benchmark of {', '.join(sorted(unknown))}, but of {' and '.join(BENCHMARKS)}")
    options.servers = [name for name, benchmark in BENCHMARKS.items() if name in (options.servers or BENCHMARKS)
                       and (not options.only or set(options.only) & set(benchmark.ALL_ROWS))]
    if not options.servers:
        parser.error(f"nothing to measure: no such row as {', '.join(options.only)} with what was named")
    if options.quick:
        options.rounds, options.seconds = 1, 0.3
    options.failures = []
    if set(options.servers) & {"redis", "http"} and not os.path.exists(options.load):
        parser.error(f"{options.load} is missing: build the target `load`")
    if not os.path.exists(options.fencegate):
        print(f"No fencegate at {options.fencegate}: only the others are measured.\n")
        options.fencegate = None
    return options


def main():
    options = arguments()
    allow_many_files()
    rounds = options.rounds
    print("\n".join(machine()), flush=True)
    for name in options.servers:
        benchmark = BENCHMARKS[name]
        options.rounds = rounds or benchmark.ROUNDS
        print("\n".join(benchmark.heading(options)), flush=True)
        rows = [row for row in benchmark.ALL_ROWS if not options.only or row in options.only]
        for line in benchmark.run(options, rows):
            print(line, flush=True)
    if options.failures:
        sys.exit(f"{len(options.failures)} runs failed")


if __name__ == "__main__":
    main()
