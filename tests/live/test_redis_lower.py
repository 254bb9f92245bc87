"""`fencegate marks lower` in Redis: a mark that nobody should have raised is taken back, and every running gate follows."""

import json
import threading

from documents import gates_user
from gate_process import Gate
from http_gate import HttpGate, Upstream
from live_test import main
from lowering import POISON, HeldCommand, LowerTest
from processes import LOOPBACK, eventually
from redis_server import RedisServer
from resp import Resp

MARK = "fencegate:mark:{orders}"


class RedisTest(LowerTest):
    login = ""

    def setUp(self):
        self.redis = self.start(RedisServer())
        self.folder = self.redis.folder
        self.configure({"name": "cache", "protocol": "redis", "upstream": f"redis://{self.login}{LOOPBACK}:{self.redis.port}"})

    def mark(self, resource="orders"):
        return self.redis.cli.call("GET", f"fencegate:mark:{{{resource}}}")

    def gate(self, **policy):
        return self.start(Gate(self.redis, policy={"max_step": 0} | policy))

    def client(self, gate, token):
        return self.start(Resp(gate.port, name=f"fence:orders={token}"))

    def poisoned(self, gate):
        """Clients of 41 and 42, behind a mark that was raised to the most there is; and of that."""
        older = self.client(gate, 41)
        self.assertEqual(older.call("SET", "k", "41"), b"OK")
        poison = self.client(gate, POISON)
        self.assertEqual(poison.call("SET", "k", "poison"), b"OK")
        newer = self.client(gate, 42)
        for one in (older, newer):
            self.assert_error(one.call("SET", "k", "x"), "FENCED")
        return older, newer, poison

    def assert_writes(self, client, value):
        answers = []
        self.assertTrue(eventually(lambda: answers.append(client.call("SET", "k", value)) or answers[-1] == b"OK"), answers[-1:])

    def assert_mark(self, mark):
        self.assertTrue(eventually(lambda: self.mark() == str(mark).encode()), self.mark())


class Rights(RedisTest):
    login = "fencegate:gate-secret@"

    def test_the_gates_user_needs_no_other_right(self):
        gates_user(self.redis)
        self.redis.cli.call("SET", MARK, "9")
        self.lowered(8, "--force")
        self.assertEqual(self.mark(), b"8")


