"""docker/k8s/job.yaml on a cluster."""

import time
import unittest

import cluster
from cluster import WAIT, command, eventually

PAGE = "docs/operations.md"


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.configured

    def outcome(self, created):
        """(its condition, the pod) when the Job and its sidecar have ended. `created`: what kubectl create said."""
        name = created.split()[0]
        started = time.monotonic()

        def ended():
            job = self.rig.get(name)
            return {one["type"] for one in job["status"].get("conditions", ()) if one["status"] == "True"} & {"Complete", "Failed"}
        (condition,) = eventually(ended, WAIT, every=0.2)
        (pod,) = self.rig.get("pods", "-l", f"batch.kubernetes.io/job-name={name.split('/')[1]}")
        print(f"({time.monotonic() - started:.1f} s from the start to the end of the Job)", end=" ", flush=True)
        return condition, pod

    def test_completes_and_its_sidecar_with_it_and_fails_with_an_older_token(self):
        condition, pod = self.outcome(self.rig.run_page(command(PAGE, "kubectl create -f docker/k8s/job.yaml")))
        self.assertEqual((condition, self.rig.redis.cli.call("GETDEL", "orders:report")), ("Complete", b"done"))
        sidecar = pod["status"]["initContainerStatuses"][0]
        self.assertEqual((sidecar["state"]["terminated"]["exitCode"], sidecar["restartCount"]), (0, 0))

        older = self.rig.shipped("docker/k8s/job.yaml").replace('value: "34"', 'value: "33"')
        condition, pod = self.outcome(self.rig.kubectl("create", "-f", "-", text=older))
        self.assertEqual((condition, self.rig.redis.cli.call("GET", "orders:report")), ("Failed", None))
        said = self.rig.kubectl("logs", pod["metadata"]["name"], "-c", "report")
        self.assertIn("FENCED token 33 of orders is below mark 34; not applied", said)
        self.assertEqual(pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0)

    def test_the_namespace_takes_restricted_pods_only(self):
        with self.assertRaisesRegex(AssertionError, "violates PodSecurity"):
            self.rig.kubectl("create", "-f", "-", text="""
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
                 "spec": {"containers": [{"name": "bare", "image": "redis:7.0"}]}}""")


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
