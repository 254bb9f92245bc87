"""An application that knows nothing of leases: it goes on writing to its PostgreSQL and its Redis, over connections that it makes
again when they end, and logs what became of each write. `started` tells its runs apart. It is healthy, and says how much it has
tried."""

import http.server
import itertools
import json
import os
import signal
import socket
import threading
import time
import urllib.parse

import psycopg2

DATABASE = os.environ["DATABASE_URL"]
REDIS = urllib.parse.urlsplit(os.environ["REDIS_URL"])
RUN = {"pod": socket.gethostname(), "container": os.environ.get("CONTAINER", "app"), "started": time.time_ns()}
PATIENCE = 30
tried = 0


class Postgres:
    def __init__(self):
        self.session = psycopg2.connect(DATABASE, connect_timeout=PATIENCE)
        self.session.autocommit = True

    def write(self, text):
        with self.session.cursor() as cursor:
            cursor.execute("INSERT INTO billed(doc) VALUES (%s)", (text,))

    def close(self):
        self.session.close()


class Redis:
    def __init__(self):
        self.sock = socket.create_connection((REDIS.hostname, REDIS.port), PATIENCE)
        self.replies = self.sock.makefile("rb")

    def write(self, text):
        words = ("RPUSH", "billed", text)
        self.sock.sendall(f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words))
        reply = self.replies.readline().decode()
        if not reply.startswith(":"):
            raise ConnectionError(reply.strip() or "the connection ended")

    def close(self):
        self.sock.close()


def work():
    global tried
    servers = {"postgres": Postgres, "redis": Redis}
    for n in itertools.count():
        for name, server in servers.items():
            what = RUN | {"n": n}
            try:
                if isinstance(server, type):
                    server = servers[name] = server()
                server.write(json.dumps(what))
                said = "ok"
            except (OSError, psycopg2.Error) as error:
                said = str(error).strip()
                if not isinstance(server, type):
                    server.close()
                    servers[name] = type(server)
            print(json.dumps(what | {"server": name, "said": said}), flush=True)
            tried += 1
        time.sleep(0.1)


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = json.dumps(RUN | {"tried": tried}).encode()
        self.send_response(200 if self.path == "/healthz" else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
threading.Thread(target=work, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Health).serve_forever()
