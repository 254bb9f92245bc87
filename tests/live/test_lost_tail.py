"""Servers that fall while holders are at work, and come back without their last grants and marks: a PostgreSQL whose asynchronous
standby is promoted, and a Redis whose append-only file has lost its end. The next tokens are a stride above all that were given,
and from the first seal on nobody older writes."""

import contextlib
import os
import signal
import subprocess
import threading

from cut_proxy import CutProxy
from live_test import LiveTest, main
from postgres import PostgresServer, PostgresStandby, run_sql
from processes import LOOPBACK, eventually
from redis_server import RedisServer
from test_hold import Gates, Hold
from test_hold_history import faults

STRIDE = 1 << 20
HOLDERS = 4
TRIES = 2
NEVER = 100000  # seconds


class PostgresAlone(Gates):
    """`database`: who knows its address."""

    def __init__(self, database):
        super().__init__(database, None)

    def configure(self):
        self.redis_port = self.pg_port
        url = self.database.url("gate", "app")
        return {"stores": {"ledger": {"url": url}}, "leases": {"issuers": {"main": {"store": "ledger"}}} | self.leases,
                "gates": [{"name": "db", "protocol": "postgres", "listen": f"{LOOPBACK}:{self.pg_port}", "upstream": url}]}


class RedisAlone(Gates):
    def __init__(self, redis):
        super().__init__(None, redis)

    def configure(self):
        self.pg_port = self.redis_port
        return {"stores": {"cache": {"url": self.redis_url()}}, "leases": {"issuers": {"main": {"store": "cache"}}} | self.leases,
                "gates": [self.redis_gate()]}


class LostTail:
    """What follows, of either server. In subclasses: WRITE, a command that writes one row; `lose_from_now`, `fall`,
    `come_back`; `log`, what stands in the server; `mark`, there; COUNT, a command that says how much stands there."""

    def run_shell(self, script, **environment):
        return self.start(Hold(self.gates, "orders", command=["sh", "-c", script], environment={"JOB": "job"} | environment))

    def token_of(self, job):
        self.assertEqual(job.ended(), 0, job.said)
        return int(job.told.split()[0])

    def paused(self):
        """(a job that stands still, and whom nobody ends; its token). Each time it is told to, it writes, and says what became of it."""
        self.go = os.path.join(self.gates.folder, "go")
        tries = " ".join(map(str, range(TRIES)))
        job = self.run_shell(f"echo $FENCING_TOKEN; for i in {tries}; do until [ -e $GO.$i ]; do sleep 0.02; done; "
                             f"{self.WRITE} && echo admitted || echo refused; done; sleep {NEVER}", GO=self.go)
        token = int(job.child.stdout.readline())
        keeper, guard, *_ = job.tree()
        for one in (guard, keeper):
            os.kill(one, signal.SIGSTOP)
        return job, token

    def writes(self, job, number):
        with open(f"{self.go}.{number}", "w"):
            return job.child.stdout.readline().strip()

    def takeover_that_is_lost(self):
        """(a paused job, its token, the token of the next one, which has written, and of which the server will know nothing)"""
        old, token = self.paused()
        self.lose_from_now()
        lost = self.token_of(self.run_shell(f"echo $FENCING_TOKEN; {self.WRITE}"))
        self.assertEqual(lost, token + 1)
        self.assertEqual([one for one, _ in self.log()], [lost])
        return old, token, lost

    def assert_over(self, old, token, lost):
        """The next holder has a token of a stride above, and none of the former ones writes from then on."""
        before = len(self.log())
        new = self.token_of(self.run_shell(f"echo $FENCING_TOKEN; {self.WRITE}"))
        self.assertIn(new, (token + STRIDE, lost + STRIDE))
        self.assertEqual(self.writes(old, 1), "refused")
        self.assertNotEqual(self.write_as(lost), 0)
        self.assertEqual([one for one, _ in self.log()[before:]], [new])

    def test_a_running_fencegate_puts_a_lost_mark_back(self):
        old, token, lost = self.takeover_that_is_lost()
        self.fall()
        self.come_back()
        self.assertEqual(self.log(), [])
        self.assertEqual(self.writes(old, 0), "refused")
        eventually(lambda: self.mark() == lost)
        self.assert_over(old, token, lost)

    def test_a_mark_that_no_running_fencegate_has_seen_is_lost(self):
        old, token, lost = self.takeover_that_is_lost()
        self.gates.kill()
        self.fall()
        self.come_back()
        self.gates.start()
        self.assertEqual(self.mark(), token)
        self.assertEqual(self.writes(old, 0), "admitted")
        self.assert_over(old, token, lost)

    def work(self, number, over):
        round_ = 0
        while not over.is_set():
            round_ += 1
            job = (f'echo "$FENCING_TOKEN $JOB $({self.COUNT})" >> $BEGAN; for i in 1 2 3 4; do '
                   f'{self.WRITE} && echo "$FENCING_TOKEN $JOB" >> $ADMITTED; sleep 0.02; done')
            with Hold(self.gates, "orders", command=["sh", "-c", job], environment={
                    "JOB": f"{number}.{round_}", "BEGAN": self.path("began"), "ADMITTED": self.path("admitted")}) as hold:
                hold.ended(120)
            if hold.child.returncode not in (0, 79):
                over.wait(0.1)

    def path(self, name):
        return os.path.join(self.gates.folder, name)

    def said(self, name):
        """[(token, job, …)…]: which jobs have begun, or whose writes were admitted, in that order."""
        with contextlib.suppress(FileNotFoundError), open(self.path(name)) as file:
            return [(int(token), *rest) for token, *rest in (line.split() for line in file)]
        return []

    def tokens(self):
        return {token for token, _ in self.said("admitted")}

    def test_holders_at_work(self):
        over = threading.Event()
        threads = [threading.Thread(target=self.work, args=(number, over), daemon=True) for number in range(HOLDERS)]
        for one in threads:
            one.start()
        eventually(lambda: len(self.tokens()) >= 3)
        self.lose_from_now()
        kept = self.tokens()
        eventually(lambda: len(self.tokens() - kept) >= 4)
        self.fall()
        began = len(self.said("began"))
        self.come_back()
        known = max(token for token, _ in self.log())
        given = max(token for token, *_ in self.said("began")[:began])
        eventually(lambda: len([token for token in self.tokens() if token > given]) >= 4)
        over.set()
        for one in threads:
            one.join(120)
            self.assertFalse(one.is_alive(), "a holder did not come to an end")

        log, began_as_said = self.log(), self.said("began")
        began_then = [(token, job, {"it": int(rest[0])} if rest else {}) for token, job, *rest in began_as_said]
        admitted_and_lost = self.tokens() - {token for token, _ in log}
        print(f"{len(began_as_said)} jobs; {sorted(admitted_and_lost)} are forgotten, behind {known}; then "
              f"{min(token for token, *_ in began_as_said if token > given)}")
        self.assertGreaterEqual(len(admitted_and_lost), 2, "nothing was lost")
        tokens = [token for token, *_ in began_as_said]
        self.assertEqual(tokens, sorted(set(tokens)), "tokens do not strictly rise")
        self.assertGreaterEqual(tokens[tokens.index(given) + 1], known + STRIDE)
        # Jobs that began before it fell have counted what is no more.
        self.assertEqual(faults({"it": log}, [(token, job, stood if token > given else {}) for token, job, stood in began_then]), [])


