"""docs/applications.md: the rows that say so are run here. Each application writes under token 34, then is refused under 33."""

import contextlib
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import unittest.mock
from pathlib import Path

import psycopg2

from documents import blocks, shell_environment, text
from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from postgres import PgBouncer, PgGate, PostgresServer, run_sql, skip_without_client_tools
from processes import LOOPBACK, die_with_parent, eventually, free_port
from redis_server import RedisServer
from resp import Resp

PAGE = "docs/applications.md"
CLIENTS = Path(__file__).parent / "clients"
PYTHON = "/usr/bin/python3"  # to which Debian's libraries belong


def run(*command, folder=None, **environment):
    """(status, all that it said)"""
    done = subprocess.run(command, cwd=folder, env=shell_environment(**environment), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    return done.returncode, done.stdout


class Postgres(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.user("orders")
        cls.server.user("alice")  # whom PgBouncer's rig asks for
        cls.server.sql("CREATE TABLE orders (id bigserial PRIMARY KEY, doc text)")
        cls.server.sql("ALTER TABLE orders OWNER TO orders")
        cls.gate = cls.enterClassContext(PgGate(cls.server, policy={"missing_token": "allow"}))
        cls.url = f"postgres://orders@{LOOPBACK}:{cls.gate.port}/postgres"

    def setUp(self):
        self.addCleanup(self.server.sql, "TRUNCATE orders; DELETE FROM fencegate.marks")

    def assert_fenced(self, write):
        """`write(token)` → (status, what it said)."""
        status, said = write(34)
        self.assertEqual(status, 0, said)
        self.assertEqual(self.server.sql("SELECT resource, mark FROM fencegate.marks"), [("orders", 34)], said)
        before = self.server.sql("SELECT * FROM orders")
        self.assertGreater(len(before), 0, said)
        status, said = write(33)
        self.assertNotEqual(status, 0, said)
        self.assertIn("token 33 of orders is below mark 34; not applied", " ".join(said.split()))
        self.assertEqual(self.server.sql("SELECT * FROM orders"), before)

    def python(self, source, token):
        """Runs a block of the page, with this gate's address and token."""
        return run(PYTHON, "-c", source.replace("6432", str(self.gate.port)).replace("orders=34", f"orders={token}"))

    def test_pg_restore(self):
        skip_without_client_tools()
        self.server.sql("INSERT INTO orders (doc) VALUES ('kept')")
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "dump")
            status, said = run("pg_dump", "-Fc", "-a", "-t", "orders", "-f", dump, self.url, PGOPTIONS="-c fencing.tokens=orders=34")
            self.assertEqual(status, 0, said)
            self.server.sql("TRUNCATE orders")
            self.assert_fenced(lambda token: run("pg_restore", "-a", "-t", "orders", "-d", self.url, dump,
                                                 PGOPTIONS=f"-c fencing.tokens=orders={token}"))

    def test_sqlalchemy_and_django(self):
        for source in blocks(PAGE, "python"):
            with self.subTest(source.split()[1]):
                self.assert_fenced(lambda token: self.python(source, token))
            self.server.sql("TRUNCATE orders; DELETE FROM fencegate.marks")

    def test_a_program_with_options_of_its_own(self):
        """The options that it gives itself take the place of PGOPTIONS."""
        with unittest.mock.patch.dict(os.environ, PGOPTIONS="-c fencing.tokens=orders=34"):
            with contextlib.closing(self.gate.connect(user="orders", options="-c statement_timeout=5s")) as untagged:
                run_sql(untagged, "SELECT 1")
            self.assertEqual(self.server.sql("SELECT * FROM fencegate.marks"), [])
            with contextlib.closing(self.gate.connect(user="orders", application_name="fence:orders=34", options="-c work_mem=1MB")):
                self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks"), 34)

    def test_pgloader(self):
        def load(token):
            with tempfile.TemporaryDirectory() as folder:
                (shown,) = blocks(PAGE, "pgloader")
                script = Path(folder) / "orders.load"
                script.write_text(shown.replace("6432/app", f"{self.gate.port}/postgres").replace("orders=34", f"orders={token}"))
                (Path(folder) / "orders.csv").write_text("7,seven\n8,eight\n")
                return run("pgloader", str(script), folder=folder)
        self.assert_fenced(load)

    def test_pgbouncer_in_front(self):
        """It passes application_name on, and drops the options."""
        bouncer = self.start(PgBouncer(self.gate, user="orders", pool_mode="transaction", ignore_startup_parameters="options"))

        def write(token, **tag):
            with contextlib.closing(psycopg2.connect(host=LOOPBACK, port=bouncer.port, user="orders", dbname="postgres", **tag)) as client:
                client.autocommit = True
                run_sql(client, "INSERT INTO orders (doc) VALUES (%s)", str(token))

        write(34, application_name="fence:orders=34")
        write(32, options="-c fencing.tokens=orders=32")
        with self.assertRaisesRegex(psycopg2.Error, "token 33 of orders is below mark 34"):
            write(33, application_name="fence:orders=33")
        self.assertEqual(self.server.sql("SELECT doc FROM orders"), [("34",), ("32",)], "the second has no token any more")


@unittest.skipUnless(shutil.which("sidekiq"), "needs ruby-sidekiq")
class Sidekiq(LiveTest):
    def test_a_superseded_one_lives_on_and_books_nothing(self):
        redis = self.start(RedisServer())
        gate = self.start(Gate(redis))
        name = re.search(r'^\| Sidekiq \|.* `id: "(fence:orders=34)"`', text(PAGE), re.M)[1]
        log = self.enterContext(tempfile.TemporaryFile("w+"))
        worker = subprocess.Popen(["sidekiq", "-c", "1", "-r", str(CLIENTS / "sidekiq_job.rb")], stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=log, preexec_fn=die_with_parent,
                                  env=shell_environment(REDIS_URL=f"redis://{LOOPBACK}:{gate.port}", REDIS_ID=name))
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)

        def ask_for(what):
            redis.cli.call("LPUSH", "queue:default", json.dumps({"class": "Book", "args": [what], "jid": what, "retry": 0}))

        def said():
            log.seek(0)
            return log.read()
        ask_for("by 34")
        eventually(lambda: redis.cli.call("LRANGE", "booked", 0, -1) == [b"by 34"])
        self.assertEqual(self.start(Resp(gate.port, name="fence:orders=35")).call("SET", "taken", "over"), b"OK")
        ask_for("late")
        eventually(lambda: "FENCED" in said())
        self.assertEqual((worker.poll(), redis.cli.call("LRANGE", "booked", 0, -1)), (None, [b"by 34"]), said())
        self.assertEqual(redis.cli.call("LLEN", "queue:default"), 1, "it waits for who comes next")


