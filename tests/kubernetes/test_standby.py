"""docker/k8s/lease-gates.yaml on a cluster: an application that nobody changed, in two pods behind gates that hold the lease."""

import collections
import itertools
import json
import subprocess
import unittest

import cluster
from cluster import WAIT, command, eventually

PAGE = "docs/leases.md"
PROBE = ("/run/fencegate/bin/fencegate-hold", "lease", "writer", "app")
HOOK = ("/run/fencegate/bin/fencegate-hold", "lease", "restarted", "app")


def run_of(one):
    return one["pod"], one["started"]


class LeaseGates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.installed
        cls.rig.sql("CREATE ROLE billing LOGIN; CREATE TABLE billed(id bigserial, doc jsonb);"
                    "GRANT ALL ON billed TO billing; GRANT ALL ON SEQUENCE billed_id_seq TO billing")
        cls.rig.run_page(command(PAGE, "kubectl apply -f docker/k8s/lease-gates.yaml"))
        cls.rig.roll_out("billing")

    def landed(self):
        """{server: what it let through, in order}"""
        return {"postgres": [doc for (doc,) in self.rig.sql("SELECT doc FROM billed ORDER BY id")],
                "redis": [json.loads(one) for one in self.rig.redis.cli.call("LRANGE", "billed", 0, -1)]}

    def last(self):
        """The pod and its run that wrote last in each server, if it is the same."""
        runs = {run_of(some[-1]) for some in self.landed().values() if some}
        return runs.pop() if len(runs) == 1 else None

    def await_worker(self, other_than=()):
        """(pod, run) of the one that writes, to both servers."""
        return eventually(lambda: (run := self.last()) and run[0] not in other_than and run, WAIT, every=0.2)

    def await_more(self, pod):
        """That pod goes on writing, to both servers."""
        def counts():
            return [sum(one["pod"] == pod for one in some) for some in self.landed().values()]
        before = counts()
        eventually(lambda: all(now > then for now, then in zip(counts(), before)), WAIT, every=0.2)

    def other(self, pod):
        (other,) = {one["metadata"]["name"] for one in self.rig.pods("billing")} - {pod}
        return other

    def probe(self, pod):
        """What the liveness probe says of that pod's application."""
        done = subprocess.run(["kubectl", "exec", pod, "-c", "app", "--", *PROBE], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def token(self):
        return self.rig.sql("SELECT token FROM fencegate.leases WHERE resource = 'billing'")[0][0]

    def await_hand_over(self, token):
        """Until another has the lease. Whether the former term, as it was seen last, was not over by its time."""
        seen = []

        def is_handed_over():
            row, = self.rig.sql("SELECT token, granted_at < %s, expires_at::text FROM fencegate.leases WHERE resource = 'billing'",
                                seen[-1] if seen else "infinity")
            if row[0] == token and row[2] != "-infinity":
                seen.append(row[2])
            return row if row[0] > token else None
        return eventually(is_handed_over, WAIT, every=0.2)[1]

    def restarts(self, pod):
        """Of the application, and of the sidecar."""
        status = self.rig.get("pod", pod)["status"]
        counts = {one["name"]: one["restartCount"] for one in status["containerStatuses"] + status["initContainerStatuses"]}
        return counts["app"], counts["fencegate"]

    def logged(self, pod, *which):
        lines = self.rig.kubectl("logs", pod, "-c", "app", *which).splitlines()
        return [json.loads(line) for line in lines]

    def assert_in_turns(self):
        """Each run of an application wrote once or not at all what it meant to, and none wrote behind its successor."""
        for server, some in self.landed().items():
            with self.subTest(server=server):
                counts = collections.Counter((*run_of(one), one["n"]) for one in some)
                self.assertEqual([one for one, count in counts.items() if count > 1], [], "doubled")
                turns = [run for run, _ in itertools.groupby(map(run_of, some))]
                self.assertEqual(len(turns), len(set(turns)), turns)

    def test_a_frozen_pod_is_refused_and_started_anew_and_stands_by(self):
        self.rig.need_freezing()
        pod, _ = self.await_worker()
        other = self.other(pod)
        self.assertIn("standby", self.probe(other))
        before = self.restarts(pod)

        blocked = cluster.Blocked(self.rig, "LOCK TABLE billed IN EXCLUSIVE MODE")
        self.addCleanup(blocked.close)
        in_flight = blocked.await_waiting()
        for container in ("fencegate", "app"):
            self.rig.freeze(self, pod, container)
        with cluster.timed("the other pod takes over from a frozen one"):
            blocked.await_waiting(other_than=in_flight)
            blocked.close()
            self.await_worker(other_than=(pod,))
        for container in ("fencegate", "app"):
            self.rig.cluster.thaw(pod, container)

        eventually(lambda: self.restarts(pod)[0] > before[0], WAIT, every=0.2)
        eventually(lambda: "standby" in self.probe(pod), WAIT, every=0.2)
        self.assertEqual(self.restarts(pod)[1], before[1], "the sidecar stays")
        said = self.logged(pod, "--previous")
        late = said[max(place for place, one in enumerate(said) if one["said"] == "ok") + 1]  # what was in flight
        self.assertNotIn({name: late[name] for name in ("pod", "started", "n")}, self.landed()[late["server"]])
        self.await_more(other)
        self.assert_in_turns()

    def test_a_rolling_update_hands_over(self):
        pod, _ = self.await_worker()
        token = self.token()
        old = {one["metadata"]["name"] for one in self.rig.pods("billing")}
        self.rig.shell(command(PAGE, "kubectl rollout restart deployment/billing"))
        with cluster.timed("the hand-over of a rolling update"):
            self.assertTrue(self.await_hand_over(token), "nobody waited for the TTL")
        self.rig.roll_out("billing")
        self.await_worker(other_than=old)
        self.assert_in_turns()

    def test_a_hook_that_comes_again_changes_nothing(self):
        pod, started = self.await_worker()
        token, before = self.token(), self.restarts(pod)
        for _ in range(2):
            self.rig.kubectl("exec", pod, "-c", "app", "--", *HOOK)
        self.await_more(pod)
        self.assertEqual((self.token(), self.restarts(pod), self.last()), (token, before, (pod, started)))

    def test_a_sidecar_that_is_killed_goes_on_with_its_term(self):
        pod, started = self.await_worker()
        token, before = self.token(), self.restarts(pod)
        self.rig.kill_sidecar(pod)
        eventually(lambda: self.restarts(pod)[1] > before[1], WAIT, every=0.2)
        self.await_more(pod)
        self.assertEqual((self.token(), self.restarts(pod)[0], self.last()), (token, before[0], (pod, started)))


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
