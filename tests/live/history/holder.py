"""What every writer of a history test does, whatever it writes to: gets a lease, writes under it as fast as it can
through some gate, does not notice that it lost it until it was told so a few times, and gets the next. It is frozen and
killed from outside. $FENCEGATE_WRITER_PAUSE: seconds between its writes, about; for histories that take long."""

import os
import random
import socket
import time

from history.records import Recorder
from processes import LOOPBACK


class Superseded(ConnectionError):
    """There is no connection, or no more: another holder has taken over."""


PAUSE = float(os.environ.get("FENCEGATE_WRITER_PAUSE", 0))


class Holder:
    doubts_max = 30  # answers "stale" that a stubborn holder ignores: old holders keep trying

    def __init__(self, name, resource, seed, issuer_port, records):
        self.name, self.resource = name, resource
        self.random = random.Random(f"{seed}/{name}")
        self.recorder = Recorder(records)
        self.issuer = socket.create_connection((LOOPBACK, issuer_port)).makefile("rw")
        self.seq = self.connections = 0
        self.client = None

    def connect(self, token):
        """Binds a new connection to the token, sets `client`. OSError when that fails."""
        raise NotImplementedError

    def write_some(self, token):
        """→ acknowledged, stale: how many answers of each kind. OSError when the connection is lost."""
        raise NotImplementedError

    def run(self):
        while (token := self.ask("acquire", self.resource)) != "stop":
            self.hold(int(token))
            self.pause()
        self.disconnect()

    def pause(self):
        if PAUSE:
            time.sleep(self.random.expovariate(1 / PAUSE))

    def ask(self, *words):
        self.issuer.write(" ".join(words) + "\n")
        self.issuer.flush()
        return self.issuer.readline().strip()

    def hold(self, token):
        """Until the lease was long enough, or until this writer believes that it lost it."""
        end = time.monotonic() + self.random.expovariate(1 / 0.25)
        disbelief = self.random.randint(2, self.doubts_max)
        doubts, landed = 0, False
        self.disconnect()
        while doubts <= disbelief and ((now := time.monotonic()) < end or (doubts and now < end + 1)):
            try:
                if self.client is None:
                    self.connect(token)
                acknowledged, stale = self.write_some(token)
            except OSError as lost:
                doubts += isinstance(lost, Superseded)
                self.disconnect()
                time.sleep(self.random.uniform(0, 0.02))
                continue
            if acknowledged and not landed:
                landed = True
                self.issuer.write(f"landed {self.resource} {token}\n")
                self.issuer.flush()
            doubts += stale
            self.pause()
            if self.random.random() < 0.02:
                self.disconnect()
            if self.random.random() < 0.1:
                time.sleep(self.random.uniform(0, 0.01))

    def disconnect(self):
        if self.client is not None:
            self.client.close()
            self.client = None

    def announce(self, token, count):
        """The numbers of writes that are about to be sent."""
        seqs = list(range(self.seq, self.seq + count))
        self.seq += count
        self.recorder.note([("s", seq, self.connections, token) for seq in seqs])
        return seqs
