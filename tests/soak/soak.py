"""The frame of a soak: servers, two sidecars in front of them, writers of all three kinds under leases that are taken over
all the time, jobs under leases, trouble; at rest after a warm-up, and at the end; then the judges of the data."""

import contextlib
import itertools
import os
import random
import time
from collections import Counter

from at_rest import Rest, growth, left_open, open_gauges, unexplained
from history.checker import Verdict, check
from history.http_run import BackProxies, HttpRun
from history.issuer import Issuer
from history.pg_run import PgRun
from history.rig import WriterProcess
from history.run import Run
from jobs import Jobs
from processes import eventually
from services import POOL, Services, SoakSidecar
from trouble import Trouble

SETTLED = 40  # seconds until all is closed whose clients have left
SAMPLES = 5
KEPT = 2 * POOL  # descriptors: the pool of the store, and as many for raises and control, opened when they are needed
WRITERS = {"redis": 6, "postgres": 6, "http": 12}


class Writer(WriterProcess):
    """Speaks TLS where it speaks to PostgreSQL."""

    def __init__(self, *arguments, pause):
        super().__init__(*arguments)
        self.pause, self.offsets = pause, Counter()

    def command(self):
        return ["env", "PGSSLMODE=require", f"FENCEGATE_WRITER_PAUSE={self.pause}", *super().command()]

    def answers(self):
        """How many writes were acknowledged since the last call, and how many rejected."""
        seen = Counter()
        for life in range(1, self.lives + 1):
            path = self.records(life)
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                file.seek(self.offsets[life])
                text = file.read()
                self.offsets[life] = file.tell()
                seen.update(line[:1] for line in text.split("\n"))
        return seen["a"], seen["r"]


class OfRedis(Run):
    port = "cache"

    def __init__(self, seed, services):
        self.seed, self.server = seed, services.redis

    def judge(self, histories):
        try:
            return super().judge(histories)
        finally:
            self.server.cli.call("SELECT", 0)  # for the judges of what else is in it


class OfPostgres(PgRun):
    port, guard = "db", "session"

    def __init__(self, seed, services):
        self.seed, self.server = seed, services.postgres

    def judge(self, histories):
        commits = self.server.commits()
        for history in histories:
            history.bound = [(token, commits.length_at(history.resource, position))
                             for token, position in history.bound]
        return check({resource: commits.lists[resource] for resource in self.resources}, histories, commits.marks)


class OfHttp(HttpRun):
    port = "api"

    def __init__(self, seed, services):
        self.seed, self.server = seed, services


KINDS = {"redis": OfRedis, "postgres": OfPostgres, "http": OfHttp}


