"""`hold --elect`: several candidates, of whom one runs the command; one whose lease was lost is a candidate again."""

import contextlib
import json
import os
import signal
import subprocess

import documents
from lease_sidecar import PATIENCE, Sidecar
from live_test import main
from processes import die_with_parent, eventually
from test_hold import Hold, HoldTest

WAITS = "; waiting"


class Candidate(Hold):
    """`told`: what its command and its warm-up have written."""

    def __init__(self, gates, words, name, script):
        super().__init__(gates, command=["sh", "-c", script], environment={"NAME": name, "FOLDER": gates.folder})
        self.words, self.name = [*words, "--elect", *self.words[self.words.index("--"):]], name
        self.err = os.path.join(gates.folder, f"{name}.err")

    def __enter__(self):
        with open(self.err, "w") as err:
            self.child = subprocess.Popen(self.words, env=self.given, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                          process_group=0, preexec_fn=die_with_parent)
        return self

    def said(self):
        with open(self.err) as file:
            return file.read()

    def waits(self):
        return WAITS in self.said()


class ElectTest(HoldTest):
    gates_of = Sidecar
    # Each term is a line of one file, of a token and a name. A command ends when a file of its name is there.
    COMMAND = 'echo "$FENCING_TOKEN $NAME" >>$FOLDER/terms; until [ -e $FOLDER/$NAME.end ]; do sleep 0.02; done; exit 7'

    def setUp(self):
        super().setUp()
        for name in os.listdir(self.gates.folder):
            if name.startswith("terms") or name.endswith((".end", ".err", ".warm")):
                os.unlink(os.path.join(self.gates.folder, name))
        self.resource = self._testMethodName

    def candidate(self, name, *words, by="api", script=None):
        api = ["--api", f"unix:{self.gates.socket}"]
        program, source = {"config": ("FENCEGATE", ["-c", self.gates.path]), "api": ("FENCEGATE", api), "static": ("FENCEGATE_HOLD", api)}[by]
        start = [os.environ[program], "hold", self.resource, *source, "--ttl", "6s", "--stop-grace", "200ms", *words]
        return self.start(Candidate(self.gates, start, name, script or self.COMMAND))

    def touch(self, name):
        open(os.path.join(self.gates.folder, name), "w").close()

    def terms(self):
        """[(token, name of the candidate), …]"""
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.gates.folder, "terms")) as file:
            return [(int(line.split()[0]), line.split()[1]) for line in file]
        return []

    def next_term(self, so_many):
        eventually(lambda: len(self.terms()) >= so_many)
        self.assertEqual(len(self.terms()), so_many)
        return self.terms()[-1][1]


