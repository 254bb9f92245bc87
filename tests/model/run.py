"""./dev model [--trail] [RUN...]: has spin walk through the models in tests/model, whole: all states that they can reach.

What is fenced as the gate fences it must hold. What lacks a part of the mechanism must be refuted, and by the assertion that
the part is there for. --trail: prints the steps by which the named ones are refuted. RUN: their names; default: all."""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build/model"
COMPILE = ("gcc", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=1024", "-DMEMLIM=4096", "-o", "pan", "pan.c")
SEARCH = ("-E", "-n", "-m2000000", "-w23")  # no complaint of those who wait for ever; depth; 2^23 places for states
HOLDS = ""
LOWER, FORGOTTEN, UNTRUE = "1>=reached", "1>=acknowledged", "applied["

# Each with all that it can stand in a minute: losses of all data, connections that break, commands that fail.
OWN = "NO_SHARED WRITES=1"
SHARED = "NO_OWN WRITES=1 ERRORS=0"
BOTH = "WRITES=1 LOSSES=0 ERRORS=0"
# Name: macros, and the assertion by which it is to be refuted.
RUNS = {
    "own link": (OWN, HOLDS),
    "own link, two writes": ("NO_SHARED WRITES=2 LOSSES=0", HOLDS),
    "shared link": (SHARED, HOLDS),
    "shared and own link": (BOTH, HOLDS),
    "without WATCH": (OWN + " NO_WATCH", LOWER),
    "WATCH may fail": (OWN + " WATCH_NOT_DEMANDED", LOWER),
    "arm not awaited": (OWN + " NOT_AWAITED", LOWER),
    "MULTI may fail": (OWN + " MULTI_NOT_DEMANDED", LOWER),
    "epoch not read": (OWN + " NO_EPOCH", FORGOTTEN),
    "new epoch before all have put back": (OWN + " NO_QUIET", FORGOTTEN),
    "nil taken for done": (OWN + " NIL_IS_DONE", UNTRUE),
    "lost taken for not applied": (OWN + " LOST_IS_NOT_APPLIED", UNTRUE),
    "sent again when lost": (OWN + " SENT_AGAIN", UNTRUE),
    "shared link goes on after a raise": (SHARED + " LOSSES=0 SHARED_GOES_ON", LOWER),
    "shared link: arm not awaited": (SHARED + " NOT_AWAITED", LOWER),
    "shared link: sent again when lost": (SHARED + " SENT_AGAIN", UNTRUE),
    # That the model comes this far at all.
    "nothing commits after a loss": (OWN + " NEVER_AFTER_A_LOSS", "losses==0"),
    "nothing commits after a cut": (OWN + " NEVER_AFTER_A_CUT", "cuts==0"),
    "nothing commits on the shared link": (BOTH + " NEVER_SHARED", "1!=1"),
    "a write that is given back does not commit": (BOTH + " NEVER_GIVEN_BACK", "given_back"),
}


def run(name):
    """→ (verdict, states, complete): the assertion that was violated, HOLDS, or what went wrong."""
    macros, expected = RUNS[name]
    folder = BUILD / re.sub(r"\W+", "_", name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = HERE / "fence.pml"
    for command in (["spin", *(f"-D{one}" for one in macros.split()), "-a", model],
                    [*COMPILE, "-O0" if expected else "-O1"]):  # what is soon refuted takes longer to compile
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{name}: {done.stdout}{done.stderr}")
    said = subprocess.run(["./pan", *SEARCH], cwd=folder, capture_output=True, text=True).stdout
    (folder / "said").write_text(said)
    states = re.search(r"([\d.e+]+) states, stored", said)
    states = int(float(states[1])) if states else 0
    violated = re.search(r"assertion violated (.*) \(at depth", said)
    if violated:
        return violated[1], states
    complete = "errors: 0" in said and not re.search(r"not completed|too small|out of memory|aborted", said)
    return HOLDS if complete else "the search did not come to its end", states


def trail(name):
    folder = BUILD / re.sub(r"\W+", "_", name)
    macros, _ = RUNS[name]
    subprocess.run(["spin", *(f"-D{one}" for one in macros.split()), "-t", "-p", "-g", "-k", "fence.pml.trail", HERE / "fence.pml"],
                   cwd=folder, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trail", action="store_true")
    parser.add_argument("runs", nargs="*", metavar="RUN")
    wanted = parser.parse_args()
    unknown = set(wanted.runs) - set(RUNS)
    if unknown:
        parser.error(f"no run {', '.join(sorted(unknown))}; there are: {', '.join(RUNS)}")
    failed = []
    for name in wanted.runs or RUNS:
        began = time.monotonic()
        found, states = run(name)
        expected = RUNS[name][1]
        right = expected in found if expected else found == HOLDS
        verdict = f"refuted: {found}" if found else "holds"
        print(f"{'ok  ' if right else 'FAIL'} {name:44} {verdict:42} {states:9,} states {time.monotonic() - began:6.1f} s", flush=True)
        if not right:
            failed.append(name)
        if wanted.trail and found:
            trail(name)
    if failed:
        sys.exit(f"not as expected: {', '.join(failed)}")


if __name__ == "__main__":
    main()
