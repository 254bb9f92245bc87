"""`lease acquire`, `renew` and `release`: leases of a sidecar for shell scripts, by fencegate and by fencegate-hold."""

import json
import os
import re
import signal
import subprocess

import documents
from lease_sidecar import PATIENCE
from live_test import main
from processes import PATIENCE, die_with_parent, eventually
from test_hold import LEASES
from test_lease_api import ApiTest


class Words(ApiTest):
    times = LEASES | {"ttl": "30s", "stop_grace": "5s"}
    program = "FENCEGATE"

    def words(self, *words):
        return [os.environ[self.program], "lease", *words, "--api", f"unix:{self.sidecar.socket}"]

    def lease(self, *words, said=""):
        """(status, what it printed, what it complained of)"""
        done = subprocess.run(self.words(*words), text=True, capture_output=True, input=said, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def acquire(self, name, *words):
        status, printed, said = self.lease("acquire", name, *words)
        self.assertEqual((status, said), (0, ""))
        return json.loads(printed)

    def test_from_its_grant_to_its_release(self):
        name = self.name()
        lease = self.acquire(name)
        self.assertEqual(list(lease), ["id", "tokens", "tag", "act_for_ms", "stop_ms"])
        self.assertEqual((lease["tokens"], lease["tag"], lease["stop_ms"]), ({name: 1}, f"{name}=1", 5_000))
        self.assertTrue(15_000 < lease["act_for_ms"] <= 24_800, lease)
        self.assertEqual(self.marks(name), (1, 1))
        self.assertEqual(self.api.take(name)[0], 409)
        named = (lease["id"], "--tokens", lease["tag"])
        status, printed, said = self.lease("renew", *named)
        self.assertEqual((status, said), (0, ""))
        self.assertTrue(15_000 < json.loads(printed)["act_for_ms"] <= 24_800, printed)
        self.assertEqual(self.lease("release", *named), (0, "", ""))
        self.assertEqual(self.lease("release", *named), (0, "", ""))
        self.assertEqual(self.lease("renew", *named), (79, "", "fencegate lease: the lease is lost\n"))
        self.taken(name)

    def test_several_named_by_a_file(self):
        a, b = self.name(), self.name()
        printed = self.lease("acquire", f"{a},{b}")[1]
        path = os.path.join(self.sidecar.folder, "lease")
        with open(path, "w") as file:
            file.write(printed)
        self.assertEqual(self.lease("renew", "--lease", path)[0], 0)
        self.assertEqual(self.lease("renew", "--lease", "-", said=printed)[0], 0)
        self.assertEqual(self.lease("release", "--lease", path), (0, "", ""))
        self.taken(a, b)

    def test_another_holds_it(self):
        name = self.name()
        lease = self.taken(name, holder="them")
        self.assertEqual(self.lease("acquire", name, "--no-wait"), (75, "", f"fencegate lease: {name} is held by them\n"))
        self.assertEqual(self.lease("acquire", name, "--wait", "300ms")[0], 75)
        self.assertEqual(self.lease("acquire", name, "--no-wait", "--busy-exit", "0"), (0, "", ""))
        waits = subprocess.Popen(self.words("acquire", name), text=True, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(waits.communicate)
        self.addCleanup(waits.kill)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 2)
        self.api.release(lease)
        self.assertEqual(json.loads(waits.communicate(timeout=PATIENCE)[0])["tokens"], {name: 2})

    def test_who_leaves_while_waiting_gets_nothing(self):
        name = self.name()
        self.taken(name)
        waits = subprocess.Popen(self.words("acquire", name), preexec_fn=die_with_parent)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 2)
        waits.terminate()
        self.assertEqual(waits.wait(PATIENCE), -signal.SIGTERM)
        eventually(lambda: len([one for one in self.api.all() if one["resources"] == [name]]) == 1)

    def test_one_that_nobody_can_be_told_of_is_released(self):
        unread, pipe = os.pipe()
        os.close(unread)
        for out in (os.open("/dev/full", os.O_WRONLY), pipe):
            name = self.name()
            done = subprocess.run(self.words("acquire", name), text=True, stdout=out, stderr=subprocess.PIPE, check=False)
            os.close(out)
            self.assertEqual((done.returncode, done.stderr), (125, "fencegate lease: nobody takes the lease; it is released\n"))
            self.assertEqual(self.taken(name)["tokens"], {name: 2})

    def test_its_holder_may_ask_that_nobody_gets_it_sooner(self):
        name = self.name()
        lease = self.acquire(name, "--at-least", "60s")
        self.assertEqual(self.lease("release", lease["id"], "--tokens", lease["tag"])[0], 0)
        self.assertEqual(self.lease("acquire", name, "--no-wait")[0], 75)

    def test_another_may_not_renew_or_release_it(self):
        name = self.name()
        lease = self.acquire(name)
        self.assertEqual(self.lease("renew", "0" * 32, "--tokens", lease["tag"])[0], 79)
        self.assertEqual(self.lease("release", lease["id"], "--tokens", f"{name}=2")[0], 0)
        self.assertEqual(self.lease("renew", lease["id"], "--tokens", lease["tag"])[0], 0)

    def test_no_sidecar(self):
        for word in (["acquire", "orders"], ["renew", "0" * 32, "--tokens", "orders=1"], ["release", "0" * 32, "--tokens", "orders=1"]):
            done = subprocess.run([os.environ[self.program], "lease", *word, "--api", "unix:/nowhere"], text=True, capture_output=True,
                                  check=False)
            self.assertEqual(done.returncode, 69, done.stderr)
            self.assertIn("unix:/nowhere: No such file or directory", done.stderr)

    def test_arguments_that_make_no_sense(self):
        path = os.path.join(self.sidecar.folder, "no-lease")
        with open(path, "w") as file:
            file.write('{"id":"5f"}')
        for words, told in ((["acquire", "or ders"], "a resource is 1 to 200"), (["acquire", "a", "--ttl", "3"], "--ttl"),
                            (["acquire"], "RESOURCES is required"), (["renew"], "which lease? Name its ID and --tokens"),
                            (["renew", "5f", "--tokens", "a=1"], "an ID has 32 hexadecimal digits"), (["renew", "0" * 32], "--tokens"),
                            (["renew", "0" * 32, "--tokens", "a"], "--tokens: "), (["renew", "--lease", "/nowhere"], "cannot be read"),
                            (["release", "--lease", path], f"{path}: this is not what lease acquire printed"),
                            (["release", "--lease", path, "0" * 32, "--tokens", "a=1"], "excludes")):
            with self.subTest(" ".join(words)):
                status, printed, said = self.lease(*words)
                self.assertEqual((status, printed), (125, ""), said)
                self.assertIn(told, said)


