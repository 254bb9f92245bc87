"""README.md and docs/ as a new user follows them: build, configure, serve, write; and every link and command in them."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import documents
from documents import ROOT, block, command, run_shell
from gate_process import Gate, GateProcess
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from postgres import PostgresServer, run_sql
from processes import LOOPBACK, free_port
from redis_server import RedisServer
from resp import Resp
from tls import Authority

README = "README.md"
LISTENERS = ("9180", "6380", "6432", "8081")
SERVERS = ("6379", "5432", "9000")


class ReadmesGates(GateProcess):
    """Checked, installed and served by README's commands. `ports`: those of the page, and what stands in their place."""

    name, protocol = "cache", "redis"

    def __init__(self, ports, **environment):
        super().__init__({})
        self.links = 3
        self.ports = ports
        self.environment = environment

    def prepare(self):
        self.admin_port = self.ports["9180"]
        (Path(self.folder) / "fencegate.yaml").write_text(self.local(block(README, "yaml")))
        place = Path(self.folder) / "build/release"
        place.mkdir(parents=True)
        (place / "fencegate").symlink_to(os.path.abspath(os.environ["FENCEGATE"]))
        self.shell("build/release/fencegate check")
        self.shell("build/release/fencegate install", **self.environment)

    def local(self, text):
        """With the ports of this test."""
        return re.sub(r"\b(\d{4})\b", lambda found: str(self.ports.get(found[1], found[1])), text)

    def command(self):
        return command(README, "build/release/fencegate serve").split()

    def shell(self, start, **more):
        return run_shell(self.local(command(README, start)), self.folder, **more)

    def shell_late(self, start, **more):
        """By the holder before, whose curl tells of a status of 400 and more."""
        line = command(README, start).replace("34", "33").replace("curl", "curl --fail-with-body")
        return run_shell(self.local(line), self.folder, **more)


