"""`fencegate lease move`: resources get another issuer, whatever ends in between."""

import os
import subprocess

import documents
import test_hold
import test_redis_hold
from live_test import main

THIRD = "33333333-3333-3333-3333-333333333333"


class TwoIssuers(test_redis_hold.RedisGates):
    """Leases of PostgreSQL (old, the default) and of Redis (new); both are sealed, each under two names."""

    def configure(self):
        return super().configure() | {"leases": self.leases | {
            "issuers": {"old": {"store": "ledger"}, "new": {"store": "cache"}}, "issuer": "old"}}


class Move(test_hold.HoldTest):
    issuer, gates_of = "cache", TwoIssuers

    def fencegate(self, *words):
        return subprocess.run([os.environ["FENCEGATE"], "lease", *words, "-c", self.gates.path], capture_output=True, text=True,
                              check=False)

    def moves(self, resource, *words, to="new"):
        """What it did to each place."""
        done = self.fencegate("move", resource, "--to", to, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        *lines, last = done.stdout.splitlines()
        self.assertEqual(last, f"The issuer of {resource} is {to} now: every configuration has to say so.")
        return dict(line.removeprefix(f"{resource}: ").rsplit(": ", 1) for line in lines)

    def token(self, issuer, resource):
        """None: the places that were sealed refuse it."""
        job = self.hold(resource, "--issuer", issuer, command=["sh", "-c", "echo $FENCING_TOKEN"])
        if job.ended() != 0:
            self.assertIn("belongs to leases of another issuer", job.said)
            return None
        return int(job.told)

    def new_id(self):
        self.token("new", "any")  # it gets its id at its first use
        return self.redis.cli.call("GET", "fencegate:issuer").decode().split()[0]

    def test_its_places_take_the_new_issuer_and_the_former_one_no_more(self):
        before = self.token("old", "moved")
        self.assertIsNone(self.token("new", "moved"))
        self.assertEqual(documents.command("docs/leases.md", "fencegate lease move orders --to"),
                         "fencegate lease move orders --to cache -c fencegate.yaml")  # as moves() does
        self.assertEqual(self.moves("moved"), {"store:ledger": "moved", "store:cache": "moved",
                                               "gate:db": "is moved already", "gate:cache": "is moved already"})
        self.assertIsNone(self.token("old", "moved"))
        self.assertGreater(self.token("new", "moved"), before)

    def test_it_may_be_done_again_and_undone(self):
        before = self.token("old", "again")
        self.moves("again")
        self.assertEqual(set(self.moves("again").values()), {"is moved already"})
        self.moves("again", "--issuer", "new", to="old")
        self.assertIsNone(self.token("new", "again"))
        self.assertGreater(self.token("old", "again"), before)

    def test_one_that_nobody_held(self):
        self.assertEqual(set(self.moves("unknown").values()), {"no lease was sealed there"})

    def test_while_somebody_holds_it(self):
        for issuer in ("old", "new"):
            with self.subTest(issuer):
                job = self.hold(f"held-{issuer}", "--issuer", issuer, command=["sh", "-c", "echo up; exec sleep 100"])
                self.assertEqual(job.child.stdout.readline(), "up\n")
                done = self.fencegate("move", f"held-{issuer}", "--to", "new", "--wait", "0s")
                self.assertEqual((done.returncode, done.stdout), (75, ""), done.stderr)
                self.assertIn(f"lease: {issuer}: ", done.stderr)
                self.assertIsNone(job.child.poll())

    def test_one_that_ended_in_between(self):
        """Some places belong to the one, some to the other: nobody holds it, until it was done again."""
        new = self.new_id()
        self.token("old", "half")
        self.sql("SELECT fencegate.move_issuer('half', issuer, %s) FROM fencegate.marks WHERE resource = 'half'", new)
        self.assertEqual((self.token("old", "half"), self.token("new", "half")), (None, None))
        self.assertEqual(self.moves("half"), {"store:ledger": "is moved already", "store:cache": "moved",
                                              "gate:db": "is moved already", "gate:cache": "is moved already"})
        self.assertIsNotNone(self.token("new", "half"))

    def test_marks_of_a_third_issuer(self):
        self.token("old", "foreign")
        self.sql("UPDATE fencegate.marks SET issuer = %s WHERE resource = 'foreign'", THIRD)
        done = self.fencegate("move", "foreign", "--to", "new")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"its mark belongs to leases of a third issuer, {THIRD}", done.stderr)
        self.assertEqual(self.moves("foreign", "--from-lost")["store:ledger"], "moved")
        self.assertIsNotNone(self.token("new", "foreign"))

    def test_the_issuer_that_it_has(self):
        done = self.fencegate("move", "orders", "--to", "old")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("old and old are the same issuer", done.stderr)


if __name__ == "__main__":
    main()
