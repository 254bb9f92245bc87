"""Streams: what several clients of one server say, round by round; and how one side of the comparison is told a stream."""

import contextlib
import random
import select
import socket

from differential.commands import TAG, Inline
from differential.connection import Connection
from processes import eventually
from resp import Push, Resp

CLIENTS = 3
DATABASES = 3
OUT_OF_BAND = {b"message", b"pmessage", b"smessage", b"subscribe", b"psubscribe", b"ssubscribe", b"unsubscribe", b"punsubscribe",
               b"sunsubscribe"}
MARKER = "the end of a round"
KEYS_WAITED_FOR = ("l1", "wl1", "wl2", "wz1", "wx1")
BIG = (3000, 5000, 17000, 66000, 270000, 1100000)  # around the buffers, and the sizes from which values are streamed


class Big(str):
    def __repr__(self):
        return f"Big({self[:1]!r} * {len(self)})"


class Round:
    """One client sends commands in pieces, and reads what it is answered. `volley`: {client: command}, all sent at once;
    then `commands` is empty. `raw`: bytes that are no command, behind which the server closes."""

    def __init__(self, client, commands=(), cuts=(), volley=None, raw=b""):
        self.client, self.commands, self.cuts, self.volley, self.raw = client, list(commands), cuts, volley, raw

    def __repr__(self):
        words = [f"{self.client}", f"{self.commands}"]
        words += [f"{name}={value!r}" for name, value in (("cuts", self.cuts), ("volley", self.volley), ("raw", self.raw)) if value]
        return f"Round({', '.join(words)})"


def stream(generator, seed):
    chance = random.Random(seed)
    rounds = [Round(0, data(chance))]
    rounds += [Round(client, [["HELLO", "3"]]) for client in range(CLIENTS) if chance.random() < 0.4]
    for _ in range(chance.randint(6, 18)):
        client, draw = chance.randrange(CLIENTS), chance.random()
        if draw < 0.2:
            rounds.append(Round(client, volley={one: generator.own_write(chance, one) for one in range(CLIENTS)}))
        elif draw < 0.22:
            rounds.append(Round(client, raw=chance.choice((b"*1\r\n$-5\r\n", b"*2\r\n$3\r\nGET\r\nx\r\n", b"*x\r\n"))))
        elif draw < 0.24:
            value = Big("v" * chance.choice(BIG))
            many = [["SET", "s1", value], ["APPEND", "s2", value], ["GET", "s1"], ["RPUSH", "l1", "a", value], ["MSET", "s1", "a", "s2", value]]
            rounds.append(Round(client, chance.sample(many, chance.randint(1, 3))))
        else:
            commands = [generator.command(chance) for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 9)))]
            cuts = tuple(sorted(chance.random() for _ in range(chance.choice((0, 0, 1, 3)))))
            rounds.append(Round(client, commands, cuts))
    return rounds


def data(chance):
    """So that commands find something."""
    return chance.sample([["RPUSH", "l1", "3", "1", "2"], ["SADD", "t1", "a", "b"], ["SADD", "t2", "b", "1"], ["ZADD", "z1", "1", "a", "2.5", "b"],
                          ["HSET", "h1", "a", "1", "b", "x"], ["XADD", "x1", "1-1", "a", "1"], ["XGROUP", "CREATE", "x1", "grp", "0"],
                          ["SET", "s1", "hello"], ["SET", "n1", "10"], ["GEOADD", "g1", "13.36", "38.11", "a"], ["PFADD", "p1", "a", "b"],
                          ["RPUSH", "wl1", "a"], ["XGROUP", "CREATE", "wx1", "grp", "0", "MKSTREAM"]], 9)


class Typed(Resp):
    """Values as (type, value), so that all that is seen of a reply is compared. Pushes are kept in `pushes`, and so are the
    messages of subscriptions."""

    def _value(self):
        line = self._line()
        kind, rest = line[:1].decode(), line[1:]
        if kind == ",":
            return kind, float(rest)  # a script keeps the value, and not all digits
        if kind in "+-:(_#":
            return kind, rest
        count = int(rest)
        if kind in "$!=":
            return kind, None if count < 0 else self._bytes(count)
        items = [self._element() for _ in range(max(count, 0) * (2 if kind in "%|" else 1))]
        return Push(items) if kind == ">" else (kind, None if count < 0 else items)

    def reply(self):
        while True:
            value = self.read()
            if isinstance(value, Push):
                self.pushes.append(list(value))
            elif value[0] == "*" and value[1] and value[1][0][0] == "$" and value[1][0][1] in OUT_OF_BAND:
                self.pushes.append(value[1])
            else:
                return value


class Told:
    """What a step of a stream came to. `answered`: those of the commands that get a reply, in order."""

    def __init__(self, client, commands, answered):
        self.client, self.commands, self.answered, self.replies, self.pushes = client, commands, answered, [], []
        self.ended = False  # the server has closed