class Running(RedisTest):
    def test_those_that_were_shut_out_write_again_on_their_connections(self):
        gates = [self.gate() for _ in range(2)]
        older, newer, _ = self.poisoned(gates[0])
        elsewhere = self.client(gates[1], 42)
        self.assert_error(elsewhere.call("SET", "k", "x"), "FENCED")
        self.assertEqual(self.lower(41, "--force"), (0, f"gate:cache: orders: the mark was {POISON} and is 41; running gates "
                                                         "follow within seconds\n", ""))
        self.assert_writes(newer, "42")
        self.assert_writes(elsewhere, "42 elsewhere")
        self.assert_error(older.call("SET", "k", "x"), "FENCED")
        self.assertEqual((self.mark(), self.redis.cli.call("GET", "k")), (b"42", b"42 elsewhere"))
        for gate in gates:
            self.assert_follows(gate)
            said = [line for line in gate.log_lines() if line["msg"] == "an operator lowered the mark"]
            self.assertEqual([(one["resource"], one["from"], one["to"], one["reason"]) for one in said],
                             [("orders", POISON, 41, "a typing error")])
            self.assertNotIn("marks lost", gate.log())
            self.assertNotIn("mark went back", gate.log())

    def test_the_status_page_shows_the_mark_as_it_is(self):
        gate = self.gate()
        _, newer, _ = self.poisoned(gate)

        def shown():
            return [one["mark"] for one in json.loads(gate.http("/api/v1/status")[1])["resources"]]

        self.assertTrue(eventually(lambda: shown() == [str(POISON)]), shown())
        self.lowered(41, "--force")
        self.assert_writes(newer, "42")
        self.assertTrue(eventually(lambda: shown() == ["42"]), shown())

    def test_others_go_on_meanwhile(self):
        gate = self.gate()
        answers, over = [], threading.Event()

        def write():
            with Resp(gate.port, name="fence:stock=7") as client:
                while not over.is_set():
                    answers.append(client.call("INCR", "n"))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            self.poisoned(gate)
            # Of two between two looks of the gate the server tells the last one only.
            for times, to in enumerate(range(45, 40, -1), 1):
                self.lowered(to, "--force")
                self.assert_follows(gate, times)
        finally:
            over.set()
            thread.join()
        self.assertEqual(answers, list(range(1, len(answers) + 1)))

    def test_what_was_seen_before_is_not_put_back(self):
        gate = self.gate()
        self.poisoned(gate)
        self.lowered(41, "--force")
        self.assert_follows(gate)
        # Each makes the gate put back what it remembers.
        for what in (("DEL", MARK), ("FLUSHALL",)):
            self.redis.cli.call(*what)
            self.assert_mark(41)

    def test_what_rose_behind_it_is_put_back(self):
        gate = self.gate()
        _, newer, _ = self.poisoned(gate)
        self.lowered(41, "--force")
        self.assert_writes(newer, "42")
        # Up to where it was: that is no less a mark of behind.
        again = self.client(gate, POISON)
        self.assert_writes(again, "again")
        for what in (("SET", MARK, "41"), ("DEL", MARK), ("FLUSHALL",)):
            self.redis.cli.call(*what)
            self.assert_mark(POISON)
            self.assert_error(self.client(gate, 42).call("SET", "k", "x"), "FENCED")

    def test_what_others_raised_again_is_remembered_by_who_writes_under_it(self):
        gates = [self.gate() for _ in range(2)]
        holders = [self.client(gate, 60) for gate in gates]
        for one in holders:
            self.assertEqual(one.call("SET", "k", "60"), b"OK")
        self.lowered(41, "--force")
        for gate in gates:
            self.assert_follows(gate)
        self.assert_writes(holders[0], "60 again")
        self.assertEqual(holders[1].call("SET", "k", "60 elsewhere"), b"OK")
        gates[0].kill()
        self.redis.cli.call("DEL", MARK)
        self.assert_mark(60)
        self.assert_error(self.client(gates[1], 42).call("SET", "k", "stale"), "FENCED")

    def test_a_connection_whose_mark_was_lowered_raises_it_anew_if_it_may(self):
        for max_step, said in ((0, b"OK"), (1000, "FENCEJUMP")):
            with self.subTest(max_step=max_step):
                self.redis.cli.call("FLUSHALL")
                with Gate(self.redis, policy={"max_step": max_step}) as gate:
                    # The first mark of a resource has no step.
                    poison = self.client(gate, POISON)
                    self.assertEqual(poison.call("SET", "k", "poison"), b"OK")
                    self.lowered(41, "--force")
                    if said == b"OK":
                        self.assert_writes(poison, "again")
                        self.assert_mark(POISON)
                    else:
                        self.assertTrue(eventually(lambda: str(poison.call("SET", "k", "again")).startswith(said)))
                        self.assertEqual((self.mark(), self.redis.cli.call("GET", "k")), (b"41", b"poison"))

    def test_a_gate_that_stood_still_meanwhile(self):
        gate, frozen = self.gate(), self.gate()
        _, newer, _ = self.poisoned(gate)
        late = self.client(frozen, 42)
        self.assert_error(late.call("SET", "k", "x"), "FENCED")
        for to in (50, 41):  # twice
            frozen.stop_process()
            self.lowered(to, "--force")
            self.assertTrue(eventually(lambda: newer.call("SET", "k", "42") in (b"OK",) or to == 50))
            frozen.continue_process()
            self.assert_follows(frozen)
        self.assert_writes(late, "42 late")
        self.assertEqual(self.mark(), b"42")

    def test_one_that_stood_still_keeps_what_others_have_seen_behind_it(self):
        gate, frozen = self.gate(), self.gate()
        self.poisoned(gate)
        self.assert_error(self.client(frozen, 42).call("SET", "k", "x"), "FENCED")
        frozen.stop_process()
        self.lowered(41, "--force")
        self.assert_writes(self.client(gate, 60), "60")
        frozen.continue_process()
        self.assert_follows(frozen)
        self.assertTrue(eventually(lambda: self.client(frozen, 60).call("SET", "k", "60 again") == b"OK"))
        gate.kill()
        self.redis.cli.call("SET", MARK, "50")
        self.assert_mark(60)

    def test_each_token_once(self):
        gate = self.gate(equal_token="reject", reads="fence")
        used = self.client(gate, POISON)
        self.assertEqual(used.call("SET", "k", "poison"), b"OK")
        self.assert_error(used.call("SET", "k", "again"), "FENCEUSED")
        self.assertEqual(used.call("GET", "k"), b"poison")
        self.lowered(41, "--force")
        self.assert_follows(gate)
        newer = self.client(gate, 42)
        self.assertEqual(newer.call("GET", "k"), b"poison")
        self.assertEqual(newer.call("SET", "k", "42"), b"OK")
        self.assert_error(newer.call("SET", "k", "again"), "FENCEUSED")
        self.assert_error(self.client(gate, 41).call("SET", "k", "x"), "FENCED")
        # Above the mark, it is good once more.
        self.assertEqual(used.call("GET", "k"), b"42")
        self.assertEqual(used.call("SET", "k", "poison again"), b"OK")

    def test_a_store_of_an_http_gate(self):
        upstream = self.start(Upstream())
        gate = self.start(HttpGate(upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"},
                                   [{"match": "PUT /{id}", "resource": "orders", "guarantee": "checked"}],
                                   extra={"policy": {"max_step": 0}}))
        self.assertEqual(gate.request("PUT", "/1", b"x", token=POISON)[0], 200)
        self.assertEqual(gate.request("PUT", "/1", b"x", token=42)[0], 412)
        self.lowered(41, "--force")
        self.assertTrue(eventually(lambda: gate.request("PUT", "/1", b"x", token=42)[0] == 200))
        self.assertEqual(gate.request("PUT", "/1", b"x", token=41)[0], 412)
        self.redis.cli.call("SET", MARK, "30")
        self.assert_mark(42)


