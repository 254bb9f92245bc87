"""The story of a writer that nobody touches: a shell script with psql in two pods, behind gates that hold the lease. The holder's
node is frozen, the standby takes over, and the thawed one is refused until it is started anew."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import database
from stage import Process, eventually, find_fencegate
from story import Story

SCRIPT = """\
while :; do
  psql -q -c "INSERT INTO ticks VALUES ('$HOSTNAME')"
  sleep 0.3
done
"""
MORE = """\
    lease: ticker
    writer: ticker
stores: {{ ledger: {{ url: "{upstream}" }} }}
leases:
  ttl: 5s
  listen: "unix:{folder}/{pod}.sock"
  state_dir: "{folder}/{pod}-state"
  issuers: {{ main: {{ store: ledger }} }}
"""
# In the order of the writes: each pod once for each of its turns.
TURNS = "SELECT string_agg(pod, ' ' ORDER BY id) FROM (SELECT id, pod, lag(pod) OVER (ORDER BY id) AS last FROM ticks) t " \
        "WHERE pod IS DISTINCT FROM last"


class Pod:
    """A sidecar, and a writer beside it."""

    def __init__(self, stage, name, upstream):
        self.stage, self.name = stage, name
        more = MORE.format(upstream=upstream, folder=stage.folder, pod=name)
        self.sidecar, self.port, _ = stage.start_sidecar(f"ticker sidecar {name}", "postgres", upstream, more)

    def start_writer(self):
        self.writer = self.stage.enter_context(
            Process(f"ticker {self.name}", [*database.at_node(self.name, self.port), "sh", "ticker.sh"], self.stage.folder))

    def fencegate_hold(self, *words):
        """Its exit status and what it said, on one line."""
        program = str(Path(find_fencegate()).with_name("fencegate-hold"))
        done = subprocess.run([program, "lease", *words, "--api", f"unix:{self.stage.folder}/{self.name}.sock"],
                              capture_output=True, text=True, check=False)
        said = done.stderr.strip().removeprefix("fencegate lease: writer ticker: ")
        return f"status {done.returncode}" + (f": {said}" if said else "")

    def writer_said(self, text):
        return text in self.writer.log.read_text(errors="replace")

    def freeze(self):
        """The sidecar, and the writer once a write of it lies unread there."""
        waiting = self.sidecar.freeze_before_a_client("a write to reach the sidecar", self.port, 1)
        self.writer.freeze()
        return waiting

    def thaw(self):
        self.sidecar.thaw()
        self.writer.thaw()

    def end_writer(self):
        """As kubelet does, with all that runs in the container."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.writer.pid, signal.SIGKILL)
        self.writer.child.wait()


class GateStory(Story):
    def report(self, pod):
        started = pod.fencegate_hold("restarted", "ticker", "--pid", str(pod.writer.pid))
        self.expect(f"{pod.name}'s hook", "fencegate-hold lease restarted ticker", started, lambda said: said == "status 0")

    def probe(self, pod, answer, good=True):
        eventually(f"the probe to say {answer}", lambda: pod.fencegate_hold("writer", "ticker").startswith(answer))
        said = pod.fencegate_hold("writer", "ticker")
        self.expect(f"{pod.name}'s probe", "fencegate-hold lease writer ticker", said, lambda told: told.startswith(answer), good)

    def turns(self, right):
        self.eventually_in_postgres("whose ticks, in their order", TURNS, lambda found: found == right)

    def tell(self):
        say, stage = self.page, self.stage
        say.title("A writer that nobody touches, behind a gate that holds the lease: two pods, one works, one stands by")
        self.show_script("ticker.sh", SCRIPT)
        with database.Client(stage.postgres_port) as owner:
            owner.call("CREATE TABLE ticks (pod text, id bigserial)")
        upstream = f"postgres://fencegate@127.0.0.1:{stage.postgres_port}/{database.DATABASE}"
        a, b = Pod(stage, "A", upstream), Pod(stage, "B", upstream)
        a.start_writer()
        self.report(a)
        self.turns("A")
        b.start_writer()
        self.report(b)
        self.probe(b, "status 0: standby: held by ")

        waiting = a.freeze()
        say.step("A's node", "is frozen: SIGSTOP to all of it", f"{waiting} bytes of psql lie unread")
        self.turns("A B")
        a.thaw()
        say.step("A's node", "goes on: SIGCONT", "running")
        self.probe(a, "status 1: lost", good=False)
        self.expect("A's writer", "…psql reads the answer to its late write",
                    "refused" if eventually("psql's answer", lambda: a.writer_said("FATAL:  lost: ")) else "", lambda said: said == "refused")
        a.end_writer()
        a.start_writer()
        say.step("A's kubelet", "starts the writer anew, since its probe fails", "started")
        self.report(a)
        self.probe(a, "status 0: standby: held by ")
        self.turns("A B")
        b.sidecar.child.terminate()
        say.step("B's pod", "is told to end: SIGTERM to its sidecar", "releases the lease")
        self.turns("A B A")

    def explain(self):
        """It has ended, and left nothing to try."""
