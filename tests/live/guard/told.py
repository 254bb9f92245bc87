"""What a client may conclude from the replies it got: which of its rows are committed, and which are not.

An expectation is what a message will be answered with and what that means: ("C", effect) for CommandComplete, ("1" or "2",
effect) for ParseComplete or BindComplete that write by themselves, ("Z",) for ReadyForQuery. Effects: ("rows", ids),
("begin",), ("end", chained), ("savepoint", name), ("release", name), ("to", name), ("perhaps an end",), ("nothing",)."""

import collections


class Told:
    def __init__(self, acknowledged, rolled_back):
        self.acknowledged, self.rolled_back = acknowledged, rolled_back  # sets of ids, of all clients
        self.expected = collections.deque()
        self._open = []  # rows of the open transaction
        self._savepoints = []
        self._failed = False
        self.status = b"I"  # as ReadyForQuery said last

    def reply(self, kind, body):
        """True: it was ReadyForQuery."""
        if kind in (b"1", b"2") and self.expected and self.expected[0][0] == kind.decode():
            self._effect(self.expected.popleft()[1], "")
        elif kind in (b"C", b"I", b"s") and self.expected:
            if kind == b"I" and self.expected[0][0] != "C":
                return False
            self._effect(self.expected.popleft()[1], body[:-1].decode() if kind == b"C" else "")
        elif kind == b"E":
            self._failed = True
            self._skip()
        elif kind == b"Z":
            self.status = body
            self._skip()
            if self.expected:
                self.expected.popleft()
            if body == b"I":
                self._drop() if self._failed else self._keep()
            self._failed = False
            return True
        return False

    def _skip(self):
        while self.expected and self.expected[0][0] != "Z":
            self.expected.popleft()

    def _drop(self):
        self.rolled_back.update(self._open)
        self._open, self._savepoints = [], []

    def _keep(self):
        self.acknowledged.update(self._open)
        self._open, self._savepoints = [], []

    def _effect(self, effect, tag):
        what = effect[0]
        if what == "rows":
            self._open += effect[1]
        elif what == "end" and tag in ("COMMIT", "ROLLBACK"):
            self._keep() if tag == "COMMIT" else self._drop()
        elif what == "perhaps an end" and tag == "COMMIT":
            self._keep()
        elif what == "perhaps an end" and tag == "ROLLBACK":
            self._failed = True  # to a savepoint or not: outside a transaction it was not
        elif what == "savepoint":
            self._savepoints.append((effect[1], len(self._open)))
        elif what in ("release", "to"):
            self._leave_savepoint(effect[1], what == "to")

    def _leave_savepoint(self, name, drops):
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at][0] != name:
                continue
            rows = self._savepoints[at][1]
            if drops:
                self.rolled_back.update(self._open[rows:])
                del self._open[rows:]
            del self._savepoints[at + drops:]
            return
