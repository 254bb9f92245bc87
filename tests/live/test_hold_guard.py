"""The processes of hold: keeper, guard, CMD. Nothing of CMD is left behind its deadline, or behind its keeper.

Nothing here is timed: that the guard is in time shows in what it says (`late`), and that nothing is left is looked at the
moment the keeper has ended.
"""

import os
import signal
import subprocess
import unittest

from held import NOBODY, PROBE, Held, children, name, parent, state, status
from live_test import LiveTest, main
from processes import PATIENCE, eventually

# Ignores SIGTERM, and has processes in sessions of their own. Six of them, with the shell.
STUBBORN = ("trap '' TERM; (setsid sleep 300 &); (setsid bash -c 'setsid sleep 300 & sleep 300; :' &); nohup sleep 300 & sleep 300; :")
STUBBORN_COUNT = 6
CANNOT_UNSHARE = os.getuid() != 0 and "only root may"
SANITIZED = "FENCEGATE_SANITIZED" in os.environ


class HoldTest(LiveTest):
    def held(self, *command, **options):
        return self.start(Held(*command, **options))

    def shell(self, text, **options):
        return self.held("bash", "-c", text, **options)

    def stubborn(self, **options):
        held = self.shell(STUBBORN, **options)
        held.wait_for_job(STUBBORN_COUNT)
        return held

    def assert_ended(self, held, code, kind):
        """The keeper has this status, the guard said this, and nothing runs any more."""
        found = held.wait()
        self.assertTrue(held.gone(), held.everything())
        self.assertEqual((found, held.end()[0]), (code, kind), held.said())
        self.assertEqual(held.end()[4], [])

    def assert_overdue(self, held):
        self.assert_ended(held, 79, "overdue")
        self.assertGreaterEqual(held.end()[3], 0)  # not before


class Deadline(HoldTest):
    def test_renewals_stop(self):
        held = self.shell(STUBBORN, renew=600, ttl=500, grace=200)
        held.wait_for_job(STUBBORN_COUNT)
        self.assert_overdue(held)

    def test_the_keeper_moves_it_nearer(self):
        held = self.stubborn(grace=100)
        held.stop_now()
        self.assert_overdue(held)

    def test_at_stop_at_the_group_gets_sigterm(self):
        held = self.shell("trap 'echo $BASHPID >> $F/got; exit 5' TERM; (trap 'echo $BASHPID >> $F/got; exit 6' TERM; touch $F/in;"
                          " while :; do sleep 0.01; done) & touch $F/out; while :; do sleep 0.01; done", grace=60_000)
        eventually(lambda: held.has("in") and held.has("out"))
        held.stop_now()
        self.assert_ended(held, 5, "exited")
        self.assertEqual(len(set(held.read("got").split())), 2)

    def test_a_stopped_job_hears_sigterm(self):
        held = self.shell("trap 'exit 5' TERM; kill -STOP $$; sleep 300; :", grace=60_000)
        held.wait_for_job(1)  # its keeper hears signals by now
        eventually(lambda: [pid for pid in held.job() if state(pid) == "T"])
        held.stop_now()
        self.assert_ended(held, 5, "exited")

    def test_a_stopped_job_is_ended(self):
        held = self.shell("trap '' TERM; kill -STOP $$; while :; do kill -STOP $$; done", grace=100)
        held.wait_for_job(1)  # its keeper hears signals by now
        eventually(lambda: [pid for pid in held.job() if state(pid) == "T"])
        held.stop_now()
        self.assert_overdue(held)

    def test_behind_it_nothing_starts(self):
        held = self.shell("touch $F/ran", ttl=0)
        self.assert_overdue(held)
        self.assertFalse(held.has("ran"))
        held = self.shell("touch $F/ran", ttl=600_000, grace=600_000)  # behind stop_at
        self.assertEqual((held.wait(), held.end()[0]), (79, "overdue"))
        self.assertFalse(held.has("ran"))

    def test_descendants_that_fork_and_exit_as_fast_as_they_can(self):
        held = self.held(PROBE, "runners", 30, 20, grace=0)
        held.wait_for_job(1)
        held.stop_now()
        self.assert_overdue(held)

    def test_descendants_that_become_many(self):
        held = self.held(PROBE, "tree", 150, 20, grace=0)
        held.wait_for_job(1)
        held.stop_now()
        self.assert_overdue(held)

    def test_without_pidfds(self):
        for command, count in (("bash", "-c", STUBBORN), STUBBORN_COUNT), ((PROBE, "runners", 30, 20), 1):
            with self.subTest(command[0]):
                held = self.held(*command, grace=0, deny="pidfd_open")
                held.wait_for_job(count)
                held.stop_now()
                self.assert_overdue(held)

    def test_a_hold_in_a_hold(self):
        inner = [PROBE, "run", "--", "bash", "-c", STUBBORN]
        held = self.held("bash", "-c", 'trap "" TERM; "$@"; :', "outer", *inner, grace=100)
        held.wait_for_job(STUBBORN_COUNT + 1)
        held.stop_now()
        self.assert_overdue(held)


