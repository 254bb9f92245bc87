"""What every client must live through: its ordinary use, compared with the same use of a plain Redis, and then a fence.

A test file names a client by mixing `ClientStory` into a LiveTest and giving it `open_client(port, tag)`: an object with
`do(action, ...)`, `start(action, ...)` and `finish()`, whose actions are those of ioredis.mjs."""

from gate_process import Gate
from processes import eventually
from redis_server import RedisServer
from resp import Resp

TAG = "fence:orders=34"
NEXT_TAG = "fence:orders=35"


class ClientStory:
    setname_error_is_fatal = False  # does the client give up a connection whose name was refused?

    def setUp(self):
        self.redis = self.start(RedisServer(appendfsync="always"))
        self.gate = self.start(Gate(self.redis))

    def connected(self, port=None):
        client = self.start(self.open_client(port or self.gate.port, TAG))
        self.assertEqual(client.do("connect"), TAG)
        return client

    def same_as_plain(self, *actions):
        """Does the same with a Redis and with a fenced one, demands the same, and returns it."""
        plain = self.start(RedisServer())
        expected, fenced = self.connected(plain.port), self.connected()
        told = []
        for action in actions:
            told.append(expected.do(action))
            self.assertEqual(fenced.do(action), told[-1], action)
        return told

    def supersede(self):
        eventually(self.has_successor)

    def has_successor(self):
        """False while a link of the gate's own is away: each of its threads has one."""
        with Resp(self.gate.port, name=NEXT_TAG) as successor:
            return successor.named == b"OK"

    def refused(self):
        """How often the gate has refused a stale token: each attempt of a client counts."""
        return self.gate.metric("checks_total", outcome="stale")

    def assert_fenced(self, action, *args):
        with self.assertRaisesRegex(Exception, r"FENCED .*orders") as caught:
            self.client.do(action, *args)
        self.assertNotIsInstance(caught.exception, AssertionError)

    # -- ordinary use

    def test_commands_pipelines_and_types_are_those_of_redis(self):
        strings, types, pipeline = self.same_as_plain("strings", "types", "pipeline")
        self.assertEqual(strings[1], "1")
        self.assertEqual(types[0], 2)
        self.assertTrue(pipeline[-1])
        self.assertGreater(self.gate.metric("checks_total", outcome="admitted"), 0)

    def test_transactions_are_those_of_redis(self):
        transaction, watch = self.same_as_plain("transaction", "watch")
        self.assertIn("EXEC without MULTI", str(transaction))
        self.assertEqual(watch[4], "2", "a watched key was changed, and the transaction was applied")
        self.assertEqual(watch[7], "4")

    def test_scripts_are_found_again_after_a_script_flush(self):
        expected = [5, 10, ["l:a", "x", 7, None]]
        self.assertEqual(self.same_as_plain("scripts")[0][:3], expected)
        client = self.connected()
        self.redis.cli.call("DEL", "l:a")
        self.assertEqual(client.do("scripts")[:3], expected)
        self.redis.cli.call("SCRIPT", "FLUSH")
        self.redis.cli.call("DEL", "l:a")
        self.assertEqual(client.do("scripts")[:3], expected)

    def test_publish_and_subscribe_are_those_of_redis(self):
        self.assertIn("hello", str(self.same_as_plain("pubsub")))

    def test_a_blocking_pop_gets_what_is_pushed_later_and_ends_at_its_timeout(self):
        client = self.connected()
        self.assertIsNone(client.do("blockingTimeout"))
        self.redis.cli.call("CONFIG", "RESETSTAT")
        client.start("blockingPop", "jobs")
        eventually(self.somebody_waits)
        self.redis.cli.call("RPUSH", "jobs", "one", "two")
        self.assertIn("one", str(client.finish()))
        self.assertEqual(self.redis.cli.call("LRANGE", "jobs", 0, -1), [b"two"])

    def somebody_waits(self):
        """A client blocks in the server, or the gate polls for it."""
        popping = [line for line in self.redis.info("commandstats") if line in ("cmdstat_blpop", "cmdstat_lpop")]
        return popping or int(self.redis.info("clients")["blocked_clients"]) > 0

    # -- the fence

    def test_a_stale_write_is_an_ordinary_error_and_is_tried_once(self):
        self.client = self.connected()
        self.assertIn(self.client.do("write", "k", "first"), ("OK", True))
        self.supersede()
        before = self.refused()
        self.assert_fenced("write", "k", "stale")
        self.assertEqual(self.client.do("read", "k"), "first", "the connection works on, for reads")
        self.assertEqual(self.refused() - before, 1, "the client tried again what can never succeed")

    def test_every_write_of_a_stale_pipeline_fails_by_itself(self):
        self.client = self.connected()
        self.supersede()
        before = self.refused()
        answers = self.client.do("writeMany", "many", 200)
        self.assertEqual([answer[:7] for answer in answers], ["FENCED "] * 200)
        self.assertEqual(self.refused() - before, 200)
        self.assertEqual(self.redis.cli.call("KEYS", "many:*"), [])

    def test_a_stale_transaction_is_an_error_and_applies_nothing(self):
        self.client = self.connected()
        self.client.do("writeInTransaction", "k", "first")
        self.supersede()
        self.assert_fenced("writeInTransaction", "k", "stale")
        self.assertEqual(self.redis.cli.call("MGET", "k", "count"), [b"first", b"1"])

    def test_a_client_that_is_stale_from_the_start_writes_nothing(self):
        self.supersede()
        self.client = self.start(self.open_client(self.gate.port, TAG))
        if self.setname_error_is_fatal:
            before = self.gate.metric("connections_total")
            self.assert_fenced("connect")
            self.assertEqual(self.gate.metric("connections_total") - before, 1, "it connected again to be refused again")
        else:
            self.client.do("connect")
            self.assert_fenced("write", "k", "stale")
        self.assertIsNone(self.redis.cli.call("GET", "k"))

    # -- trouble

    def test_after_a_restart_of_redis_it_writes_again_under_the_same_token(self):
        self.reconnects(self.redis.restart)

    def test_after_a_restart_of_the_gate_it_writes_again_under_the_same_token(self):
        self.reconnects(self.gate.restart)

    def reconnects(self, restart):
        self.client = self.connected()
        self.client.do("write", "k", "before")
        self.client.do("subscribe", "news")
        restart()
        self.client.do("untilWritten", "k", "after")
        self.assertEqual(self.redis.cli.call("GET", "k"), b"after")
        eventually(lambda: self.redis.cli.call("PUBLISH", "news", "late") and self.client.do("received"), deadline=20)
        self.supersede()
        self.assert_fenced("write", "k", "stale")
        self.assertEqual(self.redis.cli.call("GET", "k"), b"after")
