"""Random commands with sensible arguments, made after the server's own description of its commands (COMMAND DOCS)."""

import re

TAG = "fence:orders=34"
CHANNELS = ("ch1", "ch2")

# Never sent, by the server's names: what they answer differs between two servers, or they end the comparison.
EXCLUDED = {
    "its documentation says that a gate refuses it": (
        "flushall flushdb swapdb debug shutdown migrate restore-asking replicaof slaveof replconf sync psync failover pfdebug "
        "pfselftest config|set config|rewrite script|flush script|kill script|debug function|flush function|delete "
        "function|restore acl|setuser acl|deluser acl|load acl|save acl|log module|load module|loadex module|unload client|kill "
        "client|pause client|unblock client|unpause cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|delslots "
        "cluster|delslotsrange cluster|failover cluster|flushslots cluster|forget cluster|meet cluster|replicate cluster|reset "
        "cluster|saveconfig cluster|set-config-epoch cluster|setslot"),
    "it tells of the server, its connections, or its clock": (
        "info time lastsave role client|id client|info client|list client|getredir client|trackinginfo memory|doctor memory|stats "
        "memory|malloc-stats memory|usage memory|purge latency|doctor latency|graph latency|histogram latency|history "
        "latency|latest latency|reset slowlog|get slowlog|len slowlog|reset object|idletime object|freq object|refcount lolwut "
        "bgsave bgrewriteaof save config|resetstat function|stats function|kill monitor wait cluster|myid cluster|nodes"),
    "it hears of what its own connection reads and writes, so of the marks, too": "client|tracking client|caching",
    "it is random": "acl|genpass randomkey spop srandmember hrandfield zrandmember",
    "it counts the marks, too": "dbsize",
    "its answer is the same table in another order": "command command|docs command|list command|info",
    "the container of subcommands": "acl client cluster config function latency memory module object pubsub script slowlog xgroup xinfo",
    "made by hand, below": (
        "scan hscan sscan zscan multi exec discard watch unwatch reset quit hello auth select client|reply client|setname "
        "client|getname client|no-evict eval evalsha eval_ro evalsha_ro script|load fcall fcall_ro function|load "
        "subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe publish spublish ping blpop brpop blmove "
        "brpoplpush blmpop bzpopmin bzpopmax bzmpop xread xreadgroup"),
}

_NEVER = {name for why, names in EXCLUDED.items() for name in names.split() if why not in ("made by hand, below", "the container of subcommands")}

KEYS = {
    "string": ("s1", "s2", "n1"), "bitmap": ("s1", "b1"), "list": ("l1", "l2"), "hash": ("h1", "h2"), "set": ("t1", "t2", "t3"),
    "sorted-set": ("z1", "z2", "g1"), "stream": ("x1", "x2"), "geo": ("g1",), "hyperloglog": ("p1", "p2"),
}
# Clients wait for these. Only commands of their type touch them: fencegate's documentation says that another type differs.
WAITED = {"list": ("wl1", "wl2"), "sorted-set": ("wz1",), "stream": ("wx1",)}
EVERY_KEY = sorted({key for keys in KEYS.values() for key in keys} | {"none"})

VALUES = ("a", "b", "c", "1", "2", "10", "-3", "1.5", "", "x y", "\r\n", "héé", "9223372036854775807")
INTEGERS = ("0", "1", "2", "3", "-1", "-2", "5", "100")
DOUBLES = ("0", "1", "1.5", "-2", "3e2", "inf", "0.1")
IDS = ("1-1", "2-2", "3-1", "5-*", "9-9", "0", "7")
RANGE_IDS = ("-", "+", "1-1", "(1-1", "2", "9-9", "0")
LEX = ("-", "+", "[a", "(b", "[c")
SCORES = ("-inf", "+inf", "(1", "2", "0", "1.5")
FAR = {"seconds": "100000", "milliseconds": "100000000", "timestamp": "9999999999", "unix-time-seconds": "9999999999",
       "unix-time-milliseconds": "9999999999999", "milliseconds-timestamp": "9999999999999", "ms-unix-time": "9999999999999"}
