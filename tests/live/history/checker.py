"""Judges a history: what the writers saw, against what the server kept. Pure, so that it can be tested itself.

The claims, per resource (each entry of its list is `TOKEN:WRITER:SEQ` or `TOKEN:WRITER:SEQ:REMARK`):
  stale       once a holder bound token t and read the list's length, no entry behind it has a token below t; once the
              mark was t, neither; and tokens never decrease along the list
  lost        an acknowledged write is there
  repeated    no write is there twice
  phantom     a rejected write is not there, nor one that nobody sent
  order       writes of one connection are there in the order they were sent
  unexpected  no answer but an acknowledgement or a rejection
and where the server's log shows the marks too:
  mark        marks never fall
  unarmed     nothing is written before the mark has risen to its token
(rig.py adds the kind `gate`: a figure of a gate that is wrong when all is over.)
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class Verdict:
    violations: Counter = field(default_factory=Counter)  # kind → how many
    examples: list = field(default_factory=list)  # texts, a few per kind
    outcomes: Counter = field(default_factory=Counter)
    codes: Counter = field(default_factory=Counter)  # error code of rejections → how many
    noted: Counter = field(default_factory=Counter)  # what writers saw happen → how often
    takeovers: int = 0  # changes of the token along the lists

    def add(self, kind, text):
        self.violations[kind] += 1
        if self.violations[kind] <= 3:
            self.examples.append(f"{kind}: {text}")

    def include(self, other):
        """What another judge found."""
        for mine, more in ((self.violations, other.violations), (self.outcomes, other.outcomes),
                           (self.codes, other.codes), (self.noted, other.noted)):
            mine.update(more)
        self.examples += other.examples
        self.takeovers += other.takeovers


def around(entries, index, width=6):
    first = max(0, index - width)
    window = entries[first : index + width]
    return "".join(f"\n    {'>' if first + i == index else ' '} {first + i:7} {entry}" for i, entry in enumerate(window))


def check(lists, histories, marks=None):
    """`lists`: resource → entries as text. `histories`: of all writers; `bound` as lengths of the list. `marks`, where
    they are known: resource → [(mark, length of the list when it was set)], in their order."""
    verdict = Verdict()
    for history in histories:
        verdict.noted += history.noted
        for text in history.wrong:
            verdict.add("unexpected", f"{history.writer}: {text}")
    sent = {(h.writer, seq): (h, write) for h in histories for seq, write in h.writes.items()}
    for _, write in sent.values():
        verdict.outcomes[write.outcome] += 1
        if write.outcome == "rejected":
            verdict.codes[write.code] += 1
    places = defaultdict(list)  # (writer, seq) → [(resource, index)]
    for resource, entries in lists.items():
        tokens = []
        for index, entry in enumerate(entries):
            token, writer, seq, *_ = entry.split(":", 3)
            tokens.append(int(token))
            places[writer, int(seq)].append((resource, index))
        raised = [] if marks is None else marks.get(resource, [])
        bound = [one for history in histories if history.resource == resource for one in history.bound]
        _check_tokens(verdict, resource, entries, tokens, bound + raised)
        if marks is not None:
            _check_marks(verdict, resource, entries, tokens, raised)
    _check_outcomes(verdict, lists, sent, places)
    _check_order(verdict, lists, sent, places)
    return verdict


def _check_tokens(verdict, resource, entries, tokens, bound):
    # floor[i]: the highest token that some holder had bound when the list had i entries.
    floor = Counter()
    for token, length in bound:
        floor[length] = max(floor[length], token)
    lowest = 0
    for index, token in enumerate(tokens):
        lowest = max(lowest, floor[index])
        if token < lowest:
            verdict.add("stale", f"{resource}: token {token} was applied after {lowest} was bound or written"
                        + around(entries, index))
        if index and token != tokens[index - 1]:
            verdict.takeovers += 1
        lowest = max(lowest, token)


def _check_marks(verdict, resource, entries, tokens, raised):
    for (before, _), (after, length) in zip(raised, raised[1:]):
        if after < before:
            verdict.add("mark", f"{resource}: {before} fell to {after} behind entry {length}{around(entries, length)}")
    coming, mark = list(reversed(raised)), -1
    for index, token in enumerate(tokens):
        while coming and coming[-1][1] <= index:
            mark = coming.pop()[0]
        if token > mark:
            verdict.add("unarmed", f"{resource}: token {token} was applied under mark {mark}{around(entries, index)}")


def _check_outcomes(verdict, lists, sent, places):
    for key, (history, write) in sent.items():
        found = places.get(key, [])
        name = f"{history.resource}: {write.token}:{key[0]}:{key[1]} ({write.outcome} {write.answer})"
        where = around(lists[found[0][0]], found[0][1]) if found else ""
        if write.outcome == "acknowledged" and not found:
            verdict.add("lost", f"{name} is not in the list")
        if write.outcome == "rejected" and found:
            verdict.add("phantom", f"{name} was applied{where}")
        if write.outcome == "unexpected":
            verdict.add("unexpected", name)
        if len(found) > 1:
            verdict.add("repeated", f"{name} was applied {len(found)} times, at {found}{where}")
    for key, found in places.items():
        resource, index = found[0]
        if key not in sent or lists[resource][index].split(":")[0] != str(sent[key][1].token) \
                or sent[key][0].resource != resource:
            verdict.add("phantom", f"{resource}: nobody sent {lists[resource][index]}{around(lists[resource], index)}")


def _check_order(verdict, lists, sent, places):
    last = {}  # (writer, connection) → index of its write before
    for key in sorted(places):
        if key not in sent:
            continue
        resource, index = places[key][0]
        line = (key[0], sent[key][1].connection)
        if last.get(line, -1) > index:
            verdict.add("order", f"{resource}: {lists[resource][index]} ({sent[key][1].outcome}) came after its successor"
                        + around(lists[resource], index))
        last[line] = index
