"""docker/k8s/deployment.yaml on a cluster: what its pods may do, rolling updates, pods that stand still."""

import subprocess
import tempfile

from cluster import WAIT, command, timed
from writers import WriterTest

PAGE = "docs/operations.md"


class Pods(WriterTest):
    def test_have_no_rights_and_cannot_write(self):
        (pod, *_) = self.rig.pods("orders-writer")
        script = "id -u; id -g; grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/1/status; touch /tmp/x /etc/fencegate/x; true"
        done = subprocess.run(["kubectl", "exec", pod["metadata"]["name"], "-c", "fencegate", "--", "sh", "-c", script],
                              capture_output=True, text=True, check=True)
        nothing = "0" * 16
        self.assertEqual(done.stdout.split()[:2], ["65532", "65532"])
        self.assertEqual(done.stderr.count("Read-only file system"), 2, done.stderr)
        for value in ("CapEff:\t" + nothing, "CapBnd:\t" + nothing, "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(value, done.stdout)

    def test_a_rolling_update_loses_and_doubles_nothing(self):
        with timed("the first writer writes"):
            pod, token = self.await_holder()
        with tempfile.TemporaryFile("w+") as log, subprocess.Popen(
                ["kubectl", "logs", "-f", pod, "-c", "fencegate", "--tail=1"], stdout=log, stderr=log) as follower:
            try:
                self.rig.shell(command(PAGE, "kubectl set image deployment/orders-writer"))
                with timed("the rolling update"):
                    self.rig.roll_out()
                newer = self.await_holder(other_than=pod)
                follower.wait(WAIT)
            finally:
                follower.kill()
            log.seek(0)
            said = log.read()
        self.assertGreater(newer[1], token)
        images = {one["spec"]["initContainers"][0]["image"] for one in self.rig.pods("orders-writer")}
        self.assertEqual(images, {"fencegate:0.1.0-next"})
        reports = self.assert_once_and_in_order()
        self.assertEqual({gate for gate, some in reports["unknown"].items() if some} - {"postgres"}, set(), reports["unknown"])
        self.assert_refused_as_stale(pod, token, late=True)
        self.assertIn("drain", said)


class StandingStill(WriterTest):
    """One is frozen, as on a node that was paused, while the other takes over; then it goes on where it was."""

    def setUp(self):
        self.rig.need_freezing()

    def thawed_late(self, pod, *containers):
        for container in containers:
            self.rig.freeze(self, pod, container)
        if "writer" not in containers:
            self.rig.locks.revoke()
        self.await_holder(other_than=pod)
        for container in reversed(containers):
            self.rig.cluster.thaw(pod, container)

    def test_a_frozen_sidecar(self):
        pod, token = self.await_holder()
        self.thawed_late(pod, "fencegate")
        self.assert_refused_as_stale(pod, token)
        self.assert_once_and_in_order(but_late={("put", pod)})

    def test_a_frozen_pod(self):
        pod, token = self.await_holder()
        self.thawed_late(pod, "writer", "fencegate")
        self.assert_refused_as_stale(pod, token)
        self.assert_once_and_in_order(but_late={("put", pod)})


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
