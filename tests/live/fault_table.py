"""The fault table: each fault is injected at each step of a stale writer's way, and the writer must never get through.

A step is a writer with token 33 that is somewhere on its way when the fault begins and the mark rises to 34. Whatever
it is answered, its write must be absent; when the fault is gone, a successor must be served and the old writer be
fenced."""

import contextlib
import dataclasses
import itertools
import sys
import threading
from typing import Callable

from gate_process import Gate
from live_test import LiveTest
from processes import eventually
from redis_server import RedisServer
from resp import Resp, RespError, encode

CLIENT_ACL = ("resetkeys", "~data:*", "%R~fencegate:*", "resetchannels", "&*", "-@all", "+@all")
GATE_ACL = ("resetkeys", "~*", "resetchannels", "&*", "-@all", "+@all")


@dataclasses.dataclass
class Fault:
    name: str
    inject: Callable  # (bench)
    undo: Callable  # (bench)
    denies_writes: bool = False  # to everybody: the mark must be raised before
    harmless: bool = False  # the holder's writes must succeed all the same
    own_words: bool = False  # its name is the error that Redis answers writes with: the holder must see that very one


class LiveGate(Gate):
    """Is not waited for until it is ready, which it may never be."""

    def up(self):
        return self.http("/livez")[0] == 200


class Bench:
    """One server with a user for clients and one for the gate, and one gate."""

    def __init__(self, test, gate=True, **conf):
        self.test = test
        users = (" ".join((user, "on", f">{user}pw", *acl)) for user, acl in (("app", CLIENT_ACL), ("gate", GATE_ACL)))
        self.redis = test.start(RedisServer(user="\nuser ".join(users),
                                            **conf))  # in the file, so that a restart keeps them
        self.numbers = itertools.count(1)
        self.resource = None
        if gate:
            # One thread, hence one control link: when one raise succeeds, the fault before is over for all.
            self.gate = test.start(Gate(self.redis, user="gate", password="gatepw", threads=1))

    @property
    def cli(self):
        return self.redis.cli

    def next_resource(self):
        self.resource = f"r{next(self.numbers)}"
        self.mark_key = f"fencegate:mark:{{{self.resource}}}"
        self.log_key = f"data:log:{self.resource}"

    def must(self, *args):
        reply = self.cli.call(*args)
        assert not isinstance(reply, RespError), (args, reply)
        return reply

    def log(self):
        return self.must("LRANGE", self.log_key, 0, -1)

    def mark(self):
        return self.must("GETRANGE", self.mark_key, 0, -1) or None  # GET may be renamed away

    def client(self, token):
        """A client that does not mind what it is answered; see `answer`."""
        return Resp(self.gate.port, name=f"fence:{self.resource}={token}", user="app", password="apppw")

    def writer(self, token):
        client = self.test.start(self.client(token))
        assert client.named == b"OK", client.named
        return client

    def settle(self):
        """Waits until a fault before is over: a mark can be raised and a client is served."""
        self.next_resource()
        eventually(lambda: self.fresh_write(1) == "done")
        self.next_resource()

    def write(self, client, value):
        return answer(lambda: client.call("RPUSH", self.log_key, value))

    def fresh_write(self, token):
        def attempt():
            with self.client(token) as client:
                return client.call("RPUSH", self.log_key, token)
        return answer(attempt)

    @contextlib.contextmanager
    def faulty(self, fault, raise_to=None):
        """The fault for the time of the block, and the mark raised past the gate."""
        try:
            if raise_to and fault.denies_writes:
                self.must("SET", self.mark_key, raise_to)
            fault.inject(self)
            if raise_to and not fault.denies_writes:
                self.must("SET", self.mark_key, raise_to)
            yield
        finally:
            fault.undo(self)

    def check_recovery(self):
        """The successor is served, the old holder is not."""
        before = self.log()
        eventually(lambda: self.fresh_write(35) == "done")
        self.test.assertEqual(self.log(), before + [b"35"])
        self.test.assertEqual(self.fresh_write(33), "FENCED")
        self.test.assertEqual(self.mark(), b"35")


