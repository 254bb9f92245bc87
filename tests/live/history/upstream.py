"""What HTTP gates forward to: writes down, in a file, when it begins and when it ends each write, and takes its time.
Started by http_run.py.

    upstream.py PORT LOG SEED       PUT /KIND/RESOURCE with TOKEN:WRITER:SEQ as its body → lines of LOG:
                                        b RESOURCE TOKEN:WRITER:SEQ    it begins, and is done unless we are killed
                                        e RESOURCE TOKEN:WRITER:SEQ    it has ended, and its answer follows
                                    GET / → how many other connections there are"""

import http.server
import os
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from processes import LOOPBACK


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port, path, seed):
        super().__init__((LOOPBACK, port), Handler)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.open = 0

    def log(self, kind, resource, entry):
        with self.lock:
            os.write(self.file, f"{kind} {resource} {entry}\n".encode())

    def naps(self):
        """Before a write is done, and after it: mostly short, now and then longer than any grace."""
        with self.lock:
            return [self.random.expovariate(1 / (0.15 if self.random.random() < 0.1 else 0.004)) for _ in range(2)]

    def process_request_thread(self, request, client_address):
        with self.lock:
            self.open += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.open -= 1

    def handle_error(self, *_):
        """Gates are killed, and their connections cut."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_PUT(self):
        body = self.rfile.read(length := int(self.headers["Content-Length"]))
        if len(body) < length:
            return  # cut off: there was no whole write
        entry, resource = body.decode(), self.path.rsplit("/", 1)[1]
        before, after = self.server.naps()
        time.sleep(before)
        self.server.log("b", resource, entry)
        time.sleep(after)
        self.server.log("e", resource, entry)
        self.answer(b"done")

    def do_GET(self):
        with self.server.lock:
            others = self.server.open - 1
        self.answer(b"%d" % others)

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    Server(int(sys.argv[1]), sys.argv[2], sys.argv[3]).serve_forever()
