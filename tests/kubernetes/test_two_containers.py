"""lease-gates.yaml with a second container of the same writer, `worker`, and with a hook of `app` that is late, and comes twice: it
waits until the test says `go`."""

import json

import cluster
from billing import HOOK, BillingTest
from cluster import WAIT, eventually

GO = "/run/fencegate/go"  # on a volume of the pod, where only the sidecar may write
LATE_AND_TWICE = f"until [ -e {GO} ]; do sleep 0.1; done; for each in 1 2; do {' '.join(HOOK)} --container app & done; wait"
SELF = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8080/healthz').read().decode())"


def changed(text, changes):
    for old, new in changes.items():
        if text.count(old) != 1:
            raise AssertionError(f"{old!r} is not there once: {text}")
        text = text.replace(old, new)
    return text


def with_two_containers(text):
    issuer = "      issuers: { main: { store: ledger } }\n"
    text = changed(text, {issuer: issuer + "      writers: { app: { containers: [app, worker] } }\n"})
    front, begin, rest = text.partition("      containers:\n")
    app, end, rest = rest.partition("      volumes:\n")
    app = changed(app, {"failureThreshold: 3": "failureThreshold: 30"})  # the tests end them themselves
    hook, variables = f"[{', '.join(HOOK)}]", "          env:\n"
    worker = changed(app, {
        hook: f"[{', '.join(HOOK)}, --container, worker]", "name: app\n": "name: worker\n", "8080": "8082",
        variables: variables + """\
            - { name: CONTAINER, value: worker }
            - { name: PORT, value: "8082" }
"""})
    app = changed(app, {hook: json.dumps(["sh", "-c", LATE_AND_TWICE])})
    return front + begin + worker + app + end + rest


class TwoContainers(BillingTest):
    containers = ("app", "worker")

    @classmethod
    def apply(cls):
        """The hook of `app` is late in both pods."""
        cls.rig.kubectl("apply", "-f", "-", text=with_two_containers(cls.rig.shipped("docker/k8s/lease-gates.yaml")))
        pods = eventually(lambda: len(pods := cls.rig.pods("billing")) == 2 and pods, WAIT, every=0.2)
        pods = [pod["metadata"]["name"] for pod in pods]
        for pod in pods:
            cls.await_trying(pod)
            assert "unknown" in cls.probe(pod)
        assert not any(cls.landed().values())
        for pod in pods:
            cls.go(pod)

    @classmethod
    def await_trying(cls, pod, after=None):
        """Until `app`, in another run than `after`, has tried to write to both servers: that run."""
        def trying():
            status, said = cls.within(pod, "app", "python3", "-c", SELF)
            run = json.loads(said.splitlines()[0]) if status == 0 else None
            return run["started"] if run and run["started"] != after and run["tried"] >= 2 else None
        return eventually(trying, WAIT, every=0.2)

    @classmethod
    def go(cls, pod):
        assert cls.within(pod, "fencegate", "touch", GO)[0] == 0

    def end(self, pod, container):
        """It ends, and the kubelet starts it anew."""
        self.within(pod, container, "python3", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")

    def test_a_late_hook_lets_nobody_write(self):
        pod, _ = self.await_worker()
        for one in (pod, self.other(pod)):
            (first, *_) = self.logged(one)
            self.assertIn("unknown", first["said"])

    def test_both_stand_by(self):
        pod, _ = self.await_worker()
        self.await_more(pod)
        other = self.other(pod)
        for container in self.containers:
            self.assertIn("standby", self.probe(other, container))
            eventually(lambda name=container: "standby: held by" in self.logged(other, "--tail=1", container=name)[0]["said"], WAIT)

    def test_both_are_cut_off_and_serve_again_when_both_were_started_anew(self):
        self.rig.need_freezing()
        pod, runs = self.await_worker()
        other, before = self.other(pod), self.restarts(pod)
        self.await_more(pod)
        self.within(pod, "fencegate", "rm", GO)
        everything = ("fencegate", *self.containers)
        for container in everything:
            self.rig.freeze(self, pod, container)
        with cluster.timed("another pod's two containers take over from a frozen pod's"):
            self.await_worker(other_than=(pod,))
            self.await_more(other)
        token = self.token()
        for container in everything:
            self.rig.cluster.thaw(pod, container)

        for container in self.containers:
            eventually(lambda name=container: "lost" in self.logged(pod, "--tail=1", container=name)[0]["said"], WAIT)
            self.assert_cut_off(self.logged(pod, container=container))
        status, said = self.within(pod, "app", *HOOK, "--container", "app")
        self.assertEqual((status, "too early" in said), (1, True), said)

        self.end(pod, "app")
        self.await_trying(pod, after=runs["app"])
        self.assertIn("lost", self.probe(pod, "worker"), "its hook is late")
        self.go(pod)
        eventually(lambda: self.restarts(pod)["app"] > before["app"], WAIT, every=0.2)
        self.assertIn("lost", self.probe(pod), "only one was started anew")
        self.end(pod, "worker")
        eventually(lambda: "standby" in self.probe(pod), WAIT, every=0.2)
        self.assertEqual(self.restarts(pod), {name: before[name] + (name in self.containers) for name in everything})
        self.assertEqual([one for one in self.logged(pod) if one["said"] == "ok"], [])
        self.await_more(other)
        self.assertEqual(self.token(), token)
        self.assert_in_turns()

    def test_one_that_is_started_anew_alone_goes_on_under_the_same_grant(self):
        pod, runs = self.await_worker()
        token, before = self.token(), self.restarts(pod)
        self.end(pod, "worker")
        eventually(lambda: (last := self.last()) and last[1].get("worker", 0) > runs["worker"], WAIT, every=0.2)
        self.await_more(pod)
        self.assertEqual(self.restarts(pod), before | {"worker": before["worker"] + 1})
        self.assertEqual((self.token(), self.last()[0], self.last()[1]["app"]), (token, pod, runs["app"]))
        self.assert_in_turns()


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
