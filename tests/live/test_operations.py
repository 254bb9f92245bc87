"""What operators rely on: draining, a backend that dies, limits, time-outs, bounded memory, unix sockets."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import types

from cut_proxy import CutProxy, SilentPort
from gate_process import Gate
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually, free_port
from redis_server import RedisServer
from resp import Resp, RespError, encode

MIB = 1024 * 1024
RSS_MAX = 64 * MIB


class LargeValue:
    """A SET of `big` by a client whose link is armed, which streams it through the gate while it comes."""

    def __init__(self, client, bytes_):
        assert client.call("SET", "big", "before") == b"OK"
        self.client, self.left = client, memoryview(encode("SET", "big", b"x" * bytes_))

    def send_what_is_taken(self, patience=1.0):
        """Returns how much that was when nothing more had been taken for so many seconds, or all was."""
        before, waits = len(self.left), self.client.sock.gettimeout()
        self.client.sock.settimeout(patience)
        with contextlib.suppress(TimeoutError):
            while self.left:
                self.left = self.left[self.client.sock.send(self.left[:MIB]) :]
        self.client.sock.settimeout(waits)
        return before - len(self.left)

    def send_rest(self):
        self.client.send(self.left)


class OperationsTest(LiveTest):
    def servers(self, **gate):
        redis = self.start(RedisServer())
        return redis, self.start(Gate(redis, **gate))

    def client(self, gate, **options):
        client = self.start(Resp(gate.address, name="fence:orders=34", **options))
        self.assertEqual(client.named, b"OK")
        return client


class Draining(OperationsTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        self.proxy = self.start(CutProxy(self.redis.port))

    def gate(self, drain_timeout):
        return self.start(Gate(self.proxy, process={"drain_timeout": drain_timeout}))

    def write_in_flight(self, gate):
        """A client whose SET was sent and cannot be answered before `proxy.thaw()`."""
        client = self.client(gate)
        self.assertEqual(client.call("SET", "k", "before"), b"OK")
        writes = gate.metric("requests_total", **{"class": "write"})
        self.proxy.freeze()
        client.send_command("SET", "k", "in flight")
        eventually(lambda: gate.metric("requests_total", **{"class": "write"}) > writes)
        return client

    def test_is_not_ready_at_once_and_finishes_what_is_in_flight(self):
        gate = self.gate("10s")
        client = self.write_in_flight(gate)
        self.assertEqual(gate.http("/readyz")[0], 200)
        gate.terminate()
        eventually(lambda: gate.http("/readyz")[0] == 503)
        self.assertEqual(gate.http("/livez")[0], 200)
        self.assertEqual(gate.metric("draining"), 1)
        self.proxy.thaw()
        self.assertEqual(client.reply(), b"OK")
        self.assertTrue(client.closed(), "a connection at a boundary is closed")
        self.assertEqual(gate.wait(10), 0)
        self.assertEqual(self.redis.cli.call("GET", "k"), b"in flight")

    def test_still_accepts_right_after_the_signal(self):
        gate = self.gate("20s")
        busy = self.write_in_flight(gate)
        gate.terminate()
        eventually(lambda: gate.http("/readyz")[0] == 503)
        self.proxy.thaw()
        with Resp(gate.address, name="fence:orders=34") as late:
            self.assertEqual(late.call("SET", "late", "v"), b"OK")
        self.assertEqual(busy.reply(), b"OK")
        self.assertEqual(gate.wait(25), 0)

    def test_clients_end_behind_their_next_answer_or_idle_and_new_ones_are_served(self):
        gate = self.gate("40s")
        asking, idle, popping, listening = (self.client(gate) for _ in range(4))
        popping.send_command("BLPOP", "queue", "0")
        listening.call("SUBSCRIBE", "news")
        eventually(lambda: b"cmdstat_blpop" in self.redis.cli.call("INFO", "commandstats"))
        gate.terminate()
        eventually(lambda: gate.metric("draining") == 1)
        with Resp(gate.address, name="fence:orders=34") as late:
            self.assertEqual(asking.call("SET", "k", "v"), b"OK")
            self.assertTrue(asking.closed())
            for _ in range(3):
                self.assertEqual(late.call("SET", "late", "v"), b"OK")
            for one in (idle, popping, listening, late):
                self.assertTrue(one.closed())
        self.assertEqual(gate.wait(20), 0)

    def test_ends_at_the_drain_timeout_whatever_is_in_flight(self):
        gate = self.gate("1s")
        client = self.write_in_flight(gate)
        gate.terminate()
        self.assertEqual(gate.wait(10), 0)
        self.assertTrue(client.closed())

    def test_metrics_answer_to_the_end(self):
        gate = self.gate("2s")
        self.write_in_flight(gate)
        end = time.monotonic() + 2  # no earlier: the signal is still to come
        gate.terminate()
        eventually(lambda: gate.metric("draining") == 1)
        scrapes = []
        while gate.child.poll() is None:
            try:
                scrapes.append(gate.http("/metrics"))
            except (OSError, http.client.HTTPException):
                self.assertGreater(time.monotonic(), end, "no answer while a write is in flight")
        self.assertEqual(gate.wait(), 0)
        self.assertEqual({status for status, _ in scrapes}, {200})
        self.assertIn("\nfencegate_draining 1\n", scrapes[-1][1])
        self.assertIn('\nfencegate_connections{gate="cache"} 1\n', scrapes[-1][1])

    def test_a_second_signal_ends_it_at_once(self):
        gate = self.gate("60s")
        client = self.write_in_flight(gate)
        gate.terminate()
        eventually(lambda: gate.http("/readyz")[0] == 503)
        self.assertIsNone(gate.child.poll(), "a write is in flight")
        gate.terminate()
        self.assertEqual(gate.wait(10), 0)
        self.assertTrue(client.closed())

    def test_signals_that_mean_reopen_elsewhere_are_ignored(self):
        gate = self.gate("10s")
        client = self.client(gate)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(gate.pid, number)
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(gate.http("/readyz")[0], 200)

    def test_quit_by_http_drains_too(self):
        gate = self.gate("20s")
        self.assertEqual(gate.http("/quit", method="GET")[0], 405)
        self.assertEqual(gate.http("/quit", method="POST")[0], 200)
        self.assertEqual(gate.wait(25), 0)

    def test_programs_beside_it_can_wait_for_it_and_end_it(self):
        gate = self.gate("20s")
        self.assertEqual([gate.says("wait"), gate.says("quit"), gate.wait(25)], [0, 0, 0])
        self.assertEqual([gate.says("wait", "--seconds", "0"), gate.says("quit")], [1, 1])


class CommandLine(OperationsTest):
    def run_with(self, *arguments):
        return subprocess.run([os.environ["FENCEGATE"], *arguments], capture_output=True, text=True, timeout=PATIENCE)

    def test_a_configuration_with_errors_is_not_served(self):
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "bad.yaml")
        with open(path, "w") as file:
            file.write("gates:\n"
                       "  - name: cache\n"
                       "    protocol: redis\n"
                       "    listen: 127.0.0.1:0\n"
                       "    upstreem: redis://127.0.0.1:6379\n"
                       "    policy: {mode: enforced}\n")
        for command in ("serve", "check"):
            done = self.run_with(command, "-c", path)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            where = [line.split(": ")[0] for line in done.stderr.splitlines()]
            self.assertIn(f"{path}:5:5", where, done.stderr)
            self.assertIn(f"{path}:6:20", where, done.stderr)

    def test_check_says_what_serve_would_refuse(self):
        folder = tempfile.mkdtemp(prefix="fencegate-check-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "fencegate.yaml")

        def check(**config):
            with open(path, "w") as file:
                json.dump({"stores": {"main": {"url": "redis://127.0.0.1:6379"}}} | config, file)
            done = self.run_with("check", "-c", path)
            return done.returncode, done.stdout + done.stderr

        issuers = {"main": {"store": "main"}}
        status, said = check(leases={"issuers": issuers})
        self.assertEqual((status, said), (0, f"{path}: OK, 0 gates; for hold, lease and marks: there is nothing for serve\n"))
        served = self.run_with("serve", "-c", path)
        self.assertEqual(served.returncode, 2)
        self.assertIn("there is nothing to serve: it has neither gates nor leases.listen", served.stderr)
        status, said = check(leases={"issuers": issuers, "listen": f"unix:{folder}/lease.sock"})
        self.assertEqual((status, said), (0, f"{path}: OK, 0 gates\n"))
        status, said = check(leases={"issuers": issuers, "listen": f"unix:{folder}/no/lease.sock"})
        self.assertEqual(status, 0)
        self.assertIn(f"warning: listen: there is no folder {folder}/no: fencegate serve starts only where there is one", said)
        for one, other in ((f"unix:{folder}/a", f"unix:{folder}/../{os.path.basename(folder)}/a"),
                           ("[::ffff:127.0.0.1]:6380", "127.0.0.1:6380")):
            gates = [{"name": name, "protocol": "redis", "listen": listen, "upstream": "redis://127.0.0.1:6379"}
                     for name, listen in (("a", one), ("b", other))]
            status, said = check(gates=gates)
            self.assertEqual(status, 2, said)
            self.assertIn("listens on this address already", said)

    def test_leases_are_served_without_a_gate(self):
        redis = self.start(RedisServer())
        at = f"{LOOPBACK}:{free_port()}"
        path = os.path.join(redis.folder, "leases.yaml")
        with open(path, "w") as file:
            json.dump({"stores": {"main": {"url": f"redis://{LOOPBACK}:{redis.port}"}},
                       "leases": {"issuers": {"main": {"store": "main"}}, "listen": at}}, file)
        sidecar = subprocess.Popen([os.environ["FENCEGATE"], "serve", "-c", path], stderr=subprocess.DEVNULL)
        self.addCleanup(sidecar.wait)
        self.addCleanup(sidecar.kill)
        held = eventually(lambda: self.run_with("hold", "orders", "--api", f"http://{at}", "--", "sh", "-c", "echo $FENCING_TOKEN").stdout)
        self.assertEqual(held, "1\n")
        sidecar.terminate()
        self.assertEqual(sidecar.wait(PATIENCE), 0)

    def test_a_configuration_that_is_not_there_is_not_served(self):
        done = self.run_with("serve", "-c", "/nowhere/fencegate.yaml")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("/nowhere/fencegate.yaml", done.stderr)

    def test_the_version(self):
        done = self.run_with("--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^fencegate \d+\.\d+\.\d+\S*\n$")

    def test_arguments_that_make_no_sense(self):
        for arguments in ((), ("--nosuch",), ("nosuch",), ("serve",), ("serve", "-c"), ("serve", "-c", "/x", "--nosuch"),
                          ("serve", "-c", "/x", "nosuch"), ("wait", "--seconds", "soon")):
            with self.subTest(arguments):
                done = self.run_with(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("--help", done.stderr)


class Start(OperationsTest):
    def assert_does_not_start(self, config):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(config, file)
            file.flush()
            done = subprocess.run([os.environ["FENCEGATE"], "serve", "-c", file.name], capture_output=True, text=True,
                                  timeout=PATIENCE)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("in use", done.stderr.splitlines()[-1])

    def test_what_cannot_listen_ends_it_when_gates_are_listening(self):
        _, running = self.servers()
        with open(os.path.join(running.folder, "fencegate.yaml")) as file:
            config = json.load(file)
        taken = config["gates"][0]
        free = taken | {"name": "free", "listen": f"{LOOPBACK}:{free_port()}"}
        self.assert_does_not_start(config | {"gates": [free]})  # the admin listener's port is taken
        self.assert_does_not_start(config | {"gates": [free, taken], "admin": {"listen": f"{LOOPBACK}:{free_port()}"}})


class Backend(OperationsTest):
    def test_a_client_that_comes_before_the_backend_has_answered_waits(self):
        redis = self.start(RedisServer())
        os.kill(redis.pid, signal.SIGSTOP)
        try:
            gate = Gate(redis)
            gate.needs_backend = False
            self.start(gate)
            client = self.start(Resp(gate.address))
            client.send_command("CLIENT", "SETNAME", "fence:orders=33")
        finally:
            os.kill(redis.pid, signal.SIGCONT)
        self.assertEqual(client.reply(), b"OK")

    def attempt(self, gate, *command):
        """The answer on a connection of its own, or None when it was closed."""
        try:
            with Resp(gate.address, name="fence:orders=34", timeout=PATIENCE) as client:
                return client.call(*command)
        except TimeoutError:
            raise AssertionError("neither an answer nor an end") from None
        except OSError:
            return None

    def test_a_backend_that_dies_and_returns(self):
        redis, gate = self.servers()
        client = self.client(gate)
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(gate.metric("backend_up"), 1)
        redis.kill()
        self.assertTrue(client.closed(), "what a connection carried is gone with its backend connection")
        eventually(lambda: gate.metric("backend_up") == 0)
        self.assertEqual(gate.http("/readyz")[0], 200, "a backend's hiccup must not evict the pod")
        reply = self.attempt(gate, "SET", "k", "w")
        if reply is not None:
            self.assert_error(reply, "FENCEDOWN")
        self.assertIn("backend", gate.log())
        redis.restart()
        eventually(lambda: self.attempt(gate, "SET", "k", "x") == b"OK")
        eventually(lambda: gate.metric("backend_up") == 1)
        self.assertEqual(redis.cli.call("GET", "k"), b"x")

    def test_a_write_of_unknown_outcome_closes_the_connection(self):
        redis = self.start(RedisServer())
        proxy = self.start(CutProxy(redis.port))
        gate = self.start(Gate(proxy))
        client = self.client(gate)
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        proxy.freeze()
        client.send(encode("INCR", "n") * 3)
        eventually(lambda: gate.metric("requests_total", **{"class": "write"}) >= 2)
        proxy.cut_all()
        proxy.thaw()
        with self.assertRaises(ConnectionError):  # no answer that claims to know
            client.reply()
        eventually(lambda: self.attempt(gate, "PING") == b"PONG")
        # The proxy has dropped what was sent, so anything there would have been sent a second time.
        self.assertIsNone(redis.cli.call("GET", "n"))

    def test_a_backend_that_comes_up_after_the_gate(self):
        redis, gate = self.servers()
        redis.kill()
        gate.needs_backend = False
        gate.restart()
        self.assertEqual(gate.metric("backend_up"), 0)
        redis.start()
        eventually(lambda: self.attempt(gate, "SET", "k", "v") == b"OK")

    def test_a_backend_that_accepts_nobody_is_given_up(self):
        gate = Gate(self.start(SilentPort()), extra={"timeouts": {"connect": "500ms"}})
        gate.needs_backend = False
        self.start(gate)
        eventually(lambda: "connecting took too long" in gate.log())
        for command in (("SET", "k", "v"), ("GET", "k")):
            with Resp(gate.address, timeout=PATIENCE) as client:
                self.assertIn("took too long", str(client.call(*command)))
                self.assertTrue(client.closed())

    def test_a_backend_that_turns_it_away_is_asked_less_and_less_often(self):
        with socket.create_server((LOOPBACK, free_port())) as backend:
            gate = Gate(types.SimpleNamespace(address=backend.getsockname()[1]), threads=1)
            gate.needs_backend = False
            self.start(gate)
            backend.settimeout(PATIENCE)
            attempts = []
            for _ in range(7):  # one of them asks for hazards
                backend.accept()[0].close()
                attempts.append(time.monotonic())
        # From 50 ms on, doubled each time; a machine that is busy only adds to it.
        self.assertGreater(attempts[-1] - attempts[0], 0.05 + 0.1 + 0.2 + 0.4)

    def test_what_commands_mean_is_asked_anew_of_a_new_server(self):
        class Changing(CutProxy):
            """In front of a server that is asked something else in place of COMMAND."""

            asked = encode("COMMAND", "INFO", "set")  # tells of one command only

            def change(self, data):
                return data.replace(encode("COMMAND"), self.asked)

        proxy = self.start(Changing(self.start(RedisServer()).port))
        gate = self.start(Gate(proxy))

        def get():
            with contextlib.suppress(OSError), Resp(gate.address, timeout=PATIENCE) as client:
                return client.call("GET", "k")
            return "closed"

        self.assert_error(get(), "FENCEMISSING")  # what is unknown is a write
        proxy.asked = encode("COMMAND")
        proxy.cut_all()
        eventually(lambda: get() is None)
        proxy.asked = encode("COMMAND", "NOSUCH")  # then what is known of the server before does not count
        proxy.cut_all()
        eventually(lambda: "COMMAND failed" in str(self.attempt(gate, "SET", "k", "v")))
        proxy.asked = encode("COMMAND")
        eventually(lambda: self.attempt(gate, "SET", "k", "v") == b"OK")

    def test_a_gate_that_may_not_sign_in_does_not_go_on_as_somebody_else(self):
        redis = self.start(RedisServer())  # whose default user may do everything
        redis.cli.call("ACL", "SETUSER", "gate", "on", ">right", "~*", "&*", "+@all")
        gate = Gate(redis, user="gate", password="left")
        gate.needs_backend = False
        self.start(gate)
        eventually(lambda: "refused the gate's own user" in str(self.attempt(gate, "SET", "k", "v")))
        self.assertEqual(redis.cli.call("EXISTS", "k"), 0)
        redis.cli.call("ACL", "SETUSER", "gate", ">left")
        eventually(lambda: self.attempt(gate, "SET", "k", "v") == b"OK")

    def test_an_unfit_backend_takes_no_writes(self):
        redis, gate = self.servers()
        client = self.client(gate)
        self.assertEqual(redis.cli.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"), b"OK")
        redis.cli.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        self.assertTrue(client.closed())
        # Sees it at each reconnect at the latest.
        eventually(lambda: isinstance(self.attempt(gate, "SET", "k", "v"), RespError))
        self.assert_error(self.attempt(gate, "SET", "k", "v"), "FENCEDOWN")
        self.assertEqual(redis.cli.call("EXISTS", "k"), 0)
        redis.cli.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        eventually(lambda: self.attempt(gate, "SET", "k", "v") == b"OK")


class HalfClosed(OperationsTest):
    def test_a_client_that_says_nothing_more_hears_its_answers_while_the_mark_rises(self):
        redis = self.start(RedisServer())
        proxy = self.start(CutProxy(redis.port))
        gate = self.start(Gate(proxy, threads=1))
        proxy.delay = 0.2
        client = self.start(Resp(gate.address))
        client.send(encode("CLIENT", "SETNAME", "fence:orders=34") + encode("SET", "k", "v"))
        client.sock.shutdown(socket.SHUT_WR)
        self.assertEqual([client.reply(), client.reply()], [b"OK", b"OK"])
        self.assertTrue(client.closed())
        self.assertEqual(redis.cli.call("GET", "k"), b"v")


class Full(OperationsTest):
    def test_a_new_holder_frees_memory(self):
        redis = self.start(RedisServer(maxmemory="4mb", maxmemory_policy="noeviction"))
        gate = self.start(Gate(redis))
        old = self.client(gate)
        self.assertEqual(old.call("SET", "k", "v"), b"OK")
        for number in range(10_000):
            if isinstance(redis.cli.call("SET", f"fill:{number}", b"x" * 4096), RespError):
                break
        self.assert_error(old.call("SET", "more", b"x" * 65536), "OOM")
        self.assertEqual(old.call("DEL", "fill:0"), 1)
        redis.cli.call("CONFIG", "SET", "maxmemory", "1mb")
        new = self.start(Resp(gate.address, name="fence:orders=35"))
        self.assertEqual(new.named, b"OK")
        self.assertEqual(new.call("DEL", "fill:1"), 1)
        self.assert_error(old.call("DEL", "fill:2"), "FENCED")


class Secrets(OperationsTest):
    def test_neither_passwords_nor_values_are_logged(self):
        redis = self.start(RedisServer(requirepass="gate-word"))
        redis.cli.call("ACL", "SETUSER", "app", "on", ">app-word", "~*", "&*", "+@all")
        gate = self.start(Gate(redis, password="gate-word", process={"log": {"level": "debug", "format": "json"}}))
        new = self.client(gate, user="app", password="app-word")
        with Resp(gate.address, name="fence:orders=33", proto=3, user="app", password="app-word") as old:
            for command in (("SET", "k", "a-value"), ("AUTH", "wrong-word"), ("AUTH", "app", "wrong-word"),
                            ("HELLO", "3", "AUTH", "app", "wrong-word"), ("CONFIG", "SET", "requirepass", "new-word"),
                            ("FENCE", "CALL", "orders", "33", "SET", "k", "a-value"), ("NOSUCH", "a-value")):
                self.assertIsInstance(old.call(*command), RespError)
            old.send(b'SET k "a-value\r\n')
            self.assertTrue(old.closed())
        new.send(encode("SET", "k", "a-value"))
        redis.kill()
        self.assertTrue(new.closed())
        eventually(lambda: gate.metric("backend_up") == 0)
        self.assertIn("stale", gate.log())
        self.assertNotRegex(gate.log(), "-word|a-value")

    def test_one_that_was_forgotten_is_asked_for(self):
        gate = Gate(self.start(RedisServer(requirepass="gate-word")))
        gate.needs_backend = False
        self.start(gate)
        eventually(lambda: "Redis wants a password" in gate.log())


class Limits(OperationsTest):
    def test_connections_max(self):
        _, gate = self.servers(extra={"connections_max": 3})
        clients = [self.client(gate) for _ in range(3)]
        with Resp(gate.address) as one_too_many:  # is told why, then closed
            self.assertIn("ERR max number of clients reached (connections_max of", str(one_too_many.reply()))
            self.assertTrue(one_too_many.closed())
        self.assertGreaterEqual(gate.metric("connections_rejected_total", reason="limit"), 1)
        clients.pop().close()
        eventually(lambda: gate.metric("connections") == 2)
        self.client(gate)
        for client in clients:
            self.assertEqual(client.call("PING"), b"PONG")

    def test_a_storm_of_one_tag_leaves_room_for_another(self):
        _, gate = self.servers(extra={"connections_max": 16})
        storm = [self.client(gate) for _ in range(14)]
        for binds in (("CLIENT", "SETNAME", "fence:orders=34"), ("FENCE", "SET", "orders", "34")):
            with Resp(gate.address) as late:
                self.assertIn("ERR max number of clients reached (connections_max of gate", str(late.call(*binds)))
                self.assertTrue(late.closed())
        self.assertEqual(gate.metric("connections_rejected_total", reason="limit"), 2)
        eventually(lambda: gate.metric("connections") == 14)
        storm.pop().close()
        eventually(lambda: gate.metric("connections") == 13)
        storm.append(self.client(gate))
        for client in storm:
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
        for tag in ("stock=1", "orders=35"):  # the next holder
            with Resp(gate.address, name=f"fence:{tag}") as other:
                self.assertEqual(other.call("SET", "s", "1"), b"OK")
        for client in storm:
            self.assertIn("FENCED ", str(client.call("SET", "k", "v")))

    def test_a_silent_client_is_cut_after_the_idle_timeout(self):
        _, gate = self.servers(extra={"timeouts": {"idle": "700ms"}})
        self.assertTrue(self.client(gate).closed())

    def test_a_client_that_waits_for_an_answer_is_not_idle(self):
        redis, gate = self.servers(extra={"timeouts": {"idle": "2s"}})
        client = self.client(gate)
        client.send_command("BLPOP", "queue", "0")
        self.assertFalse(client.closed(4))
        redis.cli.call("RPUSH", "queue", "job")
        client.sock.settimeout(PATIENCE)
        self.assertEqual(client.reply(), [b"queue", b"job"])

    def test_half_a_command_is_cut_after_the_head_timeout(self):
        _, gate = self.servers(extra={"timeouts": {"head": "700ms"}})
        client = self.client(gate)
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\n")
        self.assertTrue(client.closed())
        patient = self.client(gate)
        self.assertFalse(patient.closed(2), "between commands there is no head to wait for")

    def test_the_head_timeout_stands_still_while_the_gate_does_not_read(self):
        redis, gate = self.servers(extra={"timeouts": {"head": "700ms"}})
        client = self.client(gate)
        commands = 30_000
        data = encode("SET", "k", b"x" * 1000) * commands
        redis.stop_process()
        try:
            sender = threading.Thread(target=client.send, args=(data,))
            sender.start()
            self.assertRaises(TimeoutError, self.recv_within, client, 3)
        finally:
            redis.continue_process()
        client.sock.settimeout(PATIENCE)
        self.assertEqual({client.reply() for _ in range(commands)}, {b"OK"})
        sender.join()

    @staticmethod
    def recv_within(client, seconds):
        client.sock.settimeout(seconds)
        return client.sock.recv(1)

    def test_half_a_command_behind_whole_ones_is_a_new_one(self):
        _, gate = self.servers(extra={"timeouts": {"head": "1s"}})
        client = self.client(gate)
        command = encode("SET", "k", "v")
        client.send(command[:5])
        for _ in range(6):  # each piece ends one command and begins the next
            time.sleep(0.4)
            client.send(command[5:] + command[:5])
            self.assertEqual(client.reply(), b"OK")

    def test_a_client_that_never_reads_is_cut_after_the_write_timeout(self):
        redis, gate = self.servers(extra={"timeouts": {"write": "1s"}})
        redis.cli.call("SET", "big", b"x" * MIB)
        client = self.client(gate)
        with contextlib.suppress(OSError):
            client.send(encode("GET", "big") * 64)
        eventually(lambda: gate.metric("connections") == 0)

    def test_a_redis_that_takes_nothing_is_given_up_after_the_write_timeout(self):
        redis, gate = self.servers(extra={"timeouts": {"write": "1s"}})
        client, other = self.client(gate), self.client(gate)
        large = LargeValue(client, 200 * MIB)
        redis.stop_process()
        try:
            with contextlib.suppress(OSError):  # it may be closed in the middle
                self.assertLess(large.send_what_is_taken(), RSS_MAX)
            self.assertTrue(client.closed())
            eventually(lambda: gate.metric("connections") == 1)  # the other's link has nothing to send
        finally:
            redis.continue_process()
        self.assertEqual(other.call("GET", "big"), b"before")

    def test_every_gauge_returns_to_zero(self):
        _, gate = self.servers()
        clients = [self.client(gate) for _ in range(20)]
        self.assertEqual(gate.metric("connections"), 20)
        for number, client in enumerate(clients):
            client.send_command("SET", "k", "v")
            client.reset() if number % 2 else client.close()
        eventually(lambda: gate.metric("connections") == 0)


class Memory(OperationsTest):
    def assert_small(self, gate):
        if "FENCEGATE_SANITIZED" not in os.environ:  # a sanitizer keeps what was freed, and shadows what is used
            self.assertLess(gate.rss_bytes_max(), RSS_MAX)

    def test_a_value_of_256_mb_streams_both_ways(self):
        redis, gate = self.servers()
        client = self.client(gate, timeout=120)
        piece, pieces = bytes(range(256)) * 4096, 256
        client.send(b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n" % (len(piece) * pieces))
        for _ in range(pieces):
            client.send(piece)
        client.send(b"\r\n")
        self.assertEqual(client.reply(), b"OK")
        self.assertEqual(redis.cli.call("STRLEN", "big"), len(piece) * pieces)
        client.send_command("GET", "big")
        value = client.reply()
        self.assertEqual(len(value), len(piece) * pieces)
        self.assertTrue(all(value[at : at + len(piece)] == piece for at in range(0, len(value), len(piece))))
        self.assert_small(gate)

    def test_a_redis_that_takes_nothing_holds_the_client_back(self):
        redis, gate = self.servers()
        client = self.client(gate, timeout=120)
        large = LargeValue(client, 200 * MIB)
        redis.stop_process()
        try:
            sent = large.send_what_is_taken()
            self.assertLess(sent, RSS_MAX, "the client is read although Redis takes nothing")
            self.assert_small(gate)
        finally:
            redis.continue_process()
        large.send_rest()
        self.assertEqual(client.reply(), b"OK")
        self.assertEqual(redis.cli.call("STRLEN", "big"), 200 * MIB)
        self.assert_small(gate)

    def test_a_stale_value_of_64_mb_is_swallowed_not_stored(self):
        redis, gate = self.servers()
        old = self.client(gate)
        self.assertEqual(self.start(Resp(gate.address, name="fence:orders=35")).named, b"OK")
        reply = old.call("SET", "big", b"x" * (64 * MIB))
        self.assert_error(reply, "FENCED")
        self.assertEqual(redis.cli.call("EXISTS", "big"), 0)
        self.assertEqual(old.call("PING"), b"PONG")
        self.assert_small(gate)

    def test_a_slow_reader_is_not_buffered_without_end(self):
        redis, gate = self.servers()
        redis.cli.call("SET", "big", b"x" * MIB)
        slow, other = self.client(gate), self.client(gate)
        slow.send(encode("GET", "big") * 300)
        for _ in range(200):  # the others are served meanwhile, as soon as Redis answers anybody
            self.assertTrue(eventually(lambda: other.call("SET", "k", "v") == b"OK"))
        self.assert_small(gate)
        for _ in range(300):
            self.assertEqual(len(slow.reply()), MIB)
        self.assert_small(gate)

    def test_clients_that_read_late_are_turned_away_before_the_memory_is_full(self):
        redis, gate = self.servers()
        value, asked = b"x" * 8192, 4000
        redis.cli.call("SET", "value", value)
        clients = [self.client(gate, timeout=120) for _ in range(8)]
        other = self.client(gate)
        senders = [threading.Thread(target=one.send, args=((encode("SET", "k", "v") + encode("GET", "value")) * asked,)) for one in clients]
        for sender in senders:
            sender.start()
        for sender in senders:  # the gate takes all of it, whether or not it is read
            sender.join()
        self.assertEqual(other.call("SET", "k", "v"), b"OK", "whoever reads is served")
        if "FENCEGATE_SANITIZED" not in os.environ:
            self.assertLess(gate.rss_bytes_max(), 200 * MIB)
        turned_away = 0
        for one in clients:
            replies = [one.reply() for _ in range(2 * asked)]
            good = next((at for at, reply in enumerate(replies) if reply != (value if at % 2 else b"OK")), 2 * asked)
            for reply in replies[good:]:
                self.assert_error(reply, "FENCEDOWN")
            turned_away += good < 2 * asked
            if good < 2 * asked:
                self.assertTrue(one.closed(), "commands behind a rejected one could mean something else")
            else:
                self.assertEqual(one.call("PING"), b"PONG")
        self.assertGreater(turned_away, 0)
        self.assertEqual(other.call("SET", "k", "v"), b"OK")

    def test_many_clients_that_read_late_hold_no_more_than_few(self):
        redis = self.start(RedisServer())
        gate = self.start(Gate(redis, unix=True))  # whose sockets hold the same everywhere
        value = b"x" * (600 * 1024)
        redis.cli.call("SET", "value", value)
        late = [self.client(gate) for _ in range(700)]
        other = self.client(gate)
        for one in late:
            one.send_command("GET", "value")
        eventually(lambda: redis.calls("get") >= len(late))
        sizes = [0]
        eventually(lambda: sizes.append(gate.rss_bytes()) or sizes[-1] == sizes[-2], every=0.2)  # it takes no more of them
        if "FENCEGATE_SANITIZED" not in os.environ:
            self.assertLess(gate.rss_bytes_max(), 150 * MIB)
        for _ in range(10):
            self.assertEqual(other.call("GET", "value"), value)
        self.assertEqual(other.call("SET", "k", "v"), b"OK", "whoever reads is served")
        late[0].send(encode("SET", "k", "late") * 100)  # and nothing is in the way of whoever only sends
        eventually(lambda: gate.metric("checks_total", outcome="unavailable") == 100)
        self.assertEqual(late[0].reply(), value)
        for reply in [late[0].reply() for _ in range(100)]:
            self.assert_error(reply, "FENCEDOWN")
        self.assertTrue(late.pop(0).closed())
        for one in late:
            self.assertEqual(one.reply(), value)
            self.assertEqual(one.call("PING"), b"PONG", "it was only late")
        self.assertEqual(redis.cli.call("GET", "k"), b"v")

    def test_rejections_that_nobody_reads_take_no_room(self):
        # The last of them are read late.
        redis, gate = self.servers(extra={"timeouts": {"write": "10m"}})
        redis.cli.call("SET", "fencegate:mark:{orders}", "34")
        clients = [self.start(Resp(gate.address, name="fence:orders=33", timeout=120)) for _ in range(8)]
        asked = 300_000
        writes = encode("SET", "k", "v") * asked
        senders = [threading.Thread(target=one.send, args=(writes,)) for one in clients]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        other = self.client(gate)
        self.assertEqual(other.call("SET", "k", "v"), b"OK")
        for client in clients:  # the first ones may have sent all of it in time
            codes = [client.reply().code for _ in range(asked)]
            self.assertEqual(codes, sorted(codes, key=len), "it is turned away once, and for good")
            if codes[-1] == "FENCEDOWN":
                break
        self.assertEqual({codes[0], codes[-1]}, {"FENCED", "FENCEDOWN"})
        self.assertTrue(client.closed())
        if "FENCEGATE_SANITIZED" not in os.environ:
            self.assertLess(gate.rss_bytes_max(), 150 * MIB)

    def test_a_pipeline_of_100_000_writes_sent_before_any_reply_is_read(self):
        redis, gate = self.servers()
        client = self.client(gate, timeout=120)
        client.send(encode("INCR", "n") * 100_000)
        self.assertEqual([client.reply() for _ in range(100_000)], list(range(1, 100_001)))
        self.assertEqual(redis.cli.call("GET", "n"), b"100000")
        self.assert_small(gate)

    def test_a_mixed_pipeline_keeps_its_order(self):
        _, gate = self.servers()
        client = self.client(gate, timeout=120)
        commands, expected = [], []
        for number in range(20_000):
            commands += [("SET", "k", number), ("GET", "k"), ("PING", f"p{number}")]
            expected += [b"OK", b"%d" % number, b"p%d" % number]
        self.assertEqual(client.pipeline(commands), expected)

    def test_many_clients_at_once(self):
        redis, gate = self.servers()
        clients = [self.client(gate) for _ in range(200)]
        threads = [threading.Thread(target=client.pipeline, args=([("INCR", "n")] * 50,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(redis.cli.call("GET", "n"), b"10000")
        self.assert_small(gate)


class UnixSockets(LiveTest):
    def test_both_sides(self):
        redis = self.start(RedisServer(unix=True))
        gate = self.start(Gate(redis, unix=True))
        old = self.start(Resp(gate.address, name="fence:orders=33"))
        self.assertEqual(old.call("SET", "k", "v"), b"OK")
        new = self.start(Resp(gate.address, name="fence:orders=34"))
        self.assertEqual(new.named, b"OK")
        self.assert_error(old.call("SET", "k", "stale"), "FENCED")
        self.assertEqual(redis.cli.call("GET", "k"), b"v")
        gate.terminate()
        self.assertEqual(gate.wait(30), 0)

    def test_restarts_over_a_socket_that_a_killed_gate_left(self):
        redis = self.start(RedisServer(unix=True))
        gate = self.start(Gate(redis, unix=True))
        gate.restart()  # killed: the file is still there
        with Resp(gate.address, name="fence:orders=34") as client:
            self.assertEqual(client.call("SET", "k", "v"), b"OK")


if __name__ == "__main__":
    main(at_once=3)
