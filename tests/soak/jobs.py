"""Jobs under a lease in PostgreSQL, one after the other: of `fencegate hold`, and of `fencegate-hold` by the sidecar's API."""

import os
import subprocess
import threading
import time
from collections import Counter

from history.pg_clients import USER
from test_hold import Hold
from test_hold_history import JOB, began_of, faults

RESOURCE = "shift"
PATIENCE = 120  # seconds that a job may take with its wait for the lease
LATE = "late"
ENDS = {0, 69, 79}  # done; no lease to be had; the lease was lost


class Jobs:
    """At most one holds the lease at a time; a few wait for it."""

    def __init__(self, sidecar, services, folder):
        self.sidecar, self.services = sidecar, services
        self.began_path, self.answers_path = os.path.join(folder, "began"), os.path.join(folder, "answers")
        self.statuses, self.running, self.lock = Counter(), set(), threading.Lock()
        self.said, self.lives = {}, 0

    def __enter__(self):
        self.over = threading.Event()
        self.lives += 1
        ways = (False, True) if os.environ.get("FENCEGATE_HOLD") else (False, False)
        self.threads = [threading.Thread(target=self._work, args=(number, by_api), daemon=True)
                        for number, by_api in enumerate(ways)]
        for one in self.threads:
            one.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for one in self.threads:
            one.join(PATIENCE + 10)

    def _environment(self, name):
        server = self.services
        return {"JOB": name, "BEGAN": self.began_path, "ANSWERS": self.answers_path, "PGUSER": USER, "PGDATABASE": "postgres",
                "SERVER_PGPORT": str(server.postgres.port), "SERVER_REDIS_PORT": str(server.redis.port)}

    def _work(self, number, by_api):
        round_ = 0
        job = JOB.replace("FENCE CALL orders ", f"FENCE CALL {RESOURCE} ")
        while not self.over.is_set():
            round_ += 1
            name = f"{self.lives}.{number}.{round_}"
            with Hold(self.sidecar, RESOURCE, by_api=by_api, command=["sh", "-c", job],
                      environment=self._environment(name)) as hold:
                with self.lock:
                    self.running.add(hold)
                status, said = self._end_of(hold)
                with self.lock:
                    self.running.discard(hold)
                    self.statuses[status] += 1
                    self.said[status] = said[-500:]
            self.over.wait(0.2)

    @staticmethod
    def _end_of(hold):
        """Exit status, and what it said."""
        try:
            return hold.ended(PATIENCE), hold.said
        except subprocess.TimeoutExpired as late:
            hold.child.kill()
            said = (late.stderr or b"").decode()
            return LATE, f"{time.strftime('%H:%M:%S')} {'by the API' if hold.by_api else 'by its configuration'} {said}"

    def someone(self, random):
        with self.lock:
            return random.choice(sorted(self.running, key=id)) if self.running else None

    def judge(self, verdict):
        """Adds to the verdict."""
        in_redis = [one.decode().split() for one in self.services.redis.cli.call("LRANGE", "log", 0, -1)]
        written = {"PostgreSQL": self.services.postgres.sql("SELECT token, job FROM log ORDER BY n"),
                   "Redis": [(int(token), job) for token, job in in_redis]}
        for text in faults(written, self.began()):
            verdict.add("job", text)
        for status in set(self.statuses) - ENDS:
            verdict.add("job", f"{self.statuses[status]} ended with status {status}: {self.said[status]}")
        if not self.began():
            verdict.add("job", "none began")

    def began(self):
        return began_of(self.began_path)