NAMED = {
    "encoding": ("u8", "i5", "u2", "i64", "u63", "i1"), "group": ("grp", "grp2"), "groupname": ("grp", "grp2"),
    "consumer": ("me", "you"), "consumername": ("me", "you"), "cursor": ("0",), "min-idle-time": ("0",), "ms": ("0", "1000"),
    "longitude": ("13.361389", "15.087269", "2"), "latitude": ("38.115556", "37.502669", "3"), "radius": ("200", "1000", "5"),
    "width": ("300",), "height": ("300",), "serialized-value": ("bad",), "ttl": ("0", "100000000"), "destination-db": ("1", "2"),
    "db": ("1", "2", "0", "99"), "channel": CHANNELS, "shardchannel": CHANNELS, "bit": ("0", "1"), "entries-read": ("1",),
    "lastid": ("1-1",), "last-id": ("9-9", "1-1"), "max-deleted-entry-id": ("0-1",), "entries-added": ("9",), "offset": ("0", "1", "7", "#2"),
    "username": ("default", "nobody"), "id_or_dollar": ("0", "$", "1-1"), "threshold": ("1", "2", "1-1"), "len": ("1", "2"),
    "category": ("read", "nosuch"), "sha1": ("e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "x"),
}
SCRIPTS = (
    ("return redis.call('GET',KEYS[1])", 1, 0), ("return redis.call('SET',KEYS[1],ARGV[1])", 1, 1),
    ("redis.call('RPUSH',KEYS[1],ARGV[1]) return redis.call('LRANGE',KEYS[1],0,-1)", 1, 1),
    ("return {1,'a',{2,false},redis.error_reply('MINE is it')}", 0, 0), ("return redis.pcall('INCR',KEYS[1])", 1, 0),
    ("redis.call('SET',KEYS[1],'x') error('behind a write')", 1, 0), ("return {KEYS[1],KEYS[2],ARGV[1]}", 2, 1),
    ("redis.call('DEL',KEYS[2]) return redis.call('COPY',KEYS[1],KEYS[2])", 2, 0), ("return 3.9", 0, 0), ("syntax(", 0, 0),
)
LIBRARY = ("#!lua name=lib\nredis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)\n"
           "redis.register_function{function_name='look', callback=function(keys, args) return redis.call('TYPE', keys[1]) end, "
           "flags={'no-writes'}}")


def described(flat):
    """Replies of RESP2 that are maps, as dict; their lists of arguments stay lists."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2])}


PLAIN = re.compile(r"[\w:.*+()\[$>|-]+", re.ASCII)


class Inline(list):
    """A command that is sent as one line, without lengths."""

    def __repr__(self):
        return f"Inline({list(self)})"


class Generator:
    """`cli`: a connection to the server whose commands these are."""

    def __init__(self, cli):
        excluded = {name for names in EXCLUDED.values() for name in names.split()}
        self.shapes = {}
        for name, about in described(cli.call("COMMAND", "DOCS")).items():
            about = described(about)
            for sub, details in {name: about, **described(about.get("subcommands") or [])}.items():
                details = about if sub == name else described(details)
                if sub not in excluded:
                    words = sub.upper().split("|")
                    group = (about.get("group") or b"").decode()
                    self.shapes[sub] = (words, group, [described(one) for one in details.get("arguments") or []])
        self.names = sorted(self.shapes)
        self.of_data = [name for name in self.names if self.shapes[name][1] in KEYS]

    # One command.

    def command(self, chance):
        """A list of arguments."""
        draw = chance.random()
        if draw < 0.62:
            words = self.described(chance, chance.choice(self.of_data))
        elif draw < 0.72:
            words = self.described(chance, chance.choice(self.names))
        elif draw < 0.87:
            words = self.of_transactions(chance)
        else:
            words = chance.choice((self.of_scans, self.of_scripts, self.of_channels, self.of_connections, self.of_waiting))(chance)
        if chance.random() < 0.06:
            spoilt = list(map(str, self.spoilt(chance, words)))
            words = words if {spoilt[0].lower(), "|".join(spoilt[:2]).lower()} & _NEVER else spoilt
        if chance.random() < 0.1:
            words[0] = chance.choice((words[0].lower(), words[0].capitalize()))
        words = list(map(str, words))
        return Inline(words) if chance.random() < 0.04 and all(map(PLAIN.fullmatch, words)) else words

    def described(self, chance, name):
        words, group, arguments = self.shapes[name]
        command = _Command(chance, name, group)
        for one in arguments:
            command.add(one)
        return [*words, *command.finished()]

    def spoilt(self, chance, words):
        words, how = list(words), chance.randrange(4)
        at = chance.randrange(1, len(words) + 1)
        if how == 0:
            del words[at:]
        elif how == 1:
            words.insert(at, chance.choice((*VALUES, *EVERY_KEY)))
        elif how == 2 and at < len(words):
            words[at] = chance.choice((*VALUES, *INTEGERS, *EVERY_KEY))
        elif how == 3:
            return [chance.choice(("NOSUCH", "GETT", "")), *words[1:]]
        return words

    def of_transactions(self, chance):
        key = chance.choice(EVERY_KEY)
        return list(chance.choice((
            ("MULTI",), ("MULTI",), ("MULTI",), ("EXEC",), ("EXEC",), ("EXEC",), ("DISCARD",), ("WATCH", key), ("WATCH", key, "s1"),
            ("UNWATCH",), ("EXEC", "x"), ("MULTI", "x"), ("WATCH",), ("SET", key), ("INCR", key), ("SET", key, "v"))))

    def of_scripts(self, chance):
        script, keys, values = chance.choice(SCRIPTS)
        keys, values = [chance.choice(EVERY_KEY) for _ in range(keys)], [chance.choice(VALUES) for _ in range(values)]
        return list(chance.choice((
            ("EVAL", script, len(keys), *keys, *values), ("EVAL", script, len(keys), *keys, *values),
            ("EVAL_RO", script, len(keys), *keys, *values), ("SCRIPT", "LOAD", script),
            ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0), ("FUNCTION", "LOAD", "REPLACE", LIBRARY), ("FUNCTION", "LOAD", LIBRARY),
            ("FCALL", "put", 1, chance.choice(EVERY_KEY), "v"), ("FCALL_RO", "look", 1, chance.choice(EVERY_KEY)),
            ("FCALL_RO", "put", 1, "s1", "v"))))

    def of_scans(self, chance):
        """All at once: where a scan stands is another place in each table."""
        key, more = chance.choice(EVERY_KEY), chance.choice(((), (), ("MATCH", "*"), ("MATCH", "a*")))
        kind = chance.choice((("SCAN", "0"), ("SCAN", "0", "TYPE", "string"), ("HSCAN", key, "0"), ("SSCAN", key, "0"), ("ZSCAN", key, "0")))
        return [*kind, "COUNT", "1000", *more]

    def of_channels(self, chance):
        word, many = chance.choice(CHANNELS), [chance.choice(CHANNELS) for _ in range(chance.randint(1, 2))]
        return list(chance.choice((
            ("SUBSCRIBE", *many), ("PSUBSCRIBE", "ch*"), ("SSUBSCRIBE", word), ("UNSUBSCRIBE", *many), ("UNSUBSCRIBE",),
            ("PUNSUBSCRIBE",), ("SUNSUBSCRIBE",), ("PUBLISH", word, "m"), ("PUBLISH", word, "m"), ("SPUBLISH", word, "m"),
            ("PUBSUB", "CHANNELS"), ("PUBSUB", "NUMSUB", word), ("PUBSUB", "NUMPAT"))))

    def of_connections(self, chance):
        return list(chance.choice((
            ("HELLO", "2"), ("HELLO", "3"), ("HELLO", "3", "SETNAME", TAG), ("HELLO", "4"), ("HELLO",), ("AUTH", "x"), ("AUTH", "x", "y"),
            ("SELECT", "0"), ("SELECT", "1"), ("SELECT", "99"), ("SELECT", "x"), ("CLIENT", "REPLY", "OFF"), ("CLIENT", "REPLY", "ON"),
            ("CLIENT", "REPLY", "SKIP"), ("CLIENT", "SETNAME", TAG), ("CLIENT", "GETNAME"), ("CLIENT", "NO-EVICT", "ON"), ("RESET",),
            ("PING",), ("PING", "x"), ("QUIT",))))

    def of_waiting(self, chance):
        left, right = chance.choice(("LEFT", "RIGHT")), chance.choice(("LEFT", "RIGHT"))
        late = chance.choice(("0", "0", "0", "0.01"))
        wl, other = chance.sample(WAITED["list"], 2)
        block = ("BLOCK", "0" if late == "0" else "10")
        return list(chance.choice((
            ("BLPOP", wl, late), ("BRPOP", wl, late), ("BLPOP", other, wl, late), ("BLMOVE", wl, other, left, right, late),
            ("BRPOPLPUSH", wl, other, late), ("BLMPOP", late, "1", wl, left), ("BLMPOP", late, "1", wl, left, "COUNT", "2"),
            ("BZPOPMIN", "wz1", late), ("BZPOPMAX", "wz1", late), ("BZMPOP", late, "1", "wz1", "MIN"),
            ("XREAD", *block, "STREAMS", "wx1", chance.choice(("$", "0", "9-9"))), ("XREAD", "COUNT", "1", "STREAMS", "x1", "0"),
            ("XREADGROUP", "GROUP", "grp", "me", *block, "STREAMS", "wx1", ">"), ("XREADGROUP", "GROUP", "grp", "me", "STREAMS", "x1", ">"),
            ("XGROUP", "CREATE", "wx1", "grp", "$", "MKSTREAM"), ("RPUSH", wl, "a", "b"), ("LPUSH", wl, "c"), ("ZADD", "wz1", "1", "m"),
            ("XADD", "wx1", "5-*", "f", "v"), ("DEL", wl), ("DEL", "wz1"))))

    def own_write(self, chance, client):
        """A small one, on keys that no other client touches."""
        key = f"own{client}"
        return list(chance.choice((
            ("SET", key + "s", chance.choice(VALUES)), ("INCR", key + "n"), ("RPUSH", key + "l", "a", "b"), ("LPOP", key + "l"),
            ("HSET", key + "h", "f", "v"), ("ZADD", key + "z", "INCR", "1.5", "m"), ("SADD", key + "t", "a"), ("DEL", key + "s"),
            ("XADD", key + "x", "5-*", "f", "v"), ("APPEND", key + "s", "x"), ("INCR", key + "s"), ("GETSET", key + "s", "z"))))


class _Command:
    """The arguments of one command. What is named `numkeys` is counted when all are there."""

    def __init__(self, chance, name, group):
        self.chance, self.name = chance, name
        self.keys = KEYS.get(group, EVERY_KEY)
        self.waited = WAITED.get(group, ())
        self.words, self.counts, self.key_count = [], [], 0

    def finished(self):
        for at in self.counts:
            self.words[at] = str(self.key_count)
        return self.words

    def add(self, argument):
        flags = argument.get("flags") or []
        if b"optional" in flags and self.chance.random() < 0.55:
            return
        token = argument.get("token")
        times = self.chance.choice((1, 1, 2, 3)) if b"multiple" in flags else 1
        for turn in range(times):
            if token and argument["type"] != b"pure-token" and (turn == 0 or b"multiple_token" in flags):
                self.words.append(token.decode())
            self.one(argument)

    def one(self, argument):
        kind, name = argument["type"].decode(), argument["name"].decode()
        parts = [described(one) for one in argument.get("arguments") or []]
        if kind == "block":
            for part in parts:
                self.add(part)
        elif kind == "oneof":
            if self.name == "xadd":  # an id by the clock differs
                parts = [part for part in parts if part.get("token") != b"*"]
            self.add(self.chance.choice(parts))
        elif kind == "pure-token":
            self.words.append(argument["token"].decode())
        elif kind == "key":
            self.key_count += 1
            self.words.append(self.key())
        elif name == "numkeys":
            self.counts.append(len(self.words))
            self.words.append("")
        else:
            self.words.append(self.word(kind, name))

    def key(self):
        draw = self.chance.random()
        if self.waited and draw < 0.25:
            return self.chance.choice(self.waited)
        return self.chance.choice(self.keys if draw < 0.9 else EVERY_KEY)

    def word(self, kind, name):
        return self.chance.choice(self.pool(kind, name))

    def pool(self, kind, name):
        if name in NAMED and not (name == "offset" and kind == "integer" and not self.name.startswith("bitfield")):
            return NAMED[name]
        if name in FAR:
            return (FAR[name],) * 6 + ("0", "-1")
        if self.name.startswith("x") and name in ("start", "end"):
            return RANGE_IDS
        if self.name.startswith("x") and (name == "id" or name.endswith("id")):
            return IDS
        if self.name.startswith("z") and kind in ("string", "double") and name in ("start", "stop", "min", "max"):
            return LEX if "lex" in self.name else SCORES + INTEGERS if self.name.startswith("zrange") else SCORES
        if kind == "integer":
            return INTEGERS
        if kind == "double":
            return DOUBLES
        if kind == "unix-time":
            return (FAR["unix-time-milliseconds"],) if self.name.startswith("p") or "milli" in name else (FAR["unix-time-seconds"],)
        if kind == "pattern":
            return ("*", "s*", "w_*->f", "nosort", "#")
        return VALUES
