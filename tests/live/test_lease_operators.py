"""`lease show | break | freeze | thaw | move | forget-store`, by a configuration and by the API of a sidecar: the same work."""

import json
import os
import re
import signal
import subprocess

import documents
from lease_sidecar import PATIENCE, Sidecar
from live_test import main
from postgres import run_sql
from processes import PATIENCE, die_with_parent, eventually
from test_hold import LEASES
from test_lease_api import ApiTest

CALM = LEASES | {"ttl": "30s", "stop_grace": "5s"}


class TwoIssuers(Sidecar):
    """Leases of PostgreSQL (main, the default) and of Redis (other)."""

    def configure(self):
        out = super().configure()
        out["stores"]["cache"] = {"url": self.redis_url()}
        out["leases"] |= {"issuers": {"main": {"store": "ledger"}, "other": {"store": "cache"}}, "issuer": "main"}
        return out


class OperatorsTest(ApiTest):
    times, sidecar_of = CALM, TwoIssuers

    def words(self, *words):
        return [os.environ["FENCEGATE"], "lease", *words, "--api", f"unix:{self.sidecar.socket}"]

    def run_words(self, words):
        """(status, what it printed, what it complained of)"""
        done = subprocess.run(words, text=True, capture_output=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def lease(self, *words):
        return self.run_words(self.words(*words))

    def configured(self, *words):
        return self.run_words([os.environ["FENCEGATE"], "lease", *words, "-c", self.sidecar.path])

    def starts(self, *words):
        child = subprocess.Popen(self.words(*words), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 preexec_fn=die_with_parent)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def lines(self, message, resource):
        """What the sidecar has logged about it."""
        logged = [json.loads(line) for line in self.sidecar.log().splitlines() if line.startswith("{")]
        return [one for one in logged if message in json.dumps(one) and one.get("resources") == resource]

    def shown(self, resource):
        status, printed, said = self.lease("show", resource, "--json")
        self.assertEqual((status, said), (0, ""))
        return json.loads(printed)[0]


class Words(OperatorsTest):
    def test_show(self):
        name = self.name()
        lease = self.taken(name, holder="them")
        token = lease["tokens"][name]
        self.assertRegex(self.lease("show")[1], rf"(?m)^{name} +{token} +{token} +\d+m?s +20\S+ \S+ +them$")
        for words in (("show", name), ("show", name, "--json"), ("show", "--json")):
            by_api, by_configuration = self.lease(*words), self.configured(*words)
            left = r'\d+m?s |"left_ms":\d+'
            self.assertEqual(re.sub(left, "", by_api[1]), re.sub(left, "", by_configuration[1]))
            self.assertEqual((by_api[0], by_api[2]), (0, ""))
        one = self.shown(name)
        self.assertEqual({place["place"]: place["mark"] for place in one["places"]},
                         dict.fromkeys(("store:ledger", "store:cache", "gate:db", "gate:cache"), token))
        self.assertEqual(self.lease("show", self.name()), (0, *self.configured("show", self.name())[1:]))
        self.assertEqual(self.lease("show", "a,b")[0], 2)

    def test_break(self):
        name, other = self.name(), self.name()
        lease = self.taken(name, holder="them")
        status, printed, said = self.lease("break", f"{name},{other}", "--reason", "hangs since noon")
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(printed, f"{name}: broken; its mark is 2 now, and its lease is free\n"
                                  f"{other}: broken; its mark is 1 now, and its lease is free\n")
        self.assertEqual(self.marks(name), (2, 2))
        self.assertEqual(self.api.renew(lease)[0], 410)
        self.assertEqual((self.shown(name)["holder"], self.shown(name)["left_ms"]), ("lease break: hangs since noon", 0))
        ((asked,), (done,)) = (self.lines(message, f"{name},{other}") for message in ("operator asks", "request is done"))
        self.assertEqual((asked["operation"], asked["reason"]), ("break", "hangs since noon"))
        self.assertRegex(asked["by"], rf"^unix, process \d+ of user {os.getuid()}: \S+:\d+$")
        self.assertEqual(done["by"], asked["by"])
        self.taken(name)

    def test_by_a_port(self):
        name = self.name()
        words = [os.environ["FENCEGATE"], "lease", "break", name, "--reason", "hangs", "--api", f"http://127.0.0.1:{self.sidecar.port}"]
        self.assertEqual(self.run_words(words)[0], 0)
        ((asked,),) = (self.lines("operator asks", name),)
        self.assertRegex(asked["by"], r"^127\.0\.0\.1:\d+: ")

    def test_freeze_and_thaw(self):
        name = self.name()
        lease = self.taken(name)
        self.assertEqual(self.lease("freeze", name, "--reason", "being mended"),
                         (0, f"{name}: frozen; its mark is 2 now, and nobody gets its lease until lease thaw\n", ""))
        self.assertEqual(self.api.renew(lease)[0], 410)
        self.assertTrue(self.shown(name)["frozen"])
        self.assertEqual(self.api.take(name)[1]["holder"], "lease freeze: being mended")
        for words in (self.lease, self.configured):
            self.assertEqual(words("break", name, "--reason", "impatient"),
                             (1, "", f"fencegate lease: {name} is frozen (lease freeze: being mended): thaw it before\n"))
        self.assertEqual(self.lease("thaw", name), (0, f"{name}: thawed; its lease is free\n", ""))
        self.assertEqual(self.lease("thaw", name), (1, "", f"fencegate lease: {name} is not frozen\n"))
        self.taken(name)

    def test_a_store_that_is_no_more(self):
        name = self.name()
        self.api.release(self.taken(name))
        self.sql("UPDATE fencegate.leases SET stores = stores || %s WHERE resource = %s", ["abcd"], name)
        status, refused = self.api.take(name)
        self.assertEqual(status, 422)
        self.assertIn(f"lease forget-store {name} abcd", refused["detail"])
        self.assertEqual(self.lease("break", name, "--reason", "hangs")[0::2],
                         self.configured("break", name, "--reason", "hangs")[0::2])  # cut nowhere
        self.assertEqual(self.lease("forget-store", name, "abcd"), (0, f"{name}: later holders need not seal abcd\n", ""))
        self.assertEqual(self.lease("forget-store", name, "abcd")[0], 1)
        self.taken(name)

    def test_move(self):
        name = self.name()
        before = self.taken(name)
        self.assertEqual(self.lease("move", name, "--to", "other", "--wait", "0s")[::2],
                         (75, f"fencegate lease: main: {name} is held by {self.shown(name)['holder']}\n"))
        self.api.release(before)
        self.assertEqual(self.lease("move", name, "--to", "other"),
                         (0, f"{name}: store:ledger: moved\n{name}: store:cache: moved\n{name}: gate:cache: is moved already\n"
                             f"{name}: gate:db: is moved already\n"
                             f"The issuer of {name} is other now: every configuration has to say so.\n", ""))
        self.assertIn("belongs to leases of another issuer", self.api.take(name)[1]["detail"])
        self.assertEqual(self.lease("show", name, "--issuer", "other", "--json")[0], 0)
        self.assertEqual(self.lease("move", name, "--to", "main", "--issuer", "other")[0], 0)
        self.assertGreater(self.taken(name)["tokens"][name], before["tokens"][name])

    def test_one_who_leaves_while_a_move_waits(self):
        name = self.name()
        lease = self.taken(name)
        waits = self.starts("move", name, "--to", "other")
        eventually(lambda: self.lines("operator asks", name))
        waits.kill()
        eventually(lambda: self.lines("request is not done", name))
        self.assertIn("whoever asked has left", self.lines("request is not done", name)[0]["why"])
        self.api.release(lease)
        self.taken(name)

    def test_what_nobody_can_do(self):
        name = self.name()
        for words, told in ((("break", name, "--reason", "x", "--issuer", "nobody"), "there is no issuer named nobody"),
                            (("move", name, "--to", "nobody"), "there is no issuer named nobody"),
                            (("break", name, "--reason", "two\nlines"), "a reason is 1 to 180 bytes"),
                            (("freeze", name, "--reason", "x" * 181), "a reason is 1 to 180 bytes"),
                            (("thaw", name), "is not frozen")):
            with self.subTest(" ".join(words)):
                for by in (self.lease, self.configured):
                    status, printed, said = by(*words)
                    self.assertEqual((status, printed), (1, ""))
                    self.assertIn(told, said)
        self.assertEqual(self.lease("break", "or ders", "--reason", "x")[0], 2)
        both = self.run_words([*self.words("show"), "-c", self.sidecar.path])
        self.assertEqual(both[0], 2)
        self.assertIn("excludes", both[2])
        nowhere = self.run_words([os.environ["FENCEGATE"], "lease", "show", "--api", "unix:/nowhere"])
        self.assertEqual(nowhere, (1, "", "fencegate lease: unix:/nowhere: No such file or directory\n"))

    def test_requests_that_are_malformed(self):
        for word, body, status, told in (
                ("break", {"resources": ["orders"]}, 400, "reason is missing"), ("break", {"reason": "x"}, 400, "resources must be"),
                ("break", {"resources": ["or ders"], "reason": "x"}, 400, "resources[0]"),
                ("break", {"resources": ["orders"], "reason": 1}, 400, "reason must be a text"),
                ("break", {"resources": ["orders"], "reason": "x", "force": True}, 400, "no member 'force'"),
                ("thaw", {"resources": ["a", "b"]}, 400, "a list of one"), ("move", {"resources": ["a"]}, 400, "to is missing"),
                ("move", {"resources": ["a"], "to": "other", "from_lost": 1}, 400, "from_lost must be"),
                ("move", {"resources": ["a"], "to": "other", "from_lost": True, "wait": "1s"}, 400, "wait is for"),
                ("forget-store", {"resources": ["a"]}, 400, "store is missing"), ("show", [], 400, "JSON object"),
                ("rebase", {}, 404, "there are /v1/operations/show")):
            with self.subTest(f"{word} {body}"):
                self.assertEqual(self.api.ask("POST", f"/v1/operations/{word}", body)[0], status)
                self.assertIn(told, self.api.ask("POST", f"/v1/operations/{word}", body)[1]["detail"])
        self.assertEqual(self.api.ask("GET", "/v1/operations/show")[0], 405)


class Documented(OperatorsTest):
    """The commands of docs/leases.md that ask a sidecar, as they stand there."""

    def run_here(self, start):
        line = documents.command("docs/leases.md", start).replace("/run/fencegate/lease.sock", self.sidecar.socket)
        api = documents.command("docs/leases.md", "api() {").replace("/run/fencegate/lease.sock", self.sidecar.socket)
        return documents.run_shell(f"{api}\n{line}", self.sidecar.folder)

    def test_it_is_broken(self):
        lease = self.taken("orders", holder="them")
        self.assertRegex(self.run_here("fencegate lease show --api"), r"(?m)^orders .* them$")
        self.run_here("fencegate lease break orders --api")
        self.assertEqual(self.api.renew(lease)[0], 410)
        self.assertEqual(json.loads(self.run_here("api http://localhost/v1/operations/freeze")), {"marks": {"orders": 3}})
        self.assertEqual(self.lease("thaw", "orders")[0], 0)


class Lost(OperatorsTest):
    """With a short TTL."""

    times = LEASES

    def test_a_move_from_an_issuer_that_is_lost(self):
        name = self.name()
        self.taken(name)
        self.assertEqual(self.lease("move", name, "--from-lost", "--to", "other")[0], 0)
        self.assertIn("belongs to leases of another issuer", self.api.take(name, wait="5s")[1]["detail"])


class Between(OperatorsTest):
    """What ends, hangs or stands still in the middle."""

    times = LEASES

    def locked_mark(self, resource):
        """A seal of the resource waits for what is returned."""
        locker = self.database.connect(database="app")
        self.addCleanup(locker.close)
        run_sql(locker, "BEGIN")
        run_sql(locker, "SELECT FROM fencegate.marks WHERE resource = %s FOR UPDATE", resource)
        return locker

    def breaks(self, resource):
        """Until it waits for the seal."""
        child = self.starts("break", resource, "--reason", "hangs")
        eventually(lambda: self.sql("SELECT holder FROM fencegate.leases WHERE resource = %s", resource) == [("lease break: hangs",)])
        eventually(lambda: self.sql("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%seal(%%'"
                                    ) == [(True,)])
        return child

    def test_one_who_leaves(self):
        """It goes on to its end: nobody is left with part of the seals."""
        name = self.name()
        self.taken(name)
        locker = self.locked_mark(name)
        self.breaks(name).kill()
        run_sql(locker, "ROLLBACK")
        eventually(lambda: self.lines("request is done", name))
        self.assertEqual(self.marks(name), (2, 2))
        self.assertEqual(self.taken(name)["tokens"], {name: 3})

    def test_a_sidecar_that_stands_still(self):
        """When it goes on, the lease may be another's, who keeps it."""
        name = self.name()
        self.taken(name)
        locker = self.locked_mark(name)
        child = self.breaks(name)
        os.kill(self.sidecar.child.pid, signal.SIGSTOP)
        try:
            run_sql(locker, "ROLLBACK")
            job = self.run_words([os.environ["FENCEGATE"], "hold", name, "-c", self.sidecar.path, "--ttl", "60s", "--stop-grace", "5s",
                                  "--wait", "30s", "--at-least", "60s", "--", "true"])
            self.assertEqual(job[0], 0, job)
            given = self.sql("SELECT holder, token FROM fencegate.leases WHERE resource = %s", name)
        finally:
            os.kill(self.sidecar.child.pid, signal.SIGCONT)
        self.assertEqual((child.wait(PATIENCE), child.stdout.read()), (1, ""))
        self.assertEqual(self.sql("SELECT holder, token FROM fencegate.leases WHERE resource = %s", name), given)
        ((holder, token),) = given
        self.assertFalse(holder.startswith("lease break"))
        self.assertEqual(self.marks(name), (token, token))

    def test_a_database_that_stands_still(self):
        """The operator is told so, and nobody else waits for it."""
        name, redis_only = self.name(), self.name()
        frozen = [self.database.pid, *self.database.backends()]
        for pid in frozen:
            self.database.freeze(pid)
        try:
            asked = [self.starts("break", name, "--reason", "hangs") for _ in range(3)]
            eventually(lambda: len(self.lines("operator asks", name)) == 3)
            self.assertIsInstance(self.api.all(), list)
            status, printed, said = self.lease("show", redis_only, "--issuer", "other")
            self.assertEqual((status, said), (0, ""))
            self.assertRegex(printed, r"(?m)^gate:cache +- +-$")
            self.assertRegex(printed, r"(?m)^store:ledger +- +\S+")
            for one in asked:
                self.assertEqual((one.wait(60), one.stdout.read()), (1, ""))
                self.assertRegex(one.stderr.read(), r"^fencegate lease: .*\n$")
        finally:
            for pid in frozen:
                self.database.thaw(pid)

    def test_more_operators_than_one_sidecar_serves(self):
        name = self.name()
        self.taken(name, ttl="60s", stop_grace="5s")
        waiting = [self.starts("move", name, "--to", "other") for _ in range(8)]
        eventually(lambda: len(self.lines("operator asks", name)) == 8)
        status, _, said = self.lease("show")
        self.assertEqual((status, said), (1, "fencegate lease: this sidecar is at work for 8 operators, which is its most\n"))
        for one in waiting:
            one.kill()
        eventually(lambda: self.lease("show")[0] == 0)

    def test_a_sidecar_that_ends(self):
        """It waits for none of them."""
        name = self.name()
        sidecar = self.start(TwoIssuers(self.database, self.redis, self.times))
        self.taken(name, ttl="60s", stop_grace="5s")
        child = subprocess.Popen([os.environ["FENCEGATE"], "lease", "move", name, "--to", "other", "--api", f"unix:{sidecar.socket}"],
                                 text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        eventually(lambda: "operator asks" in sidecar.log())
        sidecar.child.terminate()
        self.assertEqual(sidecar.child.wait(PATIENCE), 0)
        self.assertEqual(child.wait(PATIENCE), 1)


if __name__ == "__main__":
    main()
