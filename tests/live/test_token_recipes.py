"""Where tokens come from, as README.md says: real lock services, an unmodified job, and a holder that stands still."""

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from documents import block, command, shell_environment
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, run_sql
from processes import LOOPBACK, Process, die_with_parent, eventually, free_port

TTL = 2  # seconds; the shortest that etcd gives with its usual election time-out


class EtcdServer(Process):
    title = "etcd"

    def prepare(self):
        self.port, peers = free_port(), free_port()
        self.url, self.peers = f"http://{LOOPBACK}:{self.port}", f"http://{LOOPBACK}:{peers}"

    def command(self):
        return ["etcd", "--data-dir", os.path.join(self.folder, "data"), "--name", "one", "--unsafe-no-fsync",
                "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", self.peers,
                "--initial-advertise-peer-urls", self.peers, "--initial-cluster", f"one={self.peers}"]

    def up(self):
        return "is healthy" in self.ctl("endpoint", "health")

    def ctl(self, *words):
        done = subprocess.run(["etcdctl", "--endpoints", self.url, *words], capture_output=True, text=True,
                              env=os.environ | {"ETCDCTL_API": "3"}, check=False)
        return done.stdout + done.stderr


class Holder:
    """A folder with README's job.sh, which runs `statements` under README's lock. It can stand still as a whole."""

    def __init__(self, etcd, gate, statements):
        self.etcd, self.gate, self.statements = etcd, gate, statements

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        job = self.folder / "job.sh"
        job.write_text("#!/bin/sh\n" + block("README.md", "bash").replace("6432", str(self.gate.port)))
        job.chmod(0o755)
        (self.folder / "job.sql").write_text(self.statements)
        line = command("README.md", "etcdctl lock").replace("etcdctl lock", f"exec etcdctl lock --ttl {TTL}")
        self.output = open(self.folder / "output", "w+b")
        environment = shell_environment(ETCDCTL_API="3", ETCDCTL_ENDPOINTS=self.etcd.url)
        self.child = subprocess.Popen(["sh", "-c", line], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                      stdout=self.output, stderr=self.output, process_group=0, preexec_fn=die_with_parent)
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.signal(signal.SIGKILL)
            self.child.wait()
        self.output.close()
        self._folder.cleanup()

    def signal(self, number):
        os.killpg(self.child.pid, number)

    def told(self):
        self.output.seek(0)
        return self.output.read().decode()


class Etcd(LiveTest):
    def setUp(self):
        self.server = self.start(PostgresServer())
        self.server.sql("CREATE DATABASE app")
        self.server.install("app")
        self.server.user("orders")
        self.admin = self.server.connect(database="app")
        self.addCleanup(self.admin.close)
        run_sql(self.admin, "CREATE TABLE orders (by text); GRANT ALL ON orders TO orders")
        self.gate, self.etcd = self.start(PgGate(self.server, database="app")), self.start(EtcdServer())

    def holder(self, statements):
        return self.start(Holder(self.etcd, self.gate, statements))

    def pausing(self, name):
        """Writes, and goes on when `go` is there."""
        pause = "\\! touch writing; until [ -e go ]; do sleep 0.05; done\n"
        return self.holder(f"BEGIN;\nINSERT INTO orders VALUES ('{name}');\n{pause}COMMIT;\nINSERT INTO orders VALUES ('{name}, late');\n")

    def mark(self):
        return run_sql(self.admin, "SELECT mark FROM fencegate.marks WHERE resource = 'orders'")[0][0]

    def rows(self):
        return [by for by, in run_sql(self.admin, "SELECT * FROM orders")]

    def keys(self):
        """Of those that hold the lock or wait for it."""
        return set(self.etcd.ctl("get", "--prefix", "orders/", "--keys-only").split())

    def test_a_job_that_stood_still_is_superseded_by_the_next(self):
        old = self.pausing("A")
        eventually((old.folder / "writing").exists)
        before = self.mark()
        old.signal(signal.SIGSTOP)
        new = self.holder("INSERT INTO orders VALUES ('B');\n")
        self.assertEqual((new.child.wait(60), new.told()), (0, "INSERT 0 1\n"))
        (old.folder / "go").touch()
        old.signal(signal.SIGCONT)
        self.assertNotEqual(old.child.wait(60), 0)
        self.assertRegex(old.told(), rf"FATAL: +token {before} of orders is below mark {self.mark()}; not applied")
        self.assertGreater(self.mark(), before)
        self.assertEqual(self.rows(), ["B"])

    def test_one_that_stood_still_in_line_does_not_write_beside_the_holder(self):
        """etcdctl 3.4 lets it believe that it has the lock, under the holder's own ETCD_LOCK_REV."""
        first = self.pausing("A")
        eventually((first.folder / "writing").exists)
        (before,) = self.keys()
        frozen = self.holder("INSERT INTO orders VALUES ('frozen in line');\n")
        (gone,) = eventually(lambda: self.keys() - {before})
        frozen.signal(signal.SIGSTOP)
        second = self.pausing("B")
        eventually(lambda: len(self.keys() - {gone}) == 2 and gone not in self.keys())
        frozen.signal(signal.SIGCONT)
        (first.folder / "go").touch()
        self.assertEqual(first.child.wait(60), 0, first.told())
        eventually((second.folder / "writing").exists)
        self.assertNotEqual(frozen.child.wait(60), 0, frozen.told())
        (second.folder / "go").touch()
        self.assertEqual(second.child.wait(60), 0, second.told())
        self.assertEqual(self.rows(), ["A", "A, late", "B", "B, late"])


if __name__ == "__main__":
    main()
