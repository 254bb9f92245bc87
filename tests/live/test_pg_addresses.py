"""An upstream whose name stands for several addresses; above all, where a CancelRequest goes then."""

import contextlib
import os
import socket
import subprocess
import tempfile

from live_test import LiveTest, main
from pg_wire import Wire, cancel_request, fields, query
from postgres import PgGate, PostgresServer
from processes import LOOPBACK, PATIENCE, connect, eventually

STRANGER = "127.0.0.2"
NAME = "several.test"

# What a resolver with several addresses for a name does to a process, without a change of the machine.
RESOLVER = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
typedef int resolve(const char*, const char*, const struct addrinfo*, struct addrinfo**);
int getaddrinfo(const char* name, const char* port, const struct addrinfo* hints, struct addrinfo** found) {{
  resolve* next = (resolve*)dlsym(RTLD_NEXT, "getaddrinfo");
  if (name == NULL || strcmp(name, "{NAME}") != 0) return next(name, port, hints, found);
  int failed = next("{STRANGER}", port, hints, found);
  return failed ? failed : next("{LOOPBACK}", port, hints, &(*found)->ai_next);
}}
"""


class GateOfSeveral(PgGate):
    """Its upstream is a name, for the stranger's address and then the server's."""

    def __init__(self, server, library):
        super().__init__(server, policy={"missing_token": "allow"}, upstream_host=NAME)  # up when it has reached it itself
        self.library = library

    def command(self):
        asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return ["env", f"LD_PRELOAD={self.library}", f"ASAN_OPTIONS={asan}"] + super().command()


class SeveralServers(LiveTest):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.library = os.path.join(folder, "resolver.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", cls.library, "-ldl"], input=RESOLVER, text=True,
                       check=True)

    def setUp(self):
        self.server = self.start(PostgresServer())
        self.server.install()
        self.server.user("alice")
        self.gate = self.start(GateOfSeveral(self.server, self.library))

    def session(self):
        """A session that sleeps, and with what it is cancelled."""
        wire = self.start(Wire(self.gate.address, user="alice"))
        key = next(body for kind, body in wire.until_ready() if kind == b"K")
        wire.send(query("SELECT pg_sleep(60)"))
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
        return wire, cancel_request(int.from_bytes(key[:4], "big"), key[4:])

    def stranger(self):
        """The first of the addresses answers from now on."""
        listener = self.start(socket.create_server((STRANGER, self.server.port)))
        listener.settimeout(PATIENCE)
        return listener

    def assert_reaches(self, stranger, request):
        with contextlib.closing(connect(self.gate.address)) as asks:
            asks.sendall(request)
            with contextlib.closing(stranger.accept()[0]) as asked:
                asked.settimeout(PATIENCE)
                self.assertEqual(asked.recv(1 << 10), request)

    def test_it_goes_to_the_server_of_its_session(self):
        wire, request = self.session()
        stranger = self.stranger()
        with contextlib.closing(connect(self.gate.address)) as asks:
            asks.sendall(request)
            self.assertEqual([fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"], ["57014"])
        stranger.settimeout(0)
        self.assertRaises(BlockingIOError, stranger.accept)

    def test_one_of_no_session_here_goes_where_a_new_session_would(self):
        wire, request = self.session()
        stranger = self.stranger()
        self.assert_reaches(stranger, request[:-1] + bytes([request[-1] ^ 1]))
        wire.sock.close()
        eventually(lambda: self.gate.metric("connections") == 0)
        self.assert_reaches(stranger, request)  # of a session that has ended


if __name__ == "__main__":
    main()
