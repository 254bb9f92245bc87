"""HTTP as bytes: the corpus, an upstream that takes down exactly what reached it, a client that reads strictly."""

import contextlib
import os
import re
import socket
import threading

from processes import LOOPBACK, PATIENCE, connect, eventually, free_port

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "corpus")
_ESCAPES = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"\\": b"\\"}
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\Z")


class Malformed(Exception):
    """What came is no HTTP as the gate writes it."""


class Ended(Exception):
    """The peer closed in the middle; the argument is what had come of the body, None when the head was incomplete."""


# -------------------------------------------------------------------------------------------------------- the corpus


class Case:
    def __init__(self, name, section=""):
        self.name, self.section, self.method, self.bytes, self.expected = name, section, "GET", b"", []
        self.trailers = b""


def unescaped(text):
    def byte(match):
        escape = match.group(1)
        return bytes([int(escape[1:], 16)]) if escape[:1] == b"x" else _ESCAPES[escape]

    return re.sub(rb"\\(x[0-9A-Fa-f]{2}|.)", byte, text)


def read_corpus(name):
    """See tests/corpus/README.md."""
    cases, section = [], ""
    with open(os.path.join(CORPUS, name), "rb") as file:
        for line in file.read().split(b"\n"):
            word, _, text = line.partition(b" ")
            if word == b"##":
                section = text.decode()
            if not line or line.startswith(b"#"):
                continue
            if word == b"case":
                cases.append(Case(text.decode(), section))
            elif word == b"method":
                cases[-1].method = text.decode()
            elif word == b"send":
                cases[-1].bytes += unescaped(text)
            elif word == b"fill":
                count, _, piece = text.partition(b" ")
                cases[-1].bytes += unescaped(piece) * int(count)
            elif word == b"trailers":
                cases[-1].trailers += unescaped(text)
            elif word == b"expect":
                cases[-1].expected.append(unescaped(text))
            elif word != b"why":
                raise ValueError(f"{name}: {line!r} begins with no word of the format")
    return cases


# ---------------------------------------------------------------------------------------------------------- messages


class Message:
    def __init__(self, start, fields, raw):
        self.start, self.fields, self.body, self.trailers = start, fields, b"", b""
        self.raw = raw  # its head

    @property
    def status(self):
        return int(self.start.split(b" ")[1])

    def __getitem__(self, name):
        return self.fields.get(name.lower().encode())


class Reader:
    """Reads messages off a socket as strictly as the gate has to write them."""

    def __init__(self, sock):
        self.sock, self.data = sock, b""
        self.wants_trailers = False

    def _more(self):
        try:
            part = self.sock.recv(1 << 16)
        except ConnectionResetError:
            part = b""
        self.data += part
        return bool(part)

    def head(self):
        """None: the peer has closed, and sent nothing more."""
        while b"\r\n\r\n" not in self.data:
            if not self._more():
                if self.data:
                    raise Ended(None)
                return None
        raw, _, self.data = self.data.partition(b"\r\n\r\n")
        start, *lines = raw.split(b"\r\n")
        fields = {}
        for line in lines:
            if not _FIELD.match(line):
                raise Malformed(line)
            name, _, value = line.partition(b": ")
            name = name.lower()
            if name in (b"content-length", b"transfer-encoding", b"host") and name in fields:
                raise Malformed(f"{name} twice in {raw!r}")
            fields[name] = value
        return Message(start, fields, raw + b"\r\n\r\n")

    def body(self, message, until_close=False):
        length, coding = message["Content-Length"], message["Transfer-Encoding"]
        if length is not None and coding is not None:
            raise Malformed(f"both framings in {message.raw!r}")
        if coding is not None:
            if coding != b"chunked":
                raise Malformed(coding)
            message.body, message.trailers = self._chunks()
        elif length is not None:
            if not re.fullmatch(rb"0|[1-9][0-9]*", length):
                raise Malformed(length)
            message.body = self.take(int(length), b"")
        elif until_close:
            while self._more():
                pass
            message.body, self.data = self.data, b""
        return message

    def take(self, count, before):
        while len(self.data) < count:
            if not self._more():
                raise Ended(before + self.data)
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def _line(self, before):
        while b"\r\n" not in self.data:
            if not self._more():
                raise Ended(before)
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def _chunks(self):
        body = b""
        while True:
            line = self._line(body)
            if not re.fullmatch(rb"0|[1-9a-f][0-9a-f]*", line):
                raise Malformed(f"chunk {line!r}")
            if line == b"0":
                return body, self._trailers(body)
            body += self.take(int(line, 16), body)
            if self.take(2, body) != b"\r\n":
                raise Malformed("the end of a chunk")

    def _trailers(self, body):
        trailers = b""
        while line := self._line(body):
            if not self.wants_trailers or not _FIELD.match(line):
                raise Malformed(f"a trailer: {line!r}")
            trailers += line + b"\r\n"
        return trailers

    def rest(self):
        """All that still comes."""
        while self._more():
            pass
        rest, self.data = self.data, b""
        return rest


