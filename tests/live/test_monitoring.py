"""What reads the metrics, as it is delivered: alerts and a dashboard know no metric that there is not."""

import json
import os
import re
import subprocess
import tempfile
import unittest

from documents import ROOT, text
from live_test import main

RULES = ROOT / "docker/monitoring/prometheus-rules.yaml"
DASHBOARD = ROOT / "docker/monitoring/grafana-dashboard.json"
RULES_TEST = ROOT / "tests/live/monitoring/rules.test.yaml"
PAGE = "docs/metrics.md"
# Of the panels, as Grafana fills them in.
VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$gate": ".*", "$instance": ".*"}


def known_labels():
    """{metric: its labels} by the tables of the page; test_operations.py compares them with a scrape."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text(PAGE), re.M)
    return {name: set(re.findall(r"`(\w+)`", kind)) for name, kind in rows}


def expressions():
    """Of the dashboard, with its variables filled in."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [one["expr"] for one in dashboard["annotations"]["list"]]
    for name, value in VARIABLES.items():
        found = [one.replace(name, value) for one in found]
    return found


def metrics_of(expression):
    return {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b((?:fencegate|process)_\w+)", expression)}


class Files(unittest.TestCase):
    def test_the_page_has_each_metric(self):
        known = known_labels()
        for expression in [*expressions(), *re.findall(r"expr: (.*(?:\n +[^a-z\s].*)*)", RULES.read_text())]:
            self.assertLessEqual(metrics_of(expression), set(known), expression)

    def test_values_of_labels_are_those_of_the_page(self):
        known = known_labels()
        for text_of_one in (*expressions(), RULES.read_text()):
            for name, labels in re.findall(r"\b(fencegate_\w+?)(?:_bucket)?\{(.*?)\}", text_of_one):
                for label, values in re.findall(r'(\w+)[=!]~?"(.*?)"', labels):
                    if label in ("gate", "instance"):
                        continue
                    self.assertIn(label, known[name], name)
                    self.assertLessEqual(set(values.split("|")), known[name], name)

    def test_each_alert_is_tested_and_on_the_page(self):
        alerts = re.findall(r"alert: (\w+)", RULES.read_text())
        self.assertEqual(len(alerts), len(set(alerts)))
        fired = set(re.findall(r'alertname="(\w+)"', RULES_TEST.read_text()))
        self.assertEqual(fired, set(alerts))
        self.assertEqual(set(re.findall(r"`(Fencegate\w+)`", text(PAGE))), set(alerts))

    def test_panels_have_a_place_of_their_own_and_words(self):
        panels = json.loads(DASHBOARD.read_text())["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(taken & cells, panel["title"])
            taken |= cells
            self.assertTrue(panel["type"] == "row" or panel["description"], panel["title"])


class Manifests(unittest.TestCase):
    def test_the_monitor_finds_the_sidecars_of_all_manifests(self):
        monitor = (ROOT / "docker/k8s-monitoring/podmonitor.yaml").read_text()
        self.assertIn("selector: { matchLabels: { fencegate: sidecar } }", monitor)
        self.assertIn("{ port: fencegate, path: /metrics,", monitor)
        sidecars = [path for path in (ROOT / "docker/k8s").glob("*.yaml") if "args: [serve," in path.read_text()]
        self.assertEqual({path.name for path in sidecars}, {"deployment.yaml", "job.yaml", "cronjob.yaml", "lease-gates.yaml"})
        for path in sidecars:
            self.assertRegex(path.read_text(), r"fencegate: sidecar", path.name)
            self.assertIn("ports: [{ name: fencegate, containerPort: 9180 }]", path.read_text(), path.name)

    def test_every_configuration_listens_where_it_is_scraped(self):
        maps = [path for folder in ("k8s", "k8s-overlay") for path in (ROOT / "docker" / folder).glob("*.yaml")
                if re.search(r"^ *gates:|^ *leases:", path.read_text(), re.M)]
        self.assertEqual(len(maps), 4)
        for path in maps:
            self.assertIn('admin: { listen: ":9180" }', path.read_text(), path.name)


class Promtool(unittest.TestCase):
    """Needs the package prometheus."""

    def promtool(self, *words):
        done = subprocess.run(["promtool", *words], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_fire_for_what_they_are_about(self):
        self.promtool("check", "rules", str(RULES))
        self.promtool("test", "rules", str(RULES_TEST))

    def test_prometheus_understands_the_dashboard(self):
        rules = [{"record": f"panel:{i}", "expr": one} for i, one in enumerate(expressions())]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules.yaml")
            with open(path, "w") as file:
                json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            self.promtool("check", "rules", path)


if __name__ == "__main__":
    main()
