"""A log that is not read in time holds up neither gates nor the end of the process."""

import contextlib
import http.client
import json
import os
import signal

from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually
from redis_server import RedisServer
from resp import Resp


class Unread:
    """In front of a gate: its stderr is a full pipe, which `reader` reads when it wants to."""

    needs_backend = False

    def prepare(self):
        self.needs_backend = False
        super().prepare()
        self.pipe = os.path.join(self.folder, "stderr")
        os.mkfifo(self.pipe)
        self.reader = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while os.write(self.reader, b"\n" * 4096):
                pass

    def command(self):
        return ["sh", "-c", 'exec "$@" 2>"$0"', self.pipe, *super().command()]

    def read(self):
        """What is in the pipe now."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.reader, 1 << 20).decode()
        return ""

    def __exit__(self, *error):
        super().__exit__(*error)
        os.close(self.reader)


class UnreadRedis(Unread, Gate):
    pass


class UnreadHttp(Unread, HttpGate):
    pass


class Log(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())

    def test_redis_goes_on_and_the_process_ends(self):
        gate = self.start(UnreadRedis(self.redis))
        new = self.start(Resp(gate.port, name="fence:orders=35"))
        eventually(lambda: new.call("SET", "k", "v") == b"OK")
        old = self.start(Resp(gate.port))
        old.call("CLIENT", "SETNAME", "fence:orders=34")
        for _ in range(3):
            self.assert_error(old.call("SET", "k", "w"), "FENCED")
        self.assertEqual((new.call("GET", "k"), gate.http("/livez")[0]), (b"v", 200))
        os.kill(gate.pid, signal.SIGTERM)
        eventually(lambda: gate.metric("draining") == 1)
        os.kill(gate.pid, signal.SIGTERM)
        self.assertEqual(gate.wait(), 0)

    def test_lines_that_were_dropped_are_counted_and_reported(self):
        service = self.start(Upstream())
        gate = self.start(UnreadHttp(service, {"ledger": f"redis://{LOOPBACK}:{self.redis.port}"},
                                     [{"match": "PUT /{id}", "resource": "{id}"}], extra={"access_log": 1}))
        client = http.client.HTTPConnection(LOOPBACK, gate.port, timeout=PATIENCE)
        self.addCleanup(client.close)

        def ask():
            client.request("GET", "/x")
            return client.getresponse().read()

        def dropped():
            return gate.metrics()["fencegate_log_lines_dropped_total"]

        for _ in range(2200):
            ask()
        eventually(lambda: dropped() > 0)
        said = []

        def told():
            said.append(gate.read())
            return "log lines were dropped" in "".join(said)

        eventually(told)
        lines = [json.loads(line) for line in "".join(said).splitlines() if line.endswith("}") and line.startswith("{")]
        (report,) = [line for line in lines if line["msg"].startswith("log lines were dropped")]
        self.assertLessEqual(report["lines"], dropped())
        before = dropped()
        ask()
        eventually(lambda: "access" in (said.append(gate.read()) or said[-1]) or '"/x"' in said[-1])
        self.assertEqual(dropped(), before)


if __name__ == "__main__":
    main()
