"""Trouble at random moments: gates and writers are frozen, killed and cut off, connections are held back and cut.

One loop in one thread; each freeze has its thaw in a queue."""

import heapq
import itertools
import time
from collections import Counter


class Chaos:
    """`gates`: each with its `back` proxy towards the backend, or None, and its `front` proxy towards writers, or None.
    `always`: called at each step, returns what it did. `more`: further actions, chaos → done or not, with weights.
    `least`: how often an action has to happen; once where it does not say."""

    def __init__(self, random, gates, writers, always=None, more=None, least=None):
        self.random, self.gates, self.writers, self.always = random, gates, writers, always
        self.least = least or {}
        self.actions = {Chaos.freeze_gate: 35, Chaos.hold_back: 20, Chaos.hold_front: 8, Chaos.freeze_writer: 15,
                        Chaos.cut_back: 7, Chaos.cut_front: 7, Chaos.kill_writer: 3, Chaos.kill_gate: 3} | (more or {})
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
        if self.always:
            self.done[self.always()] += 1
        if now < self._next:
            return
        self._next = now + self.random.uniform(0.02, 0.12)
        action = self.random.choices(list(self.actions), self.actions.values())[0]
        if action(self):
            self.done[action.__name__] += 1

    def still_missing(self):
        """Names of the actions that have not happened often enough so far."""
        return [action.__name__ for action in self.actions if self.done[action.__name__] < self.least.get(action, 1)]

    def finish(self):
        """Undoes everything that is still frozen."""
        while self._later:
            heapq.heappop(self._later)[2]()

    def freeze_gate(self):
        gate = self.random.choice(self.gates)
        return self.freeze_for_a_while(gate, gate.stop_process, gate.continue_process, 0.03, 0.4)

    def freeze_writer(self):
        writer = self.random.choice(self.writers)
        return self.freeze_for_a_while(writer, writer.stop_process, writer.continue_process, 0.05, 0.6)

    def hold_back(self):
        """Between a gate and its backend: what was sent before a takeover arrives after it."""
        return self._hold([gate.back for gate in self.gates if gate.back])

    def hold_front(self):
        return self._hold([gate.front for gate in self.gates if gate.front])

    def _hold(self, proxies):
        proxy = self.random.choice(proxies)
        return self.freeze_for_a_while(proxy, proxy.freeze, proxy.thaw, 0.03, 0.4)

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

    def freeze_for_a_while(self, target, freeze, thaw, shortest, longest):
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
