"""`hold --grace`: a job whose lease cannot be renewed stands still from its deadline on. It goes on when the same term is
confirmed again, and is ended where that does not happen."""

import contextlib
import os
import signal
import subprocess
import time

import test_hold
import test_hold_guard
import test_redis_hold
from held import PROBE, state
from lease_sidecar import Sidecar
from live_test import main
from processes import eventually

FAR = 600_000  # milliseconds
# For a process that ends while its release waits for an answer, and is not freed with it.
UNANSWERED = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Processes(test_hold_guard.HoldTest):
    """Without a lease: keeper, guard and job."""

    WORKS = "trap '' TERM; (setsid bash -c 'while :; do :; done' &); while [ ! -e $F/end ]; do :; done; exit 7"

    def still(self, held):
        """All of the job, and nothing else."""
        job = held.job()
        return job and all(state(pid) == "T" for pid in job)

    def working(self, script=None, count=2, **options):
        # Within a second it has begun to work, on a busy machine, too.
        held = self.shell(script or self.WORKS, **({"ttl": 1000, "still": FAR} | options))
        held.wait_for_job(count)
        return held

    def renew(self, held):
        before = len(held.said())
        os.kill(held.keeper, signal.SIGVTALRM)
        eventually(lambda: ["renewed"] in held.said()[before:])

    def test_it_stands_still_and_goes_on(self):
        held = self.working()
        eventually(lambda: held.said("still") is not None)
        self.assertTrue(self.still(held), {pid: state(pid) for pid in held.job()})
        ticks = [cpu_ticks(pid) for pid in held.job()]
        self.assertNotIn("T", {state(held.keeper), state(held.guard)})
        with open(held.path("end"), "w"):
            self.assertEqual([cpu_ticks(pid) for pid in held.job()], ticks)
        self.renew(held)
        eventually(lambda: held.said("goes-on") is not None)
        self.assert_ended(held, 7, "exited")

    def test_many_times(self):
        held = self.working(renewed=100)
        for so_many in range(1, 11):
            eventually(lambda: held.said().count(["still"]) >= so_many)
            self.assertTrue(self.still(held))

            def goes_on():
                self.renew(held)  # again: on a busy machine the deadline may have been reached before anybody looked
                return held.said().count(["goes-on"]) >= so_many
            eventually(goes_on)

    def test_it_is_ended_behind_the_grace(self):
        held = self.working(still=3_000)
        self.assert_overdue(held)
        self.assertIsNotNone(held.said("still"))

    def test_no_sigterm_is_sent_at_the_deadline(self):
        held = self.working("trap 'touch $F/told' TERM; while :; do :; done", count=1, still=3_000)
        self.assert_overdue(held)
        self.assertFalse(held.has("told"))

    def test_a_loss_ends_what_stands_still(self):
        held = self.working()
        eventually(lambda: held.said("still") is not None)
        held.stop_now()
        self.assert_overdue(held)

    def test_what_forks_stands_still(self):
        for command in ((PROBE, "runners", 30, 20), (PROBE, "tree", 100, 20)):
            with self.subTest(command[1]):
                held = self.held(*command, ttl=300, still=FAR)
                held.wait_for_job(1)
                eventually(lambda: held.said("still") is not None or held.said("ended") is not None)
                if held.said("ended") is None:
                    self.assertTrue(eventually(lambda: self.still(held)))
                    before = sorted(held.job())
                    with self.assertRaises(subprocess.TimeoutExpired):
                        held.wait(0.3)
                    self.assertEqual(sorted(held.job()), before)
                    held.stop_now()
                self.assert_ended(held, 79, "overdue")

    def test_what_is_let_go_by_another_is_stopped_again(self):
        held = self.working()
        eventually(lambda: held.said("still") is not None)
        for pid in held.job():
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: self.still(held))

    def test_what_stood_still_before_does_not_go_on(self):
        held = self.working("(setsid bash -c 'echo $$ >$F/pid; kill -STOP $$; touch $F/went-on' &); while :; do :; done")
        eventually(lambda: held.has("pid") and state(int(held.read("pid"))) == "T")
        eventually(lambda: held.said("still") is not None)
        self.renew(held)
        eventually(lambda: held.said("goes-on") is not None)
        self.assertEqual(state(int(held.read("pid"))), "T")
        self.assertFalse(held.has("went-on"))

    def test_a_frozen_keeper(self):
        """The guard stops the job, and ends it."""
        held = self.working(still=4_000)
        held.freeze(held.keeper)
        eventually(lambda: self.still(held))
        eventually(lambda: not held.job())
        os.kill(held.keeper, signal.SIGCONT)
        self.assert_overdue(held)

    def test_a_keeper_that_is_frozen_for_less_than_the_grace(self):
        held = self.working()
        held.freeze(held.keeper)
        eventually(lambda: self.still(held))
        os.kill(held.keeper, signal.SIGCONT)
        self.renew(held)
        # It may hear at once that the job stood still and goes on again, and then says neither.
        eventually(lambda: (job := held.job()) and "T" not in {state(pid) for pid in job})
        self.assertIsNone(held.said("ended"))

    def test_a_keeper_that_is_killed(self):
        held = self.working()
        eventually(lambda: held.said("still") is not None)
        os.kill(held.keeper, signal.SIGKILL)
        eventually(held.gone)

    def test_a_frozen_guard(self):
        """The keeper ends the job."""
        held = self.working()
        held.freeze(held.guard)
        self.assert_overdue(held)
        self.assertIsNone(held.said("still"))

    def test_a_guard_that_does_not_let_the_job_go_on(self):
        held = self.working()
        eventually(lambda: held.said("still") is not None)
        held.freeze(held.guard)
        self.renew(held)
        self.assertEqual((held.wait(), held.end()[0]), (79, "overdue"))
        self.assertTrue(held.gone())

    def test_a_guard_that_does_not_end_the_job(self):
        held = self.working(still=4_000)
        eventually(lambda: held.said("still") is not None)
        held.freeze(held.guard)
        self.assert_overdue(held)

    def test_both_frozen(self):
        """Nobody stops the job: that is the fence's part. They do when they go on, and the keeper may still renew."""
        held = self.working()
        for pid in (held.guard, held.keeper):
            held.freeze(pid)
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 4)  # longer than a keeper waits for its guard
        self.assertNotIn("T", [state(pid) for pid in held.job()])
        for pid in (held.keeper, held.guard):
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: self.still(held))
        eventually(lambda: held.said("still") is not None)
        self.renew(held)
        eventually(lambda: held.said("goes-on") is not None)

    def test_both_frozen_beyond_the_grace(self):
        held = self.working(still=1_000)
        for pid in (held.guard, held.keeper):
            held.freeze(pid)
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 3)
        os.kill(held.keeper, signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):  # whom the keeper has ended already
            os.kill(held.guard, signal.SIGCONT)
        self.assert_overdue(held)
        self.assertIsNone(held.said("still"))


