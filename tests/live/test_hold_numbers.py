"""What leases and fences are for, in numbers: a batch that is paused in the middle of its writes while the next holder runs the same
batch, and the time of a hand-over in a rolling deployment. Each is printed.

$FENCEGATE_PAUSE: seconds of the pause; longer than the lease in any case."""

import contextlib
import os
import signal
import time

from lease_sidecar import Sidecar
from live_test import main
from processes import eventually
from test_hold import TTL, HoldTest

PAUSE = float(os.environ.get("FENCEGATE_PAUSE", 2 * TTL))
ROWS, PAUSED_AT = 20, 8
ROUNDS = 5
HANDOVER = TTL / (4 if "FENCEGATE_SANITIZED" not in os.environ else 2)  # seconds; psql's own start is in it

# As many a script does it: it looks once how far the work is, and goes on from there, whatever an error says.
BATCH = ("n=$(psql -qXAt -p $SERVER_PGPORT -c 'SELECT count(*) FROM done'); while [ $n -lt $ROWS ]; do "
         "if [ $n = $PAUSED_AT ]; then touch $READY; until [ -e $GO ]; do sleep 0.02; done; fi; "
         "psql -qXc \"INSERT INTO done VALUES ($n)\" 2>/dev/null || echo stale; "
         "redis-cli -p $REDIS_PORT {push} done $n | grep -q '^[0-9]' || echo stale; n=$((n + 1)); done; echo end")


class Numbers(HoldTest):
    gates_of = Sidecar

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sql("CREATE TABLE done (n int, at timestamptz DEFAULT clock_timestamp()); GRANT ALL ON done TO orders")

    def setUp(self):
        super().setUp()
        self.sql("TRUNCATE done")
        self.redis.cli.call("DEL", "done")

    def stale(self):
        return [int(self.gates.figure(f'fencegate_checks_total{{gate="{gate}",outcome="stale"}}')) for gate in ("db", "cache")]

    def doubled(self):
        """In PostgreSQL, and in Redis."""
        both = [n for (n,) in self.sql("SELECT n FROM done")], [int(n) for n in self.redis.cli.call("LRANGE", "done", 0, -1)]
        for rows in both:
            self.assertEqual(set(rows), set(range(ROWS)), "a row is missing")
        return [len(rows) - ROWS for rows in both]

    def paused_batch(self, push, **where):
        """How often the holder that was paused was told that it is stale."""
        files = {name: os.path.join(self.gates.folder, name) for name in ("READY", "GO")}
        for path in files.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        given = {"ROWS": str(ROWS), "SERVER_PGPORT": str(self.database.port)} | files | where
        batch = BATCH.replace("{push}", push)
        old = self.shell(batch, environment=given | {"PAUSED_AT": str(PAUSED_AT)})
        eventually(lambda: os.path.exists(files["READY"]))
        old.freeze()
        began = time.monotonic()
        new = self.run_shell(batch, environment=given | {"PAUSED_AT": "never"})
        self.assertEqual((new.status, new.told), (0, "end\n"), new.said)
        with contextlib.suppress(TimeoutError):
            eventually(lambda: time.monotonic() - began >= PAUSE, PAUSE + 1)
        # Nobody ends it: the processes that would stand still for longer.
        with open(files["GO"], "w"):
            for pid in old.tree()[2:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        told = list(iter(old.child.stdout.readline, "end\n"))
        print(f"paused for {time.monotonic() - began:.1f} s in the middle of its writes; ", end="")
        self.assertEqual(set(told), {"stale\n"} if told else set())
        return len(told)

    def test_a_paused_batch_doubles_nothing(self):
        before = self.stale()
        told = self.paused_batch("FENCE CALL orders $FENCING_TOKEN RPUSH")
        counted = [after - then for then, after in zip(before, self.stale())]
        print(f"rows doubled: {self.doubled()}; stale tries: {told}, counted by the gates: {counted}")
        self.assertEqual(self.doubled(), [0, 0])
        self.assertEqual((told, counted), (2 * (ROWS - PAUSED_AT), [ROWS - PAUSED_AT] * 2))

    def test_without_the_gates_it_doubles(self):
        """The lease alone, as any lock service gives one."""
        told = self.paused_batch("RPUSH", PGPORT=str(self.database.port), REDIS_PORT=str(self.redis.port))
        print(f"rows doubled without the gates: {self.doubled()}")
        self.assertEqual((told, self.doubled()), (0, [ROWS - PAUSED_AT] * 2))

    def handover(self, end):
        """Seconds from the end of a pod, by `end`, to the first write of the next one, which has waited for it."""
        self.sql("TRUNCATE done")
        old = self.shell("echo up; exec sleep 1000")
        self.assertEqual(old.child.stdout.readline(), "up\n")
        new = self.shell("psql -qXc 'INSERT INTO done VALUES (1)'")
        self.assertIn("waiting", new.child.stderr.readline())
        ((began,),) = self.sql("SELECT clock_timestamp()")
        end(old)
        self.assertEqual(new.ended(), 0, new.said)
        ((at,),) = self.sql("SELECT at FROM done")
        return (at - began).total_seconds()

    def test_a_rolling_deployment_hands_over_at_once(self):
        def kill(hold):
            for pid in hold.tree():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        # The machine may be busy with something else; not each time.
        released = []
        while len(released) < ROUNDS or (min(released) >= HANDOVER and len(released) < 4 * ROUNDS):
            released.append(self.handover(lambda hold: hold.child.terminate()))
        expired = self.handover(kill)
        print(f"hand-over by release: {', '.join(f'{1000 * one:.0f}' for one in released)} ms; without, at a TTL of {1000 * TTL:.0f} ms: "
              f"{1000 * expired:.0f} ms")
        self.assertLess(min(released), HANDOVER)
        self.assertGreater(expired, max(min(released), TTL / 2))


if __name__ == "__main__":
    main()
