"""fencegate.lower: an operator takes back a mark in PostgreSQL, running gates follow, and what was seen behind it is not forgotten."""

import contextlib
import json
import os
import subprocess
import threading

import psycopg2

from cut_proxy import CutProxy
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from lowering import HeldCommand
from pg_fence import FenceTest, Rejected, add_mutations, within
from postgres import PgGate, PostgresServer, run_sql
from processes import LOOPBACK, PATIENCE, eventually, free_port
from test_pg_gate import PgGateTest
from test_pg_marks import HeldLooks

MOST = 2**63 - 1


def pg_gate(server, **options):
    """One through which the poison comes."""
    return PgGate(server, policy={"max_step": 0}, **options)


class HeldArms(CutProxy):
    """Keeps what the server answers to sessions that are armed with the poison, unless it is `passing`."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self.passing = threading.Event()
        self.arms = set()

    def relay(self, pair, sink, data):
        if sink is pair[1] and b"fencegate.arm_all(" in data and str(MOST).encode() in data:
            self.arms.add(pair)
        if sink is pair[0] and pair in self.arms:
            self.passing.wait()
        super().relay(pair, sink, data)


class LowerTest(PgGateTest):

    def lower(self, to, force=False, expected=MOST, why="a typing error", **_):
        return self.server.value("SELECT fencegate.lower(%s, %s, %s, 'mia', %s, %s)", self.resource, expected, to, why, force)

    def refused(self, state, *words, **how):
        error = self.rejected(state, self.lower, **({"to": 41} | how))
        for word in words:
            self.assertIn(word, str(error))

    def raised(self, token):
        self.server.sql("SELECT fencegate.raise(%s, %s)", self.resource, token)

    def poisoned(self, *gates):
        self.connect(41, gates[0])
        self.connect(MOST, gates[0])
        for gate in gates:
            self.rejected("ZF001", self.connect, 42, gate)

    def is_set_back(self, to=41, lowering=None):
        self.server.sql("UPDATE fencegate.marks SET mark = %s, lowering = coalesce(%s, lowering) WHERE resource = %s", to,
                        lowering, self.resource)

    def lowering(self):
        return self.server.value("SELECT lowering FROM fencegate.marks WHERE resource = %s", self.resource)

    def heard(self, gate):
        """What its log says of this mark: (from, to)."""
        return [(line["from"], line["to"]) for line in gate.log_lines()
                if line["msg"] == "an operator lowered the mark" and line["resource"] == self.resource]

    def follows(self, gate):
        eventually(lambda: self.heard(gate))

    def gone(self, connection):
        with self.assertRaises(psycopg2.Error):
            self.write(connection, "gone")


class Follows(LowerTest):
    """Gates that run meanwhile."""

    def test_those_that_were_shut_out_come_in(self):
        with pg_gate(self.server) as one, pg_gate(self.server) as other:
            self.poisoned(one, other)
            self.assertEqual(self.lower(41), 41)
            for gate in (one, other):
                eventually(lambda gate=gate: self.heard(gate) == [(MOST, 41)])
            self.write(self.connect(42, one), "42")
            self.rejected("ZF001", self.connect, 41, other)
            self.assertEqual((self.mark(), self.written()), (42, ["42"]))
            self.assertEqual((one.metric("regressions_total"), other.metric("regressions_total")), (0, 0))

    def test_what_was_seen_before_is_not_put_back_and_what_behind_it_is(self):
        with pg_gate(self.server) as gate:
            self.poisoned(gate)
            self.lower(41)
            self.follows(gate)
            lowering = self.lowering()
            self.connect(42, gate)
            self.is_set_back(30)
            eventually(lambda: self.mark() == 42)
            self.rejected("ZF001", self.connect, 41, gate)
            self.server.sql("DELETE FROM fencegate.marks WHERE resource = %s", self.resource)
            eventually(lambda: self.mark() == 42)
            self.assertEqual(self.lowering(), lowering)
            self.assertIsNone(self.server.value("SELECT was FROM fencegate.marks WHERE resource = %s", self.resource))

    def test_a_backup_from_before_it(self):
        with pg_gate(self.server) as gate:
            self.poisoned(gate)
            self.lower(41)
            self.follows(gate)
            lowering = self.lowering()
            self.connect(42, gate)
            self.is_set_back(41, 0)
            eventually(lambda: (self.mark(), self.lowering()) == (42, lowering))
            # From between the poison and the lowering: nobody knows what is right, and the higher one is safe.
            self.is_set_back(MOST, 0)
            eventually(lambda: self.lowering() == lowering)
            self.assertEqual(self.mark(), MOST)
            self.rejected("ZF001", self.connect, 43, gate)
            self.lower(42, force=True)
            eventually(lambda: self.heard(gate) == [(MOST, 41), (MOST, 42)])
            self.connect(43, gate)

    def test_a_gate_that_stood_still_remembers_what_rose_behind_it(self):
        with pg_gate(self.server) as gate:
            self.poisoned(gate)
            gate.stop_process()
            self.lower(41)
            with pg_gate(self.server) as other:
                self.connect(50, other)
            gate.continue_process()
            self.follows(gate)
            self.assertEqual(self.heard(gate), [(MOST, 50)])
            self.is_set_back()
            eventually(lambda: self.mark() == 50)

    def test_a_gate_that_stood_still_while_it_was_lowered_twice(self):
        with pg_gate(self.server) as gate:
            self.poisoned(gate)
            gate.stop_process()
            self.lower(41)
            self.raised(50)
            self.lower(45, force=True, expected=50)
            gate.continue_process()
            self.follows(gate)
            self.connect(46, gate)
            self.is_set_back(45)
            eventually(lambda: self.mark() == 46)

    def test_an_arm_behind_it_counts_before_the_gate_has_heard_of_it(self):
        with HeldLooks(self.server.port) as proxy, pg_gate(proxy) as gate:
            self.connect(41, gate)
            with proxy.held():
                self.raised(MOST)
                self.lower(41)
                self.connect(50, gate)
                self.is_set_back()
            eventually(lambda: self.mark() == 50)

    def test_a_raise_behind_it_counts_before_the_gate_has_heard_of_it(self):
        with HeldLooks(self.server.port) as proxy, pg_gate(proxy, guard="transaction") as gate:
            self.connect(41, gate)
            before = proxy.looks
            eventually(lambda: proxy.looks > before)  # the next look is two seconds away
            self.raised(MOST)
            self.lower(41)
            self.connect(50, gate)
            self.is_set_back()
            eventually(lambda: self.mark() == 50)

    def test_a_transaction_behind_it_counts_before_the_gate_has_heard_of_it(self):
        self.server.sql("GRANT fencegate_gate TO alice")
        with HeldLooks(self.server.port) as proxy, pg_gate(proxy, guard="transaction", user="alice") as gate:
            holder = self.connect(50, gate)
            with proxy.held():
                self.lower(41, force=True, expected=50)
                self.raised(50)
                self.write(holder, "50")
                self.is_set_back()
            eventually(lambda: self.mark() == 50)
            self.assertEqual(self.written(), ["50"])

    def test_an_error_behind_it_counts(self):
        with HeldLooks(self.server.port) as proxy, pg_gate(proxy) as gate:
            self.connect(41, gate)
            with proxy.held():
                self.raised(MOST)
                self.lower(41)
                self.raised(50)
                self.rejected("ZF001", self.connect, 49, gate)
                self.is_set_back()
            eventually(lambda: self.mark() == 50)

    def test_one_that_rises_to_what_it_was_has_not_gone_back(self):
        with HeldLooks(self.server.port) as proxy, pg_gate(proxy) as gate:
            self.connect(50, gate)
            with proxy.held() as before:
                self.lower(41, force=True, expected=50)
                self.connect(50, gate)
            eventually(lambda: proxy.looks > before + 2)
            self.assertEqual((gate.metric("regressions_total"), self.mark()), (0, 50))

    def test_poison_that_comes_late_says_nothing(self):
        with HeldArms(self.server.port) as proxy, pg_gate(proxy) as gate:
            self.connect(41, gate)
            arming = threading.Thread(target=self.arm_in_vain, args=(gate,))
            with contextlib.ExitStack() as late:
                late.callback(arming.join)
                late.callback(proxy.passing.set)
                arming.start()
                eventually(lambda: self.mark() == MOST and self.server.value(
                    "SELECT count(*) FROM fencegate.sessions WHERE resource = %s AND token = %s", self.resource, MOST))
                self.lower(41)
                # What another gate raises is a sign that this one has looked.
                self.raised(44)
                eventually(lambda: "is below mark 44" in str(self.late_rejection(gate)))
            self.assertEqual(self.mark(), 44)
            self.connect(45, gate)
            self.is_set_back(44)
            eventually(lambda: self.mark() == 45)

    def arm_in_vain(self, gate):
        with contextlib.suppress(psycopg2.Error):
            self.connect(MOST, gate)

    def late_rejection(self, gate):
        return self.rejected("ZF001", self.connect, 42, gate)


class Sessions(LowerTest):

    def test_every_armed_session_ends_and_its_transaction_with_it(self):
        with pg_gate(self.server) as gate, pg_gate(self.server, guard="transaction") as guarding:
            for other in (gate, guarding):
                with self.subTest(other is guarding):
                    self.resource += "x"
                    self.connect(41, gate)
                    block = self.connect(MOST, other, autocommit=False)
                    self.write(block, "late poison")
                    self.lower(41)
                    with self.assertRaises(psycopg2.Error):
                        block.commit()
                    self.assertEqual((self.mark(), self.written()), (41, []))

    def test_a_session_that_was_armed_with_less_ends_too(self):
        """As one that a superuser's write to the table has left."""
        with pg_gate(self.server) as gate:
            old = self.connect(41, gate)
            self.is_set_back(60)
            self.lower(50, force=True, expected=60)
            self.gone(old)

    def test_what_is_refused_ends_none(self):
        with pg_gate(self.server) as gate:
            self.raised(41)
            holder = self.connect(50, gate)
            self.refused("ZF006", "it is no longer 51", expected=51)
            self.refused("ZF003", "it is not below mark 50", expected=50, to=50)
            self.refused("ZF003", "a lowering says by whom and why", expected=50, why="")
            self.refused("ZF007", "was 41 before it rose last", expected=50, to=40)
            self.server.sql("UPDATE fencegate.marks SET issuer = gen_random_uuid() WHERE resource = %s", self.resource)
            for force in (False, True):
                self.refused("ZF007", f"its leases raise it: fencegate lease break {self.resource}", expected=50, force=force)
            self.write(holder, "still there")
            self.assertEqual((self.mark(), self.lowering()), (50, 0))
            self.assertEqual(self.server.value("SELECT count(*) FROM fencegate.lowerings WHERE resource = %s", self.resource), 0)

    def test_a_raise_that_is_under_way_comes_first(self):
        self.raised(9)
        with contextlib.closing(self.server.connect()) as raising:
            raising.autocommit = False
            run_sql(raising, "SELECT fencegate.raise(%s, 10)", self.resource)
            self.rejected("ZF006", self.server.sql, "SELECT fencegate.lower(%s, 9, 8, 'who', 'why', true, 300)", self.resource)
            raising.commit()
        self.refused("ZF006", "it is no longer 9", expected=9, to=8, force=True)
        self.assertEqual(self.mark(), 10)