class Losses(HoldTest):
    """Of keeper and guard: killed, stopped. The deadline is far, but where it says so."""

    def test_keeper_killed(self):
        held = self.stubborn()
        os.kill(held.keeper, signal.SIGKILL)
        eventually(held.gone)

    def test_keeper_killed_while_descendants_fork(self):
        held = self.held(PROBE, "runners", 30, 20)
        held.wait_for_job(1)
        os.kill(held.keeper, signal.SIGKILL)
        eventually(held.gone)

    def test_keeper_stopped_at_the_deadline(self):
        held = self.stubborn(grace=2_000)
        held.stop_now()
        held.freeze(held.keeper)
        self.assertIsNone(held.said("ended"))
        eventually(lambda: not held.left())
        self.assertEqual(state(held.keeper), "T")
        os.kill(held.keeper, signal.SIGCONT)
        self.assert_overdue(held)

    def test_guard_killed(self):
        held = self.stubborn()
        os.kill(held.guard, signal.SIGKILL)
        self.assert_ended(held, 125, "guard_died")
        self.assertGreaterEqual(held.end()[2], STUBBORN_COUNT - 1)  # CMD itself may be gone with it

    def test_guard_killed_while_descendants_fork(self):
        held = self.held(PROBE, "runners", 30, 20)
        held.wait_for_job(1)
        os.kill(held.guard, signal.SIGKILL)
        self.assert_ended(held, 125, "guard_died")

    def test_guard_killed_and_the_times_are_moved(self):
        """Nobody reads the pipe by which a guard is woken: the keeper must not die of that."""
        held = self.stubborn(grace=60_000)
        guard = held.guard
        held.freeze(held.keeper)
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: state(guard) == "Z")
        os.kill(held.keeper, signal.SIGALRM)
        os.kill(held.keeper, signal.SIGCONT)
        self.assert_ended(held, 125, "guard_died")

    def test_guard_stopped_at_the_deadline(self):
        held = self.stubborn(grace=0)
        held.freeze(held.guard)
        held.stop_now()
        self.assert_overdue(held)

    def test_what_the_keeper_was_born_with_is_spared(self):
        held = self.start(Held("bash", "-c", STUBBORN, under=("bash", "-c", 'sleep 299 & echo $! > $F/older; exec "$@"', "x")))
        held.wait_for_job(STUBBORN_COUNT + 1)
        older = int(held.read("older"))
        os.kill(held.guard, signal.SIGKILL)
        self.assertEqual(held.wait(), 125)
        self.assertEqual(held.left(), [older])

    def test_a_keeper_that_leaves_takes_all_with_it(self):
        held = self.stubborn()
        os.kill(held.keeper, signal.SIGUSR2)
        self.assertEqual(held.wait(), 0)
        self.assertTrue(held.gone())

    def test_signals_that_ask_the_guard_to_end_are_not_heard(self):
        held = self.shell("while ! [ -e $F/go ]; do sleep 0.01; done; exit 4")
        held.wait_for_job(1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGALRM):
            os.kill(held.guard, number)
        with open(held.path("go"), "w", encoding="utf-8"):
            pass
        self.assert_ended(held, 4, "exited")


