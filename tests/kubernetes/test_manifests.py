"""The base and the overlay of kustomize, its Job, and what `fencegate inject` makes of a Job without the sidecar, on a cluster."""

import os
import re
import tempfile
import unittest
from pathlib import Path

import cluster
from cluster import ROOT, WAIT, command, eventually

PAGE = "docs/operations.md"


class Kustomized(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.configured
        cls.rig.kubectl("create", "namespace", "orders")
        cls.rig.kubectl("label", "namespace", "orders", "pod-security.kubernetes.io/enforce=restricted")

    @classmethod
    def tearDownClass(cls):
        cls.rig.kubectl("delete", "namespace", "orders", "--wait=false")

    def test_the_cluster_takes_the_base_and_the_overlay(self):
        """By its schemas and its rules for restricted pods, to the last field; nothing is started."""
        said = self.rig.kubectl("apply", "-k", str(ROOT / "docker/k8s"), "--dry-run=server", "--validate=strict")
        for made in ("cronjob.batch/book-invoices", "deployment.apps/orders-writer", "job.batch/import-orders",
                     "networkpolicy.networking.k8s.io/postgres-through-fencegate"):
            self.assertIn(made, said)
        said = self.rig.shell(command(PAGE, "kubectl apply -k docker/k8s-overlay") + " --dry-run=server --validate=strict 2>&1")
        self.assertNotIn("Warning", said)
        self.assertIn("deployment.apps/orders-writer", said)


class Job(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.deployed

    def manifest(self, name, token):
        text = (ROOT / "docker/k8s/job.yaml").read_text()
        for old, new in {"postgres:15": "orders-writer:1", "import=34": f"import={token}", "import-orders": name}.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        return text

    def end_of(self, name):
        """"Complete" or "Failed"."""
        self.addCleanup(self.rig.kubectl, "delete", "job", name, "--cascade=foreground", "--wait=false")

        def ended():
            return [one["type"] for one in self.rig.get("jobs", name)["status"].get("conditions", ())
                    if one["type"] in ("Complete", "Failed") and one["status"] == "True"]
        return eventually(ended, WAIT, every=0.2)[0]

    def test_writes_under_its_token_and_an_older_one_behind_an_injected_sidecar_fails(self):
        imported = "SELECT count(*) FROM orders WHERE doc->'imported' = 'true'"
        self.rig.kubectl("apply", "-f", "-", text=self.manifest("import-34", 34))
        self.assertEqual(self.end_of("import-34"), "Complete")
        self.assertEqual(self.rig.sql(imported), [(1,)])
        bare = re.sub(r"(?m)^      (initContainers|volumes):\n(        .*\n)+", "", self.manifest("import-33", 33))
        self.assertNotIn("name: fencegate", bare)
        program = os.environ["FENCEGATE"]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "deployment.yaml").write_text(bare)
            line = command(PAGE, "fencegate inject -f deployment.yaml").replace("fencegate inject", f"{program} inject", 1)
            said = self.rig.shell(f"cd {folder}; {line} --validate=strict")
        self.assertIn("job.batch/import-33 created", said)
        self.assertEqual(self.end_of("import-33"), "Failed")
        self.assertIn("token 33 of import is below mark 34; not applied", self.rig.kubectl("logs", "job/import-33", "-c", "job"))
        self.assertEqual(self.rig.sql(imported), [(1,)])
        # What the cluster says of it has the sidecar.
        again = self.rig.shell(f"kubectl get job import-33 -o yaml | {program} inject 2>&1 >/dev/null")
        self.assertEqual(again, "fencegate inject: Job import-33: has the sidecar already\n")


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