class Elections(ElectTest):
    def test_five_candidates(self):
        """One leads, whatever becomes of the one before; who was not ended is a candidate again."""
        all_of = {name: self.candidate(name, by=by) for name, by in zip("abcde", ("config", "api", "static", "api", "static"))}
        first = self.next_term(1)
        eventually(lambda: all(one.waits() for one in all_of.values() if one.name != first))

        # Its machine stands still: the next one leads, and the first is a candidate again.
        all_of[first].freeze()
        second = self.next_term(2)
        all_of[first].thaw()
        eventually(lambda: "it is a candidate again" in all_of[first].said())
        eventually(lambda: all_of[first].said().count(WAITS) >= 1)
        self.assertIsNone(all_of[first].child.poll())
        self.assertEqual(len(all_of[first].tree()), 2)  # keeper and guard: its command was ended

        # It is killed.
        os.kill(all_of[second].tree()[0], signal.SIGKILL)
        third = self.next_term(3)

        # It is told to go: it is none any more.
        all_of[third].child.send_signal(signal.SIGTERM)
        fourth = self.next_term(4)
        self.assertEqual(all_of[third].child.wait(PATIENCE), 128 + signal.SIGTERM)

        # Its command ends by itself: so does it.
        self.touch(f"{fourth}.end")
        self.assertEqual(all_of[fourth].child.wait(PATIENCE), 7)
        fifth = self.next_term(5)

        tokens = [token for token, _ in self.terms()]
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertEqual({one.name for one in all_of.values() if one.child.poll() is None}, set("abcde") - {second, third, fourth})
        self.assertNotIn(fifth, {second, third, fourth})

    def test_a_waiting_candidate_can_be_told_to_go(self):
        self.candidate("a")
        self.next_term(1)
        waiting = self.candidate("b")
        eventually(waiting.waits)
        waiting.child.send_signal(signal.SIGTERM)
        self.assertEqual(waiting.child.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_it_leads_many_times(self):
        """And keeps nothing of the times before."""
        one = self.candidate("a")
        for i in range(1, 6):
            self.next_term(i)
            if i == 1:
                before = set(os.listdir(f"/proc/{one.child.pid}/fd"))
            self.sql("UPDATE fencegate.leases SET token = token + 1, expires_at = '-infinity' WHERE resource = %s", self.resource)
        self.next_term(6)
        # A renewal that is under way, then or now, has one more.
        eventually(lambda: set(os.listdir(f"/proc/{one.child.pid}/fd")) <= before)
        one.child.send_signal(signal.SIGTERM)
        self.assertEqual(one.child.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_who_is_told_to_go_while_its_lease_is_lost_goes(self):
        one = self.candidate("a", script="trap 'touch $FOLDER/told.end' TERM; echo 1 $NAME >>$FOLDER/terms; while :; do sleep 0.02; done")
        self.next_term(1)
        os.kill(one.tree()[1], signal.SIGSTOP)  # the guard, so that it takes its time
        self.sql("UPDATE fencegate.leases SET token = token + 1, expires_at = '-infinity' WHERE resource = %s", self.resource)
        eventually(lambda: "the lease was lost" in one.said())
        one.child.send_signal(signal.SIGTERM)
        self.assertEqual(one.child.wait(PATIENCE), 79)

    def test_a_sidecar_that_is_not_there_yet(self):
        self.gates.kill()
        one = self.candidate("a")
        eventually(lambda: "waiting" in one.said())
        self.gates.start()
        self.next_term(1)

    def test_arguments_that_make_no_sense(self):
        for words, told in ((["--elect", "--no-wait"], "excludes"), (["--elect", "--wait", "1s"], "excludes"),
                            (["--elect", "--busy-exit", "0"], "excludes"), (["--warm-up", "true"], "--warm-up requires --elect")):
            with self.subTest(" ".join(words)):
                done = subprocess.run([os.environ["FENCEGATE_HOLD"], "hold", "a", *words, "--", "true"], text=True, capture_output=True,
                                      check=False)
                self.assertEqual(done.returncode, 125)
                self.assertIn(told, done.stderr)


class Documented(HoldTest):
    """The example of docs/leases.md, as it stands there."""

    gates_of = Sidecar

    def test_one_of_several_replicas(self):
        line = documents.command("docs/leases.md", "fencegate hold orders --elect")
        for name, says in (("warm-up.sh", "warm"), ("job.sh", "$FENCE_TAG")):
            with open(os.path.join(self.gates.folder, name), "w") as file:
                file.write(f"#!/bin/sh\necho {says}\n")
            os.chmod(file.name, 0o755)
        told = documents.run_shell(line.replace("/run/fencegate/lease.sock", self.gates.socket), self.gates.folder)
        self.assertEqual(told, f"warm\norders={self.mark()}\n")


class WarmUps(ElectTest):
    """In front of each candidacy."""

    WARM = "echo $NAME:$FENCING_TOKEN >>$FOLDER/$NAME.warm"

    def warmed(self, name):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.gates.folder, f"{name}.warm")) as file:
            return file.read().split()
        return []

    def test_before_the_lease_is_asked_for(self):
        first = self.candidate("a", "--warm-up", self.WARM)
        self.next_term(1)
        second = self.candidate("b", "--warm-up", self.WARM)
        eventually(second.waits)
        self.assertEqual((self.warmed("a"), self.warmed("b")), (["a:"], ["b:"]))
        self.sql("UPDATE fencegate.leases SET token = token + 1, expires_at = '-infinity' WHERE resource = %s", self.resource)
        eventually(lambda: self.warmed("a") == ["a:", "a:"])
        self.assertIsNone(first.child.poll())

    def test_one_that_fails(self):
        result = os.path.join(self.gates.folder, "result.end")
        one = self.candidate("a", "--warm-up", "exit 3", "--result", result)
        self.assertEqual(one.child.wait(PATIENCE), 125)
        self.assertEqual(one.said(), "fencegate hold: --warm-up: it ended with status 3\n")
        with open(result) as file:
            self.assertEqual(json.load(file), {"outcome": "error", "status": 125})
        self.assertEqual(self.terms(), [])

    def test_one_that_is_told_to_go(self):
        one = self.candidate("a", "--warm-up", "touch $FOLDER/up.warm; sleep 100")
        eventually(lambda: os.path.exists(os.path.join(self.gates.folder, "up.warm")))
        one.child.send_signal(signal.SIGTERM)
        self.assertEqual(one.child.wait(PATIENCE), 128 + signal.SIGTERM)
        self.assertEqual(self.terms(), [])

    def test_what_it_leaves_behind_is_ended(self):
        self.candidate("a", "--warm-up", "setsid sleep 1000.75 & :")
        self.next_term(1)
        self.assertEqual(subprocess.run(["pgrep", "-f", "^sleep 1000.75"], check=False, capture_output=True).stdout, b"")


if __name__ == "__main__":
    main(at_once=3)
