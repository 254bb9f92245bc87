"""Leases in Redis: the scripts themselves."""

import hashlib
import threading

from live_test import LiveTest, main
from redis_scripts import script_of
from redis_server import RedisServer
from resp import Resp, RespError

STRIDE = 1 << 20
LAST = 1 << 62
ISSUER = "1" * 32
NOON = 1_800_000_000_000_000  # microseconds, of a clock that a test sets
SECOND = 1_000_000


class Leases:
    """As fencegate asks. `mutate`: changes the scripts."""

    def __init__(self, redis, mutate=lambda script: script, client=None):
        self.redis, self.mutate = redis, mutate
        self.client = client
        self.clock = None  # a time that stands for the server's
        self.epoch, self.issuer = "e", ISSUER

    def fresh(self, mark="33"):
        """A server without leases, and a mark of orders."""
        call = self.redis.cli.call
        call("FLUSHALL")
        call("SET", "fencegate:epoch", "e")
        if mark is not None:
            call("SET", "fencegate:mark:{orders}", mark)
        self.run("name_issuer", [], ISSUER, front=("lease_lead",), issuer=())
        return self

    def run(self, script, keys, *words, front=("lease_lead", "lease_rows"), issuer=None):
        text = self.mutate(script_of("compare_digits", *front, script))
        if self.clock is not None:
            text = text.replace("redis.call('TIME')", f"{{'{self.clock // SECOND}', '{self.clock % SECOND}'}}")
        issuer = (self.issuer,) if issuer is None else issuer
        answer = (self.client or self.redis.cli).call("EVAL", text, 2 + len(keys), "fencegate:epoch", "fencegate:issuer", *keys,
                                                      self.epoch, *issuer, *words)
        return [one.decode() for one in answer] if isinstance(answer, list) else answer

    @staticmethod
    def keys(kind, resources):
        return [f"fencegate:{kind}:{{{name}}}" for name in resources]

    def grant(self, grant, resources="orders", ttl_ms=30_000, floor=0, stores=("s",), stride=STRIDE, at_least_ms=0,
              lock_delay_ms=0, by_force=False, freeze=False):
        resources = resources.split(",")
        return self.run("lease_grant_script", ["fencegate:leases", *self.keys("lease", resources), *self.keys("mark", resources)],
                        grant, f"holder of {grant}", ttl_ms, at_least_ms, lock_delay_ms, stride, LAST - stride, " ".join(stores),
                        "freeze" if freeze else "force" if by_force else "", *[floor] * len(resources))

    def wait(self, grant, resource="orders", ms=20_000):
        self.run("lease_wait_script", self.keys("lease", [resource]) + self.keys("waiters", [resource]), grant, f"holder of {grant}", ms,
                 front=("lease_lead", "lease_rows", "lease_waiters"))

    def list(self, resource):
        """Token, mark, holder, when it was granted, ms left, whether it is frozen, who waits."""
        return self.run("lease_list_script", [key for kind in ("lease", "mark", "waiters") for key in self.keys(kind, [resource])],
                        front=("lease_lead", "lease_rows", "lease_waiters"))

    def token(self, grant, **more):
        answer = self.grant(grant, **more)
        assert isinstance(answer, list) and answer[0] == "granted", answer
        return int(answer[1])

    def outcome(self, grant, **more):
        answer = self.grant(grant, **more)
        return answer[0] if isinstance(answer, list) else answer

    def renew(self, grant, token, resource="orders"):
        """Its TTL in milliseconds, "0" when it was lost."""
        return self.run("lease_renew_script", [*self.keys("lease", [resource]), *self.keys("mark", [resource])], token, grant)

    def renews(self, grant, token):
        answer = self.renew(grant, token)
        return isinstance(answer, list) and answer != ["0"]

    def release(self, grant, token, resource="orders", unused=False):
        return self.run("lease_release_script", self.keys("lease", [resource]), "unused" if unused else "", token, grant)

    def forget(self, store, resource="orders"):
        return self.run("lease_forget_script", self.keys("lease", [resource]), store)

    def thaw(self, resource="orders"):
        return self.run("lease_thaw_script", self.keys("lease", [resource]))

    def field(self, name, value=None, resource="orders"):
        key = f"fencegate:lease:{{{resource}}}"
        return self.redis.cli.call("HGET", key, name) if value is None else self.redis.cli.call("HSET", key, name, value)

    def mark(self, value, resource="orders"):
        self.redis.cli.call("SET", f"fencegate:mark:{{{resource}}}", value)

    def expire(self):
        self.field("until", "1")


