"""A stream is told to a plain server, and then, step by step the same, to a gate. What was answered, and what is then stored,
must be the same, but for what stands here with its reason."""

import time

from differential.commands import TAG
from differential.connection import Connection
from differential.streams import CLIENTS, MARKER, NoAnswer, Round
from processes import eventually

# Replies of these commands are compared in an order of their own.
UNORDERED = {
    "hash tables of two servers have different seeds": (
        "smembers sdiff sinter sunion hgetall hkeys hvals hscan sscan zscan keys scan sort sort_ro acl|cat pubsub|channels "
        "function|list config|get"),
}
# Replies of these are compared by their type only.
UNTOLD = {
    "a second may end between the two": "ttl pttl expiretime pexpiretime object|idletime",
    "it shows a hash table, byte by byte": "dump",
    "it names the connection or a time": "hello xpending xinfo|consumers xinfo|stream",
}
# Errors that are one: how the plain server's begins, how the gate's does, and why.
ALIKE = (
    ("", "ERR Can't execute '", "subscribed in RESP2, both refuse it; which check comes first differs"),
    ("UNBLOCKED the stream key no longer exists", "NOGROUP No such key", "a fenced client that waits looks again"),
    ("NOGROUP the consumer group this client was blocked on", "NOGROUP No such key", "the same"),
    ("ERR unknown ", "ERR Unknown Redis command called from script", "a script between WATCH and MULTI has words of its own"),
    ("ERR unknown ", "FENCEDENY ", "both refuse it; the gate does not know what it would be"),
)
# What a gate says in place of an answer that changes nothing: docs/redis.md, "Scripts".
NOT_TOLD = b"FENCEDENY an answer larger than 1 MiB"
# docs/redis.md, "Inside MULTI": behind a command that Redis has refused to queue, such a one is answered with +QUEUED.
UNKNOWN = b"ERR unknown "
_UNORDERED = {name for names in UNORDERED.values() for name in names.split()}
_UNTOLD = {name for names in UNTOLD.values() for name in names.split()}


def matching(words, table):
    return bool({words[0].lower(), "|".join(words[:2]).lower()} & table)


class Director:
    """Tells a plain server a stream, and finds out what comes of it: who waits, and whom a step wakes. The steps that it
    notes can then be told to the other side."""

    def __init__(self, side, reads):
        self.side, self.reads, self.steps = side, reads, []
        self.states = [Connection(reads) for _ in range(CLIENTS)]
        self.waiting = {}  # client: marker

    def run(self, rounds):
        self.side.begin()
        try:
            for one in rounds:
                self.round(one)
            self.leave()
            return self.side.told, self.side.data()
        finally:
            self.side.end()

    def leave(self):
        """Clients leave nothing open, and hear what was published."""
        for client in range(CLIENTS):
            if client not in self.waiting:
                state = self.states[client]
                words = ["DISCARD"] if state.multi else ["UNWATCH"] if not state.subscribed() else ["PING"]
                self.do(Talk(client, [words], [words] * state.send(words), [["PING", MARKER]], ()))

    def do(self, step):
        self.steps.append(step)
        step(self.side)

    def round(self, one):
        if one.volley:
            self.volley(one.volley)
        elif one.client in self.waiting:
            return
        elif one.raw:
            self.states[one.client] = Connection(self.reads)
            self.do(Closing(one.client, [], [], raw=one.raw))
        else:
            commands = list(one.commands)
            while commands:
                commands = self.talk(one, commands)

    def volley(self, commands):
        members = {client: words for client, words in commands.items() if client not in self.waiting and self.is_plain(client)}
        self.do(Volley(members))
        self.look_after()

    def is_plain(self, client):
        state = self.states[client]
        return not state.multi and not state.subscribed() and state.replies == "on"

    def talk(self, one, commands):
        """Sends what can go at once; → what cannot."""
        client, state, now, answered, cuts = one.client, self.states[one.client], [], [], one.cuts
        if client in self.waiting:
            return []
        commands, waits = list(commands), None
        while commands and waits is None and not (self.waiting and now):
            words = commands.pop(0)
            if not state.may(words):
                continue
            if state.waits(words) and len(answered) < len(now):  # what comes before could be taken for its answer
                commands.insert(0, words)
                break
            if words[0].lower() == "quit":
                self.states[client] = Connection(self.reads)
                self.do(Closing(client, [*now, words], [*answered, words], cuts=cuts))
                return []
            waits = words if state.waits(words) else None
            for each in (words, ["CLIENT", "SETNAME", TAG]) if words[0].lower() == "reset" else (words,):
                now.append(each)
                answered += [each] * state.send(each)
        for each in ([["PING"]] if state.replies == "skip" else [["CLIENT", "REPLY", "ON"]] if state.replies == "off" else []):
            now.append(each)
            answered += [each] * state.send(each)
        if not now:
            return []
        marker = [] if state.multi else [["PING", MARKER]]
        if waits and state.for_long(waits):
            self.wait(client, now, answered, marker, cuts, waits)
        else:
            self.do(Talk(client, now, answered, marker, cuts))
        self.look_after()
        return commands

    def wait(self, client, commands, answered, marker, cuts, waits):
        self.side.send(client, commands, answered, marker, cuts)
        self.side.read(client, len(answered) - 1)
        end = time.monotonic() + self.side.patience
        while MARKER.encode() not in self.side.unread(client) and time.monotonic() < end:
            if client in self.blocked([client]):
                self.waiting[client] = marker
                self.steps.append(Wait(client, commands, answered, marker, cuts, waits))
                return
        self.side.finish(client, 1, marker)
        self.steps.append(Talk(client, commands, answered, marker, cuts))

    def blocked(self, clients):
        """Those of them for which the server says that they wait. Only asked of a plain server: there, ports are clients'."""
        ports = {self.side.clients[client].sock.getsockname()[1]: client for client in clients}
        found = set()
        for line in self.side.server.cli.call("CLIENT", "LIST").decode().splitlines():
            fields = dict(field.split("=", 1) for field in line.split(" "))
            client = ports.get(int(fields["addr"].rsplit(":", 1)[1]))
            if client is not None and "b" in fields["flags"]:
                found.add(client)
        return found

    def look_after(self):
        """Reads what was answered to those who waited."""
        if self.waiting:
            for client in sorted(set(self.waiting) - self.blocked(self.waiting)):
                self.do(Woken(client, self.waiting.pop(client)))