class LeftBehind(HoldTest):
    def test_what_obeys_has_ended_before_the_end_is_told(self):
        held = self.shell("(setsid sleep 300 &); sleep 300 & exit 3", stop_grace=600_000)
        self.assert_ended(held, 3, "exited")
        self.assertEqual(held.end()[2], 2)

    def test_it_has_time_to_end(self):
        held = self.shell("(trap 'sleep 0.2; touch $F/bye; exit' TERM; touch $F/up; while :; do sleep 0.01; done) & "
                          "while ! [ -e $F/up ]; do sleep 0.01; done; exit 3", stop_grace=600_000)
        self.assert_ended(held, 3, "exited")
        self.assertTrue(held.has("bye"))

    def test_what_does_not_obey_is_ended_behind_stop_grace(self):
        held = self.shell("(trap '' TERM; touch $F/up; exec setsid sleep 300) & while ! [ -e $F/up ]; do sleep 0.01; done; exit 3",
                          stop_grace=100)
        self.assert_ended(held, 3, "exited")
        self.assertEqual(held.end()[2], 1)

    def test_what_is_stopped_is_continued(self):
        held = self.shell("(trap 'touch $F/bye; exit' TERM; kill -STOP $BASHPID; sleep 300) & "
                          "until grep -q '^State:.T' /proc/$!/status; do :; done; exit 3", stop_grace=600_000)
        self.assert_ended(held, 3, "exited")
        self.assertTrue(held.has("bye"))

    def test_the_deadline_comes_first(self):
        held = self.shell("(trap '' TERM; touch $F/up; exec sleep 300) & while ! [ -e $F/up ]; do sleep 0.01; done; exit 3",
                          stop_grace=600_000, grace=100)
        eventually(lambda: len(held.job()) == 1 and held.has("up") and name(held.job()[0]) == "sleep")
        held.stop_now()
        self.assert_overdue(held)

    def test_keeper_killed_meanwhile(self):
        held = self.shell("(trap '' TERM; exec setsid sleep 300) & sleep 0.1; exit 3", stop_grace=600_000)
        eventually(lambda: [name(pid) for pid in held.job()] == ["sleep"])
        os.kill(held.keeper, signal.SIGKILL)
        eventually(held.gone)


