"""A client's own WATCH, MULTI and EXEC keep their meaning although the gate uses the same commands on the same link.

Stories without a stale token are told to a plain Redis too and must be answered the same. For the others, `supersede`
raises the mark through another gate, so that the gate under test cannot know it before Redis says so."""

from gate_process import Gate
from live_test import LiveTest, main
from redis_server import RedisServer
from resp import Resp, RespError, encode


class ClientWatch(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.plain = cls.enterClassContext(RedisServer())
        cls.redis = cls.enterClassContext(RedisServer())
        cls.gate = cls.enterClassContext(Gate(cls.redis))
        cls.lenient = cls.enterClassContext(Gate(cls.redis, policy={"missing_token": "allow"}))
        cls.other_gate = cls.enterClassContext(Gate(cls.redis))

    def setUp(self):
        self.resource = self.id().rsplit(".", 1)[1]
        self.cli = self.redis.cli
        self.keys = ("k", "j", "l", "s")
        self.cli.call("DEL", *self.keys)

    def client(self, token=33, proto=2):
        client = self.start(Resp(self.gate.port, name=f"fence:{self.resource}={token}", proto=proto))
        self.assertNotIsInstance(client.named, RespError)
        return client

    def supersede(self, token=34):
        with Resp(self.other_gate.port, name=f"fence:{self.resource}={token}") as successor:
            self.assertEqual(successor.named, b"OK")

    def same(self, story, protos=(2, 3)):
        """`story(client, other)` returns replies; `other` is a connection past the gate."""
        name = f"fence:{self.resource}=1"
        for proto in protos:
            told = []
            for server, port, tag in ((self.plain, self.plain.port, name), (self.redis, self.gate.port, name),
                                      (self.redis, self.lenient.port, None)):
                server.cli.call("DEL", *self.keys)
                with Resp(port, name=tag, proto=proto) as client, Resp(server.port) as other:
                    told.append(story(client, other))
            for place, replies in zip(("fenced", "untagged"), told[1:]):
                with self.subTest(place=place, proto=proto):
                    self.assertEqual(told[0], replies)
        return told[0]

    # ------------------------------------------------------------------------------- the same as without the gate

    def test_watched_key_changes(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), other.call("SET", "k", "theirs"), me.call("MULTI"), me.call("SET", "k", "mine"),
            me.call("EXEC"), me.call("GET", "k"),
            me.call("MULTI"), me.call("SET", "k", "mine"), me.call("EXEC")])
        self.assertEqual(replies[4:6], [None, b"theirs"])

    def test_watched_key_changes_inside_multi(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "j", "k"), me.call("MULTI"), me.call("SET", "k", "mine"), other.call("SET", "k", "theirs"),
            me.call("EXEC"), me.call("GET", "k")])
        self.assertEqual(replies[4:6], [None, b"theirs"])

    def test_watched_key_stays(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), other.call("SET", "j", "1"), me.call("GET", "k"), me.call("MULTI"),
            me.call("INCR", "k"), me.call("EXEC")])
        self.assertEqual(replies[-1], [1])

    def test_own_write_to_the_watched_key(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), me.call("SET", "k", "1"), me.call("MULTI"), me.call("INCR", "k"), me.call("EXEC"),
            me.call("GET", "k")])
        self.assertEqual(replies[-2:], [None, b"1"])

    def test_own_write_to_another_key_keeps_the_watch(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), me.call("SET", "j", "1"), me.call("INCR", "j"), other.call("SET", "k", "theirs"),
            me.call("MULTI"), me.call("SET", "k", "mine"), me.call("EXEC"), me.call("GET", "k"), me.call("GET", "j")])
        self.assertEqual(replies[-3:], [None, b"theirs", b"2"])

    def test_own_writes_of_every_shape_while_watching(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), *me.pipeline([("RPUSH", "l", "a", "b"), ("LRANGE", "l", 0, -1), ("INCR", "l"),
                                                 ("SET", "s", "x", "NONSENSE"), ("SET", "s", "1"), ("LPOP", "l"),
                                                  ("HSET", "s", "f", "v"), ("DEL", "s"), ("SET", "s", "1", "XX")]),
            me.call("MULTI"), me.call("SET", "k", "mine"), me.call("EXEC")])
        self.assertEqual(replies[-1], [b"OK"])

    def test_a_script_while_watching_is_refused(self):
        """It cannot go through the script that checks; behind MULTI it is welcome."""
        me = self.client()
        script = ("EVAL", "return redis.call('INCR', KEYS[1])", 1, "s")
        self.assertEqual(me.call("WATCH", "k"), b"OK")
        self.assert_error(me.call(*script), "FENCEDENY")
        self.assertEqual([me.call("MULTI"), me.call(*script), me.call("EXEC")], [b"OK", b"QUEUED", [1]])

    def test_many_arguments_while_watching(self):
        """More than a script can pass on: applied, or refused in plain words."""
        me = self.client()
        self.cli.call("MSET", "k", "1", "j", "1")
        self.assertEqual(me.call("WATCH", "s"), b"OK")
        reply = me.call("DEL", "k", *range(10_000), "j")
        if isinstance(reply, RespError):
            self.assert_error(reply, "FENCEDENY")
        else:
            self.assertEqual(reply, 2)
        self.assertEqual(self.cli.call("EXISTS", "k", "j"), 2 if isinstance(reply, RespError) else 0)

    def test_watch_pipelined_behind_writes(self):
        replies = self.same(lambda me, other: [
            *me.pipeline([("SET", "k", 1), ("WATCH", "k"), ("SET", "j", 1), ("WATCH", "j"), ("MULTI",), ("INCR", "k"),
                          ("EXEC",), ("INCR", "k")]),
            *me.pipeline([("WATCH", "k"), ("INCR", "k"), ("MULTI",), ("INCR", "k"), ("EXEC",), ("GET", "k"), ("MULTI",),
                          ("INCR", "k"), ("EXEC",)])])
        self.assertEqual(replies[6], [2])
        self.assertEqual(replies[12:], [None, b"4", b"OK", b"QUEUED", [5]])

    def test_unwatch(self):
        replies = self.same(lambda me, other: [
            me.call("UNWATCH"), me.call("WATCH", "k"), me.call("UNWATCH"), other.call("SET", "k", "theirs"),
            me.call("MULTI"), me.call("SET", "k", "mine"), me.call("EXEC"),
            me.call("UNWATCH"), me.call("SET", "j", "1")])
        self.assertEqual(replies[6], [b"OK"])

    def test_unwatch_of_a_dirty_watch(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), other.call("SET", "k", "1"), me.call("UNWATCH"), me.call("INCR", "j"),
            me.call("MULTI"), me.call("INCR", "k"), me.call("EXEC"), me.call("INCR", "j")])
        self.assertEqual(replies[6:], [[2], 2])

    def test_discard_forgets_the_watch(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), me.call("MULTI"), me.call("SET", "k", "mine"), me.call("DISCARD"),
            other.call("SET", "k", "1"), me.call("MULTI"), me.call("INCR", "k"), me.call("EXEC")])
        self.assertEqual(replies[-1], [2])

    def test_exec_forgets_the_watch(self):
        self.assertEqual(self.same(lambda me, other: [
            me.call("WATCH", "k"), me.call("MULTI"), me.call("EXEC"), other.call("SET", "k", "1"), me.call("MULTI"),
            me.call("INCR", "k"), me.call("EXEC")])[-1], [2])

    def test_a_dirty_watch_stays_dirty_until_exec(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), other.call("SET", "k", "1"), me.call("SET", "j", "1"), me.call("GET", "k"),
            me.call("WATCH", "j"), me.call("SET", "s", "1"),
            me.call("MULTI"), me.call("INCR", "k"), me.call("EXEC"), me.call("GET", "s")])
        self.assertEqual(replies[-2:], [None, b"1"])

    def test_select_between_watch_and_exec(self):
        replies = self.same(lambda me, other: [
            me.call("WATCH", "k"), me.call("SELECT", "3"), me.call("SET", "k", "three"), other.call("SET", "k", "zero"),
            me.call("MULTI"), me.call("SET", "k", "x"), me.call("EXEC"),
            me.call("GET", "k"), me.call("DEL", "k"), me.call("SELECT", "0"), me.call("GET", "k")])
        self.assertEqual((replies[6], replies[7], replies[10]), (None, b"three", b"zero"))

    def test_errors_at_queue_time(self):
        replies = self.same(lambda me, other: [
            me.call("SET", "k", "1"), me.call("MULTI"), me.call("INCR", "k"), me.call("NOSUCH"), me.call("INCR"),
            me.call("INCR", "k"), me.call("EXEC"), me.call("GET", "k"),
            me.call("EXEC"), me.call("DISCARD"), me.call("INCR", "k")])
        self.assertEqual((replies[6].code, replies[7]), ("EXECABORT", b"1"))

    def test_errors_at_run_time_apply_the_rest(self):
        replies = self.same(lambda me, other: [me.call("SET", "k", "x"), me.call("MULTI"), me.call("INCR", "k"),
                                               me.call("SET", "j", "1"), me.call("EXEC"), me.call("GET", "j")])
        self.assertEqual(replies[-1], b"1")

    def test_nested_multi_and_watch_inside(self):
        self.same(lambda me, other: [
            me.call("MULTI"), me.call("MULTI"), me.call("WATCH", "k"), me.call("SET", "k", "1"), me.call("UNWATCH"),
            me.call("EXEC"), me.call("GET", "k"),
            me.call("MULTI"), me.call("WATCH"), me.call("MULTI", "x"), me.call("EXEC"), me.call("SET", "k", "2")])

    def test_empty_transactions(self):
        self.assertEqual(self.same(lambda me, other: [
            me.call("MULTI"), me.call("EXEC"), me.call("SET", "k", "1"), me.call("MULTI"), me.call("EXEC"),
            me.call("MULTI"), me.call("DISCARD"), *me.pipeline([("MULTI",), ("EXEC",)] * 3)])[1], [])

    def test_strays(self):
        self.same(lambda me, other: [
            me.call("EXEC"), me.call("DISCARD"), me.call("SET", "k", "1"), me.call("EXEC"), me.call("DISCARD"),
            me.call("UNWATCH"), me.call("INCR", "k"), me.call("EXEC", "x"),
            *me.pipeline([("INCR", "k"), ("EXEC",), ("INCR", "k"), ("DISCARD",), ("INCR", "k"), ("UNWATCH",),
                          ("INCR", "k"), ("MULTI",), ("EXEC",), ("EXEC",), ("INCR", "k")]),
            me.call("GET", "k")])

    def test_everything_inside(self):
        self.same(lambda me, other: [*me.pipeline([
            ("MULTI",), ("SELECT", "2"), ("SET", "k", "two"), ("SELECT", "0"), ("RPUSH", "l", "a"),
            ("EVAL", "return redis.call('INCR', KEYS[1])", 1, "j"), ("BLPOP", "l", "0"),
            ("BLPOP", "l", "0"), ("PUBLISH", "ch", "m"), ("PING",), ("GET", "k"), ("ECHO", "x"), ("EXEC",),
            ("GET", "k"), ("SELECT", "2"), ("DEL", "k"), ("SELECT", "0")])])

    def test_a_pipelined_transaction_between_writes(self):
        self.same(lambda me, other: me.pipeline([("SET", "k", 1), ("MULTI",), ("INCR", "k"), ("GET", "k"), ("EXEC",),
                                                 ("INCR", "k"), ("MULTI",), ("NOSUCH",), ("EXEC",), ("INCR", "k"),
                                                  ("MULTI",), ("INCR", "k"), ("DISCARD",), ("INCR", "k"),
                                                  ("GET", "k")]))

    # ------------------------------------------------------------------------------- a token that was superseded

    def test_transaction_of_a_stale_client(self):
        for proto in (2, 3):
            with self.subTest(proto=proto):
                me = self.client(33 + proto * 10, proto)
                self.supersede(34 + proto * 10)
                replies = me.pipeline([("MULTI",), ("SET", "k", "stale"), ("INCR", "j"), ("EXEC",), ("GET", "k")])
                self.assert_error(replies[3], "FENCED")
                self.assertIsNone(replies[4])
                self.assertEqual(self.cli.call("EXISTS", "k", "j"), 0)

    def test_superseded_between_multi_and_exec(self):
        me = self.client()
        self.assertEqual([me.call("MULTI"), me.call("SET", "k", "stale")], [b"OK", b"QUEUED"])
        self.supersede()
        self.assertEqual(me.call("SET", "j", "stale"), b"QUEUED")
        self.assert_error(me.call("EXEC"), "FENCED")
        self.assertEqual(self.cli.call("EXISTS", "k", "j"), 0)
        self.assertEqual([me.call("MULTI"), me.call("DISCARD"), me.call("PING")], [b"OK", b"OK", b"PONG"])
        self.assert_error(me.call("SET", "k", "stale"), "FENCED")

    def test_superseded_while_watching(self):
        me = self.client()
        self.assertEqual([me.call("WATCH", "k"), me.call("MULTI"), me.call("SET", "k", "stale")],
                         [b"OK", b"OK", b"QUEUED"])
        self.supersede()
        self.assert_error(me.call("EXEC"), "FENCED")
        self.assertEqual(self.cli.call("EXISTS", "k"), 0)

    def test_key_changed_and_superseded(self):
        me = self.client()
        self.assertEqual([me.call("WATCH", "k"), me.call("MULTI"), me.call("SET", "k", "stale")],
                         [b"OK", b"OK", b"QUEUED"])
        self.cli.call("SET", "k", "theirs")
        self.supersede()
        self.assert_error(me.call("EXEC"), "FENCED")
        self.assertEqual(self.cli.call("GET", "k"), b"theirs")

    def test_watch_of_a_stale_client_and_its_reads(self):
        me = self.client()
        self.supersede()
        self.cli.call("SET", "k", "theirs")
        self.assertEqual([me.call("WATCH", "k"), me.call("GET", "k")], [b"OK", b"theirs"])
        self.assert_error(me.call("SET", "j", "stale"), "FENCED")
        self.assertEqual([me.call("MULTI"), me.call("SET", "k", "stale")], [b"OK", b"QUEUED"])
        self.assert_error(me.call("EXEC"), "FENCED")
        self.assertEqual([me.call("WATCH", "k"), me.call("UNWATCH"), me.call("GET", "k")], [b"OK", b"OK", b"theirs"])

    def test_write_outside_multi_while_watching_and_superseded(self):
        me = self.client()
        self.assertEqual([me.call("WATCH", "k"), me.call("SET", "j", "1")], [b"OK", b"OK"])
        self.supersede()
        self.assert_error(me.call("SET", "j", "stale"), "FENCED")
        self.assertEqual(self.cli.call("GET", "j"), b"1")

    def test_superseded_inside_a_long_pipeline_of_transactions(self):
        me = self.client()
        burst = b"".join(encode(*command) for command in (("MULTI",), ("RPUSH", "l", "33"), ("RPUSH", "s", "33"),
                                                          ("EXEC",))) * 200
        me.send(burst)
        execs = [[me.reply() for _ in range(4)][3]]
        self.supersede()
        self.cli.call("RPUSH", "l", "34")
        for sent in range(199, 5000, 200):  # what was sent first may all have been applied in time
            execs += [[me.reply() for _ in range(4)][3] for _ in range(199 if sent == 199 else 200)]
            if isinstance(execs[-1], RespError):
                break
            me.send(burst)
        self.assertIsInstance(execs[-1], RespError)
        applied = [answer for answer in execs if isinstance(answer, list)]
        for answer in execs[len(applied) :]:
            self.assert_error(answer, "FENCED")
        pushed = self.cli.call("LRANGE", "l", 0, -1)
        self.assertEqual(pushed, [b"33"] * len(applied) + [b"34"])
        self.assertEqual(self.cli.call("LLEN", "s"), len(applied))

    def test_a_stale_pipeline_with_transactions_and_strays(self):
        me = self.client()
        self.assertEqual(me.call("SET", "k", "good"), b"OK")
        self.supersede()
        hostile = [("SET", "k", "x"), ("EXEC",), ("SET", "k", "x"), ("DISCARD",), ("SET", "k", "x"), ("UNWATCH",),
                   ("SET", "k", "x"), ("MULTI",), ("MULTI",), ("SET", "k", "x"),
                   ("EXEC",), ("SET", "k", "x"), ("WATCH", "k"), ("SET", "k", "x"), ("UNWATCH",), ("SET", "k", "x"),
                   ("GET", "k")]
        replies = me.pipeline(hostile)
        self.assertEqual(replies[-1], b"good")
        self.assertEqual(self.cli.call("GET", "k"), b"good")
        for command, reply in zip(hostile, replies):
            if command[0] == "SET" and reply != b"QUEUED":
                self.assert_error(reply, "FENCED")
        self.assert_error(replies[10], "FENCED")

    def test_reset_inside_a_transaction_leaves_no_tag(self):
        me = self.client()
        replies = me.pipeline([("MULTI",), ("SET", "k", "x"), ("RESET",), ("SET", "k", "x"), ("EXEC",), ("GET", "k")])
        self.assertEqual(replies[:3], [b"OK", b"QUEUED", b"RESET"])
        self.assert_error(replies[3], "FENCEMISSING")
        self.assert_error(replies[4], "ERR")
        self.assertIsNone(replies[5])

    def test_a_transaction_without_a_token(self):
        with Resp(self.gate.port) as me:
            replies = me.pipeline([("MULTI",), ("SET", "k", "x"), ("EXEC",), ("MULTI",), ("GET", "k"), ("EXEC",)])
        self.assertTrue(any(isinstance(r, RespError) and r.code == "FENCEMISSING" for r in replies[:3]), replies)
        self.assertIsInstance(replies[2], RespError)
        self.assertEqual(replies[3:], [b"OK", b"QUEUED", [None]])
        self.assertEqual(self.cli.call("EXISTS", "k"), 0)

    def test_a_refused_command_aborts_natively(self):
        me = self.client()
        self.cli.call("SET", "j", "kept")
        for refused in (("FLUSHALL",), ("SET", "fencegate:mark:{x}", "1"), ("CLIENT", "PAUSE", "1000"),
                        ("CONFIG", "SET", "maxmemory-samples", "7")):
            with self.subTest(refused=refused):
                replies = me.pipeline([("MULTI",), ("SET", "k", "x"), refused, ("SET", "k", "y"), ("EXEC",),
                                       ("GET", "j")])
                self.assert_error(replies[2], "FENCEDENY")
                self.assert_error(replies[4], "EXECABORT")
                self.assertEqual(replies[5], b"kept")
                self.assertEqual(self.cli.call("EXISTS", "k"), 0)

    def test_changing_the_token_inside_a_transaction_launders_nothing(self):
        me = self.client(33)
        self.supersede(34)
        replies = me.pipeline([("MULTI",), ("SET", "k", "stale"), ("CLIENT", "SETNAME", f"fence:{self.resource}=34"),
                               ("EXEC",)])
        self.assertIsInstance(replies[3], RespError)
        self.assertEqual(self.cli.call("EXISTS", "k"), 0)


if __name__ == "__main__":
    main()
