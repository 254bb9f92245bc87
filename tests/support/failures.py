#!/usr/bin/env python3
"""What failed in a run of the tests, and the last it said.

    failures.py JUNIT_FILE [--lines N]
"""

import argparse
import re
import xml.etree.ElementTree

CASE_BEGINS = re.compile(r"\[ RUN      \] ")
CASE_PASSED = re.compile(r"\[       OK \] ")
UNITTEST_FAILED = re.compile(r"(FAIL|ERROR): ")
UNITTEST_SECTION = re.compile(r"={70}|-{70}$")
UNDERLINE = re.compile(r" +[~^]+$")  # below a line of source in a traceback: only takes room


def without_passed(lines):
    """A program with all unit tests of a folder says much. What is left: the cases that failed, and the one in which
    the program broke off."""
    kept, begun = [], 0
    for line in lines:
        if CASE_BEGINS.match(line):
            begun = len(kept)
        kept.append(line)
        if CASE_PASSED.match(line):
            del kept[begun:]
    return kept


def of_failures(lines):
    """Of a Python test: what is said of each test that failed. Where several processes share a file's tests, the last lines
    are of one that may have passed all of its own."""
    kept, telling = [], False
    for before, line in zip([""] + lines, lines):
        if UNITTEST_FAILED.match(line):
            telling = True
        elif UNITTEST_SECTION.match(line) and not UNITTEST_FAILED.match(before):
            telling = False
        if telling and not UNDERLINE.match(line):
            kept.append(line)
    return kept or lines


def failures(path, lines):
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "fail":
            output = of_failures(without_passed((case.findtext("system-out") or "").rstrip().splitlines()))
            yield "\n".join([f"{case.get('name')} FAILED, after {float(case.get('time')):.0f} s", *("  | " + line for line in output[-lines:])])


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("report")
parser.add_argument("--lines", type=int, default=40, help="of each test's output")
options = parser.parse_args()
print("\n\n".join(failures(options.report, options.lines)))