class Refused(HoldTest):
    """Run by another user, with a program that makes itself root's, as sudo does."""

    def setUp(self):
        if os.getuid() != 0:
            self.skipTest("only root makes set-user-ID programs of root's")

    def root_program(self, held):
        path = held.path("as-root")
        with open("/usr/bin/setpriv", "rb") as source, open(path, "wb") as copy:
            copy.write(source.read())
        os.chmod(path, 0o4755)
        if os.statvfs(held.folder).f_flag & os.ST_NOSUID:
            self.skipTest(f"set-user-ID is off in {held.folder}")

    def as_nobody(self, text, **options):
        held = Held("bash", "-c", text, under=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"), **options)
        self.root_program(held)
        return self.start(held)

    def roots(self, held):
        return sorted(pid for pid in held.job() if (status(pid, "Uid") or "").split()[:1] == ["0"])

    def wait_for_names(self, held, *names, roots):
        """Returns the pids of those that are root's, when all have become what they are to be."""
        eventually(lambda: sorted(name(pid) for pid in held.job()) == sorted(names) and len(self.roots(held)) == roots)
        return self.roots(held)

    def test_what_may_not_be_signalled_is_named(self):
        held = self.as_nobody("$F/as-root --reuid=0 sleep 300 & sleep 300 & (setsid sleep 300 &) ; sleep 300; :", grace=100)
        there = self.wait_for_names(held, "bash", "sleep", "sleep", "sleep", "sleep", roots=1)
        held.stop_now()
        self.assertEqual(held.wait(), 79)
        self.assertEqual(held.end()[0], "overdue")
        self.assertEqual(held.end()[4], there)
        self.assertEqual(held.left(), there)

    def test_what_is_below_it_is_ended(self):
        below = f"setpriv --reuid={NOBODY} --clear-groups sleep 300 & while :; do sleep 300; done"
        held = self.as_nobody(f"exec $F/as-root --reuid=0 bash -c '{below}'", grace=100)
        there = self.wait_for_names(held, "bash", "sleep", "sleep", roots=2)
        held.stop_now()
        self.assertEqual(held.wait(), 79)
        self.assertEqual(sorted(held.end()[4]), there)
        self.assertEqual(sorted(held.left()), there)

    def test_of_a_guard_that_died(self):
        held = self.as_nobody("$F/as-root --reuid=0 sleep 300 & sleep 300; :", grace=100)
        there = self.wait_for_names(held, "bash", "sleep", "sleep", roots=1)
        os.kill(held.guard, signal.SIGKILL)
        self.assertEqual(held.wait(), 125)
        self.assertEqual(held.end()[4], there)
        self.assertEqual(held.left(), there)


class Statuses(HoldTest):
    def test_they_are_exact(self):
        cases = [(("sh", "-c", f"exit {one}"), one, "exited") for one in (0, 1, 75, 125, 126, 127, 255)]
        cases += [(("bash", "-c", f"kill -{one} $$"), 128 + one, "signaled") for one in (1, 9, 15)]
        cases += [(("no-such-program",), 127, "not_found"), (("/no/such",), 127, "not_found"),
                  (("/etc/passwd",), 126, "not_executable"), (("/tmp",), 126, "not_executable"),
                  (("/etc/passwd/x",), 126, "not_executable")]
        for command, code, kind in cases:
            with self.subTest(command):
                path = {"PATH": "/usr/bin:/bin"}  # a folder that may not be searched would make it "not executable", as for env(1)
                self.assert_ended(self.held(*command, environment=path), code, kind)

    def test_a_script_without_an_interpreter_is_the_shells(self):
        held = Held("a-script", environment={})
        held.environment["PATH"] = f"{held.folder}:{os.environ['PATH']}"
        with open(held.path("a-script"), "w", encoding="utf-8") as file:
            file.write("exit 9\n")
        os.chmod(held.path("a-script"), 0o755)
        self.assert_ended(self.start(held), 9, "exited")

    def test_of_children_nobody_waits_for(self):
        """Started by who ignores SIGCHLD."""
        held = self.shell("exit 7", prepare=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assert_ended(held, 7, "exited")


class Start(HoldTest):
    def assert_nothing_ran(self, held, *words):
        self.assertEqual(held.wait(), 125, held.said())
        self.assertTrue(held.gone())
        self.assertFalse(held.has("ran"))
        for word in words:
            self.assertIn(word, " ".join(held.said("failed")))

    def test_what_fails_enables_nothing(self):
        calls = ["mmap", "timerfd_create", "timerfd_settime", "pipe2", "signalfd4", "epoll_create1", "setpgid", "clone"]
        if SANITIZED:
            calls.remove("clone")  # looking for leaks forks, too
        for call in calls:
            with self.subTest(call):
                self.assert_nothing_ran(self.shell("touch $F/ran", deny=call))

    def test_with_few_descriptors_all_runs_or_nothing(self):
        ran = []
        for files in range(4, 24):
            held = self.shell("echo > $F/ran; exit 3", files=files)
            code = held.wait()
            self.assertEqual((code, held.has("ran")), (3, True) if code != 125 else (125, False), (files, held.said()))
            ran.append(held.has("ran"))
        self.assertEqual(ran, sorted(ran))
        self.assertEqual(set(ran), {False, True})

    def test_a_thread_before_it(self):
        self.assert_nothing_ran(self.shell("touch $F/ran", thread=True), "a thread was started")

    @unittest.skipIf(CANNOT_UNSHARE, CANNOT_UNSHARE)
    def test_without_lists_of_children(self):
        hide = 'mount -t tmpfs none /proc/$$/task && mkdir /proc/$$/task/$$ && exec "$@"'
        held = self.shell("touch $F/ran", under=("unshare", "-m", "bash", "-c", hide, "x"))
        self.assert_nothing_ran(held, "CONFIG_PROC_CHILDREN")

    @unittest.skipIf(CANNOT_UNSHARE or SANITIZED, CANNOT_UNSHARE or "a sanitizer needs /proc")
    def test_without_proc(self):
        held = self.shell("touch $F/ran", under=("unshare", "-m", "bash", "-c", 'mount -t tmpfs none /proc && exec "$@"', "x"))
        self.assert_nothing_ran(held, "/proc")

    @unittest.skipIf(CANNOT_UNSHARE, CANNOT_UNSHARE)
    def test_with_the_proc_of_another_namespace(self):
        """Its numbers are those of other processes."""
        self.assert_nothing_ran(self.shell("touch $F/ran", under=("unshare", "-p", "-f")), "PID namespace")


class Inherited(HoldTest):
    def fields(self, held):
        self.assertEqual(held.wait(), 0, held.said())
        return {line.partition(":")[0]: line.partition(":")[2].strip() for line in held.read("output").splitlines()}

    def test_no_signal_is_blocked_or_ignored(self):
        def prepare():
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGTSTP, signal.SIGCHLD, 40):
                signal.signal(number, signal.SIG_IGN)

        fields = self.fields(self.held("cat", "/proc/self/status", prepare=prepare))
        self.assertEqual([int(fields[one], 16) for one in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")], [0] * 5)

    def test_but_for_those_that_nohup_and_the_shell_ignore(self):
        def prepare():
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)

        fields = self.fields(self.held("cat", "/proc/self/status", prepare=prepare))
        self.assertEqual(int(fields["SigIgn"], 16), 0b111)

    def test_descriptors_are_those_that_hold_had(self):
        kept = os.open("/etc", os.O_RDONLY)
        self.addCleanup(os.close, kept)
        self.addCleanup(os.close, os.dup2(kept, 50))
        held = self.held("ls", "/proc/self/fd", inherit=(50,))
        self.assertEqual(held.wait(), 0, held.said())
        had = {0, 1, 2, 50, held.inherited}
        of_ls = min(set(range(50)) - had)
        self.assertEqual(set(map(int, held.read("output").split())), had | {of_ls})

    def test_started_without_standard_descriptors(self):
        def prepare():
            for number in (0, 1, 2):
                os.close(number)

        held = self.held("sh", "-c", "ls /proc/$$/fd > $F/fds; exit 0", prepare=prepare)
        self.assert_ended(held, 0, "exited")
        self.assertEqual(set(held.read("fds").split()) - {"1"}, {str(held.inherited)})  # 1 is the file itself
        held = self.held("sleep", "300", prepare=prepare)
        held.wait_for_job(1)
        for pid in (held.keeper, held.guard):  # what writes to stderr must not write into something of ours
            self.assertEqual({"0", "1", "2"} & set(os.listdir(f"/proc/{pid}/fd")), set())

    def test_the_guard_is_in_no_ones_group(self):
        held = self.stubborn()
        self.assertEqual(os.getpgid(held.guard), held.guard)
        (command,) = children(held.guard)[:1]
        self.assertEqual((parent(held.guard), parent(command)), (held.keeper, held.guard))
        self.assertEqual(os.getpgid(command), command)


@unittest.skipIf(CANNOT_UNSHARE, CANNOT_UNSHARE)
class ProcessOne(HoldTest):
    def setUp(self):
        self.under = ("unshare", "-p", "-f", "--mount-proc")

    def zombies(self, held):
        tree, todo = [], [held.child.pid]
        while todo:
            todo += (found := children(todo.pop()))
            tree += found
        return [pid for pid in tree if state(pid) == "Z"]

    def test_statuses_and_deadlines_are_the_same(self):
        self.assert_ended(self.shell("exit 7", under=self.under), 7, "exited")
        held = self.shell(STUBBORN, under=self.under, ttl=500, grace=200)
        self.assert_overdue(held)

    def test_no_zombies_are_left(self):
        held = self.shell("for one in {1..30}; do (setsid true &); done; touch $F/forked; while ! [ -e $F/go ]; do sleep 0.01; done",
                          under=self.under)
        eventually(lambda: held.has("forked") and not self.zombies(held))
        (one,) = children(held.child.pid)
        # As `docker exec` does; its orphans come to process 1.
        subprocess.run(["nsenter", "-t", str(one), "-p", "-m", "bash", "-c", "for one in {1..30}; do (sleep 0.1 &); done"],
                       check=True, timeout=PATIENCE)
        eventually(lambda: len(children(one)) == 1)
        with open(held.path("go"), "w", encoding="utf-8"):
            pass
        self.assert_ended(held, 0, "exited")


if __name__ == "__main__":
    main()
