"""The tests that hiredis, redis-py, libpqxx, psycopg2 and Redis come with, run against the server and then through a gate under a
token that is good all the time. Each ends alike, but for those that are listed here with the reason. Only with `ctest -C all`; the
lists are of the versions in Debian 12, and of one redis-py."""

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import suite_sources
from documents import text
from gate_process import Gate
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer
from processes import LOOPBACK, free_port
from redis_server import RedisServer
from resp import Resp

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

    def folder_of(self, suite):
        """Of another release than the one at hand, which need not be there."""
        try:
            return suite()
        except RuntimeError as error:
            return self.skipTest(f"its tests cannot be had: {error}")

    def in_three_tries(self, attempt):
        """Many of these tests count on what happens within some milliseconds: what fails each time is a difference."""
        for left in (2, 1, 0):
            try:
                return attempt()
            except self.failureException as failure:
                if not left:
                    raise
                print(f"once more: {failure}", file=sys.stderr)

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


class RedisPy(SuiteTest):
    """Its commands, pipelines, scripts, subscriptions and locks, of both its clients."""

    VERSION = "6.4.0"
    PARTS = ("commands", "encoding", "hash", "lock", "monitor", "pipeline", "pubsub", "scripting")
    # Not run, in either way.
    SKIPPED = {
        "they are of another version of Redis": [
            "test_acl_getuser_setuser", "test_acl_log", "test_psync", "test_xgroup_create_entriesread"],
        "they empty database 0, where the marks are": ["test_copy_to_another_database", "test_reset"],
        "it needs another server": ["test_sync"],
        "it ends all connections of the server, of the gate's, too": ["test_client_kill_filter_by_laddr"]}
    LIFTED = ["flushdb", "config|set", "script|flush", "script|kill", "function|flush", "function|delete", "function|restore",
              "client|kill", "client|pause", "client|unblock", "acl|setuser", "acl|deluser", "acl|log"]
    DIFFERS = {"REPLICAOF is refused: it would replace the marks": ["test_replicaof"]}

    def setUp(self):
        self.folder = self.folder_of(suite_sources.redis_py)
        with open(os.path.join(self.folder, "redis/__init__.py")) as file:
            if f'__version__ = "{self.VERSION}"' not in file.read():
                self.skipTest(f"the lists are of redis-py {self.VERSION}")

    def outcomes(self, port):
        """({test: outcome}, what it said)"""
        files = [f"tests/{folder}test_{part}.py" for folder in ("", "test_asyncio/") for part in self.PARTS]
        with tempfile.TemporaryDirectory() as folder:
            report, settings = os.path.join(folder, "report.xml"), os.path.join(folder, "pytest.ini")
            with open(settings, "w") as file:
                file.write("[pytest]\nasyncio_mode = auto\n")
            skipped = [test for tests in self.SKIPPED.values() for test in tests]
            said = said_by("/usr/bin/python3", "-m", "pytest", "-c", settings, "--rootdir", self.folder, "-p", "no:cacheprovider", "-q",
                           "-W", "ignore", "--tb=short", "--runxfail", "-m", "not onlycluster and not redismod",
                           "-k", " and ".join(f"not {test}" for test in skipped), "--junitxml", report,
                           "--redis-url", f"redis://{LOOPBACK}:{port}/9", *files, folder=self.folder,
                           PYTHONDONTWRITEBYTECODE="1")
            found = {}
            for case in xml.etree.ElementTree.parse(report).iter("testcase"):
                outcome = next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed")
                if outcome != "skipped":
                    found[f"{case.get('classname')}.{case.get('name')}"] = outcome
        return found, said

    def compare(self):
        with RedisServer() as redis:
            direct, said = self.outcomes(redis.port)
        self.assertEqual({test for test, outcome in direct.items() if outcome != "passed"}, set(), said[-6000:])
        with RedisServer() as redis, Gate(redis, extra=LISTENER, allow_commands=self.LIFTED) as gate:
            through, said = self.outcomes(gate.port)
            self.assertEqual(redis.cli.call("GET", MARK), b"1")
        listed = {why: [test for test in direct if test.rsplit(".", 1)[-1].split("[")[0] in tests]
                  for why, tests in self.DIFFERS.items()}
        self.assert_alike(direct, through, listed, said)
        self.assert_documented(f"redis-py {self.VERSION}", direct, self.DIFFERS)

    def test_ends_alike(self):
        self.in_three_tries(self.compare)


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

    def check(self, *arguments, **gate):
        self.in_three_tries(lambda: self.compare(*arguments, **gate))

    def compare(self, settings, listed, **gate):
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


