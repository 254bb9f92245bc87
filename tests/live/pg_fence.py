"""The vocabulary of the tests of the SQL: fenced databases (also with a part of the mechanism taken out), writers, what
they were told, and statements that run in the background.

    def attack(test, base):                 # True: the fence did not hold
        old, new = base.armed(33), base.writer()
        ...
"""

import itertools
import json
import threading
import unittest

import psycopg2

from live_test import LiveTest
from postgres import PostgresServer, run_sql
from processes import PATIENCE, eventually

_names = itertools.count()


class Rejected:
    """What a statement failed with. `state` is None when the connection was lost without a word."""

    def __init__(self, error):
        self.state = error.pgcode
        self.text = str(error)
        self.message = (error.diag.message_primary or "") if error.diag else ""
        self.detail = error.diag.message_detail if error.diag else None
        self.hint = error.diag.message_hint if error.diag else None

    def json(self):
        return json.loads(self.detail)

    def __repr__(self):
        return f"Rejected({self.state}, {self.text!r})"


class Client:
    """A session. Methods return rows, None, or Rejected: most tests want to look at it."""

    def __init__(self, base, user, options=""):
        self.base = base
        # A test that would hang fails instead.
        self.connection = base.server.connect(user, base.name, options=f"-c statement_timeout=30s {options}")
        self.pid = self.connection.get_backend_pid()
        base.clients.append(self)

    def run(self, text, *values):
        try:
            return run_sql(self.connection, text, *values)
        except psycopg2.Error as error:
            return Rejected(error)

    def arm(self, token, resource="orders"):
        return self.run("SELECT fencegate.arm(%s, %s)", resource, token)

    def write(self, note="a stale write"):
        """INSERT; True when it went through."""
        return self.run("INSERT INTO writes (pid, note) VALUES (pg_backend_pid(), %s)", note) is None

    def begin(self, how=""):
        assert self.run("BEGIN " + how) is None

    def in_background(self, text, *values):
        return Background(self, text, *values)

    def alive(self):
        return not isinstance(self.run("SELECT 1"), Rejected)

    def close(self):
        self.connection.close()


class Background:
    """A statement that runs in a thread of its own."""

    def __init__(self, client, text, *values):
        self.client = client
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(text, values), daemon=True)
        self._thread.start()

    def _run(self, text, values):
        self._outcome = self.client.run(text, *values)

    def done(self):
        return not self._thread.is_alive()

    def wait_until_blocked(self, kind="Lock"):
        """Returns when it waits for a lock, or for another kind of event. False when it ended instead."""
        return eventually(lambda: self.done() or self.client.base.waits_for(self.client.pid) == kind) and not self.done()

    def outcome(self, deadline=PATIENCE):
        self._thread.join(deadline)
        if self._thread.is_alive():
            raise AssertionError("the statement did not end")
        return self._outcome


class Base:
    """A database of its own with the fence, a table `writes`, and a mark of 33 for "orders"."""

    def __init__(self, server, mutate=None, **install):
        self.server = server
        self.name = f"base{next(_names)}"
        self.clients = []
        self.closed = False
        server.sql(f"CREATE DATABASE {self.name}")
        server.install(self.name, mutate=mutate, **install)
        self.owner = Client(self, "postgres")
        self.sql("CREATE TABLE writes (pid integer, note text)")
        self.sql("GRANT ALL ON writes TO PUBLIC")
        self.sql("INSERT INTO fencegate.marks (resource, mark) VALUES ('orders', 33)")

    def sql(self, text, *values):
        return run_sql(self.owner.connection, text, *values)

    def value(self, text, *values):
        rows = self.sql(text, *values)
        return rows[0][0] if rows else None

    def writer(self, user="alice", options=""):
        return Client(self, user, options)

    def armed(self, token, user="alice"):
        client = self.writer(user)
        armed = client.arm(token)
        assert armed == [(token,)], armed
        return client

    def mark(self, resource="orders"):
        return self.value("SELECT mark FROM fencegate.marks WHERE resource = %s", resource)

    def writes(self):
        return [note for (note,) in self.sql("SELECT note FROM writes")]

    def waits_for(self, pid):
        return self.value("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", pid)

    def gone(self, pid):
        return self.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == 0

    def close(self):
        for client in self.clients:
            client.close()


class FenceTest(LiveTest):
    """One server, with `users`, for all classes of a file that have the same `conf`."""

    conf = {}
    users = ("alice", "bob")
    _servers = {}

    @classmethod
    def setUpClass(cls):
        settings = repr((cls.conf, cls.users))
        if settings not in cls._servers:
            server = unittest.enterModuleContext(PostgresServer(max_prepared_transactions=2, **cls.conf))
            for name in cls.users:
                server.user(name)
            unittest.addModuleCleanup(cls._servers.clear)
            cls._servers[settings] = server
        cls.server = cls._servers[settings]

    def base(self, mutate=None, **install):
        base = Base(self.server, mutate, **install)
        self.addCleanup(base.close)
        return base

    def assert_rejected(self, outcome, state, *words):
        self.assertIsInstance(outcome, Rejected)
        self.assertEqual(outcome.state, state, outcome)
        for word in words:
            self.assertIn(word, outcome.message)
        if state is not None:
            self.assertTrue(outcome.message.endswith("; not applied"), outcome)
            self.assertEqual(outcome.json()["applied"], "no")

    def freeze(self, pid):
        self.addCleanup(self._thaw, pid)
        self.server.freeze(pid)

    def _thaw(self, pid):
        try:
            self.server.thaw(pid)
        except ProcessLookupError:
            pass


def without(*texts, instead=""):
    """A mutation: each text, which must be there exactly once, is taken out (or replaced)."""
    def mutate(schema):
        for text in texts:
            if schema.count(text) != 1:
                raise AssertionError(f"{schema.count(text)} times in the schema: {text}")
            schema = schema.replace(text, instead)
        return schema
    return mutate


def within(function, old, new=""):
    """A mutation of one function's text."""
    def mutate(schema):
        start = schema.index(f"CREATE OR REPLACE FUNCTION fencegate.{function}(")
        end = schema.find("CREATE OR REPLACE FUNCTION", start + 1)
        body = schema[start:end]
        if body.count(old) != 1:
            raise AssertionError(f"{body.count(old)} times in {function}: {old}")
        return schema[:start] + body.replace(old, new) + schema[end:]
    return mutate


# Of fencegate.guard and fencegate.hold.
NO_SHORT_WAY = within("hold_one", "AND NOT pg_catalog.pg_is_in_recovery()", "AND false")


def everywhere(old, new=""):
    def mutate(schema):
        if old not in schema:
            raise AssertionError(f"not in the schema: {old}")
        return schema.replace(old, new)
    return mutate


def add_mutations(test_class, table):
    """Two tests for each entry, `what is taken out: (the mutation, the attack that then succeeds, how the database is set
    up)`: that the attack fails, and that it succeeds without that part. `mutate` in the last one holds for both."""
    for name, (mutate, attack, install) in table.items():
        _add_mutation(test_class, name, mutate, attack, dict(install))


def _add_mutation(test_class, name, mutate, attack, install):
    before = install.pop("mutate", lambda schema: schema)

    def holds(self):
        self.assertFalse(attack(self.base(before, **install)), "the attack succeeded")

    def is_needed(self):
        self.assertTrue(attack(self.base(lambda schema: mutate(before(schema)), **install)),
                        "the attack fails without it, too")

    words = name.replace(" ", "_").replace(":", "").replace("'", "")
    setattr(test_class, f"test_{words}_holds", holds)
    setattr(test_class, f"test_{words}_is_needed", is_needed)
