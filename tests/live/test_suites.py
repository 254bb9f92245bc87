"""The tests that hiredis and libpqxx come with, run against the server and then through a gate under a token that is good all
the time. Each ends alike, but for those that are listed here with the reason. Only with `ctest -C all`; the lists are of the
versions in Debian 12."""

import os
import re
import subprocess
import unittest

import suite_sources
from documents import text
from postgres import PgGate, PostgresServer
from support import LOOPBACK, Gate, LiveTest, RedisServer, main

DEBIAN = "bookworm"
LISTENER = {"tag_from": "listen", "tag": "suite=1"}
MARK = "fencegate:mark:{suite}"
PAGE = "docs/applications.md"


def setUpModule():
    if suite_sources.release() != DEBIAN:
        raise unittest.SkipTest(f"the lists are of the versions in Debian's {DEBIAN}")


def said_by(*command, folder=None, **environment):
    """All that a suite's program prints, without colours. Its status says what its text says."""
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600, check=False)
    return re.sub(r"\033\[[0-9;]*m", "", done.stdout)


def differences(direct, through):
    """Of two {test: outcome}; a test that one of them lacks was not reached there."""
    return {test: f"{direct.get(test)} directly, {through.get(test)} through the gate"
            for test in sorted(direct | through) if direct.get(test) != through.get(test)}


class SuiteTest(LiveTest):
    maxDiff = None

    def assert_alike(self, direct, through, listed, said=""):
        """`listed`: {why: the tests that end in another way for this reason}."""
        found = differences(direct, through)
        known = {test for tests in listed.values() for test in tests}
        self.assertEqual({test: how for test, how in found.items() if test not in known}, {}, said[-6000:])
        self.assertEqual(known - found.keys(), set(), "these end alike by now: take them off the list")

    def assert_documented(self, library, direct, listed):
        """The page has this row, and names the tests that differ."""
        (row,) = [line for line in text(PAGE).splitlines() if line.startswith(f"| {library} |")]
        self.assertIn(f"| {len(direct)} |", row)
        self.assertEqual(sorted(re.findall(r"`(test_\w+)`", row)), sorted(test for tests in listed.values() for test in tests))


class Hiredis(SuiteTest):
    """It empties its database, 9, after each part."""

    def setUp(self):
        self.redis = self.start(RedisServer(unixsocket="redis.sock"))

    def outcomes(self, port, path):
        """({test: outcome}, what it said)"""
        said = said_by(suite_sources.hiredis(), "-h", LOOPBACK, "-p", str(port), "-s", path)
        found = {}
        for part in re.split(r"^Testing against ", said, flags=re.M):
            way = "" if part is said else part.split("(")[0]
            for name, outcome in re.findall(r"#\d+ ((?:(?!#\d).)*?): (PASSED|FAILED)$", part, re.M):
                self.assertNotIn(way + name, found)
                found[way + name] = outcome
        return found, said

    def through_gates(self):
        tcp, unix = (self.start(Gate(self.redis, extra=LISTENER, allow_commands=["flushdb"], unix=unix)) for unix in (False, True))
        return self.outcomes(tcp.port, unix.address)

    def test_ends_alike(self):
        direct, _ = self.outcomes(self.redis.port, os.path.join(self.redis.folder, "redis.sock"))
        self.assertEqual((len(direct), set(direct.values())), (83, {"PASSED"}), direct)
        through, said = self.through_gates()
        self.assertEqual(self.redis.cli.call("GET", MARK), b"1")
        self.assert_alike(direct, through, {}, said)
        self.assert_documented("hiredis 0.14.1", direct, {})

    def test_a_stale_token_would_be_seen(self):
        direct, _ = self.outcomes(self.redis.port, os.path.join(self.redis.folder, "redis.sock"))
        self.redis.cli.call("SET", MARK, "2")
        found = differences(direct, self.through_gates()[0])
        self.assertIn("PASSED directly, FAILED through the gate", found["TCP connection Is a able to send commands verbatim"])


class Libpqxx(SuiteTest):
    def outcomes(self, port, **environment):
        """({test: outcome}, what it said)"""
        found, said = {}, ""
        for runner in suite_sources.libpqxx():
            heard = said_by(runner, PGHOST=LOOPBACK, PGPORT=str(port), PGUSER="suite", PGDATABASE="postgres",
                            folder=os.path.dirname(runner), **environment)
            failed = set(re.findall(r"^FAILED: (.*)$", heard, re.M))
            found |= {test: "failed" if test in failed else "passed" for test in re.findall(r"^Running: (.*)$", heard, re.M)}
            said += heard
        return found, said

    def server(self):
        server = self.start(PostgresServer())
        server.install()
        server.user("suite")
        server.sql("GRANT ALL ON SCHEMA public TO suite")
        return server

    def check(self, settings, listed, **gate):
        direct, said = self.outcomes(self.server().port)
        self.assertEqual((len(direct), set(direct.values())), (98, {"passed"}), said)
        server = self.server()
        through, said = self.outcomes(self.start(PgGate(server, **gate)).port, PGOPTIONS="-c fencing.tokens=suite=1")
        self.assertEqual(server.sql("SELECT resource, mark FROM fencegate.marks"), [("suite", 1)])
        self.assert_alike(direct, through, listed, said)
        self.assert_documented(f"libpqxx 6.4.5, {settings}", direct, listed)

    def test_guard_session(self):
        self.check("`guard: session`", {}, guard="session")

    def test_guard_transaction(self):
        self.check("`guard: transaction`, `pooled: false`", {}, guard="transaction", extra={"pooled": False})

    def test_guard_transaction_as_behind_a_pooler(self):
        self.check("`guard: transaction`", {"a prepared statement outside of the transaction that prepared it": ["test_092"]},
                   guard="transaction")


if __name__ == "__main__":
    main()
