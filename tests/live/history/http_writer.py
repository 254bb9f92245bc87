"""One writer to an HTTP gate. Started by http_run.py; what it writes its resource's name says: KIND-….

    http_writer.py NAME RESOURCE SEED ISSUER_PORT RECORDS GATE_PORT…"""

import http.client
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.holder import Holder
from processes import LOOPBACK


class Lost(ConnectionError):
    """There was no whole answer."""


class Client:
    """One connection that is kept alive."""

    def __init__(self, port, timeout):
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout)
        self._connection.connect()

    def close(self):
        self._connection.close()

    def ask(self, method, target, token=None, body=None, chunked=False):
        """→ status, content type, body. OSError when the connection is lost."""
        if self._connection.sock is None:
            raise Lost("closed by the gate")  # nothing is sent on a connection of another kind
        headers = {} if token is None else {"Fencing-Token": str(token)}
        try:
            self._connection.request(method, target, iter([body]) if chunked else body, headers, encode_chunked=chunked)
            answer = self._connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        except http.client.HTTPException as lost:
            raise Lost(str(lost)) from lost


class Writer(Holder):
    def __init__(self, name, resource, seed, issuer_port, records, gate_ports):
        super().__init__(name, resource, seed, issuer_port, records)
        self.gate_ports = gate_ports
        self.kind = resource.split("-")[0]

    def connect(self, token):
        # Impatient: gives up on a frozen gate while its writes still wait there.
        patience = self.random.choice((0.1, 0.3, 2))
        self.connections += 1
        self.client = Client(self.random.choice(self.gate_ports), patience)
        if self.kind == "sql" and self.random.random() < 0.5:
            self.bind(token)

    def bind(self, token):
        """Raises the mark without a write, then looks how far the others have come."""
        status, _, body = self.client.ask("PUT", f"/.fencegate/marks/{self.resource}", token)
        if status != 200 or json.loads(body)["mark"] != token:
            return
        status, _, body = self.client.ask("GET", f"/position/{self.resource}")
        if status == 200:
            self.recorder.note([("b", token, json.loads(body)["rows"][0]["position"])])

    def write_some(self, token):
        count = self.random.randint(1, 3) if self.kind == "sql" else 1
        token_field = token if self.random.random() < 0.7 else f"{self.resource}={token}"
        seqs = self.announce(token, count)
        if self.kind == "sql":
            nap = self.random.choice((0, 0, 0, 0.01, 0.05))
            target = f"/sql/{self.resource}/{token}/{self.name}/{seqs[0]}/{seqs[-1]}?nap={nap}"
            answer = self.client.ask("POST", target, token_field)
        else:
            body = f"{token}:{self.name}:{seqs[0]}".encode()
            chunked = self.kind == "redis" and self.random.random() < 0.2
            answer = self.client.ask("PUT", f"/{self.kind}/{self.resource}", token_field, body, chunked)
        notes = [self.judge(seq, *answer) for seq in seqs]
        self.recorder.note(notes)
        if notes[0][0] == "u":
            self.disconnect()  # it may still come, behind what is sent next: of one connection the order is claimed
        acknowledged = sum(note[0] == "a" for note in notes)
        if not acknowledged and answer[0] != 412:
            time.sleep(self.random.uniform(0, 0.02))  # a store that is away is not asked again at once
        return acknowledged, answer[0] == 412

    @staticmethod
    def judge(seq, status, media, body):
        if status == 200:
            return ("a", seq)
        if media == "application/problem+json":
            problem = json.loads(body)
            applied = problem["applied"]
            if applied == "no" and status < 504 and status != 502:
                return ("r", seq, f"{status} {problem['detail']}")
            if applied == "unknown" and status in (502, 504):
                return ("u", seq, f"{status} {problem['detail']}")
        return ("e", seq, f"{status} {media} {body.decode(errors='replace')}".replace("\n", " "))


if __name__ == "__main__":
    me, lease, seed_text, port_text, path, *ports = sys.argv[1:]
    Writer(me, lease, seed_text, int(port_text), path, list(map(int, ports))).run()
