"""What a writer knows about its writes, kept in a file so that a SIGKILL loses nothing: each write is recorded before
it is sent, its outcome when the answer was read. A write without an outcome may or may not have been applied.

    s SEQ CONNECTION TOKEN    about to be sent
    a SEQ                     acknowledged
    r SEQ CODE                rejected: the answer promises that it was not applied
    u SEQ CODE                the answer says that it may or may not have been applied
    e SEQ TEXT                any other answer
    b TOKEN POSITION          bound to TOKEN, and read afterwards: how long the list is, or how far the server's log
    n WHAT                    it happened
    x TEXT                    an answer that nobody may get, to something that is no write
"""

import os
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Write:
    token: int
    connection: int
    outcome: str = "unknown"  # unknown, acknowledged, rejected, unexpected
    answer: str = ""  # its code, and maybe more

    @property
    def code(self):
        return self.answer.split(" ", 1)[0]


@dataclass
class History:
    """One incarnation of one writer."""

    writer: str
    resource: str
    writes: dict = field(default_factory=dict)  # seq → Write
    bound: list = field(default_factory=list)  # (token, position)
    noted: Counter = field(default_factory=Counter)  # what happened → how often
    wrong: list = field(default_factory=list)  # texts of answers that nobody may get


class Recorder:
    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, lines):
        if lines:
            os.write(self._file, "".join(" ".join(map(str, line)) + "\n" for line in lines).encode())


_outcomes = {"a": "acknowledged", "r": "rejected", "u": "unknown", "e": "unexpected"}


def read_history(path, writer, resource):
    history = History(writer, resource)
    with open(path) as file:
        for line in file:
            if not line.endswith("\n"):
                break  # the writer was killed here; what it announces was not sent
            kind, *rest = line.rstrip("\n").split(" ", 3 if line[0] == "s" else 2)
            if kind == "s":
                history.writes[int(rest[0])] = Write(token=int(rest[2]), connection=int(rest[1]))
            elif kind == "b":
                history.bound.append((int(rest[0]), int(rest[1])))
            elif kind == "n":
                history.noted[" ".join(rest)] += 1
            elif kind == "x":
                history.wrong.append(" ".join(rest))
            else:
                write = history.writes[int(rest[0])]
                write.outcome = _outcomes[kind]
                write.answer = rest[1] if len(rest) > 1 else ""
    return history