class Prepared(LiveTest):

    def test_a_prepared_transaction_refuses_it_and_no_session_ends(self):
        server = self.start(PostgresServer(max_prepared_transactions=2))
        server.user("alice")
        server.install()
        with contextlib.closing(server.connect("alice")) as armed, contextlib.closing(server.connect()) as other:
            run_sql(armed, "SELECT fencegate.arm('orders', 50)")
            run_sql(other, "BEGIN")
            run_sql(other, "CREATE TABLE prepared ()")
            run_sql(other, "PREPARE TRANSACTION 'one'")
            with self.assertRaisesRegex(psycopg2.Error, "prepared transactions exist"):
                server.sql("SELECT fencegate.lower('orders', 50, 40, 'who', 'why', true)")
            self.assertEqual(run_sql(armed, "SELECT 1"), [(1,)])
            run_sql(other, "ROLLBACK PREPARED 'one'")
            self.assertEqual(server.value("SELECT fencegate.lower('orders', 50, 40, 'who', 'why', true)"), 40)
            with self.assertRaises(psycopg2.Error):
                run_sql(armed, "SELECT 1")


class Table(LowerTest):
    """The SQL alone."""

    def put_back(self, seen, under):
        return self.server.sql("SELECT mark, raised, lowering FROM fencegate.put_back(%s, %s, %s, 5000, 0)", self.resource, seen,
                               under)

    def test_what_is_written_down(self):
        self.raised(41)
        self.raised(MOST)
        self.lower(41)
        row = self.server.sql("SELECT mark, was, lowered_from, lowered_by, lowered_role, lowered_why, lowered_at "
                              "FROM fencegate.marks WHERE resource = %s", self.resource)[0]
        self.assertEqual(row[:6], (41, 41, MOST, "mia", "postgres", "a typing error"))
        self.assertEqual(self.server.sql('SELECT number, "from", "to", by, role, why, at FROM fencegate.lowerings WHERE resource = %s',
                                         self.resource), [(self.lowering(), MOST, 41, "mia", "postgres", "a typing error", row[6])])
        self.refused("ZF007", "was 41 before it rose last", expected=41, to=40)
        self.lower(40, force=True, expected=41)
        numbers = [n for (n,) in self.server.sql("SELECT number FROM fencegate.lowerings WHERE resource = %s ORDER BY at",
                                                 self.resource)]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[-1], self.lowering())

    def test_its_number_is_above_the_last_one_though_clocks_went_back(self):
        self.raised(41)
        self.is_set_back(41, 2**62)
        self.lower(40, force=True, expected=41)
        self.assertEqual(self.lowering(), 2**62 + 1)
        self.addCleanup(self.server.sql, "DELETE FROM fencegate.lowerings WHERE number >= %s", 2**62)
        resource, self.resource = self.resource, self.resource + ".other"
        self.raised(41)
        self.lower(40, force=True, expected=41)
        self.assertEqual(self.lowering(), 2**62 + 2, resource)

    def test_the_first_mark_of_all_goes_back_to_nothing(self):
        self.raised(MOST)
        self.assertEqual(self.lower(0), 0)

    def test_a_mark_of_which_nobody_knows_what_it_was(self):
        self.raised(41)
        self.put_back(50, 0)
        self.refused("ZF007", "was not known before it rose last", expected=50, to=49)
        self.lower(49, force=True, expected=50)
        self.assertEqual(self.mark(), 49)

    def test_putting_back(self):
        self.raised(41)
        self.raised(MOST)
        self.lower(41)
        last = self.lowering()
        for seen, under, then in ((MOST, 0, (41, False, last)), (MOST, last - 1, (41, False, last)), (41, last, (41, False, last)),
                                  (50, last, (50, True, last)), (49, last + 1, (50, False, last + 1)),
                                  (52, last + 2, (52, True, last + 2)), (52, last + 3, (52, False, last + 3))):
            with self.subTest(seen=seen, under=under - last):
                self.assertEqual(self.put_back(seen, under), [then])
                self.assertEqual((self.mark(), self.lowering()), (then[0], then[2]))
        self.rejected("ZF001", self.put_back, 51, last + 3)
        self.server.sql("DELETE FROM fencegate.marks WHERE resource = %s", self.resource)
        self.assertEqual(self.put_back(60, last), [(60, True, last)])

    def test_putting_poison_back_while_it_is_lowered(self):
        self.raised(41)
        with contextlib.closing(self.server.connect()) as lowering, contextlib.closing(self.server.connect()) as late:
            self.is_set_back(50)
            lowering.autocommit = False
            run_sql(lowering, "SELECT fencegate.lower(%s, 50, 41, 'who', 'why', true)", self.resource)
            answers = []
            putting = threading.Thread(target=lambda: answers.append(run_sql(
                late, "SELECT mark, raised FROM fencegate.put_back(%s, %s, 0, 5000, 0)", self.resource, MOST)))
            putting.start()
            eventually(lambda: self.server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            lowering.commit()
            putting.join()
        self.assertEqual((answers, self.mark()), ([[(41, False)]], 41))

    def test_a_gate_of_an_older_version_puts_nothing_back(self):
        self.raised(41)
        for arguments in ("%s, 50", "%s, 50, 5000", "%s, 50, 5000, 0"):
            with self.assertRaises(psycopg2.errors.UndefinedFunction):
                self.server.sql(f"SELECT fencegate.put_back({arguments})", self.resource)

    def test_who_may(self):
        self.raised(9)
        with contextlib.closing(self.server.connect("alice")) as client:
            for call in ("lower('x', 9, 8, 'who', 'why', true)", "put_back('x', 9, 0, 1, 0)"):
                with self.assertRaises(psycopg2.errors.InsufficientPrivilege):
                    run_sql(client, f"SELECT fencegate.{call}")
            for table in ("lowerings", "marks"):
                with self.assertRaises(psycopg2.errors.InsufficientPrivilege):
                    run_sql(client, f"DELETE FROM fencegate.{table}")


class Word(LowerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.user("gate", "IN ROLE fencegate_gate")

    def command(self, gate, url):
        """→ runs `fencegate marks lower`, against that server: its exit status, and what it says"""
        path = os.path.join(gate.folder, f"{free_port()}.yaml")
        with open(path, "w") as file:
            json.dump({"gates": [{"name": "db", "protocol": "postgres", "listen": f"{LOOPBACK}:{free_port()}", "upstream": url}]}, file)

        def lower(to, *more):
            done = subprocess.run([os.environ["FENCEGATE"], "marks", "lower", self.resource, "--to", to, "--reason", "a slip", *more,
                                   "-c", path], text=True, capture_output=True, timeout=PATIENCE, check=False)
            return done.returncode, done.stdout + done.stderr
        return lower

    def test_a_command_that_stood_still_lowers_nothing_behind_another_lowering(self):
        """Two operators saw a mark of 60. Behind the lowering by one of them it has risen to 60 again."""
        with pg_gate(self.server) as gate, HeldCommand(self.server.port, b"fencegate.lower(") as proxy:
            for token in (41, 60):
                self.connect(token, gate)
            url = self.server.url("gate")
            late = self.command(gate, url.replace(f":{self.server.port}/", f":{proxy.port}/"))
            said = []
            with proxy.while_it_stands_still(lambda: said.append(late("41"))):
                self.assertEqual(self.command(gate, url)("41")[0], 0)
                self.follows(gate)
                self.connect(60, gate)
            ((status, why),) = said
            self.assertEqual(status, 1)
            self.assertIn("it was lowered meanwhile; not applied. Look at it again.", why)
            self.assertEqual(self.mark(), 60)
            self.rejected("ZF001", self.connect, 50, gate)

    def test_fencegate_marks_lower(self):
        with pg_gate(self.server, user="gate") as gate:
            self.poisoned(gate)
            lower = self.command(gate, self.server.url("gate"))
            status, said = lower("40")
            self.assertEqual(status, 1)
            self.assertIn("was 41 before it rose last", said)
            self.assertEqual(lower("41")[0], 0)
            self.follows(gate)
            self.connect(42, gate)
            self.assertEqual(lower("40", "--force")[0], 0)
            self.assertEqual(self.server.sql("SELECT lowered_role, lowered_why, mark FROM fencegate.marks WHERE resource = %s",
                                             self.resource), [("gate", "a slip", 40)])


class Store(LowerTest):
    """Of an HTTP gate."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.user("gate", "IN ROLE fencegate_gate")

    def store_gate(self, upstream):
        return HttpGate(upstream, {"ledger": self.server.url("gate")},
                        [{"match": "PUT /held/{id}", "resource": "{id}"}, {"match": "PUT /checked/{id}", "resource": "{id}",
                                                                            "guarantee": "checked"}],
                        {"policy": {"max_step": 0}})

    def put(self, gate, token, how="held"):
        return gate.request("PUT", f"/{how}/{self.resource}", b"x", token=token)[0]

    def poisoned_store(self, gate):
        self.assertEqual([self.put(gate, token) for token in (41, MOST, 42)], [200, 200, 412])

    def test_it_follows_and_remembers_what_was_behind(self):
        for how in ("held", "checked"):
            with self.subTest(how), self.store_gate(self.start(Upstream())) as gate:
                self.resource += how
                self.poisoned_store(gate)
                self.lower(41)
                self.follows(gate)
                self.assertEqual([self.put(gate, token, how) for token in (41, 42, 41)], [200, 200, 412])
                self.is_set_back(30)
                eventually(lambda: self.mark() == 42)

    def test_one_that_stood_still_remembers_what_rose_behind_it(self):
        with self.store_gate(self.start(Upstream())) as gate:
            self.poisoned_store(gate)
            gate.stop_process()
            self.lower(41)
            self.raised(50)
            gate.continue_process()
            self.follows(gate)
            self.is_set_back()
            eventually(lambda: self.mark() == 50)
            self.server.sql("DELETE FROM fencegate.marks WHERE resource = %s", self.resource)
            eventually(lambda: self.mark() == 50)
            self.assertGreater(self.lowering(), 0)

    def test_what_it_held_behind_it_counts_before_it_has_heard_of_it(self):
        with HeldLooks(self.server.port) as proxy:
            url = self.server.url("gate").replace(f":{self.server.port}/", f":{proxy.port}/")
            with HttpGate(self.start(Upstream()), {"ledger": url}, [{"match": "PUT /held/{id}", "resource": "{id}"}]) as gate:
                self.assertEqual(self.put(gate, 50), 200)
                with proxy.held():
                    self.lower(41, force=True, expected=50)
                    self.raised(50)
                    self.assertEqual(self.put(gate, 50), 200)
                    self.is_set_back()
                eventually(lambda: self.mark() == 50)


def put_poison_back_late(base):
    """By a gate that has not heard of the lowering."""
    base.sql(LOWER)
    base.writer("bob").run("SELECT fencegate.put_back('orders', %s, 0, 5000, 0)", MOST)
    return base.mark() == MOST


def go_on_beside_holders_of_good_tokens(base):
    armed = base.armed(33)
    base.sql(LOWER)
    return armed.write()


def end_a_holder_for_nothing(base):
    holder = base.writer()
    holder.begin()
    holder.run("SELECT fencegate.guard('{orders}', '{33}')")
    refused = base.writer("bob").run("SELECT fencegate.lower('orders', 32, 30, 'who', 'why', true)")
    assert isinstance(refused, Rejected) and base.mark() == 33, refused
    return not holder.alive()


def keep_lowerings_from_their_table(base):
    """Whoever may read it can make everybody wait for it: see rule_that_waits."""
    holder, waiting, armed = base.writer(), base.writer(), base.armed(33, "bob")
    holder.begin()
    holder.run("SELECT FROM fencegate.lowerings")
    waiting.in_background("CREATE RULE r AS ON INSERT TO fencegate.lowerings DO NOTHING")
    eventually(lambda: base.waits_for(waiting.pid) == "Lock")
    lowered = base.writer("bob").run(LOWER[:-1] + ", 1500)")
    assert not armed.alive()
    return isinstance(lowered, Rejected)


def lower_behind_another_lowering(base):
    """What was seen under none of them."""
    base.sql(LOWER)
    base.sql("SELECT fencegate.raise('orders', 33)")
    return not isinstance(base.writer("bob").run(LOWER[:-1] + ", 5000, 0)"), Rejected)


LOWER = "SELECT fencegate.lower('orders', 33, 30, 'who', 'why', true)"
TABLE = {
    "the lowering of what is put back": (
        lambda schema: within("put_back", "IF l > $3 OR l = $3", "IF l = $3")(within(
            "put_back", "WHERE x.lowering <= EXCLUDED.lowering RETURNING", "RETURNING")(schema)), put_poison_back_late,
        {"gate_users": ["bob"]}),
    "ending those who are armed": (
        within("lower", "PERFORM fencegate.cut(ARRAY[$1], ARRAY[NULL::bigint], ARRAY[true], deadline);"),
        go_on_beside_holders_of_good_tokens, {}),
    "clearing the way to the table of lowerings": (
        within("lower", "PERFORM fencegate.clear_way(coalesce($7, 5000), true);"), keep_lowerings_from_their_table,
        {"gate_users": ["bob"]}),
    "the lowering under which it was seen": (
        within("check_lowering", "coalesce(under, stands_under)", "stands_under"), lower_behind_another_lowering, {"gate_users": ["bob"]}),
    "looking before the lock": (
        within("lower", "  PERFORM fencegate.check_lowering($1, $2, $8, $3, $6);\n  PERFORM fencegate.check_prepared",
               "  PERFORM fencegate.check_prepared"),
        end_a_holder_for_nothing, {"gate_users": ["bob"]}),
}


class Mutations(FenceTest):
    """Each part of it is needed: without it, an attack succeeds."""


add_mutations(Mutations, TABLE)

if __name__ == "__main__":
    main(at_once=2)
