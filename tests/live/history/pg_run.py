"""The history test of the PostgreSQL gate: as run.py, with writers whose sessions and transactions are ended by their
successors; judged by the order of commits in the server's log. With guard: transaction, two of the three gates talk to
a PgBouncer that pools by transaction, which is frozen and killed, too, and sessions of the server are ended.

    pg_run.py [--binary PATH] [--guard session|transaction] [--takeovers N] [--seconds-max S]
                                                                exit 0: no violation, 1: violations,
                                                                2: too few takeovers, stale tries or cut transactions
    FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the machine's)."""

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.checker import check
from history.chaos import Chaos
from history.pg_clients import USER
from history.pg_commits import read_commits
from history.rig import Rig, run_and_exit
from postgres import PgBouncer, PgGate, PostgresServer
from processes import connect

RESOURCES = ("orders", "stock", "ledger", "mail", "jobs")
SLOT = "history"

TABLES = f"""
CREATE TABLE writes (resource text NOT NULL, token bigint NOT NULL, writer text NOT NULL, seq integer NOT NULL,
                     log_position pg_lsn NOT NULL DEFAULT pg_current_wal_insert_lsn());
CREATE TABLE heads (resource text PRIMARY KEY, token bigint NOT NULL);
INSERT INTO heads SELECT unnest('{{{",".join(RESOURCES)}}}'::text[]), 0;
CREATE FUNCTION write_all(of text, token bigint, writer text, seqs integer[], nap double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE one integer;
BEGIN
  UPDATE heads h SET token = $2 WHERE h.resource = of;
  FOREACH one IN ARRAY seqs LOOP
    INSERT INTO writes (resource, token, writer, seq) VALUES (of, $2, $3, one);
    PERFORM pg_sleep(nap);
  END LOOP;
END $$;
CREATE PROCEDURE write_each(of text, token bigint, writer text, seqs integer[], nap double precision)
LANGUAGE plpgsql AS $$
DECLARE one integer;
BEGIN
  FOREACH one IN ARRAY seqs LOOP
    INSERT INTO writes (resource, token, writer, seq) VALUES (of, $2, $3, one);
    COMMIT;
    PERFORM pg_sleep(nap);
  END LOOP;
END $$;
GRANT INSERT ON writes TO {USER};
GRANT SELECT, UPDATE ON heads TO {USER};
"""


class Server(PostgresServer):
    """With the tables, and a slot that collects what is committed from now on. `open_marks`: writers may change marks
    and say who is stale, as gates with a broken fence do in their name. `pooled`: with a `pooler` in front of it, whose
    sessions are all those of one user, the gates' own too."""

    def __init__(self, open_marks, pooled):
        super().__init__(wal_level="logical", fsync="on")
        self.open_marks = open_marks
        self.pooler = None
        if pooled:  # fewer sessions than writers
            self.pooler = Pooler(self, user=USER, default_pool_size=5, ignore_startup_parameters="options",
                                 server_login_retry=0.1)

    def __enter__(self):
        super().__enter__()
        try:
            self.user("gate")
            self.user(USER)
            self.install(gate_users=["gate", USER] if self.pooler else ["gate"])
            self.sql(TABLES)
            if self.open_marks:
                self.sql(f"GRANT SELECT, INSERT, UPDATE ON fencegate.marks TO {USER}")
                self.sql(f"GRANT EXECUTE ON FUNCTION fencegate.stale(text, bigint, bigint, bigint) TO {USER}")
            self.sql("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", SLOT)
            if self.pooler:
                self.pooler.__enter__()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *exception):
        try:
            if self.pooler and self.pooler.folder:
                self.pooler.show_log = self.show_log
                self.pooler.__exit__(*exception)
        finally:
            super().__exit__(*exception)

    def sessions_of_writers(self):
        return self.processes(USER)

    def processes(self, title):
        """Process ids, asked of the kernel: what asks the server may wait for a session that is frozen."""
        found = []
        for pid in self.backends():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/cmdline") as file:
                if file.read().startswith(f"postgres: {title} "):
                    found.append(pid)
        return found

    def thaw(self, pid):
        with contextlib.suppress(ProcessLookupError):
            super().thaw(pid)

    def crash(self):
        """One of its processes is killed, so the server ends all others, and recovers. Does not wait for that: a
        connection that is held back may have to go on before. False when it is not up."""
        if not (writers := self.processes("walwriter")):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(writers[0], signal.SIGKILL)
        for pid in self.backends():
            self.thaw(pid)
        return True

    def commits(self):
        rows = self.sql("SELECT pg_wal_lsn_diff(lsn, '0/0')::bigint, xid::text, data "
                        "FROM pg_logical_slot_get_changes(%s, NULL, NULL, 'skip-empty-xacts', 'on')", SLOT)
        return read_commits(rows)