class Soak:
    def __init__(self, minutes, binary, seed, pause, folder, say):
        self.seconds, self.binary, self.seed, self.pause, self.say = minutes * 60, binary, seed, pause, say
        self.folder = folder
        self.warm_up = min(max(60, self.seconds / 10), self.seconds / 2)
        self.writers = {kind: [] for kind in KINDS}  # also those that have left
        self.wrong, self.totals = [], Counter()
        self.numbers = itertools.count()

    def run(self):
        """→ Verdict"""
        with contextlib.ExitStack() as stack:
            self.services = services = stack.enter_context(Services(self.seed, self.folder))
            self.kinds = {kind: make(self.seed, services) for kind, make in KINDS.items()}
            self.steady = stack.enter_context(self.kept(SoakSidecar(services, services, self.binary), "steady"))
            self.leases = stack.enter_context(self.kept(SoakSidecar(services, services, self.binary, leases=True), "leases"))
            self.stay = {"steady": self.steady, "leases": self.leases}
            back = stack.enter_context(BackProxies(services))
            self.other = stack.enter_context(self.kept(SoakSidecar(services, back, self.binary), "other"))
            self.other.back = back
            self.issuer = stack.enter_context(Issuer())
            self.jobs = Jobs(self.leases, services, self.folder)
            self.trouble = Trouble(random.Random(self.seed), services, self.steady, self.leases, self.other, self.jobs)
            self.begin = time.monotonic()
            start = self.rest("start")
            self.load(stack, self.warm_up)
            warm = self.rest("after the warm-up")
            self.load(stack, self.seconds - self.warm_up)
            end = self.rest("end")
            for name in self.stay:
                of = [seen[name] for seen in (start, warm, end)]
                self.say(f"{name}: {[one.descriptors for one in of]} descriptors, {[one.rss >> 10 for one in of]} KiB at the start, after "
                         f"the warm-up, and at the end ({of[2].rss / of[1].rss - 1:+.1%})")
            long_enough = self.seconds >= 600
            if not long_enough:
                self.say("memory: in less than 10 minutes its growth means little, and is not judged")
            for name, sidecar in self.stay.items():
                self.wrong += [f"{text} ({name} sidecar)" for text in growth(warm[name], end[name], KEPT, long_enough)]
            for sidecar in self.all:
                self.wrong += unexplained(sidecar.log_lines())
            verdict = self.judge()
            return verdict

    @property
    def all(self):
        return *self.stay.values(), self.other

    # ── load ──

    def load(self, stack, seconds):
        self.issuer.stopping = False
        now = []
        for kind, count in WRITERS.items():
            for _, resource in zip(range(count), itertools.cycle(self.kinds[kind].resources)):
                writer = stack.enter_context(self.writer(kind, resource))
                self.writers[kind].append(writer)
                now.append(writer)
        self.trouble.writers = now
        end, minute = time.monotonic() + seconds, time.monotonic() + 60
        with self.jobs:
            while time.monotonic() < end:
                self.trouble.step()
                time.sleep(0.005)
                if time.monotonic() > minute:
                    minute += 60
                    self.tell()
            self.trouble.finish()
        self.issuer.stopping = True
        for writer in now:
            if writer.wait(120) != 0:
                raise RuntimeError(f"a writer broke:\n{writer.log()}")

    def writer(self, kind, resource):
        rig = self.kinds[kind]
        ports = [sidecar.ports[rig.port] for sidecar in self.all]
        return Writer(rig.script_of(resource), next(self.numbers), resource, self.seed, self.issuer,
                      rig.writer_arguments(resource, ports), pause=self.pause)

    def tell(self):
        for writer in itertools.chain(*self.writers.values()):
            acknowledged, rejected = writer.answers()
            self.totals["writes"] += acknowledged
            self.totals["rejections"] += rejected
        done = self.trouble.done
        self.say(f"{(time.monotonic() - self.begin) / 60:4.0f} min: {self.totals['writes']} writes, {self.issuer.takeovers} takeovers, "
                 f"{self.totals['rejections']} rejections, {len(self.jobs.began())} jobs, "
                 f"{sum(count for name, count in done.items() if name.startswith('reload_'))} reloads, "
                 f"{sum(count for name, count in done.items() if name.startswith('restart_'))} restarts, "
                 f"{done['rotate_password'] + done['rotate_certificate']} rotations, {done['drain_other']} drains, "
                 f"RSS {self.steady.rss_bytes() >> 10} KiB, {self.steady.descriptors()} descriptors")

    # ── at rest ──

    def rest(self, when):
        """All clients have left: what the sidecars that stay hold then, once they have settled, by name."""
        for name, sidecar in (self.stay | {"other": self.other}).items():
            scrapes = []  # what was seen at rest is judged: a gate looks at its server by itself now and then, too

            def settled(sidecar=sidecar, scrapes=scrapes):
                scrapes.append(sidecar.http("/metrics")[1])
                return not open_gauges(scrapes[-1])

            with contextlib.suppress(AssertionError):
                eventually(settled, SETTLED)
            found = left_open(scrapes[-1])
            found += [f"protocol: {figure} is {value:g}, where nobody made an error" for figure, value in sidecar.metrics().items()
                      if figure.startswith("fencegate_protocol_errors_total") and value]
            self.wrong += [f"{text} ({name} sidecar, {when})" for text in found]
        seen = {}
        for name, sidecar in self.stay.items():
            self.settle_descriptors(sidecar)
            rss = []
            for _ in range(SAMPLES):
                rss.append(sidecar.rss_bytes())
                time.sleep(0.3)
            seen[name] = Rest(max(rss), sidecar.descriptors())
            self.say(f"{when}, {name}: at rest with {seen[name].rss >> 10} KiB, {seen[name].descriptors} descriptors: "
                     f"{sidecar.connections()}")
        return seen

    @staticmethod
    def settle_descriptors(sidecar):
        """Former configurations end behind their last clients: until as many as before for two seconds."""
        before, since, end = None, time.monotonic(), time.monotonic() + SETTLED
        while time.monotonic() < min(since + 2, end):
            if (now := sidecar.descriptors()) != before:
                before, since = now, time.monotonic()
            time.sleep(0.1)

    # ── the judges ──

    def judge(self):
        self.tell()
        for sidecar in self.all:
            sidecar.kill()
        self.other.back.cut_all()
        eventually(self.kinds["http"].left_alone)
        verdict = Verdict()
        for kind, rig in self.kinds.items():
            histories = [history for writer in self.writers[kind] for history in writer.histories()]
            verdict.include(rig.judge(histories))
        self.jobs.judge(verdict)
        for text in self.wrong + self.trouble.failed:
            verdict.add(*text.split(": ", 1))
        return verdict

    @contextlib.contextmanager
    def kept(self, process, name):
        """Its log is in the folder behind it, however the soak ends."""
        with process:
            try:
                yield process
            finally:
                with open(os.path.join(self.folder, f"{name}.log"), "w") as file:
                    file.write(process.log())
