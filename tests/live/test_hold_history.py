"""Many holders of one lease at work, while they, their keepers and guards, the sidecar with its gates, and the servers are frozen,
killed and started again: what stands in PostgreSQL and in Redis was written in the order of the tokens, nobody older wrote in either
once a job had begun, and no token was given to two.

$FENCEGATE_HOLD_SECONDS: for how long; or $FENCEGATE_HOLD_GRANTS: until so many jobs have begun, and each disturbance happened
often enough. $FENCEGATE_SEED: which disturbances.
"""

import collections
import contextlib
import os
import random
import signal
import threading
import time
import unittest

from lease_sidecar import Sidecar
from live_test import LiveTest, main
from postgres import PostgresServer, run_sql
from processes import eventually
from redis_server import RedisServer
from test_hold import Hold

SECONDS = float(os.environ.get("FENCEGATE_HOLD_SECONDS", 8))
GRANTS = int(os.environ.get("FENCEGATE_HOLD_GRANTS", 0))
EACH_AT_LEAST = 5 if GRANTS else 0  # of each disturbance
SECONDS_MAX = 1200 if GRANTS else 90
HOLDERS = 8

# Each write of a job is one unit, and knows its place in the order of all: the table is locked, Redis has one thread.
WRITE = ("psql -qXc \"BEGIN; LOCK TABLE log; INSERT INTO log SELECT coalesce(max(n), 0) + 1, $FENCING_TOKEN, '$JOB' FROM log; COMMIT\"; "
         "redis-cli -p $REDIS_PORT FENCE CALL orders $FENCING_TOKEN RPUSH log \"$FENCING_TOKEN $JOB\" >> $ANSWERS")
# What stands in both when it begins, asked of the servers themselves: who is older writes nothing behind that.
BEGIN = ("echo \"$FENCING_TOKEN $JOB $(PGOPTIONS= psql -qXAtp $SERVER_PGPORT -c 'SELECT count(*) FROM log') "
         "$(redis-cli -p $SERVER_REDIS_PORT LLEN log)\" >> $BEGAN")
# It goes on after an error, as a script does that looks at none.
JOB = f"{BEGIN}; for i in 1 2 3 4; do {WRITE}; sleep 0.0$((i % 3 * 3)); done"


def began_of(path):
    """The jobs, as they said there when they began; of a server that did not answer them nothing is known."""
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        lines = [line.rstrip("\n").split(" ") for line in file]
        return [(int(token), job, {where: int(count) for where, count in (("PostgreSQL", rows), ("Redis", items)) if count.isdigit()})
                for token, job, rows, items, *_ in lines]
    return []


def faults(written, began=()):
    """`written`: {server: [(token, job)…] in its order}. `began`: [(token, job, {server: how many writes stood there then})…]"""
    found, jobs = [], {}
    for where, log in written.items():
        found += [f"{where}: {late} behind {token}" for (token, _), (late, _) in zip(log, log[1:]) if late < token]
    for where, token, job in [("", token, job) for token, job, _ in began] + [(where, *one) for where, log in written.items() for one in log]:
        if jobs.setdefault(token, job) != job:
            found.append(f"{where}: token {token} of {jobs[token]} and {job}")
    for token, job, stood in began:
        found += [f"{where}: {late} of {who} when {token} of {job} had begun"
                  for where, count in stood.items() for late, who in written[where][count:] if late < token]
    return found


class Judge(unittest.TestCase):
    def test_accepts_a_correct_history(self):
        self.assertEqual(faults({"P": [(1, "a"), (1, "a"), (3, "b")], "R": [(1, "a"), (2, "c")]},
                                [(1, "a", {"P": 0, "R": 0}), (2, "c", {"R": 1}), (3, "b", {"P": 2, "R": 2})]), [])

    def test_sees_what_is_wrong(self):
        self.assertEqual(faults({"P": [(2, "b"), (1, "a")]}), ["P: 1 behind 2"])
        self.assertEqual(faults({"P": [(1, "a")], "R": [(1, "b")]}), ["R: token 1 of a and b"])
        self.assertEqual(faults({"P": [], "R": [(1, "a")]}, [(1, "a", {}), (2, "b", {"P": 0, "R": 0})]),
                         ["R: 1 of a when 2 of b had begun"])


