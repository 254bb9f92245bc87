"""Every command that reads or writes answers through the gate as it does without: on each way that it can take, in both
protocols. The list is complete: a command of the server that is in none of the tables below fails the test."""

import sys

from gate_process import Gate
from live_test import LiveTest, main
from redis_server import RedisServer
from resp import Resp, encode

TOKEN = "fence:orders=34"

# What the keys hold in front of each command.
DATA = """
    SET s hello|SET n 10|SET max 9223372036854775806|SET min -9223372036854775807|SET big 9007199254740992|SET f 1.5
    RPUSH l a b c|RPUSH nums 3 1 2|SADD set m|SADD other m n|HSET h f 1 g 2 big 9007199254740993
    ZADD z 1.5 one 2 two|ZADD y 1 one inf top|GEOADD g 13.361389 38.115556 here 15.087269 37.502669 there|PFADD hll a b
    XADD x 1-1 f v|XADD x 1-2 f w|XGROUP CREATE x grp 0|XREADGROUP GROUP grp me STREAMS x >|XADD x 1-3 f u|SET ttl x EX 1000
    XADD gone 1-1 f v|XADD gone 1-2 f w|XGROUP CREATE gone grp 0|XREADGROUP GROUP grp me STREAMS gone >|XDEL gone 1-1
    SET w_1 10|SET w_3 30
"""

WRITES = """
    APPEND s x|BITFIELD b SET u8 0 200 GET i5 100|BITFIELD b OVERFLOW FAIL INCRBY u2 0 9 SET u4 4 1|BITFIELD b
    BITOP NOT dest s|COPY s copied|COPY none copied|DECR n|DECR min|DECR s|DECRBY n 3|DECRBY min 1|DECRBY big -5
    DEL s none|EXPIRE s 100|EXPIRE none 100|EXPIREAT s 9999999999|GEOADD g 13.5 38 new|GEOADD g CH 14 38 here
    GEORADIUS g 15 37 200 km WITHDIST WITHHASH|GEORADIUS none 15 37 200 km|GEORADIUSBYMEMBER g here 1 km
    GEOSEARCHSTORE dest g FROMMEMBER here BYRADIUS 500 km|GETDEL s|GETDEL none|GETEX s EX 10|GETEX none|GETSET s y
    GETSET none y|HDEL h f none|HINCRBY h f 5|HINCRBY h big 1|HINCRBY h big -18014398509481986|HINCRBY h new 1|HINCRBYFLOAT h f 0.1
    HMSET h k v|HSET h k v|HSET h k|HSETNX h f 9|HSETNX h k 9|INCR n|INCR max|INCR s|INCR big|INCRBY max 1|INCRBY max 2
    INCRBY big 3|INCRBYFLOAT f 0.1|INCRBYFLOAT s 1|LINSERT l BEFORE b x|LINSERT l BEFORE q x|LMOVE l l LEFT RIGHT
    LMOVE none l LEFT RIGHT|LMPOP 1 none LEFT|LMPOP 2 none l LEFT COUNT 2|LPOP l|LPOP l 2|LPOP none|LPOP none 2|LPUSH l z
    LPUSH s z|LPUSHX none z|LREM l 1 a|LSET l 0 z|LSET l 99 z|LTRIM l 0 1|MOVE s 3|MSET a 1 b 2|MSET a|MSETNX a 1 s 2
    PERSIST ttl|PERSIST s|PEXPIRE s 100000|PEXPIREAT s 9999999999999|PFADD hll c|PFMERGE dest hll|PSETEX s 10000 v
    RENAME s t|RENAME none t|RENAMENX s n|RESTORE r 0 bad|RPOP l|RPOP none|RPOP none 1|RPOPLPUSH l l|RPOPLPUSH none l
    RPUSH l z|RPUSHX l z|SADD set q|SDIFFSTORE dest other set|SET s v|SET s v NX|SET s v XX GET|SET none v GET|SET s
    SET s v WRONG|SETBIT s 1 1|SETEX s 10 v|SETEX s 0 v|SETNX s v|SETRANGE s 1 EY|SINTERSTORE dest set other
    SMOVE other set n|SORT nums|SORT nums BY nosort GET w_* GET #|SORT nums GET none_*|SORT nums STORE dest|SORT l|SPOP set
    SPOP none|SPOP none 3|SPOP set 3|SREM set m|SUNIONSTORE dest set other|UNLINK s none|XACK x grp 1-1 9-9
    XADD x 9-9 f v|XADD x 1-1 f v|XADD none NOMKSTREAM 1-1 f v|XAUTOCLAIM x grp you 0 0 COUNT 5|XAUTOCLAIM gone grp you 0 0
    XCLAIM x grp you 0 1-1 1-2|XCLAIM gone grp you 0 1-1 1-2|XCLAIM x grp you 0 1-1 JUSTID|XDEL x 1-1|XGROUP CREATE x g2 0
    XGROUP CREATE x grp 0|XGROUP CREATECONSUMER x grp new|XGROUP DELCONSUMER x grp me|XGROUP DESTROY x grp
    XGROUP SETID x grp 0|XSETID x 5-5|XTRIM x MAXLEN 1|ZADD z 3 three|ZADD z INCR 1 one|ZADD z NX INCR 1 one|ZADD z CH 9 one
    ZADD z x one|ZDIFFSTORE dest 2 z y|ZINCRBY z 0.1 one|ZINCRBY y -inf top|ZINTERSTORE dest 2 z y|ZMPOP 1 none MIN
    ZMPOP 1 z MAX COUNT 5|ZPOPMAX y|ZPOPMAX none|ZPOPMAX z 5|ZPOPMIN z|ZPOPMIN z 2|ZRANGESTORE dest z 0 -1|ZREM z one
    ZREMRANGEBYLEX z - +|ZREMRANGEBYRANK z 0 0|ZREMRANGEBYSCORE z 1 2|ZUNIONSTORE dest 2 z y|PUBLISH ch m|SPUBLISH ch m
"""

