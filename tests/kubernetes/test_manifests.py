"""On a cluster: the base and the overlay of kustomize, the chart, the Job, and what `fencegate inject` makes of a Job without the
sidecar."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import cluster
import helm
from cluster import ROOT, WAIT, command, eventually

PAGE = "docs/operations.md"
CHART_PAGE = "docs/helm.md"


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


@unittest.skipUnless(helm.program(), helm.MISSING)
class Chart(unittest.TestCase):
    """docker/helm, in a namespace that has none of the servers: sidecars start without them."""

    SPACE = "chart"

    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        cls.rig.kubectl("create", "namespace", cls.SPACE)
        cls.rig.kubectl("label", "namespace", cls.SPACE, "pod-security.kubernetes.io/enforce=restricted")
        cls.rig.shell(command(CHART_PAGE, "kubectl create secret generic fencegate") + f" -n {cls.SPACE}")

    @classmethod
    def tearDownClass(cls):
        cls.rig.kubectl("delete", "namespace", cls.SPACE, "--wait=false")

    def helm(self, *words):
        """What it wrote. AssertionError when it fails."""
        done = subprocess.run([helm.program(), *words, "-n", self.SPACE], cwd=ROOT, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"helm {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def install(self):
        """The words of the page's command, behind `helm`."""
        return command(CHART_PAGE, "helm install orders").split()[1:]

    def pods(self):
        return {one["metadata"]["name"] for one in self.rig.get("pods", selector="app=orders-writer", namespace=self.SPACE)
                if "deletionTimestamp" not in one["metadata"]}

    def test_the_cluster_takes_what_it_renders(self):
        """By its schemas and its rules for restricted pods, to the last field; nothing is started."""
        _, name, chart, *values = self.install()
        rights = "workloads.orders-writer.rbac.leases=true,workloads.orders-writer.rbac.names={orders}"
        self.assert_taken([name, chart, *values, "--set", rights], "cronjob.batch/book-invoices", "deployment.apps/orders-writer",
                          "job.batch/import-orders", "networkpolicy.networking.k8s.io/postgres-through-fencegate",
                          "serviceaccount/orders-writer", "role.rbac.authorization.k8s.io/orders-writer-leases")
        self.assert_taken(["billing", chart, "-f", "docker/helm/billing.yaml"], "deployment.apps/billing", "configmap/billing")

    def assert_taken(self, words, *made):
        rendered = self.helm("template", *words)
        said = self.rig.kubectl("apply", "-n", self.SPACE, "-f", "-", "--dry-run=server", "--validate=strict", text=rendered)
        for one in made:
            self.assertIn(f"{one} created (server dry run)", said)

    def test_it_is_installed_and_a_changed_configuration_replaces_the_pods(self):
        idle = {"command": ["sh", "-c", "trap exit TERM; sleep infinity & wait"]}
        waiting = {"workloads": {"orders-writer": idle, "book-invoices": None, "import-orders": None}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(waiting, file)
            file.flush()
            said = self.helm(*self.install(), "-f", file.name)
            self.addCleanup(self.helm, "uninstall", "orders", "--wait")
            self.assertIn("exec deploy/orders-writer -c fencegate -- fencegate install", said)
            rolled_out = ("rollout", "status", "deployment/orders-writer", "-n", self.SPACE, f"--timeout={WAIT}s")
            self.rig.kubectl(*rolled_out)
            before = self.pods()
            self.assertEqual(len(before), 2)
            gates = self.rig.kubectl("exec", "deploy/orders-writer", "-n", self.SPACE, "-c", "fencegate", "--", "fencegate", "check", "-c",
                                     "/etc/fencegate/fencegate.yaml")
            self.assertIn(": OK, 3 gates", gates)
            self.helm("upgrade", *self.install()[1:], "-f", file.name, "--set", "config.log.level=debug")
            self.rig.kubectl(*rolled_out)
            eventually(lambda: len(self.pods()) == 2 and not self.pods() & before, WAIT, every=0.2)


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
