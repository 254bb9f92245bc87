#!/usr/bin/env python3
"""Records what a real redis-server answers to COMMAND, as it stands on the wire: command_reply_N.resp, N its version.

Needs that redis-server in PATH. Run it with a newer Redis that is to be known; the tests beside it name what they expect.
"""
import pathlib
import re
import socket
import subprocess
import tempfile
import time

FOLDER = pathlib.Path(__file__).parent


def connect(path, server):
    deadline = time.monotonic() + 10
    while True:
        if server.poll() is not None:
            raise SystemExit("redis-server ended: " + str(server.returncode))
        try:
            link = socket.socket(socket.AF_UNIX)
            link.connect(path)
            return link
        except OSError:
            link.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def version():
    said = subprocess.run(["redis-server", "--version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"v=(\d+)", said)[1]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/redis.sock"
        server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", path, "--dir", folder, "--save", ""],
            stdout=subprocess.DEVNULL)
        try:
            with connect(path, server) as link:
                end = b"$3\r\nend\r\n"  # the answer to ECHO marks the end of the one before
                link.sendall(b"*1\r\n$7\r\nCOMMAND\r\n*2\r\n$4\r\nECHO\r\n" + end)
                reply = b""
                while not reply.endswith(end):
                    piece = link.recv(65536)
                    if not piece:
                        raise SystemExit("the server closed")
                    reply += piece
                (FOLDER / f"command_reply_{version()}.resp").write_bytes(reply[:-len(end)])
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
