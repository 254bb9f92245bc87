"""The demo (`./dev up`): tells its story on a real gate, fails where the fence fails, leaves nothing behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

from resp import Resp

DEMO = Path(__file__).resolve().parents[1] / "demo"
DEADLINE = 120
LAST_LINE = "figures of http sidecar A"

# What each scene must show, in this order; the numbers of bytes and ports vary.
FENCED = [
    r"A +CLIENT SETNAME fence:orders=33 +\+OK",
    r'A +SET orders:1 "A, token 33" +\+OK',
    r"in Redis +GET fencegate:mark:{orders} +33",
    r"A's pod +is frozen: SIGSTOP to its sidecar +stopped",
    r'A +SET orders:1 "A, late" +[1-9]\d* bytes lie unread in the sidecar\'s socket',
    r"B +CLIENT SETNAME fence:orders=34 +\+OK",
    r"in Redis +GET fencegate:mark:{orders} +34",
    r'B +SET orders:1 "B, token 34" +\+OK',
    r"A's pod +goes on: SIGCONT +running",
    r"A +…reads the answer to its late write +-FENCED .*\b33\b.*\b34\b.*not applied",
    r"in Redis +GET orders:1 +B, token 34",
    r'A +SET orders:1 "A, again" +-FENCED .*not applied',
    r"A +GET orders:1 +B, token 34",
]
UNFENCED = [
    r'A +SET naive:orders:1 "A, token 33" +\+OK',
    r'A +SET naive:orders:1 "A, late" +checked: 33 is the mark, good',
    r"A's pod +is frozen between check and forward +stopped",
    r'B +SET naive:orders:1 "B, token 34" +\+OK',
    r"in Redis +GET naive:mark:orders +34",
    r"A's pod +goes on: SIGCONT +running",
    r"A +…reads the answer to its late write +\+OK",
    r"in Redis +GET naive:orders:1 +A, late",
]
POSTGRES_FENCED = [
    r"superuser +fencegate install --print \| psql +version \d+",
    r"A +connects: -c fencing.tokens=orders=33 +connected in \d+ ms",
    r"in PostgreSQL +SELECT mark FROM fencegate.marks +33",
    r"A +BEGIN +BEGIN",
    r"A +UPDATE orders SET by = 'A, token 33' +UPDATE 1",
    r"A's pod +is frozen: SIGSTOP to its sidecar +stopped",
    r"A +COMMIT +[1-9]\d* bytes lie unread in the sidecar's socket",
    r"B +connects: -c fencing.tokens=orders=34 +connected in \d+ ms",
    r"in PostgreSQL +SELECT mark FROM fencegate.marks +34",
    r"B +UPDATE orders SET by = 'B, token 34' +UPDATE 1",
    r"A's pod +goes on: SIGCONT +running",
    r"A +…reads the answer to its COMMIT +ZF001: token 33 of orders is below mark 34; not applied",
    r"A +connects: -c fencing.tokens=orders=33 +ZF001: token 33 of orders is below mark 34; not applied",
    r"in PostgreSQL +SELECT by FROM orders +B, token 34",
]
POSTGRES_UNFENCED = [
    r"A +connects +connected in \d+ ms",
    r"B +connects +connected in \d+ ms",
    r"A +BEGIN +BEGIN",
    r"A +UPDATE orders SET by = 'A, token 33' +UPDATE 1",
    r"A's pod +is paused; its lease runs out +A holds the row's lock",
    r"B +UPDATE orders SET by = 'B, token 34' +55P03: canceling statement due to lock timeout",
    r"A +ROLLBACK +ROLLBACK",
    r"B +UPDATE orders SET by = 'B, token 34' +UPDATE 1",
    r"A +UPDATE orders SET by = 'A, late' +UPDATE 1",
    r"in PostgreSQL +SELECT by FROM orders +A, late",
]


def http_fenced(path, resource, result, *reads):
    return [
        rf'A +PUT {path} "A, token 33" Fencing-Token: 33 +200, Fencing-Mark: 33{result}',
        r"A's pod +is frozen: SIGSTOP to its sidecar +stopped",
        rf'A +PUT {path} "A, late" Fencing-Token: 33 +[1-9]\d* bytes lie unread in the sidecar\'s socket',
        rf'B +PUT {path} "B, token 34" Fencing-Token: 34 +200, Fencing-Mark: 34{result}',
        r"A's pod +goes on: SIGCONT +running",
        rf"A +…reads the answer to its late request +412, Fencing-Mark: 34, problem\+json: token 33 of {resource} is "
        r"below mark 34; not applied.*",
        *reads,
    ]


HTTP_SQL = http_fenced("/orders/7", "order:7", r', {"rows":\[\],"affected":1}',
                       "in PostgreSQL +SELECT by FROM http_orders +B, token 34")
HTTP_REDIS = http_fenced("/carts/7", "cart:7", ', {"reply":"OK"}', "in Redis +GET http:cart:7 +B, token 34")
HTTP_HELD = http_fenced("/files/7", "file:7", "", "the service +GET /files/7 +B, token 34",
                        r"the service +GET /files/7\?log +33 34")
HTTP_UNFENCED = [
    r'A +PUT /files/8 "A, token 33" Fencing-Token: 33 +200',
    r'A +PUT /files/8 "A, late" Fencing-Token: 33 +checked: 33 is the mark, good',
    r"A's pod +is frozen between check and forward +stopped",
    r'B +PUT /files/8 "B, token 34" Fencing-Token: 34 +200',
    r"A's pod +goes on: SIGCONT +running",
    r"A +…reads the answer to its late request +200",
    r"the service +GET /files/8 +A, late",
    r"the service +GET /files/8\?log +33 34 33",
]

CRON = [
    r"A's cron +fencegate hold settle -- sh settle.sh +runs",
    r"in PostgreSQL +the accounts' settled_by +A - -",
    r"A's node +is frozen: SIGSTOP to all of it +[1-9]\d* bytes of psql lie unread",
    r"B's cron +fencegate hold settle -- sh settle.sh +waits for A's lease, 5 s",
    r"in PostgreSQL +the accounts' settled_by +B.*",
    r"B's cron +…the job has ended +status 0",
    r"A's node +goes on: SIGCONT +running",
    r"A +…psql reads the answer to its late update +token 1 of settle is below mark 2; not applied",
    r"A's cron +…the job has ended +status 79",
    r"in PostgreSQL +the accounts' settled_by +B B B",
]

GATE = [
    r"A's hook +fencegate-hold lease restarted ticker +status 0",
    r"in PostgreSQL +whose ticks, in their order +A",
    r"B's hook +fencegate-hold lease restarted ticker +status 0",
    r"B's probe +fencegate-hold lease writer ticker +status 0: standby: held by .*",
    r"A's node +is frozen: SIGSTOP to all of it +[1-9]\d* bytes of psql lie unread",
    r"in PostgreSQL +whose ticks, in their order +A B",
    r"A's node +goes on: SIGCONT +running",
    r"A's probe +fencegate-hold lease writer ticker +status 1: lost: .*",
    r"A's writer +…psql reads the answer to its late write +refused",
    r"A's kubelet +starts the writer anew, since its probe fails +started",
    r"A's hook +fencegate-hold lease restarted ticker +status 0",
    r"A's probe +fencegate-hold lease writer ticker +status 0: standby: held by .*",
    r"in PostgreSQL +whose ticks, in their order +A B",
    r"B's pod +is told to end: SIGTERM to its sidecar +releases the lease",
    r"in PostgreSQL +whose ticks, in their order +A B A",
]

# What the commands print that it says to try by hand, in this order; below psql and redis-cli, what is typed there.
REDIS_BY_HAND = [
    r"^OK\nOK\n$",
    r"FENCED .*\b34\b.*\b35\b.*not applied",
    r"^35\n$",
    r"FENCEMISSING ",
    r"^35\n$",
    r'fencegate_checks_total\{.*outcome="stale".*\} [1-9]',
]
POSTGRES_BY_HAND = [
    None,  # left open, below
    r"^UPDATE 1\n$",
    r"FATAL: .*token",
    r"orders +\| +36 ",
    r"fencegate_sessions_cut_total\{.*\} [1-9]",
]
HTTP_BY_HAND = [
    r'{"rows":\[\],"affected":1}',
    r"{.*\b412\b.*token 34 of order:7 is below mark 35",
    r"{.*\b428\b",
    r"mine",
    r"\b36\b",
    r"\b36\b",
    r"33 34",
    r'fencegate_checks_total\{.*outcome="stale".*\} [1-9]',
]

# Raises marks as a gate does, and lets every write pass: the demo must notice.
GATE_WITHOUT_A_FENCE = f"""\
    #!{sys.executable}
    import http.server, re, socket, sys, threading
    sys.path.insert(0, {str(DEMO)!r})
    from stage import Redis

    text = open(sys.argv[3]).read()
    admin, listen, upstream = (int(re.search(key + r": .*:(\\d+)", text)[1]) for key in ("admin", "    listen", "upstream"))

    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    def serve(client):
        redis = Redis(upstream)
        while command := client.recv(4096):
            if name := re.search(rb"fence:orders=(\\d+)", command):
                redis.call("SET", "fencegate:mark:{{orders}}", name[1].decode())
            redis.socket.sendall(command)
            client.sendall(redis.socket.recv(4096))

    pages = http.server.HTTPServer(("127.0.0.1", admin), Ready)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", listen)) as server:
        while True:
            threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

