"""The history test of the PostgreSQL gate: as run.py, with writers whose sessions and transactions are ended by their
successors; judged by the order of commits in the server's log.

    pg_run.py [--binary PATH] [--takeovers N] [--seconds-max S]      exit 0: no violation, 1: violations,
                                                                2: too few takeovers, stale tries or cut transactions
    FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the machine's)."""

import argparse
import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.checker import check
from history.chaos import Chaos
from history.pg_clients import USER
from history.pg_commits import read_commits
from history.rig import Rig, run_and_exit
from postgres import PgGate, PostgresServer

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
    """With the tables, and a slot that collects what is committed from now on. `open_marks`: writers may change marks,
    as gates with a broken fence do in their name."""

    def __init__(self, open_marks):
        super().__init__(wal_level="logical")
        self.open_marks = open_marks

    def __enter__(self):
        super().__enter__()
        try:
            self.user("gate")
            self.user(USER)
            self.install(gate_users=["gate"])
            self.sql(TABLES)
            if self.open_marks:
                self.sql(f"GRANT SELECT, INSERT, UPDATE ON fencegate.marks TO {USER}")
            self.sql("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", SLOT)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def sessions_of_writers(self):
        """Process ids, asked of the kernel: what asks the server may wait for a session that is frozen."""
        found = []
        for pid in self.backends():
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/cmdline") as file:
                if file.read().startswith(f"postgres: {USER} "):
                    found.append(pid)
        return found

    def thaw(self, pid):
        with contextlib.suppress(ProcessLookupError):
            super().thaw(pid)

    def commits(self):
        rows = self.sql("SELECT pg_wal_lsn_diff(lsn, '0/0')::bigint, xid::text, data "
                        "FROM pg_logical_slot_get_changes(%s, NULL, NULL, 'skip-empty-xacts', 'on')", SLOT)
        return read_commits(rows)


class PgRun(Rig):
    """Writers to PostgreSQL. `open_marks`: see Server."""

    writer_script = "pg_writer.py"
    writers_count = 10
    resources = RESOURCES

    def __init__(self, binary=None, takeovers=300, seconds_max=50, open_marks=False):
        super().__init__(binary, takeovers, seconds_max)
        self.open_marks = open_marks

    def make_server(self):
        return Server(self.open_marks)

    def make_gate(self, upstream):
        gate = PgGate(upstream, user="gate", binary=self.binary)
        gate.needs_backend = False  # in the middle of the trouble, it may have to wait for a frozen session
        return gate

    def writer_arguments(self, resource, gate_ports):
        return gate_ports

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

        return {"more": {freeze_session: 20}}

    def left_alone(self):
        return self.server.value("SELECT count(*) = 0 FROM pg_stat_activity WHERE usename IN (%s, 'gate')", USER)

    def judge(self, histories):
        commits = self.server.commits()
        for history in histories:
            history.bound = [(token, commits.length_at(history.resource, position))
                             for token, position in history.bound]
        return check(commits.lists, histories, commits.marks)


def had_to_fence(verdict):
    """Old holders tried to come back, and were ended inside their transactions."""
    both = ("old holder refused at its start", "cut inside a transaction, applied: no")
    return all(verdict.noted[one] > 0 for one in both)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="default: $FENCEGATE")
    parser.add_argument("--takeovers", type=int, default=300)
    parser.add_argument("--seconds-max", type=float, default=240)
    options = parser.parse_args()
    return run_and_exit(PgRun(options.binary, options.takeovers, options.seconds_max), had_to_fence)


if __name__ == "__main__":
    sys.exit(main())
