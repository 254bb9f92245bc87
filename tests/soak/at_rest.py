"""Judges what a sidecar says of itself when all of its clients have left. Pure, so that it can be tested itself.

  memory       it has not grown by more than a tenth since it was at rest before
  descriptors  there are no more than before, but for what is opened when it is needed, and then kept
  gauge        each gauge of what is open or waits is at zero
  log          each line of the level error has a trouble that explains it
"""

import re
from collections import Counter
from dataclasses import dataclass

GROWTH_MAX = 0.10

# Gauges that say something else than how much is open. A new gauge is judged until it is named here.
NOT_OPEN = re.compile(r"fencegate_(backend_up|store_up|build_info|config_\w+|writer_state)|process_\w+")
# A pool keeps what it has opened, and no more than its size.
IDLE = re.compile(r'fencegate_store_connections\{.*state="idle"')

# Servers are killed, so connections to them end.
EXPLAINED = {"backend connection closed"}


@dataclass
class Rest:
    """What was seen at one time."""

    rss: int  # bytes, the most of a few samples
    descriptors: int


def open_gauges(scrape):
    """{name with labels: value} of those that have to be at zero, and are not."""
    gauges = {line.split()[2] for line in scrape.splitlines() if line.startswith("# TYPE ") and line.endswith(" gauge")}
    found = {}
    for line in scrape.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            base = name.partition("{")[0]
            if base in gauges and not NOT_OPEN.fullmatch(base) and not IDLE.match(name) and float(value):
                found[name] = float(value)
    return found


def left_open(scrape):
    """→ complaints"""
    return [f"gauge: {name} is {value:g}" for name, value in open_gauges(scrape).items()]


def growth(before, after, kept, memory_counts=True):
    """→ complaints. `before`, `after`: Rest. `kept`: how many more connections may be there that are kept once they are
    needed. `memory_counts`: the run was long enough."""
    found = []
    if memory_counts and after.rss > before.rss * (1 + GROWTH_MAX):
        found.append(f"memory: {after.rss >> 10} KiB, and {before.rss >> 10} KiB after the warm-up")
    if after.descriptors > before.descriptors + kept:
        found.append(f"descriptors: {after.descriptors}, and {before.descriptors} after the warm-up")
    return found


def unexplained(log_lines):
    """Of the level error. → complaints"""
    errors = Counter(line["msg"] for line in log_lines if line["level"] == "error")
    examples = {line["msg"]: line for line in log_lines if line["level"] == "error"}
    return [f"log: {count} times {examples[text]}" for text, count in errors.items() if text not in EXPLAINED]