class Grants(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())

    def setUp(self):
        self.leases = Leases(self.redis).fresh()

    def assert_refused(self, answer, *words):
        self.assertIsInstance(answer, RespError)
        for word in words:
            self.assertIn(word, str(answer))

    def test_tokens_are_above_former_ones_above_the_mark_and_above_the_floor(self):
        self.assertEqual(self.leases.token("one"), 34)
        self.leases.release("one", 34)
        self.assertEqual(self.leases.token("two"), 35)
        self.leases.release("two", 35)
        self.assertEqual(self.leases.token("three", floor=100), 101)

    def test_the_same_grant_asked_again_keeps_its_token_unless_the_floor_or_the_mark_has_risen(self):
        self.assertEqual(self.leases.token("one"), 34)
        self.assertEqual(self.leases.token("one"), 34)
        self.leases.mark("34")
        self.assertEqual(self.leases.token("one"), 34)
        self.assertEqual(self.leases.token("one", floor=34), 35)
        self.leases.mark("36")
        self.assertEqual(self.leases.token("one"), 37)

    def test_who_holds_it_and_for_how_long(self):
        self.leases.token("one", ttl_ms=20_000)
        outcome, at, holder, left = self.leases.grant("two", resources="free,orders")
        self.assertEqual((outcome, at, holder), ("held", "2", "holder of one"))
        self.assertTrue(0 < int(left) <= 20_000, left)

    def test_one_of_two_who_race(self):
        answers = []

        def ask(grant):
            with Resp(self.redis.port) as client:
                leases = Leases(self.redis, client=client)
                answers.extend(leases.outcome(f"{grant} {i}") for i in range(50))

        racing = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two", "three")]
        for one in racing:
            one.start()
        for one in racing:
            one.join()
        self.assertEqual(sorted(answers), ["granted"] + ["held"] * 149)

    def test_all_or_none(self):
        self.leases.token("one", resources="b")
        self.assertEqual(self.leases.grant("two", resources="c,b,a")[:2], ["held", "2"])
        self.assertEqual(self.leases.token("three", resources="a"), 1)
        self.leases.release("one", 1, "b")
        self.leases.release("three", 1, "a")
        self.assertEqual(self.leases.grant("two", resources="c,b,a"), ["granted", "1", "2", "2"])

    def test_a_grant_whose_time_is_over_is_never_granted_anew(self):
        self.leases.token("one")
        self.leases.release("one", 34)
        self.assertEqual(self.leases.outcome("one"), "over")
        self.leases.token("two")
        self.leases.release("two", 35)
        self.assertEqual(self.leases.outcome("one"), "over")
        self.leases.token("three")
        self.leases.expire()
        self.assertEqual(self.leases.outcome("three"), "over")

    def test_grants_of_the_past_take_no_more_room_than_64(self):
        for i in range(70):
            self.leases.release(f"grant {i}", self.leases.token(f"grant {i}"))
        self.assertEqual(len(self.leases.field("past").split()), 64)
        self.assertEqual(self.leases.outcome("grant 6"), "over")

    def test_an_expired_term_revives_while_nobody_took_or_released_it(self):
        self.leases.token("one", ttl_ms=20_000)
        self.leases.expire()
        self.assertEqual(self.leases.renew("one", 34), ["20000"])
        self.assertEqual(self.leases.outcome("two"), "held")
        self.leases.expire()
        self.leases.token("two")
        self.assertEqual(self.leases.renew("one", 34), ["0"])
        self.assertEqual(self.leases.renew("two", 34), ["0"])  # its token is 35
        self.leases.release("two", 35)
        self.assertEqual(self.leases.renew("two", 35), ["0"])

    def test_a_release_by_others_does_nothing(self):
        self.leases.token("one")
        self.assertEqual(self.leases.release("two", 34), ["0"])
        self.assertEqual(self.leases.release("one", 33), ["0"])
        self.assertEqual(self.leases.outcome("two"), "held")
        self.assertEqual(self.leases.release("one", 34), ["1"])
        self.assertEqual(self.leases.release("one", 34), ["0"])

    def test_what_is_kept_is_no_grant_id_and_no_name_of_one(self):
        self.leases.token("a-secret")
        self.leases.redis.cli.call("SET", "fencegate:grant:{orders}", "")
        stored = b" ".join(self.redis.cli.call("HGETALL", "fencegate:lease:{orders}"))
        self.assertNotIn(b"a-secret", stored.replace(b"holder of a-secret", b""))
        kept = self.leases.field("grant").decode()
        self.assertEqual(kept, hashlib.sha1(b"a-secret").hexdigest())
        self.assertEqual(self.leases.renew(kept, 34), ["0"])

    def test_no_lease_expires_by_itself(self):
        self.leases.token("one", ttl_ms=1)
        self.assertEqual([self.redis.cli.call("TTL", key) for key in self.redis.cli.call("KEYS", "fencegate:*")], [-1] * 5)

    def test_at_least(self):
        self.leases.token("one", at_least_ms=60_000)
        self.leases.release("one", 34)
        self.assertEqual(self.leases.outcome("two"), "held")
        self.leases.field("not_before", "1")
        self.assertEqual(self.leases.token("two", at_least_ms=60_000), 35)
        self.leases.release("two", 35, unused=True)
        self.assertEqual(self.leases.token("three"), 36)

    def test_a_delay_follows_an_expiry_but_no_release(self):
        self.leases.clock = NOON
        self.leases.token("one", ttl_ms=1_000, lock_delay_ms=60_000)
        self.leases.clock = NOON + 60 * SECOND
        self.assertEqual(self.leases.grant("two"), ["held", "1", "holder of one", "1000"])
        self.leases.renew("one", 34)
        self.leases.release("one", 34)
        self.assertEqual(self.leases.token("two"), 35)

    def test_a_term_ends_to_the_microsecond(self):
        self.leases.clock = NOON + 1
        self.leases.token("one", ttl_ms=1_000)
        self.leases.clock = NOON + SECOND
        self.assertEqual(self.leases.grant("two"), ["held", "1", "holder of one", "1"])
        self.leases.clock += 1
        self.assertEqual(self.leases.token("two"), 35)

    def test_an_operator_takes_it_by_force(self):
        self.leases.token("one")
        self.assertEqual(self.leases.token("operator", by_force=True), 35)
        self.assertEqual(self.leases.renew("one", 34), ["0"])
        self.assertEqual(self.leases.outcome("one"), "over")

    def test_what_an_operator_froze_nobody_has_until_it_is_thawed(self):
        self.leases.clock = NOON
        self.leases.token("one")
        self.assertEqual(self.leases.thaw(), b"0")
        self.assertEqual(self.leases.token("operator", freeze=True, ttl_ms=1), 35)
        self.assertEqual(self.leases.renew("one", 34), ["0"])
        self.leases.clock += 86_400 * SECOND
        for force in (False, True):
            self.assertEqual(self.leases.grant("two", by_force=force), ["held", "1", "holder of operator", "3155760000000"])
        self.assertEqual(self.leases.token("again", freeze=True), 36)
        self.assertEqual(self.leases.thaw(), b"1")
        self.assertEqual(self.leases.thaw(), b"0")
        self.assertEqual(self.leases.outcome("again"), "over")
        self.assertEqual(self.leases.token("two"), 37)

    def test_a_release_ends_what_was_frozen(self):
        self.leases.token("operator", freeze=True)
        self.leases.release("operator", 34)
        self.assertEqual(self.leases.token("two"), 35)

    def test_stores_that_were_sealed_must_be_covered(self):
        self.leases.token("one", stores=("a", "b"))
        self.leases.release("one", 34)
        for force in (False, True):
            self.assertEqual(self.leases.grant("two", stores=("a", "c", "bb"), by_force=force), ["uncovered", "1", "b"])
        self.assertEqual(self.leases.token("two", stores=("a", "b", "c")), 35)
        self.leases.release("two", 35)
        self.assertEqual(self.leases.forget("b"), b"1")
        self.assertEqual(self.leases.forget("b"), b"0")
        self.assertEqual(self.leases.token("three", stores=("a", "c")), 36)

    def test_tokens_are_counted_beyond_the_numbers_of_lua(self):
        for at in (1 << 53, (1 << 53) + 1, (1 << 60) + 7):
            with self.subTest(at):
                name = f"far-{at}"
                self.assertEqual(self.leases.token("one", resources=name, floor=at), at + 1)
                self.leases.release("one", at + 1, name)
                self.assertEqual(self.leases.token("two", resources=name), at + 2)
                self.leases.field("server", "another", name)
                self.leases.release("two", at + 2, name)
                self.assertEqual(self.leases.token("three", resources=name), at + 2 + STRIDE)

    def test_tokens_end(self):
        self.assertEqual(self.leases.token("one", resources="far", floor=LAST - STRIDE), LAST - STRIDE + 1)
        self.leases.release("one", LAST - STRIDE + 1, "far")
        self.assertEqual(self.leases.grant("two", resources="near,far"), ["high", "2", str(LAST - STRIDE + 1)])
        self.assertEqual(self.leases.field("token", resource="near"), None)
        self.leases.mark((1 << 63) - 1)
        self.assertEqual(self.leases.grant("two"), ["high", "1", str((1 << 63) - 1)])

    def test_marks_and_rows_that_are_no_numbers_close(self):
        for mark in ("x", "+3", "034", "-1", ""):
            self.leases.mark(mark)
            self.assert_refused(self.leases.grant("one"), "it is no number")
        self.leases.mark("33")
        self.leases.token("one")
        for name, value in (("token", "x"), ("token", "-1"), ("until", "x"), ("ttl", ""), ("delay", "x")):
            with self.subTest(f"{name}={value}"):
                before = self.leases.field(name)
                self.leases.field(name, value)
                for answer in (self.leases.grant("two"), self.leases.renew("one", 34), self.leases.release("one", 34)):
                    self.assert_refused(answer)
                self.leases.field(name, before)
        self.redis.cli.call("HDEL", "fencegate:lease:{orders}", "until")
        self.assert_refused(self.leases.grant("two"))

    def test_the_list(self):
        self.leases.token("one", resources="b,a")
        self.assertEqual(sorted(self.leases.redis.cli.call("HKEYS", "fencegate:leases")), [b"a", b"b"])
        self.leases.token("one")
        rows = self.leases.list("orders")
        self.assertEqual(rows[:3], ["34", "33", "holder of one"])
        self.assertTrue(0 < int(rows[4]) <= 30_000, rows)

    def test_who_waits(self):
        def waiting():
            return [line.partition(" ")[2] for line in self.leases.list("orders")[6].splitlines()]

        call = self.redis.cli.call
        self.leases.token("one")
        for grant in ("two", "three", "two"):
            self.leases.wait(grant)
        self.leases.wait("four", "never-granted")
        self.assertEqual(waiting(), ["holder of three", "holder of two"])
        self.assertEqual(call("EXISTS", "fencegate:waiters:{never-granted}"), 0)
        self.assertTrue(0 < call("PTTL", "fencegate:waiters:{orders}") <= 60_000)
        self.leases.release("one", 34)
        self.leases.token("two")
        self.assertEqual(waiting(), ["holder of three"])
        self.assertNotIn(b"two ", call("GET", "fencegate:waiters:{orders}").replace(b"of two", b""))  # no grant id, but its hash
        self.leases.wait("three", ms=0)
        self.leases.wait("two", ms=0)
        self.assertEqual(call("EXISTS", "fencegate:waiters:{orders}"), 0)
        for i in range(70):
            self.leases.wait(f"grant {i}")
        self.assertEqual(len(waiting()), 64)
        self.leases.wait("grant 1")
        self.assertEqual(len(waiting()), 64)

    def test_who_waited_and_died_is_forgotten(self):
        self.leases.clock = NOON
        self.leases.token("one")
        self.leases.wait("dead", ms=20_000)
        self.leases.clock = NOON + 15 * SECOND
        self.leases.wait("alive", ms=20_000)
        self.assertEqual(len(self.leases.list("orders")[6].splitlines()), 2)
        self.leases.clock = NOON + 20 * SECOND
        self.assertEqual(self.leases.list("orders")[6], f"{NOON + 15 * SECOND} holder of alive\n")
        self.leases.clock = NOON - 3_600 * SECOND  # it went back
        self.assertEqual(self.leases.list("orders")[6], "")

    def test_a_server_that_refuses_writes_grants_nothing(self):
        self.leases.token("one", resources="held")
        call = self.redis.cli.call
        for setting, value, back in (("min-replicas-to-write", "1", "0"), ("maxmemory", "1", "0")):
            with self.subTest(setting):
                call("CONFIG", "SET", setting, value)
                self.addCleanup(call, "CONFIG", "SET", setting, back)
                self.assert_refused(self.leases.grant("two"), "NOREPLICAS" if "replicas" in setting else "OOM")
                self.assert_refused(self.leases.renew("one", 1, "held"))
                call("CONFIG", "SET", setting, back)
                self.assertIsNone(self.leases.field("token"))

    def test_a_restart_costs_a_stride_and_no_holder_its_lease(self):
        self.leases.token("one", resources="held")
        self.leases.token("one")
        self.leases.release("one", 34)
        self.redis.restart()
        self.assertEqual(self.leases.renew("one", 1, "held"), ["30000"])
        self.assertEqual(self.leases.token("two"), 34 + STRIDE)
        self.leases.release("two", 34 + STRIDE)
        self.assertEqual(self.leases.token("three"), 35 + STRIDE)
        self.assertEqual(self.leases.token("one", resources="new"), STRIDE)  # it may have been forgotten

    def test_an_epoch_of_an_operator_may_be_any_text(self):
        self.redis.cli.call("SET", "fencegate:epoch", "looked at\n by 100% of us")
        self.redis.cli.call("DEL", "fencegate:issuer")
        self.leases.epoch = "looked at\n by 100% of us"
        self.leases.run("name_issuer", [], ISSUER, front=("lease_lead",), issuer=())
        self.assertEqual(self.leases.token("one"), 34)
        self.assertEqual(self.leases.token("one"), 34)

    def test_an_issuer_has_its_id_for_life(self):
        named = self.leases.run("name_issuer", [], "2" * 32, front=("lease_lead",), issuer=())
        self.assertEqual(named, ISSUER.encode())
        self.redis.cli.call("SET", "fencegate:issuer", "what is this")
        self.assert_refused(self.leases.run("name_issuer", [], "2" * 32, front=("lease_lead",), issuer=()), "none that fencegate wrote")
        self.assert_refused(self.leases.grant("one"), "FENCEGATELOST")
        self.redis.cli.call("SET", "fencegate:issuer", ISSUER)  # as an operator puts it back
        self.assertEqual(self.leases.token("one"), 33 + STRIDE)


