"""The store of HTTP gates in Redis: marks raised and looked at, and commands that run in a script with their check."""

import hashlib

from cut_proxy import CutProxy, unread_bytes
from live_test import LiveTest, main
from processes import LOOPBACK, eventually, free_port
from redis_scripts import script_of
from redis_server import RedisServer
from resp import Resp
from store_probe import RedisProbe

MARK, MARK_OF_PAYMENTS = "fencegate:mark:{orders}", "fencegate:mark:{payments}"


class StoreTest(LiveTest):

    def probe(self, **conf):
        self.redis = self.start(RedisServer(**conf))
        self.redis.cli.call("SET", MARK, "33")
        return self.ready(self.redis.port)

    def ready(self, port):
        probe = self.start(RedisProbe(port))
        eventually(lambda: probe.seal("ready=1")[0] == "sealed")
        return probe

    def get(self, key):
        return self.redis.cli.call("GET", key)

    def mark(self, resource="orders"):
        return self.get(f"fencegate:mark:{{{resource}}}")


class Marks(StoreTest):

    def test_look_and_seal(self):
        probe = self.probe()
        self.assertEqual(probe.look("orders", "new"), ["found", "orders=33", "new="])
        self.assertEqual(probe.seal("orders=34,payments=7"), ["sealed", "orders=34!", "payments=7!"])
        self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34"])
        self.assertEqual(self.get(MARK), b"34")

    def test_rejections(self):
        probe = self.probe()
        self.assertEqual(probe.seal("orders=32")[:5], ["rejected", "stale", "orders", "32", "33"])
        self.assertEqual(probe.seal("orders=50", 10)[:5], ["rejected", "jump", "orders", "50", "33"])
        self.assertEqual(probe.run("orders=32", "SET", "k", "v")[:5], ["rejected", "stale", "orders", "32", "33"])
        self.assertIsNone(self.get("k"))

    def test_a_server_that_is_not_fit_is_not_asked(self):
        probe = self.probe()
        self.redis.cli.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        eventually(lambda: probe.look("orders")[:2] == ["rejected", "unavailable"])
        self.assertIn("can evict marks", probe.look("orders")[-1])

    def test_all_or_none(self):
        probe = self.probe()
        self.redis.cli.call("SET", MARK_OF_PAYMENTS, "7")
        for asked in (probe, self.ready(self.redis.port)):  # one has seen it, one has not
            stale = ["rejected", "stale", "payments", "6", "7"]
            self.assertEqual(asked.seal("orders=34,new=1,payments=6")[:5], stale)
            self.assertEqual(asked.run("orders=34,new=1,payments=6", "SET", "k", "v")[:5], stale)
            self.assertEqual(asked.seal("orders=34,payments=50", 10)[:5], ["rejected", "jump", "payments", "50", "7"])
            self.assertEqual((self.mark(), self.mark("new"), self.get("k")), (b"33", None, None))
        self.assertEqual(probe.seal("orders=34,payments=7,new=1"), ["sealed", "orders=34!", "payments=7", "new=1!"])

    def test_a_mark_that_would_expire_does_not(self):
        probe = self.probe()
        self.redis.cli.call("EXPIRE", MARK, 1000)
        self.assertEqual(probe.seal("orders=33,payments=1"), ["sealed", "orders=33", "payments=1!"])
        self.assertEqual(self.redis.cli.call("TTL", MARK), -1)


