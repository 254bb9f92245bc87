"""Nothing that a client can send damages a mark or escapes the fence: each known way, tried against a real server.

After every attempt the marks and the epoch must be byte for byte what they were, and the protected key too."""

import time

from gate_process import Gate
from live_test import LiveTest, main
from processes import eventually
from redis_server import RedisServer
from resp import Resp, RespError, encode

MARK = "fencegate:mark:{orders}"
EPOCH = "fencegate:epoch"

# Commands that are refused whatever their arguments, given so that the server itself would accept them.
REFUSED = """
    FLUSHALL|FLUSHALL ASYNC|flushall|FlushAll SYNC|FLUSHDB|FLUSHDB ASYNC|SWAPDB 0 1|SWAPDB 1 0
    DEBUG SLEEP 0|DEBUG SET-ACTIVE-EXPIRE 1|debug reload|DEBUG JMAP
    CONFIG SET maxmemory-samples 5|config set maxmemory-policy allkeys-lru|CONFIG SET appendonly no|CONFIG REWRITE
    REPLICAOF NO ONE|REPLICAOF 127.0.0.1 1|SLAVEOF NO ONE|slaveof 127.0.0.1 1|REPLCONF listening-port 1|FAILOVER
    FAILOVER ABORT
    SYNC|PSYNC ? -1|SHUTDOWN|SHUTDOWN NOSAVE|SHUTDOWN ABORT
    CLUSTER RESET|CLUSTER FLUSHSLOTS|CLUSTER MEET 127.0.0.1 1|CLUSTER FAILOVER
    SCRIPT FLUSH|SCRIPT FLUSH ASYNC|script flush sync|SCRIPT KILL|SCRIPT DEBUG YES|FUNCTION FLUSH|FUNCTION DELETE lib
    FUNCTION RESTORE x FLUSH
    ACL SETUSER evil on nopass ~* +@all|ACL DELUSER app|ACL LOAD|ACL SAVE|acl setuser default off
    MODULE LOAD /tmp/x.so|MODULE UNLOAD x|MIGRATE 127.0.0.1 1 secret 0 10|RESTORE-ASKING secret 0 x
    PFDEBUG GETREG secret|PFSELFTEST
    CLIENT KILL TYPE normal|CLIENT KILL 127.0.0.1:1|CLIENT KILL ID 1|CLIENT PAUSE 100|CLIENT PAUSE 100 WRITE
    client pause 100 all|CLIENT UNBLOCK 1|CLIENT UNBLOCK 1 ERROR
"""

# {M}: a mark's key as a key of any command, first, late, as destination, behind options.
MARK_KEYS = """
    SET {M} 1|set {M} 1|SET {M} 34 EX 1|SETEX {M} 1 1|PSETEX {M} 1 1|SETNX {M} 1|GETSET {M} 1|GETDEL {M}
    GETEX {M} EX 1|APPEND {M} 0|SETRANGE {M} 0 9|SETBIT {M} 0 1
    INCR {M}|DECR {M}|INCRBY {M} 10|DECRBY {M} 10|INCRBYFLOAT {M} 1|BITFIELD {M} SET u8 0 49
    DEL {M}|UNLINK {M}|DEL a b c {M}|UNLINK a {M} b|del a {M}
    EXPIRE {M} 1|PEXPIRE {M} 1|EXPIREAT {M} 1|PEXPIREAT {M} 1|PERSIST {M}
    MSET a 1 b 2 {M} 1|MSETNX new1 1 {M} 1|MSET {M} 1 a 1
    RENAME {M} other|RENAME a {M}|RENAMENX a {M}|RENAMENX {M} other|COPY a {M} REPLACE|COPY {M} b REPLACE
    COPY {M} b DB 1 REPLACE|MOVE {M} 1|RESTORE {M} 0 x REPLACE
    SORT list STORE {M}|SORT list LIMIT 0 1 STORE {M}|sort list by nosort store {M}|SORT list STORE a STORE {M}
    GEORADIUS geo 0 0 1 km STORE {M}|GEORADIUSBYMEMBER geo m 1 km STOREDIST {M}
    GEOSEARCHSTORE {M} geo FROMLONLAT 0 0 BYRADIUS 1 km
    BITOP OR {M} a b|BITOP NOT {M} a|SINTERSTORE {M} s|SUNIONSTORE {M} s t|SDIFFSTORE {M} s|SMOVE s {M} m
    ZUNIONSTORE {M} 1 z|ZINTERSTORE {M} 1 z|ZDIFFSTORE {M} 1 z|ZRANGESTORE {M} z 0 -1
    PFMERGE {M} hll|PFADD {M} x|LPUSH {M} x|RPOPLPUSH list {M}|LMOVE list {M} LEFT LEFT|BRPOPLPUSH list {M} 0
    BLMOVE list {M} LEFT LEFT 0|BLPOP empty {M} 0|BRPOP {M} 0|BLMPOP 0 2 empty {M} LEFT
    LMPOP 2 empty {M} LEFT|ZMPOP 2 empty {M} MIN|BZPOPMIN {M} 0|SADD {M} x|HSET {M} f v|ZADD {M} 1 x|XADD {M} * f v
    XGROUP CREATE {M} g $ MKSTREAM
    XREADGROUP GROUP g c STREAMS st {M} > >|XREADGROUP GROUP g c BLOCK 0 STREAMS {M} >|XSETID {M} 1-1
    XTRIM {M} MAXLEN 0|XDEL {M} 1-1|GEOADD {M} 1 1 m
    EVAL return 1 {M}|FCALL f 1 {M}
"""

