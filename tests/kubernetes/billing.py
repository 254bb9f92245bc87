"""What pods of docker/k8s/lease-gates.yaml write to their servers: see writer/app.py."""

import collections
import itertools
import json
import subprocess
import unittest

import cluster
from cluster import WAIT, command, eventually

PAGE = "docs/leases.md"
HOLD = ("/run/fencegate/bin/fencegate-hold", "lease")
HOOK = (*HOLD, "restarted", "app")


def run_of(one):
    """The process that wrote it."""
    return one["pod"], one["container"], one["started"]


def written_as(one):
    """As a server has it, of a line of an application's log."""
    return {name: value for name, value in one.items() if name not in ("server", "said")}


class BillingTest(unittest.TestCase):
    """On the Deployment of the page, or on what the class makes of it."""

    containers = ("app",)

    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.billing
        cls.apply()
        cls.rig.roll_out("billing")

    @classmethod
    def tearDownClass(cls):
        cls.rig.remove("billing")
        cls.rig.sql("TRUNCATE billed")
        cls.rig.redis.cli.call("DEL", "billed")

    @classmethod
    def apply(cls):
        cls.rig.run_page(command(PAGE, "kubectl apply -f docker/k8s/lease-gates.yaml"))

    @classmethod
    def landed(cls):
        """{server: what it let through, in order}"""
        return {"postgres": [doc for (doc,) in cls.rig.sql("SELECT doc FROM billed ORDER BY id")],
                "redis": [json.loads(one) for one in cls.rig.redis.cli.call("LRANGE", "billed", 0, -1)]}

    def last(self):
        """The pod that wrote last to each server, and {container: its latest run}; None where the servers do not agree."""
        landed = self.landed()
        if not all(landed.values()) or len({some[-1]["pod"] for some in landed.values()}) > 1:
            return None
        pod = landed["redis"][-1]["pod"]
        return pod, {one["container"]: one["started"] for one in landed["redis"] if one["pod"] == pod}

    def await_worker(self, other_than=()):
        """Of the pod that writes, what last() says."""
        return eventually(lambda: (last := self.last()) and last[0] not in other_than and last, WAIT, every=0.2)

    def await_more(self, pod):
        """Each of that pod's containers goes on writing, to both servers."""
        def counts():
            found = collections.Counter((server, one["container"]) for server, some in self.landed().items() for one in some
                                        if one["pod"] == pod)
            return [found[each] for each in itertools.product(("postgres", "redis"), self.containers)]
        before = counts()
        eventually(lambda: all(now > then for now, then in zip(counts(), before)), WAIT, every=0.2)

    def other(self, pod):
        (other,) = {one["metadata"]["name"] for one in self.rig.pods("billing")} - {pod}
        return other

    @staticmethod
    def within(pod, container, *line):
        """(status, what it said) of a command there; behind that, kubectl may have something to say of its own."""
        done = subprocess.run(["kubectl", "exec", pod, "-c", container, "--", *line], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    @classmethod
    def probe(cls, pod, container="app"):
        """What the liveness probe says of that pod's application."""
        return cls.within(pod, container, *HOLD, "writer", "app")[1]

    def token(self):
        return self.rig.sql("SELECT token FROM fencegate.leases WHERE resource = 'billing'")[0][0]

    def restarts(self, pod):
        """{container: how often}, of the application and of the sidecar."""
        status = self.rig.get("pods", pod)["status"]
        counts = {one["name"]: one["restartCount"] for one in status["containerStatuses"] + status["initContainerStatuses"]}
        return {name: counts[name] for name in (*self.containers, "fencegate")}

    def logged(self, pod, *which, container="app"):
        lines = self.rig.kubectl("logs", pod, "-c", container, *which).splitlines()
        return [json.loads(line) for line in lines]

    def assert_cut_off(self, said):
        """By its log, an application wrote, and then no more: of what was in flight nothing landed."""
        late = said[max(place for place, one in enumerate(said) if one["said"] == "ok") + 1]
        self.assertNotIn(written_as(late), self.landed()[late["server"]])

    def assert_in_turns(self):
        """Each run of an application wrote once or not at all what it meant to; none wrote behind its successor in its container, or
        behind a time in which the other pod wrote."""
        for server, some in self.landed().items():
            with self.subTest(server=server):
                counts = collections.Counter((*run_of(one), one["n"]) for one in some)
                self.assertEqual([one for one, count in counts.items() if count > 1], [], "doubled")
                for container in self.containers:
                    turns = [run for run, _ in itertools.groupby(run_of(one) for one in some if one["container"] == container)]
                    self.assertEqual(len(turns), len(set(turns)), turns)
                tenures = [set(map(run_of, group)) for _, group in itertools.groupby(some, lambda one: one["pod"])]
                runs = [run for each in tenures for run in each]
                self.assertEqual(len(runs), len(set(runs)), tenures)
