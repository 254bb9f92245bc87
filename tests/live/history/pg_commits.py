"""What PostgreSQL committed, in the order of commits: from the output of the plugin test_decoding. Pure.

An entry's place in the server's log is where its commit ends, so that "what came behind" a position is exact."""

import bisect
import re
from collections import defaultdict
from dataclasses import dataclass, field

_change = re.compile(r"table (\S+): (INSERT|UPDATE|DELETE|TRUNCATE):(.*)", re.DOTALL)
_column = re.compile(r"(\w+)\[[^\]]+\]:('(?:[^']|'')*'|\S+)")


class Unreadable(Exception):
    """The log holds what the test does not know how to judge."""


@dataclass
class Commits:
    lists: dict = field(default_factory=lambda: defaultdict(list))  # resource → entries, as the checker wants them
    marks: dict = field(default_factory=lambda: defaultdict(list))  # resource → [(mark, length of the list)]
    _ends: dict = field(default_factory=lambda: defaultdict(list))  # resource → where each entry's commit ends

    def length_at(self, resource, position):
        """How many entries were committed when the log had come to `position`."""
        return bisect.bisect_right(self._ends[resource], position)

    def add(self, changes, xid, end):
        for table, kind, text in changes:
            row = {name: value.strip("'") for name, value in _column.findall(text.split("new-tuple:")[-1])}
            if table == "public.writes":
                if kind != "INSERT":
                    raise Unreadable(f"{kind} in writes: {text}")
                resource = row["resource"]
                remark = f"written at {row['log_position']}, xid {xid} committed at {_lsn(end)}"
                self.lists[resource].append(f"{row['token']}:{row['writer']}:{row['seq']}:{remark}")
                self._ends[resource].append(end)
            elif table == "fencegate.marks":
                if kind not in ("INSERT", "UPDATE"):
                    raise Unreadable(f"{kind} in the marks: {text}")
                self.marks[row["resource"]].append((int(row["mark"]), len(self.lists[row["resource"]])))


def _lsn(position):
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def read_commits(rows):
    """`rows`: (position in the log, xid, text), as pg_logical_slot_get_changes gives them."""
    commits, changes = Commits(), []
    for position, xid, text in rows:
        if text.startswith("BEGIN"):
            changes = []
        elif text.startswith("COMMIT"):
            commits.add(changes, xid, position)
        elif found := _change.fullmatch(text):
            changes.append(found.groups())
        else:
            raise Unreadable(text)
    return commits
