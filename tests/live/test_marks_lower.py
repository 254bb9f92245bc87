"""`fencegate marks lower`: a mark that nobody should have raised is taken back, and every running gate follows."""

import json
import os
import subprocess

import psycopg2
import support
from documents import command, gates_user, run_shell
from http_gate import HttpGate, Upstream
from postgres import PgGate, PostgresServer, run_sql
from support import LOOPBACK, Gate, LiveTest, RedisServer, Resp, free_port

PAGE = "docs/operations.md"
MOST = 2**63 - 1
REASON = ("--reason", "a typing error")


def eventually(check):
    """Until nothing of it fails."""
    failed = []

    def holds():
        try:
            check()
        except AssertionError as e:
            failed[:] = [str(e)]
            return False
        return True

    try:
        support.eventually(holds)
    except AssertionError as e:
        raise AssertionError(failed[0]) from e


class LowerTest(LiveTest):
    redis_login = ""

    def setUp(self):
        self.redis = self.start(RedisServer())
        self.config = os.path.join(self.redis.folder, "fencegate.yaml")

    def configure(self, gate):
        with open(self.config, "w") as file:
            json.dump({"gates": [gate | {"listen": f"{LOOPBACK}:{free_port()}"}]}, file)

    def marks(self, *words):
        """(status, what it printed, what it complained of)"""
        done = subprocess.run([os.environ["FENCEGATE"], "marks", *words, "-c", self.config], text=True, capture_output=True,
                              timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def lower(self, to, *more, resource="orders", reason=REASON):
        return self.marks("lower", resource, "--to", str(to), *reason, *more)

    def assert_follows(self, gate):
        eventually(lambda: self.assertIn("an operator lowered the mark", gate.log()))


class RedisTest(LowerTest):

    def setUp(self):
        super().setUp()
        self.configure({"name": "cache", "protocol": "redis", "upstream": f"redis://{self.redis_login}{LOOPBACK}:{self.redis.port}"})

    def mark(self, resource="orders"):
        return self.redis.cli.call("GET", f"fencegate:mark:{{{resource}}}")


class RedisRights(RedisTest):
    redis_login = "fencegate:gate-secret@"

    def test_the_gates_user_needs_no_other_right(self):
        gates_user(self.redis)
        self.redis.cli.call("SET", "fencegate:mark:{orders}", "9")
        self.assertEqual(self.lower(8, "--force")[0], 0)
        self.assertEqual(self.mark(), b"8")


class Redis(RedisTest):

    def client(self, gate, token):
        return self.start(Resp(gate.port, name=f"fence:orders={token}"))

    def poisoned(self, gate):
        """Clients of 41 and 42, behind a mark that was raised to the most there is."""
        older = self.client(gate, 41)
        self.assertEqual(older.call("SET", "k", "41"), b"OK")
        poison = self.client(gate, MOST)
        self.assertEqual(poison.call("SET", "k", "poison"), b"OK")
        newer = self.client(gate, 42)
        for one in (older, newer):
            self.assert_error(one.call("SET", "k", "x"), "FENCED")
        return older, newer, poison

    def written(self, client, value):
        eventually(lambda: self.assertEqual(client.call("SET", "k", value), b"OK"))

    def test_those_that_were_shut_out_write_again_on_their_connections(self):
        gates = [self.start(Gate(self.redis, policy={"max_step": 0})) for _ in range(2)]
        older, newer, _ = self.poisoned(gates[0])
        elsewhere = self.client(gates[1], 42)
        self.assert_error(elsewhere.call("SET", "k", "x"), "FENCED")
        self.assertEqual(self.lower(41, "--force"), (0, f"gate:cache: orders: the mark was {MOST} and is 41; running gates follow "
                                                         "within seconds\n", ""))
        self.written(newer, "42")
        self.written(elsewhere, "42 elsewhere")
        self.assert_error(older.call("SET", "k", "x"), "FENCED")
        self.assertEqual((self.mark(), self.redis.cli.call("GET", "k")), (b"42", b"42 elsewhere"))
        for gate in gates:
            self.assert_follows(gate)

    def test_what_was_seen_before_is_not_put_back(self):
        gate = self.start(Gate(self.redis, policy={"max_step": 0}))
        self.poisoned(gate)
        self.lower(41, "--force")
        self.assert_follows(gate)
        # Each makes the gate put back what it remembers.
        for what in (("DEL", "fencegate:mark:{orders}"), ("FLUSHALL",)):
            self.redis.cli.call(*what)
            eventually(lambda: self.assertEqual(self.mark(), b"41"))

    def test_what_was_seen_behind_it_is(self):
        gate = self.start(Gate(self.redis, policy={"max_step": 0}))
        _, newer, _ = self.poisoned(gate)
        self.lower(41, "--force")
        self.written(newer, "42")
        self.redis.cli.call("SET", "fencegate:mark:{orders}", "41")
        eventually(lambda: self.assertEqual(self.mark(), b"42"))
        self.assert_error(self.client(gate, 41).call("SET", "k", "x"), "FENCED")

    def test_a_connection_whose_mark_was_lowered_raises_it_anew_if_it_may(self):
        for max_step, said in ((0, b"OK"), (1000, "FENCEJUMP")):
            with self.subTest(max_step=max_step):
                self.redis.cli.call("DEL", "fencegate:mark:{orders}")
                gate = self.start(Gate(self.redis, policy={"max_step": max_step}))
                # The first mark of a resource has no step.
                poison = self.client(gate, MOST)
                self.assertEqual(poison.call("SET", "k", "poison"), b"OK")
                self.assertEqual(self.lower(41, "--force")[0], 0)
                # Its mark is found lower than it was proven, before the gate has looked at what was lowered.
                answer = poison.call("SET", "k", "again")
                if isinstance(said, bytes):
                    eventually(lambda: self.assertEqual(poison.call("SET", "k", "again"), said))
                    self.assertEqual(self.mark(), str(MOST).encode())
                else:
                    self.assertNotEqual(answer, b"OK")
                    eventually(lambda: self.assert_error(poison.call("SET", "k", "again"), said))
                    self.assertEqual((self.mark(), self.redis.cli.call("GET", "k")), (b"41", b"poison"))
                gate.kill()
                self.lower(0, "--force")

    def test_a_gate_that_stood_still_meanwhile(self):
        gate, frozen = self.start(Gate(self.redis, policy={"max_step": 0})), self.start(Gate(self.redis, policy={"max_step": 0}))
        _, newer, _ = self.poisoned(gate)
        late = self.client(frozen, 42)
        self.assert_error(late.call("SET", "k", "x"), "FENCED")
        frozen.stop_process()
        self.lower(41, "--force")
        self.written(newer, "42")
        frozen.continue_process()
        self.written(late, "42 late")
        self.assert_follows(frozen)
        self.assertEqual(self.mark(), b"42")

    def test_a_gate_that_starts_behind_it_puts_back_as_any(self):
        self.redis.cli.call("SET", "fencegate:mark:{orders}", str(MOST))
        first = self.start(Gate(self.redis, policy={"max_step": 0}))
        self.lower(41, "--force")
        self.assertEqual(self.client(first, 60).call("SET", "k", "60"), b"OK")
        fresh = self.start(Gate(self.redis, policy={"max_step": 0}))
        self.assertEqual(self.client(fresh, 60).call("SET", "k", "60 again"), b"OK")
        first.kill()
        self.redis.cli.call("SET", "fencegate:mark:{orders}", "50")
        eventually(lambda: self.assertEqual(self.mark(), b"60"))

    def test_twice_and_many(self):
        gate = self.start(Gate(self.redis, policy={"max_step": 0}))
        for _ in range(2):
            _, newer, _ = self.poisoned(gate)
            self.lower(41, "--force")
            self.written(newer, "42")
            self.lower(40, "--force")
            eventually(lambda: self.assertEqual(self.client(gate, 41).call("SET", "k", "41"), b"OK"))
        for number in range(102):
            self.redis.cli.call("SET", f"fencegate:mark:{{r{number}}}", "9")
            self.lower(number % 9, "--force", resource=f"r{number}")
        lines = self.redis.cli.call("GET", "fencegate:lowered").decode().splitlines()
        self.assertEqual(len(lines), 100)
        numbers = [int(line.split("\t")[0]) for line in lines]
        self.assertEqual(numbers, sorted(set(numbers), reverse=True))
        self.assertEqual(lines[0].split("\t")[1:4] + lines[0].split("\t")[5:], ["r101", "9", "2", "a typing error"])
        gate.assert_running()

    def test_not_without_force(self):
        self.marks("raise", "orders", "--to", "9")
        status, printed, said = self.lower(8)
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("gate:cache: orders: Redis does not keep what it was before; make sure that no older holder is at work, then "
                      "use --force", said)
        self.redis.cli.call("SET", "fencegate:grant:{orders}", "9 issuer hash")
        self.assertIn("a lease has sealed it", self.lower(8)[2])
        self.assertEqual(self.mark(), b"9")
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
            self.assertIn("--reason: one line of 1 to 200 printable bytes", said)
        self.assertEqual(self.marks("lower", "orders", "--to", "8")[0], 2)
        self.assertEqual(self.lower("-1")[0], 2)

    def test_a_store_of_an_http_gate(self):
        upstream = self.start(Upstream())
        gate = self.start(HttpGate(upstream, {"cache": f"redis://{LOOPBACK}:{self.redis.port}"},
                                   [{"match": "PUT /{id}", "resource": "orders", "guarantee": "checked",
                                     "policy": {"max_step": 0}}]))
        self.assertEqual(gate.request("PUT", "/1", b"x", token=MOST)[0], 200)
        self.assertEqual(gate.request("PUT", "/1", b"x", token=42)[0], 412)
        self.lower(41, "--force")
        eventually(lambda: self.assertEqual(gate.request("PUT", "/1", b"x", token=42)[0], 200))
        self.assertEqual(gate.request("PUT", "/1", b"x", token=41)[0], 412)


class Postgres(LowerTest):

    def setUp(self):
        super().setUp()
        self.server = self.start(PostgresServer())
        self.server.user("gate")
        self.server.user("alice")
        self.server.install(gate_users=["gate"])
        self.server.sql("CREATE TABLE writes (who text)")
        self.server.sql("GRANT ALL ON writes TO alice")
        self.configure({"name": "db", "protocol": "postgres", "upstream": self.server.url("gate")})

    def client(self, gate, token, autocommit=True):
        connection = gate.connect(f"orders={token}", user="alice", autocommit=autocommit)
        self.addCleanup(connection.close)
        return connection

    def mark(self):
        return self.server.value("SELECT mark FROM fencegate.marks WHERE resource = 'orders'")

    def poisoned(self, gate):
        run_sql(self.client(gate, 41), "INSERT INTO writes VALUES ('41')")
        poison = self.client(gate, MOST)
        run_sql(poison, "INSERT INTO writes VALUES ('poison')")
        with self.assertRaises(psycopg2.OperationalError):
            self.client(gate, 42)
        return poison

    def may_write(self, gate, token):
        run_sql(self.client(gate, token), "INSERT INTO writes VALUES (%s)", str(token))

    def eventually_writes(self, gate, token):
        def writes():
            try:
                self.may_write(gate, token)
            except psycopg2.Error as e:
                self.fail(str(e))
        eventually(writes)

    def test_back_to_what_it_was_needs_no_force(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate"))
        self.poisoned(gate)
        self.assertEqual(self.lower(41), (0, f"gate:db: orders: the mark was {MOST} and is 41; running gates follow within "
                                             "seconds\n", ""))
        self.assert_follows(gate)
        self.eventually_writes(gate, 42)
        with self.assertRaises(psycopg2.Error):
            self.may_write(gate, 41)
        self.assertEqual(self.mark(), 42)
        self.assertEqual(self.server.sql("SELECT lowered_from, lowered_to, lowered_why FROM fencegate.marks"),
                         [(MOST, 41, "a typing error")])
        self.assertIn(" on ", self.server.value("SELECT lowered_by FROM fencegate.marks"))

    def test_below_that_it_does(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate"))
        self.poisoned(gate)
        status, printed, said = self.lower(40)
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("was 41 before it rose last: below that, the token of an older holder would be good again", said)
        self.assertEqual(self.mark(), MOST)
        self.assertEqual(self.lower(40, "--force")[0], 0)
        self.eventually_writes(gate, 41)
        self.assertIn("was 40 before it rose last", self.lower(39)[2])

    def test_a_mark_of_which_nobody_knows_what_it_was(self):
        self.server.sql("SELECT fencegate.raise('orders', 41)")
        self.server.sql("UPDATE fencegate.marks SET was = NULL")  # of an older version
        self.assertIn("was not known before", self.lower(40)[2])
        self.assertEqual(self.lower(40, "--force")[0], 0)

    def test_the_first_mark_of_all(self):
        self.server.sql("SELECT fencegate.raise('orders', %s)", MOST)
        self.assertEqual(self.lower(0)[0], 0)
        self.assertEqual(self.mark(), 0)

    def test_every_armed_session_ends_first_and_its_transaction_with_it(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate"))
        self.poisoned(gate)
        block = self.client(gate, MOST, autocommit=False)
        run_sql(block, "INSERT INTO writes VALUES ('late poison')")
        self.assertEqual(self.lower(41)[0], 0)
        with self.assertRaises(psycopg2.Error):
            block.commit()
        self.assertEqual(self.server.value("SELECT count(*) FROM writes WHERE who = 'late poison'"), 0)

    def test_a_guarded_transaction_ends_first(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate", guard="transaction"))
        self.poisoned(gate)
        block = self.client(gate, MOST, autocommit=False)
        run_sql(block, "INSERT INTO writes VALUES ('late poison')")
        self.assertEqual(self.lower(41)[0], 0)
        with self.assertRaises(psycopg2.Error):
            block.commit()
        self.assertEqual(self.server.value("SELECT count(*) FROM writes WHERE who = 'late poison'"), 0)
        self.assertEqual(self.mark(), 41)

    def test_what_was_seen_before_is_not_put_back_and_what_behind_it_is(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate"))
        self.poisoned(gate)
        self.lower(41)
        self.assert_follows(gate)
        self.eventually_writes(gate, 42)
        self.server.sql("UPDATE fencegate.marks SET mark = 30")
        eventually(lambda: self.assertEqual(self.mark(), 42))

    def test_a_gate_that_stood_still_meanwhile(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate"))
        self.poisoned(gate)
        gate.stop_process()
        self.assertEqual(self.lower(41)[0], 0)
        gate.continue_process()
        self.assert_follows(gate)
        self.eventually_writes(gate, 42)

    def test_a_gate_that_stood_still_while_it_was_lowered_twice(self):
        gate = self.start(PgGate(self.server, policy={"max_step": 0}, user="gate"))
        self.poisoned(gate)
        gate.stop_process()
        self.assertEqual(self.lower(41)[0], 0)
        self.server.sql("SELECT fencegate.raise('orders', 50)")
        self.assertEqual(self.lower(45)[0], 0)
        gate.continue_process()
        self.assert_follows(gate)
        self.eventually_writes(gate, 46)

    def test_a_raise_that_is_under_way_comes_first(self):
        self.server.sql("SELECT fencegate.raise('orders', 9)")
        raising = self.server.connect()
        raising.autocommit = False
        run_sql(raising, "SELECT fencegate.raise('orders', 10)")
        with self.assertRaises(psycopg2.Error) as refused:
            self.server.sql("SELECT fencegate.lower('orders', 9, 8, 'who', 'why', true, 300)")
        self.assertIn("it is locked by a raise", str(refused.exception))
        raising.commit()
        with self.assertRaises(psycopg2.Error) as refused:
            self.server.sql("SELECT fencegate.lower('orders', 9, 8, 'who', 'why', true)")
        self.assertIn("it is no longer 9", str(refused.exception))
        self.assertEqual(self.mark(), 10)

    def test_who_may(self):
        self.server.sql("SELECT fencegate.raise('orders', 9)")
        for call in ("fencegate.lower('orders', 9, 8, 'who', 'why', true)", "fencegate.lowered(0)"):
            with self.assertRaises(psycopg2.errors.InsufficientPrivilege):
                run_sql(self.server.connect(user="alice"), f"SELECT {call}")

    def test_a_store_of_an_http_gate(self):
        upstream = self.start(Upstream())
        gate = self.start(HttpGate(upstream, {"ledger": self.server.url("gate")},
                                   [{"match": "PUT /{id}", "resource": "orders", "policy": {"max_step": 0}}]))
        self.assertEqual(gate.request("PUT", "/1", b"x", token=41)[0], 200)
        self.assertEqual(gate.request("PUT", "/1", b"x", token=MOST)[0], 200)
        self.assertEqual(gate.request("PUT", "/1", b"x", token=42)[0], 412)
        printed = run_shell(command(PAGE, "fencegate marks lower"), self.redis.folder)
        self.assertIn("and is 41", printed)
        eventually(lambda: self.assertEqual(gate.request("PUT", "/1", b"x", token=42)[0], 200))
        self.server.sql("UPDATE fencegate.marks SET mark = 30")
        eventually(lambda: self.assertEqual(self.mark(), 42))


if __name__ == "__main__":
    support.main()
