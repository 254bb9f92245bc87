#!/usr/bin/env python3
"""What failed in a run of the tests, and the last it said.

    failures.py JUNIT_FILE
"""

import sys
import xml.etree.ElementTree

LINES = 40  # of each test's output


def failures(path):
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "fail":
            output = (case.findtext("system-out") or "").rstrip().splitlines()
            yield "\n".join([f"{case.get('name')} FAILED, after {float(case.get('time')):.0f} s", *("  | " + line for line in output[-LINES:])])


print("\n\n".join(failures(sys.argv[1])))
