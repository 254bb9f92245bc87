"""Trouble at random moments: gates and writers are frozen, killed and cut off, connections are held back and cut.

One loop in one thread; each freeze has its thaw in a queue."""

import heapq
import itertools
import time
from collections import Counter


class Chaos:
    """`gates`: each with its `back` proxy towards Redis, or None, and its `front` proxy towards writers, or None.
    `script_flush`: also runs SCRIPT FLUSH against Redis all the time."""

    def __init__(self, random, gates, writers, redis, script_flush=False):
        self.random, self.gates, self.writers, self.redis, self.script_flush = random, gates, writers, redis, script_flush
        self.done = Counter()
        self._later = []  # (time, number, undo)
        self._number = itertools.count()
        self._frozen = set()
        self._next = 0.0

    def step(self):
        """To be called every few milliseconds."""
        for process in (*self.gates, *self.writers):
            process.assert_running()
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        if self.script_flush:
            self.redis.cli.call("SCRIPT", "FLUSH", "SYNC")
            self.done["scripts flushed"] += 1
        if now < self._next:
            return
        self._next = now + self.random.uniform(0.02, 0.12)
        actions = {self.freeze_gate: 35, self.hold_back: 20, self.hold_front: 8, self.freeze_writer: 15, self.cut_back: 7,
                   self.cut_front: 7, self.kill_writer: 3, self.kill_gate: 3}
        action = self.random.choices(list(actions), actions.values())[0]
        if action():
            self.done[action.__name__] += 1

    def finish(self):
        """Undoes everything that is still frozen."""
        while self._later:
            heapq.heappop(self._later)[2]()

    def freeze_gate(self):
        gate = self.random.choice(self.gates)
        return self._freeze(gate, gate.stop_process, gate.continue_process, 0.03, 0.4)

    def freeze_writer(self):
        writer = self.random.choice(self.writers)
        return self._freeze(writer, writer.stop_process, writer.continue_process, 0.05, 0.6)

    def hold_back(self):
        """Between a gate and Redis: what was sent before a takeover arrives after it."""
        return self._hold([gate.back for gate in self.gates if gate.back])

    def hold_front(self):
        return self._hold([gate.front for gate in self.gates if gate.front])

    def _hold(self, proxies):
        proxy = self.random.choice(proxies)
        return self._freeze(proxy, proxy.freeze, proxy.thaw, 0.03, 0.4)

    def cut_back(self):
        return self.random.choice([gate.back for gate in self.gates if gate.back]).cut_all() > 0

    def cut_front(self):
        return self.random.choice([gate.front for gate in self.gates if gate.front]).cut_all() > 0

    def kill_writer(self):
        self.random.choice(self.writers).replace()
        return True

    def kill_gate(self):
        gate = self.random.choice(self.gates)
        gate.kill()
        if gate.back:
            gate.back.thaw()  # it would never become ready
        gate.start()
        return True

    def _freeze(self, target, freeze, thaw, shortest, longest):
        if target in self._frozen:
            return False
        self._frozen.add(target)
        freeze()

        def undo():
            self._frozen.discard(target)
            thaw()

        end = time.monotonic() + self.random.uniform(shortest, longest)
        heapq.heappush(self._later, (end, next(self._number), undo))
        return True