class StaticWords(Words):
    program = "FENCEGATE_HOLD"


class Documented(ApiTest):
    """The script of docs/leases.md, as it stands there."""

    page = "docs/leases.md"
    times = LEASES | {"ttl": "30s", "stop_grace": "5s"}

    def run_here(self, psql):
        """The script, with two batches; `psql`: what a program of that name does."""
        folder = os.path.join(self.sidecar.folder, self._testMethodName)
        os.makedirs(os.path.join(folder, "batches"))
        for batch in ("1.sql", "2.sql"):
            open(os.path.join(folder, "batches", batch), "w").close()
        program = os.path.join(folder, "psql")
        with open(program, "w") as file:
            file.write(f"#!/bin/sh\n{psql}\n")
        os.chmod(program, 0o755)
        (script,) = [one for one in documents.blocks(self.page, "bash") if "lease acquire orders" in one]
        script = re.sub(r"fencegate-hold lease (\w+)", rf'"$FENCEGATE_HOLD" lease \1 --api unix:{self.sidecar.socket}', script)
        return subprocess.run(["bash", "-c", script], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL,
                              env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}, check=False)

    def test_each_batch_under_its_token(self):
        before = self.sidecar.figure("fencegate_lease_renewals_total")
        done = self.run_here('echo "$PGOPTIONS $2"')
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        mark = self.marks("orders")[0]
        self.assertEqual(done.stdout, "".join(f"-c fencing.tokens=orders={mark} batches/{i}.sql\n" for i in (1, 2)))
        self.assertEqual(self.sidecar.figure("fencegate_lease_renewals_total"), before + 2)
        self.assertEqual(self.api.all(), [])

    def test_it_is_lost_between_two_batches(self):
        database = f"{self.database.url('gate', 'app')}"
        self.sql("CREATE FUNCTION lose() RETURNS void LANGUAGE sql SECURITY DEFINER AS "
                 "$$ UPDATE fencegate.leases SET token = token + 1 WHERE resource = 'orders' $$")
        done = self.run_here(f'echo "$2"; env -u PGOPTIONS /usr/bin/psql -qAtXc "SELECT lose()" {database}')
        self.assertEqual((done.returncode, done.stdout.split()), (79, ["batches/1.sql"]), done.stderr)
        self.assertEqual(done.stderr, "fencegate lease: the lease is lost\n")


if __name__ == "__main__":
    main()
