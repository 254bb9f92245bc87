"""The PostgreSQL of the demo: a private server, as the live tests have it, and a client."""

import contextlib
import shutil
import socket
import struct
import sys
import time
from pathlib import Path

from stage import DEADLINE, Missing, Trouble

sys.path.append(str(Path(__file__).resolve().parents[1] / "live"))
try:
    from postgres import PostgresServer, binary
except ImportError:  # psycopg2, which the server is prepared with
    PostgresServer = None

USER = DATABASE = "app"


def find_postgres():
    if PostgresServer is None:
        raise Missing("Python's psycopg2 is not installed: run `./dev setup`, or `apt-get install python3-psycopg2`")
    for program, package in ((binary("initdb"), "postgresql-15"), ("setpriv", "util-linux")):
        if not shutil.which(program):
            raise Missing(f"{program} is not installed: run `./dev setup`, or `apt-get install {package}`")


def at_node(name, port):
    """In front of a command with psql in it: the node that it runs on, whose sidecar listens on that port."""
    return ["env", f"HOSTNAME={name}", "PGHOST=127.0.0.1", f"PGPORT={port}", f"PGUSER={USER}", f"PGDATABASE={DATABASE}"]


@contextlib.contextmanager
def private_server():
    """With a database `app` of a user `app`, and a user `fencegate` for the gates. Who waits for a lock gives up after
    one second, so that the story can go on."""
    server = PostgresServer(lock_timeout="1s", shared_buffers="8MB")
    try:
        try:
            server.__enter__()
        except (AssertionError, RuntimeError) as failed:
            raise Trouble(f"PostgreSQL does not start: {failed}") from None
        server.user(USER)
        server.user("fencegate")
        server.sql(f"CREATE DATABASE {DATABASE} OWNER {USER}")
        yield server
    finally:
        if server.child is not None:
            server.__exit__(None, None, None)


class Client:
    """A connection that speaks as much of PostgreSQL's protocol as the story needs. Answers are text: "UPDATE 1", a
    value, "ZF001: token …" for an error with its SQLSTATE."""

    def __init__(self, port, tag=None, user=USER):
        started = time.monotonic()
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.socket.settimeout(DEADLINE)
        self.stream = self.socket.makefile("rb")
        parameters = {"user": user, "database": DATABASE} | ({"options": f"-c fencing.tokens={tag}"} if tag else {})
        packet = struct.pack("!I", 3 << 16) + b"".join(f"{k}\0{v}\0".encode() for k, v in parameters.items()) + b"\0"
        self.socket.sendall(struct.pack("!I", 4 + len(packet)) + packet)
        self.greeting = self.read() or f"connected in {(time.monotonic() - started) * 1000:.0f} ms"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.socket.close()

    def send(self, sql):
        text = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!I", 4 + len(text)) + text)

    def read(self):
        """Up to ReadyForQuery or the end: the error, else the last row's first value, else the last command's tag."""
        error = value = tag = None
        try:
            while head := self.stream.read(5):
                kind, size = struct.unpack("!cI", head)
                body = self.stream.read(size - 4)
                if kind == b"E":
                    fields = {field[:1]: field[1:].decode(errors="replace") for field in body.split(b"\0") if field}
                    error = f"{fields[b'C']}: {fields[b'M']}"
                elif kind == b"D":
                    value = body[6:6 + int.from_bytes(body[2:6], "big")].decode()
                elif kind == b"C":
                    tag = body[:-1].decode()
                elif kind == b"Z":
                    return error or value or tag
        except TimeoutError:
            raise Trouble(f"no answer within {DEADLINE} s") from None
        return error or "(connection closed)"

    def call(self, sql):
        self.send(sql)
        return self.read()
