"""`fencegate-hold`: one static file for the image of a job, which asks a sidecar for its leases."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

import documents
import test_lease_api
from lease_sidecar import PATIENCE
from live_test import main
from processes import free_port

CANNOT_UNSHARE = os.getuid() != 0 and "only root may"
SANITIZED = "FENCEGATE_SANITIZED" in os.environ and "sanitizers are shared libraries"
STRIPPED_BYTES_MAX = 5_000_000


def run(*words):
    done = subprocess.run([os.environ["FENCEGATE_HOLD"], *words], text=True, capture_output=True, stdin=subprocess.DEVNULL,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class File(unittest.TestCase):
    @unittest.skipIf(SANITIZED, SANITIZED)
    def test_is_static(self):
        said = subprocess.run(["readelf", "--wide", "--dynamic", "--program-headers", os.environ["FENCEGATE_HOLD"]], text=True,
                              capture_output=True, check=True).stdout
        self.assertIn("LOAD", said)
        self.assertNotRegex(said, r"NEEDED|INTERP|\.so")

    @unittest.skipIf(SANITIZED, SANITIZED)
    def test_is_small(self):
        with tempfile.NamedTemporaryFile() as stripped:
            subprocess.run(["strip", "-o", stripped.name, os.environ["FENCEGATE_HOLD"]], check=True)
            self.assertLess(os.stat(stripped.name).st_size, STRIPPED_BYTES_MAX)

    @unittest.skipIf(SANITIZED or CANNOT_UNSHARE, SANITIZED or CANNOT_UNSHARE)
    def test_runs_where_nothing_else_is(self):
        with tempfile.TemporaryDirectory() as root:
            subprocess.run(["cp", os.environ["FENCEGATE_HOLD"], f"{root}/fencegate-hold"], check=True)
            done = subprocess.run(["chroot", root, "/fencegate-hold", "--version"], text=True, capture_output=True, check=False)
        self.assertRegex(done.stdout, r"^fencegate-hold \d+\.\d+\.\d+\n$", done.stderr)

    def test_what_is_fencegates_alone_is_refused(self):
        for words, told in ((["hold", "orders", "-c", "x.yaml", "--", "true"], "fencegate-hold asks a sidecar; use fencegate hold -c"),
                            (["lease", "acquire", "orders", "-c", "x.yaml"], "fencegate-hold asks a sidecar"),
                            (["lease", "show"], "subcommand"), (["serve"], "subcommand"), (["hold"], "RESOURCES is required")):
            with self.subTest(" ".join(words)):
                status, _, said = run(*words)
                self.assertEqual(status, 125, said)
                self.assertIn(told, said)

    def test_names_are_not_looked_up(self):
        for api in ("http://sidecar:9181", "http://localhost.example:9181"):
            status, _, said = run("hold", "orders", "--api", api, "--", "true")
            self.assertEqual(status, 125, said)
            self.assertIn("is a name, which is not looked up here: write an IP address, localhost or unix:/path", said)
        for api in (f"http://localhost:{free_port()}", f"http://[::1]:{free_port()}"):
            status, _, said = run("hold", "orders", "--api", api, "--", "true")
            self.assertEqual(status, 69, said)


class CopySelf(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def copy(self, folder, program=None, **more):
        done = subprocess.run([program or os.environ["FENCEGATE"], "copy-self", folder], text=True, capture_output=True,
                              check=False, **more)
        return done.returncode, done.stdout, done.stderr

    def test_a_copy_runs_where_nothing_else_is(self):
        place = f"{self.folder}/root/run/bin"
        self.assertEqual(self.copy(place, umask=0o077), (0, "", ""))
        self.assertEqual(os.listdir(place), ["fencegate-hold"])
        self.assertEqual(stat.S_IMODE(os.stat(f"{place}/fencegate-hold").st_mode), 0o755)
        under = () if SANITIZED or CANNOT_UNSHARE else ("chroot", f"{self.folder}/root")
        copy = "/run/bin/fencegate-hold" if under else f"{place}/fencegate-hold"
        done = subprocess.run([*under, copy, "lease", "acquire", "orders"], text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (
            69, "fencegate lease: the issuer: unix:/run/fencegate/lease.sock: No such file or directory\n"))

    def test_one_that_runs_is_replaced(self):
        """Its file is another one: nobody sees a part of the new one."""
        self.assertEqual(self.copy(self.folder)[0], 0)
        path = f"{self.folder}/fencegate-hold"
        before = os.stat(path).st_ino
        with open(path, "rb") as running:  # as if it were at work: its bytes stay
            self.assertEqual(self.copy(self.folder), (0, "", ""))
            self.assertNotEqual(os.stat(path).st_ino, before)
            with open(path, "rb") as new, open(os.environ["FENCEGATE_HOLD"], "rb") as original:
                whole = original.read()
                self.assertTrue(running.read() == new.read() == whole)
        self.assertEqual(os.listdir(self.folder), ["fencegate-hold"])

    def test_what_cannot_be_copied(self):
        self.assertEqual(self.copy("/dev/null"), (1, "", "fencegate copy-self: /dev/null: Not a directory\n"))
        os.mkdir(f"{self.folder}/fencegate-hold")
        self.assertEqual(self.copy(self.folder), (1, "", f"fencegate copy-self: {self.folder}/fencegate-hold: Is a directory\n"))
        self.assertEqual(os.listdir(self.folder), ["fencegate-hold"])
        os.symlink(os.environ["FENCEGATE"], f"{self.folder}/linked")  # beside the program itself, not beside its link
        self.assertEqual(self.copy(f"{self.folder}/new", f"{self.folder}/linked")[0], 0)
        shutil.copy(os.environ["FENCEGATE"], f"{self.folder}/alone")
        os.rmdir(f"{self.folder}/fencegate-hold")
        self.assertEqual(self.copy(f"{self.folder}/other", f"{self.folder}/alone"), (
            1, "", f"fencegate copy-self: {self.folder}/fencegate-hold: No such file or directory\n"))
        self.assertFalse(os.path.exists(f"{self.folder}/other"))


class Held(test_lease_api.Held):
    """What `fencegate hold --api` does, it does, too; and more of it."""

    program = "FENCEGATE_HOLD"

    def test_a_sidecar_that_stands_still(self):
        job = self.hold("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        self.assertEqual(job.stdout.readline(), "up\n")
        os.kill(self.sidecar.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.sidecar.pid, signal.SIGCONT)
        told, said = job.communicate(timeout=PATIENCE)
        self.assertEqual((told, job.returncode), ("told\n", 79))
        self.assertIn("no renewal was confirmed in time", said)

    def test_sigterm_ends_the_job_then_releases(self):
        name = self.name()
        job = self.hold("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done", resource=name)
        self.assertEqual(job.stdout.readline(), "up\n")
        job.terminate()
        self.assertEqual((job.communicate(timeout=PATIENCE)[0], job.returncode), ("told\n", 0))
        self.taken(name)

    def test_by_a_port(self):
        job = subprocess.run([os.environ[self.program], "hold", self.name(), "--api", f"http://localhost:{self.sidecar.port}", "--",
                              "sh", "-c", "echo $FENCING_TOKEN"], text=True, capture_output=True, check=False)
        self.assertEqual((job.returncode, job.stdout), (0, "1\n"), job.stderr)

    @unittest.skipIf(CANNOT_UNSHARE, CANNOT_UNSHARE)
    def test_as_process_1(self):
        """Whose statuses are the same, and who reaps what others leave."""
        under = ("unshare", "-p", "-f", "--mount-proc", "--kill-child")
        job = self.hold("(setsid sh -c 'sleep 0.1' &); echo $PPID; exit 7", under=under)
        told, said = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 7, said)
        self.assertRegex(told, r"^\d\n$")
        ends = self.hold("trap '' TERM; echo up; while :; do sleep 0.05; done", under=under)
        self.assertEqual(ends.stdout.readline(), "up\n")
        with open(f"/proc/{ends.pid}/task/{ends.pid}/children") as file:
            (first,) = file.read().split()
        os.kill(int(first), signal.SIGTERM)
        self.assertEqual((ends.wait(PATIENCE), ends.stdout.read()), (128 + signal.SIGKILL, ""))

    def test_as_the_page_has_it(self):
        line = documents.command("docs/leases.md", "fencegate-hold hold orders -- ").replace(" -- ", f" --api unix:{self.sidecar.socket} -- ")
        with open(os.path.join(self.sidecar.folder, "job.sh"), "w") as file:
            file.write("#!/bin/sh\necho $FENCE_TAG\n")
        os.chmod(file.name, 0o755)
        self.assertEqual(documents.run_shell(line, self.sidecar.folder), f"orders={self.marks('orders')[0]}\n")

    def test_of_what_it_is_told_by_options(self):
        name = self.name()
        result = os.path.join(self.sidecar.folder, "result")
        job = self.hold("sleep 100", "--max-run", "200ms", "--result", result, resource=name)
        self.assertEqual(job.wait(PATIENCE), 124)
        with open(result) as file:
            self.assertEqual(file.read(), '{"outcome":"max_run","status":124}\n')
        self.assertEqual(self.hold(":", "--at-least", "60s", resource=name).wait(PATIENCE), 0)
        self.assertEqual(self.hold(":", "--no-wait", "--busy-exit", "3", resource=name).wait(PATIENCE), 3)


if __name__ == "__main__":
    main(at_once=2)
