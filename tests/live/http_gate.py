"""An HTTP gate, an upstream that remembers what reached it, and requests as raw bytes."""

import contextlib
import http.client
import http.server
import json
import socket
import threading

from gate_process import GateProcess
from postgres import PostgresServer
from processes import LOOPBACK, PATIENCE, connect, free_port
from redis_server import RedisServer


class Upstream:
    """Answers 200 with what it got, as JSON; `requests` holds (method, target, headers, body) of all. What a test wants
    otherwise it says in the request's own headers: X-Status, X-Sleep-Until (an event's name in `events`)."""

    def __init__(self, address=LOOPBACK):
        self.address = address

    def __enter__(self):
        self.requests, self.events, self.lock = [], {}, threading.Lock()
        upstream = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                upstream.serve(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_PATCH = serve

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((self.address, free_port()), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        for event in self.events.values():
            event.set()
        self.server.shutdown()
        self.server.server_close()

    def event(self, name):
        return self.events.setdefault(name, threading.Event())

    def serve(self, handler):
        body = self._body(handler)
        with self.lock:
            self.requests.append((handler.command, handler.path, dict(handler.headers.items()), body))
        if name := handler.headers.get("X-Sleep-Until"):
            self.event(name).wait(PATIENCE)
        answer = json.dumps({"method": handler.command, "path": handler.path, "bytes": len(body)}).encode()
        with contextlib.suppress(OSError):
            handler.send_response(int(handler.headers.get("X-Status", 200)))
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(answer)))
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(answer)

    @staticmethod
    def _body(handler):
        if handler.headers.get("Transfer-Encoding") != "chunked":
            return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        parts = []
        while size := int(handler.rfile.readline(), 16):
            parts.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(parts)

    def seen(self, method=None):
        with self.lock:
            return [one for one in self.requests if method in (None, one[0])]


def start_services(case):
    """What gates stand in front of, for all tests of a class: .server with the fence and its user `gate`, .redis, .upstream."""
    case.server = case.enterClassContext(PostgresServer())
    case.server.user("gate")
    case.server.install(gate_users=["gate"])
    case.redis = case.enterClassContext(RedisServer(appendonly="yes"))
    case.upstream = case.enterClassContext(Upstream())


class HttpGate(GateProcess):
    """With one HTTP gate called "api". `stores`: {name: URL}. Further keyword arguments: see GateProcess."""

    name, protocol = "api", "http"

    def __init__(self, upstream, stores, routes, extra=None, **process):
        top = {"stores": {name: {"url": url} for name, url in stores.items()}} | process.pop("process", {})
        super().__init__({"routes": routes, "store": next(iter(stores))} | (extra or {}), process=top, **process)
        self.upstream = upstream
        # One to Redis on each thread, one to PostgreSQL.
        self.links = sum(self.process["threads"] if url.startswith("redis") else 1 for url in stores.values())

    def upstream_url(self):
        if path := getattr(self.upstream, "path", None):
            return f"unix://{path}"
        return f"http://{LOOPBACK}:{self.upstream.port}"

    def request(self, method, target, body=None, token=None, timeout=PATIENCE, **headers):
        """(status, headers, body)"""
        return self._request(self.port, method, target, body, token, timeout, headers)

    def admin_request(self, method, target, token=None, timeout=PATIENCE, **headers):
        """The same of the admin listener."""
        return self._request(self.admin_port, method, target, None, token, timeout, headers)

    @staticmethod
    def _request(port, method, target, body, token, timeout, headers):
        if token is not None:
            headers["Fencing-Token"] = str(token)
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout)
        try:
            connection.request(method, target, body, {key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers.items()), answer.read()
        finally:
            connection.close()

    def raw(self, data, timeout=PATIENCE):
        """Sends the bytes on a connection of their own and says that no more come; all that came back."""
        with connect(self.address, timeout) as sock:
            sock.sendall(data)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            parts = []
            with contextlib.suppress(ConnectionResetError):
                while part := sock.recv(1 << 16):
                    parts.append(part)
            said = b"".join(parts)
        # Asks a client that sends no more whether it still reads, where the answer takes a while.
        probe = b"HTTP/1.1 100 Continue\r\n\r\n"
        return said if b"expect:" in data.lower() else said.removeprefix(probe)
