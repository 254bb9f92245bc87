"""The frame of a history test: a server, gates in front of it, writers under leases that are taken over all the time,
trouble; then the verdict. What the server is, its subclass says (run.py, pg_run.py, http_run.py)."""

import contextlib
import itertools
import os
import random
import secrets
import sys
import time
from pathlib import Path

from cut_proxy import CutProxy
from history.chaos import Chaos
from history.issuer import Issuer
from history.records import read_history
from live_test import clean_up_on_sigterm
from processes import Process, eventually

GATES = 3


class WriterProcess(Process):
    """One place for a writer; `replace` kills the one that is there and starts another. `more`: arguments of its script
    behind those that all have (holder.py)."""

    title = "writer"

    def __init__(self, script, number, resource, seed, issuer, more):
        super().__init__()
        self.script, self.number, self.resource, self.seed = script, number, resource, seed
        self.issuer, self.more = issuer, more
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
        script = str(Path(__file__).resolve().parent / self.script)
        return [sys.executable, script, self.name(self.lives), self.resource, str(self.seed), str(self.issuer.port),
                self.records(self.lives), *map(str, self.more)]

    def up(self):
        return True

    def replace(self):
        self.kill()
        self.next_life()
        self.start()

    def histories(self):
        paths = [(self.records(life), self.name(life)) for life in range(1, self.lives + 1)]
        return [read_history(path, name, self.resource) for path, name in paths if os.path.exists(path)]


class Rig:
    """From start to verdict. FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the
    machine's)."""

    writer_script = None
    writers_count = 12
    resources = ()

    def __init__(self, binary, takeovers, seconds_max):
        self.binary, self.takeovers, self.seconds_max = binary, takeovers, seconds_max
        self.seed = int(os.environ.get("FENCEGATE_SEED") or secrets.randbits(32))
        print(f"FENCEGATE_SEED={self.seed}", flush=True)

    def make_server(self):
        raise NotImplementedError

    def make_gate(self, upstream):
        """`upstream`: what `upstream_of` says, or a proxy in front of it."""
        raise NotImplementedError

    def upstream_of(self, _number):
        """What the gate of this number talks to; it has a `port`."""
        return self.server

    def make_back(self, upstream):
        """A proxy between a gate and its upstream."""
        return CutProxy(upstream.port)

    def script_of(self, _resource):
        return self.writer_script

    def writer_arguments(self, resource, gate_ports):
        raise NotImplementedError

    def trouble(self):
        """Keyword arguments of Chaos."""
        return {}

    def left_alone(self):
        """True when the server has nobody left but us: then what the gates sent last has been applied."""
        raise NotImplementedError

    def judge(self, histories):
        """→ Verdict"""
        raise NotImplementedError

    def is_over(self, takeovers, chaos):
        """True when there has been enough of everything."""
        return takeovers >= self.takeovers and not chaos.still_missing()

    def verdict(self):
        with contextlib.ExitStack() as stack:
            start = time.monotonic()
            self.server = stack.enter_context(self.make_server())
            self.gates = [self._gate(stack, number) for number in range(GATES)]
            issuer = stack.enter_context(Issuer())
            ports = [port for gate in self.gates for port in (gate.port, gate.front.port if gate.front else gate.port)]
            self.writers = [stack.enter_context(self._writer(number, resource, issuer, ports))
                            for number, resource in zip(range(self.writers_count), itertools.cycle(self.resources))]
            chaos = Chaos(random.Random(self.seed), self.gates, self.writers, **self.trouble())
            while not self.is_over(issuer.takeovers, chaos) and time.monotonic() < start + self.seconds_max:
                chaos.step()
                time.sleep(0.002)
            chaos.finish()
            issuer.stopping = True
            for writer in self.writers:
                if writer.wait() != 0:
                    raise RuntimeError(f"a writer broke:\n{writer.log()}")
            complaints = self._settle()
            verdict = self.judge(self.histories())
            for text in complaints:
                verdict.add("gate", text)
            for action in chaos.still_missing():
                verdict.add("trouble", f"{action} has happened too rarely")
            self._report(verdict, chaos, time.monotonic() - start)
            for process in (self.server, *self.gates):  # of a binary that is broken on purpose nobody wants them
                process.show_log = bool(verdict.violations) and self.binary is None
            return verdict

    def histories(self):
        return [history for writer in self.writers for history in writer.histories()]

    def _writer(self, number, resource, issuer, ports):
        more = self.writer_arguments(resource, ports)
        return WriterProcess(self.script_of(resource), number, resource, self.seed, issuer, more)

    def _gate(self, stack, number):
        """The first gate has a proxy on both sides, the second towards the server, the third none."""
        upstream = self.upstream_of(number)
        back = stack.enter_context(self.make_back(upstream)) if number < 2 else None
        gate = stack.enter_context(self.make_gate(back or upstream))
        gate.back = back
        gate.front = stack.enter_context(CutProxy(gate.port)) if number < 1 else None
        return gate

    def _settle(self):
        """Ends the gates. → what is wrong with them"""
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
        eventually(self.left_alone, 30)
        return complaints

    def _report(self, verdict, chaos, seconds):
        for text in verdict.examples:
            print(text)
        print(f"history: {seconds:.0f} s, {verdict.takeovers} takeovers, writes {dict(verdict.outcomes)}, "
              f"rejections {dict(verdict.codes)}, seen {dict(verdict.noted)}, trouble {dict(chaos.done)}, "
              f"violations {dict(verdict.violations) or 'none'}", flush=True)


def run_and_exit(rig, enough):
    """As a program. `enough`: verdict → had the fence something to do?"""
    clean_up_on_sigterm()
    verdict = rig.verdict()
    if verdict.violations:
        return 1
    return 0 if verdict.takeovers >= rig.takeovers and enough(verdict) else 2