# The real program, but for `serve` with a postgres gate: it raises marks and moves bytes, and nobody's session ends.
POSTGRES_GATE_WITHOUT_A_FENCE = f"""\
    #!{sys.executable}
    import os, re, sys
    text = open(sys.argv[3]).read()
    if sys.argv[1] != "serve" or "protocol: redis" in text:
        os.execv({os.environ["FENCEGATE"]!r}, sys.argv)
    import http.server, socket, threading
    sys.path.insert(0, {str(DEMO)!r})
    import database

    admin, listen = (int(re.search(key + r": .*:(\\d+)", text)[1]) for key in ("admin", "    listen"))
    upstream = int(re.search(r"upstream: .*:(\\d+)/", text)[1])

    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    def pump(source, sink):
        while data := source.recv(4096):
            if tag := re.search(rb"fencing.tokens=orders=(\\d+)", data):
                with database.Client(upstream, user="postgres") as superuser:
                    superuser.call("INSERT INTO fencegate.marks VALUES ('orders', %d) ON CONFLICT (resource) DO UPDATE "
                                   "SET mark = EXCLUDED.mark" % int(tag[1]))
            sink.sendall(data)
        sink.close()

    def serve(client):
        server = socket.create_connection(("127.0.0.1", upstream))
        threading.Thread(target=pump, args=(server, client), daemon=True).start()
        pump(client, server)

    pages = http.server.HTTPServer(("127.0.0.1", admin), Ready)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", listen)) as server:
        while True:
            threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

# The real program, but for `serve` with an http gate: it says that the mark is the request's token, whatever was before.
HTTP_GATE_WITHOUT_A_FENCE = f"""\
    #!{sys.executable}
    import os, re, sys
    text = open(sys.argv[3]).read()
    if sys.argv[1] != "serve" or "protocol: http" not in text:
        os.execv({os.environ["FENCEGATE"]!r}, sys.argv)
    import http.server, threading
    sys.path.insert(0, {str(DEMO)!r})
    import database

    admin, listen = (int(re.search(key + r": .*:(\\d+)", text)[1]) for key in ("admin", "    listen"))
    store = int(re.search(r"postgres://fencegate@.*:(\\d+)/", text)[1])

    class Gate(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def do_PUT(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            with database.Client(store, user="postgres") as superuser:
                superuser.call(f"UPDATE http_orders SET by = '{{body}}'")
            self.send_response(200)
            self.send_header("Fencing-Mark", self.headers["Fencing-Token"])
            self.end_headers()

    pages, gate = (http.server.ThreadingHTTPServer(("127.0.0.1", port), Gate) for port in (admin, listen))
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    print('"msg":"backend up" "store":"ledger"', flush=True)
    gate.serve_forever()
"""


def steps(output, title):
    """The numbered lines below the title that starts with `title`."""
    scene = output.split(title, 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^ +\d+\. (.*)$", scene, re.M)


def children(pid):
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == pid:
            found.append(int(entry.parent.name))
    return found


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)  # PostgreSQL runs as another user
        self.environment = dict(os.environ, TMPDIR=folder.name, PYTHONIOENCODING="utf-8")

    def start(self, *options):
        demo = subprocess.Popen([sys.executable, str(DEMO / "up.py"), *options], env=self.environment, text=True,
                                encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, demo)
        return demo

    def end(self, process):
        if process.poll() is None:
            process.kill()  # what the demo started is told by the kernel
        if not process.stdout.closed:
            process.communicate()

    def play_once(self):
        demo = self.start("--once")
        output, errors = demo.communicate(timeout=DEADLINE)
        return demo.returncode, output, errors

    def assert_nothing_left(self):
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name != "gate"], [])

    def assert_steps(self, found, wanted):
        for line, pattern in zip(found, wanted):
            self.assertRegex(line, "^" + pattern + "$")
        self.assertEqual(len(found), len(wanted))

    def test_tells_the_story(self):
        status, output, errors = self.play_once()
        self.assertEqual((status, errors), (0, ""), output)
        self.assert_steps(steps(output, "With fencegate"), FENCED)
        self.assert_steps(steps(output, "The same with check-then-forward"), UNFENCED)
        self.assertRegex(output, r"late write +-FENCED, not applied +\+OK, applied\n")
        self.assertRegex(output, r'what Redis holds +"B, token 34" +"A, late"\n')
        self.assert_steps(steps(output, "On PostgreSQL, with fencegate"), POSTGRES_FENCED)
        self.assert_steps(steps(output, "On PostgreSQL, without fencegate"), POSTGRES_UNFENCED)
        self.assertRegex(output, r"late write +ZF001, not applied +UPDATE 1, applied\n")
        self.assertRegex(output, r'what the row holds +"B, token 34" +"A, late"\n')
        self.assert_steps(steps(output, "Over HTTP, a statement"), HTTP_SQL)
        self.assert_steps(steps(output, "Over HTTP, a command"), HTTP_REDIS)
        self.assert_steps(steps(output, "Over HTTP, forwarded to the service"), HTTP_HELD)
        self.assert_steps(steps(output, "The same forward with check-then-forward"), HTTP_UNFENCED)
        self.assertRegex(output, r"late request +412, not applied +200, applied\n")
        self.assertRegex(output, r'what is there +"B, token 34" +"A, late"\n')
        self.assertRegex(output, r"tokens, as they came +33 34 +33 34 33\n")
        self.assert_steps(steps(output, "A cron job that nobody changed"), CRON)
        self.assert_steps(steps(output, "A writer that nobody touches"), GATE)
        self.assertNotIn("\033[", output, "colours are for terminals")
        self.assertNotIn("Try it by hand", output)
        self.assert_nothing_left()

    def assert_notices(self, gate_without_a_fence, step):
        gate = self.folder / "gate"
        gate.write_text(textwrap.dedent(gate_without_a_fence))
        gate.chmod(0o755)
        self.environment["FENCEGATE"] = str(gate)
        status, output, errors = self.play_once()
        self.assertEqual(status, 1, output + errors)
        self.assertIn(f"step {step} differs from what it should be", errors)
        self.assert_nothing_left()

    def test_fails_on_a_redis_gate_that_does_not_fence(self):
        self.assert_notices(GATE_WITHOUT_A_FENCE, "10")

    def test_fails_on_a_postgres_gate_that_does_not_fence(self):
        self.assert_notices(POSTGRES_GATE_WITHOUT_A_FENCE, "10")

    def test_fails_on_an_http_gate_that_does_not_fence(self):
        self.assert_notices(HTTP_GATE_WITHOUT_A_FENCE, "6")

    def test_says_what_to_do_without_a_binary(self):
        self.environment["FENCEGATE"] = str(self.folder / "nothing")
        status, output, errors = self.play_once()
        self.assertEqual((status, output), (2, ""))
        self.assertIn("is not an executable file", errors)

    def test_says_what_to_do_without_redis(self):
        self.environment["PATH"] = str(self.folder)
        status, output, errors = self.play_once()
        self.assertEqual((status, output), (2, ""))
        self.assertIn("redis-server is not installed", errors)

    def test_says_what_to_do_without_curl(self):
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("redis-server", "setpriv"):
            (programs / name).symlink_to(shutil.which(name))
        self.environment["PATH"] = str(programs)
        status, output, errors = self.play_once()
        self.assertEqual((status, output), (2, ""))
        self.assertIn("curl is not installed", errors)

    def test_says_what_to_do_without_psycopg2(self):
        (self.folder / "psycopg2.py").write_text("raise ImportError('there is none')")
        self.environment["PYTHONPATH"] = str(self.folder)
        status, output, errors = self.play_once()
        self.assertEqual((status, output), (2, ""))
        self.assertIn("psycopg2 is not installed", errors)

    def assert_append_only(self, told):
        """Marks must survive a restart of Redis, here as elsewhere."""
        port = re.search(r"redis-cli -p (\d+) GET .*the mark as Redis keeps it", told)[1]
        with Resp(int(port)) as redis:
            self.assertEqual(redis.call("CONFIG", "GET", "appendonly"), [b"appendonly", b"yes"])

    def start_to_serve(self):
        """The demo without --once, and what it has printed by the time that it serves."""
        demo, told = self.start("--until", "http"), []
        for line in demo.stdout:
            told.append(line)
            if LAST_LINE in line:
                return demo, "".join(told)
        return self.fail("".join(told) + demo.stderr.read())

    def by_hand(self, line, typed):
        """A shell that was given the line; what is typed into its program leaves that waiting for more."""
        shell = subprocess.Popen(["bash", "-c", line], env=self.environment, text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.end, shell)
        shell.stdin.write("".join(f"{one}\n" for one in typed))
        shell.stdin.flush()
        return shell

    def test_what_it_says_to_try_by_hand(self):
        _, told = self.start_to_serve()
        sections = told.split("Try it by hand", 1)[1].split("\n", 1)[1].split("\n\n")
        for section, wanted in zip(sections, (REDIS_BY_HAND, POSTGRES_BY_HAND, HTTP_BY_HAND), strict=True):
            commands = []
            for line in section.rstrip().splitlines():
                if line.startswith("    > "):
                    commands[-1][1].append(re.split(" {2,}# ", line[6:])[0])
                else:
                    commands.append((line, []))
            paused = None
            for (line, typed), pattern in zip(commands, wanted, strict=True):
                shell = self.by_hand(line, typed)
                if typed and typed[0].startswith("BEGIN"):
                    self.assertEqual([shell.stdout.readline() for _ in range(2)], ["BEGIN\n", "UPDATE 1\n"])
                    paused = shell
                    continue
                output = shell.communicate(timeout=DEADLINE)[0]
                self.assertRegex(output, pattern, line)
            if paused:
                said = paused.communicate("COMMIT;\n", timeout=DEADLINE)[0]
                self.assertIn("token 35 of orders is below mark 36; not applied", said)

    def serve_then(self, signum):
        """Starts the demo without --once, sends it the signal once it serves; returns its exit status."""
        demo, told = self.start_to_serve()
        self.assert_append_only(told)
        started = children(demo.pid)
        self.assertEqual(len(started), 13, "Redis, PostgreSQL, a service, two sidecars of each; four check-then-forward "
                                           "proxies")
        demo.send_signal(signum)
        status = demo.wait(DEADLINE)
        give_up = time.monotonic() + DEADLINE
        while [pid for pid in started if Path(f"/proc/{pid}").exists()]:
            self.assertLess(time.monotonic(), give_up, "processes of the demo outlived it")
            time.sleep(0.05)
        self.assert_nothing_left()
        return status

    def test_ctrl_c_ends_everything(self):
        self.assertEqual(self.serve_then(signal.SIGINT), 0)

    def test_sigterm_ends_everything(self):
        self.assertEqual(self.serve_then(signal.SIGTERM), 128 + signal.SIGTERM)

    def test_even_sigkill_leaves_no_process(self):
        demo, _ = self.start_to_serve()
        started = children(demo.pid)
        demo.kill()
        demo.wait(DEADLINE)
        give_up = time.monotonic() + DEADLINE
        while [pid for pid in started if is_alive(pid)]:
            self.assertLess(time.monotonic(), give_up, "processes of the demo outlived it")
            time.sleep(0.05)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
