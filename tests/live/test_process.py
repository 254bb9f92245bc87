"""The process itself: where its admin listener is, what signals do, what happens when it has no file descriptor left."""

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, connect, eventually, free_port
from redis_server import RedisServer
from resp import Resp, RespError


def listening_inodes():
    """Of all TCP sockets of this machine that listen."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as file:
            found |= {line.split()[9] for line in file.readlines()[1:] if line.split()[3] == "0A"}
    return found


def sockets_of(pid):
    folder = f"/proc/{pid}/fd"
    links = []
    for number in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(os.path.join(folder, number)))
    return {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}


def without_ipv6():
    """In a child: the kernel knows no AF_INET6 from here on (a filter of seccomp, x86-64 and arm64)."""
    number, arch = {"x86_64": (41, 0xC000003E), "aarch64": (198, 0xC00000B7)}[os.uname().machine]
    code = [(0x20, 0, 0, 4), (0x15, 0, 5, arch),  # architecture
            (0x20, 0, 0, 0), (0x15, 0, 3, number),  # socket(
            (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_INET6),
            (0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(program)
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.c_char_p(filter_), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


class WithoutIpv6(LiveTest):
    def test_each_interface_is_those_of_ipv4(self):
        admin, port = free_port(), free_port()
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            json.dump({"admin": {"listen": f":{admin}"}, "gates": [{"name": "cache", "protocol": "redis", "listen": f":{port}",
                                                                   "upstream": f"redis://{LOOPBACK}:{free_port()}"}]}, config)
            config.flush()
            gate = subprocess.Popen([os.environ["FENCEGATE"], "serve", "-c", config.name], stderr=subprocess.DEVNULL,
                                    preexec_fn=without_ipv6)
            self.addCleanup(gate.wait)
            self.addCleanup(gate.kill)
            wait = subprocess.run([os.environ["FENCEGATE"], "wait", "--admin", f"{LOOPBACK}:{admin}", "--seconds", "20"], check=False)
            self.assertEqual(wait.returncode, 0)
        connect(port).close()


class AdminOnAUnixSocket(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())

    def test_it_listens_there_and_on_no_port(self):
        gate = self.start(Gate(self.redis, unix=True, unix_admin=True, process={"drain_timeout": "5s"}))
        self.assertEqual(sockets_of(gate.pid) & listening_inodes(), set())
        self.assertEqual(gate.http("/livez"), (200, "alive\n"))
        self.assertIn("fencegate_connections", gate.http("/metrics")[1])
        self.assertEqual([gate.says("healthcheck"), gate.says("healthcheck", "--ready"), gate.says("wait")], [0, 0, 0])
        self.assertEqual([gate.says("quit"), gate.wait()], [0, 0])
        self.assertEqual([os.path.exists(path) for path in (gate.address, gate.admin_address)], [False, False])
        self.assertEqual([gate.says("healthcheck"), gate.says("quit")], [1, 1])

    def test_what_a_killed_one_left_behind_is_taken_over_and_what_is_in_use_is_not(self):
        gate = self.start(Gate(self.redis, unix_admin=True))
        gate.kill()
        self.assertTrue(os.path.exists(gate.admin_address))
        gate.start()
        second = Gate(self.redis, unix_admin=True)
        second.prepare = lambda: (Gate.prepare(second), self.same_admin(second, gate))
        with self.assertRaisesRegex(RuntimeError, "admin listener: .*admin.sock: it is in use"):
            second.__enter__()
        self.assertEqual(gate.http("/livez")[0], 200)

    @staticmethod
    def same_admin(gate, other):
        path = os.path.join(gate.folder, "fencegate.yaml")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace(gate.admin_listen, other.admin_listen))


class Signals(LiveTest):
    def test_none_ends_it_without_a_drain(self):
        gate = self.start(Gate(self.start(RedisServer())))
        client = self.start(Resp(gate.address, name="fence:orders=34"))
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(gate.pid, number)
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(gate.http("/readyz")[0], 200)


class NotifiedGate(Gate):
    """Its service manager listens at `manager`."""

    def __init__(self, *arguments, manager, **more):
        super().__init__(*arguments, **more)
        self.manager = manager

    def command(self):
        return ["env", f"NOTIFY_SOCKET={self.manager}", *super().command()]


class ServiceManager(LiveTest):
    """As systemd with Type=notify."""

    def setUp(self):
        self.redis = self.start(RedisServer())

    def listen(self, address):
        manager = self.start(contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
        manager.bind(address)
        manager.settimeout(PATIENCE)
        return manager

    def assert_told(self, manager, address):
        gate = self.start(NotifiedGate(self.redis, manager=address, process={"drain_timeout": "2s"}))
        self.assertIn("READY=1", manager.recv(4096).decode().splitlines())
        # At that moment, and not soon after.
        client = self.start(Resp(gate.address, name="fence:orders=34"))
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        gate.terminate()
        stopping = manager.recv(4096).decode().splitlines()
        self.assertIn("STOPPING=1", stopping)
        (extended,) = [int(line.split("=")[1]) for line in stopping if line.startswith("EXTEND_TIMEOUT_USEC=")]
        self.assertGreater(extended, 2_000_000)
        client.close()
        self.assertEqual(gate.wait(), 0)
        manager.setblocking(False)
        self.assertRaises(BlockingIOError, manager.recv, 4096)

    def test_is_told_at_a_path(self):
        path = os.path.join(self.redis.folder, "notify.sock")
        self.assert_told(self.listen(path), path)

    def test_is_told_at_an_abstract_name(self):
        name = f"fencegate-test-{os.getpid()}"
        self.assert_told(self.listen(f"\0{name}"), f"@{name}")

    def test_one_that_is_not_there_stops_nothing(self):
        for address in (os.path.join(self.redis.folder, "nobody.sock"), "nonsense", "/" + "x" * 200):
            gate = self.start(NotifiedGate(self.redis, manager=address))
            self.assertEqual(self.start(Resp(gate.address, name="fence:orders=34")).call("SET", "k", "v"), b"OK")
            (told,) = [line["detail"] for line in gate.log_lines() if line["msg"] == "the service manager is not told"]
            self.assertIn(f"NOTIFY_SOCKET {address}: ", told)


class FileDescriptors(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())

    def test_the_limit_is_raised_as_far_as_it_goes(self):
        gate = self.start(Gate(self.redis, files=(64, 300)))
        self.assertEqual(gate.metrics()["process_max_fds"], 300)

    def test_it_is_compared_with_what_clients_may_take(self):
        for most, said in ((150, []), (151, [(300, 302)])):
            gate = self.start(Gate(self.redis, files=(64, 300), extra={"connections_max": most}))
            self.assertEqual([(line["limit"], line["wanted"]) for line in gate.log_lines() if line["msg"] == "too few file descriptors"],
                             said)

    def test_without_one_clients_are_told_and_so_is_who_asks_for_readiness(self):
        gate = self.start(Gate(self.redis, files=(64, 64)))
        clients, told = [], None
        for _ in range(64):
            client = self.start(Resp(gate.address))  # else: neither an answer nor an end
            try:
                if isinstance(answer := client.call("PING"), RespError):
                    told = str(answer)
                    break
            except ConnectionError:
                break
            clients.append(client)
        self.assertGreater(len(clients), 10)
        for _ in range(20):  # whoever comes now
            with Resp(gate.address) as late:
                told = str(late.reply())
                self.assertTrue(late.closed())
            self.assertEqual(gate.http("/readyz"), (503, "out of file descriptors\n"))
            self.assertEqual(gate.http("/livez")[0], 200)
        self.assertIn("no file descriptor is left", told)
        self.assertGreater(gate.metric("connections_rejected_total", reason="files"), 10)
        self.assertEqual(clients[0].call("PING"), b"PONG")
        for client in clients:
            client.close()
        eventually(lambda: gate.http("/readyz")[0] == 200)
        self.assertEqual(self.start(Resp(gate.address, name="fence:orders=34")).call("SET", "k", "v"), b"OK")

    @unittest.skipIf("FENCEGATE_SANITIZED" in os.environ, "how many descriptors are left is another number")
    def test_clients_of_an_http_gate_are_told_too(self):
        routes = [{"match": "PUT /orders/{id}", "resource": "orders"}]
        gate = self.start(HttpGate(self.start(Upstream()), {"marks": f"redis://{LOOPBACK}:{self.redis.port}"}, routes, files=(64, 64)))
        for _ in range(64):
            self.start(contextlib.closing(connect(gate.address)))
        eventually(lambda: gate.metric("connections_rejected_total", reason="files") > 0)

        def told():
            self.start(contextlib.closing(connect(gate.address)))  # one may have become free
            status, headers, body = gate.request("GET", "/orders/7")
            return status == 503 and (headers["Content-Type"], body)
        kind, body = eventually(told)
        self.assertEqual(kind, "application/problem+json")
        self.assertIn(b"no file descriptor is left", body)
        self.assertEqual((gate.http("/readyz")[0], gate.http("/livez")[0]), (503, 200))


if __name__ == "__main__":
    main()