class AskedFirst(StoreTest):
    """Where this process has seen the marks at their tokens, it asks for them; whatever else is there, the script judges."""

    def sealed(self, tag="orders=34", answer=("sealed", "orders=34!")):
        probe = self.probe()
        self.assertEqual(probe.seal(tag), [*answer])
        self.redis.cli.call("CONFIG", "RESETSTAT")
        return probe

    def test_no_script_where_nothing_is_raised(self):
        probe = self.sealed("orders=34,payments=7", ("sealed", "orders=34!", "payments=7!"))
        for tag, step in (("orders=34", 0), ("payments=7,orders=34", 0), ("orders=34", 10)):
            self.assertEqual(probe.seal(tag, step), ["sealed", *tag.split(",")])
        self.assertEqual((self.redis.calls("getex"), self.redis.calls("eval")), (4, 0))
        self.assertEqual(probe.seal("orders=34,new=1"), ["sealed", "orders=34", "new=1!"])
        self.assertEqual(probe.seal("orders=35"), ["sealed", "orders=35!"])
        self.assertEqual(self.redis.calls("eval"), 2)

    def test_a_mark_that_was_looked_at(self):
        probe = self.probe()
        self.assertEqual(probe.look("orders"), ["found", "orders=33"])
        self.redis.cli.call("SET", MARK, "34")
        self.assertEqual(probe.seal("orders=33")[:5], ["rejected", "stale", "orders", "33", "34"])

    def test_a_raise_by_another_gate(self):
        probe = self.sealed("orders=34,payments=7", ("sealed", "orders=34!", "payments=7!"))
        other = self.ready(self.redis.port)
        self.assertEqual(other.seal("payments=8"), ["sealed", "payments=8!"])
        self.assertEqual(probe.seal("orders=34,payments=7")[:5], ["rejected", "stale", "payments", "7", "8"])
        self.assertEqual(other.seal("orders=35"), ["sealed", "orders=35!"])
        self.assertEqual(probe.seal("orders=34")[:5], ["rejected", "stale", "orders", "34", "35"])

    def test_marks_that_went_back_are_put_right(self):
        probe = self.sealed()
        for lost in (("DEL", MARK), ("SET", MARK, "10"), ("FLUSHALL",)):
            self.redis.cli.call(*lost)
            eventually(lambda: probe.seal("orders=34") == ["sealed", "orders=34"])
            self.assertEqual(self.mark(), b"34", lost)

    def test_what_is_no_mark(self):
        probe = self.sealed()
        for mark in ("034", "+34", "34 ", "", "x"):
            self.redis.cli.call("SET", MARK, mark)
            self.assertEqual(probe.seal("orders=34")[:2], ["rejected", "unavailable"], mark)
            self.assertEqual(self.mark(), mark.encode())
        self.redis.cli.call("DEL", MARK)
        self.redis.cli.call("RPUSH", MARK, "34")
        self.assertEqual(probe.seal("orders=34")[:2], ["rejected", "unavailable"])
        self.redis.cli.call("DEL", MARK)
        self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34"])

    def test_another_epoch(self):
        """The marks are what they were, but others may have been lost."""
        for change in (("DEL", "fencegate:epoch"), ("SET", "fencegate:epoch", "first-of-another-gate"),
                       ("SET", "fencegate:epoch", "")):
            probe = self.sealed()
            self.redis.cli.call(*change)
            self.assertEqual(probe.seal("orders=34")[:2], ["rejected", "unavailable"], change)
            self.redis.cli.call("SET", "fencegate:epoch", "an operator's")
            eventually(lambda p=probe: p.seal("orders=34") == ["sealed", "orders=34"])

    def test_an_expiry_is_taken_away_each_time(self):
        probe = self.sealed()
        for _ in range(2):
            self.redis.cli.call("EXPIRE", MARK, 1000)
            self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34"])
            self.assertEqual(self.redis.cli.call("TTL", MARK), -1)

    def test_who_may_not_ask_is_closed_out(self):
        for rights, why in ((("resetkeys", "~fencegate:epoch"), "NOPERM"), (("-getex",), "can't run this command")):
            probe = self.sealed()
            self.redis.cli.call("ACL", "SETUSER", "default", *rights)
            answer = probe.seal("orders=34")
            self.assertEqual(answer[:2], ["rejected", "unavailable"])
            self.assertIn(why, answer[-1])

    def test_a_server_on_which_marks_cannot_rise_proves_none(self):
        """It may be a primary that was superseded: the mark may be higher elsewhere."""
        nowhere = str(free_port())
        for demotion, why in ((("REPLICAOF", LOOPBACK, nowhere), "READONLY"),
                              (("CONFIG", "SET", "min-replicas-to-write", "1"), "NOREPLICAS")):
            probe = self.sealed()
            newcomer = self.ready(self.redis.port)  # has not seen the mark: the script has the word at once
            self.redis.cli.call(*demotion)
            for one in (probe, newcomer):  # long before the server is inspected again
                answer = one.seal("orders=34")
                self.assertEqual(answer[:2], ["rejected", "unavailable"], answer)
                self.assertIn(why, answer[-1])

    def test_a_connection_that_is_lost_meanwhile(self):
        self.redis = self.start(RedisServer())
        proxy = self.start(CutProxy(self.redis.port))
        probe = self.ready(proxy.port)
        self.assertEqual(probe.seal("ready=1"), ["sealed", "ready=1"])
        self.redis.stop_process()
        asked = probe.ask("seal", "ready=1", 0)
        eventually(lambda: unread_bytes(self.redis.port) > 50)  # the question
        proxy.cut_all()
        self.assertEqual(asked.answer()[:2], ["rejected", "unavailable"])
        self.redis.continue_process()
        eventually(lambda: probe.seal("ready=1") == ["sealed", "ready=1"])


