"""PostgreSQL's protocol in raw bytes, for tests that must see every byte: builders of messages, and a connection.

    with Wire(server.port, options="-c fencing.tokens=orders=34") as wire:
        wire.send(query("SELECT 1"), TERMINATE)
        replies = wire.rest()
"""

import struct
import threading

from processes import PATIENCE, connect

PROTOCOL_3 = 3 << 16
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSS_REQUEST = struct.pack("!ii", 8, 80877104)


def message(kind, body=b""):
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value):
    return (value.encode() if isinstance(value, str) else value) + b"\0"


def startup(version=PROTOCOL_3, **parameters):
    body = struct.pack("!i", version) + b"".join(text(k) + text(v) for k, v in parameters.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def cancel_request(pid, key):
    return struct.pack("!iii", 12 + len(key), 80877102, pid) + key


def query(sql):
    return message(b"Q", text(sql))


def parse(sql, name="", types=()):
    return message(b"P", text(name) + text(sql) + struct.pack(f"!h{len(types)}i", len(types), *types))


def bind(*values, portal="", statement=""):
    """All values as text, all results as text."""
    values = [v if v is None or isinstance(v, bytes) else str(v).encode() for v in values]
    data = b"".join(struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in values)
    count = struct.pack("!hh", 0, len(values))
    return message(b"B", text(portal) + text(statement) + count + data + struct.pack("!h", 0))


def bind_to(portal="", statement="", values=(), binary_results=False):
    """The same in the order of the message. `binary_results`: all of them."""
    made = bind(*values, portal=portal, statement=statement)
    return message(b"B", made[5:-2] + struct.pack("!hh", 1, 1)) if binary_results else made


def describe(kind, name=""):
    return message(b"D", kind + text(name))


def execute(portal="", rows=0):
    return message(b"E", text(portal) + struct.pack("!i", rows))


def close(kind, name=""):
    return message(b"C", kind + text(name))


def extended(sql, *values):
    return parse(sql) + bind(*values) + describe(b"P") + execute()


def copy_data(data):
    return message(b"d", data)


def function_call(oid, *values, binary=False):
    data = b"".join(struct.pack("!i", len(v)) + v for v in values)
    formats = struct.pack("!hh", 1, 1) if binary else struct.pack("!h", 0)
    return message(b"F", struct.pack("!i", oid) + formats + struct.pack("!h", len(values)) + data + struct.pack("!h", 0))


SYNC, FLUSH, TERMINATE, COPY_DONE = message(b"S"), message(b"H"), message(b"X"), message(b"c")


def copy_fail(why):
    return message(b"f", text(why))


def split(data):
    """[(type, body)] of the server's messages; what is left over at the end has the type b""."""
    found, at = [], 0
    while at < len(data):
        size = struct.unpack_from("!i", data, at + 1)[0] + 1 if len(data) - at >= 5 else 0
        if not 5 <= size <= len(data) - at:
            return found + [(b"", data[at:])]
        found.append((data[at : at + 1], data[at + 5 : at + size]))
        at += size
    return found


def fields(body):
    """Of an ErrorResponse or NoticeResponse: {"C": "ZF001", …}"""
    return {part[:1].decode(): part[1:].decode(errors="replace") for part in body.split(b"\0") if part}


class Wire:
    """A connection that has said StartupMessage. `opening`: what to send instead of one."""

    connect = staticmethod(connect)

    def __init__(self, address, user="postgres", database="postgres", timeout=PATIENCE, opening=None, **parameters):
        self.sock = self.connect(address, timeout)
        self.sock.sendall(opening or startup(user=user, database=database, **parameters))
        self._buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, *messages):
        self.sock.sendall(b"".join(messages))

    def read(self):
        """The next message, (type, body). ConnectionError when the peer closes."""
        data = self._bytes(5)
        return data[:1], self._bytes(struct.unpack("!i", data[1:])[0] - 4)

    def until_ready(self):
        """All messages up to ReadyForQuery. ConnectionError, with the last message, when the peer closes before."""
        found = [self.read()]
        while found[-1][0] != b"Z":
            try:
                found.append(self.read())
            except ConnectionError as error:
                raise ConnectionResetError(f"{error} after {found[-1]}") from error
        return found

    def rest(self):
        """All bytes up to the peer's end."""
        parts = [self._buffer]
        while data := self.sock.recv(1 << 18):
            parts.append(data)
        self._buffer = b""
        return b"".join(parts)

    def converse(self, data, piece=1 << 16):
        """Sends `data` in pieces while it reads, so that neither side can block the other; all that came back."""
        sender = threading.Thread(target=self._send_pieces, args=(data, piece), daemon=True)
        sender.start()
        replies = self.rest()
        sender.join()
        return replies

    def _send_pieces(self, data, piece):
        for at in range(0, len(data), piece):
            self.sock.sendall(data[at : at + piece])

    def _bytes(self, count):
        while len(self._buffer) < count:
            data = self.sock.recv(1 << 16)
            if not data:
                raise ConnectionResetError("closed by the peer")
            self._buffer += data
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data