def answer(call):
    """One word: done, the error's code, closed, or silent."""
    try:
        reply = call()
    except ConnectionError:
        return "closed"
    except TimeoutError:
        return "silent"
    return reply.code if isinstance(reply, RespError) else "nil" if reply is None else "done"


# ------------------------------------------------------------------------------------------------------------- steps


def arrives(bench, fault):
    """A stale writer connects while the fault lasts."""
    bench.writer(33).close()
    with bench.faulty(fault, raise_to=34):
        got = bench.fresh_write(33)
    bench.test.assertEqual(bench.log(), [])
    return got


def bound(bench, fault):
    """It has bound its token and not written yet."""
    client = bench.writer(33)
    with bench.faulty(fault, raise_to=34):
        got = bench.write(client, 33)
    bench.test.assertEqual(bench.log(), [])
    return got


def between_batches(bench, fault):
    """It has written, so that its link is armed for the next write."""
    client = bench.writer(33)
    bench.test.assertEqual(bench.write(client, 33), "done")
    with bench.faulty(fault, raise_to=34):
        got = bench.write(client, "stale")
        again = bench.write(client, "stale")
    bench.test.assertEqual(bench.log(), [b"33"])
    return got if got == again else f"{got} {again}"


def watching(bench, fault):
    """It watches a key of its own."""
    client = bench.writer(33)
    bench.test.assertEqual([client.call("WATCH", "data:w"), bench.write(client, 33)], [b"OK", "done"])
    with bench.faulty(fault, raise_to=34):
        got = bench.write(client, "stale")
    bench.test.assertEqual(bench.log(), [b"33"])
    return got


def in_transaction(bench, fault):
    """It is inside a transaction of its own."""
    client = bench.writer(33)
    bench.test.assertEqual([client.call("MULTI"), client.call("RPUSH", bench.log_key, "stale")], [b"OK", b"QUEUED"])
    with bench.faulty(fault, raise_to=34):
        got = answer(lambda: client.call("EXEC"))
    bench.test.assertEqual(bench.log(), [])
    return got


def in_flight(bench, fault):
    """It writes all the time, and the mark rises together with a first write of the successor."""
    client = bench.writer(33)
    replies, stop = [], threading.Event()

    def stream():
        with contextlib.suppress(OSError):
            while not stop.is_set():
                client.send(encode("RPUSH", bench.log_key, 33) * 50)
                replies.extend(client.reply() for _ in range(50))
                if isinstance(replies[-1], RespError):
                    stop.set()

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        eventually(lambda: len(replies) > 200)
        raise_mark = [("MULTI",), ("SET", bench.mark_key, 34), ("RPUSH", bench.log_key, 34), ("EXEC",)]
        if fault.denies_writes:
            bench.cli.pipeline(raise_mark)
        fault.inject(bench)
        if not fault.denies_writes:
            bench.cli.pipeline(raise_mark)
        got = "stopped" if stop.wait(5) else "closed"
    finally:
        fault.undo(bench)
        stop.set()
        with contextlib.suppress(OSError):
            client.sock.shutdown(2)
        thread.join()
    log = bench.log()
    bench.test.assertEqual(log.index(b"34"), len(log) - 1, "a stale write behind the successor's")
    done = sum(not isinstance(reply, RespError) for reply in replies)
    bench.test.assertLessEqual(done, len(log) - 1)
    errors = {reply.code for reply in replies if isinstance(reply, RespError)}
    return " ".join(sorted(errors)) or got


def holder_writes(bench, fault):
    """Nobody supersedes it: what it is told is what happened."""
    client = bench.writer(33)
    bench.test.assertEqual(bench.write(client, "first"), "done")
    with bench.faulty(fault):
        got = bench.write(client, "second")
    log = bench.log()
    if got == "done":
        bench.test.assertEqual((log, bench.mark()), ([b"first", b"second"], b"33"))
    elif got != "closed":
        bench.test.assertEqual(log, [b"first"])
    if fault.harmless:
        bench.test.assertEqual(got, "done")
    if fault.own_words:
        bench.test.assertEqual(got, fault.name)
    return got


