"""`fencegate hold` with leases of a Redis: what test_hold.py asks of an issuer, and what only a Redis does."""

import os
import subprocess
import threading

import documents
import test_hold
from lease_sidecar import Api, Sidecar
from live_test import LiveTest, main
from processes import LOOPBACK, eventually, free_port
from redis_server import RedisServer
from test_hold import Gates, Hold

STRIDE = 1 << 20


class RedisGates(Gates):
    """Leases are a Redis store's, whose user has the rights of docs/leases.md."""

    redis_user = "fencegate:gate-secret@"

    def prepare(self):
        self.allow()
        super().prepare()

    def allow(self):
        """Redis forgets its users when it ends."""
        documents.gates_user(self.redis)
        self.redis.cli.call(*documents.block("docs/leases.md", "acl").split())


class TwoRedis(RedisGates):
    """One grants leases, and both are sealed."""

    def __init__(self, redis, other):
        super().__init__(None, redis)
        self.other = other

    def configure(self):
        other = {"name": "other", "protocol": "redis", "listen": f"{LOOPBACK}:{self.pg_port}",
                 "upstream": f"redis://{LOOPBACK}:{self.other.port}"}
        return {"stores": {"cache": {"url": self.redis_url()}}, "leases": {"issuers": {"main": {"store": "cache"}}} | self.leases,
                "gates": [other, self.redis_gate()]}


class Issued(test_hold.Waiting, test_hold.Losses):
    """Most is as with leases of PostgreSQL."""

    issuer, gates_of = "cache", RedisGates
    # These are about the command, whoever grants the lease; test_hold_history.py freezes and kills under leases of a Redis.
    test_a_job_that_does_not_heed_sigterm = test_one_who_waits_can_be_told_to_go = None
    test_a_frozen_holder_is_superseded_and_refused = test_a_keeper_that_stands_still = test_a_keeper_that_is_killed = None

    def free_all(self):
        for key in self.redis.cli.call("KEYS", "fencegate:lease:*"):
            self.redis.cli.call("HSET", key, "until", "0", "not_before", "0", "stores", "")

    def run_fencegate(self, *words):
        return subprocess.run([os.environ["FENCEGATE"], *words, "-c", self.gates.path], capture_output=True, text=True, check=False)

    def test_unchanged_programs_write_under_their_tokens(self):
        test_hold.Jobs.test_unchanged_programs_write_under_their_tokens(self)

    def test_both_places_are_sealed_for_one_grant(self):
        self.assertEqual(self.run_shell(":").status, 0)
        mark = str(self.mark())
        issuer = self.redis.cli.call("GET", "fencegate:issuer").decode().split()[0]
        ((in_postgres,),) = self.sql("SELECT issuer::text FROM fencegate.marks WHERE resource = 'orders'")
        self.assertEqual(in_postgres.replace("-", ""), issuer)
        self.assertEqual(self.redis.cli.call("GET", "fencegate:grant:{orders}").decode().split()[:2], [mark, issuer])

    def test_an_operator_gives_it_to_another(self):
        job = self.pausing()
        before = self.mark()
        done = self.run_fencegate("lease", "break", "orders", "--reason", "hangs")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(job.ended(), 79)
        self.assertIn("it was granted to another", job.said)
        self.assertEqual(self.mark(), before + 1)
        shown = self.run_fencegate("lease", "show").stdout
        self.assertRegex(shown, rf"(?m)^orders +{before + 1} +{before + 1} +free +20\S+ \S+\+00 +lease break: hangs$")
        shown = self.run_fencegate("lease", "show", "orders").stdout
        issuer = self.redis.cli.call("GET", "fencegate:issuer").decode().split()[0]
        self.assertRegex(shown, rf"(?m)^gate:cache +{before + 1} +{issuer}$")
        self.assertRegex(shown, rf"(?m)^store:ledger +{before + 1} +[-0-9a-f]{{36}}$")

    def test_an_operator_freezes_it(self):
        job = self.pausing()
        mark = self.mark() + 1
        done = self.run_fencegate("lease", "freeze", "orders", "--reason", "being mended")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(job.ended(), 79)
        self.assertEqual(self.mark(), mark)
        self.assertRegex(self.run_fencegate("lease", "show").stdout, rf"(?m)^orders +{mark} +{mark} +frozen +20.* lease freeze: being mended$")
        with Hold(self.gates, "orders", "--no-wait", command=["true"]) as refused:
            self.assertEqual(refused.ended(), 75, refused.said)
        self.assertIn("lease freeze: being mended", refused.said)
        done = self.run_fencegate("lease", "break", "orders", "--reason", "impatient")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "fencegate lease: orders is frozen (lease freeze: being mended): thaw it before\n"))
        self.assertEqual(self.run_fencegate("lease", "thaw", "orders").returncode, 0)
        done = self.run_fencegate("lease", "thaw", "orders")
        self.assertEqual((done.returncode, done.stderr), (1, "fencegate lease: orders is not frozen\n"))
        self.assertEqual(self.run_shell(":").status, 0)

    def test_places_of_former_holders_must_be_named(self):
        self.assertEqual(self.run_shell(":").status, 0)
        configuration = self.gates.configuration
        fewer = {"stores": {"cache": configuration["stores"]["cache"]}, "gates": configuration["gates"][1:]}
        one = self.run_shell(":", path=self.gates.write(configuration | fewer, "fewer.yaml"))
        self.assertEqual(one.status, 125)
        self.assertIn("former holders of orders sealed the store", one.said)

    def test_a_store_that_is_no_more(self):
        self.assertEqual(self.run_shell(":", resource="gone").status, 0)
        key = "fencegate:lease:{gone}"
        self.redis.cli.call("HSET", key, "stores", self.redis.cli.call("HGET", key, "stores") + b" abcd")
        self.assertIn("lease forget-store gone abcd", self.run_shell(":", resource="gone").said)
        self.assertEqual(self.run_fencegate("lease", "forget-store", "gone", "abcd").returncode, 0)
        self.assertEqual(self.run_fencegate("lease", "forget-store", "gone", "abcd").returncode, 1)
        self.assertEqual(self.run_shell(":", resource="gone").status, 0)