class Psycopg2(SuiteTest):
    LATER = {"they are of a later psycopg2": [f"test_notifies_received_on_{what}" for what in (
        "commit", "reset", "rollback", "set_client_encoding", "set_session")]}
    DIFFERS = {
        "a session that is ended ends with an error, behind which the connection closes": [
            "test_cleanup_on_badconn_close", "test_external_close_async", "test_external_close_sync"],
        "it connects with options of its own, and so without a token": ["test_scs"]}

    def setUp(self):
        self.folder = self.folder_of(suite_sources.psycopg2)

    def server(self):
        server = self.start(PostgresServer())
        server.install()
        server.user("suite")
        server.sql("GRANT ALL ON SCHEMA public TO suite")
        server.sql("GRANT CREATE ON DATABASE postgres TO suite")
        server.sql("CREATE EXTENSION hstore")
        return server

    def outcomes(self, port, **environment):
        """({test: outcome}, what it said)"""
        said = said_by("/usr/bin/python3", "-W", "ignore", "-m", "unittest", "-v", "tests.test_suite", folder=self.folder,
                       PSYCOPG2_TESTDB="postgres", PSYCOPG2_TESTDB_HOST=LOOPBACK, PSYCOPG2_TESTDB_PORT=str(port),
                       PSYCOPG2_TESTDB_USER="suite", PYTHONDONTWRITEBYTECODE="1", **environment)
        ends = re.findall(r"^\w+ \((tests\.[\w.]+)\)(?:\n.*)? \.\.\. (ok|FAIL|ERROR)$", said, re.M)
        return {test: end for test, end in ends if test.rsplit(".", 1)[-1] not in self.LATER["they are of a later psycopg2"]}, said

    def check(self, settings, listed, **gate):
        direct, said = self.outcomes(self.server().port)
        self.assertEqual({test for test, end in direct.items() if end != "ok"}, set(), said[-6000:])
        server = self.server()
        through, said = self.outcomes(self.start(PgGate(server, **gate)).port, PGOPTIONS="-c fencing.tokens=suite=1")
        self.assertEqual(server.sql("SELECT resource, mark FROM fencegate.marks"), [("suite", 1)])
        named = {why: [test for test in direct if test.rsplit(".", 1)[-1] in tests] for why, tests in listed.items()}
        self.assert_alike(direct, through, named, said)
        self.assert_documented(f"psycopg2 2.9.5, {settings}", direct, listed)

    def test_guard_session(self):
        self.in_three_tries(lambda: self.check("`guard: session`", self.DIFFERS, guard="session"))

    def test_guard_transaction(self):
        self.in_three_tries(lambda: self.check("`guard: transaction`, `pooled: false`", self.DIFFERS, guard="transaction",
                                               extra={"pooled": False}))


