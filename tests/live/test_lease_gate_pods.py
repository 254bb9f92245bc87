"""Two pods, each a writer behind a sidecar whose gate holds the lease: sidecars stand still, are killed and started anew, writers
pause. No write that a writer decided under one grant is applied under another."""

import contextlib
import os
import random
import threading
import time

from lease_gates import LeaseGates, boot_ms
from live_test import LiveTest, main
from postgres import PostgresServer
from processes import eventually
from redis_server import RedisServer
from resp import Resp, RespError
from test_hold import TTL

SECONDS = float(os.environ.get("FENCEGATE_HISTORY_SECONDS", "20"))
PATIENCE = 120  # seconds more, for so many takeovers as the test asks for


class Writer(threading.Thread):
    """Reads through the gate, decides, pauses now and then, and writes what it has decided, over whatever connection it then has.
    Its supervisor starts it anew when the probe fails, if it `is_restarted`."""

    def __init__(self, pod, seed, is_restarted=True):
        super().__init__(daemon=True)
        self.pod, self.random, self.is_restarted = pod, random.Random(seed), is_restarted
        self.over = threading.Event()
        self.starts = 0

    def run(self):
        while not self.over.is_set():
            self.live()

    def live(self):
        """One process's life. A start later than its last connection, and than all it knows, is reported."""
        started, self.decision, self.client = boot_ms() + 1, None, None
        eventually(lambda: boot_ms() > started)
        self.starts += 1
        reported = False
        while not self.over.is_set():
            with contextlib.suppress(OSError):
                reported = reported or self.pod.report_start(started) == 204
                if self.is_restarted and self.pod.api.ask("POST", "/v1/writers/app/heartbeat")[0] != 200:
                    break
            with contextlib.suppress(OSError, RespError):
                self.work()
                continue
            self.hang_up()
            self.over.wait(0.02)
        self.hang_up()

    def work(self):
        self.client = self.client or Resp(self.pod.redis_port, timeout=1)
        held = self.client.call("FENCE", "GET")
        if isinstance(held, RespError):
            raise held
        bound = int(held[1])
        if self.decision is None:
            self.decision = bound
        if self.random.random() < 0.02:
            self.over.wait(self.random.uniform(0, 2 * TTL))
        written = self.client.call("RPUSH", "written", f"{self.decision} {bound}")
        if isinstance(written, RespError):
            raise written
        if self.random.random() < 0.3:
            self.decision = None

    def hang_up(self):
        if self.client:
            self.client.close()
        self.client = None


class Pods(LiveTest):
    def setUp(self):
        self.database = self.start(PostgresServer())
        self.redis = self.start(RedisServer())
        self.database.sql("CREATE DATABASE app")
        self.database.user("gate")
        self.database.install("app", gate_users=("gate",))

    def history(self, on_loss, is_restarted, enough):
        """[(decided under, written under)] in the order of the writes; and how often writers were started. It goes on until both
        are `enough`: a busy machine has fewer takeovers in that time."""
        seed = random.SystemRandom().getrandbits(32)
        print(f"seed {seed}", flush=True)
        chance = random.Random(seed)
        pods = [self.start(LeaseGates(self.database, self.redis, gate={"on_loss": on_loss})) for _ in range(2)]
        writers = [Writer(pod, chance.random(), is_restarted) for pod in pods]
        for writer in writers:
            writer.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or (time.monotonic() < end + PATIENCE and not enough(*self.seen(writers))):
            self.disturb(chance, chance.choice(pods))
        for writer in writers:
            writer.over.set()
        for writer in writers:
            writer.join()
        return self.seen(writers)

    def seen(self, writers):
        told = [tuple(map(int, one.split())) for one in self.redis.cli.call("LRANGE", "written", "0", "-1")]
        return told, sum(writer.starts for writer in writers)

    @staticmethod
    def disturb(chance, pod):
        if chance.random() < 0.8:
            pod.stop_process()
            time.sleep(chance.uniform(0.2, 2.5) * TTL)
            pod.continue_process()
        else:
            pod.kill()
            time.sleep(chance.choice((0, 1.5)) * TTL)
            pod.start()
        time.sleep(chance.uniform(0, 1.5) * TTL)

    def test_no_decision_is_written_under_another_grant(self):
        told, starts = self.history("restart", True, lambda told, starts: len({under for _, under in told}) > 3 and starts > 4)
        self.assertEqual([one for one in told if one[0] != one[1]], [])
        tokens = [under for _, under in told]
        self.assertEqual(tokens, sorted(tokens))
        self.assertGreater(len(set(tokens)), 3)
        self.assertGreater(starts, 4)

    def test_with_rebind_some_are(self):
        """So that the test above can fail."""
        told, _ = self.history("rebind", False, lambda told, _: any(decided != under for decided, under in told))
        self.assertNotEqual([one for one in told if one[0] != one[1]], [])
        tokens = [under for _, under in told]
        self.assertEqual(tokens, sorted(tokens))


if __name__ == "__main__":
    main(at_once=2)
