"""The lock service of the tests, on the node: one lease on `orders`, a higher token for each grant; and the writers' reports
of what became of each write, past all gates."""

import http.server
import json
import threading
import time

LEASE_SECONDS = 3


class Locks:
    def __init__(self, address, port):
        self.address, self.port = address, port
        self.lock = threading.Lock()
        self.token, self.holder, self.until = 100, None, 0.0
        self.barred = None  # from the next grant
        self.reports = []

    def __enter__(self):
        locks = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with locks.lock:
                    answer = getattr(locks, "_" + self.path[1:])(**asked)
                data = json.dumps(answer).encode()
                self.send_response(200 if answer else 409)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # who asked was frozen or killed

        self.server = Server((self.address, self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def _acquire(self, pod):
        if time.monotonic() < self.until or pod == self.barred:
            return None
        self.barred = None
        self.token, self.holder, self.until = self.token + 1, pod, time.monotonic() + LEASE_SECONDS
        return {"token": self.token}

    def _renew(self, pod, token):
        if token != self.token or time.monotonic() >= self.until:
            return None
        self.until = time.monotonic() + LEASE_SECONDS
        return {"token": token}

    def _release(self, pod, token):
        if token == self.token:
            self.holder, self.until = None, 0.0
        return {"token": token}

    def _report(self, **report):
        self.reports.append(report)
        return report

    def of(self, pod=None, **fields):
        """The reports so far, of one pod or all, that have these fields."""
        with self.lock:
            return [one for one in self.reports
                    if pod in (None, one["pod"]) and all(one[key] == value for key, value in fields.items())]

    def forget(self):
        with self.lock:
            self.reports.clear()

    def revoke(self):
        """The lease ends, unnoticed by its holder until it renews; the next one is another's."""
        with self.lock:
            self.barred, self.holder, self.until = self.holder, None, 0.0
