"""Judges routes with `equal_token: reject`, where several attempts bring each token at the same time. Pure. On top of what
checker.py claims:

  twice     a token is applied once at most
  unproven  a 409 is answered only where the token was applied by then: by another attempt, and before the answer
  mark      marks never fall, and none rises without its write
"""

import re


def judge_once(verdict, lists, histories, marks):
    """Adds to the verdict. `marks`: resource → the marks that it had, one after the other."""
    for resource, entries in lists.items():
        tokens = [int(entry.split(":", 1)[0]) for entry in entries]
        for before, after in zip(tokens, tokens[1:]):
            if before == after:
                verdict.add("twice", f"{resource}: token {after} was applied twice")
        for history in histories:
            if history.resource != resource:
                continue
            for seq, write in history.writes.items():
                if write.code == "409" and write.token not in tokens:
                    verdict.add("unproven", f"{resource}: 409 to {write.token}:{history.writer}:{seq}, never applied")
        if marks[resource] != tokens:
            verdict.add("mark", f"{resource}: " + _difference(marks[resource], tokens))


def _difference(marks, tokens):
    for place, (mark, token) in enumerate(zip(marks, tokens)):
        if mark != token:
            return f"its mark number {place} was {mark}, its write {token}"
    return f"{len(marks)} marks, {len(tokens)} writes"


def marks_in(log):
    """What an append-only file of Redis says: resource → the marks that it was given by scripts that raise."""
    found = {}
    for words in _commands(log):
        key = re.fullmatch(rb"fencegate:mark:\{(.*)\}", words[1]) if len(words) > 2 else None
        if key and words[0].upper() == b"SET":
            found.setdefault(key[1].decode(), []).append(int(words[2]))
    return found


def _commands(log):
    """Of `*COUNT`, and `$LENGTH WORD` for each word."""
    at = 0

    def number(kind):
        nonlocal at
        end = log.index(b"\r\n", at)
        if log[at : at + 1] != kind:
            raise ValueError(f"no append-only file: {log[at:end]!r}")
        value = int(log[at + 1 : end])
        at = end + 2
        return value

    while at < len(log):
        words = []
        for _ in range(number(b"*")):
            length = number(b"$")
            words.append(log[at : at + length])
            at += length + 2
        yield words