def follow(side, steps, waiting):
    """Tells the side the steps; → what was told, and data. `waiting`: clients that are to be silent in the end."""
    side.begin()
    try:
        for step in steps:
            step(side)
        loud = [client for client in waiting if not side.silent(client)]
        if loud:
            side.finish(loud[0], 1, waiting[loud[0]])
        return side.told, side.data()
    finally:
        side.end()


class Talk:
    """`answered`: those of the commands that get a reply. `marker`: what is sent behind them, to know where they end."""

    def __init__(self, client, commands, answered, marker, cuts):
        self.client, self.commands, self.answered, self.marker, self.cuts = client, commands, answered, marker, cuts

    def __call__(self, side):
        side.send(self.client, self.commands, self.answered, self.marker, self.cuts)
        side.finish(self.client, len(self.answered), self.marker)


class Wait(Talk):
    """The last command waits. Returns when the server has seen it try."""

    def __init__(self, client, commands, answered, marker, cuts, waits):
        super().__init__(client, commands, answered, marker, cuts)
        self.name = waits[0].lower()

    def tries(self, side):
        return side.server.calls(self.name), side.server.info("clients")["blocked_clients"]

    def __call__(self, side):
        before = self.tries(side)  # others who wait try again now and then, which costs certainty, not truth
        side.send(self.client, self.commands, self.answered, self.marker, self.cuts)
        side.read(self.client, len(self.answered) - 1)
        eventually(lambda: self.tries(side) != before or not side.silent(self.client), deadline=side.patience, every=0.002)


class Woken:
    def __init__(self, client, marker):
        self.client, self.marker = client, marker

    def __call__(self, side):
        side.finish(self.client, 1, self.marker)


class Closing:
    """The server closes behind what is sent."""

    def __init__(self, client, commands, answered, raw=b"", cuts=()):
        self.client, self.commands, self.answered, self.raw, self.cuts = client, commands, answered, raw, cuts

    def __call__(self, side):
        side.send(self.client, self.commands, self.answered, [], self.cuts, self.raw)
        side.until_closed(self.client)


class Volley:
    """All members' commands are under way at once."""

    def __init__(self, members):
        self.members = members

    def __call__(self, side):
        for client, words in self.members.items():
            side.send(client, [words], [words], [])
        for client in self.members:
            side.finish(client, 1, [])


# ------------------------------------------------------------------------------------------------------- comparison


def sort_deeply(value):
    if isinstance(value, tuple) and isinstance(value[1], list):
        return value[0], sorted(map(sort_deeply, value[1]), key=repr)
    return value


def without_marks(value):
    """Keys of the gate's own are seen by KEYS and SCAN."""
    if isinstance(value, tuple) and isinstance(value[1], list):
        return value[0], [without_marks(one) for one in value[1] if not (isinstance(one, tuple) and isinstance(one[1], bytes)
                                                                         and one[1].startswith(b"fencegate:"))]
    return value


def comparable(words, reply):
    kind, value = reply
    if kind == "-":
        return reply
    if matching(words, _UNTOLD):
        return kind, value is None
    if words[0].lower() in ("keys", "scan"):
        reply = without_marks(reply)
    return sort_deeply(reply) if matching(words, _UNORDERED) or kind in "~%" else reply


