#!/usr/bin/env python3
"""The soak: two sidecars with a gate of each protocol, one of which grants leases, too, for a long time under load, while
they are reloaded, the servers are killed and started again, passwords and certificates are rotated; beside them another,
in front of the same servers, which is drained, killed, frozen and cut off. Writers are under tokens that are superseded
all the time, jobs under leases. At the end no stale write is there, and no write is lost; memory is within a tenth of what
it was after the warm-up (a tenth of the time, at least a minute), no descriptor is left over, each gauge of what is open
is at zero.

    ./dev soak [--minutes N] [--pause SECONDS] [--fencegate PATH] [--keep DIR]

--minutes: default 60. --pause: of a writer between two writes, about; default 0.1. --fencegate: the program, instead of
that in build/release. --keep: where logs stay; default build/soak.
FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the machine's).
Exit: 0 nothing was wrong, 1 something was, 2 the fence had too little to do.
"""

import argparse
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/live"))


def say(text):
    print(text, flush=True)


def report(verdict, soak):
    for text in verdict.examples:
        say(text)
    say(f"soak: {(time.monotonic() - soak.begin) / 60:.0f} min, {verdict.takeovers} takeovers, writes {dict(verdict.outcomes)}, "
        f"rejections {dict(verdict.codes)}, seen {dict(verdict.noted)}, jobs {len(soak.jobs.began())} with exit statuses "
        f"{dict(soak.jobs.statuses)}, trouble {dict(soak.trouble.done)}, violations {dict(verdict.violations) or 'none'}")


def main():
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--fencegate", default=os.environ.get("FENCEGATE", f"{REPOSITORY}/build/release/fencegate"))
    parser.add_argument("--keep", default=f"{REPOSITORY}/build/soak")
    given = parser.parse_args()
    os.environ["FENCEGATE"] = os.path.abspath(given.fencegate)
    hold = os.environ.get("FENCEGATE_HOLD", f"{os.environ['FENCEGATE']}-hold")
    if os.path.exists(hold):
        os.environ["FENCEGATE_HOLD"] = hold
    seed = int(os.environ.get("FENCEGATE_SEED") or secrets.randbits(32))
    say(f"FENCEGATE_SEED={seed}")

    from live_test import clean_up_on_sigterm
    from soak import Soak

    clean_up_on_sigterm()
    folder = tempfile.mkdtemp(prefix="fencegate-soak-")
    os.chmod(folder, 0o755)  # servers run as other users
    try:
        soak = Soak(given.minutes, os.environ["FENCEGATE"], seed, given.pause, folder, say)
        verdict = soak.run()
        report(verdict, soak)
        if verdict.violations:
            return 1
        return 0 if verdict.takeovers and verdict.outcomes["rejected"] else 2
    finally:
        shutil.copytree(folder, given.keep, dirs_exist_ok=True)
        say(f"logs are in {given.keep}")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