class AloneWithApi(Sidecar):
    """A sidecar that knows one Redis, which grants and is sealed."""

    def configure(self):
        self.pg_port = self.redis_port
        return {"stores": {"cache": {"url": self.redis_url()}}, "leases": {"issuers": {"main": {"store": "cache"}}} | self.leases,
                "gates": [self.redis_gate()]}


class OneSidecar(LiveTest):
    def test_who_waits_hears_of_a_release(self):
        sidecar = self.start(AloneWithApi(None, self.start(RedisServer()), {"ttl": "30s"}))
        api, told = Api(sidecar.socket), []
        lease = api.take("orders")[1]
        waiters = [threading.Thread(target=lambda: told.append(api.take("orders", wait="30s"))) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        eventually(lambda: len(api.all()) == 5)
        for so_many in range(1, 5):
            self.assertEqual(api.release(lease)[0], 204)
            eventually(lambda: len(told) == so_many)
            status, lease = told[-1]
            self.assertEqual(status, 201, lease)
        for waiter in waiters:
            waiter.join()
        # Who was not told of it asks again by and by, and does not count.
        self.assertGreaterEqual(sidecar.figure("fencegate_handover_seconds_count"), 1)

    def test_ten_thousand_leases(self):
        """None is lost, and a client of another one is answered meanwhile."""
        many, clients = 2_000 if "FENCEGATE_SANITIZED" in os.environ else 10_000, 8
        sidecar = self.start(AloneWithApi(None, self.start(RedisServer()), {"ttl": "10m"}))
        api, held, over, answers = Api(sidecar.socket), {}, threading.Event(), []
        _, other = api.take("other")

        def go_on():
            while not over.is_set():
                answers.append(api.renew(other)[0])

        def each(ask):
            def some(first):
                with api.connected() as client:
                    for number in range(first, many, clients):
                        ask(number, client)

            threads = [threading.Thread(target=some, args=(first,)) for first in range(clients)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()

        def take(number, client):
            held[number] = api.ask("POST", "/v1/leases", {"resources": [f"order:{number}"]}, client)

        renewed, released = {}, {}

        def renew(number, client):
            lease = held[number][1]
            renewed[number] = api.ask("PUT", f"/v1/leases/{lease['id']}", {"tokens": lease["tokens"]}, client)[0]

        def release(number, client):
            lease = held[number][1]
            released[number] = api.ask("DELETE", f"/v1/leases/{lease['id']}", {"tokens": lease["tokens"]}, client)[0]

        goes_on = threading.Thread(target=go_on)
        goes_on.start()
        each(take)
        self.assertEqual({status for status, _ in held.values()}, {201})
        self.assertEqual(len({lease["id"] for _, lease in held.values()}), many)
        self.assertEqual(sidecar.figure('fencegate_leases{state="held"}'), many + 1)
        each(renew)
        self.assertEqual((len(renewed), set(renewed.values())), (many, {200}))
        each(release)
        self.assertEqual((len(released), set(released.values())), (many, {204}))
        over.set()
        goes_on.join()
        self.assertEqual(set(answers), {200})
        self.assertGreater(len(answers), 10)
        self.assertEqual([one["resources"] for one in api.all()], [["other"]])


class Servers(LiveTest):
    """A Redis that goes, or is another."""

    @classmethod
    def setUpClass(cls):
        cls.other = cls.enterClassContext(RedisServer())

    def gated(self, **conf):
        self.redis = self.start(RedisServer(**conf))
        self.other.cli.call("FLUSHALL")
        self.gates = self.start(TwoRedis(self.redis, self.other))

    def hold(self, script, *words, resource):
        return self.start(Hold(self.gates, resource, *words, command=["sh", "-c", script]))

    def held(self, resource, *words):
        job = self.hold("echo up; sleep 100", *words, resource=resource)
        self.assertEqual(job.child.stdout.readline(), "up\n")
        return job

    def token(self, resource):
        job = self.hold("echo $FENCING_TOKEN", resource=resource)
        self.assertEqual(job.ended(), 0, job.said)
        return int(job.told)

    def test_one_that_stands_still(self):
        self.gated()
        job = self.held("still")
        self.redis.stop_process()
        self.addCleanup(self.redis.continue_process)
        self.assertEqual(job.ended(), 79)
        self.assertIn("no renewal was confirmed in time", job.said)

    def test_one_that_was_started_anew(self):
        """Those who hold go on; the next token is a stride higher."""
        self.gated()
        before = self.token("anew")
        job = self.held("meanwhile", "--ttl", "6s")
        self.redis.restart()
        self.gates.allow()

        def until():
            return int(self.redis.cli.call("HGET", "fencegate:lease:{meanwhile}", "until"))
        first = until()
        eventually(lambda: until() > first)
        self.assertIsNone(job.child.poll())
        self.assertEqual(self.token("anew"), before + STRIDE)

    def test_one_that_lost_its_leases(self):
        """Who holds stops, who waits is refused, and places that were sealed take nobody of the new issuer."""
        self.gated()
        job = self.held("lost")
        waiting = self.hold("echo never", resource="lost")
        self.assertIn("; waiting", waiting.child.stderr.readline())
        self.redis.cli.call("FLUSHALL")
        self.assertEqual(waiting.ended(), 125)
        self.assertIn("this Redis lost its leases", waiting.said)
        self.assertEqual(job.ended(), 79)
        new = self.hold("echo never", resource="lost")
        self.assertEqual((new.ended(), new.told), (125, ""))
        self.assertIn("belongs to leases of another issuer", new.said)
        mark = int(self.other.cli.call("GET", "fencegate:mark:{lost}"))
        move = documents.command("docs/leases.md", "fencegate lease move orders,payments --from-lost").split()
        move = [{"fencegate": os.environ["FENCEGATE"], "orders,payments": "lost", "fencegate.yaml": self.gates.path}.get(word, word)
                for word in move]
        done = subprocess.run(move, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("lost: gate:other: moved\n", done.stdout)
        self.assertGreater(self.token("lost"), mark)

    def test_one_without_the_rights(self):
        self.gated()
        self.assertEqual(self.token("rights"), 1)
        for right in ("-hincrby", "-time", "-hset"):
            with self.subTest(right):
                self.redis.cli.call("ACL", "SETUSER", "fencegate", right)
                job = self.hold(":", resource="rights")
                self.assertEqual(job.ended(), 125, job.said)
                self.assertIn("can't run this command", job.said)
                self.redis.cli.call("ACL", "SETUSER", "fencegate", right.replace("-", "+"))
        self.assertEqual(self.token("rights"), 2)

    def test_one_that_is_not_there_or_no_primary_or_a_cluster(self):
        self.gated()
        for conf, why in (({}, "Connection refused"), ({"replicaof": f"127.0.0.1 {self.redis.port}"}, "is a replica"),
                          ({"cluster_enabled": "yes", "cluster_port": free_port()}, "Redis Cluster is not supported")):
            with self.subTest(why), RedisServer(**conf) as other:
                if not conf:
                    other.kill()
                leases = {"issuers": {"main": {"store": "other"}}, "resources": [{"match": "*", "seal": ["gate:cache"]}]}
                path = self.gates.write(self.gates.configuration | {
                    "stores": {"other": {"url": f"redis://127.0.0.1:{other.port}"}},
                    "leases": self.gates.configuration["leases"] | leases}, "other.yaml")
                with Hold(self.gates, "nowhere", command=["true"], path=path) as job:
                    self.assertEqual(job.ended(), 69, job.said)
                self.assertRegex(job.said, f"^fencegate hold: the issuer: .*{why}")

    def test_a_full_one_grants_to_who_comes_to_free_memory(self):
        self.gated(maxmemory_policy="noeviction")
        self.assertEqual(self.token("full"), 1)
        self.redis.cli.call("CONFIG", "SET", "maxmemory", "1")
        self.assertEqual(self.token("full"), 2)


if __name__ == "__main__":
    main()
