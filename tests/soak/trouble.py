"""What happens all the time: reloads, restarts, rotations and drains; and the trouble of a history test besides."""

import contextlib
import os
import signal
import time
import traceback

from history.chaos import Chaos
from processes import eventually


class Trouble(Chaos):
    """`steady`, `leases`: sidecars that are never ended. `other`: the one that is drained, killed and frozen, behind proxies."""

    def __init__(self, random, services, steady, leases, other, jobs):
        super().__init__(random, [other], [])
        self.services, self.steady, self.leases, self.other, self.jobs = services, steady, leases, other, jobs
        self.failed = []  # complaints
        self.actions = {
            Chaos.freeze_gate: 20, Chaos.hold_back: 20, Chaos.cut_back: 6, Chaos.freeze_writer: 20, Chaos.kill_writer: 3,
            Trouble.kill_other: 2, Trouble.drain_other: 3, Trouble.reload_steady: 4, Trouble.reload_other: 2,
            Trouble.reload_leases: 2, Trouble.rotate_password: 1, Trouble.rotate_certificate: 2, Trouble.restart_redis: 2,
            Trouble.restart_postgres: 1, Trouble.restart_upstream: 2, Trouble.freeze_redis: 6, Trouble.freeze_session: 15,
            Trouble.end_session: 4, Trouble.freeze_upstream: 6, Trouble.freeze_job: 3}

    def step(self):
        for process in (self.steady, self.leases, self.other, *self.writers):
            process.assert_running()
        try:
            super().step()
        except AssertionError as failed:  # what an action waited for has not come
            action = traceback.extract_tb(failed.__traceback__)[2].name
            self.failed.append(f"trouble: {action} at {time.strftime('%H:%M:%S', time.gmtime())}: {failed}")

    # ── the other sidecar ──

    def _other_is_still(self):
        return self.other in self._frozen or self.other.back in self._frozen

    def kill_other(self):
        self.other.kill()
        self.other.start()
        return True

    def drain_other(self):
        if self._other_is_still():
            return False
        self.other.terminate()
        if (status := self.other.wait()) != 0:
            raise AssertionError(f"a drain ended with status {status}")
        self.other.start()
        return True

    # ── settings ──

    def reload_steady(self):
        return self._reload(self.steady)

    def reload_leases(self):
        return self._reload(self.leases)

    def reload_other(self):
        return not self._other_is_still() and self._reload(self.other)

    def _reload(self, sidecar):
        """Other settings for some of the gates."""
        for gate in self.random.sample(sidecar.config["gates"], self.random.randint(1, 3)):
            gate["connections_max"] = self.random.randint(1000, 9000)
        sidecar.write()
        if self.random.random() < 0.3:
            before = sidecar.generation()
            os.kill(sidecar.pid, signal.SIGHUP)
            return bool(eventually(lambda: sidecar.generation() > before))
        status, answer = sidecar.reload()
        if status not in (200, 409):  # 409: it reads a password just now
            raise AssertionError(f"reload: {status} {answer}")
        return status == 200

    def rotate_password(self):
        self.finish()  # it waits for servers and sidecars, which are thawed by this thread
        before = [sidecar.generation() for sidecar in (self.steady, self.other)]
        self.services.rotate_password()
        return bool(eventually(lambda: all(sidecar.generation() > was
                                           for sidecar, was in zip((self.steady, self.other), before))))

    def rotate_certificate(self):
        self.services.rotate_certificate()
        return bool(eventually(lambda: self.services.shown_by(self.steady)))

    # ── servers ──

    def restart_redis(self):
        self.services.redis.restart()
        return True

    def restart_postgres(self):
        self.services.postgres.power_cut()
        return True

    def restart_upstream(self):
        self.services.upstream.kill()
        self.services.upstream.start()
        return True

    def freeze_redis(self):
        redis = self.services.redis
        return self.freeze_for_a_while(redis, redis.stop_process, redis.continue_process, 0.03, 0.3)

    def freeze_upstream(self):
        upstream = self.services.upstream
        return self.freeze_for_a_while(upstream, upstream.stop_process, upstream.continue_process, 0.03, 0.4)

    def _session(self):
        postgres = self.services.postgres
        pids = postgres.processes("writer") + postgres.processes("keeper")
        return self.random.choice(pids) if pids else None

    def freeze_session(self):
        """The server's side of it, wherever it is: in a commit, with a lock."""
        postgres = self.services.postgres
        if (pid := self._session()) is None:
            return False

        def freeze():
            with contextlib.suppress(ProcessLookupError):
                postgres.freeze(pid)

        return self.freeze_for_a_while(pid, freeze, lambda: postgres.thaw(pid), 0.03, 0.4)

    def end_session(self):
        """Of the sidecars': a writer's must not end without a word that explains it."""
        if not (pids := self.services.postgres.processes("keeper")):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.random.choice(pids), signal.SIGTERM)
        return True

    # ── jobs under leases ──

    def freeze_job(self):
        if not (hold := self.jobs.someone(self.random)):
            return False
        return self.freeze_for_a_while(hold, hold.freeze, hold.thaw, 0.1, 8)