def comparable_push(items):
    """Who leaves all channels leaves them in the order of a hash table, and each answer counts those that are left."""
    kind = items[0][1]
    return repr(items[:2] if kind.endswith(b"unsubscribe") else items)


class Answers:
    """The replies of one connection, made comparable. What was queued is known by the replies."""

    def __init__(self):
        self.queued = []
        self.watches = False

    def read(self, told):
        found, replies = [], list(told.replies)
        for words in told.answered[: len(replies)]:
            name, reply = words[0].lower(), replies.pop(0)
            loosely = self.watches
            if name == "watch":
                self.watches = True
            elif name in ("exec", "discard", "unwatch") and reply[0] != "-":
                self.watches = False
            if reply == ("+", b"QUEUED"):
                self.queued.append(words)
            elif name == "exec" and reply[0] == "*" and reply[1] is not None and len(reply[1]) == len(self.queued):
                reply = ("*", [comparable(*both) for both in zip(self.queued, reply[1])])
            if name in ("exec", "discard", "reset"):
                self.queued = []
            found.append((words, comparable(words, reply), loosely))
        if told.ended:
            self.__init__()
        return found + [(["PING"], one, False) for one in replies], sorted(map(comparable_push, told.pushes)), told.ended


def difference(wanted, got):
    """A text that says how the second differs, or None. Both: what was told, and data."""
    def same(left, right):
        if left == right or left[0] == right[0] and right[1][0] == "-" and right[1][1].startswith(NOT_TOLD):
            return True
        if left[0] == right[0] and right[1] == ("+", b"QUEUED") and left[1][0] == "-" and left[1][1].startswith(UNKNOWN):
            return True
        (kinds, texts), loosely = zip(*(one[1] for one in (left, right))), left[2]
        if left[0] != right[0] or kinds != ("-", "-"):
            return False
        return loosely and len({text.split(b" ")[0] for text in texts}) == 1 or any(
            all(text.startswith(start.encode()) for text, start in zip(texts, alike[:2])) for alike in ALIKE)

    readers = [[Answers() for _ in range(CLIENTS)] for _ in range(2)]
    for plain, fenced in zip(wanted[0], got[0]):
        left, right = readers[0][plain.client].read(plain), readers[1][plain.client].read(fenced)
        at = next((both for both in zip(left[0], right[0]) if not same(*both)), None)
        if at or len(left[0]) != len(right[0]) or left[1:] != right[1:]:
            more = "" if at is None else f"\n  {at[0][0]}: {_short(at[1][1])}, not {_short(at[0][1])}"
            return f"client {plain.client} is answered {_short(right)}\n  instead of {_short(left)}{more}"
    if len(wanted[0]) != len(got[0]):
        return f"{len(got[0])} steps instead of {len(wanted[0])}"
    if wanted[1] != got[1]:
        keys = [key for key in {**wanted[1], **got[1]} if wanted[1].get(key) != got[1].get(key)]
        return "data: " + "; ".join(f"{key} is {got[1].get(key)}, not {wanted[1].get(key)}" for key in keys)
    return None


def _short(value):
    text = repr(value)
    return text if len(text) < 800 else f"{text[:400]} … {text[-400:]}"


def compare(plain, fenced, rounds):
    """As difference(), of a stream that both sides are told."""
    director = Director(plain, fenced.reads)
    wanted = director.run(rounds)
    try:
        got = follow(fenced, director.steps, director.waiting)
    except (NoAnswer, AssertionError) as error:
        return f"no answer: {error}"
    return difference(wanted, got)


def shrunk(rounds, differs, deadline):
    """A shorter stream that `differs` still, where `deadline` (of time.monotonic) does not come before."""

    def smaller(items, rebuild):
        size = max(1, len(items) // 2)
        while size and items:
            at = 0
            while at < len(items) and time.monotonic() < deadline:
                less = items[:at] + items[at + size :]
                if differs(rebuild(less)):
                    items = less
                else:
                    at += size
            size //= 2
        return items

    rounds = smaller(list(rounds), lambda some: some)
    for number in range(len(rounds)):
        one = rounds[number]

        def with_this(other, number=number):
            return [*rounds[:number], other, *rounds[number + 1 :]]

        if one.volley:
            members = smaller(list(one.volley.items()), lambda some: with_this(Round(one.client, volley=dict(some))))
            rounds[number] = Round(one.client, volley=dict(members))
        elif one.commands:
            if one.cuts and differs(with_this(Round(one.client, one.commands))):
                one = Round(one.client, one.commands)
            commands = smaller(one.commands, lambda some: with_this(Round(one.client, some, one.cuts)))
            rounds[number] = Round(one.client, commands, one.cuts)
    return rounds