MALFORMED = {
    "no length, POST": b"POST /x HTTP/1.1\r\nHost: localhost\r\n\r\nSET secret x\r\n",
    "Host:": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nSET secret x\r\n",
    "payload longer than said": b"*1\r\n$4\r\nPINGxx*3\r\n$3\r\nSET\r\n$6\r\nsecret\r\n$1\r\nx\r\n",
    "payload without CRLF": b"*1\r\n$4\r\nPING\n\n" + encode("SET", "secret", "x"),
    "payload shorter than said": b"*2\r\n$4\r\nECHO\r\n$3\r\nab\r\n" + encode("SET", "secret", "x"),
    "LF only, count": b"*1\n$4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "LF only, length": b"*1\r\n$4\nPING\r\n" + encode("SET", "secret", "x"),
    "CR without LF": b"*1\rx$4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "negative length": b"*2\r\n$3\r\nSET\r\n$-1\r\n" + encode("SET", "secret", "x"),
    "very negative length": b"*2\r\n$3\r\nSET\r\n$-9223372036854775808\r\n" + encode("SET", "secret", "x"),
    "length that overflows": b"*2\r\n$3\r\nSET\r\n$18446744073709551617\r\nx\r\n" + encode("SET", "secret", "x"),
    "length with a sign": b"*1\r\n$+4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "length with a zero in front": b"*1\r\n$04\r\nPING\r\n" + encode("SET", "secret", "x"),
    "length with a blank": b"*1\r\n$ 4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "length in hexadecimal": b"*1\r\n$0x4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "count with a sign": b"*+1\r\n$4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "count that overflows": b"*4294967297\r\n$4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "too many arguments": b"*2147483647\r\n" + encode("SET", "secret", "x"),
    "not a bulk": b"*1\r\n:4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "a nested array": b"*1\r\n*1\r\n$4\r\nPING\r\n" + encode("SET", "secret", "x"),
    "open quote": b'SET secret "x\r\n' + encode("SET", "secret", "x"),
    "quote in a word": b'SET secret "x"y\r\n' + encode("SET", "secret", "x"),
}


def words(table, **names):
    for line in table.split("\n"):
        for command in filter(None, line.strip().split("|")):
            yield [word.format(**names) if "{" in word else word for word in command.split(" ")]


