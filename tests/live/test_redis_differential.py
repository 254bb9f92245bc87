"""Random streams of several clients, told to a plain Redis and to a gate in front of another: the same answers, and the same
data. One client speaks at a time, so that answers can be compared; who waits is read when the plain server has answered.
What is left out, and what may differ, stands in tests/live/differential with its reason.

$FENCEGATE_SEED: the first of the seeds; $FENCEGATE_DIFFERENTIAL_SEEDS: how many; $FENCEGATE_DIFFERENTIAL_SECONDS: for so
long instead, and then from a first one by chance."""

import itertools
import os
import random
import time

from cut_proxy import CutProxy
from differential.commands import TAG, Generator
from differential.compare import compare, shrunk
from differential.streams import Side, stream
from gate_process import Gate
from live_test import LiveTest, main
from processes import eventually
from redis_server import RedisServer
from resp import Resp

SEEDS = int(os.environ.get("FENCEGATE_DIFFERENTIAL_SEEDS") or (200 if "FENCEGATE_SANITIZED" in os.environ else 2000))
SECONDS = float(os.environ.get("FENCEGATE_DIFFERENTIAL_SECONDS") or 0)
SHRINKING = 60  # seconds
FAILURES = 5
READS = ("pass", "fence")


class ChangesOne(CutProxy):
    """Changes every such text: in answers, between clients and a gate; in commands, between a gate and its server."""

    def __init__(self, target_port, text, other):
        super().__init__(target_port)
        self.text, self.other = text, other

    def change(self, data):
        return data.replace(self.text, self.other)


class RedisDifferential(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.plain, cls.fenced = (cls.enterClassContext(RedisServer(appendonly="no", enable_debug_command="yes", databases="4"))
                                 for _ in range(2))
        cls.generator = Generator(cls.plain.cli)
        cls.gates = [cls.gate(share, reads) for share in ("always", "off") for reads in READS]
        cls.anchors = [cls.anchor(gate, proto) for gate in cls.gates[:2] for proto in (2, 3)]

    @classmethod
    def gate(cls, share, reads, redis=None):
        return cls.enterClassContext(Gate(redis or cls.fenced, policy={"reads": reads}, extra={"share_writes": share}, threads=1))

    @classmethod
    def anchor(cls, gate, proto):
        """A client that keeps a shared link open between streams."""
        client = cls.enterClassContext(Resp(gate.port, name=TAG, proto=proto))
        before = gate.metric("shared_writes_total")
        eventually(lambda: client.call("DEL", "none") == 0 and gate.metric("shared_writes_total") > before)
        return client

    def sides(self, address, reads):
        """To begin each comparison with: patience ends with a failure."""
        return Side(self.plain.port, self.plain), Side(address, self.fenced, others=len(self.anchors), reads=reads)

    @staticmethod
    def seeds():
        first = int(os.environ.get("FENCEGATE_SEED") or (random.SystemRandom().randrange(10**9) if SECONDS else 1))
        print(f"seed {first}", flush=True)
        end = time.monotonic() + SECONDS
        if SECONDS:
            return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(first))
        return range(first, first + SEEDS)

    def difference(self, sides, seed):
        """None, or the shortest stream that was found, and how its answers differ."""
        rounds = stream(self.generator, seed)
        found = compare(*sides, rounds)
        if found is None:
            return None
        for side in sides:
            side.patience = 2
        rounds = shrunk(rounds, lambda some: compare(*sides, some) is not None, time.monotonic() + SHRINKING)
        return rounds, compare(*sides, rounds) or f"(not again; before: {found})"

    def test_the_same_answers_and_data(self):
        failures = number = 0
        before = [gate.metric("shared_writes_total") for gate in self.gates[:2]]
        for number, seed in enumerate(self.seeds(), 1):
            gate = self.gates[seed % len(self.gates)]
            differs = self.difference(self.sides(gate.port, gate.gate["policy"]["reads"]), seed)
            if differs is not None:
                failures += 1
                lines = "".join(f"\n  {one}" for one in differs[0])
                print(f"seed {seed}, gate {gate.gate}:{lines}\n{differs[1]}", flush=True)
                self.assertLess(failures, FAILURES)
        shared = [gate.metric("shared_writes_total") - then for gate, then in zip(self.gates, before)]
        print(f"{number} seeds, {shared} shared writes")
        self.assertEqual(failures, 0)
        self.assertGreater(min(shared), number / 8)

    def shrinks_to(self, sides):
        """The commands of the shortest stream by which a gate that is wrong is found."""
        for seed in range(1000):
            differs = self.difference(sides, seed)
            if differs is not None:
                return [words for one in differs[0] for words in (*one.commands, *(one.volley or {}).values())]
        return self.fail("nothing was found")

    def test_a_wrong_answer_is_found(self):
        wrong = self.start(ChangesOne(self.gates[0].port, b":2\r\n", b":3\r\n"))
        self.assertLessEqual(len(self.shrinks_to(self.sides(wrong.port, READS[0]))), 3)

    def test_a_wrong_command_is_found(self):
        """Its answer is right, and the data are not."""
        wrong = self.start(ChangesOne(self.fenced.port, b"\r\n$2\r\nl1\r\n", b"\r\n$2\r\nl2\r\n"))
        commands = self.shrinks_to(self.sides(self.gate(None, READS[0], wrong).port, READS[0]))
        self.assertLessEqual(len(commands), 2)
        self.assertIn("l1", sum(commands, []))


if __name__ == "__main__":
    main()
