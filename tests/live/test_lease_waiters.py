"""Who waits for a lease is told by `lease show`, of both issuers, by a configuration and by a sidecar."""

import json
import os
import re
import signal
import subprocess
import threading

from live_test import main
from processes import PATIENCE, eventually
from test_hold import Hold
from test_lease_api import ApiTest
from test_lease_operators import CALM, TwoIssuers

FORGOTTEN = 60  # seconds, more than it takes on a busy machine


class OfRedis(TwoIssuers):
    def configure(self):
        out = super().configure()
        out["leases"]["issuer"] = "other"
        return out


class OfPostgres(ApiTest):
    times, sidecar_of = CALM, TwoIssuers

    def show(self, *words):
        done = subprocess.run([os.environ["FENCEGATE"], "lease", "show", *words], text=True, capture_output=True, timeout=PATIENCE, check=True)
        return done.stdout

    def waiters(self, resource):
        (one,) = json.loads(self.show(resource, "--json", "--api", f"unix:{self.sidecar.socket}"))
        return [waiter["holder"] for waiter in one["waiters"]]

    def assert_told_alike(self, resource):
        """By a configuration and by a sidecar, as JSON and as a table. On a busy machine some are gone between two questions,
        and come back."""
        eventually(lambda: self.are_told_alike(resource))

    def are_told_alike(self, resource):
        ways = [("-c", self.sidecar.path), ("--api", f"unix:{self.sidecar.socket}")]
        told = [json.loads(self.show(resource, "--json", *by))[0]["waiters"] for by in ways]
        lines = [rf"(?m)^{resource} +{re.escape(waiter['since'])} +{waiter['holder']}$" for waiter in told[0]]
        tables = [self.show(*which, *by) for by in ways for which in ([resource], [])]
        return told[0] and told[0] == told[1] and all(re.search(line, table) for line in lines for table in tables)

    def holder(self, resource):
        return json.loads(self.show(resource, "--json", "-c", self.sidecar.path))[0]["holder"]

    def is_waiting(self, resource, hold):
        return any(one.endswith(f":{hold.child.pid}") for one in self.waiters(resource))

    def test_several(self):
        name = self.name()
        lease = self.taken(name)
        self.assertEqual(self.waiters(name), [])
        self.assertNotIn("WAITER", self.show("-c", self.sidecar.path))
        killed = self.start(Hold(self.sidecar, name, command=["true"]))
        gone = self.start(Hold(self.sidecar, name, command=["true"]))
        brief = self.start(Hold(self.sidecar, name, "--wait", "2s", command=["true"]))
        stays = self.start(Hold(self.sidecar, name, by_api=True, command=["sleep", "100"]))
        for one in (killed, gone, stays):
            eventually(lambda one=one: self.is_waiting(name, one))
        self.assertEqual(brief.ended(), 75)
        eventually(lambda: not self.is_waiting(name, brief))
        eventually(lambda: len(self.waiters(name)) == 3)
        self.assert_told_alike(name)

        gone.child.send_signal(signal.SIGTERM)
        gone.ended()
        eventually(lambda: not self.is_waiting(name, gone))
        killed.child.kill()
        killed.child.wait()
        eventually(lambda: not self.is_waiting(name, killed), FORGOTTEN)
        eventually(lambda: self.is_waiting(name, stays))  # on a busy machine he asks again a moment too late

        self.api.release(lease)
        eventually(lambda: self.holder(name).endswith(f":{stays.child.pid}"))
        self.assertEqual(self.waiters(name), [])

    def test_one_who_asks_again_waits_since_the_first_time(self):
        for _ in range(3):  # on a busy machine he may come back too late
            if self.asks_again():
                return
        self.fail("he waits since the second time")

    def asks_again(self):
        name = self.name()
        self.taken(name)

        def since():
            (one,) = json.loads(self.show(name, "--json", "-c", self.sidecar.path))
            return {waiter["since"] for waiter in one["waiters"]}

        wish = {"id": os.urandom(16).hex(), "holder": "them", "wait": "1s"}
        first = threading.Thread(target=lambda: self.api.take(name, **wish))
        first.start()
        eventually(since)
        before = since()
        first.join()
        again = threading.Thread(target=lambda: self.api.take(name, **wish | {"wait": "5s"}))
        again.start()
        same = since() == before
        again.join()
        eventually(lambda: not since())
        return same

    def test_one_who_leaves(self):
        name = self.name()
        self.taken(name)
        with self.api.connected() as client:
            body = json.dumps({"resources": [name], "wait": "10m", "holder": "them"}).encode()
            client.sendall(b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                           % len(body) + body)
            eventually(lambda: self.waiters(name) == ["them"])
        eventually(lambda: self.waiters(name) == [])


class OfAnotherRedis(OfPostgres):
    sidecar_of = OfRedis


if __name__ == "__main__":
    main()