class Promotion(LostTail, LiveTest):
    """The tail does not reach the standby."""

    WRITE = ("psql -qXc \"BEGIN; LOCK TABLE log; INSERT INTO log SELECT coalesce(max(n), 0) + 1, $FENCING_TOKEN, '$JOB' FROM log; "
             "COMMIT\" 2> /dev/null")
    COUNT = "psql -qXAtc 'SELECT count(*) FROM log' 2> /dev/null"

    def setUp(self):
        self.server = self.start(PostgresServer())
        self.server.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            self.server.user(name)
        self.server.install("app", gate_users=("gate",))
        self.sql("CREATE TABLE log (n bigint, token bigint, job text); GRANT ALL ON log TO orders")
        self.stream = self.start(CutProxy(self.server.port))
        self.standby = self.start(PostgresStandby(self.server, primary_conninfo=f"host={LOOPBACK} port={self.stream.port} user=postgres"))
        self.way = self.start(CutProxy(self.server.port))
        self.gates = self.start(PostgresAlone(self))

    def url(self, user, database):
        return f"postgres://{user}@{LOOPBACK}:{self.way.port}/{database}"

    def sql(self, text):
        with contextlib.closing(self.server.connect(database="app")) as connection:
            return run_sql(connection, text)

    def log(self):
        return self.sql("SELECT token, job FROM log ORDER BY n")

    def mark(self):
        return self.sql("SELECT mark FROM fencegate.marks WHERE resource = 'orders'")[0][0]

    def write_as(self, token):
        return subprocess.run(["sh", "-c", self.WRITE], check=False, env=os.environ | {
            "PGHOST": LOOPBACK, "PGPORT": str(self.gates.pg_port), "PGUSER": "orders", "PGDATABASE": "app", "JOB": "by hand",
            "FENCING_TOKEN": str(token), "PGOPTIONS": f"-c fencing.tokens=orders={token}"}).returncode

    def lose_from_now(self):
        at = self.server.value("SELECT pg_current_wal_lsn()")
        eventually(lambda: self.standby.value("SELECT pg_last_wal_replay_lsn() >= %s", at))
        self.stream.freeze()

    def fall(self):
        self.server.kill()
        self.way.cut_all()
        self.stream.refuse = True
        self.stream.cut_all()

    def come_back(self):
        self.standby.promote()
        self.server = self.standby
        self.way.target_port = self.server.port


class AppendOnlyFile(LostTail, LiveTest):
    """The file has lost its end when the server is started anew."""

    WRITE = "redis-cli -e -p $REDIS_PORT FENCE CALL orders $FENCING_TOKEN RPUSH log \"$FENCING_TOKEN $JOB\" > /dev/null 2>&1"
    COUNT = "redis-cli -e -p $REDIS_PORT LLEN log 2> /dev/null"

    def setUp(self):
        self.server = self.start(RedisServer(appendfsync="always"))
        self.gates = self.start(RedisAlone(self.server))

    def log(self):
        return [(int(token), job) for token, job in (one.decode().split(" ", 1) for one in self.server.cli.call("LRANGE", "log", "0", "-1"))]

    def mark(self):
        return int(self.server.cli.call("GET", "fencegate:mark:{orders}") or 0)

    def write_as(self, token):
        return subprocess.run(["sh", "-c", self.WRITE], check=False, env=os.environ | {
            "REDIS_PORT": str(self.gates.redis_port), "JOB": "by hand", "FENCING_TOKEN": str(token)}).returncode

    def lose_from_now(self):
        folder = os.path.join(self.server.folder, "appendonlydir")
        (name,) = [one for one in os.listdir(folder) if one.endswith(".incr.aof")]
        self.file = os.path.join(folder, name)
        self.kept_bytes = os.path.getsize(self.file)

    def fall(self):
        self.server.kill()

    def come_back(self):
        self.assertGreater(os.path.getsize(self.file), self.kept_bytes)
        os.truncate(self.file, self.kept_bytes)
        self.server.start()


if __name__ == "__main__":
    main(at_once=3)