class Refusals(StoreTest):
    """By Redis, half-way: whatever it refuses of what raises marks, nothing was raised and nothing ran."""

    def administer(self):
        """A user of the test's own: that of the store is the default one."""
        self.redis.cli.call("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
        self.redis.cli.call("AUTH", "admin", "secret")

    def allow(self, *rules):
        self.redis.cli.call("ACL", "SETUSER", "default", "on", "nopass", "resetkeys", "clearselectors", "+@all", *rules)

    def assert_closed(self, probe, why, tag="orders=34,payments=7"):
        for policy in ("", "once "):
            for answer in (probe.seal(policy + tag), probe.run(policy + tag, "INCR", "n")):
                self.assertEqual(answer[:2], ["rejected", "unavailable"])
                self.assertIn(why, answer[-1])
        self.assertEqual((self.mark(), self.get("n")), (b"33", None))

    def test_rights_to_one_of_the_marks(self):
        """Of the first as of the last."""
        probe = self.probe()
        self.administer()
        for open_to, closed_to in ((MARK, MARK_OF_PAYMENTS), (MARK_OF_PAYMENTS, MARK)):
            with self.subTest(closed_to):
                self.allow("~n", "~fencegate:epoch", "~" + open_to, "%R~" + closed_to)
                self.assert_closed(probe, "NOPERM")
                self.allow("~*", "-set", f"(+set ~{open_to})")
                self.assert_closed(probe, "can't access")  # the script began
                self.assertIsNone(self.mark("payments"))
        self.allow("~*")
        self.assertEqual(probe.run("once orders=34,payments=7", "INCR", "n"), ["done", "1"])

    def test_no_right_to_set(self):
        probe = self.probe()
        self.administer()
        self.allow("~*", "-set")
        self.assert_closed(probe, "can't run")

    def test_no_right_to_take_a_mark_away_again(self):
        """Where the command can fail, a mark that was not there must not stay."""
        probe = self.probe()
        self.administer()
        self.allow("~*", "-del")
        self.redis.cli.call("SET", "text", "no number")
        for command in (("INCR", "n"), ("INCR", "text")):
            self.assertEqual(probe.run("once payments=7", *command)[:2], ["rejected", "unavailable"])
            self.assertEqual((self.mark("payments"), self.get("n")), (None, None))
        self.assertEqual(probe.run("once orders=34", "INCR", "text")[0], "failed")  # this one was there
        self.assertEqual(self.mark(), b"33")
        self.assertEqual(probe.run("once orders=34", "INCR", "n"), ["done", "1"])
        self.assertEqual(probe.seal("once payments=7"), ["sealed", "payments=7!"])  # which nothing takes back

    def test_marks_of_another_type(self):
        probe = self.probe()
        self.redis.cli.call("RPUSH", MARK_OF_PAYMENTS, "7")
        self.assert_closed(probe, "WRONGTYPE")
        self.assert_closed(probe, "WRONGTYPE", "payments=7,orders=34")

    def test_no_memory(self):
        probe = self.probe(maxmemory_policy="noeviction")
        self.redis.cli.call("CONFIG", "SET", "maxmemory", "1")
        self.assert_closed(probe, "OOM")
        self.assertIsNone(self.mark("payments"))

    def test_no_replica(self):
        probe = self.probe()
        self.redis.cli.call("CONFIG", "SET", "min-replicas-to-write", "1")
        self.assert_closed(probe, "NOREPLICAS")
        self.assertIsNone(self.mark("payments"))


class Commands(StoreTest):

    def test_they_run_behind_their_check(self):
        probe = self.probe()
        self.assertEqual(probe.run("orders=33", "SET", "k", "in time"), ["done", "OK"])
        self.assertEqual(probe.run("orders=34,payments=7", "SET", "k", "raised first"), ["done", "OK"])
        self.assertEqual((self.get(MARK), self.get("k")), (b"34", b"raised first"))
        self.assertEqual(probe.run("orders=34", "LRANGE", "none", "0", "-1"), ["done", ""])
        self.assertEqual(probe.run("orders=34", "MGET", "k", "none"), ["done", "[raised first][(null)]"])

    def test_a_raise_in_between(self):
        """By another gate: what this one has seen is old."""
        probe = self.probe()
        self.assertEqual(probe.run("orders=33", "SET", "k", "1"), ["done", "OK"])
        self.redis.cli.call("SET", MARK, "34")
        self.assertEqual(probe.run("orders=33", "SET", "k", "a stale write")[:5],
                         ["rejected", "stale", "orders", "33", "34"])
        self.assertEqual(self.get("k"), b"1")

    def test_a_raise_in_between_of_one_of_several(self):
        probe = self.probe()
        self.assertEqual(probe.run("orders=33,payments=7", "SET", "k", "1"), ["done", "OK"])
        self.redis.cli.call("SET", "fencegate:mark:{payments}", "8")
        self.assertEqual(probe.run("orders=33,payments=7", "SET", "k", "a stale write")[:5],
                         ["rejected", "stale", "payments", "7", "8"])
        self.assertEqual(self.get("k"), b"1")

    def test_many_at_once_share_a_link(self):
        probe = self.probe()
        asked = [probe.ask("run", "orders=33", "INCR", "n") for _ in range(200)]
        self.assertEqual([one.answer() for one in asked], [["done", str(n)] for n in range(1, 201)])
        self.assertLessEqual(len(self.redis.cli.call("CLIENT", "LIST").splitlines()), 3)

    def test_requests_that_only_read(self):
        probe = self.probe()
        self.redis.cli.call("SET", "k", "v")
        for tag in ("read orders=33", "read orders=50,new=1", "none"):
            self.assertEqual(probe.run(tag, "GET", "k"), ["done", "v"])
        self.assertEqual(probe.run("read orders=32", "GET", "k")[:2], ["rejected", "stale"])
        self.assertEqual(probe.run("read orders=33", "SET", "k", "x")[:2], ["rejected", "refused"])
        self.assertEqual((self.get(MARK), self.get("k")), (b"33", b"v"))

    def test_errors_of_the_command(self):
        probe = self.probe()
        self.redis.cli.call("SET", "k", "text")
        failed = probe.run("orders=33", "INCR", "k")
        self.assertEqual(failed[0], "failed")
        self.assertIn("not an integer", failed[1])

    def test_what_is_refused(self):
        probe = self.probe()
        for command in (["FLUSHALL"], ["SET", MARK, "99"], ["SET", "fencegate:epoch", "x"],
                        ["CONFIG", "SET", "save", ""], ["MULTI"], ["EXEC"], ["SUBSCRIBE", "c"], ["EVAL", "return 1", "0"],
                        ["SELECT", "1"], ["RENAME", "k", MARK], ["SORT", "k", "STORE", MARK],
                        ["BLPOP", "k", "0"], ["nonsense"], ["nonsense", MARK]):
            answer = probe.run("orders=33", *command)
            self.assertIn(answer[0], ("rejected", "failed"), command)
            if command[0] != "nonsense":
                self.assertEqual(answer[:2], ["rejected", "refused"], command)
        self.assertEqual(self.get(MARK), b"33")

    def test_marks_that_were_lost(self):
        """Together with everything: they are put back before anything is written."""
        probe = self.probe()
        self.assertEqual(probe.run("orders=40", "SET", "k", "v"), ["done", "OK"])
        self.redis.cli.call("FLUSHALL")
        self.assertEqual(probe.run("orders=39", "SET", "k", "a stale write")[:2], ["rejected", "stale"])
        eventually(lambda: probe.run("orders=40", "SET", "k", "w") == ["done", "OK"])
        self.assertEqual(self.get(MARK), b"40")

    def test_a_server_that_is_full(self):
        probe = self.probe(maxmemory="3mb", maxmemory_policy="noeviction")
        self.redis.cli.call("CONFIG", "SET", "maxmemory", "1")
        self.assertIn(probe.run("orders=33", "SET", "k", "v")[0], ("rejected", "failed"))
        self.assertIsNone(self.get("k"))


class Spending(StoreTest):
    """equal_token: reject."""

    def test_a_token_is_good_for_one(self):
        probe = self.probe()
        self.assertEqual(probe.run("once orders=34", "INCR", "n"), ["done", "1"])
        used = ["rejected", "equal", "orders", "34", "34", ""]
        self.assertEqual(probe.run("once orders=34", "INCR", "n"), used)
        self.assertEqual(self.ready(self.redis.port).run("once orders=34", "INCR", "n"), used)  # remembers nothing
        self.assertEqual(probe.run("once orders=33", "INCR", "n")[:2], ["rejected", "stale"])
        self.assertEqual(probe.seal("once orders=35"), ["sealed", "orders=35!"])
        self.assertEqual(probe.seal("once orders=35"), ["rejected", "equal", "orders", "35", "35", ""])
        self.assertEqual(probe.seal("orders=35"), ["sealed", "orders=35"])
        self.assertEqual(probe.run("none", "INCR", "n"), ["done", "2"])
        self.assertEqual((self.get("n"), self.mark()), (b"2", b"35"))

    def test_numbers_are_compared_exactly(self):
        probe = self.probe()
        largest = 2**63 - 1
        steps = [34, 99, 100, 2**53, 2**53 + 1, 2**53 + 2, largest - 1, largest]
        for low, high in zip(steps, steps[1:]):
            self.redis.cli.call("SET", MARK, str(low))
            fresh = self.ready(self.redis.port)  # whose memory does not help
            self.assertEqual(fresh.run(f"once orders={high}", "INCR", "n")[0], "done", (low, high))
            self.assertEqual(self.mark(), str(high).encode())
            self.redis.cli.call("SET", MARK, str(high))
            fresh = self.ready(self.redis.port)
            self.assertEqual(fresh.run(f"once orders={low}", "INCR", "n")[:2], ["rejected", "stale"], (low, high))
            self.assertEqual(self.mark(), str(high).encode())
        self.assertEqual(self.get("n"), str(len(steps) - 1).encode())

    def test_marks_that_are_no_numbers_are_left_alone(self):
        for mark in ("034", "+3", "-0", "", "x", "3 ", "3.0", "00", "9" * 20):
            probe = self.probe()
            self.redis.cli.call("SET", MARK, mark)
            self.assertEqual(probe.run("once orders=100", "INCR", "n")[:2], ["rejected", "unavailable"], mark)
            self.assertEqual((self.mark(), self.get("n")), (mark.encode(), None))

    def test_all_or_nothing(self):
        probe = self.probe()
        self.assertEqual(probe.run("once orders=34,new=0", "INCR", "n"), ["done", "1"])
        for tag, why in (("orders=35,new=0", "equal"), ("new=1,orders=34", "equal"), ("new=1,orders=33", "stale")):
            for asked in (probe, self.ready(self.redis.port)):
                self.assertEqual(asked.run("once " + tag, "INCR", "n")[:2], ["rejected", why], tag)
                self.assertEqual(asked.seal("once " + tag)[:2], ["rejected", why], tag)
        self.assertEqual((self.mark(), self.mark("new"), self.get("n")), (b"34", b"0", b"1"))

    def test_what_fails_has_used_nothing(self):
        probe = self.probe()
        self.redis.cli.call("SET", "k", "text")
        self.assertEqual(probe.run("once orders=34,new=1", "INCR", "k")[0], "failed")
        self.assertEqual((self.mark(), self.mark("new")), (b"33", None))
        self.assertEqual(probe.run("once orders=34,new=1", "SET", "k", "1"), ["done", "OK"])

    def test_marks_that_went_back_are_put_right_first(self):
        probe = self.probe()
        self.redis.cli.call("SET", "k", "text")
        for lost in (("SET", MARK, "10"), ("DEL", MARK)):
            with self.subTest(lost[0]):
                token = 50 if lost[0] == "SET" else 60
                self.assertEqual(probe.seal(f"orders={token}"), ["sealed", f"orders={token}!"])
                self.redis.cli.call(*lost)
                self.assertEqual(probe.run(f"once orders={token + 15}", "INCR", "k")[0], "failed")
                self.assertEqual(self.mark(), str(token).encode())
                self.redis.cli.call(*lost)  # the step is measured from what was seen
                answer = probe.seal(f"once orders={token + 15}", 10)
                self.assertEqual(answer, ["rejected", "jump", "orders", str(token + 15), str(token), ""])

    def test_steps(self):
        probe = self.probe()
        self.assertEqual(probe.seal("once orders=44", 10), ["rejected", "jump", "orders", "44", "33", ""])
        self.assertEqual(probe.seal("once orders=43,new=1000", 10), ["sealed", "orders=43!", "new=1000!"])

    def test_of_many_at_the_same_time_one_gets_through(self):
        probe = self.probe()
        probes = [probe] + [self.ready(self.redis.port) for _ in range(2)]
        for token, what, words in ((34, "run", ("INCR", "n")), (35, "seal", (0,))):
            asked = [one.ask(what, f"once orders={token}", *words) for _ in range(50) for one in probes]
            answers = [one.answer() for one in asked]
            self.assertEqual(len([one for one in answers if one[0] != "rejected"]), 1)
            self.assertEqual({tuple(one[:5]) for one in answers if one[0] == "rejected"},
                             {("rejected", "equal", "orders", str(token), str(token))})
        self.assertEqual(self.get("n"), b"1")
        asked = [one.ask("run", f"once orders={token}", "INCR", "n") for token in range(36, 136) for one in probes]
        answers = [one.answer()[:2] for one in asked]
        done = [one for one in answers if one[0] == "done"]
        self.assertEqual({tuple(one) for one in answers if one[0] != "done"} - {("rejected", "equal"), ("rejected", "stale")},
                         set())
        self.assertEqual(self.get("n"), str(1 + len(done)).encode())
        self.assertEqual(self.mark(), b"135")

    def test_marks_that_were_lost_are_put_back_first(self):
        probe = self.probe()
        self.assertEqual(probe.run("once orders=40", "SET", "k", "v"), ["done", "OK"])
        self.redis.cli.call("FLUSHALL")
        self.assertEqual(probe.run("once orders=40", "SET", "k", "twice")[:2], ["rejected", "equal"])
        eventually(lambda: probe.run("once orders=41", "SET", "k", "w") == ["done", "OK"])
        self.assertEqual(self.mark(), b"41")


def raising_script():
    return script_of("exact_integers", "compare_digits", "raise_marks")


class Mutations(LiveTest):
    """Each part of the script that raises marks is needed: without it, an attack succeeds."""

    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())
        call = cls.redis.cli.call
        call("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
        call("AUTH", "admin", "secret")
        call("ACL", "SETUSER", "no-del", "on", "nopass", "~*", "+@all", "-del")
        call("ACL", "SETUSER", "no-m1", "on", "nopass", "~*", "+@all", "-set", "(+set ~m0)")
        cls.clients = {user: cls.enterClassContext(Resp(cls.redis.port, user=user, password="x"))
                       for user in ("no-del", "no-m1")}

    def run_it(self, script, *command, policy="spend", mark="33", tokens=("34",), least=("0",), seen=("",), epoch="e",
               record=None, user=None):
        """What it answered; keys m0, m1 …, of which the first has the mark, and r0 the record of its grant."""
        call = self.redis.cli.call
        call("FLUSHALL")
        call("SET", "epoch", "e")
        call("SET", "text", "no number")
        if mark is not None:
            call("SET", "m0", mark)
        if record is not None:
            call("SET", "r0", record)
        keys = [f"{kind}{i}" for kind in "mr" for i in range(len(tokens))] + ["epoch"]
        words = "EVAL", script, len(keys), *keys, epoch, policy, *tokens, *least, *seen, *command
        return self.clients[user].call(*words) if user else call(*words)

    def attacks(self, script):
        """Which of them succeed."""
        def get(key):
            return self.redis.cli.call("GET", key)

        def runs(**how):
            self.run_it(script, "INCR", "n", **how)
            return get("n") is not None

        def leaves(mark, command=("INCR", "text"), **how):
            self.run_it(script, *command, mark=mark, **how)  # fails
            return get("m0") != (mark and mark.encode())

        def raises_one(**how):
            self.run_it(script, tokens=("34", "7"), least=("0", "0"), seen=("", ""), **how)
            return get("m0") != b"33"

        two = {"tokens": ("34", "7"), "least": ("34", "0"), "seen": ("", "")}
        return {"epoch": runs(epoch="another"), "equal": runs(mark="34"), "lower": runs(mark="35"),
                "lower, raised": runs(mark="35", policy="raise"), "longer": runs(mark="100", tokens=("99",)),
                "least": runs(mark="9", least=("10",)), "canonical": runs(mark="+3"),
                "one of two": runs(mark="33", **two), "went back": runs(mark="9", seen=("10",)), "vanished": runs(mark=None, seen=("10",)),
                "leased": runs(record="33 issuer grant"), "leased, raised": runs(record="33 issuer grant", policy="raise"),
                "leased, gone": runs(record="33 issuer grant", mark=None, policy="raise"),
                "undo": leaves("33"), "undo new": leaves(None),
                "no right to undo": leaves(None, user="no-del"),
                "too many words": leaves("33", ("RPUSH", "n", *["x"] * 10_000)),
                "no right to one": raises_one(user="no-m1"),
                "no right to one, raised": raises_one(user="no-m1", policy="raise")}

    PARTS = {  # what is taken away, what stands there instead
        "epoch": ("if redis.call('GET', KEYS[#KEYS]) ~= ARGV[1] then", "if false then"),
        "leased": ("if not stays and redis.call('GET', KEYS[n + i]) then", "if false then"),
        "equal": (" and not spends", ""),
        "canonical": ("not (canonical and below(mark, token)", "not (below(mark, token)"),
        "lower": ("below(mark, token) and ", ""),
        "least": (" and not below(mark, least)", ""),
        "longer": ("if #a ~= #b then return #a < #b end", ""),
        "went back": (" and not below(mark, seen)", ""),
        "vanished": ("seen ~= '' and", "seen ~= '' and mark and"),
        "undo": ("else redis.call('SET', KEYS[i], was[i]) end", "end"),
        "undo new": ("then redis.call('DEL', KEYS[i]) else", "then else"),
        "no right to undo": ("if was[i] == '' and #ARGV >= command then redis.call('DEL', KEYS[i]) end", ""),
        "too many words": ("pcall(function() return redis.pcall(unpack(ARGV, command)) end)",
                           "true, redis.pcall(unpack(ARGV, command))"),
        "no right to one": ("redis.call('SET', KEYS[i], ARGV[2 + i], was[i] == '' and 'XX' or 'NX')", ""),
    }

    def test_the_whole_script(self):
        script = raising_script()
        self.assertEqual(self.run_it(script, "INCR", "n"), 1)
        self.assertEqual(self.redis.cli.call("GET", "m0"), b"34")
        self.assertEqual(self.run_it(script), [b"33"])
        self.assertEqual(self.run_it(script, policy="raise", mark="34"), [b"34"])
        self.assertEqual(self.run_it(script, policy="raise", mark=None), [b""])
        self.assertEqual(self.run_it(script, policy="raise", mark="34", record="34 issuer grant"), [b"34"])
        self.assertEqual(str(self.run_it(script, record="33 issuer grant")), "FENCEGATELEASED 1 33")
        self.assertEqual([name for name, succeeded in self.attacks(script).items() if succeeded], [])

    def test_each_part(self):
        for name, (part, instead) in self.PARTS.items():
            with self.subTest(name):
                script = raising_script()
                self.assertEqual(script.count(part), 1)
                self.assertTrue(self.attacks(script.replace(part, instead))[name])


class Seals(LiveTest):
    """The script that seals marks; each part of it is needed."""

    @classmethod
    def setUpClass(cls):
        cls.redis = cls.enterClassContext(RedisServer())
        call = cls.redis.cli.call
        call("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
        call("AUTH", "admin", "secret")
        call("ACL", "SETUSER", "no-record", "on", "nopass", "~*", "+@all", "-set", "(+set ~m*)")
        cls.limited = cls.enterClassContext(Resp(cls.redis.port, user="no-record", password="x"))

    def seal(self, script, token="34", grant="one", issuer="main", seen="", epoch="e", client=None):
        words = "EVAL", script, 3, "m0", "r0", "epoch", epoch, issuer, grant, token, seen
        return (client or self.redis.cli).call(*words)

    def fresh(self, mark="33", record=None):
        call = self.redis.cli.call
        call("FLUSHALL")
        call("SET", "epoch", "e")
        if mark is not None:
            call("SET", "m0", mark)
        if record is not None:
            call("SET", "r0", record)

    def attacks(self, script):
        def seals(mark="33", record=None, **how):
            self.fresh(mark, record)
            return self.seal(script, **how) in ([0], [1])

        def changes(client):
            self.fresh()
            self.seal(script, client=client)  # fails
            return self.redis.cli.call("GET", "m0") != b"33"

        def twice():
            self.fresh()
            self.seal(script, grant="one")
            return self.seal(script, grant="two") in ([0], [1])

        return {"epoch": seals(epoch="another"), "stale": seals(mark="35"), "canonical": seals(mark="+3"),
                "longer": seals(mark="100", token="99"), "equal": twice(), "equal, nobody's": seals(mark="34"),
                "equal, raised past it": seals(mark="34", record="33 main " + "0" * 40),
                "issuer": seals(record="33 other " + "0" * 40), "issuer, no record of ours": seals(record="x"),
                "went back": seals(mark="9", seen="33"), "vanished": seals(mark=None, seen="33"),
                "no right to the record": changes(self.limited)}

    PARTS = {
        "epoch": ("if redis.call('GET', KEYS[#KEYS]) ~= ARGV[1] then", "if false then"),
        "stale": ("if mark and below(token, mark) then", "if false then"),
        "canonical": ("if mark and mark ~= '0' and not string.find(mark, '^[1-9][0-9]*$') then", "if false then"),
        "longer": ("if #a ~= #b then return #a < #b end", ""),
        "equal": ("if mark == token and record ~= records[i] then", "if false then"),
        "issuer": ("if record and owner ~= issuer then", "if false then"),
        "went back": ("(not mark or below(mark, seen))", "not mark"),
        "vanished": ("(not mark or below(mark, seen))", "mark and below(mark, seen)"),
        "no right to the record": ("for _, key in ipairs({KEYS[i], KEYS[n + i]}) do", "for _, key in ipairs({KEYS[i]}) do"),
    }

    def test_the_whole_script(self):
        script = script_of("compare_digits", "seal_marks")
        self.fresh()
        self.assertEqual(self.seal(script), [1])
        self.assertEqual(self.redis.cli.call("GET", "m0"), b"34")
        self.assertEqual(self.redis.cli.call("GET", "r0"), b"34 main " + hashlib.sha1(b"one").hexdigest().encode())
        self.assertEqual(self.seal(script), [0])
        self.assertEqual(self.seal(script, token="35", grant="two"), [1])
        self.assertEqual(str(self.seal(script, grant="one")), "FENCEGATESEAL 1 stale 35")
        self.assertEqual(str(self.seal(script, token="35", grant="one")), "FENCEGATESEAL 1 equal 35")
        self.assertEqual(str(self.seal(script, token="36", issuer="other")), "FENCEGATESEAL 1 issuer 35")
        self.fresh(mark=None)
        self.assertEqual(self.seal(script), [1])
        self.assertEqual([name for name, succeeded in self.attacks(script).items() if succeeded], [])

    def test_each_part(self):
        for name, (part, instead) in self.PARTS.items():
            with self.subTest(name):
                script = script_of("compare_digits", "seal_marks")
                self.assertEqual(script.count(part), 1)
                self.assertTrue(self.attacks(script.replace(part, instead))[name])


class Connections(StoreTest):

    def test_a_connection_that_is_lost_leaves_the_outcome_unknown(self):
        self.redis = self.start(RedisServer())
        proxy = self.start(CutProxy(self.redis.port))
        probe = self.ready(proxy.port)
        self.redis.stop_process()
        asked = probe.ask("run", "ready=1", "INCR", "n")
        behind = probe.ask("look", "ready")  # goes the same way
        eventually(lambda: unread_bytes(self.redis.port) > 400)  # the script of the check
        proxy.cut_all()
        self.assertEqual(asked.answer()[0], "unknown")
        self.assertEqual(behind.answer()[0], "rejected")
        self.redis.continue_process()
        eventually(lambda: probe.run("ready=1", "GET", "n")[0] == "done")
        self.assertIn(self.get("n"), (None, b"1"))  # not sent again

    def test_asking_again_with_a_token_tells_whether_it_was_used(self):
        self.redis = self.start(RedisServer())
        proxy = self.start(CutProxy(self.redis.port))
        probe = self.ready(proxy.port)
        for n in range(1, 4):
            self.redis.stop_process()
            asked = probe.ask("run", f"once orders={n}", "INCR", "n")
            proxy.cut_all()  # on its way, or not
            self.assertIn(asked.answer()[0], ("unknown", "rejected"))
            self.redis.continue_process()
            again = eventually(lambda token=n: (answer := probe.run(f"once orders={token}", "INCR", "n"))[:2]
                               != ["rejected", "unavailable"] and answer)
            self.assertIn(again[:2], (["rejected", "equal"], ["done", str(n)]))
            self.assertEqual(self.get("n"), str(n).encode())

    def test_a_server_that_is_frozen(self):
        probe = self.probe()
        self.redis.stop_process()
        asked = probe.ask("run", "orders=33", "SET", "k", "v")
        self.assertEqual(asked.answer()[0], "unknown")
        # What is sent on the connection before it is given up has an unknown end, too.
        eventually(lambda: probe.run("orders=33", "SET", "k", "w")[:2] == ["rejected", "unavailable"])
        self.redis.continue_process()
        eventually(lambda: probe.run("orders=33", "SET", "k", "w") == ["done", "OK"])

    def test_no_server(self):
        probe = self.start(RedisProbe(free_port()))
        for _ in range(3):
            self.assertEqual(probe.run("orders=33", "SET", "k", "v")[:2], ["rejected", "unavailable"])


if __name__ == "__main__":
    main(at_once=2)
