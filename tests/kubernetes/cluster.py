"""The servers beside the cluster under test, on this machine, and kubectl: once for all tests of this folder.

    cluster.rig.kubectl("get", "pods")
"""

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/live"))

from documents import command, gates_user  # noqa: E402
from http_gate import Upstream  # noqa: E402
from live_test import clean_up_on_sigterm  # noqa: E402, F401
from node import process_of  # noqa: E402
from postgres import PostgresServer, run_sql  # noqa: E402
from processes import LOOPBACK, die_with_parent, eventually  # noqa: E402, F401
from redis_server import RedisServer  # noqa: E402, F401
from tools import timed  # noqa: E402

WAIT = 150  # seconds that pods may take to change on a busy machine
TTL = "10s"  # of leases
PAGE = "docs/operations.md"
PASSWORDS = {"redis": "redis-secret", "postgres": "postgres-secret"}


class PodsRedis(RedisServer):
    """On loopback and on the address that pods reach."""

    def __init__(self, host):
        super().__init__(protected_mode="no", appendfsync="always")
        self.pods_address = host

    def prepare(self):
        super().prepare()
        with open(os.path.join(self.folder, "redis.conf"), "a") as file:
            file.write(f"bind {LOOPBACK} {self.pods_address}\n")


class PodsPostgres(PostgresServer):
    """On loopback, where everybody is trusted, and on the address that pods reach, where the gate needs its password."""

    def __init__(self, host):
        super().__init__(hba=["host all fencegate samenet scram-sha-256", "host all all samenet trust"])
        self.pods_address = host

    def prepare(self):
        super().prepare()
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a") as file:
            file.write(f"listen_addresses = '{LOOPBACK},{self.pods_address}'\n")


class Blocked:
    """Writes to a table wait in PostgreSQL for a lock that a session of the test has."""

    def __init__(self, rig, table):
        self.rig, self.table = rig, table
        self.session = rig.postgres.connect(database="app")
        run_sql(self.session, f"BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE")

    def await_waiting(self, other_than=None):
        """Until the only one that waits is another session: its pid."""
        def waiting():
            found = self.rig.sql("SELECT pid FROM pg_locks WHERE relation = %s::regclass AND NOT granted", self.table)
            return found[0][0] if len(found) == 1 and found[0][0] != other_than else None
        return eventually(waiting, WAIT, every=0.2)

    def close(self):
        self.session.close()


