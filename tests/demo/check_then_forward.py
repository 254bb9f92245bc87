"""The obvious fence, and the wrong one: ask for the mark, compare, then forward. The demo shows what it lets through.

Usage: check_then_forward.py LISTEN_PORT REDIS_PORT TOKEN [freeze]

With `freeze` it stops itself (SIGSTOP) once, between the check and the forward of its second write: the moment at which
a pod may be paused, moved or starved just as well.
"""

import os
import signal
import socket
import sys

from stage import Redis

MARK = "naive:mark:orders"


def serve_one(client, redis, token, freeze):
    writes = 0
    while command := client.recv(4096):  # the demo sends one short write at a time
        if int(redis.call("GET", MARK) or 0) > token:
            client.sendall(b"-STALE token %d\r\n" % token)
            continue
        redis.call("SET", MARK, token)
        writes += 1
        if freeze and writes == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        redis.socket.sendall(command)
        client.sendall(redis.read().encode() + b"\r\n")


def main():
    listen, upstream, token = (int(a) for a in sys.argv[1:4])
    with socket.create_server(("127.0.0.1", listen)) as server, Redis(upstream) as redis:
        print("listening", flush=True)
        client, _ = server.accept()
        with client:
            serve_one(client, redis, token, "freeze" in sys.argv[4:])


if __name__ == "__main__":
    main()
