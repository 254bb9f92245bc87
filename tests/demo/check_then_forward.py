"""The obvious fence, and the wrong one: ask for the mark, compare, then forward. The demo shows what it lets through.

Usage: check_then_forward.py LISTEN_PORT REDIS_PORT UPSTREAM_PORT RESOURCE TOKEN [freeze]

The mark is in Redis; what it forwards to, Redis too or an HTTP service, answers each write in one piece. With `freeze`
it stops itself (SIGSTOP) once, between the check and the forward of its second write: the moment at which a pod may be
paused, moved or starved just as well.
"""

import os
import signal
import socket
import sys

from stage import Redis


class Proxy:
    def __init__(self, redis, upstream_port, resource, token, freeze):
        self.redis, self.upstream_port, self.token, self.freeze = redis, upstream_port, token, freeze
        self.mark = f"naive:mark:{resource}"
        self.writes = 0

    def serve(self, client):
        with socket.create_connection(("127.0.0.1", self.upstream_port)) as upstream:
            while write := client.recv(4096):  # the demo sends one short write at a time
                if int(self.redis.call("GET", self.mark) or 0) > self.token:
                    return  # stale: the connection is closed
                self.redis.call("SET", self.mark, self.token)
                self.writes += 1
                if self.freeze and self.writes == 2:
                    os.kill(os.getpid(), signal.SIGSTOP)
                upstream.sendall(write)
                client.sendall(upstream.recv(4096))


def main():
    listen, redis_port, upstream_port = (int(a) for a in sys.argv[1:4])
    resource, token, options = sys.argv[4], int(sys.argv[5]), sys.argv[6:]
    with socket.create_server(("127.0.0.1", listen)) as server, Redis(redis_port) as redis:
        print("listening", flush=True)
        proxy = Proxy(redis, upstream_port, resource, token, "freeze" in options)
        while True:
            client, _ = server.accept()
            with client:
                proxy.serve(client)


if __name__ == "__main__":
    main()
