"""Networks that fail: a proxy that freezes and cuts, a port that does not answer, bytes that nobody reads."""

import contextlib
import socket
import struct
import threading
import time

from processes import LOOPBACK, connect, free_port


class CutProxy:
    """A TCP proxy on `port` in front of a loopback port. `freeze` holds bytes back in both directions until `thaw`,
    `cut_all` ends every connection with a reset and drops what was held, `delay` (seconds) slows each piece down."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.delay = 0.0
        self.refuse = False  # close new connections at once
        self._flowing = threading.Event()
        self._flowing.set()
        self.pieces = 0  # that were received, and not sent yet
        self._pairs = set()
        self._lock = threading.Lock()

    def __enter__(self):
        self._listener = socket.create_server((LOOPBACK, free_port()), backlog=512)
        self.port = self.address = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self.cut_all()
        self._flowing.set()

    def freeze(self):
        self._flowing.clear()

    def thaw(self):
        self._flowing.set()

    def cut_all(self):
        """Returns how many connections were cut."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            self._cut(pair)
        return len(pairs)

    @staticmethod
    def _cut(pair):
        for sock in pair:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RD)  # wakes the pump's recv; close alone would not
            sock.close()

    def change(self, data):
        """For subclasses: what goes on in place of a piece."""
        return data

    def relay(self, pair, sink, data):
        """For subclasses that wait for something first, or pass a piece on in parts. `pair`: client's side, server's."""
        sink.sendall(self.change(data))

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            try:
                if self.refuse:
                    raise ConnectionRefusedError
                server = connect(self.target_port)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            for sock in pair:
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(pair, source, sink), daemon=True).start()

    def _pump(self, pair, source, sink):
        try:
            while data := source.recv(65536):
                self._count(1)
                try:
                    self._flowing.wait()
                    if self.delay:
                        time.sleep(self.delay)
                    self.relay(pair, sink, data)
                finally:
                    self._count(-1)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            with self._lock:
                self._pairs.discard(pair)
            self._cut(pair)

    def _count(self, pieces):
        with self._lock:
            self.pieces += pieces


def unread_bytes(port):
    """What has arrived on connections to the port and was not read yet."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    established = "01"
    return sum(int(row[4].split(":")[1], 16) for row in rows
               if row[1].endswith(f":{port:04X}") and row[3] == established)


class SilentPort:
    """A loopback port whose queue is full: the kernel does not answer those who connect."""

    def __enter__(self):
        self._sockets = [socket.create_server((LOOPBACK, 0), backlog=0)]
        self.port = self.address = self._sockets[0].getsockname()[1]
        for _ in range(4):  # more than fit
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex((LOOPBACK, self.port))
            self._sockets.append(one)
        return self

    def __exit__(self, *_):
        for one in self._sockets:
            one.close()
