"""What the writers of the Deployment reported, against what the servers hold."""

import collections
import unittest

import cluster
from cluster import WAIT, eventually

GATES = {"redis", "postgres", "put", "post"}


def once(one):
    return one["pod"], one["token"], one["n"]


class WriterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.deployed

    def reported(self, outcome="ok", **fields):
        """{gate: its reports} so far."""
        found = collections.defaultdict(list)
        for one in self.rig.locks.of(outcome=outcome, **fields):
            found[one["gate"]].append(one)
        return found

    def await_reports(self, outcome="ok", gates=GATES, more_than=0, **fields):
        """Until each gate has so many."""
        def lacking():
            found = self.reported(outcome, **fields)
            return {gate: len(found[gate]) for gate in gates if len(found[gate]) <= more_than}
        eventually(lambda: not lacking() or None, WAIT)

    def await_holder(self, other_than=None):
        """(pod, token) of the one that holds the lease and writes through all gates."""
        def holder():
            with self.rig.locks.lock:
                pod, token = self.rig.locks.holder, self.rig.locks.token
            if pod not in (None, other_than) and GATES <= set(self.reported(pod=pod, token=token)):
                return pod, token
            return None
        return eventually(holder, WAIT)

    def assert_once_and_in_order(self, but_late=()):
        """All that was acknowledged landed once, nothing that was refused landed, and no older token behind a newer one.
        `but_late`: (gate, pod) whose one request in flight may have come late."""
        reports = {outcome: self.reported(outcome) for outcome in ("ok", "refused", "unknown")}  # before what they tell of
        landed = self.rig.landed()
        for gate in GATES:
            with self.subTest(gate=gate):
                counts = collections.Counter(map(once, landed[gate]))
                self.assertEqual([one for one, count in counts.items() if count > 1], [], "doubled")
                self.assertEqual([one for one in reports["ok"][gate] if once(one) not in counts], [], "lost")
                self.assertEqual([one for one in reports["refused"][gate] if once(one) in counts], [], "refused, and there")
                late, newest = [], 0
                for one in landed[gate]:
                    if one["token"] < newest:
                        late.append(one)
                    newest = max(newest, one["token"])
                allowed = 1 if late and (gate, late[0]["pod"]) in but_late else 0
                self.assertLessEqual(len(late), allowed, late)
        return reports

    def assert_refused_as_stale(self, pod, token, **fields):
        """Each gate told that writer why."""
        self.await_reports("refused", pod=pod, token=token, **fields)
        words = {"redis": "-FENCED token", "postgres": "ZF001", "put": "below mark", "post": "below mark"}

        def is_told(gate):  # there may have been other reasons before, as while its sidecar was down
            return any(words[gate] in one["words"] or "below mark" in one["words"]
                       for one in self.reported("refused", pod=pod, token=token)[gate])
        for gate in words:
            eventually(lambda gate=gate: is_told(gate), WAIT, every=0.2)
