"""What the benchmarks share: rounds in turn, medians of ratios within a round, and the text of a report."""

import os
import platform
import re
import statistics
import subprocess
import sys


def interleave(rounds, rows, columns, measure):
    """{row: {column's key: [figures of each round]}}, where `measure(row, column)` returns a dict of figures, or None
    for what is not measured. The columns run one after the other within each round; the order turns by one each time."""
    found = {row: {column.key: [] for column in columns} for row in rows}
    for number in range(rounds):
        for row in rows:
            shift = number % len(columns)
            for column in columns[shift:] + columns[:shift]:
                progress(f"round {number + 1} of {rounds}: {row} {column.title}")
                figures = measure(row, column)
                if figures is not None:
                    found[row][column.key].append(figures)
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


def median(found, row, column, figure):
    """Over the rounds, or None where it was not measured."""
    runs = found.get(row, {}).get(column)
    return statistics.median(run[figure] for run in runs) if runs else None


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    load1 = os.getloadavg()[0]
    processors = f"{os.cpu_count()} x {model[1] if model else platform.machine()}"
    yield f"Machine: {processors}, Linux {platform.release()}, loopback TCP"
    if load1 > 0.5:
        yield f"The machine was NOT quiet at the start: load average {load1:.2f}."


def version(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip().splitlines()[0]


def table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def target_table(targets):
    """Of (text, measured or None, ">=" or "<=", bound, how to print what was measured)."""
    yield from table(["target", "measured", ""], map(_target_row, targets))


def _target_row(target):
    text, value, side, bound, form = target
    if value is None:
        return [text, "–", "not measured"]
    reached = value >= bound if side == ">=" else value <= bound
    return [text, form.format(value), "reached" if reached else "MISSED"]