# ── attacks ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Each is given leases of its own, and is true when it has succeeded.


def granted(leases, grant, **more):
    return leases.outcome(grant, **more) == "granted"


def released(leases, grant="one", **more):
    token = leases.token(grant, **more)
    leases.release(grant, token)
    return token


def another_epoch(leases):
    leases.epoch = "another"
    return granted(leases, "one")


def another_issuer(leases):
    leases.issuer = "2" * 32
    return granted(leases, "one")


def a_lost_store(leases):
    """All is gone, and another one has begun anew."""
    leases.token("one")
    leases.redis.cli.call("FLUSHALL")
    leases.redis.cli.call("SET", "fencegate:epoch", "e")
    leases.redis.cli.call("SET", "fencegate:issuer", "2" * 32 + " x")
    return granted(leases, "two") or leases.renews("one", 34)


def a_replica_that_may_be_written(leases):
    call = leases.redis.cli.call
    call("CONFIG", "SET", "replica-read-only", "no")
    call("REPLICAOF", "127.0.0.1", "1")
    try:
        return granted(leases, "one")
    finally:
        call("REPLICAOF", "NO", "ONE")


def a_restart(leases):
    before = released(leases)
    leases.field("server", leases.field("server").decode().replace(leases.redis.info("server")["run_id"], "0" * 40))
    return leases.token("two") <= before + 1


