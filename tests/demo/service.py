"""The service behind HTTP gates of the demo and of docker/compose.yaml: keeps the body of the last PUT to each path, and a
log of all of them.

Usage: service.py PORT [ADDRESS]

PUT /files/7 answers 200, GET /files/7 the body of the last PUT, GET /files/7?log the tokens of all PUTs, in order.
"""

import http.server
import sys


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    written = {}  # path: [(token, body)]

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.written.setdefault(self.path, []).append((self.headers.get("Fencing-Token", "none"), body))
        self.answer(b"")

    def do_GET(self):
        path, _, query = self.path.partition("?")
        writes = self.written.get(path, [("", b"")])
        self.answer(" ".join(token for token, _ in writes).encode() if query == "log" else writes[-1][1])

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    with http.server.ThreadingHTTPServer((address, int(sys.argv[1])), Service) as server:
        server.daemon_threads = True
        print("listening", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