READS = """
    BITCOUNT s|BITFIELD_RO s GET u8 0 GET i64 0|BITPOS s 1|DUMP n|DUMP none|EXISTS s none|EXPIRETIME s|EXPIRETIME none
    GEODIST g here there|GEODIST g here none|GEOHASH g here none there|GEOPOS g none here none|GEORADIUS_RO g 15 37 200 km WITHCOORD WITHDIST
    GEORADIUSBYMEMBER_RO g here 1 km|GEOSEARCH g FROMMEMBER here BYRADIUS 500 km ASC WITHCOORD|GET s|GET none|GET l|GETBIT s 1
    GETRANGE s 0 1|HEXISTS h f|HGET h f|HGET h none|HGETALL h|HGETALL none|HKEYS h|HLEN h|HMGET h none f none|HMGET none f g
    HRANDFIELD none|HRANDFIELD h 0|HSCAN h 0|HSTRLEN h f|HVALS h|KEYS w_*|LCS s n IDX|LCS s s|LINDEX l 0|LINDEX l 99|LLEN l
    LLEN s|LPOS l c|LPOS l q|LPOS l q COUNT 0|LRANGE l 0 -1|LRANGE none 0 -1|MEMORY USAGE none|MGET none s none n|MGET none
    MGET s none|OBJECT ENCODING s|OBJECT ENCODING none|OBJECT REFCOUNT l|PEXPIRETIME s|PFCOUNT hll|PTTL s|SCARD set
    SDIFF other set|SINTER other set|SINTERCARD 2 other set|SISMEMBER set m|SMEMBERS set|SMISMEMBER set m q m|SORT_RO nums GET w_*
    SRANDMEMBER none|SRANDMEMBER set 3|SSCAN set 0|STRLEN s|SUBSTR s 0 1|SUNION other set|TOUCH s none|TTL s|TTL none|TYPE s
    TYPE none|XINFO GROUPS x|XINFO STREAM x|XINFO STREAM none|XINFO CONSUMERS none grp|XINFO GROUPS gone|XLEN x|XPENDING x grp
    XPENDING x none|XRANGE x - +|XRANGE x - + COUNT 1|XREAD STREAMS x 0|XREAD STREAMS x 9-9|XREVRANGE x + -|ZCARD z|ZCOUNT z 1 2
    ZDIFF 2 z y WITHSCORES|ZINTER 2 z y WITHSCORES|ZINTERCARD 2 z y|ZLEXCOUNT z - +|ZMSCORE z none one none|ZMSCORE none a b
    ZRANDMEMBER none|ZRANDMEMBER none 3|ZRANGE z 0 -1 WITHSCORES|ZRANGE y 0 -1 WITHSCORES|ZRANGEBYLEX z - +|ZRANGEBYSCORE z 1 2
    ZRANK z one|ZRANK z none|ZREVRANGE z 0 -1|ZREVRANGEBYLEX z + -|ZREVRANGEBYSCORE z 2 1 WITHSCORES|ZREVRANK z two|ZSCAN z 0
    ZSCORE z one|ZSCORE y top|ZSCORE z none|ZUNION 2 z y WITHSCORES|PING|ECHO x
"""

