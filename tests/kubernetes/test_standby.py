"""docker/k8s/lease-gates.yaml on a cluster: an application that nobody changed, in two pods behind gates that hold the lease."""

import cluster
from billing import HOOK, PAGE, BillingTest
from cluster import WAIT, command, eventually


class LeaseGates(BillingTest):
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

    def test_a_frozen_pod_is_refused_and_started_anew_and_stands_by(self):
        self.rig.need_freezing()
        pod, _ = self.await_worker()
        other = self.other(pod)
        self.assertIn("standby", self.probe(other))
        before = self.restarts(pod)

        blocked = cluster.Blocked(self.rig, "billed")
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

        eventually(lambda: self.restarts(pod)["app"] > before["app"], WAIT, every=0.2)
        eventually(lambda: "standby" in self.probe(pod), WAIT, every=0.2)
        self.assertEqual(self.restarts(pod)["fencegate"], before["fencegate"], "the sidecar stays")
        self.assert_cut_off(self.logged(pod, "--previous"))
        self.await_more(other)
        self.assert_in_turns()

    def test_a_rolling_update_hands_over(self):
        self.await_worker()
        token = self.token()
        old = {one["metadata"]["name"] for one in self.rig.pods("billing")}
        self.rig.shell(command(PAGE, "kubectl rollout restart deployment/billing"))
        with cluster.timed("the hand-over of a rolling update"):
            self.assertTrue(self.await_hand_over(token), "nobody waited for the TTL")
        self.rig.roll_out("billing")
        self.await_worker(other_than=old)
        self.assert_in_turns()

    def test_a_hook_that_comes_again_changes_nothing(self):
        pod, runs = self.await_worker()
        token, before = self.token(), self.restarts(pod)
        for _ in range(2):
            self.assertEqual(self.within(pod, "app", *HOOK), (0, ""))
        self.await_more(pod)
        self.assertEqual((self.token(), self.restarts(pod), self.last()), (token, before, (pod, runs)))

    def test_a_sidecar_that_is_killed_goes_on_with_its_term(self):
        pod, runs = self.await_worker()
        token, before = self.token(), self.restarts(pod)
        self.rig.kill_sidecar(pod)
        eventually(lambda: self.restarts(pod)["fencegate"] > before["fencegate"], WAIT, every=0.2)
        self.await_more(pod)
        self.assertEqual((self.token(), self.restarts(pod)["app"], self.last()), (token, before["app"], (pod, runs)))


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
