"""`lease restarted` and `lease writer`: what a writer's container tells the sidecar whose gates hold the lease for it. Most of it
with a sidecar of the test, the rest with real ones."""

import contextlib
import http.server
import json
import os
import socket
import socketserver
import subprocess
import tempfile
import threading

import test_lease_gates
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, die_with_parent, eventually, free_port

STARTED = "/v1/writers/app/started"
HEARTBEAT = "/v1/writers/app/heartbeat"


class Answers(http.server.BaseHTTPRequestHandler):
    """As `server.says` tells: (status, body)."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, text.decode(), dict(self.headers)))
        status, body = self.server.says
        body = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asks may be content with the head
            self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        return super().get_request()[0], ("local", 0)


class Tcp(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = allow_reuse_address = True


@contextlib.contextmanager
def server(kind, place, says=(200, None)):
    with kind(place, Answers) as one:
        one.asked, one.says = [], says
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


def start_of(pid):
    """As the kernel counts it, in milliseconds."""
    with open(f"/proc/{pid}/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks * 1000 // os.sysconf("SC_CLK_TCK")


class WriterTest(LiveTest):
    program = "FENCEGATE"

    def setUp(self):
        self.folder = self.start(tempfile.TemporaryDirectory())
        self.socket = f"{self.folder}/lease.sock"

    def sidecar(self, *says):
        return self.start(server(Unix, self.socket, says or (200, None)))

    def words(self, *words, api=None):
        return [os.environ[self.program], "lease", words[0], "--api", api or f"unix:{self.socket}", *words[1:]]

    def run_words(self, *words, **more):
        done = subprocess.run(self.words(*words, **more), text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                              check=False)
        return done.returncode, done.stdout, done.stderr


class Restarted(WriterTest):
    def test_the_start_of_process_1(self):
        sidecar = self.sidecar(204, None)
        self.assertEqual(self.run_words("restarted", "app"), (0, "", ""))
        ((method, path, body, headers),) = sidecar.asked
        self.assertEqual((method, path, json.loads(body)), ("POST", STARTED, {"started_ms": start_of(1)}))
        self.assertEqual((headers["Content-Type"], headers["Host"]), ("application/json", "localhost"))

    def test_the_start_of_a_process_and_its_container(self):
        """Whose name may be meant to be misread."""
        sidecar = self.sidecar(204, None)
        strange = os.path.join(self.folder, ") S 1 1 1")
        os.symlink("/bin/sleep", strange)
        writer = subprocess.Popen([strange, "100"], preexec_fn=die_with_parent)
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        self.assertEqual(self.run_words("restarted", "app", "--pid", str(writer.pid), "--container", "worker"), (0, "", ""))
        self.assertEqual(json.loads(sidecar.asked[0][2]), {"started_ms": start_of(writer.pid), "container": "worker"})

    def test_what_the_sidecar_refuses(self):
        sidecar = self.sidecar(409, {"detail": "it was started before the lease was lost"})
        self.assertEqual(self.run_words("restarted", "app"), (1, "", "fencegate lease: it was started before the lease was lost\n"))
        sidecar.says = (404, {"detail": "there is no writer named app"})
        self.assertEqual(self.run_words("restarted", "app"), (125, "", "fencegate lease: there is no writer named app\n"))
        self.assertEqual(len(sidecar.asked), 2)

    def test_a_sidecar_that_is_not_there_yet(self):
        told = subprocess.Popen(self.words("restarted", "app"), text=True, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(told.communicate)
        self.addCleanup(told.kill)
        with self.assertRaises(subprocess.TimeoutExpired):
            told.wait(1)
        sidecar = self.sidecar(503, {"detail": "not now"})
        eventually(lambda: sidecar.asked)
        sidecar.says = (204, None)
        self.assertEqual((told.wait(PATIENCE), told.stderr.read()), (0, ""))
        self.assertEqual(len({body for _, _, body, _ in sidecar.asked}), 1)

    def test_arguments_that_make_no_sense(self):
        for words, more, told in (
                (["app", "--pid", "4194305"], {}, "/proc/4194305/stat cannot be read"),
                (["app", "--pid", "0"], {}, "--pid: Value 0 not in range 1 to 2147483647"),
                (["a/b"], {}, "no name of a writer"), ([".."], {}, "no name of a writer"), ([], {}, "WRITER is required"),
                (["app"], {"api": "http://127.0.0.1:9181"}, "over its unix socket alone")):
            with self.subTest(" ".join(words)):
                status, _, said = self.run_words("restarted", *words, **more)
                self.assertEqual(status, 125, said)
                self.assertIn(told, said)


class NoSidecar(WriterTest):
    program = "FENCEGATE_HOLD"

    def test_a_sidecar_that_never_answers(self):
        status, _, said = self.run_words("restarted", "app")
        self.assertEqual((status, said), (69, f"fencegate lease: unix:{self.socket}: No such file or directory\n"))


class Heartbeat(WriterTest):
    def test_states(self):
        sidecar = self.sidecar(200, {"writer": "app", "state": "holding"})
        self.assertEqual(self.run_words("writer", "app"), (0, "", "fencegate lease: writer app: holding\n"))
        self.assertEqual(self.run_words("writer", "app", "--holding")[0], 0)
        self.assertEqual([one[:2] for one in sidecar.asked], [("POST", HEARTBEAT), ("POST", f"{HEARTBEAT}?holding")])
        sidecar.says = (503, {"writer": "app", "state": "lost", "detail": "lost: not renewed\nin time"})
        self.assertEqual(self.run_words("writer", "app"), (1, "", "fencegate lease: writer app: lost: not renewed?in time\n"))
        sidecar.says = (404, {"detail": "there is no writer named app"})
        self.assertEqual(self.run_words("writer", "app"), (1, "", "fencegate lease: writer app: there is no writer named app\n"))
        sidecar.says = (500, None)
        self.assertEqual(self.run_words("writer", "app"), (1, "", "fencegate lease: writer app: status 500\n"))

    def test_no_sidecar(self):
        status, _, said = self.run_words("writer", "app", "--", "touch", f"{self.folder}/ran")
        self.assertEqual((status, said), (1, f"fencegate lease: unix:{self.socket}: No such file or directory\n"))
        self.assertFalse(os.path.exists(f"{self.folder}/ran"))

    def test_a_sidecar_that_comes_back_meanwhile(self):
        probe = subprocess.Popen(self.words("writer", "app"), text=True, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(probe.communicate)
        self.addCleanup(probe.kill)
        with self.assertRaises(subprocess.TimeoutExpired):
            probe.wait(1)
        self.sidecar(200, {"state": "holding"})
        self.assertEqual((probe.wait(PATIENCE), probe.stderr.read()), (0, "fencegate lease: writer app: holding\n"))

    def test_and_an_address(self):
        sidecar, port = self.sidecar(200, {"state": "holding"}), free_port()
        app = self.start(server(Tcp, (LOOPBACK, port)))
        for host in (LOOPBACK, "localhost"):
            for status, outcome in ((200, 0), (204, 0), (302, 0), (399, 0), (400, 1), (503, 1)):
                app.says = (status, {"much": 100_000 * "x"} if status != 204 else None)
                got, _, said = self.run_words("writer", "app", "--and", f"http://{host}:{port}/healthz?deep=1")
                self.assertEqual(got, outcome, said)
                if outcome:
                    self.assertIn(f"/healthz?deep=1: status {status}", said)
        self.assertEqual({one[:2] for one in app.asked}, {("GET", "/healthz?deep=1")})
        self.assertEqual({one[3]["Host"] for one in app.asked}, {f"{LOOPBACK}:{port}", f"localhost:{port}"})
        asked = len(app.asked)
        sidecar.says = (503, {"state": "lost"})
        self.assertEqual(self.run_words("writer", "app", "--and", f"http://{LOOPBACK}:{port}")[0], 1)
        self.assertEqual(len(app.asked), asked)

    def test_and_an_address_whose_answer_comes_behind_another(self):
        self.sidecar(200, {"state": "holding"})
        for last, outcome in (("200 OK", 0), ("503 Service Unavailable", 1)):
            with self.subTest(last), socket.create_server((LOOPBACK, 0)) as app:
                def answer(app=app, last=last):
                    client, _ = app.accept()
                    with client:
                        client.recv(4096)
                        client.sendall(f"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 {last}\r\nContent-Length: 0\r\n\r\n".encode())
                        client.recv(1)
                answering = threading.Thread(target=answer, daemon=True)
                answering.start()
                self.assertEqual(self.run_words("writer", "app", "--and", f"http://{LOOPBACK}:{app.getsockname()[1]}")[0], outcome)
                answering.join(10)

    def test_and_an_address_where_nobody_is(self):
        self.sidecar(200, {"state": "holding"})
        status, _, said = self.run_words("writer", "app", "--and", f"http://{LOOPBACK}:{free_port()}")
        self.assertEqual(status, 1)
        self.assertIn("Connection refused", said)

    def test_and_a_probe(self):
        sidecar = self.sidecar(200, {"state": "holding"})
        self.assertEqual(self.run_words("writer", "app", "--", "sh", "-c", "echo $0; exit 7", "-x"), (
            7, "-x\n", "fencegate lease: writer app: holding\n"))
        self.assertEqual(self.run_words("writer", "app", "--", "true")[0], 0)
        self.assertEqual(self.run_words("writer", "app", "--", "/nowhere/probe")[0], 127)
        self.assertEqual(self.run_words("writer", "app", "--", "/etc/passwd")[0], 126)
        sidecar.says = (503, {"state": "lost"})
        self.assertEqual(self.run_words("writer", "app", "--", "echo", "ran")[:2], (1, ""))

    def test_arguments_that_make_no_sense(self):
        self.sidecar(200, {"state": "holding"})
        for url, told in (("https://127.0.0.1/", "is no http:// address; for anything else: -- PROBE"),
                          ("http://app:80/", "app is a name, which is not looked up here"), ("http://", "is not http://host:port/path"),
                          ("http://127.0.0.1:x/", "is not http://host:port/path"), ("http://:80/", "is not http://host:port/path"),
                          ("http://127.0.0.1/a b", "has a character"), ("http://127.0.0.1/\r\nX: y", "has a character")):
            with self.subTest(url):
                status, _, said = self.run_words("writer", "app", "--and", url)
                self.assertEqual(status, 125, said)
                self.assertIn(told, said)
        status, _, said = self.run_words("writer", "app", api="http://127.0.0.1:9181")
        self.assertEqual((status, "over its unix socket alone" in said), (125, True), said)
        status, _, said = self.run_words("writer", "app", "--and", "http://127.0.0.1/", "--", "true")
        self.assertEqual((status, "excludes" in said), (125, True), said)


class StaticRestarted(Restarted):
    program = "FENCEGATE_HOLD"


class StaticHeartbeat(Heartbeat):
    program = "FENCEGATE_HOLD"


class WithTheSidecar(test_lease_gates.LeaseGatesTest):
    def run_words(self, sidecar, *words):
        done = subprocess.run([os.environ["FENCEGATE_HOLD"], "lease", *words, "--api", f"unix:{sidecar.socket}"], text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stderr

    def assert_says(self, outcome, status, why):
        self.assertEqual(outcome[0], status, outcome[1])
        self.assertIn(why, outcome[1])

    def test_a_writer_from_its_start_to_standby(self):
        writers = {"containers": ["app", "worker"]}
        a, b = self.sidecar(writers=writers), self.sidecar(writers=writers)
        self.assert_says(self.run_words(a, "writer", "app"), 1, "writer app: unknown")
        self.assert_says(self.run_words(a, "restarted", "app", "--pid", str(os.getpid()), "--container", "app"), 1, "start")
        self.assert_says(self.run_words(a, "restarted", "app", "--pid", str(os.getpid()), "--container", "other"), 125, "name one of them")
        self.assert_says(self.run_words(a, "restarted", "other"), 125, "writer of this name")
        self.assert_says(self.run_words(a, "writer", "other"), 1, "under this name")
        new = str(self.start(test_lease_gates.Sleeper()).pid)
        for sidecar in (a, b):
            for container in ("app", "worker"):
                self.assertEqual(self.run_words(sidecar, "restarted", "app", "--pid", new, "--container", container), (0, ""))
            if sidecar is a:
                a.eventually("holding")
        self.assert_says(self.run_words(a, "writer", "app", "--holding"), 0, "writer app: holding")
        eventually(lambda: "held by" in self.run_words(b, "writer", "app")[1])
        self.assert_says(self.run_words(b, "writer", "app"), 0, "writer app: standby: held by")
        self.assert_says(self.run_words(b, "writer", "app", "--holding"), 1, "writer app: standby: held by")


if __name__ == "__main__":
    main(at_once=2)