WRITES_OF_MODULES = {"VADD", "VREM", "VSETATTR"}  # in RESP3 they are refused where they would run in a script

ELSEWHERE = """
    blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin xreadgroup
    flushall flushdb function|delete function|flush function|load function|restore migrate pfdebug restore-asking swapdb
    dbsize randomkey scan lolwut object|freq object|idletime eval_ro evalsha_ro fcall_ro
""".split()  # polled, refused, or different each time

# Commands that Redis 8 has, too, and what the keys hold in front of them.
NEWER_DATA = """
    VADD v VALUES 2 1 0 one|VADD v VALUES 2 0 1 two|HSET timed f 1 g 2|HEXPIREAT timed 9999999999 FIELDS 1 f
"""
NEWER = """
    HEXPIRE h 100 FIELDS 2 f none|HPEXPIRE h 100000 FIELDS 2 f none|HEXPIREAT h 9999999999 FIELDS 2 f none
    HPEXPIREAT h 9999999999999 FIELDS 1 f|HEXPIREAT none 9999999999 FIELDS 1 f|HPERSIST timed FIELDS 3 f g none|HPERSIST s FIELDS 1 f
    HGETDEL h FIELDS 2 none f|HGETEX h FIELDS 2 none f|HSETEX h FIELDS 1 f v
    HTTL timed FIELDS 2 g none|HTTL none FIELDS 1 f|HPTTL timed FIELDS 2 g none|HEXPIRETIME timed FIELDS 3 f g none
    HPEXPIRETIME timed FIELDS 3 f g none|VADD v VALUES 2 1 1 three|VADD v VALUES 3 1 1 1 wrong|VADD s VALUES 2 1 1 one
    VREM v one|VREM v none|VSETATTR v one {"a":1}|VSETATTR v none {}|VGETATTR v one|VSIM v VALUES 2 1 0|VSIM v ELE none
    VSIM none VALUES 2 1 0|VDIM v|VDIM none|VCARD v|VCARD none|VEMB v one|VEMB v none|VINFO none|VLINKS v none
    VISMEMBER v one|VISMEMBER v none|VRANDMEMBER none|VRANDMEMBER v 0
"""


def commands(text):
    return [tuple(one.split()) for line in text.strip().splitlines() for one in line.strip().split("|") if one.strip()]


class Typed(Resp):
    """Replies with their types, and with sets and maps in one order."""

    def _value(self):
        line = self._line()
        kind, rest = line[:1].decode(), line[1:]
        if kind in "+-:(":
            return kind, rest
        if kind in "_#":
            return kind, rest
        if kind == ",":
            return kind, float(rest)
        count = int(rest)
        if kind in "$!=":
            return kind, None if count < 0 else self._bytes(count)
        items = [self._element() for _ in range(max(count, 0) * (2 if kind in "%|" else 1))]
        if kind == "%":
            return kind, sorted(zip(items[::2], items[1::2]), key=repr)
        return (kind, None if count < 0 else sorted(items, key=repr) if kind == "~" else items)


