"""`fencegate hold`: unchanged programs under a lease, with gates and marks in PostgreSQL and Redis from one configuration."""

import contextlib
import json
import os
import re
import signal
import subprocess

import documents
from cut_proxy import CutProxy
from gate_process import Gate
from live_test import LiveTest, main
from postgres import PostgresServer, run_sql
from processes import LOOPBACK, Process, connect, die_with_parent, eventually, free_port
from redis_server import RedisServer
from resp import Resp

TTL = 1.2  # seconds
LEASES = {"ttl": "1200ms", "margin": "200ms", "skew": "50ms", "round_trip": "100ms", "stop_grace": "200ms"}


class Gates(Process):
    """`fencegate serve` with a gate in front of each server, and the configuration that `hold` reads, too."""

    title = "fencegate"
    redis_user = ""  # "name:password@"

    def __init__(self, database, redis, leases=(), issuer="ledger"):
        super().__init__()
        self.database, self.redis, self.leases, self.issuer = database, redis, LEASES | dict(leases), issuer

    def prepare(self):
        self.pg_port, self.redis_port = free_port(), free_port()
        self.configuration = self.configure()
        self.path = self.write(self.configuration)

    def configure(self):
        url = self.database.url("gate", "app")
        return {
            "stores": {"ledger": {"url": url}} | ({"cache": {"url": self.redis_url()}} if self.issuer == "cache" else {}),
            "leases": {"issuers": {"main": {"store": self.issuer}}} | self.leases,
            "gates": [{"name": "db", "protocol": "postgres", "listen": f"{LOOPBACK}:{self.pg_port}", "upstream": url},
                      self.redis_gate()]}

    def redis_gate(self):
        return {"name": "cache", "protocol": "redis", "listen": f"{LOOPBACK}:{self.redis_port}", "upstream": self.redis_url()}

    def redis_url(self):
        return f"redis://{self.redis_user}{LOOPBACK}:{self.redis.port}"

    def write(self, configuration, name="fencegate.yaml"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            json.dump(configuration, file)
        return path

    def command(self):
        return [os.environ["FENCEGATE"], "serve", "-c", self.path]

    def up(self):
        return all(_listens(port) for port in (self.pg_port, self.redis_port))


def _listens(port):
    with contextlib.suppress(OSError):
        connect(port, 1).close()
        return True
    return False


class Hold:
    """A running `fencegate hold`, in a process group of its own; `by_api`: `fencegate-hold hold`, which asks the sidecar."""

    def __init__(self, gates, *words, command, path=None, by_api=False, environment=()):
        given = os.environ | {"PGHOST": LOOPBACK, "PGPORT": str(gates.pg_port), "PGUSER": "orders", "PGDATABASE": "app",
                              "REDIS_PORT": str(gates.redis_port)} | dict(environment)
        self.by_api = by_api
        program, asked = (("FENCEGATE_HOLD", ["--api", f"unix:{gates.socket}"]) if by_api else
                          ("FENCEGATE", ["-c", path or gates.path]))
        self.words = [os.environ[program], "hold", *words, *asked, "--", *command]
        self.given = given

    def __enter__(self):
        self.child = subprocess.Popen(self.words, env=self.given, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, process_group=0, preexec_fn=die_with_parent)
        return self

    def __exit__(self, *_):
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.wait()
        for stream in (self.child.stdout, self.child.stderr):
            if stream:
                stream.close()

    def tree(self):
        """The keeper first."""
        found = [self.child.pid] if self.child.poll() is None else []
        for pid in found:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{task}/children") as file:
                        found += map(int, file.read().split())
        return found

    def freeze(self):
        """As when a node stands still."""
        before = []
        while before != (before := self.tree()):
            for pid in before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def ended(self, patience=30):
        """Its exit status."""
        self.told, self.said = self.child.communicate(timeout=patience)
        return self.child.returncode


class Watch(Process):
    """A command of fencegate that goes on."""

    title = "watch"

    def __init__(self, gates, *words):
        super().__init__()
        self.words = [os.environ["FENCEGATE"], *words, "-c", gates.path]

    def command(self):
        return self.words

    def up(self):
        return True


class HoldTest(LiveTest):
    issuer, gates_of = "ledger", Gates

    @classmethod
    def setUpClass(cls):
        cls.database = cls.enterClassContext(PostgresServer())
        cls.redis = cls.enterClassContext(RedisServer())
        cls.database.sql("CREATE DATABASE app")
        cls.database.user("gate")
        cls.database.user("orders")
        cls.database.install("app", gate_users=("gate",))
        cls.admin = cls.database.connect(database="app")
        cls.addClassCleanup(cls.admin.close)
        cls.sql("CREATE TABLE orders (by text); GRANT ALL ON orders TO orders")
        cls.gates = cls.enterClassContext(cls.gates_of(cls.database, cls.redis, issuer=cls.issuer))

    def setUp(self):
        self.sql("TRUNCATE orders")
        self.free_all()

    def free_all(self):
        """No lease is held, and no store is known of former holders."""
        self.sql("UPDATE fencegate.leases SET expires_at = '-infinity', not_before = '-infinity', stores = '{}'")

    @classmethod
    def sql(cls, text, *values):
        return run_sql(cls.admin, text, *values)

    def rows(self):
        return [by for (by,) in self.sql("SELECT by FROM orders")]

    def mark(self, resource="orders"):
        """In both, where they must be the same."""
        ((in_postgres,),) = self.sql("SELECT mark FROM fencegate.marks WHERE resource = %s", resource)
        self.assertEqual(self.redis.cli.call("GET", "fencegate:mark:{" + resource + "}"), str(in_postgres).encode())
        return in_postgres

    def hold(self, *words, command, **more):
        return self.start(Hold(self.gates, *words, command=command, **more))

    def shell(self, script, *words, resource="orders", **more):
        return self.hold(resource, *words, command=["sh", "-c", script], **more)

    def run_shell(self, script, *words, **more):
        one = self.shell(script, *words, **more)
        one.status = one.ended()
        return one


WRITE = "psql -qXc \"INSERT INTO orders VALUES ('{}')\""


class Jobs(HoldTest):
    def shell(self, script, *words, **more):
        """A machine may be busy: nothing here is about a lease that expires."""
        return super().shell(script, *(words if "--ttl" in words else ("--ttl", "10s", *words)), **more)

    def test_unchanged_programs_write_under_their_tokens(self):
        job = self.run_shell(WRITE.format("a") + ' && echo "$FENCING_RESOURCE $FENCING_TOKEN $FENCE_TAG" && '
                             'redis-cli -p $REDIS_PORT FENCE CALL orders "$FENCING_TOKEN" SET written "$FENCING_TOKEN"')
        self.assertEqual((job.status, job.said), (0, ""))
        mark = self.mark()
        self.assertEqual(job.told.split("\n"), [f"orders {mark} orders={mark}", "OK", ""])
        self.assertEqual(self.rows(), ["a"])
        self.assertEqual(self.redis.cli.call("GET", "written"), str(mark).encode())
        again = self.run_shell("echo $FENCING_TOKEN")
        self.assertEqual(int(again.told), mark + 1)

    def test_both_places_are_sealed_for_one_grant(self):
        self.assertEqual(self.run_shell(":").status, 0)
        mark = self.mark()
        ((sealed, issuer, ours),) = self.sql("SELECT m.sealed, m.issuer::text, m.issuer = s.issuer_id FROM fencegate.marks m, "
                                             "fencegate.settings s WHERE m.resource = 'orders'")
        self.assertEqual((sealed, ours), (mark, True))
        record = self.redis.cli.call("GET", "fencegate:grant:{orders}").decode().split()
        self.assertEqual(record[:2], [str(mark), issuer])

    def test_a_bare_tag_does_not_shut_holders_out(self):
        self.run_shell(":")
        client = self.start(Resp(self.gates.redis_port))
        self.assertEqual(client.call("FENCE", "SET", "orders", str((1 << 63) - 1)).code, "FENCEJUMP")
        far = 1 << 39  # no further than max_step allows
        refused = client.call("FENCE", "SET", "orders", str(far))
        self.assertEqual(str(refused), f"FENCEJUMP token {far} of orders exceeds mark {self.mark()}, which only leases of its "
                                       "issuer raise; not applied")
        self.assertEqual(client.call("SET", "k", "v").code, "FENCEJUMP")
        done = subprocess.run(["psql", "-qXc", "SELECT 1"], capture_output=True, text=True, env=os.environ | {
            "PGHOST": LOOPBACK, "PGPORT": str(self.gates.pg_port), "PGUSER": "orders", "PGDATABASE": "app",
            "PGOPTIONS": f"-c fencing.tokens=orders={far}"}, check=False)
        self.assertIn(f"token {far} of orders exceeds mark {self.mark()}, which only leases of its issuer raise", done.stderr)
        self.assertEqual(self.run_shell(WRITE.format("a")).status, 0)
        self.assertEqual(self.rows(), ["a"])

    def test_several_resources_and_a_hold_within(self):
        inner = (f'"$FENCEGATE" hold refunds --ttl 10s -c {self.gates.path} -- sh -c \'echo $FENCE_TAG; echo $FENCING_TOKEN_ORDERS; '
                 + WRITE.format("a").replace("'", "'\\''") + "'")
        job = self.run_shell(inner, resource="orders,payments")
        self.assertEqual((job.status, job.said), (0, ""))
        tag = dict(one.split("=") for one in job.told.split()[0].split(","))
        self.assertEqual(tag, {name: str(self.mark(name)) for name in ("orders", "payments", "refunds")})
        self.assertEqual(job.told.split()[1], tag["orders"])
        self.assertEqual(self.rows(), ["a"])
        self.assertIn("an outer hold has", self.run_shell(inner.replace("hold refunds", "hold orders")).said)

    def test_a_job_that_runs_for_longer_than_its_lease(self):
        job = self.run_shell("sleep 4; " + WRITE.format("a"), "--ttl", "3s")  # a disk that is busy keeps a commit for a second
        self.assertEqual((job.status, job.said, self.rows()), (0, "", ["a"]))

    def test_how_it_ends(self):
        for script, status in (("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)):
            with self.subTest(script):
                self.assertEqual(self.run_shell(script).status, status)
        self.assertEqual(self.hold("orders", command=["/nowhere/to/be/found"]).ended(), 127)
        self.assertEqual(self.hold("orders", command=["/etc/passwd"]).ended(), 126)

    def test_what_it_left_behind_is_ended_before_the_lease_is_free(self):
        job = self.run_shell("setsid sleep 1000.25 & :")
        self.assertEqual((job.status, job.said), (0, "fencegate hold: ended 1 processes that the command had left\n"))
        self.assertEqual(subprocess.run(["pgrep", "-f", "^sleep 1000.25"], check=False, capture_output=True).stdout, b"")

    def test_a_command_that_cannot_be_run_is_named(self):
        for command, status, why in (("/nope", 127, "No such file or directory"), ("/etc/passwd", 126, "Permission denied")):
            job = self.hold("orders", command=[command])
            self.assertEqual(job.ended(), status)
            self.assertIn(f"fencegate hold: cannot run {command}: {why}", job.said)

    def test_the_result_in_a_file(self):
        for script, words, result in (
                ("exit 3", (), {"outcome": "exited", "status": 3}), ("kill -9 $$", (), {"outcome": "signaled", "status": 137}),
                ("sleep 100", ("--max-run", "300ms"), {"outcome": "max_run", "status": 124})):
            with self.subTest(script):
                path = os.path.join(self.gates.folder, "result")
                self.assertEqual(self.run_shell(script, "--result", path, *words).status, result["status"])
                with open(path) as file:
                    self.assertEqual(json.load(file), result)

    def test_arguments_that_make_no_sense(self):
        for words, told in ((["or ders"], "a resource is 1 to 200 of the characters"), (["a,a"], "the resource a stands twice"),
                            (["a", "--ttl", "3s", "--stop-grace", "2s"], "not available: "), (["a", "--ttl", "3"], "--ttl"),
                            (["a", "--wait", "1s", "--no-wait"], "--no-wait"), (["a", "--issuer", "x"], "no issuer named x")):
            with self.subTest(" ".join(words)):
                one = self.hold(*words, command=["true"])
                self.assertEqual(one.ended(), 125, one.said)
                self.assertIn(told, one.said)


class Documented(HoldTest):
    """The examples of docs/leases.md, as they stand there."""

    page = "docs/leases.md"

    def script(self, name, text):
        path = os.path.join(self.gates.folder, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def local(self, line):
        """With files and addresses of this test."""
        for path in re.findall(r"/opt/\w+(?:\.sh)?", line):
            line = line.replace(path, self.script(os.path.basename(path), WRITE.format(path)))
        return line.replace("/etc/fencegate/fencegate.yaml", self.gates.path)

    def run_here(self, line):
        return documents.run_shell(self.local(line), self.gates.folder, PGHOST=LOOPBACK, PGPORT=str(self.gates.pg_port),
                                   PGUSER="orders", PGDATABASE="app")

    def test_the_first_command(self):
        self.script("job.sh", WRITE.format("job"))
        self.run_here(documents.command(self.page, "fencegate hold orders -c"))
        self.assertEqual(self.rows(), ["job"])

    def test_who_holds_it_and_how_it_is_taken(self):
        job = self.shell("echo up; sleep 100")
        self.assertEqual(job.child.stdout.readline(), "up\n")
        show = documents.command(self.page, "fencegate lease show -c")
        before = self.mark()
        self.assertRegex(self.run_here(show), rf"(?m)^orders +{before} +{before} +\d+m?s +20.* \S+:{job.child.pid}$")
        (held,) = [one for one in json.loads(self.run_here(show + " --json")) if one["resource"] == "orders"]
        self.assertEqual((held["token"], held["mark"]), (before, before))
        self.assertGreater(held["left_ms"], 0)
        self.assertNotIn("places", held)
        (held,) = json.loads(self.run_here(show.replace("lease show", "lease show orders") + " --json"))
        self.assertEqual({one["place"]: one["mark"] for one in held["places"]},
                         dict.fromkeys(("store:ledger", "gate:db", "gate:cache"), before))
        self.assertEqual(len({one["issuer"] for one in held["places"]}), 1)
        watch = self.start(Watch(self.gates, "lease", "show", "orders", "--watch"))
        eventually(lambda: re.search(rf"(?m)^orders +{before} .*\d+m?s ", watch.log()))
        self.run_here(documents.command(self.page, "fencegate lease break orders -c"))
        self.assertEqual(job.ended(), 79)
        self.assertEqual(self.mark(), before + 1)
        self.assertRegex(self.run_here(show), r"(?m)^orders .* free .* lease break: hangs since noon$")
        eventually(lambda: re.search(rf"(?m)^orders +{before + 1} .* free ", watch.log()))

    def test_it_is_frozen_and_thawed(self):
        job = self.shell("echo up; sleep 100")
        self.assertEqual(job.child.stdout.readline(), "up\n")
        self.run_here(documents.command(self.page, "fencegate lease freeze orders"))
        self.assertEqual(job.ended(), 79)
        show = documents.command(self.page, "fencegate lease show -c")
        self.assertRegex(self.run_here(show), r"(?m)^orders .* frozen .* lease freeze: restoring a backup$")
        refused = self.shell("true", "--no-wait")
        self.assertEqual(refused.ended(), 75)
        self.assertIn("held by lease freeze: restoring a backup", refused.said)
        self.run_here(documents.command(self.page, "fencegate lease thaw orders"))
        self.assertEqual(self.shell("true").ended(), 0)

    def test_cron_runs_it_once(self):
        line = documents.block(self.page, "cron").strip()
        self.assertEqual(line.split()[:5], ["*"] * 5)
        for _ in range(2):
            self.run_here(line.split(maxsplit=5)[5])
        self.assertEqual(self.rows(), ["/opt/settle.sh"])

    def test_the_unit_of_systemd(self):
        (line,) = re.findall("^ExecStart=(.*)$", documents.block(self.page, "ini"), re.M)
        self.run_here(line)
        self.assertEqual(self.rows(), ["/opt/orders"])


class Refusals(HoldTest):
    """What cannot be had is refused, and leaves nothing behind."""

    def configured(self, name, **more):
        return self.gates.write(self.gates.configuration | more, name)

    def record(self, value):
        key = "fencegate:grant:{refused}"
        self.redis.cli.call("SET", key, value) if value else self.redis.cli.call("DEL", key)

    def test_a_grant_whose_seal_was_refused_blocks_nobody(self):
        self.record("1 " + "f" * 32 + " " + "0" * 40)
        job = self.run_shell(":", "--at-least", "60s", resource="refused")
        self.assertEqual(job.status, 125)
        self.assertIn("belongs to leases of another issuer", job.said)
        self.record(None)
        self.assertEqual(self.run_shell(":", "--no-wait", resource="refused").status, 0)

    def test_a_mark_that_is_too_high_is_named_with_its_place(self):
        self.redis.cli.call("SET", "fencegate:mark:{high}", str((1 << 63) - 1))
        job = self.run_shell(":", resource="high")
        self.assertEqual(job.status, 125)
        self.assertIn("gate:cache: the mark of high, 9223372036854775807, is too high for leases", job.said)

    def test_a_gate_where_each_token_is_good_for_one_write(self):
        gates = [self.gates.configuration["gates"][0], self.gates.configuration["gates"][1] | {"policy": {"equal_token": "reject"}}]
        job = self.run_shell(":", path=self.configured("reject.yaml", gates=gates))
        self.assertEqual(job.status, 125)
        self.assertIn("gate:cache has equal_token: reject", job.said)

    def test_a_tag_that_was_bound_before_the_seal_does_not_raise_behind_it(self):
        """Where each token is good for one batch, a batch raises by itself."""
        gate = self.start(Gate(self.redis, policy={"equal_token": "reject"}))
        for how in (["SET", "k", "stale"], ["MULTI"]):
            name = f"bound-{how[0]}"
            client = self.start(Resp(gate.port))
            self.assertEqual(client.call("FENCE", "SET", name, str((1 << 63) - 1)), b"OK")
            self.assertEqual(self.run_shell(":", resource=name).status, 0)
            answers = client.pipeline([how] + ([["SET", "k", "stale"], ["EXEC"]] if how == ["MULTI"] else []))
            self.assertEqual(answers[-1].code, "FENCEJUMP", answers)
            self.assertEqual(self.mark(name), 1)
            self.assertIsNone(self.redis.cli.call("GET", "k"))

    def test_a_store_that_lost_its_data(self):
        self.assertEqual(self.run_shell(":", resource="lost").status, 0)
        self.redis.cli.call("DEL", "fencegate:store", "fencegate:mark:{lost}", "fencegate:grant:{lost}")
        job = self.run_shell(":", resource="lost")
        self.assertEqual(job.status, 125)
        (command,) = re.findall(r"fencegate (lease forget-store lost \S+)", job.said)
        done = subprocess.run([os.environ["FENCEGATE"], *command.split(), "-c", self.gates.path], check=False)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.run_shell(":", resource="lost").status, 0)

    def test_a_schema_that_is_older_is_named(self):
        """Waiting would not mend it: whoever runs it hears at once what does."""
        parts = [("the issuer|store:ledger|gate:db", "SCHEMA fencegate", "fencegate", "hidden"),
                 ("the issuer|store:ledger|gate:db", "FUNCTION fencegate.identity", "identity", "hidden"),
                 ("store:ledger|gate:db", "FUNCTION fencegate.look", "look", "hidden"),
                 ("", "FUNCTION fencegate.lease_grant", "lease_grant", "hidden"),
                 ("", "TABLE fencegate.leases", "leases", "hidden"),
                 ("", "FUNCTION fencegate.seal", "seal", "hidden")]
        for place, what, name, hidden in parts:
            with self.subTest(what):
                self.sql(f"ALTER {what} RENAME TO {hidden}")
                try:
                    job = self.run_shell(":", resource="older")
                finally:
                    self.sql(f"ALTER {what[:-len(name)]}{hidden} RENAME TO {name}")
                self.assertEqual(job.status, 125, job.said)
                self.assertRegex(job.said, rf"^fencegate hold: ({place}).*fencegate.*does not exist.*\(run fencegate install\)")
                self.assertEqual(self.run_shell(":", "--no-wait", resource="older").status, 0)

    def test_one_who_leaves_while_it_is_granted(self):
        self.assertEqual(self.run_shell(":", resource="slow").status, 0)
        locked = self.database.connect(database="app")
        self.addCleanup(locked.close)
        run_sql(locked, "BEGIN; SELECT FROM fencegate.leases WHERE resource = 'slow' FOR UPDATE")
        job = self.shell(":", "--at-least", "60s", resource="slow")
        eventually(lambda: self.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%lease_grant%'"))
        job.child.send_signal(signal.SIGTERM)
        run_sql(locked, "COMMIT")
        self.assertEqual(job.ended(), 143)
        self.assertEqual(self.run_shell(":", "--no-wait", resource="slow").status, 0)


class Waiting(HoldTest):
    def test_one_at_a_time(self):
        first = self.shell("echo up; read go < $FIFO; " + WRITE.format("first"), environment=self.fifo())
        self.assertEqual(first.child.stdout.readline(), "up\n")
        busy = self.run_shell(":", "--no-wait")
        self.assertEqual(busy.status, 75)
        self.assertRegex(busy.said, r"^fencegate hold: orders is held by .+:\d+\n$")
        quiet = self.run_shell(":", "--no-wait", "--busy-exit", "0")
        self.assertEqual((quiet.status, quiet.said), (0, ""))
        self.assertEqual(self.run_shell(":", "--wait", "300ms").status, 75)
        second = self.shell(WRITE.format("second"))
        self.assertRegex(second.child.stderr.readline(), "is held by .+; waiting")
        self.go()
        self.assertEqual((first.ended(), second.ended()), (0, 0))
        self.assertEqual(self.rows(), ["first", "second"])

    def fifo(self):
        self.fifo_path = os.path.join(self.gates.folder, "fifo")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.fifo_path)
        return {"FIFO": self.fifo_path}

    def go(self):
        with open(self.fifo_path, "w") as fifo:
            fifo.write("go\n")

    def test_a_short_job_does_not_run_twice_in_its_time(self):
        self.assertEqual(self.run_shell(":", "--at-least", "60s").status, 0)
        self.assertEqual(self.run_shell(":", "--no-wait").status, 75)

    def test_one_who_waits_can_be_told_to_go(self):
        holder = self.shell("echo up; sleep 100")
        self.assertEqual(holder.child.stdout.readline(), "up\n")
        waiting = self.shell(":")
        self.assertIn("; waiting", waiting.child.stderr.readline())
        waiting.child.send_signal(signal.SIGTERM)
        self.assertEqual(waiting.ended(), 143)

    def test_signals_that_were_ignored_at_its_start_end_no_wait(self):
        """As under nohup, or behind the & of a script."""
        holder = self.shell("echo up; read go < $FIFO", environment=self.fifo())
        self.assertEqual(holder.child.stdout.readline(), "up\n")
        ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        before = [signal.signal(one, signal.SIG_IGN) for one in ignored]
        try:
            waiting = self.shell(WRITE.format("second"))
        finally:
            for one, former in zip(ignored, before):
                signal.signal(one, former)
        self.assertIn("; waiting", waiting.child.stderr.readline())
        for one in ignored:
            waiting.child.send_signal(one)
        self.go()
        self.assertEqual((holder.ended(), waiting.ended(), self.rows()), (0, 0, ["second"]))

    def test_a_deadly_signal_releases_the_lease(self):
        for one in (signal.SIGALRM, signal.SIGXCPU, signal.SIGPWR, signal.SIGRTMIN + 1):
            with self.subTest(signal=one):
                job = self.shell("echo up; exec sleep 300")
                self.assertEqual(job.child.stdout.readline(), "up\n")
                job.child.send_signal(one)
                self.assertEqual(job.ended(), 143)
                self.assertEqual(self.run_shell(":", "--no-wait").status, 0)

    def test_places_of_former_holders_must_be_named(self):
        self.assertEqual(self.run_shell(":").status, 0)
        fewer = self.gates.configuration | {"gates": self.gates.configuration["gates"][:1]}
        one = self.run_shell(":", path=self.gates.write(fewer, "fewer.yaml"))
        self.assertEqual(one.status, 125)
        self.assertIn("former holders of orders sealed the store", one.said)


class Losses(HoldTest):
    """Its lease goes while the job is at work."""

    PAUSING = "echo up; until [ -e {go} ]; do sleep 0.05; done; " + WRITE.format("late") + "; echo $?"

    def pausing(self, **more):
        self.go = os.path.join(self.gates.folder, self.id().rpartition(".")[2])
        job = self.shell(self.PAUSING.format(go=self.go), **more)
        self.assertEqual(job.child.stdout.readline(), "up\n")
        return job

    def test_a_frozen_holder_is_superseded_and_refused(self):
        old = self.pausing()
        before = self.mark()
        old.freeze()
        new = self.run_shell(WRITE.format("new"))
        self.assertEqual(new.status, 0, new.said)
        self.assertGreater(self.mark(), before)
        with open(self.go, "w"):
            old.thaw()
        self.assertEqual(old.ended(), 79)
        self.assertIn("the lease was lost", old.said)
        self.assertEqual(self.rows(), ["new"])

    def test_a_keeper_that_stands_still(self):
        """The guard ends the job in time."""
        job = self.pausing()
        keeper, *others = job.tree()
        os.kill(keeper, signal.SIGSTOP)
        self.assertEqual(self.run_shell(WRITE.format("new")).status, 0)
        self.assertTrue(eventually(lambda: all(_gone(pid) for pid in others)))
        os.kill(keeper, signal.SIGCONT)
        self.assertEqual(job.ended(), 79)
        self.assertEqual(self.rows(), ["new"])

    def test_a_keeper_that_is_killed(self):
        job = self.pausing()
        keeper, *others = job.tree()
        os.kill(keeper, signal.SIGKILL)
        self.assertTrue(eventually(lambda: all(_gone(pid) for pid in others)))
        self.assertEqual(self.run_shell(WRITE.format("new")).status, 0)
        self.assertEqual(self.rows(), ["new"])

    def test_a_guard_that_stands_still_and_a_network_that_is_gone(self):
        """The keeper ends the job before another can hold the lease."""
        cut_off, proxies = json.dumps(self.gates.configuration), []
        for server in (self.database, self.redis):
            proxies.append(self.start(CutProxy(server.port)))
            cut_off = cut_off.replace(f":{server.port}", f":{proxies[-1].port}")
        log = os.path.join(self.gates.folder, "acts")
        act = "while echo {} >> " + log + "; do sleep 0.02; done"
        job = self.shell("echo up; " + act.format("old"), path=self.gates.write(json.loads(cut_off), "cut_off.yaml"))
        self.assertEqual(job.child.stdout.readline(), "up\n")
        _, guard, *_ = job.tree()
        os.kill(guard, signal.SIGSTOP)
        for proxy in proxies:
            proxy.freeze()
        new = self.shell("echo up; " + act.format("new"))
        self.assertEqual(new.child.stdout.readline(), "up\n")
        status = job.ended()
        self.assertEqual(status, 79, job.said)
        new.child.terminate()
        new.ended()
        with open(log) as file:
            acts = file.read().split()
        self.assertEqual(acts, sorted(acts, reverse=True))  # each old one in front of each new one

    def test_an_operator_gives_it_to_another(self):
        job = self.pausing()
        self.sql("SELECT fencegate.lease_grant('{orders}', 'operator', 'operator', 1, '{0}', l.stores, 1, 0, 0, true) "
                 "FROM fencegate.leases l WHERE resource = 'orders'")
        self.assertEqual(job.ended(), 79)
        self.assertIn("it was granted to another", job.said)

    def test_sigterm_ends_the_job_then_releases(self):
        job = self.shell("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        self.assertEqual(job.child.stdout.readline(), "up\n")
        job.child.send_signal(signal.SIGTERM)
        self.assertEqual((job.ended(), job.told), (0, "told\n"))
        self.assertEqual(self.run_shell(":", "--no-wait").status, 0)

    def test_a_job_that_does_not_heed_sigterm(self):
        """However often it is told."""
        job = self.shell("trap '' TERM; echo up; while :; do sleep 0.05; done")
        self.assertEqual(job.child.stdout.readline(), "up\n")
        while job.child.poll() is None:
            job.child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.child.wait(0.05)
        self.assertEqual(job.ended(), 137)
        self.assertEqual(self.run_shell(":", "--no-wait").status, 0)


def _gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Servers(LiveTest):
    """Servers that go."""

    def setUp(self):
        self.database, self.redis = self.start(PostgresServer()), self.start(RedisServer())
        self.database.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            self.database.user(name)
        self.database.install("app", gate_users=("gate",))
        self.gates = self.start(Gates(self.database, self.redis))

    def hold(self, script, *words):
        return self.start(Hold(self.gates, "orders", *words, command=["sh", "-c", script]))

    def test_a_database_that_stands_still(self):
        job = self.hold("echo up; sleep 100", "--ttl", "6s")
        self.assertEqual(job.child.stdout.readline(), "up\n")
        for pid in [self.database.pid, *self.database.backends()]:
            self.database.freeze(pid)
            self.addCleanup(self.database.thaw, pid)
        self.assertEqual(job.ended(), 79)
        self.assertIn("no renewal was confirmed in time: no answer in time", job.said)

    def test_a_database_that_is_not_there(self):
        self.database.kill()
        job = self.hold(":")
        self.assertEqual(job.ended(), 69, job.said)
        self.assertRegex(job.said, "^fencegate hold: (the issuer|store:ledger|gate:db): .*Connection refused")

    def test_a_redis_that_is_not_there(self):
        """The lease is not even asked for."""
        self.redis.kill()
        job = self.hold(":")
        self.assertEqual(job.ended(), 69, job.said)
        self.assertRegex(job.said, "^fencegate hold: gate:cache: .*Connection refused")
        self.assertEqual(run_sql(self.database.connect(database="app"), "SELECT count(*) FROM fencegate.leases"), [(0,)])


if __name__ == "__main__":
    main(at_once=2)
