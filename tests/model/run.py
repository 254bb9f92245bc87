"""./dev model [--trail] [--long] [RUN...]: has spin walk through the models in tests/model, whole: all states that they can reach.

What is fenced as the gate fences it must hold. What lacks a part of the mechanism must be refuted, and by the assertion that
the part is there for. --trail: prints the steps by which the named ones are refuted. --long: also what takes minutes.
RUN: their names; default: all."""

import argparse
import concurrent.futures
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
AT_ONCE = 2
HOLDS = ""
LOWER, FORGOTTEN, UNTRUE = "1>=reached", "1>=acknowledged", "applied["

OWN = "NO_SHARED WRITES=1"
SHARED = "NO_OWN WRITES=1 ERRORS=0"
BOTH = "WRITES=1 ERRORS=0"
NEITHER = " LOSSES=0 CUTS=0"
CALM = NEITHER + " ERRORS=0"
LOSS = " CUTS=0 ERRORS=0"
CUT = " LOSSES=0 ERRORS=0"
# Of fence.pml. Name: macros, and the assertion by which it is to be refuted. What holds, holds with one loss of all data, one
# connection that breaks and one command that fails, as far as these are not taken out.
RUNS = {
    "own link": (OWN, HOLDS),
    "own link, two writes": ("NO_SHARED WRITES=2 LOSSES=0", HOLDS),
    "shared link": (SHARED, HOLDS),
    "shared and own link": (BOTH + " LOSSES=0", HOLDS),
    "without WATCH": (OWN + CALM + " NO_WATCH", LOWER),
    "WATCH may fail": (OWN + NEITHER + " WATCH_NOT_DEMANDED", LOWER),
    "arm not awaited": (OWN + CALM + " NOT_AWAITED", LOWER),
    "MULTI may fail": (OWN + NEITHER + " MULTI_NOT_DEMANDED", LOWER),
    "epoch not read": (OWN + LOSS + " NO_EPOCH", FORGOTTEN),
    "new epoch before all have put back": (OWN + LOSS + " NO_QUIET", FORGOTTEN),
    "nil taken for done": (OWN + CALM + " NIL_IS_DONE", UNTRUE),
    "lost taken for not applied": (OWN + CUT + " LOST_IS_NOT_APPLIED", UNTRUE),
    "sent again when lost": (OWN + CUT + " SENT_AGAIN", UNTRUE),
    "shared link goes on after a raise": (SHARED + NEITHER + " SHARED_GOES_ON", LOWER),
    "shared link: arm not awaited": (SHARED + NEITHER + " NOT_AWAITED", LOWER),
    "shared link: sent again when lost": (SHARED + " LOSSES=0 SENT_AGAIN", UNTRUE),
    # That the model comes this far at all.
    "nothing commits after a loss": (OWN + LOSS + " NEVER_AFTER_A_LOSS", "losses==0"),
    "nothing commits after a cut": (OWN + CUT + " NEVER_AFTER_A_CUT", "cuts==0"),
    "nothing commits on the shared link": (BOTH + NEITHER + " NEVER_SHARED", "1!=1"),
    "a write that is given back does not commit": (BOTH + " LOSSES=0" + " NEVER_GIVEN_BACK", "given_back"),
}
LONG = {"shared and own link, a loss": ("WRITES=1 ERRORS=0 CUTS=0", HOLDS)}
LOWER_OF_TAG = "1>=mark["
# Of tags.pml, alike.
OF_TAGS = {
    "several tags": ("", HOLDS),
    "several tags: only the first mark watched": ("OTHERS_NOT_WATCHED", LOWER_OF_TAG),
    "several tags: only the first mark read": ("OTHERS_NOT_READ", LOWER_OF_TAG),
    "several tags: sent without its own proof": ("SENT_UNPROVEN", LOWER_OF_TAG),
    "several tags: another token of the resource": ("TOKEN_NOT_COMPARED", LOWER_OF_TAG),
    "several tags: bound anew while armed": ("BOUND_WHILE_ARMED", LOWER_OF_TAG),
    "several tags: nil taken for done": ("NIL_IS_DONE", UNTRUE),
    "no new holder's write commits": ("NEVER_OF_A_NEW_HOLDER", "!=2"),
    "no batch has writes of two tags": ("NEVER_TOGETHER", "queued"),
    "nothing commits once it was bound anew": ("NEVER_BOUND_ANEW", "bound_anew"),
    "nothing commits beside a takeover": ("NEVER_BESIDE_A_TAKEOVER", "mark[1]==1"),
}
EVERY = RUNS | LONG | OF_TAGS


def model_of(name):
    return HERE / ("tags.pml" if name in OF_TAGS else "fence.pml")


def run(name):
    """→ (verdict, states, seconds); the verdict: the assertion that was violated, HOLDS, or what went wrong."""
    began = time.monotonic()
    macros, expected = EVERY[name]
    folder = BUILD / re.sub(r"\W+", "_", name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in (["spin", *(f"-D{one}" for one in macros.split()), "-a", model_of(name)],
                    [*COMPILE, "-O0" if expected else "-O1"]):  # what is soon refuted takes longer to compile
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{done.stdout}{done.stderr}", 0, time.monotonic() - began
    said = subprocess.run(["./pan", *SEARCH], cwd=folder, capture_output=True, text=True).stdout
    (folder / "said").write_text(said)
    states = re.search(r"([\d.e+]+) states, stored", said)
    states = int(float(states[1])) if states else 0
    violated = re.search(r"assertion violated (.*) \(at depth", said)
    if violated:
        return violated[1], states, time.monotonic() - began
    complete = "errors: 0" in said and not re.search(r"not completed|too small|out of memory|aborted", said)
    return HOLDS if complete else "the search did not come to its end", states, time.monotonic() - began


def trail(name):
    folder = BUILD / re.sub(r"\W+", "_", name)
    macros, _ = EVERY[name]
    model = model_of(name)
    subprocess.run(["spin", *(f"-D{one}" for one in macros.split()), "-t", "-p", "-g", "-k", f"{model.name}.trail", model],
                   cwd=folder, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trail", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("runs", nargs="*", metavar="RUN")
    wanted = parser.parse_args()
    unknown = set(wanted.runs) - set(EVERY)
    if unknown:
        parser.error(f"no run {', '.join(sorted(unknown))}; there are: {', '.join(EVERY)}")
    failed, names = [], wanted.runs or list(EVERY if wanted.long else RUNS | OF_TAGS)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        report(names, pool.map(run, names), wanted.trail, failed)
    if failed:
        sys.exit(f"not as expected: {', '.join(failed)}")


def report(names, results, trails, failed):
    for name, (found, states, seconds) in zip(names, results):
        expected = EVERY[name][1]
        right = expected in found if expected else found == HOLDS
        verdict = f"refuted: {found}" if found else "holds"
        print(f"{'ok  ' if right else 'FAIL'} {name:44} {verdict:42} {states:9,} states {seconds:6.1f} s", flush=True)
        if not right:
            failed.append(name)
        if trails and found:
            trail(name)


if __name__ == "__main__":
    main()