def a_promotion(leases):
    before = released(leases)
    leases.redis.cli.call("REPLICAOF", "127.0.0.1", "1")
    leases.redis.cli.call("REPLICAOF", "NO", "ONE")
    return leases.token("two") <= before + 1


def a_new_epoch(leases):
    before = released(leases)
    leases.redis.cli.call("SET", "fencegate:epoch", "f")
    leases.epoch = "f"
    return leases.token("two") <= before + 1


def a_row_that_was_forgotten(leases):
    leases.redis.cli.call("SET", "fencegate:issuer", ISSUER + " an:earlier:one")
    return leases.token("one") <= 34


def a_row_of_another_issuer(leases):
    before = released(leases)
    of_then = leases.redis.cli.call("GET", "fencegate:issuer").decode()
    leases.issuer = "2" * 32
    leases.redis.cli.call("SET", "fencegate:issuer", of_then.replace(ISSUER, leases.issuer))
    return leases.token("two") <= before + 1


def the_same_id_behind_a_restart(leases):
    before = leases.token("one")
    leases.field("server", "another")
    return leases.token("one") == before


def a_repeated_request_behind_its_release(leases):
    released(leases)
    released(leases, "two")
    return granted(leases, "one")


def a_repeated_request_behind_its_end(leases):
    leases.token("one")
    leases.expire()
    return granted(leases, "one")


