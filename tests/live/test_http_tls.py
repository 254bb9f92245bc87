"""TLS between HTTP gates and the service behind them."""

import contextlib
import os
import socket
import ssl
import threading

from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from processes import LOOPBACK, connect, eventually, free_port
from redis_server import RedisServer
from tls import Certificates, Load, PlainServer, Recorder, replace

ROUTES = [{"match": "PUT /orders/{id}", "resource": "order:{id}"}]
BIG = (20 if "FENCEGATE_SANITIZED" in os.environ else 100) * 1024 * 1024  # in the time that a body may take


class TlsUpstream(Upstream):
    """The same behind TLS; `own`: (certificate, key)."""

    def __init__(self, own, clients=None):
        super().__init__()
        self.clients = clients
        self.show(*own)

    def show(self, certificate, key):
        """To whoever connects from now on. A context at work takes no other certificate: OpenSSL reads it without a lock."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if self.clients:
            context.load_verify_locations(self.clients)
            context.verify_mode = ssl.CERT_REQUIRED
        self.context = context

    def __enter__(self):
        super().__enter__()
        self.server.handle_error = lambda *_: None  # of handshakes that fail
        accept = self.server.get_request
        self.server.get_request = lambda: self._secured(*accept())
        return self

    def _secured(self, client, address):
        return self.context.wrap_socket(client, server_side=True, do_handshake_on_connect=False), address


class SecuredGate(HttpGate):
    def __init__(self, upstream, url, *rest, **options):
        super().__init__(upstream, *rest, **options)
        self.url = url

    def upstream_url(self):
        return self.url


class HttpTls(Certificates, LiveTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.redis = cls.enterClassContext(RedisServer())

    def setUp(self):
        self.redis.cli.call("FLUSHALL")

    def gate(self, upstream, parameters=None, host="localhost", port=None, **options):
        url = f"https://{host}:{port or upstream.port}{self.checked if parameters is None else parameters}"
        return self.start(SecuredGate(upstream, url, {"marks": f"redis://{LOOPBACK}:{self.redis.port}"}, ROUTES, **options))


class WhatTheServiceMustProve(HttpTls):
    def refused(self, gate, words):
        status, _, body = gate.request("PUT", "/orders/7", b"x", token=34)
        self.assertEqual(status, 503)
        self.assertIn(words, body.decode())

    def test_each_mode(self):
        upstream = self.start(TlsUpstream(self.own))
        for parameters in ("?sslmode=require", self.checked + "&sslmode=verify-ca", self.checked):
            self.assertEqual(self.gate(upstream, parameters).request("PUT", "/orders/7", b"x", token=34)[0], 200)
        self.assertEqual(len(upstream.seen("PUT")), 3)

    def test_what_is_not_accepted(self):
        upstream = self.start(TlsUpstream(self.own))
        self.refused(self.gate(upstream, host=LOOPBACK), "IP address mismatch")
        self.refused(self.gate(upstream, f"?cafile={self.rogue.certificate}"), "unable to get local issuer certificate")
        old = self.start(TlsUpstream(self.authority.issue("expired", "DNS:localhost", days=-1)))
        self.refused(self.gate(old), "certificate has expired")
        other = self.start(TlsUpstream(self.authority.issue("other", "DNS:other.example")))
        self.refused(self.gate(other), "hostname mismatch")
        for one in (upstream, old, other):
            self.assertEqual(one.seen(), [])

    def test_a_service_without_tls_hears_nothing(self):
        plain = self.start(PlainServer(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        self.refused(self.gate(plain), "TLS: the server does not speak it")
        self.assertLessEqual({one[:1] for one in plain.came}, {b"\x16", b"\x15"})  # handshakes and alerts
        self.assertNotIn(b"orders", b"".join(plain.came))

    def test_the_gates_own_certificate(self):
        upstream = self.start(TlsUpstream(self.own, clients=self.authority.certificate))
        status = self.gate(upstream).request("PUT", "/orders/7", b"x", token=34)[0]
        self.assertIn(status, (502, 503))  # TLS 1.3 tells it behind the handshake
        certificate, key = self.authority.issue("gate")
        gate = self.gate(upstream, f"{self.checked}&cert={certificate}&key={key}")
        self.assertEqual(gate.request("PUT", "/orders/7", b"x", token=34)[0], 200)

    def test_certificates_are_replaced_under_load(self):
        trusted = os.path.join(self.folder, "trusted.crt")
        first, second = (open(one.certificate, "rb").read() for one in (self.authority, self.rogue))
        replace(trusted, first)
        upstream = self.start(TlsUpstream(self.own))
        gate = self.gate(upstream, f"?cafile={trusted}")
        write = lambda: gate.request("PUT", "/orders/7", b"x", token=34)[0]  # noqa: E731
        with Load(write, lambda status: status == 200) as load:
            replace(trusted, first + second)
            load.some_more()
            upstream.show(*self.rogue.issue("server", "DNS:localhost"))
            load.some_more()
            replace(trusted, second)
            load.some_more()
        self.assertEqual(load.wrong, [])
        self.assertEqual(len(upstream.seen("PUT")), len(load.done))


class WhatGoesThrough(HttpTls):
    def test_a_takeover(self):
        upstream = self.start(TlsUpstream(self.own))
        gate = self.gate(upstream)
        self.assertEqual(gate.request("PUT", "/orders/7", b"old", token=34)[0], 200)
        self.assertEqual(gate.request("PUT", "/orders/7", b"new", token=35)[0], 200)
        self.assertEqual(gate.request("PUT", "/orders/7", b"old", token=34)[0], 412)
        self.assertEqual([one[3] for one in upstream.seen("PUT")], [b"old", b"new"])

    def test_nothing_can_be_read_on_the_way(self):
        upstream = self.start(TlsUpstream(self.own))
        recorder = self.start(Recorder(upstream.port))
        gate = self.gate(upstream, port=recorder.port)
        self.assertEqual(gate.request("PUT", "/orders/not-for-others", b"nor-this", token=34)[0], 200)
        self.assertGreater(len(recorder.seen), 2)
        for readable in (b"not-for-others", b"nor-this", b"HTTP/1", b"Fencing"):
            self.assertNotIn(readable, recorder.bytes())

    def test_a_huge_body(self):
        upstream = self.start(TlsUpstream(self.own))
        gate = self.gate(upstream)
        body = os.urandom(1 << 20) * (BIG >> 20)
        self.assertEqual(gate.request("PUT", "/orders/7", body, token=34)[0], 200)
        self.assertEqual(upstream.seen("PUT")[0][3], body)

    def answering(self, *pieces, goodbye):
        """A service that answers each connection with these bytes, and ends it with TLS's own end or without."""
        listener = socket.create_server((LOOPBACK, free_port()))
        self.addCleanup(listener.close)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.own)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    with context.wrap_socket(listener.accept()[0], server_side=True) as link:
                        link.recv(1 << 16)
                        for piece in pieces:
                            link.sendall(piece)
                        if goodbye:
                            with contextlib.suppress(OSError):
                                link.unwrap()

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    def test_what_ends_with_the_connection_may_be_cut_off(self):
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        for goodbye in (True, False):
            port = self.answering(head, b"half or ", b"whole", goodbye=goodbye)
            gate = self.gate(None, port=port)
            got = gate.raw(b"GET /orders/7 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            self.assertEqual(got.endswith(b"0\r\n\r\n"), goodbye, got)

    def test_a_client_that_reads_late(self):
        body = b"y" * (30 * 1024 * 1024)
        port = self.answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body, goodbye=True)
        gate = self.gate(None, port=port)
        with connect(gate.address) as client:
            client.sendall(b"GET /orders/7 HTTP/1.1\r\nHost: h\r\n\r\n")
            head = client.recv(1000)
            eventually(lambda: gate.rss_bytes() > 0 and self.unmoved(gate))
            count = len(head.split(b"\r\n\r\n", 1)[1])
            while count < len(body):
                count += len(client.recv(1 << 20))
        self.assertEqual(count, len(body))

    def unmoved(self, gate):
        """Nothing goes on: all sides wait for the client."""
        with open(f"/proc/{gate.pid}/io") as file:
            now = file.read()
        before, self.before = getattr(self, "before", None), now
        return before == now


if __name__ == "__main__":
    main(at_once=2)