class Answers(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer(appendonly="no"))
        cls.cli = cls.redis.cli
        cls.gates = {reads: cls.enterClassContext(Gate(cls.redis, policy={"reads": reads})) for reads in ("pass", "fence")}
        cls.known = set()
        for entry in cls.cli.call("COMMAND"):
            for one in (entry[9] if len(entry) > 9 and entry[9] else [entry]):
                if {b"write", b"readonly"} & set(one[2]):
                    cls.known.add(one[0].decode().lower())
        newer, newer_data = ([one for one in commands(text) if {"vadd", one[0].lower()} <= cls.known] for text in (NEWER, NEWER_DATA))
        cls.listed, data = commands(WRITES) + commands(READS) + newer, commands(DATA) + newer_data
        keys = {word for one in cls.listed + data for word in one[1:]}
        cls.reset = [("DEL", *keys), ("SELECT", "3"), ("DEL", *keys), ("SELECT", "0"), *data]

    def test_the_list_is_complete(self):
        named = {one[0].lower() for one in self.listed} | {f"{one[0]}|{one[1]}".lower() for one in self.listed if len(one) > 1}
        self.assertEqual(self.known - named - set(ELSEWHERE), set())

    def fresh(self):
        self.cli.pipeline(self.reset)

    def in_multi(self, client, command):
        client.send(encode("MULTI") + encode(*command) + encode("EXEC"))
        replies = [client.read() for _ in range(3)]
        return replies[2][1][0] if replies[2][0] == "*" else replies[1]

    def while_watching(self, client, command):
        client.call("WATCH", "nobodys")
        answer = client.call(*command)
        client.call("UNWATCH")
        return answer

    def compare(self, tell, commands, gate, proto):
        name = TOKEN if tell != self.by_call else None
        with Typed(self.redis.port, proto=proto) as direct, Typed(gate.port, name=name, proto=proto) as fenced:
            for command in commands:
                self.fresh()
                wanted = (tell if tell in (self.in_multi, self.when_full) else self.plain)(direct, command)
                self.fresh()
                got = tell(fenced, command)
                if proto == 3 and tell in (self.by_call, self.while_watching) and command[0] in WRITES_OF_MODULES:
                    wanted = ("-", b"FENCEDENY")
                with self.subTest(way=tell.__name__, proto=proto, command=command):
                    self.assertEqual(self.as_told(got), self.as_told(wanted))

    @staticmethod
    def as_told(answer):
        """Errors by their first word: a script tells them in words of its own."""
        return (answer[0], answer[1].split(b" ")[0]) if answer[0] == "-" else answer

    def plain(self, client, command):
        return client.call(*command)

    def by_call(self, client, command):
        return client.call("FENCE", "CALL", "orders", "34", *command)

    def test_in_batches_and_bare(self):
        for reads in ("pass", "fence"):
            for proto in (2, 3):
                self.compare(self.plain, self.listed, self.gates[reads], proto)

    def test_inside_multi(self):
        for proto in (2, 3):
            self.compare(self.in_multi, self.listed, self.gates["fence"], proto)

    def test_between_watch_and_multi(self):
        for reads in ("pass", "fence"):
            for proto in (2, 3):
                self.compare(self.while_watching, self.listed, self.gates[reads], proto)

    def when_full(self, client, command):
        self.cli.call("CONFIG", "SET", "maxmemory", "1")
        answer = client.call(*command)
        self.cli.call("CONFIG", "SET", "maxmemory", "0")
        return answer

    def test_on_a_full_server(self):
        """What needs no memory runs there in a script."""
        for proto in (2, 3):
            self.compare(self.when_full, self.listed, self.gates["pass"], proto)

    def test_by_fence_call(self):
        for proto in (2, 3):
            self.compare(self.by_call, self.listed, self.gates["pass"], proto)


if __name__ == "__main__":
    main()