class Side:
    """One side of the comparison: the address that clients connect to, and the server behind it. `others`: how many more
    connections under the tag the server has all the time. `reads`: the gate's policy."""

    def __init__(self, address, server, others=0, reads="pass", patience=20):
        self.address, self.server, self.others, self.reads, self.patience = address, server, others, reads, patience

    def begin(self):
        self.clear()
        self.clients = [None] * CLIENTS
        self.told = []
        self.open = {}  # client: what it waits for the answer of

    def connect(self, client):
        """A client, and its number in the server when the server is plain."""
        if self.clients[client] is None:
            self.clients[client] = Typed(self.address, timeout=self.patience)
            self.clients[client].call("CLIENT", "SETNAME", TAG)
        return self.clients[client]

    def clear(self):
        """No client of a stream before is left, and nothing that it has written."""
        cli = self.server.cli
        name = f"name={TAG} ".encode()
        eventually(lambda: cli.call("CLIENT", "LIST").count(name) <= self.others, every=0.002)
        for database in range(DATABASES):
            cli.call("SELECT", database)
            if keys := self.keys():
                cli.call("DEL", *keys)
        cli.call("SELECT", 0)
        cli.call("FUNCTION", "FLUSH")
        cli.call("SCRIPT", "FLUSH")

    def keys(self):
        return sorted(key for key in self.server.cli.call("KEYS", "*") if not key.startswith(b"fencegate:"))

    def data(self):
        """Per database and key: type, encoding, content, whether it expires; and all of a stream's groups."""
        cli, found = self.server.cli, {}
        for database in range(DATABASES):
            cli.call("SELECT", database)
            for key in self.keys():
                kind = cli.call("TYPE", key)
                groups = cli.call("XINFO", "STREAM", key, "FULL") if kind == b"stream" else None
                found[database, key] = (kind, cli.call("OBJECT", "ENCODING", key), cli.call("DEBUG", "DIGEST-VALUE", key),
                                        cli.call("PTTL", key) > 0, repr(_without_times(groups)))
        cli.call("SELECT", 0)
        return found

    # Steps.

    def send(self, client, commands, answered, marker, cuts=(), raw=b""):
        connection = self.connect(client)
        data = b"".join(encoded(words) for words in [*commands, *marker]) + raw
        at = 0
        for cut in [*(int(share * len(data)) for share in cuts), len(data)]:
            connection.send(data[at:cut])
            at = cut
        told = Told(client, commands, answered)
        self.told.append(told)
        self.open[client] = told
        return told

    def read(self, client, count):
        """So many replies."""
        told = self.open.get(client)  # none, when the server has closed
        try:
            for _ in range(count if told else 0):
                told.replies.append(self.clients[client].reply())
        except TimeoutError:
            told.replies.append(("nothing within the time", b""))
            raise NoAnswer(told) from None
        except ConnectionError:
            told.ended = True
            self.drop(client)

    def finish(self, client, count, marker):
        """Reads so many replies, and the marker's behind them."""
        told, connection = self.open.get(client), self.clients[client]
        self.read(client, count + len(marker))
        if told:
            self._take_pushes(told, connection)

    def until_closed(self, client):
        told, connection = self.open[client], self.clients[client]
        try:
            while True:
                told.replies.append(connection.reply())
        except TimeoutError:
            told.replies.append(("not closed within the time", b""))
            raise NoAnswer(told) from None
        except ConnectionError:
            told.ended = True
        self._take_pushes(told, connection)
        self.drop(client)

    def _take_pushes(self, told, connection):
        told.pushes += connection.pushes
        connection.pushes.clear()
        self.open.pop(told.client, None)

    def drop(self, client):
        if self.clients[client] is not None:
            self.clients[client].close()
            self.clients[client] = None
        self.open.pop(client, None)

    def silent(self, client):
        """Whether nothing has come for a client that waits."""
        return not self.unread(client) and self.clients[client] is not None

    def unread(self, client):
        """What has come for a client and was not read; b"end" when the server has closed."""
        connection = self.clients[client]
        if connection is None:
            return b"end"
        found = bytes(connection._buffer[connection._at :])
        if select.select([connection.sock], [], [], 0)[0]:
            found += connection.sock.recv(1 << 20, socket.MSG_PEEK) or b"end"
        return found

    def end(self):
        """Those who wait are given something first: a gate keeps the connection of one who leaves for a while."""
        if self.open:
            for database in range(DATABASES):
                for words in [["SELECT", database], ["DEL", *KEYS_WAITED_FOR], *(["RPUSH", key, *"abc"] for key in ("l1", "wl1", "wl2")),
                              ["ZADD", "wz1", *"1a2b3c"], ["XADD", "wx1", "99-1", "f", "v"]]:
                    self.server.cli.call(*words)
            for client in list(self.open):
                self.open[client] = Told(client, [], [])
                self.clients[client].sock.settimeout(1)  # it may wait for something else
                with contextlib.suppress(NoAnswer):
                    self.finish(client, 1, [["PING", MARKER]])
        for client in range(CLIENTS):
            self.drop(client)


class NoAnswer(Exception):
    """`told`: the step that has not ended."""

    def __init__(self, told):
        super().__init__(f"client {told.client}: {told.commands} → {told.replies}")
        self.told = told


def encoded(words):
    if isinstance(words, Inline):
        return " ".join(words).encode() + b"\r\n"
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = str(word).encode()
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)


def _without_times(value):
    """Of XINFO STREAM FULL: consumers have seen-time and pending ones a time of delivery. Those are 13 digits."""
    if isinstance(value, list):
        return [_without_times(one) for one in value]
    return "time" if isinstance(value, int) and value > 10**11 else value
