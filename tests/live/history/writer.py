"""One writer to Redis. Started by run.py.

    writer.py NAME RESOURCE SEED ISSUER_PORT RECORDS DATABASE GATE_PORT…"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.holder import Holder
from resp import Resp, RespError, encode

PUSH = "return redis.call('RPUSH', KEYS[1], ARGV[1])"
# Redis's own words for "not applied".
NOT_APPLIED = ("EXECABORT", "LOADING")
# An argument that nobody looks at: makes a command too large for the gate to hold it whole.
PADDING = b"x" * 300_000


class Writer(Holder):
    def __init__(self, name, resource, seed, issuer_port, records, database, gate_ports):
        super().__init__(name, resource, seed, issuer_port, records)
        self.database, self.gate_ports = database, gate_ports
        self.key = f"log:{resource}"

    def connect(self, token):
        port, way = self.random.choice(self.gate_ports), self.random.random()
        # Impatient: gives up on a frozen gate while its writes still wait there.
        patience = self.random.choice((0.1, 0.3, 2))
        self.connections += 1
        self.per_call = way < 0.1
        name = f"fence:{self.resource}={token}"
        if way < 0.25:
            self.client = Resp(port, timeout=patience)
            bound = None if self.per_call else self.client.call("FENCE", "SET", self.resource, token)
        else:
            self.client = Resp(port, name=name, proto=3 if way < 0.4 else 2, timeout=patience)
            bound = self.client.named
        if self.database:
            self.must(self.client.call("SELECT", self.database))
        if isinstance(bound, RespError) and bound.code.startswith("FENCE"):
            return  # ignored, as most clients do: the gate must remember it
        if not self.per_call:
            self.must(bound)
            self.recorder.note([("b", token, self.must(self.client.call("LLEN", self.key)))])

    @staticmethod
    def must(answer):
        """A gate that lost its backend answers an error to anything."""
        if isinstance(answer, RespError):
            raise ConnectionError(str(answer))
        return answer

    def write_some(self, token):
        """→ acknowledged, stale"""
        if self.per_call:
            return self.send_batch(token, self.random.randint(1, 4), lambda values: [
                ("FENCE", "CALL", self.resource, token, "RPUSH", self.key, value) for value in values])
        way = self.random.random()
        if way < 0.35:
            return self.send_batch(token, 1, self.pushes)
        if way < 0.65:
            return self.send_batch(token, self.random.randint(2, 40), self.pushes)
        if way < 0.66:
            return self.send_batch(token, 2, lambda values: [
                ("EVAL", PUSH, 1, self.key, value, PADDING) for value in values])
        if way < 0.8:
            return self.send_batch(token, self.random.randint(1, 3), lambda values: [
                ("EVAL", PUSH, 1, self.key, value) for value in values])
        before = [("WATCH", f"own:{self.name}")] if way < 0.87 else []
        return self.send_transaction(token, self.random.randint(1, 5), before)

    def pushes(self, values):
        return [("RPUSH", self.key, value) for value in values]

    def announce_values(self, token, count):
        seqs = self.announce(token, count)
        return seqs, [f"{token}:{self.name}:{seq}" for seq in seqs]

    def send_batch(self, token, count, commands_for):
        seqs, values = self.announce_values(token, count)
        self.client.send(b"".join(encode(*command) for command in commands_for(values)))
        notes = []
        try:
            for seq in seqs:
                notes.append(self.judge(seq, self.client.reply()))
        finally:
            self.recorder.note(notes)
        return self.count(notes)

    def send_transaction(self, token, count, before):
        seqs, values = self.announce_values(token, count)
        commands = [*before, ("MULTI",), *self.pushes(values)]
        self.client.send(b"".join(encode(*command) for command in commands))
        if self.random.random() < 0.3:  # paused inside its transaction
            for _ in range(len(commands)):
                self.client.reply()
            commands = []
            time.sleep(self.random.uniform(0, 0.05))
        self.client.send_command("EXEC")
        answer = [self.client.reply() for _ in [*commands, "EXEC"]][-1]
        if not isinstance(answer, list):
            answer = [answer] * count
        notes = [self.judge(seq, one) for seq, one in zip(seqs, answer, strict=True)]
        self.recorder.note(notes)
        return self.count(notes)

    @staticmethod
    def judge(seq, answer):
        if isinstance(answer, int):
            return ("a", seq)
        if isinstance(answer, RespError) and (answer.code.startswith("FENCE") or answer.code in NOT_APPLIED):
            return ("r", seq, answer.code)
        return ("e", seq, str(answer).replace("\n", " "))

    @staticmethod
    def count(notes):
        return sum(note[0] == "a" for note in notes), sum(note[-1] == "FENCED" for note in notes)


if __name__ == "__main__":
    me, lease, seed_text, port_text, path, number, *ports = sys.argv[1:]
    Writer(me, lease, seed_text, int(port_text), path, int(number), list(map(int, ports))).run()
