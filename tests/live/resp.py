"""A raw Redis client, which shows each reply as it came."""

import contextlib
import socket
import struct
import threading
import time

from processes import PATIENCE, connect


class RespError(Exception):
    """An error reply. Returned, not raised: most tests want to look at it."""

    @property
    def code(self):
        return str(self).split(" ", 1)[0]

    def __eq__(self, other):
        return isinstance(other, RespError) and str(self) == str(other)

    __hash__ = Exception.__hash__


class Push(list):
    """A RESP3 push."""


def encode(*args):
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        data = arg if isinstance(arg, (bytes, bytearray)) else str(arg).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)


def _hashable(value):
    if isinstance(value, (list, set, frozenset)):
        return tuple(map(_hashable, value))
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


class Resp:
    """A raw Redis client. `named` is the answer to CLIENT SETNAME or HELLO. ConnectionError when the peer closes."""

    connect = staticmethod(connect)

    def __init__(self, address, name=None, proto=2, user=None, password=None, timeout=PATIENCE):
        self.sock = self.connect(address, timeout)
        self.pushes = []  # those that came while `call` or `pipeline` waited for a reply
        self._buffer = bytearray()
        self._at = 0
        self.named = None
        if proto != 2:
            auth = ("AUTH", user or "default", password) if password else ()
            self.named = self.call("HELLO", proto, *auth, *(("SETNAME", name) if name else ()))
            return
        if password:
            answer = self.call("AUTH", *((user,) if user else ()), password)
            if answer != b"OK":
                raise ConnectionError(f"AUTH: {answer}")
        if name:
            self.named = self.call("CLIENT", "SETNAME", name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_command(self, *args):
        self.send(encode(*args))

    def call(self, *args):
        self.send_command(*args)
        return self.reply()

    def pipeline(self, commands):
        """Sends all while it reads, so that a long one cannot block itself; returns all replies."""
        data = b"".join(encode(*command) for command in commands)
        sender = threading.Thread(target=self._send_quietly, args=(data,), daemon=True)
        sender.start()
        replies = [self.reply() for _ in commands]
        sender.join()
        return replies

    def _send_quietly(self, data):
        with contextlib.suppress(OSError):  # the reader finds the connection closed
            self.sock.sendall(data)

    def reply(self):
        """The next reply; pushes before it are kept in `pushes`."""
        while isinstance(value := self.read(), Push):
            self.pushes.append(value)
        return value

    def read(self):
        """The next reply or push."""
        value = self._value()
        if self._at > 65536 or self._at == len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0
        return value

    def closed(self, deadline=PATIENCE):
        """True when the peer closes within the deadline; what it still sends is dropped."""
        end = time.monotonic() + deadline
        try:
            while (left := end - time.monotonic()) > 0:
                self.sock.settimeout(left)
                if not self.sock.recv(65536):
                    return True
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    def _more(self):
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionResetError("closed by the peer")
        self._buffer += data

    def _line(self):
        seen = self._at
        while (end := self._buffer.find(b"\r\n", seen)) < 0:
            seen = max(self._at, len(self._buffer) - 1)
            self._more()
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _bytes(self, count):
        while len(self._buffer) - self._at < count + 2:
            self._more()
        data = bytes(memoryview(self._buffer)[self._at : self._at + count])
        if self._buffer[self._at + count : self._at + count + 2] != b"\r\n":
            raise ValueError("a bulk string that does not end with CRLF")
        self._at += count + 2
        return data

    def _element(self):
        while isinstance(value := self._value(), Push):  # may stand between the elements of EXEC's reply
            self.pushes.append(value)
        return value

    def _value(self):
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return RespError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"(":  # a script may call any text a big number
            return int(rest) if rest.lstrip(b"+-").isdigit() else rest
        if kind == b"_":
            return None
        if kind == b"#":
            return {b"t": True, b"f": False}[rest]
        if kind == b",":
            return float(rest)
        count = int(rest)
        if kind in b"$!=":
            data = None if count < 0 else self._bytes(count)
            if kind == b"!":
                return RespError(data.decode(errors="replace"))
            return data[4:] if kind == b"=" else data
        if kind in b"*~>":
            items = None if count < 0 else [self._element() for _ in range(count)]
            return Push(items) if kind == b">" else set(map(_hashable, items)) if kind == b"~" else items
        if kind in b"%|":
            pairs = [(_hashable(self._element()), self._element()) for _ in range(count)]
            return dict(pairs) if kind == b"%" else self._value()  # an attribute precedes a value and is not one
        raise ValueError(f"not a reply: {line[:80]!r}")