class LeaseTest(test_hold.HoldTest):
    # Its steps are counted; it ends when it is told to.
    COUNTS = "echo up; until [ -e {end} ]; do echo $FENCING_TOKEN >>{steps}; sleep 0.02; done; " + test_hold.WRITE.format("late") + "; echo done"

    def setUp(self):
        super().setUp()
        self.end, self.steps = (os.path.join(self.gates.folder, f"{self._testMethodName}.{what}") for what in ("end", "steps"))

    def job(self, *words, **more):
        job = self.shell(self.COUNTS.format(end=self.end, steps=self.steps), *words, **more)
        self.assertEqual(job.child.stdout.readline(), "up\n")
        return job

    def taken(self):
        with contextlib.suppress(FileNotFoundError), open(self.steps) as file:
            return file.read().split()
        return []

    def stands_still(self, job):
        """The command, and what it runs. A child may have ended, which it cannot see yet; or be stopped between vfork() and
        exec(), for which its parent waits in the kernel."""
        keeper, guard, *others = job.tree()
        states = [state(pid) for pid in others]
        return "T" in states and set(states) <= set("TZD")

    def assert_goes_on(self, job, thaw):
        eventually(lambda: self.stands_still(job))
        before = len(self.taken())
        self.assertIsNone(job.child.poll())
        self.assertEqual(len(self.taken()), before)
        thaw()
        eventually(lambda: len(self.taken()) > before)
        with open(self.end, "w"):
            self.assertEqual(job.ended(), 0)
        self.assertEqual(job.told, "done\n")
        self.assertEqual(len(set(self.taken())), 1)  # one token, and it is the mark
        self.assertEqual((self.rows(), self.taken()[0]), (["late"], str(self.mark())))
        self.assertRegex(job.said, "(?s)the command stands still, for --grace at most\n.*the command goes on\n")

    def check_another_has_taken_it(self):
        job = self.job("--grace", "45s")
        os.kill(job.child.pid, signal.SIGSTOP)
        eventually(lambda: self.stands_still(job))
        new = self.run_shell(test_hold.WRITE.format("new"))
        self.assertEqual(new.status, 0, new.said)
        before = len(self.taken())
        with open(self.end, "w"):
            os.kill(job.child.pid, signal.SIGCONT)
        self.assertEqual(job.ended(), 79)
        self.assertIn("it was granted to another", job.said)
        self.assertEqual((self.rows(), len(self.taken())), (["new"], before))


