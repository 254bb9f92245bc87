"""Where tokens come from, as README.md says: real lock services, an unmodified job, and a holder that stands still."""

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from documents import block, command, shell_environment
from postgres import PgGate, PostgresServer, run_sql
from support import LOOPBACK, LiveTest, Process, die_with_parent, eventually, free_port, main

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
        return subprocess.run(["etcdctl", "--endpoints", self.url, "endpoint", "health"], capture_output=True,
                              env=os.environ | {"ETCDCTL_API": "3"}, check=False).returncode == 0


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
    def test_a_job_that_stood_still_is_superseded_by_the_next(self):
        server = self.start(PostgresServer())
        server.sql("CREATE DATABASE app")
        server.install("app")
        server.user("orders")
        admin = server.connect(database="app")
        self.addCleanup(admin.close)
        run_sql(admin, "CREATE TABLE orders (by text); GRANT ALL ON orders TO orders")
        gate, etcd = self.start(PgGate(server, database="app")), self.start(EtcdServer())

        paused = "BEGIN;\nINSERT INTO orders VALUES ('A');\n\\! touch writing; until [ -e go ]; do sleep 0.05; done\nCOMMIT;\n"
        old = self.start(Holder(etcd, gate, paused + "INSERT INTO orders VALUES ('A, late');\n"))
        eventually((old.folder / "writing").exists)
        (before,) = run_sql(admin, "SELECT mark FROM fencegate.marks WHERE resource = 'orders'")
        old.signal(signal.SIGSTOP)
        new = self.start(Holder(etcd, gate, "INSERT INTO orders VALUES ('B');\n"))
        self.assertEqual((new.child.wait(60), new.told()), (0, "INSERT 0 1\n"))
        (old.folder / "go").touch()
        old.signal(signal.SIGCONT)
        self.assertNotEqual(old.child.wait(60), 0)
        self.assertRegex(old.told(), r"FATAL: +token \d+ of orders is below mark \d+; not applied")
        self.assertEqual(run_sql(admin, "SELECT * FROM orders"), [("B",)])
        (after,) = run_sql(admin, "SELECT mark FROM fencegate.marks WHERE resource = 'orders'")
        self.assertGreater(after, before)
        token, mark = re.search(r"token (\d+) of orders is below mark (\d+)", old.told()).groups()
        self.assertEqual((int(token), int(mark)), (*before, *after))


if __name__ == "__main__":
    main()