class Pooler(PgBouncer):
    def up(self):
        """When it listens: the server may have to wait for a session that is frozen."""
        connect(self.port).close()
        return True


class PgRun(Rig):
    """Writers to PostgreSQL. `open_marks`: see Server."""

    writer_script = "pg_writer.py"
    writers_count = 10
    resources = RESOURCES

    def __init__(self, binary=None, takeovers=300, seconds_max=50, open_marks=False, guard="session"):
        super().__init__(binary, takeovers, seconds_max)
        self.open_marks, self.guard = open_marks, guard

    def make_server(self):
        return Server(self.open_marks, pooled=self.guard == "transaction")

    def upstream_of(self, number):
        return self.server.pooler if self.server.pooler and number != 1 else self.server

    def make_gate(self, upstream):
        gate = PgGate(upstream, user="gate", guard=self.guard,
                      comment_tags=None if self.guard == "transaction" else "lead", binary=self.binary)
        gate.needs_backend = False  # in the middle of the trouble, it may have to wait for a frozen session
        return gate

    def writer_arguments(self, resource, gate_ports):
        return [self.guard, *gate_ports]

    def trouble(self):
        def freeze_session(chaos: Chaos):
            """The server's side of it, wherever it is: in a commit, with a lock."""
            if not (pids := self.server.sessions_of_writers()):
                return False
            pid = chaos.random.choice(pids)

            def freeze():
                with contextlib.suppress(ProcessLookupError):
                    self.server.freeze(pid)

            return chaos.freeze_for_a_while(pid, freeze, lambda: self.server.thaw(pid), 0.03, 0.4)

        def end_session(chaos: Chaos):
            """As an administrator does, or a raise that means the client before."""
            if not (pids := self.server.sessions_of_writers()):
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(chaos.random.choice(pids), signal.SIGTERM)
            return True

        def crash_server(_):
            return self.server.crash()

        def freeze_pooler(chaos: Chaos):
            pooler = self.server.pooler
            return chaos.freeze_for_a_while(pooler, pooler.stop_process, pooler.continue_process, 0.03, 0.3)

        def kill_pooler(_):
            self.server.pooler.restart()
            return True

        pooled = {end_session: 5, freeze_pooler: 8, kill_pooler: 2} if self.server.pooler else {}
        return {"more": {freeze_session: 20, crash_server: 1} | pooled}

    def left_alone(self):
        if self.server.pooler:
            self.server.pooler.kill()
        return self.server.up() and self.server.value(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename IN (%s, 'gate')", USER)

    def judge(self, histories):
        commits = self.server.commits()
        for history in histories:
            history.bound = [(token, commits.length_at(history.resource, position))
                             for token, position in history.bound]
        return check(commits.lists, histories, commits.marks)


def had_to_fence(verdict):
    """Old holders tried to come back, and were ended inside their transactions or met a guard."""
    met = ("cut inside a transaction, applied: no", "old holder refused at its next transaction")
    return verdict.noted["old holder refused at its start"] > 0 and any(verdict.noted[one] > 0 for one in met)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="default: $FENCEGATE")
    parser.add_argument("--guard", default="session", choices=("session", "transaction"))
    parser.add_argument("--takeovers", type=int, default=300)
    parser.add_argument("--seconds-max", type=float, default=240)
    options = parser.parse_args()
    run = PgRun(options.binary, options.takeovers, options.seconds_max, guard=options.guard)
    return run_and_exit(run, had_to_fence)


if __name__ == "__main__":
    sys.exit(main())