class HoldHistory(LiveTest):
    issuer, seconds, jobs_at_least = "ledger", SECONDS, 6

    def setUp(self):
        self.seed = int(os.environ.get("FENCEGATE_SEED") or random.randrange(1 << 30))
        self.random = random.Random(self.seed)
        # Both keep what they have answered, whenever they are killed.
        self.database, self.redis = self.start(PostgresServer(fsync="on")), self.start(RedisServer(appendfsync="always"))
        self.database.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            self.database.user(name)
        self.database.install("app", gate_users=("gate",))
        self.sql("CREATE TABLE log (n bigint, token bigint, job text); GRANT ALL ON log TO orders")
        self.gates = self.start(Sidecar(self.database, self.redis, issuer=self.issuer))
        self.running, self.lock, self.over = set(), threading.Lock(), threading.Event()
        self.statuses, self.happened, self.deck = collections.Counter(), collections.Counter(), ["job goes on alone"]  # in any case
        self.refused = collections.Counter()
        self.began_path = os.path.join(self.gates.folder, "began")
        self.servers = {"SERVER_PGPORT": str(self.database.port), "SERVER_REDIS_PORT": str(self.redis.port), "BEGAN": self.began_path,
                        "ANSWERS": os.path.join(self.gates.folder, "answers")}

    def sql(self, text):
        """The server is started anew at times."""
        with contextlib.closing(self.database.connect(database="app")) as connection:
            return run_sql(connection, text)

    def words_of(self, _number):
        return ()

    def work(self, number):
        round_ = 0
        while not self.over.is_set():
            round_ += 1
            by_api = number == 0  # from the sidecar, and without its configuration: with the shortest TTL of the default times
            hold = Hold(self.gates, "orders", *self.words_of(number), *(("--ttl", "5s") if by_api else ()), by_api=by_api,
                        command=["sh", "-c", JOB], environment={"JOB": f"{number}.{round_}"} | self.servers)
            with hold:
                with self.lock:
                    self.running.add(hold)
                try:
                    status = hold.ended(120)
                finally:
                    with self.lock:
                        self.running.discard(hold)
                        self.statuses[status] += 1
                        self.refused["PostgreSQL"] += hold.said.count("is below mark")
            if status == 69:
                self.over.wait(0.1)

    def someone(self):
        """(a holder, its processes): mostly the one at work; None when nobody is."""
        with self.lock:
            trees = [(hold, hold.tree()) for hold in self.running]
        trees = sorted((one for one in trees if len(one[1]) > 1), key=lambda one: -len(one[1]))
        return (trees[0] if self.random.random() < 0.8 else self.random.choice(trees)) if trees else None

    def disturbances(self):
        return {
            "holder frozen": self.freeze_holder, "holder frozen again": self.freeze_holder, "holder killed": self.kill_holder,
            "keeper frozen": lambda: self.stop_some(0), "keeper killed": lambda: self.kill_some(0),
            "guard frozen": lambda: self.stop_some(1), "guard killed": lambda: self.kill_some(1),
            "job goes on alone": self.leave_alone, "keeper and guard killed": lambda: self.kill_some(1, 0),
            "sidecar frozen": lambda: self.stop_server(self.gates), "sidecar killed": lambda: self.restart(self.gates),
            "PostgreSQL frozen": lambda: self.stop_server(self.database), "PostgreSQL killed": lambda: self.restart(self.database),
            "PostgreSQL lost a session": self.kill_a_session,
            "Redis frozen": lambda: self.stop_server(self.redis), "Redis killed": lambda: self.restart(self.redis)}

    def disturb(self):
        if not self.deck:
            self.deck = self.random.sample(sorted(self.disturbances()), len(self.disturbances()))
        if self.disturbances()[self.deck[-1]]() is not False:
            self.happened[self.deck.pop()] += 1

    def pause(self, *seconds):
        self.over.wait(self.random.choice(seconds))

    def pause_of(self, hold):
        """Often for longer than its lease."""
        self.pause(0.1, 1, 6) if hold.by_api else self.pause(0.1, 0.5, 1.5, 2.5)

    def stop_some(self, *which):
        return self.at_some(which, signal.SIGSTOP, signal.SIGCONT)

    def kill_some(self, *which):
        return self.at_some(which, signal.SIGKILL)

    def at_some(self, which, number, then=None):
        if not (one := self.someone()):
            return False
        pids = [one[1][i] for i in which]
        with contextlib.suppress(ProcessLookupError):
            for pid in pids:
                os.kill(pid, number)
            if then:
                self.pause_of(one[0])
        for pid in pids if then else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, then)
        return True

    def freeze_holder(self):
        """As when a machine stands still."""
        if not (one := self.someone()):
            return False
        one[0].freeze()
        self.pause_of(one[0])
        one[0].thaw()
        return True

    def leave_alone(self):
        """As when only the job is continued, after its lease: what it writes then is for the fence to refuse."""
        if not (one := self.someone()) or one[0].by_api:  # whose lease is longer
            return False
        one[0].freeze()
        tree = one[0].tree()
        self.over.wait(2)
        for pid in tree[:1:-1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.pause(0.5, 1)
        one[0].thaw()
        return True

    def kill_holder(self):
        """As when a machine loses its power."""
        if not (one := self.someone()):
            return False
        one[0].freeze()
        for pid in one[0].tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True

    def stop_server(self, server):
        server.assert_running()
        server.stop_process()
        pids = server.backends() if server is self.database else []
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                self.pause(0.1, 0.5, 1.5)
        server.continue_process()

    def restart(self, server):
        server.assert_running()
        server.kill()
        self.pause(0, 0.1, 1)
        server.start()

    def kill_a_session(self):
        """PostgreSQL then ends all others, and recovers."""
        found = self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        if not found:
            return False
        os.kill(self.random.choice(found)[0], signal.SIGKILL)
        eventually(self.database.up)
        return True

    def enough(self, seconds):
        return (GRANTS or seconds > self.seconds) and len(self.began()) >= (GRANTS or self.jobs_at_least) and all(
            self.happened[kind] >= EACH_AT_LEAST for kind in self.disturbances())

    def run_until_enough(self):
        threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(HOLDERS)]
        for one in threads:
            one.start()
        start = time.monotonic()
        while (seconds := time.monotonic() - start) < SECONDS_MAX and not self.enough(seconds):
            time.sleep(self.random.uniform(0, 0.4))
            self.disturb()
        self.over.set()
        for one in threads:
            one.join(120)
            self.assertFalse(one.is_alive(), "a holder did not come to an end")
        self.gates.assert_running()
        return time.monotonic() - start

    def began(self):
        return began_of(self.began_path)

    def written(self):
        in_redis = [one.decode().split() for one in self.redis.cli.call("LRANGE", "log", "0", "-1")]
        return {"PostgreSQL": self.sql("SELECT token, job FROM log ORDER BY n"), "Redis": [(int(token), job) for token, job in in_redis]}

    def test_all_writes_are_in_the_order_of_their_tokens(self):
        seconds = self.run_until_enough()
        written, began = self.written(), self.began()
        with open(self.servers["ANSWERS"]) as file:
            self.refused["Redis"] = sum(line.startswith("FENCED ") for line in file)
        print(f"seed {self.seed}, {seconds:.0f} s: {len(began)} jobs began, {len({token for log in written.values() for token, _ in log})} "
              f"wrote, {[len(log) for log in written.values()]} writes, {dict(self.refused)} refused, exit statuses {dict(sorted(self.statuses.items()))}, "
              f"{dict(sorted(self.happened.items()))}")
        self.assertEqual(faults(written, began), [], f"seed {self.seed}")
        self.assertGreaterEqual(len(began), GRANTS or self.jobs_at_least)
        # 125: its guard was killed.
        self.assertLessEqual(set(self.statuses), {0, 69, 79, 125, -signal.SIGKILL})
        for kind in self.disturbances():
            self.assertGreaterEqual(self.happened[kind], EACH_AT_LEAST, kind)
        if GRANTS:
            for where in written:
                self.assertGreater(self.refused[where], 0, f"{where} had nothing to refuse")

    def test_without_the_gates_it_would_notice(self):
        """The same jobs, which write to the servers themselves."""
        direct = {"PGPORT": str(self.database.port), "REDIS_PORT": str(self.redis.port)} | self.servers
        write = WRITE.replace("FENCE CALL orders $FENCING_TOKEN ", "")
        script = f"{BEGIN}; {write}"
        slow = f"echo up; until [ -e $GO ]; do sleep 0.05; done; {write}"
        go = os.path.join(self.gates.folder, "go")
        old = self.start(Hold(self.gates, "orders", command=["sh", "-c", slow], environment=direct | {"JOB": "old", "GO": go}))
        self.assertEqual(old.child.stdout.readline(), "up\n")
        # Both processes that would end it are gone, as they may be for a while.
        keeper, guard, job, *_ = old.tree()
        os.kill(job, signal.SIGSTOP)
        for one in (guard, keeper):
            os.kill(one, signal.SIGSTOP)
        new = self.start(Hold(self.gates, "orders", command=["sh", "-c", script], environment=direct | {"JOB": "new"}))
        self.assertEqual(new.ended(), 0)
        with open(go, "w"):
            os.kill(job, signal.SIGCONT)
        self.assertTrue(eventually(lambda: all(len(log) == 2 for log in self.written().values())))
        self.assertEqual(len(faults(self.written())), 2)
        self.assertEqual(len(faults(self.written(), self.began())), 4)


class GraceHistory(HoldHistory):
    """Jobs of some stand still where renewals fail, and go on; who thaws them lets them go on sooner than their guards do."""

    seconds, jobs_at_least = SECONDS / 2, 3
    test_without_the_gates_it_would_notice = None  # of the judge, which is the same

    def words_of(self, number):
        return ("--grace", "3s") if number % 3 else ()


class RedisHistory(HoldHistory):
    """With leases of the Redis."""

    issuer, seconds, jobs_at_least = "cache", SECONDS / 2, 3
    test_without_the_gates_it_would_notice = None  # of the judge, which is the same


if __name__ == "__main__":
    main()
