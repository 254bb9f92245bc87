"""Judges what an upstream has written down of forwarded writes. Pure.

A forward is *overtaken* when a write with a higher token has begun before it has ended. `held` lets that happen only
to a forward that was cut, and tells its client that its outcome is unknown; `checked` narrows it down, and no more."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from history.checker import check


@dataclass
class Forwards:
    """Of one resource."""

    entries: list = field(default_factory=list)  # in the order in which they began
    overtaken: set = field(default_factory=set)  # places in `entries`
    _ended: set = field(default_factory=set)
    _highest: int = 0

    def add(self, kind, entry):
        """`kind`: b, it begins, or e, it has ended."""
        token = _token(entry)
        if kind == "b":
            self.entries.append(entry)
            place = len(self.entries) - 1
        else:
            place = next(at for at in reversed(range(len(self.entries)))
                         if self.entries[at] == entry and at not in self._ended)
            self._ended.add(place)
        if token < self._highest:
            self.overtaken.add(place)
        self._highest = max(self._highest, token)


def read_forwards(lines):
    """→ resource → Forwards"""
    found = defaultdict(Forwards)
    for line in lines:
        kind, resource, entry = line.split()
        found[resource].add(kind, entry)
    return found


def judge_forwards(forwards, histories, guarantee):
    """→ Verdict, with what was overtaken in its notes; `untold`: overtaken, and its client takes it for done.
    `forwards`: resource → Forwards, all under the same `guarantee`."""
    outcomes = {f"{write.token}:{history.writer}:{seq}": write.outcome
                for history in histories for seq, write in history.writes.items()}
    excusable = ("unknown", "acknowledged") if guarantee == "checked" else ("unknown",)
    lists, noted, untold = {}, Counter(), []
    for resource, found in forwards.items():
        excused = set()
        for place in sorted(found.overtaken):
            entry = found.entries[place]
            outcome = outcomes.get(entry)
            noted[f"{guarantee}, overtaken, {outcome}"] += 1
            if outcome in excusable:
                excused.add(place)
            elif outcome == "acknowledged":
                untold.append(f"{resource}: {entry} was overtaken, and its client takes it for done")
        lists[resource] = _in_place(found.entries, excused)
    verdict = check(lists, histories)
    verdict.noted += noted
    for text in untold:
        verdict.add("untold", text)
    return verdict


def _in_place(entries, excused):
    """The list for the checker, in which those that may be overtaken stand where their tokens belong."""
    highest, keyed = 0, []
    for place, entry in enumerate(entries):
        if place not in excused:
            highest = max(highest, _token(entry))
        keyed.append((_token(entry) if place in excused else highest, place))
    return [entries[place] for _, place in sorted(keyed)]


def _token(entry):
    return int(entry.split(":", 1)[0])