class Leases(LeaseTest):
    """Of a database directly, and of a sidecar."""

    gates_of = Sidecar

    def by_sidecar(self, *words):
        hold = test_hold.Hold(self.gates, "orders", command=["sh", "-c", self.COUNTS.format(end=self.end, steps=self.steps)])
        at = hold.words.index("-c")
        hold.words[at:at + 2] = ["--api", f"unix:{self.gates.socket}", "--ttl", "6s", "--stop-grace", "200ms", *words]
        hold.words[0] = os.environ["FENCEGATE_HOLD"]
        job = self.start(hold)
        self.assertEqual(job.child.stdout.readline(), "up\n")
        return job

    def freeze_database(self):
        self.database.freeze(self.database.pid)  # first of all: it would start others
        self.addCleanup(self.thaw_database)
        for pid in self.database.backends():
            self.database.freeze(pid)

    def thaw_database(self):
        for pid in [self.database.pid, *self.database.backends()]:
            self.database.thaw(pid)

    def test_another_has_taken_it(self):
        self.check_another_has_taken_it()

    def test_a_database_that_stands_still(self):
        job = self.job("--ttl", "3s", "--grace", "45s")
        self.freeze_database()
        self.assert_goes_on(job, self.thaw_database)

    def test_a_sidecar_that_stands_still(self):
        job = self.by_sidecar("--grace", "45s")
        os.kill(self.gates.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.gates.pid, signal.SIGCONT)
        self.assert_goes_on(job, lambda: os.kill(self.gates.pid, signal.SIGCONT))

    def test_a_sidecar_that_is_gone_for_a_while(self):
        job = self.by_sidecar("--grace", "45s")
        self.gates.kill()
        self.assert_goes_on(job, self.gates.start)

    def test_a_sidecar_whose_database_stands_still(self):
        job = self.by_sidecar("--grace", "45s")
        self.freeze_database()
        self.assert_goes_on(job, self.thaw_database)

    def test_a_keeper_that_stands_still(self):
        job = self.job("--ttl", "3s", "--grace", "45s")
        os.kill(job.child.pid, signal.SIGSTOP)
        self.assert_goes_on(job, lambda: os.kill(job.child.pid, signal.SIGCONT))

    def test_keeper_and_guard_stand_still_and_another_takes_it(self):
        """What the job writes meanwhile is the fence's part."""
        job = self.job("--grace", "45s")
        keeper, guard = job.tree()[:2]
        for pid in (keeper, guard):
            os.kill(pid, signal.SIGSTOP)
        new = self.run_shell(test_hold.WRITE.format("new"))
        self.assertEqual(new.status, 0, new.said)
        with open(self.end, "w"):
            pass
        eventually(lambda: not [pid for pid in job.tree()[2:] if state(pid) not in "ZX"])  # it has tried to write
        for pid in (guard, keeper):
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(job.ended(), 79)
        self.assertEqual(self.rows(), ["new"])

    def test_nobody_confirms_it(self):
        job = self.job("--ttl", "6s", "--grace", "1s", environment=UNANSWERED)
        self.freeze_database()
        self.assertEqual(job.ended(), 79)
        self.assertIn("the lease was lost: no renewal was confirmed in time", job.said)

    def test_an_operator_gives_it_to_another(self):
        """A loss that is known has no grace."""
        job = self.job("--ttl", "6s", "--grace", "45s")
        self.sql("SELECT fencegate.lease_grant('{orders}', 'operator', 'operator', 1, '{0}', l.stores, 1, 0, 0, true) "
                 "FROM fencegate.leases l WHERE resource = 'orders'")
        self.assertEqual(job.ended(), 79)
        self.assertIn("it was granted to another", job.said)

    def test_sigterm_while_it_stands_still(self):
        job = self.job("--ttl", "6s", "--grace", "45s", environment=UNANSWERED)
        self.freeze_database()
        eventually(lambda: self.stands_still(job))
        job.child.send_signal(signal.SIGTERM)
        eventually(lambda: len(job.tree()) <= 1)
        self.thaw_database()
        self.assertEqual(job.ended(), 137)


class LeasesOfARedis(LeaseTest):
    issuer, gates_of = "cache", test_redis_hold.RedisGates
    free_all = test_redis_hold.Issued.free_all

    def test_another_has_taken_it(self):
        self.check_another_has_taken_it()

    def test_a_redis_that_stands_still(self):
        job = self.job("--ttl", "3s", "--grace", "45s")
        os.kill(self.redis.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.redis.pid, signal.SIGCONT)
        self.assert_goes_on(job, lambda: os.kill(self.redis.pid, signal.SIGCONT))


if __name__ == "__main__":
    main(at_once=3)
