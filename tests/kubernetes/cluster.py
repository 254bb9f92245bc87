"""The cluster under test, the images on it, and the servers beside it, on the node: once for all tests of this folder.

    cluster.rig.kubectl("get", "pods")
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/live"))

import pg_versions  # noqa: E402
from documents import command, gates_user  # noqa: E402
from http_gate import Upstream  # noqa: E402
from postgres import PostgresServer, run_sql  # noqa: E402
from support import LOOPBACK, RedisServer, clean_up_on_sigterm, eventually  # noqa: E402, F401

WAIT = 150  # seconds that pods may take to change on a busy machine
TTL = "10s"  # of leases
PAGE = "docs/operations.md"
NODE = "10.244.0.1"  # the node, as pods see it
PODS = "10.244.0.0/24"
NAMES = ("redis", "postgres", "catalog", "locks")
REGISTRY = "docker.io/library/"  # where a name without a registry belongs
FENCEGATE, WRITER = REGISTRY + "fencegate:0.1.0", REGISTRY + "orders-writer:1"
LOCAL, NEXT = "localhost/fencegate:0.1.0", REGISTRY + "fencegate:0.1.0-next"  # the same image
BASE = [REGISTRY + "debian:12", REGISTRY + "debian:12-slim"]
# As Debian's own slim images have it: no manuals, no syncing to disk.
SLIM = ["--dpkgopt=force-unsafe-io", '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info"))]
PASSWORDS = {"redis": "redis-secret", "postgres": "postgres-secret"}


class Unavailable(Exception):
    """This machine cannot have the cluster or its images: no failure of what is tested."""


def run(*command, **more):
    """What it wrote; its errors, too, in the CalledProcessError when it fails."""
    return subprocess.run(command, check=True, text=True, stdin=more.pop("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **more).stdout


@contextlib.contextmanager
def needed(what):
    try:
        yield
    except (subprocess.CalledProcessError, OSError) as error:
        raise Unavailable(f"{what}: {(getattr(error, 'stderr', None) or str(error)).strip()[-1500:]}") from error


@contextlib.contextmanager
def timed(what):
    started = time.monotonic()
    yield
    print(f"kubernetes: {what} in {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


class Cluster:
    """The one that the script in FENCEGATE_CLUSTER starts (`up DIR NAME…`, `load`, `freeze`, `thaw`, `down`)."""

    def __init__(self, script):
        self.script = os.path.abspath(script)
        self.folder = ROOT / "build/kubernetes/cluster"

    def __enter__(self):
        if (self.folder / "pid").exists():
            self.call("down")  # a run before was killed
        try:
            with needed("the cluster does not start"), timed("cluster up"):
                self.start()
                self.keep_bridge_address()
        except BaseException:
            self.__exit__()
            raise
        os.environ["KUBECONFIG"] = str(self.folder / "kubeconfig")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.call("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """A busy machine may need a second try."""
        try:
            self.call("up", *NAMES)
        except subprocess.CalledProcessError:
            self.call("down")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.call("up", *NAMES)

    @staticmethod
    def keep_bridge_address():
        """Else the bridge of the pods takes another one with each pod that comes or goes, and all connections stand still for
        seconds: until the others ask for it again."""
        (device,) = {one["ifname"] for one in json.loads(run("ip", "-json", "address", "show", "to", NODE))}
        run("ip", "link", "set", "dev", device, "address", Path(f"/sys/class/net/{device}/address").read_text().strip())

    def call(self, verb, *arguments):
        log = self.folder.parent / "cluster.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w+") as said:  # a pipe would be held open by what it leaves running
            # Debian's python3 before any other: each start of a container runs it some times.
            done = subprocess.run([self.script, verb, str(self.folder), *arguments], stdin=subprocess.DEVNULL, stdout=said,
                                  stderr=said, env=os.environ | {"PATH": "/usr/sbin:/usr/bin:" + os.environ["PATH"]})
            if done.returncode != 0:
                said.seek(0)
                raise subprocess.CalledProcessError(done.returncode, f"cluster {verb}", stderr=said.read())

    def load(self, *images):
        self.call("load", *images)

    def freeze(self, pod, container):
        self.call("freeze", pod, container)

    def thaw(self, pod, container):
        self.call("thaw", pod, container)


class Images:
    """The program's and the writers', gone afterwards. Debian's is made of its packages: no registry is asked."""

    def __enter__(self):
        engine, *self.arguments = os.environ["FENCEGATE_ENGINE"].split()
        self.engine, self.made = engine, []
        try:
            self._make_base()
            with timed("images"):
                self._make_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.made:
            subprocess.run([self.engine, "rmi", "-f", *reversed(self.made)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _has(self, image):
        return subprocess.run([self.engine, "image", "inspect", image], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def _tag(self, old, new):
        run(self.engine, "tag", old, new)
        self.made.append(new)

    def _make_base(self):
        if self._has(BASE[-1]):
            return
        archive = Path(pg_versions.kept("debian-12.tar"))
        with timed("Debian's image"), needed("no Debian image"):
            if not archive.exists():
                archive.parent.mkdir(parents=True, exist_ok=True)
                part = f"{archive}.{os.getpid()}"
                run("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", *SLIM, "bookworm", part)
                os.rename(part, archive)
            run(self.engine, "import", "-q", str(archive), BASE[0])
            self.made.append(BASE[0])
            self._tag(*BASE)

    def _make_all(self):
        with concurrent.futures.ThreadPoolExecutor() as two:
            for made in [two.submit(self._make_writer), two.submit(self._make_fencegate)]:
                made.result()

    def _make_writer(self):
        with needed("the writers' image does not build"):  # with packages of Debian alone, as the program's
            folder = ROOT / "tests/kubernetes/writer"
            run(self.engine, *self.arguments, "build", "--format", "docker", "--network", "host", "-t", WRITER, "-f",
                str(folder / "Dockerfile"), str(folder))
        self.made.append(WRITER)

    def _make_fencegate(self):
        try:
            run(str(ROOT / "dev"), "image", "--programs", os.path.dirname(os.environ["FENCEGATE"]))
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"./dev image: {error.stderr[-3000:]}") from error
        self.made.append(LOCAL)
        self._tag(LOCAL, FENCEGATE)
        self._tag(LOCAL, NEXT)


class NodeRedis(RedisServer):
    """On loopback and on the node's address."""

    def __init__(self):
        super().__init__(protected_mode="no", appendfsync="always")

    def prepare(self):
        super().prepare()
        with open(os.path.join(self.folder, "redis.conf"), "a") as file:
            file.write(f"bind {LOOPBACK} {NODE}\n")


class NodePostgres(PostgresServer):
    """On loopback, where everybody is trusted, and on the node's address, where the gate needs its password."""

    def __init__(self):
        super().__init__(hba=[f"host all fencegate {PODS} scram-sha-256", f"host all all {PODS} trust"])

    def prepare(self):
        super().prepare()
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a") as file:
            file.write(f"listen_addresses = '{LOOPBACK},{NODE}'\n")


class Blocked:
    """Writes wait in PostgreSQL for a lock that a session of the test took by `statement`."""

    def __init__(self, rig, statement):
        self.rig = rig
        self.session = rig.postgres.connect(database="app")
        run_sql(self.session, f"BEGIN; {statement}")

    def await_waiting(self, other_than=None):
        """Until the only one that waits is another session: its pid."""
        def waiting():
            found = self.rig.sql("SELECT pid FROM pg_stat_activity WHERE datname = 'app' AND wait_event_type = 'Lock'")
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

    def get(self, *what):
        """An object, or the items of a list."""
        found = json.loads(self.kubectl("get", *what, "-o", "json"))
        return found.get("items", found)

    def pods(self, app):
        """Those that nobody has deleted."""
        return [pod for pod in self.get("pods", "-l", f"app={app}") if "deletionTimestamp" not in pod["metadata"]]

    def start_servers(self, stack):
        self.redis, self.postgres = stack.enter_context(NodeRedis()), stack.enter_context(NodePostgres())
        self.catalog = stack.enter_context(Upstream(NODE))
        self.set_passwords(PASSWORDS)
        self.postgres.sql("CREATE ROLE orders LOGIN")
        self.postgres.sql("CREATE DATABASE app")
        self.sql("CREATE TABLE writes(id bigserial, doc jsonb); CREATE TABLE orders(id bigserial, doc jsonb);"
                 "GRANT ALL ON ALL TABLES IN SCHEMA public TO orders, fencegate;"
                 "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO orders, fencegate")

    def freeze(self, test, pod, container):
        """It goes on when the test has ended, at the latest."""
        self.cluster.freeze(pod, container)
        test.addCleanup(subprocess.run, [self.cluster.script, "thaw", str(self.cluster.folder), pod, container],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

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
        self.kubectl("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
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
    def installed(self):
        """The schema is there, and the writers of the Deployment that brought it have ended: theirs are other tests."""
        assert self.deployed
        self.kubectl("delete", "deployment", "orders-writer", "--wait=false")
        eventually(lambda: not self.get("pods", "-l", "app=orders-writer"), WAIT, every=0.2)
        return True

    def roll_out(self, name="orders-writer"):
        """Until it is done, and the old pods have ended."""
        self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={WAIT}s")
        eventually(lambda: len(self.get("pods", "-l", f"app={name}")) == 2, WAIT, every=0.2)

    def sidecar_of(self, pod):
        """Its sidecar's status."""
        return self.get("pod", pod)["status"]["initContainerStatuses"][0]

    def landed(self):
        """{gate: what it let through, in order}, each as its writer wrote it."""
        return {
            "redis": [json.loads(one) for one in self.redis.cli.call("LRANGE", "orders:log", 0, -1)],
            "postgres": [row[0] for row in self.sql("SELECT doc FROM writes ORDER BY id")],
            "put": [json.loads(body) for *_, body in self.catalog.seen("PUT")],
            "post": [row[0] for row in self.sql("SELECT doc FROM orders ORDER BY id")],
        }


rig = None  # set by run.py
