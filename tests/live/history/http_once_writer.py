"""One writer to a route with `equal_token: reject`. Started by http_run.py. It brings each token several times at once,
through different gates, until one of the answers says what became of it.

    http_once_writer.py NAME RESOURCE SEED ISSUER_PORT RECORDS GATE_PORT…"""

import json
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.http_writer import Client, Writer

ATTEMPTS = 3


class OnceWriter(Writer):

    def hold(self, token):
        """Until it is known what became of the token, or this writer gives up."""
        end = time.monotonic() + self.random.uniform(0.3, 1.5)
        answers = []
        while not {200, 409, 412} & set(answers) and time.monotonic() < end:
            answers = self.attempt(token)
            if 200 in answers:
                self.issuer.write(f"landed {self.resource} {token}\n")
                self.issuer.flush()
        if self.random.random() < 0.3:
            self.attempt(token)  # stubborn, or because the answer got lost

    def attempt(self, token):
        """→ the answers' status codes."""
        attempts = []
        for _ in range(ATTEMPTS):
            self.connections += 1  # of attempts at the same time no order is claimed
            attempts.append(Attempt(self, token, *self.announce(token, 1), random.Random(self.random.random())))
        threads = [threading.Thread(target=one.run) for one in attempts]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return [one.status for one in attempts]


class Attempt:
    def __init__(self, writer, token, seq, rng):
        self.writer, self.token, self.seq, self.random = writer, token, seq, rng
        self.status = None

    def run(self):
        try:
            # Impatient: gives up on a frozen gate while its writes still wait there.
            client = Client(self.random.choice(self.writer.gate_ports), self.random.choice((0.1, 0.3, 2)))
        except OSError:
            return
        try:
            self.ask(client)
        except OSError:
            pass
        finally:
            client.close()

    def ask(self, client):
        writer, token, seq = self.writer, self.token, self.seq
        resource, kind = writer.resource, writer.kind
        if kind == "oncesql":
            nap = self.random.choice((0, 0, 0, 0.01, 0.05))
            answer = client.ask("POST", f"/{kind}/{resource}/{token}/{writer.name}/{seq}/{seq}?nap={nap}", token)
        else:
            answer = client.ask("PUT", f"/{kind}/{resource}", token, f"{token}:{writer.name}:{seq}".encode())
        self.status = answer[0]
        writer.recorder.note([writer.judge(seq, *answer)])
        if self.status == 409:
            self.look_for_it(client)

    def look_for_it(self, client):
        """What a 409 proves holds when it is answered."""
        status, _, body = client.ask("GET", f"/{self.writer.kind}/{self.writer.resource}/{self.token}")
        if status != 200:
            return
        answer = json.loads(body)
        if self.writer.kind == "oncesql":
            applied = answer["rows"][0]["applied"]
        else:  # the last entries; what is older than all of them is not looked for
            tokens = [int(entry.split(":", 1)[0]) for entry in answer["reply"]]
            applied = self.token in tokens or (tokens and tokens[0] > self.token)
        if not applied:
            self.writer.recorder.note([("x", f"409 to token {self.token}, which was not applied")])


if __name__ == "__main__":
    me, lease, seed_text, port_text, path, *ports = sys.argv[1:]
    OnceWriter(me, lease, seed_text, int(port_text), path, list(map(int, ports))).run()
