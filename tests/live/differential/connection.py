"""What a connection's state is, as far as the commands that it has sent say, and which of them it may send there: those are
left out, on both sides, whose answers are documented to differ."""

from differential.commands import EVERY_KEY, TAG

SUBSCRIBING = {"subscribe": "c", "psubscribe": "p", "ssubscribe": "s"}
UNSUBSCRIBING = {"unsubscribe": "c", "punsubscribe": "p", "sunsubscribe": "s"}
IN_SUBSCRIPTION = {*SUBSCRIBING, *UNSUBSCRIBING, "ping", "quit", "reset"}
BLOCKING = {"blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop"}
# docs/redis.md, "Inside MULTI": an error there, and EXECABORT; Redis queues some of them.
NOT_IN_MULTI = {"hello", "auth", "quit", "reset", "client|reply", "client|setname", *SUBSCRIBING, *UNSUBSCRIBING}
# docs/redis.md, "Scripts": between WATCH and MULTI, a fenced write is run by a script, which may not run these.
NOT_WATCHING = {"eval", "evalsha", "fcall", "function", "xreadgroup", "eval_ro", "evalsha_ro", "fcall_ro"}
# While it is subscribed, RESP2: an error in other words.
NOT_SUBSCRIBED = {"multi", "exec", "discard", "watch", "unwatch"}
NAMING = (["CLIENT", "SETNAME", TAG], ["HELLO", "2", "SETNAME", TAG], ["HELLO", "3", "SETNAME", TAG])
WIDE = {"i64", "u63"}  # integers of BITFIELD that a script cannot tell


def is_large(words):
    """Whether a gate passes on the beginning before it has the end."""
    return sum(map(len, words)) > 1 << 18


def expires_soon(words):
    """Whether a key that it sets may be gone on one side, and not yet on the other."""
    upper = [word.upper() for word in words]
    times = words[2:3] if upper[0] in ("EXPIRE", "PEXPIRE", "SETEX", "PSETEX") else []
    times += [word for before, word in zip(upper, words[1:]) if before in ("EX", "PX")]
    return any(time.isdigit() and 0 < int(time) < 100_000 for time in times)


def chooses_by_hash(words):
    """Elements of a set that weigh the same are sorted in the order of its hash table."""
    upper = {word.upper() for word in words}
    return words[0].lower() in ("sort", "sort_ro") and "BY" in upper and bool(upper & {"STORE", "LIMIT"})


class Connection:
    """The state of one connection, as the server knows it."""

    def __init__(self, reads):
        self.reads = reads  # the gate's policy
        self.protocol, self.multi, self.watches, self.channels = 2, False, False, set()
        self.replies = "on"  # off, skip: the next one only

    def subscribed(self):
        return bool(self.channels) and self.protocol == 2

    def may(self, words):
        name, sub = words[0].lower(), "|".join(words[:2]).lower()
        if self.multi and {name, sub} & NOT_IN_MULTI:
            return False
        if self.watches and not self.multi and (self.waits(words) or name in NOT_WATCHING or is_large(words) or {*words} & WIDE):
            return False
        if self.subscribed() and name in NOT_SUBSCRIBED:
            return False
        if self.waits(words) and (self.replies != "on" or name == "xread" and self.reads == "fence"):
            return False  # the latter is refused
        if self.waits(words) and {*words} & {*EVERY_KEY}:
            return False  # docs/redis.md: where the key gets another type, Redis lets a client wait on
        if expires_soon(words) or chooses_by_hash(words):
            return False
        if self.replies != "on" and (name in ("multi", "quit") or name in SUBSCRIBING or name in UNSUBSCRIBING):
            return False  # nothing would tell when all is done
        if name.endswith("scan") and ("1000" not in words or words[1:3][name != "scan":][:1] != ["0"]):
            return False  # a scan in parts
        if (TAG in words or sub == "client|setname") and words not in NAMING:
            return False  # a name without a tag, or one that Redis refuses: what follows is rejected
        if name == "reset" and (len(words) > 1 or self.replies != "on"):
            return False
        return True

    def send(self, words):
        """How many replies that are no pushes it gets. REQUIRES: may(words)"""
        name, sub, count = words[0].lower(), "|".join(words).lower(), 1
        if self.replies != "on" and sub != "client|reply|on":
            count = 0
        if self.replies == "skip":
            self.replies = "on"
        if self.subscribed() and name not in IN_SUBSCRIPTION:
            return count
        return self._change(name, sub, words, count)

    def _change(self, name, sub, words, count):
        if name in SUBSCRIBING and len(words) > 1:
            self.channels |= {SUBSCRIBING[name] + channel for channel in words[1:]}
            return 0
        if name in UNSUBSCRIBING:
            kind = UNSUBSCRIBING[name]
            self.channels -= {kind + channel for channel in words[1:]} or {one for one in self.channels if one[0] == kind}
            return 0
        if name == "multi" and len(words) == 1:
            self.multi = True
        elif name == "exec" and len(words) > 1 or name in ("exec", "discard") and len(words) == 1 and self.multi:
            # (An EXEC that is refused ends all, too.)
            self.multi = self.watches = False
        elif name == "unwatch" and len(words) == 1 and not self.multi:
            self.watches = False
        elif name == "watch" and not self.multi:  # one that Redis refuses counts in a gate, too
            self.watches = True
        elif name == "hello" and words[1:] in (["2"], ["3"], ["2", "SETNAME", TAG], ["3", "SETNAME", TAG]):
            self.protocol = int(words[1])
        elif name == "reset":
            self.__init__(self.reads)
        elif sub in ("client|reply|on", "client|reply|off", "client|reply|skip"):
            before, self.replies = self.replies, sub.rsplit("|", 1)[1]
            if before == "off" and self.replies == "skip":
                self.replies = "off"  # Redis: skipping while it is off changes nothing
            return 1 if self.replies == "on" else 0
        return count

    def waits(self, words):
        """Whether a command may wait until others do something."""
        name, upper = words[0].lower(), [word.upper() for word in words]
        if self.multi or self.subscribed():
            return False
        if name in ("xread", "xreadgroup"):
            return "BLOCK" in upper
        return name in BLOCKING

    @staticmethod
    def for_long(words):
        """Whether a command that may wait waits until others do something: for ever, or for seconds."""
        upper = [word.upper() for word in words]
        if "BLOCK" in upper:
            limit, unit = upper[upper.index("BLOCK") + 1 :][:1], 1000
        else:
            limit, unit = (words[1:2] if words[0].lower() in ("blmpop", "bzmpop") else words[-1:]), 1
        try:
            return float(limit[0]) == 0 or float(limit[0]) / unit >= 5
        except (IndexError, ValueError):
            return False