def own_transaction(bench, fault, prepare):
    """A transaction behind a WATCH of its own, by a client that minds what it is answered."""
    client = bench.writer(33)
    watched = f"data:w:{bench.resource}"
    bench.test.assertEqual(client.call("WATCH", watched), b"OK")
    prepare(watched)
    with bench.faulty(fault):
        got = "done"
        for command in (("MULTI",), ("RPUSH", bench.log_key, "mine"), ("EXEC",)):
            if got == "done":
                got = answer(lambda command=command: client.call(*command))
    return got


def watched_key_changes(bench, fault):
    """Nothing of its transaction may be applied, whatever the gate's own watches and checks run into."""
    got = own_transaction(bench, fault, lambda watched: bench.must("SET", watched, "another's"))
    bench.test.assertEqual(bench.log(), [])
    if fault.harmless:
        bench.test.assertEqual(got, "nil")
    return got


def watched_key_stays(bench, fault):
    """nil would tell it that somebody has changed the key, which nobody has."""
    got = own_transaction(bench, fault, lambda watched: None)
    bench.test.assertNotEqual(got, "nil")
    if got != "closed":
        bench.test.assertEqual(bench.log(), [b"mine"] if got == "done" else [])
    if fault.harmless:
        bench.test.assertEqual(got, "done")
    return got


def raises(bench, fault):
    """The successor arrives: it is welcome only if the mark rose."""
    bench.writer(33).close()
    with bench.faulty(fault):
        named, got = bench_bind(bench, 34)
    mark, log = bench.mark(), bench.log()
    if named == "done":
        bench.test.assertEqual(mark, b"34")
    if got == "done":
        bench.test.assertEqual((mark, log), (b"34", [b"34"]))
    elif got != "closed":
        bench.test.assertEqual(log, [])
    if fault.harmless:
        bench.test.assertEqual((named, got), ("done", "done"))
    return got if named == got else f"{named} {got}"


def bench_bind(bench, token):
    try:
        client = bench.client(token)
    except TimeoutError:
        return "silent", "silent"
    except ConnectionError:
        return "closed", "closed"
    with client:
        named = answer(lambda: client.named)
        return named, bench.write(client, token)


STEPS = (arrives, bound, between_batches, watching, in_transaction, in_flight, holder_writes, watched_key_changes,
         watched_key_stays, raises)
MAY_BE_DONE = (holder_writes, watched_key_stays, raises)


# ------------------------------------------------------------------------------------------------------------- table


class FaultTest(LiveTest):
    """Runs faults through the steps and prints the table at the end."""

    rows = None

    @classmethod
    def setUpClass(cls):
        cls.rows = {}

    @classmethod
    def tearDownClass(cls):
        if not cls.rows:
            return
        columns = list(dict.fromkeys(step for row in cls.rows.values() for step in row))
        width = max(map(len, cls.rows)) + 2
        print("\n" + "fault".ljust(width) + " | ".join(step.ljust(16) for step in columns), file=sys.stderr)
        for name, row in cls.rows.items():
            print(name.ljust(width) + " | ".join(row.get(step, "").ljust(16) for step in columns), file=sys.stderr)

    def note(self, fault, step, got):
        self.rows.setdefault(fault, {})[step] = got

    def through(self, bench, fault, steps=STEPS):
        for step in steps:
            with self.subTest(fault=fault.name, step=step.__name__):
                bench.settle()
                self.note(fault.name, step.__name__, "NOT CLOSED")
                got = step(bench, fault)
                self.assertNotIn("silent", got, "no answer")
                if step not in MAY_BE_DONE:
                    self.assertNotIn("done", got)
                bench.check_recovery()
                self.note(fault.name, step.__name__, got)