class Escapes(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())
        cls.gate = cls.enterClassContext(Gate(cls.redis, policy={"missing_token": "allow"}))
        cls.strict = cls.enterClassContext(Gate(cls.redis))
        cls.cli = cls.redis.cli
        holder = cls.enterClassContext(Resp(cls.gate.port, name="fence:orders=34"))
        assert holder.named == b"OK", holder.named
        for setup in ("SET a 1", "SET b 2", "RPUSH list 3 1 2", "SADD s 1 2", "SADD t 1", "ZADD z 1 m",
                      "GEOADD geo 0 0 m", "PFADD hll x", "XADD st 1-1 f v",
                      "XGROUP CREATE st g 0", "SET secret kept", "ACL SETUSER app on >pw ~* &* +@all"):
            cls.cli.call(*setup.split(" "))

    def setUp(self):
        self.before = self.state()

    def tearDown(self):
        self.assertEqual(self.state(), self.before)

    def state(self):
        """All that must not change: marks, epoch, the protected key, whether the server is a master, its settings, its
        functions."""
        self.cli.call("SELECT", "0")
        return [self.cli.call("MGET", MARK, EPOCH, "secret"), self.cli.call("PTTL", MARK), self.cli.call("PTTL", EPOCH),
                self.cli.call("ROLE")[0],
                self.cli.call("CONFIG", "GET", "maxmemory*"), self.cli.call("ACL", "LIST"),
                self.cli.call("CONFIG", "GET", "appendonly"), self.cli.call("FUNCTION", "LIST", "WITHCODE")]

    def writer(self):
        return self.start(Resp(self.gate.port, name="fence:orders=34"))

    def each_refused(self, client, commands):
        for command in commands:
            with self.subTest(command=" ".join(command)[:80]):
                self.assert_error(client.call(*command), "FENCEDENY")

    # ------------------------------------------------------------------------------------------------ refused

    def test_commands_that_are_refused(self):
        self.each_refused(self.writer(), words(REFUSED))

    def test_they_are_refused_without_a_tag_too(self):
        for gate in (self.gate, self.strict):
            self.each_refused(self.start(Resp(gate.port)), words(REFUSED))

    def test_they_are_refused_inside_a_transaction(self):
        client = self.writer()
        for command in words(REFUSED):
            with self.subTest(command=" ".join(command)):
                replies = client.pipeline([("MULTI",), ("SET", "a", "in"), command, ("EXEC",)])
                self.assert_error(replies[2], "FENCEDENY")
                self.assert_error(replies[3], "EXECABORT")
        self.assertNotEqual(self.cli.call("GET", "a"), b"in")

    def test_they_are_refused_inline(self):
        client = self.writer()
        for line in (b"FLUSHALL\r\n", b"flushall\n", b'"FLUSHALL"\r\n', b"'flush\\'all'\r\nPING\r\n",
                     b'"FLUSH\\x41LL"\r\n', b"  FLUSHDB  \r\n", b"swapdb 0 1\r\n", b"config set maxmemory 1\r\n",
                     b'set "fencegate:\\x6dark:{orders}" 1\r\n', b"del a fencegate:mark:{orders}\n"):
            with self.subTest(line=line):
                client.send(line)
                reply = client.reply()
                if line.startswith(b"'flush"):  # an unknown command, and its neighbour
                    self.assert_error(reply, "ERR")
                    self.assertEqual(client.reply(), b"PONG")
                else:
                    self.assert_error(reply, "FENCEDENY")

    def test_neighbours_of_a_refused_command(self):
        client = self.writer()
        for refused in (["FLUSHALL"], ["SET", MARK, "1"], ["CLIENT", "PAUSE", "100"], ["SHUTDOWN", "NOSAVE"]):
            replies = client.pipeline([("SET", "n1", "a"), ("GET", "n1"), refused, ("SET", "n2", "b"), refused,
                                       ("GET", "n2"), ("DEL", "n1", "n2"), refused])
            self.assertEqual([replies[0], replies[1], replies[3], replies[5], replies[6]],
                             [b"OK", b"a", b"OK", b"b", 2])
            for at in (2, 4, 7):
                self.assert_error(replies[at], "FENCEDENY")

    def test_an_operator_can_allow(self):
        with RedisServer() as redis, Gate(redis, allow_commands=["script|flush", "config|set",
                "client|pause"]) as gate, Resp(gate.port, name="fence:orders=1") as client:
            self.assertEqual([client.call("SCRIPT", "FLUSH"), client.call("CONFIG", "SET", "maxmemory-samples", "6"),
                              client.call("CLIENT", "PAUSE", "1")], [b"OK"] * 3)
            self.assert_error(client.call("FLUSHALL"), "FENCEDENY")
            self.assertEqual(client.call("SET", "k", "v"), b"OK")

    def test_unblock_where_allowed_reaches_what_waits_in_redis(self):
        with RedisServer() as redis, Gate(redis, allow_commands=["client|unblock"]) as gate, \
                Resp(gate.port, name="fence:orders=1") as waiting, Resp(gate.port) as other:
            number = waiting.call("CLIENT", "ID")
            for option, answer in (((), None), (("ERROR",), "UNBLOCKED")):
                waiting.send_command("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
                eventually(lambda option=option: other.call("CLIENT", "UNBLOCK", number, *option) == 1)
                reply = waiting.reply()
                self.assertEqual(reply.code if answer else reply, answer)
            waiting.send_command("BLPOP", "l", "0")  # polled under a token: it does not wait in Redis
            self.assertEqual(other.call("CLIENT", "UNBLOCK", number), 0)
            redis.cli.call("RPUSH", "l", "x")
            self.assertEqual(waiting.reply(), [b"l", b"x"])

    def test_passwords_of_migrate_are_not_shown(self):
        with RedisServer() as redis, RedisServer(requirepass="hunter2") as other, Gate(redis, allow_commands=["migrate"]) as gate, \
                Resp(gate.port, name="fence:orders=1") as client, Resp(redis.port) as direct:
            direct.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
            for options in (["AUTH", "hunter2"], ["REPLACE", "auth2", "default", "hunter2"]):
                client.call("MIGRATE", "127.0.0.1", str(other.port), "", "0", "1000", *options, "KEYS", "k")
                with Resp(other.port) as there:
                    there.call("AUTH", "hunter2")
                    self.assertEqual(there.call("GET", "k"), b"v")
                self.assertEqual(client.call("SET", "k", "v"), b"OK")
            shown = str(direct.call("SLOWLOG", "GET", "100"))
            self.assertIn("MIGRATE", shown)
            self.assertNotIn("hunter2", shown)

    def test_commands_near_the_refused_ones_pass(self):
        client = self.writer()
        for command in ("CONFIG GET maxmemory", "SCRIPT EXISTS abc", "FUNCTION LIST", "FUNCTION STATS", "CLIENT LIST",
                        "CLIENT ID", "CLIENT INFO", "CLIENT GETNAME", "CLIENT NO-EVICT OFF",
                        "ACL WHOAMI", "COMMAND COUNT", "LATENCY LATEST", "MEMORY USAGE a", "OBJECT ENCODING a",
                        "DBSIZE", "INFO", "TIME", "LASTSAVE", "ROLE", "GET fencegate", "DUMP a"):
            with self.subTest(command=command):
                self.assertNotIsInstance(client.call(*command.split()), RespError)

    # ------------------------------------------------------------------------------------------------ keys of marks

    def test_a_mark_as_a_key_of_any_command(self):
        commands = list(words(MARK_KEYS, M=MARK))
        for command in commands:
            if command[0] == "EVAL":  # the blank in the script was split
                command[1:4] = ["return 1", "1", MARK]
            if command[0] == "FCALL":
                command[1:] = ["f", "1", MARK]
        self.assertGreater(len(commands), 80)
        self.each_refused(self.writer(), commands)

    def test_who_scans_may_read_what_is_there(self):
        client = self.writer()
        keys = client.call("SCAN", "0", "COUNT", "1000")[1]
        self.assertIn(MARK.encode(), keys)
        for key in keys:
            for command in (("TYPE", key), ("TTL", key), ("DUMP", key), ("TOUCH", key), ("MEMORY", "USAGE", key),
                            ("OBJECT", "ENCODING", key), ("EVAL_RO", "return redis.call('TYPE', KEYS[1])", "1", key)):
                self.assertNotIsInstance(client.call(*command), RespError, command)
        self.assertEqual(client.call("GET", MARK), b"34")
        self.assertEqual(client.pipeline([("MULTI",), ("GET", MARK), ("EXEC",)])[2], [b"34"])

    def test_other_keys_with_the_prefix(self):
        client = self.writer()
        for key in (EPOCH, "fencegate:mark:{new}", "fencegate:", "fencegate:anything", "fencegate:mark:{orders}\0"):
            self.each_refused(client, (["SET", key, "1"], ["DEL", key], ["EXPIRE", key, "1"]))

    def test_marks_from_another_database(self):
        client = self.writer()
        self.assertEqual(client.call("SELECT", "1"), b"OK")
        self.each_refused(client, (["SET", MARK, "1"], ["MOVE", MARK, "0"], ["COPY", MARK, "x", "DB", "0"],
                                   ["COPY", "x", MARK, "DB", "0", "REPLACE"], ["SWAPDB", "0", "1"], ["FLUSHDB"]))
        self.assertEqual(self.cli.call("SELECT", "1"), b"OK")
        self.assertEqual(self.cli.call("DBSIZE"), 0)

    def test_a_huge_command_whose_last_key_is_a_mark(self):
        client = self.writer()
        big = b"v" * 300_000
        for command in (["MSET", *(word for n in range(40) for word in (f"huge{n}", big)), MARK, "1"],
                        ["DEL", *("x" * 1000 + str(n) for n in range(3000)), MARK],
                        ["MSET", MARK, "1", "huge", big], ["SET", MARK, big * 4],
                        ["BITOP", "OR", "huge", *("x" * 1000 + str(n) for n in range(3000)), MARK]):
            client.send_command(*command)
            try:
                self.assert_error(client.reply(), "FENCEDENY")
                self.assertEqual(client.call("EXISTS", "huge0", "huge"), 0)
            except ConnectionError:  # refusing by closing is allowed for what cannot be held
                client = self.writer()
        self.assertEqual(self.cli.call("EXISTS", "huge0", "huge39", "huge"), 0)

    def test_scripts_cannot_write_marks_of_a_client_user_with_the_advised_acl(self):
        self.cli.call("ACL", "SETUSER", "script", "on", ">pw", "~data:*", "%R~fencegate:*", "+@all")
        try:
            with Resp(self.gate.port, name="fence:orders=34", user="script", password="pw") as client:
                for script in (f"return redis.call('SET', '{MARK}', '1')",
                               f"return redis.call('DEL', '{MARK}', '{EPOCH}')",
                               f"return redis.call('RENAME', 'data:x', 'fencegate:' .. 'epoch')"):
                    reply = client.call("EVAL", script, 1, "data:x")
                    self.assertIsInstance(reply, RespError)
                self.assertEqual(client.call("EVAL", "return redis.call('SET', KEYS[1], '1')", 1, "data:x"), b"OK")
        finally:
            self.cli.call("ACL", "DELUSER", "script")

    # ------------------------------------------------------------------------------------------------ framing

    def test_malformed_framing_smuggles_nothing(self):
        for title, data in MALFORMED.items():
            for name in (None, "fence:orders=34"):
                with self.subTest(title=title, tagged=name is not None), Resp(self.gate.port, name=name) as client:
                    client.send(encode("SET", "near", title) + data)
                    self.assertEqual(client.reply(), b"OK")
                    self.assertTrue(client.closed(), "not closed")
                    self.assertEqual(self.cli.call("MGET", "near", "secret"), [title.encode(), b"kept"])

    def test_malformed_framing_in_pieces(self):
        for title, data in MALFORMED.items():
            with self.subTest(title=title), Resp(self.gate.port, name="fence:orders=34") as client:
                try:
                    for at in range(0, len(data), 3):
                        client.send(data[at : at + 3])
                except ConnectionError:
                    pass
                self.assertTrue(client.closed(), "not closed")
                self.assertEqual(self.cli.call("GET", "secret"), b"kept")

    def test_a_half_command_is_never_executed(self):
        whole = encode("SET", "secret", "x")
        for end in range(1, len(whole)):
            with Resp(self.gate.port, name="fence:orders=34") as client:
                client.send(whole[:end])
        with self.writer() as client:
            self.assertEqual(client.call("GET", "secret"), b"kept")

    def test_a_value_that_looks_like_commands_stays_a_value(self):
        client = self.writer()
        value = b"x\r\n" + encode("EXEC") + encode("FLUSHALL") + encode("SET", MARK, "1") + b"*0\r\n$-1\r\n+OK\r\n"
        self.assertEqual(client.pipeline([("SET", "a", value), ("GET", "a"), ("LPUSH", value, value), ("DEL", value),
                                          ("SET", "a", "1")]), [b"OK", value, 1, 1, b"OK"])

    # ------------------------------------------------------------------------------------------------ tokens

    def test_a_stale_connection_has_no_way_to_write(self):
        with Resp(self.strict.port, name="fence:stale=1") as client, Resp(self.strict.port,
                name="fence:stale=2") as successor:
            self.assertEqual(successor.named, b"OK")
            writes = [["SET", "secret", "x"], ["GETSET", "secret", "x"], ["APPEND", "secret", "x"], ["DEL", "secret"],
                      ["EXPIRE", "secret", "1"], ["PUBLISH", "c", "m"], ["SPUBLISH", "c", "m"],
                      ["EVAL", "return redis.call('SET','secret','x')", "0"],
                      ["EVAL", "return redis.call('SET',KEYS[1],'x')", "1", "secret"], ["PFCOUNT", "hll"],
                      ["SORT", "list", "STORE", "secret"],
                      ["FUNCTION", "LOAD",
                       "#!lua name=evil\nredis.register_function('w', function() return redis.call('SET','secret','x') end)"],
                      ["FCALL", "w", "0"], ["SCRIPT", "LOAD", "return 1"],
                      ["GEORADIUS", "geo", "0", "0", "1", "km", "STORE", "secret"],
                      ["MIGRATE", "127.0.0.1", "1", "secret", "0", "10"], ["RESTORE", "secret", "0", "x", "REPLACE"],
                      ["NOSUCH", "secret"],
                      ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "st", ">"], ["BLPOP", "list", "0"],
                      ["BZMPOP", "0", "1", "z", "MIN"], ["GETEX", "secret", "EX", "1"],
                      ["XAUTOCLAIM", "st", "g", "c", "0", "0"],
                      ["FENCE", "CALL", "stale", "1", "SET", "secret", "x"], ["FENCE", "SET", "stale", "1"]]
            for write in writes:
                with self.subTest(write=write[:2]):
                    reply = client.call(*write)
                    if write[0] not in ("PFCOUNT", "SCRIPT"):
                        self.assertIn(reply.code if isinstance(reply, RespError) else reply, ("FENCED", "FENCEDENY"))
            self.assertEqual(self.cli.call("LRANGE", "list", 0, -1), [b"3", b"1", b"2"])
            self.assertEqual(self.cli.call("ZCARD", "z"), 1)
            self.assertEqual(self.cli.call("XPENDING", "st", "g")[0], 0)

    def test_changing_the_tag_in_a_pipeline(self):
        with Resp(self.strict.port, name="fence:retag=5") as client, Resp(self.strict.port,
                name="fence:retag=6") as successor:
            self.assertEqual(successor.named, b"OK")
            replies = client.pipeline([("SET", "secret", "x"), ("CLIENT", "SETNAME", "plain"), ("SET", "secret", "x"),
                                       ("CLIENT", "SETNAME", "fence:retag=4"), ("SET", "secret", "x"),
                                       ("CLIENT", "SETNAME", "fence:retag="),
                                       ("SET", "secret", "x"), ("CLIENT", "SETNAME", "fence:retag=06"),
                                       ("SET", "secret", "x"), ("RESET",), ("SET", "secret", "x"),
                                       ("HELLO", "2", "SETNAME", "fence:retag=5"), ("SET", "secret", "x")])
            for reply, codes in zip(replies[::2], (["FENCED"], ["FENCEMISSING", "FENCED"], ["FENCED"], ["FENCEBAD"], ["FENCEBAD"],
                                                   ["FENCEMISSING"], ["FENCED"])):
                self.assertIn(getattr(reply, "code", reply), codes)

    def test_a_token_of_another_resource_is_no_token(self):
        with Gate(self.redis, resources=[{"keys": "acct:{id}:*", "resource": "acct:{id}"}]) as gate, Resp(gate.port,
                name="fence:acct:1=5") as client:
            replies = client.pipeline([("SET", "acct:1:x", "mine"), ("SET", "acct:2:x", "theirs"),
                                       ("MSET", "acct:1:x", "1", "acct:2:x", "2"), ("RENAME", "acct:1:x", "acct:2:x"),
                                       ("COPY", "acct:1:x", "acct:2:x"),
                                       ("SORT", "list", "STORE", "acct:2:x"),
                                       ("EVAL", "return redis.call('SET', KEYS[2], 'x')", "2", "acct:1:x", "acct:2:x"),
                                       ("GET", "acct:1:x"), ("DEL", "acct:1:x")])
            self.assertEqual([replies[0], replies[7], replies[8]], [b"OK", b"mine", 1])
            for reply in replies[1:7]:
                self.assert_error(reply, "FENCEMISSING")
            self.assertEqual(self.cli.call("EXISTS", "acct:2:x"), 0)

    # ------------------------------------------------------------------------------------------------ other clients

    def test_other_clients_are_left_alone(self):
        with self.writer() as victim, self.writer() as client:
            number = victim.call("CLIENT", "ID")
            self.each_refused(client, (["CLIENT", "KILL", "ID", str(number)], ["CLIENT", "KILL", "SKIPME", "no"],
                                       ["CLIENT", "KILL", "USER", "default"], ["CLIENT", "UNBLOCK", str(number)],
                                       ["CLIENT", "PAUSE", "60000", "WRITE"]))
            self.assertEqual(victim.call("PING"), b"PONG")
            started = time.monotonic()
            self.assertEqual(victim.call("SET", "near", "1"), b"OK")
            self.assertLess(time.monotonic() - started, 30)

    def test_the_gate_survives_all_of_it(self):
        with self.writer() as client:
            self.assertEqual(client.pipeline([("SET", "near", "1"), ("GET", "near")]), [b"OK", b"1"])
        self.assertEqual(eventually(lambda: self.gate.http("/readyz")[0]), 200)


if __name__ == "__main__":
    main()