def two_holders(leases):
    leases.token("one")
    return granted(leases, "two")


def sooner_than_at_least(leases):
    released(leases, at_least_ms=60_000)
    return granted(leases, "two")


def sooner_than_the_delay(leases):
    leases.clock = NOON
    leases.token("one", ttl_ms=1_000, lock_delay_ms=60_000)
    leases.clock += 2 * SECOND
    return granted(leases, "two")


def a_clock_that_goes_back(leases, **more):
    """Nobody holds for longer than what was granted from then on."""
    leases.clock = NOON
    leases.token("one", ttl_ms=5_000, **more)
    if more:
        leases.release("one", 34)
    for leases.clock in range(NOON - 3600 * SECOND, NOON - 3592 * SECOND, SECOND):
        if granted(leases, "two"):
            return leases.clock < NOON - 3595 * SECOND
    return True


def a_clock_that_goes_back_and_at_least(leases):
    return a_clock_that_goes_back(leases, at_least_ms=5_000)


def in_the_last_millisecond(leases):
    leases.clock = NOON + 900
    leases.token("one", ttl_ms=1)
    leases.clock = NOON + 1_001
    return granted(leases, "two")


def uncovered(leases):
    released(leases, stores=("a", "b"))
    return granted(leases, "two", stores=("a",))