class StoodStill(RedisTest):
    def test_a_command_lowers_nothing_behind_another_lowering(self):
        """Two operators saw a mark of 60. Behind the lowering by one of them it has risen to 60 again."""
        gate = self.gate()
        self.poisoned(gate)
        self.lowered(60, "--force")
        self.assert_follows(gate)
        proxy = self.start(HeldCommand(self.redis.port, b"{'lowered'}"))
        said = []
        self.configure({"name": "cache", "protocol": "redis", "upstream": f"redis://{LOOPBACK}:{proxy.port}"})
        with proxy.while_it_stands_still(lambda: said.append(self.lower(41, "--force"))):
            self.configure({"name": "cache", "protocol": "redis", "upstream": f"redis://{LOOPBACK}:{self.redis.port}"})
            self.lowered(41, "--force")
            self.assert_follows(gate, 2)
            self.assert_writes(self.client(gate, 60), "good")
        ((status, printed, why),) = said
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("it has moved, or another was lowered meanwhile; look at it again", why)
        self.assertEqual(self.mark(), b"60")
        self.assert_error(self.client(gate, 50).call("SET", "k", "stale"), "FENCED")


class Words(RedisTest):
    def test_many(self):
        for number in range(1003):
            self.redis.cli.call("SET", f"fencegate:mark:{{r{number}}}", "9")
        self.redis.cli.call("SET", "fencegate:epoch", "e~1000")
        self.redis.cli.call("SET", "fencegate:lowered",
                            "0\te\n" + "".join(f"{number}\tr{number}\t9\t8\tme\twhy\n" for number in range(1000, 0, -1)))
        gate = self.gate()
        for number in (1001, 1002, 500):
            self.lowered(number % 9, "--force", resource=f"r{number}")
        forgotten, *lines = self.redis.cli.call("GET", "fencegate:lowered").decode().splitlines()
        self.assertEqual((forgotten, len(lines)), ("2\te", 1000))
        numbers = [int(line.split("\t")[0]) for line in lines]
        self.assertEqual(numbers, sorted(set(numbers), reverse=True))
        self.assertEqual(lines[0].split("\t")[1:4] + lines[0].split("\t")[5:], ["r500", "9", "5", "a typing error"])
        self.assertTrue(self.redis.cli.call("GET", "fencegate:epoch").decode().endswith(f"~{numbers[0]}"))
        self.assert_follows(gate, 3)

    def test_not_without_force(self):
        self.marks("raise", "orders", "--to", "9")
        before = self.redis.cli.call("GET", "fencegate:epoch")
        status, printed, said = self.lower(8)
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("gate:cache: orders: Redis does not keep what it was before; make sure that no older holder is at work, then "
                      "use --force", said)
        self.redis.cli.call("SET", "fencegate:grant:{orders}", "9 issuer hash")
        for more in ((), ("--force",)):
            self.assertIn("orders: its leases raise it: fencegate lease break orders", self.lower(8, *more)[2])
        self.assertEqual((self.mark(), self.redis.cli.call("GET", "fencegate:epoch")), (b"9", before))
        self.assertIsNone(self.redis.cli.call("GET", "fencegate:lowered"))

    def test_what_is_not_above(self):
        self.assertEqual(self.lower(8), (1, "", "fencegate marks: gate:cache: orders: there is no mark\n"))
        self.marks("raise", "orders", "--to", "9")
        for to in (9, 10):
            self.assertEqual(self.lower(to), (0, f"gate:cache: orders: the mark is 9, which is not above {to}\n", ""))

    def test_what_makes_no_sense(self):
        for reason in ("", "two\nlines", "x" * 201):
            status, _, said = self.lower(8, reason=("--reason", reason))
            self.assertEqual(status, 2)
            self.assertIn("--reason: one line of 1 to 200 bytes of UTF-8, without control characters", said)
        self.assertEqual(self.marks("lower", "orders", "--to", "8")[0], 2)
        self.assertEqual(self.lower("-1")[0], 2)


if __name__ == "__main__":
    main()
