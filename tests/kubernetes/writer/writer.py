"""A writer as users have them: it takes a lease, writes to its Redis, its PostgreSQL and the service `catalog`, and learns
only late that its lease is gone. All that it knows of fencing is where it puts the lease's token.

It reports each outcome to the lock service, past all gates: ok, refused (certainly not applied), or unknown. The tests
compare that with what the servers hold.
"""

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.parse

import psycopg2

LOCKS = ("locks", 8500)
ADDRESSES = {name: urllib.parse.urlsplit(os.environ[f"{name}_URL"]) for name in ("REDIS", "DATABASE", "CATALOG")}
POD = socket.gethostname()
PATIENCE = 30
LATE_WRITES = 20  # after the lease is given back: what a shutdown hook still flushes

ending = threading.Event()


def ask_locks(path, **fields):
    """What the lock service answers; None while it says no or cannot be reached."""
    connection = http.client.HTTPConnection(*LOCKS, timeout=PATIENCE)
    try:
        connection.request("POST", path, json.dumps(fields | {"pod": POD}))
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def outcome_of(words):
    """Of an error: the fence says in all three protocols whether something was applied, the servers do not."""
    return "refused" if re.search(r'"applied": ?"no"', words) else "unknown"


class Redis:
    def __init__(self, token):
        self.sock = socket.create_connection((ADDRESSES["REDIS"].hostname, ADDRESSES["REDIS"].port), PATIENCE)
        self.replies = self.sock.makefile("rb")
        self.call("CLIENT", "SETNAME", f"fence:orders={token}")

    def call(self, *words):
        self.sock.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words))
        line = self.replies.readline()
        if not line:
            raise ConnectionError
        return line.decode()

    def write(self, what):
        answer = self.call("RPUSH", "orders:log", json.dumps(what))
        return ("refused", answer) if answer.startswith("-") else ("ok", "")

    def close(self):
        self.sock.close()


class Postgres:
    def __init__(self, token):
        self.session = psycopg2.connect(ADDRESSES["DATABASE"].geturl(), options=f"-c fencing.tokens=orders={token}",
                                        connect_timeout=PATIENCE)
        self.session.autocommit = True

    def write(self, what):
        with self.session.cursor() as cursor:
            cursor.execute("INSERT INTO writes(doc) VALUES (%s)", (json.dumps(what),))
        return "ok", ""

    def close(self):
        self.session.close()


class Catalog:
    """`method` and `target`: of a forwarded route, or of one that is a statement."""

    def __init__(self, token, method, target):
        self.token, self.method, self.target = token, method, target
        self.connection = http.client.HTTPConnection(ADDRESSES["CATALOG"].hostname, ADDRESSES["CATALOG"].port, timeout=PATIENCE)

    def write(self, what):
        self.connection.request(self.method, self.target, json.dumps(what), {"Fencing-Token": str(self.token)})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status < 300:
            return "ok", ""
        return outcome_of(text), text

    def close(self):
        self.connection.close()


GATES = {
    "redis": Redis,
    "postgres": Postgres,
    "put": lambda token: Catalog(token, "PUT", "/items/7"),
    "post": lambda token: Catalog(token, "POST", "/orders"),
}


class Client:
    """One gate's connection, made again when it ended."""

    def __init__(self, make, token):
        self.make, self.token, self.open = make, token, None

    def write(self, what):
        """(outcome, the words of it)"""
        try:
            self.open = self.open or self.make(self.token)
        except (OSError, psycopg2.Error) as error:
            return "refused", f"no connection: {error}"
        try:
            return self.open.write(what)
        except (OSError, http.client.HTTPException, psycopg2.Error) as error:
            self.open.close()
            self.open = None
            return outcome_of(str(error)), f"{type(error).__name__}: {error}"


def hold(token):
    """Writes until the lease is gone, or the pod ends; then the late writes."""
    clients = {name: Client(make, token) for name, make in GATES.items()}
    held = threading.Event()
    held.set()

    def renew():
        while held.is_set():
            if ending.is_set():
                ask_locks("/release", token=token)
                held.clear()
            elif not ask_locks("/renew", token=token):
                held.clear()
            time.sleep(0.2)

    renewing = threading.Thread(target=renew)
    renewing.start()
    count = left = 0
    while held.is_set() or left < LATE_WRITES:
        left += not held.is_set()
        for name, client in clients.items():
            outcome, words = client.write({"token": token, "pod": POD, "n": count})
            ask_locks("/report", gate=name, token=token, n=count, outcome=outcome, words=words, late=not held.is_set())
        count += 1
        time.sleep(0.05)
    renewing.join()


def main():
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    while not ending.is_set():
        if lease := ask_locks("/acquire"):
            hold(lease["token"])
        time.sleep(0.1)


main()