class Rig:
    """`redis`, `postgres` (database `app`), `catalog`, `locks`: the servers; `cluster`; and kubectl."""

    def __init__(self, cluster, locks):
        self.cluster, self.locks = cluster, locks

    def kubectl(self, *arguments, text=None):
        """What it wrote. AssertionError when it fails."""
        done = subprocess.run(["kubectl", *arguments], input=text, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def shell(self, line):
        """A command of a page."""
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", line], cwd=ROOT, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{line}\n{done.stdout}{done.stderr}")
        return done.stdout

    def described(self):
        """For a test that failed: the pods, their last events, their logs."""
        said = [self.kubectl("get", "pods,jobs", "-o", "wide"), self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-4000:]]
        for pod in self.get("pods"):
            name = pod["metadata"]["name"]
            said.append(f"--- {name} ---\n" + json.dumps(pod["status"].get("initContainerStatuses")))
            with contextlib.suppress(AssertionError):
                said.append(self.kubectl("logs", name, "--all-containers", "--prefix", "--tail=30"))
        return "\n".join(said)

    def start_proxy(self, stack):
        """By which get() asks: each start of kubectl takes a good part of a second of a processor."""
        proxy = stack.enter_context(subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True,
                                                     preexec_fn=die_with_parent))
        stack.callback(proxy.kill)
        self.proxy = int(re.search(r":(\d+)$", proxy.stdout.readline().strip())[1])

    def get(self, what, name=None, selector=None, namespace=None):
        """A pod or a job by its name, or those that a label selects, or all."""
        group = {"pods": "api/v1", "jobs": "apis/batch/v1"}[what]
        path = f"/{group}/namespaces/{namespace or self.cluster.namespace}/{what}" + (f"/{name}" if name else "")
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, self.proxy, timeout=30)) as talk:
            talk.request("GET", path + (f"?labelSelector={urllib.parse.quote(selector)}" if selector else ""))
            answer = talk.getresponse()
            text = answer.read().decode()
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status} {text}")
        found = json.loads(text)
        return found if name else found["items"]

    def pods(self, app):
        """Those that nobody has deleted."""
        return [pod for pod in self.get("pods", selector=f"app={app}") if "deletionTimestamp" not in pod["metadata"]]

    def start_servers(self, stack):
        host = self.cluster.host
        self.start_proxy(stack)
        self.redis, self.postgres = stack.enter_context(PodsRedis(host)), stack.enter_context(PodsPostgres(host))
        self.catalog = stack.enter_context(Upstream(host))
        self.set_passwords(PASSWORDS)
        self.postgres.sql("CREATE ROLE orders LOGIN")
        self.postgres.sql("CREATE DATABASE app")
        self.sql("CREATE TABLE writes(id bigserial, doc jsonb); CREATE TABLE orders(id bigserial, doc jsonb);"
                 "GRANT ALL ON ALL TABLES IN SCHEMA public TO orders, fencegate;"
                 "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO orders, fencegate")

    def need_freezing(self):
        """Skips the test where no container can be frozen."""
        if self.cluster.why_no_freeze:
            raise unittest.SkipTest(self.cluster.why_no_freeze)

    def freeze(self, test, pod, container):
        """It goes on when the test has ended, at the latest."""
        def thaw_again():
            with contextlib.suppress(subprocess.CalledProcessError):
                self.cluster.thaw(pod, container)
        self.cluster.freeze(pod, container)
        test.addCleanup(thaw_again)

    def kill_sidecar(self, pod):
        """Skips the test where the processes of the pods are none of this machine's."""
        try:
            os.kill(process_of(pod), signal.SIGKILL)
        except LookupError as error:
            if not self.cluster.why_no_freeze:
                raise
            raise unittest.SkipTest(str(error)) from error

    def set_passwords(self, passwords):
        gates_user(self.redis, "resetpass", f">{passwords['redis']}")
        exists = self.postgres.value("SELECT count(*) FROM pg_roles WHERE rolname = 'fencegate'")
        self.postgres.sql(f"{'ALTER' if exists else 'CREATE'} ROLE fencegate LOGIN PASSWORD '{passwords['postgres']}'")

    def sql(self, text, *values):
        with contextlib.closing(self.postgres.connect(database="app")) as connection:
            return run_sql(connection, text, *values)

    def shipped(self, path):
        """A file of docker/k8s, but for what its user puts there: the servers' ports, images; and a short TTL."""
        redis = {"@redis:6379": f"@redis:{self.redis.port}"}
        postgres = {"@postgres/app": f"@postgres:{self.postgres.port}/app"}
        ttl = {"      issuers:": f"      ttl: {TTL}\n      issuers:"}
        changes = {"docker/k8s/configmap.yaml": redis | postgres | {'"http://catalog"': f'"http://catalog:{self.catalog.port}"'},
                   "docker/k8s/cronjob.yaml": postgres | {"image: postgres:15": "image: orders-writer:1",
                                                          "hold, invoices,": f"hold, invoices, --ttl, {TTL},"},
                   "docker/k8s/lease-gates.yaml": redis | postgres | ttl | {
                       "image: billing:1": "image: orders-writer:1\n          command: [python3, -u, /app.py]"}}
        text = (ROOT / path).read_text()
        for old, new in changes.get(path, {}).items():
            if old not in text:
                raise AssertionError(f"{path} has no {old!r}")
            text = text.replace(old, new)
        return text

    def run_page(self, line):
        """A command of a page, with the files as they are here."""
        path = re.search(r"docker/k8s/[\w.-]+$", line)[0]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.shipped(path))
            file.flush()
            return self.shell(line.replace(path, file.name))

    @functools.cached_property
    def configured(self):
        """Secret and ConfigMap, in a namespace that takes restricted pods only."""
        self.kubectl("label", "namespace", self.cluster.namespace, "pod-security.kubernetes.io/enforce=restricted")
        self.shell(command(PAGE, "kubectl create secret generic fencegate --from"))
        self.run_page(command(PAGE, "kubectl apply -f docker/k8s/configmap.yaml"))
        return True

    @functools.cached_property
    def deployed(self):
        """The Deployment, and the schema, which comes from its sidecar."""
        assert self.configured
        self.run_page(command(PAGE, "kubectl apply -f docker/k8s/deployment.yaml"))
        with timed("the Deployment is up"):
            self.roll_out()
        os.environ.update(PGHOST=LOOPBACK, PGPORT=str(self.postgres.port))
        self.shell(command(PAGE, "kubectl exec deploy/orders-writer"))
        return True

    @functools.cached_property
    def billing(self):
        """The table of the application that lease-gates.yaml is for, and its role."""
        assert self.deployed
        self.sql("CREATE ROLE billing LOGIN; CREATE TABLE billed(id bigserial, doc jsonb);"
                 "GRANT ALL ON billed TO billing; GRANT ALL ON SEQUENCE billed_id_seq TO billing")
        return True

    def remove(self, name):
        """A Deployment, until its pods have ended."""
        self.kubectl("delete", "deployment", name, "--wait=false")
        eventually(lambda: not self.get("pods", selector=f"app={name}"), WAIT, every=0.2)

    def roll_out(self, name="orders-writer"):
        """Until it is done, and the old pods have ended."""
        self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={WAIT}s")
        eventually(lambda: len(self.get("pods", selector=f"app={name}")) == 2, WAIT, every=0.2)

    def sidecar_of(self, pod):
        """Its sidecar's status."""
        return self.get("pods", pod)["status"]["initContainerStatuses"][0]

    def landed(self):
        """{gate: what it let through, in order}, each as its writer wrote it."""
        return {
            "redis": [json.loads(one) for one in self.redis.cli.call("LRANGE", "orders:log", 0, -1)],
            "postgres": [row[0] for row in self.sql("SELECT doc FROM writes ORDER BY id")],
            "put": [json.loads(body) for *_, body in self.catalog.seen("PUT")],
            "post": [row[0] for row in self.sql("SELECT doc FROM orders WHERE doc ? 'pod' ORDER BY id")],  # no Job's
        }


rig = None  # set by run.py
