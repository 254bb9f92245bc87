"""Judges a history: what the writers saw, against what the server kept. Pure, so that it can be tested itself.

The claims, per resource (each entry of its list is `TOKEN:WRITER:SEQ`):
  stale       once a holder bound token t and read the list's length, no entry behind it has a token below t; and
              tokens never decrease along the list
  lost        an acknowledged write is there
  repeated    no write is there twice
  phantom     a rejected write is not there, nor one that nobody sent
  order       writes of one connection are there in the order they were sent
  unexpected  no answer but an acknowledgement or a rejection
(run.py adds the kind `gate`: a figure of a gate that is wrong when all is over.)
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class Verdict:
    violations: Counter = field(default_factory=Counter)  # kind → how many
    examples: list = field(default_factory=list)  # texts, a few per kind
    outcomes: Counter = field(default_factory=Counter)
    codes: Counter = field(default_factory=Counter)  # error code of rejections → how many
    takeovers: int = 0  # changes of the token along the lists

    def add(self, kind, text):
        self.violations[kind] += 1
        if self.violations[kind] <= 3:
            self.examples.append(f"{kind}: {text}")


def around(entries, index, width=6):
    first = max(0, index - width)
    window = entries[first : index + width]
    return "".join(f"\n    {'>' if first + i == index else ' '} {first + i:7} {entry}" for i, entry in enumerate(window))


def check(lists, histories):
    """`lists`: resource → entries as text. `histories`: of all writers."""
    verdict = Verdict()
    sent = {(h.writer, seq): (h, write) for h in histories for seq, write in h.writes.items()}
    for _, write in sent.values():
        verdict.outcomes[write.outcome] += 1
        if write.outcome == "rejected":
            verdict.codes[write.answer] += 1
    places = defaultdict(list)  # (writer, seq) → [(resource, index)]
    for resource, entries in lists.items():
        tokens = []
        for index, entry in enumerate(entries):
            token, writer, seq = entry.split(":")
            tokens.append(int(token))
            places[writer, int(seq)].append((resource, index))
        _check_tokens(verdict, resource, entries, tokens, [h for h in histories if h.resource == resource])
    _check_outcomes(verdict, lists, sent, places)
    _check_order(verdict, lists, sent, places)
    return verdict


def _check_tokens(verdict, resource, entries, tokens, histories):
    # floor[i]: the highest token that some holder had bound when the list had i entries.
    floor = Counter()
    for history in histories:
        for token, length in history.bound:
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
            verdict.add("order", f"{resource}: {lists[resource][index]} came after its successor"
                        + around(lists[resource], index))
        last[line] = index