class Pipeline(unittest.TestCase):
    """Where neither passwords nor certificates are, nor variables of the environment."""

    def check(self, path, *words):
        done = subprocess.run([os.environ["FENCEGATE"], "check", *words, "-c", path], text=True, capture_output=True,
                              env={}, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_what_is_shipped_is_right(self):
        shipped = [ROOT / "config/fencegate.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]
        self.assertGreater(len(shipped), 5)
        for one in shipped:
            status, said = self.check(one, "--no-secrets")
            self.assertEqual(status, 0, said)
            self.assertIn(": OK, ", said)
        self.assertTrue(any(self.check(one)[0] == 2 for one in shipped), "some need secrets")
        self.assertIn(": OK, 2 gates\n", run_shell(command("docs/configuration.md", "fencegate check --no-secrets"), ROOT))

    def test_all_else_is_looked_at(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fencegate.yaml"
            path.write_text(block("docs/configuration.md", "yaml"))
            self.assertEqual(self.check(path, "--no-secrets")[0], 0)
            path.write_text(path.read_text().replace("unmatched: tag", "unmatched: tags"))
            status, said = self.check(path, "--no-secrets")
            self.assertEqual(status, 2)
            self.assertIn("unmatched", said)
            self.assertIn("cannot read the file", self.check(Path(folder) / "missing.yaml", "--no-secrets")[1])


class FirstTenMinutes(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis, cls.server, cls.upstream = map(cls.enterClassContext, (RedisServer(), PostgresServer(), Upstream()))
        cls.server.sql("CREATE DATABASE app")
        cls.server.sql(block("docs/postgresql.md", "sql"))
        ports = dict(zip(SERVERS, (cls.redis.port, cls.server.port, cls.upstream.port)))
        ports |= {port: free_port() for port in LISTENERS}
        cls.gates = ReadmesGates(ports, PGHOST=LOOPBACK, PGPORT=str(cls.server.port))
        cls.enterClassContext(cls.gates)
        with cls.server.connect(database="app") as superuser:
            run_sql(superuser, "CREATE TABLE orders (id int); GRANT ALL ON orders TO orders")
        superuser.close()

    def test_each_client_writes_under_its_token_and_the_older_one_is_told(self):
        for start in ("redis-cli", "python3", "PGOPTIONS=", "curl"):
            self.gates.shell(start, PGPASSWORD="orders-secret")
        self.assertEqual(self.redis.cli.call("GET", "orders:1"), b"paid")
        self.assertEqual(self.redis.cli.call("GET", "fencegate:mark:{orders}"), b"34")
        self.assertEqual([one[1:2] + one[3:] for one in self.upstream.seen("PUT")], [("/orders/7", b"paid")])
        with self.server.connect(database="app") as superuser:
            self.assertEqual(run_sql(superuser, "SELECT * FROM orders"), [(34,)])
            marks = dict(run_sql(superuser, "SELECT resource, mark FROM fencegate.marks"))
        superuser.close()
        self.assertEqual(marks, {"orders": 34, "order:7": 34})
        for start, told in (("redis-cli", "FENCED"), ("python3", "FENCED"), ("PGOPTIONS=", "FATAL: "), ("curl", "")):
            with self.assertRaisesRegex(AssertionError, f"(?s){told} .*token 33.*34.*not applied"):
                self.gates.shell_late(start, PGPASSWORD="orders-secret")
        # Then leases raise the mark.
        (Path(self.gates.folder) / "job.sql").write_text("INSERT INTO orders VALUES (35);")
        self.gates.shell("build/release/fencegate hold", PGPASSWORD="orders-secret")
        self.assertEqual(self.redis.cli.call("GET", "fencegate:mark:{orders}"), b"35")
        with self.server.connect(database="app") as superuser:
            self.assertEqual(run_sql(superuser, "SELECT * FROM orders"), [(34,), (35,)])
        superuser.close()


class Pages(unittest.TestCase):
    def test_the_first_page_is_short(self):
        for page, most in ((README, 150), ("src/README.md", 120)):
            self.assertLessEqual(len(documents.text(page).splitlines()), most, page)

    def test_no_sentence_has_a_question_for_its_subject(self):
        """Such as "Who is cut off is not waited for": name the actor."""
        for page in documents.PAGES:
            prose = re.sub(r"^```.*?^```$|^#.*?$|^\|[- |]+\|$", "", documents.text(page), flags=re.M | re.S)
            wrong = [found for found in re.findall(r"(?:^|[.:;|] |- )(?:Who|What) [a-z][^.?]*[.?]", prose, re.M) if found[-1] != "?"]
            self.assertEqual(wrong, [], page)

    def test_all_configurations_are_valid(self):
        checked = 0
        secrets = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, secrets)
        secret = Path(secrets) / "password"
        secret.write_text("gate-secret\n")
        certificate, key = Authority(secrets, "authority").issue("gate")
        for page in documents.PAGES:
            for text in documents.blocks(page, "yaml"):
                with tempfile.TemporaryDirectory() as folder:
                    config = Path(folder) / "fencegate.yaml"
                    for pattern, path in ((r"[\w.-]+\.crt", certificate), (r"[\w.-]+\.key", key), (r"[\w.-]+", secret)):
                        text = re.sub("/run/secrets/" + pattern, str(path), text)
                    config.write_text(text.replace("unix:/run/fencegate/", f"unix:{folder}/"))
                    done = subprocess.run([os.environ["FENCEGATE"], "check", "-c", config], capture_output=True, text=True,
                                          env=os.environ | {"FENCING_TOKEN": "34"})
                    self.assertEqual((done.returncode, done.stderr), (0, ""), page)
                checked += 1
        self.assertGreaterEqual(checked, 3)

    def test_links_lead_somewhere(self):
        for page in documents.PAGES:
            for path, anchor in documents.links(page):
                self.assertTrue(path.exists(), f"{page}: {path}")
                if anchor:
                    self.assertIn(anchor, documents.anchors(path.relative_to(ROOT)), f"{page}: {path}")

    def test_each_page_is_reached_from_the_first(self):
        self.assertLessEqual({ROOT / page for page in documents.PAGES}, {path for path, _ in documents.links(README)} | {ROOT / README})

    def test_each_command_is_run_by_a_test(self):
        tests = [path.read_text() for path in (*(ROOT / "tests/live").rglob("test_*.py"), *(ROOT / "tests/kubernetes").glob("*.py"))]
        for page in documents.PAGES:
            starts = {start for test in tests if f'"{page}"' in test for start in re.findall(r'"([^"\n]{4,})"', test)} - {"fencegate"}
            for line in documents.commands(page):
                self.assertTrue(any(line.startswith(start) for start in starts), f"no test runs this, of {page}: {line}")


class Metrics(LiveTest):
    def test_the_page_has_every_metric_with_its_labels(self):
        redis = self.start(RedisServer())
        leases = {"listen": f"{LOOPBACK}:{free_port()}", "issuers": {"main": {"store": "ledger"}}}
        gate = self.start(Gate(redis, process={"stores": {"ledger": {"url": f"redis://{LOOPBACK}:{redis.port}"}}, "leases": leases},
                               extra={"lease": "orders", "on_loss": "rebind", "standby": "wait"}))
        self.assertEqual(self.start(Resp(gate.port)).call("SET", "k", "v"), b"OK")
        database = self.start(PostgresServer())
        database.install()
        api = self.start(HttpGate(self.start(Upstream()), {"ledger": database.url()}, [{"match": "PUT /{id}", "resource": "{id}"}]))
        certificate, key = Authority(redis.folder, "authority").issue("gate")
        secured = self.start(Gate(redis, extra={"tls": {"cert": certificate, "key": key}}))
        scrape = "".join(one.http("/metrics")[1] for one in (gate, api, secured))
        served = dict(re.findall(r"^# TYPE (\w+) (\w+)$", scrape, re.M))
        rows = re.findall(r"^\| `(\w+)` \| (\w+)(.*?) \| .* \|$", documents.text("docs/metrics.md"), re.M)
        self.assertEqual({name: kind for name, kind, _ in rows}, served)
        for name, _, said in rows:
            label, *values = re.findall(r"`(\w+)`", said) or [None]
            self.assertEqual(set(values), set(self.values_of(scrape, name, label)) if values else set(), name)
            if label:
                self.assertTrue(self.values_of(scrape, name, label), f"{name} has no label {label}")
            elif name.startswith("fencegate_"):
                self.assertNotRegex(re.sub(r'gate="\w+",?|le="[^"]*"', "", scrape), rf"{name}(_bucket)?{{[^}}]", name)

    @staticmethod
    def values_of(scrape, name, label):
        return re.findall(rf'^{name}{{[^}}]*\b{label}="([^"]*)"', scrape, re.M)

    def test_the_page_names_no_metric_that_is_gone(self):
        known = set(re.findall(r"^\| `(\w+)` \|", documents.text("docs/metrics.md"), re.M))
        for page in documents.PAGES:
            self.assertLessEqual(set(re.findall(r"`(fencegate_\w+?)(?:{[^`]*)?`", documents.text(page))) - SQL_ROLES, known, page)


SQL_ROLES = {"fencegate_owner", "fencegate_gate"}

if __name__ == "__main__":
    main()
