"""`fencegate marks list | get | raise | bump`, in the stores and gates of a configuration."""

import json
import os
import subprocess

from documents import command, gates_user, run_shell
from gate_process import Gate
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, run_sql
from processes import PATIENCE, eventually, free_port
from redis_server import RedisServer
from resp import Resp

PAGE = "docs/operations.md"


class MarksTest(LiveTest):
    redis_login = ""

    def setUp(self):
        self.redis = self.start(RedisServer())
        self.server = self.start(PostgresServer())
        self.server.user("gate")
        self.server.install(gate_users=["gate"])
        self.config = os.path.join(self.redis.folder, "fencegate.yaml")
        self.configure()

    def configure(self, **more):
        config = {"stores": {"ledger": {"url": self.server.url("gate")}}, "gates": [
            {"name": "cache", "protocol": "redis", "listen": f"127.0.0.1:{free_port()}",
             "upstream": f"redis://{self.redis_login}127.0.0.1:{self.redis.port}"},
            {"name": "db", "protocol": "postgres", "listen": f"127.0.0.1:{free_port()}", "upstream": self.server.url("gate")}]}
        with open(self.config, "w") as file:
            json.dump(config | more, file)

    def run_words(self, *words):
        """(status, what it printed, what it complained of)"""
        done = subprocess.run([os.environ["FENCEGATE"], *words, "-c", self.config], text=True, capture_output=True, timeout=PATIENCE,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def marks(self, *words):
        return self.run_words("marks", *words)

    def listed(self, *words):
        status, printed, said = self.marks(*words, "--json")
        self.assertEqual((status, said), (0, ""))
        return json.loads(printed)


class Redis(MarksTest):

    def test_raise_get_and_list(self):
        self.assertEqual(self.marks("list", "--gate", "cache"),
                         (0, "PLACE  RESOURCE  MARK  RAISED  ISSUER  HOLDER\n", ""))
        self.assertEqual(self.listed("list", "--gate", "cache"), [])
        self.assertEqual(self.marks("raise", "orders", "--to", "34", "--gate", "cache"),
                         (0, "gate:cache: orders: the mark is 34\n", ""))
        self.assertEqual(self.marks("raise", "orders", "--to", "33", "--gate", "cache"),
                         (0, "gate:cache: orders: the mark is 34, which is above 33\n", ""))
        self.assertEqual(self.marks("raise", "a:b/c", "--to", "9223372036854775807", "--gate", "cache")[0], 0)
        self.assertEqual(self.listed("list", "--gate", "cache"),
                         [{"place": "gate:cache", "resource": "a:b/c", "mark": 9223372036854775807},
                          {"place": "gate:cache", "resource": "orders", "mark": 34}])
        self.assertEqual(self.listed("get", "orders", "--gate", "cache"),
                         [{"place": "gate:cache", "resource": "orders", "mark": 34}])
        self.assertEqual(self.listed("get", "nothing", "--gate", "cache"), [])
        status, printed, _ = self.marks("list", "--gate", "cache")
        self.assertEqual((status, printed.splitlines()[2].split()), (0, ["gate:cache", "orders", "34", "-", "-", "-"]))

    def test_a_gate_refuses_what_is_below(self):
        gate = self.start(Gate(self.redis))
        client = self.start(Resp(gate.port, name="fence:orders=34"))
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(self.marks("bump", "orders", "--by", "6", "--gate", "cache"),
                         (0, "gate:cache: orders: the mark is 40\n", ""))
        self.assert_error(client.call("SET", "k", "w"), "FENCED")

    def test_many(self):
        keys = [f"r{number:04}" for number in range(1500)]
        self.marks("raise", "first", "--to", "1", "--gate", "cache")
        self.redis.cli.call("MSET", *[word for key in keys for word in (f"fencegate:mark:{{{key}}}", "7")])
        listed = self.listed("list", "--gate", "cache")
        self.assertEqual([one["resource"] for one in listed], ["first", *keys])
        status, printed, said = self.marks("bump", "--all", "--by", "3", "--gate", "cache")
        self.assertEqual((status, said, len(printed.splitlines())), (0, "", 1501))
        self.assertEqual(set(self.redis.cli.call("MGET", *[f"fencegate:mark:{{{key}}}" for key in keys])), {b"10"})


    def test_a_mark_that_is_no_number_hides_no_other_and_can_be_replaced(self):
        key = "fencegate:mark:{broken}"
        for resource in ("a", "broken", "z"):
            self.marks("raise", resource, "--to", "34", "--gate", "cache")
        self.redis.cli.call("SET", key, "+35")
        status, printed, said = self.marks("list", "--gate", "cache", "--json")
        self.assertEqual(status, 1)
        self.assertEqual([(one["resource"], one.get("mark")) for one in json.loads(printed)], [("a", 34), ("broken", None), ("z", 34)])
        self.assertIn("gate:cache: broken: the mark is no number: +35; marks raise --force", said)
        status, printed, said = self.marks("bump", "--all", "--by", "1", "--gate", "cache")
        self.assertEqual((status, printed), (1, "gate:cache: a: the mark is 35\ngate:cache: z: the mark is 35\n"))
        self.assertIn("broken: the mark is no number", said)
        for word in ("raise", "lower"):
            why = ["--reason", "a typing error"] if word == "lower" else []
            for broken in ("+35", "9223372036854775808", "034"):
                with self.subTest(word=word, broken=broken):
                    self.redis.cli.call("SET", key, broken)
                    status, _, said = self.marks(word, "broken", "--to", "36", *why, "--gate", "cache")
                    self.assertEqual((status, self.redis.cli.call("GET", key)), (1, broken.encode()))
                    self.assertIn("--force", said)
                    self.assertEqual(self.marks(word, "broken", "--to", "36", *why, "--force", "--gate", "cache"),
                                     (0, "gate:cache: broken: the mark was no number and is 36\n", ""))
                    self.assertEqual(self.redis.cli.call("GET", key), b"36")
        self.redis.cli.call("DEL", key)
        self.redis.cli.call("LPUSH", key, "x")
        self.assertEqual(self.marks("raise", "broken", "--to", "37", "--force", "--gate", "cache"),
                         (0, "gate:cache: broken: the mark was no number and is 37\n", ""))
        self.assertEqual(self.redis.cli.call("GET", key), b"37")

    def test_a_reason_in_any_language(self):
        self.marks("raise", "orders", "--to", "34", "--gate", "cache")
        self.assertEqual(self.marks("lower", "orders", "--to", "30", "--reason", "größer als gewollt", "--force", "--gate", "cache")[0], 0)
        self.assertIn("größer als gewollt".encode(), self.redis.cli.call("GET", "fencegate:lowered"))
        for reason in ("a\tb", "a\u009bb", "a\x7fb"):
            self.assertEqual(self.marks("lower", "orders", "--to", "29", "--reason", reason, "--force", "--gate", "cache")[0], 2)

    def test_running_gates_follow_a_replacement(self):
        gate = self.start(Gate(self.redis))
        first = self.start(Resp(gate.port, name="fence:orders=34"))
        self.assertEqual(first.call("SET", "k", "v"), b"OK")
        self.redis.cli.call("SET", "fencegate:mark:{orders}", "nonsense")
        self.assert_error(first.call("SET", "k", "w"), "FENCEDOWN")
        self.assertEqual(self.marks("lower", "orders", "--to", "30", "--reason", "mended", "--force", "--gate", "cache")[0], 0)
        second = self.start(Resp(gate.port))
        eventually(lambda: second.call("FENCE", "SET", "orders", "31") == b"OK")
        self.assertEqual(second.call("SET", "k", "x"), b"OK")
        self.redis.cli.call("SET", "fencegate:mark:{orders}", "nonsense")
        self.assertEqual(self.marks("raise", "orders", "--to", "3", "--force", "--gate", "cache")[0], 0)
        eventually(lambda: self.redis.cli.call("GET", "fencegate:mark:{orders}") == b"31")


class RedisRights(MarksTest):
    redis_login = "fencegate:gate-secret@"

    def test_the_gates_user_needs_one_right_more(self):
        gates_user(self.redis)
        self.assertEqual(self.marks("raise", "orders", "--to", "34", "--gate", "cache")[0], 0)
        self.assertEqual(self.listed("get", "orders", "--gate", "cache")[0]["mark"], 34)
        status, _, said = self.marks("list", "--gate", "cache")
        self.assertEqual((status, said), (1, "fencegate marks: gate:cache: the gate's user lacks +scan\n"))
        gates_user(self.redis, "+scan")
        self.assertEqual(len(self.listed("list", "--gate", "cache")), 1)


class Postgres(MarksTest):

    def test_raise_get_and_list(self):
        self.assertEqual(self.marks("raise", "orders", "--to", "34", "--store", "ledger"),
                         (0, "store:ledger: orders: the mark is 34\n", ""))
        (one,) = self.listed("list", "--gate", "db")
        at = self.server.value("SELECT raised_at::text FROM fencegate.marks")
        self.assertEqual((one["place"], one["resource"], one["mark"]), ("gate:db", "orders", 34))
        self.assertRegex(one["raised_at"], r"^20\d\d-\d\d-\d\d ")
        self.assertEqual(len(one["raised_at"]), len(at))
        self.assertEqual([one["place"] for one in self.listed("list")], ["store:ledger", "gate:db"])
        self.assertEqual(self.listed("get", "orders", "--gate", "db"), [one])
        self.assertEqual(self.listed("get", "nothing"), [])

    def test_a_raise_ends_older_sessions(self):
        gate = self.start(PgGate(self.server, user="gate"))
        self.server.user("alice")
        client = gate.connect("orders=34", user="alice")
        self.assertEqual(self.marks("raise", "orders", "--to", "35", "--gate", "db")[0], 0)
        with self.assertRaises(Exception) as refused:
            run_sql(client, "SELECT 1")
        self.assertIn("token 34 of orders is below mark 35", str(refused.exception))
        client.close()

    def test_what_the_database_does_not_allow(self):
        self.server.sql("UPDATE fencegate.settings SET max_step = 5")
        self.server.sql("SELECT fencegate.raise('orders', 5)")
        status, printed, said = self.marks("raise", "orders", "--to", "34", "--gate", "db")
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("gate:db: orders: token 34 of orders", said)
        self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks"), 5)

    def test_of_a_search_path_nothing_is_believed(self):
        self.server.sql("CREATE SCHEMA evil")
        self.server.sql("CREATE FUNCTION evil.same(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$")
        self.server.sql("CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.same)")
        self.server.sql("GRANT USAGE ON SCHEMA evil TO PUBLIC")
        self.server.sql("SELECT fencegate.raise('orders', 5)")
        self.server.sql("ALTER DATABASE postgres SET search_path = evil, pg_catalog")
        self.assertEqual([one["mark"] for one in self.listed("list", "--gate", "db")], [5])

    def test_after_a_restored_backup(self):
        for resource, mark in (("orders", 34), ("payments", 7)):
            self.server.sql("SELECT fencegate.raise(%s, %s)", resource, mark)
        printed = run_shell(command(PAGE, "fencegate marks bump"), self.redis.folder)
        self.assertEqual(printed, "gate:db: orders: the mark is 1000034\ngate:db: payments: the mark is 1000007\n")
        printed = run_shell(command(PAGE, "fencegate marks list"), self.redis.folder)
        self.assertEqual(len(printed.splitlines()), 5)  # both names of the one database


class Leased(MarksTest):

    def setUp(self):
        super().setUp()
        self.configure(leases={"issuers": {"main": {"store": "ledger"}}})
        subprocess.run([os.environ["FENCEGATE"], "hold", "orders", "-c", self.config, "--", "true"], timeout=PATIENCE, check=True)

    def test_who_raised_it(self):
        _, shown, _ = self.run_words("lease", "show", "orders", "--json")
        holder = json.loads(shown)[0]["holder"]
        for place in ("gate:cache", "store:ledger"):
            (one,) = [mark for mark in self.listed("get", "orders") if mark["place"] == place]
            self.assertEqual((one["issuer"], one["holder"], one["mark"]), ("main", holder, 1))
            self.assertRegex(one["since"], r"^20\d\d-\d\d-\d\d ")
            (listed,) = [mark for mark in self.listed("list") if mark["place"] == place]
            self.assertEqual(listed, one)

    def test_only_leases_raise_it(self):
        for gate in ("cache", "db"):
            for words in (("raise", "orders", "--to", "9"), ("bump", "--all", "--by", "9")):
                status, printed, said = self.marks(*words, "--gate", gate)
                self.assertEqual((status, printed), (1, ""), (gate, words))
                self.assertIn("which only leases of its issuer raise; not applied; fencegate lease break orders raises it", said)
        self.assertEqual({one["mark"] for one in self.listed("list")}, {1})


class Questions(MarksTest):

    def refused(self, *words):
        status, printed, said = self.marks(*words)
        self.assertEqual((status, printed), (2, ""), words)
        return said

    def test_what_makes_no_sense(self):
        self.assertIn("marks are in several places: name one with --gate or --store", self.refused("raise", "orders", "--to", "3"))
        self.assertIn("no gate named x", self.refused("list", "--gate", "x"))
        self.assertIn("no store named x", self.refused("list", "--store", "x"))
        self.assertIn("--to: ", self.refused("raise", "orders", "--to", "034", "--gate", "db"))
        self.assertIn("--by: at least 1", self.refused("bump", "orders", "--by", "0", "--gate", "db"))
        self.assertIn("name resources, or --all", self.refused("bump", "--by", "1", "--gate", "db"))
        self.assertIn("name resources, or --all", self.refused("bump", "orders", "--all", "--by", "1", "--gate", "db"))
        self.assertIn("a resource is 1 to 200", self.refused("get", "a b"))

    def test_what_is_not_there(self):
        status, printed, said = self.marks("bump", "orders", "--by", "1", "--gate", "db")
        self.assertEqual((status, printed, said), (1, "", "fencegate marks: gate:db: orders: there is no mark\n"))
        self.marks("raise", "orders", "--to", "9223372036854775807", "--gate", "db")
        status, printed, said = self.marks("bump", "orders", "--by", "1", "--gate", "db")
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("no token is so far above", said)

    def test_a_server_that_is_down_is_said_and_the_others_are_shown(self):
        self.marks("raise", "orders", "--to", "3", "--gate", "db")
        self.redis.kill()
        status, printed, said = self.marks("list", "--json")
        self.assertEqual((status, len(json.loads(printed))), (1, 2))
        self.assertIn("fencegate marks: gate:cache: ", said)


if __name__ == "__main__":
    main()