class Redis(SuiteTest):
    """Redis's own tests, as against a server that they did not start. A server for each unit, and a gate with one thread, since
    those that wait are served in the order in which they came to their thread."""

    UNITS = ("keyspace", "scan", "protocol", "expire", "sort", "other", "multi", "quit", "pubsub", "slowlog", "scripting", "functions",
             "introspection", "introspection-2", "bitops", "bitfield", "geo", "hyperloglog", "lazyfree", "tracking", "type/incr",
             "type/string", "type/list", "type/set", "type/zset", "type/hash", "type/stream", "type/stream-cgroups")
    # Not run, in either way: a name, or / and a pattern.
    SKIPPED = {
        "they wait for ever where CLIENT UNBLOCK does not end the waiting": ["client unblock tests"],
        "they need a moment that is longer through a gate": [
            # between a push and the write of a client that waited for it
            "PUSH resulting from BRPOPLPUSH affect WATCH", "Circular BRPOPLPUSH", "XREADGROUP with NOACK creates consumer",
            # between clients that nobody waits for
            "BRPOPLPUSH with multiple blocked clients",
            # a client that waits is to overlook a key of another type that is there only for a moment
            "/LPUSH \\+ DEL \\+ SET should not awake blocked client"],
        "they take long": ["/GEOSEARCH fuzzy test", "/with ZERO opcode", "/Fuzzing dense/sparse encoding", "XRANGE fuzzing"]}
    LIFTED = ["flushdb", "config|set", "debug", "pfdebug", "pfselftest", "script|flush", "script|kill", "function|flush", "function|delete",
              "function|restore", "client|kill", "acl|setuser", "acl|deluser", "acl|log"]
    DIFFERS = {
        "multi": {
            "SWAPDB is refused: it would take the marks away": [
                "SWAPDB is able to touch the watched keys that exist", "SWAPDB is able to touch the watched keys that do not exist",
                "SWAPDB does not touch watched stale keys", "SWAPDB does not touch non-existing key replaced with stale key",
                "SWAPDB does not touch stale key replaced with another stale key"],
            "SHUTDOWN is refused by the gate before Redis refuses it inside of MULTI": ["MULTI with SHUTDOWN"],
            "EXEC says that Redis is busy, not what that made of the commands before": ["MULTI and script timeout"]},
        "expire": {
            "SYNC is refused, by which the test reads what replicas would get": [
                "SCAN: Lazy-expire should not be wrapped in MULTI/EXEC", "RANDOMKEY: Lazy-expire should not be wrapped in MULTI/EXEC"]},
        "pubsub": {
            "marks are evicted, too, and the gate lets nobody write where they can be": [
                "Keyspace notifications: evicted events", "Keyspace notifications: new key test"]},
        "slowlog": {
            "the log has the gate's own commands, too": [
                "SLOWLOG - Rewritten commands are logged as their original command",
                "SLOWLOG - commands with too many arguments are trimmed", "SLOWLOG - too long arguments are trimmed"]},
        "scripting": {
            "a user without SELECT and the like cannot be fenced": ["Script ACL check", "Script ACL check, 2"],
            "Redis counts the gate's own scripts and errors, too": ["SCRIPTING FLUSH ASYNC", "Consistent eval error reporting"],
            "a full Redis takes nothing inside of MULTI, where the gate puts scripts": ["allow-oom shebang flag"]},
        "functions": {
            "a full Redis takes nothing inside of MULTI, where the gate puts functions": [
                "FUNCTION - verify OOM on function load and function restore", "FUNCTION - deny oom on no-writes function",
                "FUNCTION - verify allow-omm allows running any command"]},
        "introspection": {
            "Redis lists the gate's own connections, too": ["CLIENT LIST"],
            "Redis shows what the gate sends, too": ["MONITOR can log executed commands", "MONITOR correctly handles multi-exec cases"]},
        "introspection-2": {"Redis counts the gate's own transactions, too": ["command stats for MULTI"]},
        "tracking": {
            "Redis counts the gate's own connection for clients that wait, too": ["Tracking info is correct"],
            "a message about a changed key stands in front of MULTI's reply": ["Regression test for #11715"]},
        "type/list": {
            "SWAPDB is refused: it would take the marks away": [
                "SWAPDB awakes blocked client", "SWAPDB wants to wake blocked client, but the key already expired"],
            "SYNC is refused, by which the test reads what replicas would get": [
                "MULTI + LPUSH + EXPIRE + DEBUG SLEEP on blocked client, key already expired"]},
        "type/stream-cgroups": {
            "who waits is told what a new XREADGROUP would be told": [
                "Blocking XREADGROUP: key deleted", "Blocking XREADGROUP: key type changed with SET",
                "Blocking XREADGROUP: key type changed with transaction", "Blocking XREADGROUP: flushed DB"],
            "Redis counts each look of one who waits": ["XGROUP DESTROY should unblock XREADGROUP with -NOGROUP"]},
    }

    def outcomes(self, port, unit):
        """({test: outcome}, what it said); a name that comes again has a number."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(suite_sources.redis(), "tests"), os.path.join(folder, "tests"))
            suite_sources.adapt_redis(folder)
            skipped = [word for tests in self.SKIPPED.values() for test in tests for word in ("--skiptest", test)]
            said = said_by("tclsh", "tests/test_helper.tcl", "--host", LOOPBACK, "--port", str(port), "--baseport", str(free_port()),
                           "--single", f"unit/{unit}", "--tags", "-needs:repl -slow -large-memory", "--durable", "--timeout", "60",
                           *skipped, folder=folder)
        found, times = {}, collections.Counter()
        for outcome, name in re.findall(r"^\[(ok|err)\]: (.*?)(?: \(\d+ ms\)| in tests/\S+)$", said, re.M):
            times[name] += 1
            test = name if times[name] == 1 else f"{name}, {times[name]}"
            self.assertNotIn(test, found)
            found[test] = outcome
        return found, said

    def compare(self, unit):
        """How many tests there are."""
        with RedisServer(enable_debug_command="yes") as redis:
            direct, said = self.outcomes(redis.port, unit)
        self.assertEqual(set(direct.values()), {"ok"}, said[-6000:])
        with RedisServer(enable_debug_command="yes") as redis, \
                Gate(redis, extra=LISTENER, allow_commands=self.LIFTED, threads=1) as gate:
            through, said = self.outcomes(gate.port, unit)
            with Resp(redis.port) as client:  # the tests have ended others
                self.assertEqual(client.call("GET", MARK), b"1")
        self.assert_alike(direct, through, self.DIFFERS.get(unit, {}), said)
        return len(direct)

    def test_ends_alike(self):
        count = 0
        for unit in self.UNITS:
            with self.subTest(unit):
                count += self.in_three_tries(lambda: self.compare(unit))
        (row,) = [line for line in text(PAGE).splitlines() if line.startswith("| Redis 7.0.15 |")]
        differ = sum(len(tests) for listed in self.DIFFERS.values() for tests in listed.values())
        self.assertTrue(row.startswith(f"| Redis 7.0.15 | {count} | {differ} "), f"{count} tests, {differ} differ: {row}")


if __name__ == "__main__":
    main()
