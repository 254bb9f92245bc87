"""Many holders of one lease at work, while they, their guards, the gates and the servers are frozen and killed: what stands in
PostgreSQL and in Redis was written in the order of the tokens, and no token was given to two.

$FENCEGATE_HOLD_SECONDS: for how long; $FENCEGATE_SEED: which disturbances.
"""

import contextlib
import os
import random
import signal
import threading
import time

from postgres import PostgresServer, run_sql
from support import LiveTest, RedisServer, eventually, main
from test_hold import Gates, Hold

SECONDS = float(os.environ.get("FENCEGATE_HOLD_SECONDS", 12))
HOLDERS = 6

# Each write of a job is one unit, and knows its place in the order of all: the table is locked, Redis has one thread.
WRITE = ("psql -qXc \"BEGIN; LOCK TABLE log; INSERT INTO log SELECT coalesce(max(n), 0) + 1, $FENCING_TOKEN, '$JOB' FROM log; COMMIT\"; "
         "redis-cli -p $REDIS_PORT FENCE CALL orders $FENCING_TOKEN RPUSH log \"$FENCING_TOKEN $JOB\" > /dev/null")
# It goes on after an error, as a script does that looks at none.
JOB = f"for i in 1 2 3 4 5 6; do {WRITE}; sleep 0.0$((i % 3 * 3)); done"


class HoldHistory(LiveTest):
    issuer, seconds, holders = "ledger", SECONDS, HOLDERS
    grants_a_second = 0.5  # at least

    def setUp(self):
        self.seed = int(os.environ.get("FENCEGATE_SEED") or random.randrange(1 << 30))
        self.random = random.Random(self.seed)
        self.database, self.redis = self.start(PostgresServer()), self.start(RedisServer())
        self.database.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            self.database.user(name)
        self.database.install("app", gate_users=("gate",))
        self.admin = self.database.connect(database="app")
        self.addCleanup(self.admin.close)
        run_sql(self.admin, "CREATE TABLE log (n bigint, token bigint, job text); GRANT ALL ON log TO orders")
        self.gates = self.start(Gates(self.database, self.redis, issuer=self.issuer))
        self.running, self.lock, self.over = set(), threading.Lock(), threading.Event()
        self.statuses = {}

    def words_of(self, _number):
        return ()

    def work(self, number, environment):
        round_ = 0
        while not self.over.is_set():
            round_ += 1
            hold = Hold(self.gates, "orders", *self.words_of(number), command=["sh", "-c", JOB], environment={"JOB": f"{number}.{round_}"} | environment)
            with hold:
                with self.lock:
                    self.running.add(hold)
                try:
                    status = hold.ended(120)
                finally:
                    with self.lock:
                        self.running.discard(hold)
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def disturb(self):
        """One of the holders, mostly the one at work; or what it works with."""
        with self.lock:
            trees = [(hold, hold.tree()) for hold in self.running]
        trees = sorted((one for one in trees if len(one[1]) > 1), key=lambda one: -len(one[1]))
        if not trees:
            return
        hold, (keeper, guard, *_) = trees[0] if self.random.random() < 0.8 else self.random.choice(trees)
        pause = self.random.choice((0.1, 0.5, 1.5, 2.5))
        with contextlib.suppress(ProcessLookupError):
            match self.random.randrange(7):
                case 0 | 1:
                    hold.freeze()
                    self.over.wait(pause)
                    hold.thaw()
                case 2:
                    os.kill(keeper, signal.SIGSTOP)
                    self.over.wait(pause)
                    os.kill(keeper, signal.SIGCONT)
                case 3:
                    os.kill(keeper, signal.SIGKILL)
                case 4:
                    os.kill(guard, signal.SIGKILL)
                case 5:
                    os.kill(guard, signal.SIGKILL)
                    os.kill(keeper, signal.SIGKILL)
                case 6:
                    self.disturb_server(pause)

    def run_for(self, seconds, environment=()):
        threads = [threading.Thread(target=self.work, args=(number, dict(environment)), daemon=True) for number in range(self.holders)]
        for one in threads:
            one.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0, 0.4))
            self.disturb()
        self.over.set()
        for one in threads:
            one.join(120)
            self.assertFalse(one.is_alive(), "a holder did not come to an end")

    def written(self):
        in_postgres = run_sql(self.admin, "SELECT token, job FROM log ORDER BY n")
        in_redis = [one.decode().split() for one in self.redis.cli.call("LRANGE", "log", "0", "-1")]
        return {"PostgreSQL": in_postgres, "Redis": [(int(token), job) for token, job in in_redis]}

    @staticmethod
    def faults(written):
        found = []
        for where, log in written.items():
            found += [f"{where}: {late} behind {token}" for (token, _), (late, _) in zip(log, log[1:]) if late < token]
            jobs = {}
            for token, job in log:
                if jobs.setdefault(token, job) != job:
                    found.append(f"{where}: token {token} of {jobs[token]} and {job}")
        return found

    def test_all_writes_are_in_the_order_of_their_tokens(self):
        self.run_for(self.seconds)
        written = self.written()
        grants = len({token for log in written.values() for token, _ in log})
        print(f"seed {self.seed}: {grants} grants that wrote, {[len(log) for log in written.values()]} writes, "
              f"exit statuses {dict(sorted(self.statuses.items()))}")
        self.assertEqual(self.faults(written), [], f"seed {self.seed}")
        self.assertGreater(grants, self.seconds * self.grants_a_second)

    def disturb_server(self, pause):
        frozen = self.random.choice((self.gates, self.redis)).child.pid
        os.kill(frozen, signal.SIGSTOP)
        self.over.wait(min(pause, 0.5))
        os.kill(frozen, signal.SIGCONT)

    def test_without_the_gates_it_would_notice(self):
        """The same jobs, which write to the servers themselves."""
        direct = {"PGPORT": str(self.database.port), "REDIS_PORT": str(self.redis.port)}
        script = WRITE.replace("FENCE CALL orders $FENCING_TOKEN ", "")
        slow = f"echo up; until [ -e $GO ]; do sleep 0.05; done; {script}"
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
        self.assertNotEqual(self.faults(self.written()), [])


class GraceHistory(HoldHistory):
    """Jobs of some stand still where renewals fail, and go on; who thaws them lets them go on sooner than their guards do."""

    seconds, grants_a_second = SECONDS / 2, 0.1
    test_without_the_gates_it_would_notice = None  # of the judge, which is the same

    def words_of(self, number):
        return ("--grace", "3s") if number % 3 else ()


class RedisHistory(HoldHistory):
    """With leases of the Redis, which is killed, too, and forgets nothing of what it had answered."""

    issuer, seconds, holders = "cache", SECONDS / 4, HOLDERS // 2
    test_without_the_gates_it_would_notice = None  # of the judge, which is the same

    def disturb_server(self, pause):
        if self.random.random() < 0.5:
            return super().disturb_server(pause)
        return self.redis.restart()


if __name__ == "__main__":
    main()