class Client:
    """Of a gate."""

    def __init__(self, address, timeout=PATIENCE):
        self.sock = connect(address, timeout)
        self.reader = Reader(self.sock)
        self.interim = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        with contextlib.suppress(ConnectionError):  # an answer may have ended it
            self.sock.sendall(data)

    def ask(self, line, fields=None, body=b""):
        """`line`: method and target."""
        head = f"{line} HTTP/1.1\r\nHost: a.example\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in (fields or {}).items())
        self.send(head.encode() + b"\r\n" + body)

    def answer(self, method="GET"):
        """The next final answer; None when the gate has closed. Interim ones are kept in `interim`."""
        while (message := self.reader.head()) is not None and message.status < 200:
            self.interim.append(message.status)
        if message is None or method == "HEAD" or message.status in (204, 304):
            return message
        return self.reader.body(message, until_close=True)

    def end(self):
        """Says that nothing more comes."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)


# -------------------------------------------------------------------------------------------------------- an upstream


class RawUpstream:
    """`serve(reader, number)` has each connection, and is given its number; it closes when that returns. What went
    wrong in it is kept in `errors`. `path`: listens on a unix socket."""

    def __init__(self, serve, path=None):
        self.serve, self.path = serve, path
        self.errors, self.count, self.open, self.lock = [], 0, set(), threading.Lock()
        self.looking = None  # the address that settle() calls from

    def __enter__(self):
        if self.path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(self.path)
            self.listener.listen(512)
            self.port = None
        else:
            self.listener = socket.create_server((LOOPBACK, free_port()), backlog=512)
            self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()
        with self.lock:
            left = list(self.open)
        for sock in left:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                sock, caller = self.listener.accept()
            except OSError:
                return
            sock.settimeout(PATIENCE)
            with self.lock:
                if caller == self.looking:
                    self.looking = None
                    sock.close()
                    continue
                self.open.add(sock)
                number, self.count = self.count, self.count + 1
            threading.Thread(target=self._run, args=(sock, number), daemon=True).start()

    def _run(self, sock, number):
        try:
            self.serve(Reader(sock), number)
        except (OSError, Ended):
            pass
        except Exception as error:  # a test asserts that there is none
            self.errors.append(error)
        finally:
            sock.close()
            with self.lock:
                self.open.discard(sock)

    def idle(self):
        with self.lock:
            return not self.open

    def settle(self):
        """Waits until all connections that were made before have come to their end. Those that nobody has accepted yet are
        in the listener's queue, in front of this one."""
        with socket.socket() as last:
            last.bind((LOOPBACK, 0))
            self.looking = last.getsockname()
            last.connect((LOOPBACK, self.port))
            eventually(lambda: self.looking is None and self.idle())


class Recorder(RawUpstream):
    """Answers each request with 200. `whole` holds the requests that came completely, `broken` those that did not."""

    def __init__(self, **where):
        super().__init__(self._record, **where)
        self.whole, self.broken = [], []

    def _record(self, reader, _):
        while True:
            head = None
            try:
                head = reader.head()
                if head is None:
                    return
                self.whole.append(reader.body(head))
            except Ended:
                self.broken.append(head)
                return
            reader.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