def below_the_floor(leases):
    return leases.token("one", floor=100) <= 100


def below_the_mark(leases):
    leases.mark("100")
    return leases.token("one") <= 100


def below_a_longer_floor(leases):
    leases.mark("39")
    return leases.token("one", floor=100) <= 100


def the_same_token_at_the_floor(leases):
    leases.token("one")
    return leases.token("one", floor=34) == 34


def the_same_token_below_the_mark(leases):
    leases.token("one")
    leases.mark("35")
    return leases.token("one") == 34


def a_token_twice_beyond_lua(leases):
    first = released(leases, floor=(1 << 53) + 1)
    return first != (1 << 53) + 2 or released(leases, "two") != first + 1


def past_the_last(leases):
    leases.mark(str(LAST))
    return granted(leases, "one")


def one_of_two(leases):
    """What a grant may not write, it leaves."""
    call = leases.redis.cli.call
    call("ACL", "SETUSER", "one-of-two", "on", "nopass", "~fencegate:*", "+@all", "-hset", "(+hset ~fencegate:lease:{a} ~fencegate:leases)")
    with Resp(leases.redis.port, user="one-of-two", password="x") as leases.client:
        leases.grant("one", resources="a,b")
    leases.client = None
    return leases.field("until", resource="a") is not None


def renewed_below_the_mark(leases):
    leases.token("one")
    leases.mark("35")
    return leases.renews("one", 34)


def renewed_by_another(leases):
    leases.token("one")
    return leases.renews("two", 34)


def renewed_with_another_token(leases):
    leases.token("one")
    leases.token("one", floor=34)
    return leases.renews("one", 34)


def renewed_behind_its_release(leases):
    released(leases)
    return leases.renews("one", 34)


def released_by_another(leases):
    leases.token("one")
    return leases.release("two", 34) == ["1"]


def released_with_another_token(leases):
    leases.token("one")
    leases.token("one", floor=34)
    return leases.release("one", 34) == ["1"]


