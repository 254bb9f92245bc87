"""The sidecar of docker/k8s/deployment.yaml alone in trouble: killed, out of memory, its passwords changed."""

import json
import subprocess

import cluster
from cluster import WAIT, command, eventually
from writers import GATES, WriterTest

PAGE = "docs/operations.md"


# In a writer's container: requests whose body the gate must hold whole, and which never end.
GREEDY = """
import socket, sys, time
head = b"POST /orders HTTP/1.1\\r\\nHost: x\\r\\nFencing-Token: %b\\r\\nContent-Length: 1000000\\r\\n\\r\\n" % sys.argv[1].encode()
clients = [socket.create_connection(("127.0.0.1", 8081)) for _ in range(40)]
for one in clients:
    one.sendall(head + b"x" * 999_999)
time.sleep(20)
"""


class SidecarTest(WriterTest):
    def assert_writes_go_on(self):
        """Whoever holds the lease; and an older token is as stale as before."""
        pod, token = self.await_holder()
        count = max(len(self.reported(pod=pod, token=token)[gate]) for gate in GATES)
        self.await_reports(more_than=count, pod=pod, token=token)
        self.rig.locks.revoke()
        self.await_holder(other_than=pod)
        self.assert_refused_as_stale(pod, token)
        self.assert_once_and_in_order()


class Trouble(SidecarTest):
    def restarts(self, pod):
        status = self.rig.get("pods", pod)["status"]
        return status["initContainerStatuses"][0]["restartCount"], status["containerStatuses"][0]["restartCount"]

    def await_restart(self, pod, before, reason):
        """The sidecar is another one, and the writer is the same."""
        eventually(lambda: self.restarts(pod)[0] > before[0] and self.rig.sidecar_of(pod).get("started"), WAIT, every=0.2)
        self.assertEqual(self.restarts(pod)[1], before[1], "the writer stays")
        self.assertEqual(self.rig.sidecar_of(pod)["lastState"]["terminated"]["reason"], reason)

    def test_one_that_is_killed_comes_back_alone_and_the_fence_holds(self):
        pod, _ = self.await_holder()
        before = self.restarts(pod)
        self.rig.kill_sidecar(pod)
        self.await_restart(pod, before, "Error")
        self.assert_writes_go_on()

    def test_one_that_is_out_of_memory_comes_back_alone(self):
        limit = [{"op": "replace", "path": "/spec/template/spec/initContainers/0/resources/limits/memory", "value": "32Mi"}]
        self.rig.kubectl("patch", "deployment", "orders-writer", "--type=json", "-p", json.dumps(limit))
        self.rig.roll_out()
        pod, token = self.await_holder()
        before = self.restarts(pod)
        command_line = ["kubectl", "exec", pod, "-c", "writer", "--", "python3", "-c", GREEDY, str(token)]
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with subprocess.Popen(command_line, **nothing) as greedy:
            try:
                eventually(lambda: self.restarts(pod)[0] > before[0], WAIT)
            finally:
                greedy.kill()
        self.await_restart(pod, before, "OOMKilled")
        self.assert_writes_go_on()


class Rotation(SidecarTest):
    def test_passwords_are_rotated_by_new_pods(self):
        old, new = cluster.PASSWORDS, {name: f"new-{name}" for name in cluster.PASSWORDS}
        self.await_holder()
        # Both are good in Redis; PostgreSQL keeps the sessions that it has.
        self.rig.redis.cli.call("ACL", "SETUSER", "fencegate", f">{new['redis']}")
        line = command(PAGE, "kubectl create secret generic fencegate --dry-run=client")
        for name in old:
            self.assertIn(new[name], line)
        self.rig.shell(line)
        self.rig.postgres.sql(f"ALTER ROLE fencegate PASSWORD '{new['postgres']}'")
        self.rig.shell(command(PAGE, "kubectl rollout restart deployment/orders-writer"))
        self.rig.roll_out()
        self.rig.set_passwords(new)
        self.rig.redis.cli.call("CLIENT", "KILL", "USER", "fencegate")
        self.assert_writes_go_on()


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
