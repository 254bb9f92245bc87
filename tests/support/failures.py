#!/usr/bin/env python3
"""What failed in a run of the tests, and the last it said.

    failures.py JUNIT_FILE
"""

import re
import sys
import xml.etree.ElementTree

LINES = 40  # of each test's output
CASE_BEGINS = re.compile(r"\[ RUN      \] ")
CASE_PASSED = re.compile(r"\[       OK \] ")


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


def failures(path):
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "fail":
            output = without_passed((case.findtext("system-out") or "").rstrip().splitlines())
            yield "\n".join([f"{case.get('name')} FAILED, after {float(case.get('time')):.0f} s", *("  | " + line for line in output[-LINES:])])


print("\n\n".join(failures(sys.argv[1])))
