"""The history test: many writers under leases that are taken over all the time, gates and writers that are frozen,
killed and cut off; afterwards no stale write may be there, and each writer must have been told the truth.

    run.py [--binary PATH] [--takeovers N] [--seconds-max S] [--script-flush]      exit 0: no violation, 1: violations,
                                                                            2: too few takeovers or stale tries
    FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the machine's)."""

import argparse
import contextlib
import itertools
import os
import random
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.chaos import Chaos
from history.checker import check
from history.issuer import Issuer
from history.records import read_history
from support import CutProxy, Gate, Process, RedisServer, clean_up_on_sigterm, eventually

RESOURCES = {"orders": 0, "stock": 0, "ledger": 3, "mail": 1}  # the database of its list; marks are in 0
WRITERS = 12
GATES = 3


class WriterProcess(Process):
    """One place for a writer; `replace` kills the one that is there and starts another."""

    title = "writer"

    def __init__(self, number, resource, seed, issuer, gate_ports):
        super().__init__()
        self.number, self.resource, self.seed, self.issuer, self.gate_ports = number, resource, seed, issuer, gate_ports
        self.lives = 0

    def prepare(self):
        self.next_life()

    def next_life(self):
        self.lives += 1

    def name(self, life):
        return f"w{self.number}.{life}"

    def records(self, life):
        return os.path.join(self.folder, self.name(life))

    def command(self):
        script = str(Path(__file__).resolve().parent / "writer.py")
        return [sys.executable, script, self.name(self.lives), self.resource, str(RESOURCES[self.resource]),
                str(self.seed), str(self.issuer.port), self.records(self.lives), *map(str, self.gate_ports)]

    def up(self):
        return True

    def replace(self):
        self.kill()
        self.next_life()
        self.start()

    def histories(self):
        paths = [(self.records(life), self.name(life)) for life in range(1, self.lives + 1)]
        return [read_history(path, name, self.resource) for path, name in paths if os.path.exists(path)]


class Run:
    """The servers, from start to verdict."""

    def __init__(self, binary=None, takeovers=500, seconds_max=240, script_flush=False, seed=None):
        self.binary, self.takeovers, self.seconds_max, self.script_flush = binary, takeovers, seconds_max, script_flush
        self.seed = seed if seed is not None else int(os.environ.get("FENCEGATE_SEED") or secrets.randbits(32))
        print(f"FENCEGATE_SEED={self.seed}", flush=True)

    def verdict(self):
        with contextlib.ExitStack() as stack:
            start = time.monotonic()
            self.redis = stack.enter_context(RedisServer())
            self.gates = [self._gate(stack, number) for number in range(GATES)]
            issuer = stack.enter_context(Issuer())
            ports = [port for gate in self.gates for port in (gate.port, gate.front.port if gate.front else gate.port)]
            self.writers = [stack.enter_context(WriterProcess(number, resource, self.seed, issuer, ports))
                            for number, resource in zip(range(WRITERS), itertools.cycle(RESOURCES))]
            chaos = Chaos(random.Random(self.seed), self.gates, self.writers, self.redis, self.script_flush)
            while issuer.takeovers < self.takeovers and time.monotonic() < start + self.seconds_max:
                chaos.step()
                time.sleep(0.002)
            chaos.finish()
            issuer.stopping = True
            for writer in self.writers:
                if writer.wait() != 0:
                    raise RuntimeError(f"a writer broke:\n{writer.log()}")
            complaints = self._settle()
            verdict = check(self._lists(), [history for writer in self.writers for history in writer.histories()])
            for text in complaints:
                verdict.add("gate", text)
            self._report(verdict, chaos, time.monotonic() - start)
            return verdict

    def _gate(self, stack, number):
        """The first gate has a proxy on both sides, the second towards Redis, the third none."""
        back = stack.enter_context(CutProxy(self.redis.port)) if number < 2 else None
        gate = stack.enter_context(Gate(back or self.redis, binary=self.binary))
        gate.back = back
        gate.front = stack.enter_context(CutProxy(gate.port)) if number < 1 else None
        return gate

    def _settle(self):
        """Ends the gates; what they sent last is applied when Redis has nobody left but us. → what is wrong with a gate"""
        complaints = []
        for gate in self.gates:
            try:
                eventually(lambda: gate.metric("connections") == 0)
            except AssertionError:
                complaints.append("connections are left over when all writers are gone")
            for side in ("client", "backend"):
                if errors := gate.metric("protocol_errors_total", side=side):
                    complaints.append(f"{errors:.0f} protocol errors of the {side}, where nobody made one")
            gate.kill()
            if gate.back:
                gate.back.cut_all()
        eventually(lambda: self.redis.info("clients")["connected_clients"] == "1")
        return complaints

    def _lists(self):
        lists = {}
        for resource, database in RESOURCES.items():
            self.redis.cli.call("SELECT", database)
            lists[resource] = [entry.decode() for entry in self.redis.cli.call("LRANGE", f"log:{resource}", 0, -1)]
        return lists

    def _report(self, verdict, chaos, seconds):
        for text in verdict.examples:
            print(text)
        print(f"history: {seconds:.0f} s, {verdict.takeovers} takeovers, writes {dict(verdict.outcomes)}, "
              f"rejections {dict(verdict.codes)}, trouble {dict(chaos.done)}, "
              f"violations {dict(verdict.violations) or 'none'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="default: $FENCEGATE")
    parser.add_argument("--takeovers", type=int, default=500)
    parser.add_argument("--seconds-max", type=float, default=240)
    parser.add_argument("--script-flush", action="store_true")
    options = parser.parse_args()
    clean_up_on_sigterm()
    verdict = Run(options.binary, options.takeovers, options.seconds_max, options.script_flush).verdict()
    if verdict.violations:
        return 1
    return 0 if verdict.takeovers >= options.takeovers and verdict.codes["FENCED"] else 2


if __name__ == "__main__":
    sys.exit(main())
