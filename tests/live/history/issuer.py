"""A lock service for the test: hands out strictly increasing tokens per resource, to anyone who asks, at any moment.

It never asks the holder that loses the lease, which is the case that fencing exists for. Writers talk to it over TCP,
a line each way: `acquire RESOURCE` → token, or `stop` when the run is over; `landed RESOURCE TOKEN` (no answer) reports
the first acknowledged write under a token."""

import socketserver
import threading
from collections import Counter

from processes import LOOPBACK, free_port


class Issuer:
    def __enter__(self):
        self._lock = threading.Lock()
        self._last = Counter()
        self._landed = set()
        self.stopping = False
        issuer = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self):
                try:
                    for line in self.rfile:
                        self.wfile.write(issuer.answer(line.decode().split()))
                except OSError:
                    pass  # a killed writer

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

        self.port = free_port()
        self._server = Server((LOOPBACK, self.port), Connection)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, words):
        with self._lock:
            if words[0] == "landed":
                self._landed.add((words[1], int(words[2])))
                return b""
            if self.stopping:
                return b"stop\n"
            self._last[words[1]] += 1
            return b"%d\n" % self._last[words[1]]

    @property
    def takeovers(self):
        """New holders who got a write through; the first holder of a resource took nothing over."""
        with self._lock:
            return len(self._landed) - len({resource for resource, _ in self._landed})
