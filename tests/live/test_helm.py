"""The chart of docker/helm, as Helm renders it: the same objects as docker/k8s, and the same sidecar as `fencegate inject`.

Whether a cluster takes them: see tests/kubernetes. Needs python3-yaml, and Helm: `./dev test --all` installs both.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

import yaml

import helm
from documents import ROOT, block, command
from live_test import main

PAGE = "docs/helm.md"
HELM = helm.program()
FOLDER = ROOT / "docker/helm"
CHART = FOLDER / "fencegate"
ORDERS = ("-f", FOLDER / "orders.yaml")
BILLING = ("-f", FOLDER / "billing.yaml")
CHECKSUM = "checksum/config"
DIGEST = "sha256:" + hashlib.sha256(b"").hexdigest()


def run_helm(*words):
    return subprocess.run([HELM, *map(str, words)], cwd=ROOT, text=True, capture_output=True, stdin=subprocess.DEVNULL, check=False)


def objects_of(text):
    """{(kind, name): object}"""
    found = [one for one in yaml.safe_load_all(text) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(by_name) == len(found), "two of one name"
    return by_name


def shipped(*paths):
    return objects_of("\n---\n".join((ROOT / "docker" / path).read_text() for path in paths))


def pod_template(one):
    spec = one["spec"]["jobTemplate"]["spec"] if one["kind"] == "CronJob" else one["spec"]
    return spec.get("template")


def templates_of(objects):
    """{name of a workload: its pod template}"""
    return {name: pod_template(one) for (kind, name), one in objects.items() if kind in ("Deployment", "CronJob", "Job")}


def configuration(one):
    return yaml.safe_load(one["data"]["fencegate.yaml"])


class HelmTest(unittest.TestCase):
    def setUp(self):
        if not HELM:
            self.skipTest(helm.MISSING)

    def render(self, *words, chart=CHART, release="orders"):
        done = run_helm("template", release, chart, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("warning", done.stderr.lower())
        return objects_of(done.stdout)

    def render_values(self, text, *words):
        """With a file of values."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            return self.render(*words, "-f", file.name)

    def refused(self, *words, values=ORDERS):
        done = run_helm("template", "orders", CHART, *values, *words)
        self.assertNotEqual(done.returncode, 0, words)
        return done.stderr

    @staticmethod
    def without_helms_own(one):
        """Its labels are there, and more; the text of a configuration may be written otherwise."""
        one["metadata"].pop("labels", None)
        template = pod_template(one) if "spec" in one else None
        if template and template["metadata"].get("annotations", {}).pop(CHECKSUM, None):
            if not template["metadata"]["annotations"]:
                del template["metadata"]["annotations"]
        if one["kind"] == "ConfigMap":
            one["data"] = {"fencegate.yaml": configuration(one)}
        return one

    def assert_same(self, made, wanted):
        self.maxDiff = None
        self.assertEqual(set(made), set(wanted))
        for key, want in wanted.items():
            got = made[key]
            self.assertLessEqual(want["metadata"].get("labels", {}).items(), got["metadata"]["labels"].items(), key)
            self.assertEqual(got["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm")
            self.assertEqual(self.without_helms_own(got), self.without_helms_own(want), key)


class Chart(HelmTest):
    def test_has_no_fault_that_helm_knows(self):
        for values in ((), ORDERS, BILLING):
            done = run_helm("lint", "--strict", CHART, *values)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_has_the_version_and_the_licence_of_the_project(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        project = re.search(r"^project\(fencegate VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        self.assertEqual((chart["version"], chart["appVersion"]), (project, project))
        self.assertEqual((chart["kubeVersion"], chart["annotations"]["licenses"]), (">=1.29.0-0", "Apache-2.0"))

    def test_makes_nothing_by_default(self):
        self.assertEqual(self.render(), {})

    def test_every_value_that_the_schema_has_is_in_the_values(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        text = (CHART / "values.yaml").read_text()
        self.assertEqual(set(schema["properties"]) - {"global", "enabled"}, set(yaml.safe_load(text)))
        for name in schema["definitions"]["workload"]["properties"]:
            self.assertRegex(text, rf"(?m)^#.*\b{name}\b")

    def test_the_page_has_the_values(self):
        rows = re.findall(r"^\| (`\w+`(?:, (?:or )?`\w+`)*) \|", (ROOT / PAGE).read_text(), re.M)
        values = set(yaml.safe_load((CHART / "values.yaml").read_text()))
        self.assertEqual(set(re.findall(r"`(\w+)`", " ".join(rows))), values)


class Manifests(HelmTest):
    def test_orders_are_those_of_docker_k8s(self):
        line = command(PAGE, "helm install orders").split()
        self.assertEqual(line[:3], ["helm", "install", "orders"])
        made = self.render(*line[4:], chart=line[3])
        base = yaml.safe_load((ROOT / "docker/k8s/kustomization.yaml").read_text())["resources"]
        self.assertEqual(len(base), 5)
        self.assert_same(made, shipped(*(f"k8s/{name}" for name in base)))

    def test_an_application_behind_gates_that_hold_the_lease_is_that_of_docker_k8s(self):
        self.assert_same(self.render(*BILLING), shipped("k8s/lease-gates.yaml"))

    def test_the_monitor_is_that_of_docker_k8s_monitoring(self):
        made = self.render(*ORDERS, "--set", "podMonitor.enabled=true")
        more = {key: one for key, one in made.items() if key not in self.render(*ORDERS)}
        self.assert_same(more, shipped("k8s-monitoring/podmonitor.yaml"))
        made = self.render("--set", "podMonitor.enabled=true,podMonitor.labels.release=prometheus")
        self.assertEqual(made[("PodMonitor", "orders-fencegate")]["metadata"]["labels"]["release"], "prometheus")

    def test_the_configurations_are_right(self):
        text = (ROOT / "docker/k8s-overlay/fencegate.yaml")
        made = [self.render(*ORDERS), self.render(*BILLING), self.render("--set-file", f"configText={text}")]
        texts = [one["data"]["fencegate.yaml"] for objects in made for (kind, _), one in objects.items() if kind == "ConfigMap"]
        self.assertEqual(len(texts), 4)
        self.assertEqual(texts[-1], text.read_text())
        for one in texts:
            self.assert_right(one)

    def test_a_configuration_means_the_same_as_a_map(self):
        shipped_ones = [ROOT / "config/fencegate.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]
        self.assertGreater(len(shipped_ones), 5)
        for path in shipped_ones:
            with self.subTest(path.name):
                (made,) = self.render_values("config:\n" + textwrap.indent(path.read_text(), "  ")).values()
                self.assertEqual(configuration(made), yaml.safe_load(path.read_text()))
                self.assert_right(made["data"]["fencegate.yaml"])

    def test_a_large_number_is_kept_in_quotes(self):
        numbers = {"max_step": str(2**53 + 1)}
        config = {"admin": {"listen": ":9180"}, "gates": [{"name": "cache", "protocol": "redis", "listen": "127.0.0.1:6380",
                                                           "upstream": "redis://redis:6379", "policy": numbers}]}
        (made,) = self.render_values(yaml.safe_dump({"config": config})).values()
        self.assertEqual(configuration(made)["gates"][0]["policy"], numbers)
        self.assert_right(made["data"]["fencegate.yaml"])

    def assert_right(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([os.environ["FENCEGATE"], "check", "--no-secrets", "-c", file.name], text=True,
                                  capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), text)


class Values(HelmTest):
    def test_an_error_in_them_is_named(self):
        for name, setting in {
            "imagee": "imagee.tag=1", "replica": "workloads.orders-writer.replica=3", "prot": "networkPolicies.redis.prot=TCP",
            "memmory": "sidecar.memmory=1", "leasess": "workloads.orders-writer.rbac.leasess=true", "enabld": "podMonitor.enabld=true",
            # What another kind has.
            "schedule": "workloads.orders-writer.schedule=@daily", "replicas": "workloads.import-orders.replicas=3",
            "backoffLimit": "workloads.orders-writer.backoffLimit=1",
            # What is missing, or cannot be.
            "kind": "workloads.orders-writer.kind=Pod", "podLabels": "networkPolicies.mysql.port=3306", "digest": "image.digest=sha256:1",
            "containerName": "workloads.orders-writer.containerName=fencegate", "'app'": "workloads.orders-writer.podLabels.app=x",
            "config.admin.listen": "config.admin.listen=:9181", "config.drain_timeout, 40s": "config.drain_timeout=40s",
            "terminationGracePeriodSeconds, 60": "config.drain_timeout=1m,terminationGracePeriodSeconds=60",
            # It has no configuration of its own: it is measured by that of all.
            "terminationGracePeriodSeconds, 5,": "workloads.import-orders.terminationGracePeriodSeconds=5",
            "only one of config": "configText=gates: []", "workloads.import-orders: no configuration": "config=null",
            "fullnameOverride": "fullnameOverride=book-invoices",
            "workloads.import-orders: serviceAccountName":
                "workloads.import-orders.rbac.leases=true,workloads.import-orders.serviceAccountName=x",
        }.items():
            with self.subTest(setting):
                self.assertIn(name, self.refused("--set", setting))

    def test_every_image_can_be_pinned(self):
        names = ("orders-writer", "book-invoices", "import-orders")
        pinned = {f"workloads.{name}.image": f"registry.example.com/{name}@{DIGEST}" for name in names}
        pinned |= {"image.repository": "registry.example.com/fencegate", "image.digest": DIGEST, "image.pullPolicy": "Always"}
        made = self.render(*ORDERS, "--set", ",".join(f"{name}={value}" for name, value in pinned.items()))
        images = re.findall(r"'image': '([^']*)'", str(made))
        self.assertEqual(len(images), 7)
        self.assertEqual({image for image in images if not re.fullmatch(rf"registry\.example\.com/[\w-]+@{DIGEST}", image)}, set())
        tagged = re.findall(r"'image': '(fencegate[^']*)'", str(self.render(*ORDERS, "--set", "image.tag=0.2.0")))
        self.assertEqual(set(tagged), {"fencegate:0.2.0"})

    def test_a_changed_configuration_replaces_the_pods_that_read_it(self):
        def checksums(*words):
            templates = templates_of(self.render(*ORDERS, *words))
            return {name: one["metadata"].get("annotations", {}).get(CHECKSUM) for name, one in templates.items()}
        before = checksums()
        self.assertEqual(before, checksums("--set", "workloads.orders-writer.replicas=3"))
        changed = checksums("--set", "config.log.level=debug")
        self.assertEqual({name for name in before if before[name] != changed[name]}, {"orders-writer"})
        changed = checksums("--set", "workloads.book-invoices.config.log.level=debug")
        self.assertEqual({name for name in before if before[name] != changed[name]}, {"book-invoices"})
        # A Job never changes; nothing is there to be replaced.
        self.assertIsNone(before["import-orders"])

    def test_what_is_there_already_is_used(self):
        made = self.render(*ORDERS, "--set", "config=null,existingConfigMap=mine,existingSecret=passwords,workloads.book-invoices=null")
        self.assertEqual({kind for kind, _ in made}, {"Deployment", "Job", "NetworkPolicy"})
        volumes = {one["name"]: one for one in pod_template(made[("Deployment", "orders-writer")])["spec"]["volumes"]}
        self.assertEqual(volumes["fencegate-config"]["configMap"], {"name": "mine"})
        self.assertEqual(volumes["fencegate-secret"]["secret"]["secretName"], "passwords")
        spec = pod_template(self.render(*ORDERS, "--set", "existingSecret=")[("Deployment", "orders-writer")])["spec"]
        self.assertEqual([one["name"] for one in spec["volumes"]], ["fencegate-config"])
        self.assertEqual([one["name"] for one in spec["initContainers"][0]["volumeMounts"]], ["fencegate-config"])

    def test_no_secret_is_made(self):
        self.assertNotIn("Secret", {kind for kind, _ in self.render(*ORDERS)})

    def test_a_pod_has_what_its_values_say(self):
        given = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "high"}
        of_container = {"envFrom": [{"secretRef": {"name": "writer"}}], "ports": [{"containerPort": 8080}], "workingDir": "/srv",
                        "readinessProbe": {"httpGet": {"port": 8080}}, "resources": {"limits": {"memory": "1Gi"}}}
        more = {"podLabels": {"team": "a"}, "podAnnotations": {"note": "b"}, "volumes": [{"name": "tmp", "emptyDir": {}}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}], "podSecurityContext": {"fsGroup": 7}}
        values = {"workloads": {"orders-writer": given | of_container | more}, "imagePullSecrets": [{"name": "registry"}],
                  "sidecar": {"env": [{"name": "A", "value": "b"}], "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
                              "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]}}
        template = pod_template(self.render_values(yaml.safe_dump(values), *ORDERS)[("Deployment", "orders-writer")])
        spec, (sidecar,), (container,) = template["spec"], template["spec"]["initContainers"], template["spec"]["containers"]
        self.assertLessEqual({"team": "a", "fencegate": "sidecar"}.items(), template["metadata"]["labels"].items())
        self.assertEqual(template["metadata"]["annotations"]["note"], "b")
        self.assertEqual({name: spec[name] for name in given}, given)
        self.assertEqual({name: container[name] for name in of_container}, of_container)
        self.assertEqual(container["volumeMounts"], more["volumeMounts"])
        self.assertEqual([one["name"] for one in spec["volumes"]], ["fencegate-config", "fencegate-secret", "tls", "tmp"])
        self.assertEqual((spec["securityContext"]["fsGroup"], spec["securityContext"]["runAsUser"]), (7, 65532))
        self.assertEqual(spec["imagePullSecrets"], values["imagePullSecrets"])
        self.assertEqual((sidecar["env"], sidecar["volumeMounts"][-1]), (values["sidecar"]["env"], values["sidecar"]["volumeMounts"][0]))


class Network(HelmTest):
    def test_only_sidecars_and_who_is_named_reach_a_server(self):
        peer = '[{"podSelector": {"matchLabels": {"app": "backup"}}}]'
        made = self.render("--set", "networkPolicies.db.podLabels.app=pg,networkPolicies.db.port=5433",
                           "--set-json", f"networkPolicies.db.from={peer}")
        (policy,) = made.values()
        self.assertEqual(policy["metadata"]["name"], "db-through-fencegate")
        self.assertEqual(policy["spec"], {
            "podSelector": {"matchLabels": {"app": "pg"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": label}} for label in ({"fencegate": "sidecar"}, {"app": "backup"})],
                         "ports": [{"protocol": "TCP", "port": 5433}]}]})

    def test_none_is_for_all_pods(self):
        self.assertIn("podLabels", self.refused("--set-json", 'networkPolicies.db={"podLabels": {}, "port": 1}', values=()))


class Rights(HelmTest):
    KINDS = {"ServiceAccount", "Role", "RoleBinding"}

    def tokens(self, made):
        specs = {name: one["spec"] for name, one in templates_of(made).items()}
        return {name: (spec["automountServiceAccountToken"], spec.get("serviceAccountName")) for name, spec in specs.items()}

    def test_nobody_has_any_by_default(self):
        made = self.render(*ORDERS)
        self.assertEqual(self.KINDS & {kind for kind, _ in made}, set())
        self.assertEqual(set(self.tokens(made).values()), {(False, None)})

    def test_one_workload_may_elect_itself(self):
        made = self.render(*ORDERS, "--set", "workloads.orders-writer.rbac.leases=true", "--namespace", "shop")
        none = {"book-invoices": (False, None), "import-orders": (False, None)}
        self.assertEqual(self.tokens(made), none | {"orders-writer": (True, "orders-writer")})
        self.assertEqual({key for key in made if key[0] in self.KINDS},
                         {("ServiceAccount", "orders-writer"), ("Role", "orders-writer-leases"), ("RoleBinding", "orders-writer-leases")})
        leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        self.assertEqual(made[("Role", "orders-writer-leases")]["rules"], [leases | {"verbs": ["get", "create", "update"]}])
        binding = made[("RoleBinding", "orders-writer-leases")]
        self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": "orders-writer", "namespace": "shop"}])
        self.assertEqual(binding["roleRef"], {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "orders-writer-leases"})

    def test_of_leases_by_their_names(self):
        made = self.render(*ORDERS, "--set", "workloads.orders-writer.rbac.leases=true,workloads.orders-writer.rbac.names={orders}")
        rules = made[("Role", "orders-writer-leases")]["rules"]
        self.assertEqual([(one.get("resourceNames"), one["verbs"]) for one in rules], [(None, ["create"]), (["orders"], ["get", "update"])])


class Dependency(HelmTest):
    """A chart that includes the named templates in manifests of its own, as the page shows it."""

    BARE = textwrap.dedent("""\
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: shop
        spec:
          selector: { matchLabels: { app: shop } }
          template:
            metadata:
              labels: { app: shop }
            spec:
              containers:
                - { name: shop, image: "shop:1" }
        """)

    def parent(self, template, values, alias=""):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "templates").mkdir()
        needs = {"name": "fencegate", "version": "0.1.0", "repository": f"file://{CHART}"} | ({"alias": alias} if alias else {})
        chart = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [needs]}
        (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
        (folder / "values.yaml").write_text(yaml.safe_dump({alias or "fencegate": values}))
        (folder / "templates/shop.yaml").write_text(template)
        done = run_helm("dependency", "update", folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return folder

    def test_as_the_page_shows_it_is_as_injected(self):
        template = block(PAGE, "gotemplate")
        self.assertIn('include "fencegate.sidecar" .Subcharts.fencegate', template)
        config = yaml.safe_load((FOLDER / "orders.yaml").read_text())["config"]
        values = {"config": config, "existingSecret": "fencegate", "global": {"team": "a"}, "enabled": True}
        made = self.render(chart=self.parent(template, values))
        self.assertEqual(set(made), {("Deployment", "shop"), ("ConfigMap", "orders-fencegate")})
        self.assertEqual(configuration(made[("ConfigMap", "orders-fencegate")]), config)
        got = made[("Deployment", "shop")]
        self.assertEqual(set(pod_template(got)["metadata"]["annotations"]), {CHECKSUM})
        words = ["--secret", "fencegate", "--config-map", "orders-fencegate", "--image", "fencegate:0.1.0"]
        injected = subprocess.run([os.environ["FENCEGATE"], "inject", "-f", "-", *words], input=self.BARE, text=True,
                                  capture_output=True, check=True)
        self.maxDiff = None
        self.assertEqual(self.without_helms_own(got), self.without_helms_own(yaml.safe_load(injected.stdout)))

    def test_by_another_name_and_with_fencegate_hold(self):
        template = block(PAGE, "gotemplate").replace(".Subcharts.fencegate", ".Subcharts.fence")
        sidecar = '        {{- include "fencegate.sidecar"'
        self.assertIn(sidecar, template)
        template = template.replace(sidecar, '        {{- include "fencegate.hold" .Subcharts.fence | nindent 8 }}\n' + sidecar)
        container = '        - { name: shop, image: "shop:1" }\n'
        self.assertIn(container, template)
        mounts = '          volumeMounts:\n            {{- include "fencegate.holdMount" .Subcharts.fence | nindent 12 }}\n'
        template = template.replace(container, '        - name: shop\n          image: "shop:1"\n' + mounts)
        made = self.render(chart=self.parent(template, {"existingConfigMap": "mine"}, alias="fence"))
        (shop,) = made.values()
        spec = pod_template(shop)["spec"]
        copy, sidecar = spec["initContainers"]
        self.assertEqual((copy["args"], sidecar["name"]), (["copy-self", "/run/fencegate/bin"], "fencegate"))
        self.assertEqual(copy["securityContext"], sidecar["securityContext"])
        self.assertEqual(sidecar["securityContext"]["runAsUser"], 65532)
        run = {"name": "fencegate-run", "mountPath": "/run/fencegate"}
        self.assertEqual((copy["volumeMounts"], sidecar["volumeMounts"][0]), ([run], run))
        self.assertEqual(spec["containers"][0]["volumeMounts"], [run | {"readOnly": True}])
        self.assertEqual([one["name"] for one in spec["volumes"]], ["fencegate-run", "fencegate-config"])
        self.assertEqual(spec["volumes"][1]["configMap"], {"name": "mine"})

    def test_a_configuration_that_no_pod_could_have_is_refused(self):
        parent = self.parent(block(PAGE, "gotemplate"), {"config": {"admin": {"listen": ":1"}}})
        done = run_helm("template", "orders", parent)
        self.assertIn("config.admin.listen", done.stderr)


if __name__ == "__main__":
    main()