class GitServer:
    """A bare repository behind git's own http-backend."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.repository = Path(self._folder.name) / "orders.git"
        git("init", "-q", "--bare", "-b", "main", str(self.repository))
        git("-C", str(self.repository), "config", "http.receivepack", "true")
        folder = self._folder.name

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                environment = os.environ | {
                    "GIT_PROJECT_ROOT": folder, "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command, "PATH_INFO": path,
                    "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body))}
                answer = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=True).stdout
                head, _, rest = answer.partition(b"\r\n\r\n")
                self.send_response(200)
                for line in head.decode().splitlines():
                    self.send_header(*line.split(": ", 1))
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                self.wfile.write(rest)

            do_GET = do_POST = serve

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((LOOPBACK, free_port()), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self._folder.cleanup()


def git(*arguments):
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "a"), ("EMAIL", "a@b"))}
    status, said = run("git", *arguments, GIT_CONFIG_GLOBAL="/dev/null", GIT_TERMINAL_PROMPT="0", **who)
    if status != 0:
        raise AssertionError(f"git {' '.join(arguments)}: {said}")
    return said


class Http(LiveTest):
    def test_git(self):
        server, redis = self.start(GitServer()), self.start(RedisServer())
        gate = self.start(HttpGate(server, {"cache": f"redis://{LOOPBACK}:{redis.port}"}, self.routes()))
        with tempfile.TemporaryDirectory() as folder:
            git("init", "-q", "-b", "main", folder)
            remote = f"http://{LOOPBACK}:{gate.port}/orders.git"

            def push(token, note):
                git("-C", folder, "commit", "-q", "--allow-empty", "-m", note)
                option = re.search(r"`git -c (http\.extraHeader=\"Fencing-Token: 34\")", text(PAGE))[1].replace('"', "").replace("34", str(token))
                return git("-C", folder, "-c", option, "push", "-q", remote, "main")

            push(34, "by 34")
            with self.assertRaisesRegex(AssertionError, "412"):
                push(33, "late")
            self.assertEqual(git("-C", str(server.repository), "log", "--format=%s", "main"), "by 34\n")
            git("-C", folder, "fetch", "-q", remote)  # without a token

    def orders(self):
        """(service, gate)"""
        upstream, redis = self.start(Upstream()), self.start(RedisServer())
        return upstream, self.start(HttpGate(upstream, {"cache": f"redis://{LOOPBACK}:{redis.port}"},
                                             [{"match": "PUT /orders/{id:int}", "resource": "orders"}]))

    def test_curl_and_wget(self):
        upstream, gate = self.orders()
        of_curl, of_wget = re.search(r"^\| curl, wget \| `(.*)`, `(.*)` \|", text(PAGE), re.M).groups()

        def put(program, option, token, *more):
            return run(*shlex.split(f"{program} {option.replace('34', str(token))}"), *more, f"http://{LOOPBACK}:{gate.port}/orders/7")
        for token, told in ((34, "200"), (33, "412")):
            _, said = put("curl -sS -i -X PUT -d x", of_curl, token)
            self.assertIn(f"HTTP/1.1 {told}", said)
            _, said = put("wget -q -S -O - --method=PUT --body-data=x", of_wget, token)
            self.assertIn(f"HTTP/1.1 {told}", said)
        self.assertEqual([headers["Fencing-Token"] for _, _, headers, _ in upstream.seen("PUT")], ["34", "34"])

    @unittest.skipUnless(shutil.which("javac"), "needs a JDK")
    def test_java(self):
        """Its first request over a connection offers h2c."""
        upstream, gate = self.orders()
        self.assertIn('| Java, `java.net.http` | `.header("Fencing-Token", "34")` |', text(PAGE))

        def fetch(token):
            return run("java", str(CLIENTS / "Fetch.java"), f"http://{LOOPBACK}:{gate.port}/orders/7", str(token))
        status, said = fetch(34)
        self.assertEqual((status, said.count("HTTP_1_1 200")), (0, 3), said)
        status, said = fetch(33)
        self.assertEqual((status, said.count("HTTP_1_1 412"), said.count("HTTP_1_1 200")), (1, 2, 1), said)
        self.assertEqual([body for _, _, _, body in upstream.seen("PUT")], [b"by 34"] * 2)
        self.assertNotIn("Upgrade", {name for _, _, headers, _ in upstream.requests for name in headers})

    @staticmethod
    def routes():
        found = re.findall(r'\{ match: "(POST [^"]*)", resource: "([^"]*)"(, policy: \{ missing_token: allow \})? \}', text(PAGE))
        return [{"match": match, "resource": resource} | ({"policy": {"missing_token": "allow"}} if policy else {})
                for match, resource, policy in found]


class Page(unittest.TestCase):
    TESTS = {
        "psql, pg_dump, pg_restore": ("test_applications.py", "test_pg_restore"),
        "pg_restore of a backup": ("test_applications.py", "test_pg_restore"),
        "SQLAlchemy": ("test_applications.py", "test_sqlalchemy_and_django"),
        "Django": ("test_applications.py", "test_sqlalchemy_and_django"),
        "pgloader": ("test_applications.py", "test_pgloader"),
        "PgBouncer in front of the gate": ("test_applications.py", "test_pgbouncer_in_front"),
        "PgBouncer behind the gate": ("test_pg_guard.py", "PgBouncer"),
        "Java, JDBC": ("test_pg_ends.py", "test_hikaricp"),
        "psqlODBC": ("test_pg_client_psycopg.py", "test_arrays_of_psqlodbc"),
        "BullMQ": ("test_listener_tag.py", "test_bullmq"),
        "git over HTTP": ("test_applications.py", "test_git"),
        "curl, wget": ("test_applications.py", "test_curl_and_wget"),
        "Java, `java.net.http`": ("test_applications.py", "test_java"),
        "Sidekiq": ("test_applications.py", "test_a_superseded_one_lives_on_and_books_nothing"),
    }

    def test_each_row_that_says_so_is_tested(self):
        rows = re.findall(r"^\| (.*?) \| .* \| yes \|$", text(PAGE), re.M)
        self.assertEqual(rows, list(self.TESTS))
        for file, test in self.TESTS.values():
            self.assertIn(test, (Path(__file__).parent / file).read_text())


if __name__ == "__main__":
    main()
