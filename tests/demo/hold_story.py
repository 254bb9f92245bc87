"""The story of a cron job that nobody changed: a shell script with psql, under `fencegate hold`, on a node that is frozen for
longer than its lease."""

import contextlib
import os
import re
import signal
from pathlib import Path

import database
from stage import Process, eventually, find_fencegate
from story import Story

SCRIPT = """\
for id in 1 2 3; do
  psql -q -c "UPDATE accounts SET settled_by = '$HOSTNAME' WHERE id = $id" || exit
  sleep 1
done
"""
MORE = """\
stores: {{ ledger: {{ url: "{upstream}" }} }}
leases: {{ ttl: 5s, issuers: {{ main: {{ store: ledger }} }} }}
"""
ACCOUNTS = "SELECT string_agg(settled_by, ' ' ORDER BY id) FROM accounts"
SHOWN = "fencegate hold settle -- sh settle.sh"


class Job(Process):
    """The script under hold, as one node's cron starts it."""

    def __init__(self, node, port, config, folder):
        super().__init__(f"job {node}", [*database.at_node(node, port), find_fencegate(), "hold", "settle", "-c", config, "--",
                                         "sh", "settle.sh"], folder)

    def tree(self):
        """The process that renews the lease, then its guard, then the script and what that runs."""
        found = [self.pid]
        for pid in found:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += map(int, (task / "children").read_text().split())
        return found

    def freeze_all(self):
        before = []
        while before != (before := self.tree()):
            for pid in before:
                os.kill(pid, signal.SIGSTOP)

    def thaw_all(self):
        """What the script tries comes before its guard ends it: the fence's part, not the guard's."""
        keeper, guard, *script = self.tree()
        for pid in script:
            os.kill(pid, signal.SIGCONT)
        eventually("psql's answer", lambda: "psql: " in self.said())
        for pid in (guard, keeper):
            os.kill(pid, signal.SIGCONT)

    def said(self):
        return self.log.read_text(errors="replace")

    def ended(self):
        eventually(f"{self.name} to end", lambda: self.child.poll() is not None)
        return f"status {self.child.returncode}"


class HoldStory(Story):
    def accounts(self, right):
        self.eventually_in_postgres("the accounts' settled_by", ACCOUNTS, right)

    def tell(self):
        say, stage = self.page, self.stage
        say.title("A cron job that nobody changed, under fencegate hold: its node is frozen for longer than its lease")
        self.show_script("settle.sh", SCRIPT)
        with database.Client(stage.postgres_port) as owner:
            owner.call("CREATE TABLE accounts AS SELECT id, '-' AS settled_by FROM generate_series(1, 3) id")
        upstream = f"postgres://fencegate@127.0.0.1:{stage.postgres_port}/{database.DATABASE}"
        (sidecar_a, port_a, _), (_, port_b, _) = [
            stage.start_sidecar(f"cron sidecar {node}", "postgres", upstream, MORE.format(upstream=upstream)) for node in "AB"]
        config = str(Path(stage.folder) / "cron-sidecar-A.yaml")

        a = stage.enter_context(Job("A", port_a, config, stage.folder))
        say.step("A's cron", SHOWN, "runs")
        self.accounts(lambda found: found == "A - -")
        waiting = sidecar_a.freeze_before_a_client("A's next psql to reach its sidecar", port_a, 2)
        a.freeze_all()
        say.step("A's node", "is frozen: SIGSTOP to all of it", f"{waiting} bytes of psql lie unread")
        b = stage.enter_context(Job("B", port_b, config, stage.folder))
        say.step("B's cron", SHOWN, "waits for A's lease, 5 s")
        self.accounts(lambda found: found.startswith("B"))
        self.expect("B's cron", "…the job has ended", b.ended(), lambda status: status == "status 0")
        sidecar_a.thaw()
        a.thaw_all()
        say.step("A's node", "goes on: SIGCONT", "running")
        refused = re.search("token .*", a.said())
        self.expect("A", "…psql reads the answer to its late update", refused and refused[0], is_stale)
        self.expect("A's cron", "…the job has ended", a.ended(), lambda status: status == "status 79")
        self.accounts(lambda found: found == "B B B")

    def explain(self):
        """It has ended, and left nothing to try."""


def is_stale(answer):
    return re.fullmatch(r"token 1 of settle is below mark 2; not applied", answer or "") is not None