class Mutations(LiveTest):
    """Each part of the scripts is needed: without it, an attack succeeds."""

    PARTS = (  # an attack; what is taken away, and what stands there instead
        (another_epoch, "if redis.call('GET', KEYS[1]) ~= ARGV[1] then", "if false then"),
        (another_issuer, "if ARGV[2] ~= '' and issuer ~= ARGV[2] then", "if false then"),
        (a_lost_store, "if ARGV[2] ~= '' and issuer ~= ARGV[2] then", "if false then"),
        (a_replica_that_may_be_written, "~= 'master' then", "== 'x' then"),
        (a_restart, "string.match(redis.call('INFO', 'server'), '\\nrun_id:(%S+)') .. ':'\n           .. ", ""),
        (a_promotion, "string.match(replication, '\\nmaster_replid:(%S+)') .. ':' .. ", ""),
        (a_new_epoch, ".. ':' .. string.gsub(ARGV[1], '~[0-9]+$', '')\n", "\n"),
        (a_row_that_was_forgotten, "(issuer or '') .. ':' .. (born or '')", "me"),
        (a_row_of_another_issuer, "me = (issuer or '') .. ':' .. me\n", "me = ':' .. me\n"),
        (the_same_id_behind_a_restart, "l.server == me and below(", "below("),
        (a_repeated_request_behind_its_release, "has(l.past, grant) or ", ""),
        (a_repeated_request_behind_its_end, " or l.grant == grant and l.till <= now", ""),
        (two_holders, "if held then", "if false then"),
        (sooner_than_at_least, "if l.till == 0 then return l.not_before end", "if l.till == 0 then return 0 end"),
        (sooner_than_the_delay, "l.till + l.delay * 1000", "l.till"),
        (a_clock_that_goes_back, "math.min(l.till, now + l.ttl * 1000)", "l.till"),
        (a_clock_that_goes_back, "redis.call('HSET', KEYS[3 + i], 'until', shown(till), 'not_before', shown(not_before))", ""),
        (a_clock_that_goes_back_and_at_least, "math.min(l.not_before, now + l.at_least * 1000)", "l.not_before"),
        (in_the_last_millisecond, "t[1] * 1000000 + t[2]", "math.floor(t[1] * 1000 + t[2] / 1000) * 1000"),
        (uncovered, "if uncovered or high then", "if high then"),
        (below_the_floor, "if below(l.highest, floor) then", "if false then"),
        (below_the_mark, "if below(l.highest, mark) then", "if false then"),
        (below_a_longer_floor, "if #a ~= #b then return #a < #b end", ""),
        (the_same_token_at_the_floor, "and below(floor, l.token) ", ""),
        (the_same_token_below_the_mark, "and below(floor, l.token) and not below(l.token, mark)", "and below(floor, l.token)"),
        (a_token_twice_beyond_lua, "redis.call('HINCRBY', KEYS[3 + i], 'token', l.server == me and '1' or stride)",
         "redis.call('HSET', KEYS[3 + i], 'token', shown(redis.call('HMGET', KEYS[3 + i], 'token')[1] + 1))"),
        (past_the_last, "if below(last, l.highest) then", "if false then"),
        (one_of_two, "  redis.call('HSET', KEYS[3 + i], 'token', rows[i].token)\n", ""),
        (renewed_below_the_mark, "l.till > 0 and not below(l.token, mark)", "l.till > 0"),
        (renewed_by_another, "l.grant == redis.sha1hex(ARGV[2 + n + i]) and ", ""),
        (renewed_with_another_token, "l.token == ARGV[2 + i] and ", ""),
        (renewed_behind_its_release, " and l.till > 0 and not below", " and not below"),
        (released_by_another, "l.grant == redis.sha1hex(ARGV[3 + n + i]) and ", ""),
        (released_with_another_token, "l.token == ARGV[3 + i] and ", ""),
    )

    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())

    def test_no_attack_succeeds(self):
        for attack in {one[0] for one in self.PARTS}:
            with self.subTest(attack.__name__):
                self.assertFalse(attack(Leases(self.redis).fresh()))

    def test_each_part(self):
        everything = script_of("compare_digits", "lease_lead", "name_issuer", "lease_rows", "lease_grant_script",
                               "lease_renew_script", "lease_release_script")
        for attack, part, instead in self.PARTS:
            with self.subTest(f"{attack.__name__}: {part}"):
                self.assertEqual(everything.count(part), 1)
                self.assertTrue(attack(Leases(self.redis, lambda text, p=part, i=instead: text.replace(p, i)).fresh()))


if __name__ == "__main__":
    main()
