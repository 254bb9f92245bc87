"""Marks of a PostgreSQL gate that went back in the table; gates that are killed while they raise; the sweep of sessions."""

import contextlib
import re
import signal
import threading
from datetime import datetime

import psycopg2

from cut_proxy import CutProxy
from http_gate import HttpGate, Upstream
from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, run_sql
from processes import PATIENCE, eventually
from test_pg_gate import PgGateTest

LOSSES = {"lowered": ("UPDATE fencegate.marks SET mark = 33 WHERE resource = %s", 33),
          "deleted": ("DELETE FROM fencegate.marks WHERE resource = %s", None)}
LOWER, _ = LOSSES["lowered"]


class HeldLooks(CutProxy):
    """Keeps what the server answers to a gate's look at all marks, unless it is `passing`."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self.passing = threading.Event()
        self.passing.set()
        self.looks = 0

    def relay(self, pair, sink, data):
        if sink is pair[0] and b"\x03name\0" in data:  # three columns, of which this is the first
            self.looks += 1
            self.passing.wait()
        super().relay(pair, sink, data)

    @contextlib.contextmanager
    def held(self):
        """Meanwhile a look is under way, and its answer is kept. Gives the number of those before."""
        before = self.looks
        self.passing.clear()
        try:
            eventually(lambda: self.looks > before)
            yield before
        finally:
            self.passing.set()


class WentBack(PgGateTest):
    """As by a restored backup or a promoted replica: a gate that has seen the higher mark puts it back."""

    def lose(self, statement=LOWER):
        self.server.sql(statement, self.resource)

    def regressions(self, gate):
        """What the log says of this resource: (seen, found)."""
        return [(line["seen"], line.get("mark")) for line in gate.log_lines()
                if "mark went back" in line["msg"] and line["resource"] == self.resource]

    def test_it_is_put_back_and_counted_and_logged_once(self):
        for how, (statement, found) in LOSSES.items():
            with self.subTest(how), PgGate(self.server) as gate:
                self.resource += how
                holder = self.connect(34, gate)
                self.lose(statement)
                # What the gate has seen is reason enough to refuse, before the mark is back and after.
                self.assertIn('"mark":34', str(self.rejected("ZF001", self.connect, 33, gate)))
                eventually(lambda: self.mark() == 34)
                self.rejected("ZF001", self.server.sql, "SELECT fencegate.raise(%s, 33)", self.resource)
                self.write(holder, how)  # it is not older than the mark
                self.assertEqual((gate.metric("regressions_total"), self.regressions(gate)), (1, [(34, found)]))
                self.lose(statement)
                eventually(lambda: self.mark() == 34)
                self.assertEqual((gate.metric("regressions_total"), self.regressions(gate)), (2, [(34, found)] * 2))

    def test_one_that_its_holder_puts_back_first_is_counted_too(self):
        """As after a failover: all connect anew, and the new server has an older mark."""
        for how, (statement, _) in LOSSES.items():
            with self.subTest(how), HeldLooks(self.server.port) as proxy, PgGate(proxy) as gate:
                self.resource += how
                self.connect(34, gate)
                with proxy.held() as before:
                    self.lose(statement)
                    self.connect(34, gate)
                    self.assertEqual(self.mark(), 34)
                    eventually(lambda: gate.metric("regressions_total") == 1)
                self.connect(34, gate)
                eventually(lambda: proxy.looks > before + 1)
                self.assertEqual((gate.metric("regressions_total"), self.regressions(gate)), (1, [(34, None)]))

    def test_one_that_is_put_back_for_guarded_transactions_is_counted(self):
        self.server.sql("GRANT fencegate_gate TO alice")
        with HeldLooks(self.server.port) as proxy, PgGate(proxy, guard="transaction", user="alice") as gate:
            self.connect(34, gate)
            before = proxy.looks
            eventually(lambda: proxy.looks > before)
            self.lose()  # the next look is two seconds away
            self.connect(34, gate)
            self.assertEqual(self.mark(), 34)
            eventually(lambda: gate.metric("regressions_total") == 1)
            eventually(lambda: proxy.looks > before + 2)
            self.assertEqual((gate.metric("regressions_total"), len(self.regressions(gate))), (1, 1))

    def test_it_is_put_back_in_each_database_that_clients_use(self):
        """Not only where the gate's own user connects to, and though nothing rose or ended there."""
        self.server.sql("CREATE DATABASE app TEMPLATE template0")
        self.addCleanup(self.server.sql, "DROP DATABASE app WITH (FORCE)")
        self.server.install("app")
        with PgGate(self.server) as gate, contextlib.closing(self.server.connect(database="app")) as app:
            self.connect(34, gate, database="app")
            run_sql(app, LOWER, self.resource)
            eventually(lambda: run_sql(app, "SELECT mark FROM fencegate.marks") == [(34,)])
            self.assertEqual((gate.metric("regressions_total"), self.regressions(gate)), (1, [(34, 33)]))

    def test_who_came_below_it_meanwhile_ends_when_it_is_back(self):
        with PgGate(self.server) as gate, PgGate(self.server) as other:
            holder = self.connect(34, gate)
            gate.stop_process()
            self.lose()
            old = self.connect(33, other, autocommit=False)
            self.write(old, "stale")
            gate.continue_process()
            eventually(lambda: self.mark() == 34)
            with self.assertRaises(psycopg2.Error):
                old.commit()
            self.assertIn(f"token 33 of {self.resource} is below mark 34", old.info.error_message)
            self.write(holder, "holder")
            self.assertEqual(self.written(), ["holder"])

    def test_one_that_cannot_be_put_back_is_counted_once_and_tried_again_behind_a_look(self):
        self.server.user("logged", "IN ROLE fencegate_gate")
        self.server.sql("ALTER ROLE logged SET log_statement = 'all'")

        def done():
            return re.findall(r"execute <unnamed>: .*fencegate\.(look|put_back)\(", self.server.log())[before:]
        before = 0
        with PgGate(self.server, user="logged", cut_timeout="5s") as gate, PgGate(self.server) as other:
            self.connect(34, gate)
            gate.stop_process()
            self.lose()
            old = self.connect(33, other)
            before = len(done())
            self.server.freeze(old.info.backend_pid)
            try:
                gate.continue_process()
                eventually(lambda: done().count("put_back") == 3)
                self.assertEqual((gate.metric("regressions_total"), len(self.regressions(gate))), (1, 1))
            finally:
                self.server.thaw(old.info.backend_pid)
            eventually(lambda: self.mark() == 34)
            # Questions of sessions wait behind these: there is never more than one attempt in front of them.
            self.assertEqual(done()[done().index("put_back"):][:5], ["put_back", "look"] * 2 + ["put_back"])

    def test_a_mark_that_rises_in_the_middle_of_a_look_did_not_go_back(self):
        with HeldLooks(self.server.port) as proxy, PgGate(proxy) as gate:
            self.connect(34, gate)
            with proxy.held() as before:
                self.connect(35, gate)
            eventually(lambda: proxy.looks > before + 1)
            self.assertEqual((gate.metric("regressions_total"), self.regressions(gate)), (0, []))

    def test_guarded_transactions_are_refused_until_it_is_back(self):
        self.server.sql("GRANT fencegate_gate TO alice")
        with PgGate(self.server, guard="transaction", user="alice") as gate:
            client = self.connect(34, gate)
            self.lose()
            states = []

            def writes():
                try:
                    self.write(client, "34")
                    return True
                except psycopg2.Error as error:
                    states.append(error.pgcode)
                    return False
            eventually(writes)
            self.assertLessEqual(set(states), {"ZF006"})
            self.assertEqual((self.mark(), gate.metric("regressions_total")), (34, 1))

    def test_monitor_mode_raises_nothing(self):
        with HeldLooks(self.server.port) as proxy, PgGate(proxy, policy={"mode": "monitor"}) as gate, \
             PgGate(self.server) as enforcing:
            self.connect(34, enforcing)
            enforcing.kill()
            self.connect(34, gate)
            self.lose()
            before = proxy.looks
            eventually(lambda: proxy.looks > before + 1)
            self.assertEqual((self.mark(), gate.metric("regressions_total")), (33, 0))


def is_told_to_end(pid):
    """A frozen process has a SIGTERM in front of it."""
    with open(f"/proc/{pid}/status") as file:
        pending = next(line for line in file if line.startswith("ShdPnd:"))
    return int(pending.split()[1], 16) >> (signal.SIGTERM - 1) & 1


class WentBackInAStore(LiveTest):
    def test_one_that_only_leases_raise_is_put_back(self):
        server, upstream = self.start(PostgresServer()), self.start(Upstream())
        server.install(gate_users=[server.user("gate")])
        server.sql("SELECT fencegate.seal('{orders}', '{34}', gen_random_uuid(), 'one')")
        gate = self.start(HttpGate(upstream, {"ledger": server.url("gate")}, [{"match": "PUT /o", "resource": "orders"}]))
        self.assertEqual(gate.request("PUT", "/o", token=34)[0], 200)
        server.sql("UPDATE fencegate.marks SET mark = 33")
        eventually(lambda: server.value("SELECT mark FROM fencegate.marks") == 34)
        self.assertEqual(gate.request("PUT", "/o", token=33)[0], 412)
        self.assertEqual(gate.metric("regressions_total"), 1)

    def test_one_that_cannot_be_put_back_is_counted_once(self):
        server, upstream = self.start(PostgresServer()), self.start(Upstream())
        server.install(gate_users=[server.user("gate")])
        server.sql("ALTER ROLE gate SET log_statement = 'all'")
        gate = self.start(HttpGate(upstream, {"ledger": server.url("gate")}, [{"match": "PUT /o", "resource": "orders"}]))

        def attempts():
            return len(re.findall(r"execute <unnamed>: .*fencegate\.put_back\(", server.log()))
        self.assertEqual(gate.request("PUT", "/o", token=34)[0], 200)
        # An older session that does not end, of a holder that came while the mark was lower.
        gate.stop_process()
        server.sql("UPDATE fencegate.marks SET mark = 33")
        server.user("alice")
        old = server.connect("alice")
        self.addCleanup(old.close)
        run_sql(old, "SELECT fencegate.arm('orders', 33)")
        before = attempts()
        server.freeze(old.info.backend_pid)
        try:
            gate.continue_process()
            eventually(lambda: attempts() >= before + 2)
            self.assertEqual(gate.metric("regressions_total"), 1)
        finally:
            server.thaw(old.info.backend_pid)
        eventually(lambda: server.value("SELECT mark FROM fencegate.marks") == 34)
        self.assertEqual(gate.metric("regressions_total"), 1)


class KilledWhileItRaises(PgGateTest):
    """The mark is where it was, or at the new token; what an older holder has not committed by then, it never commits."""

    def killed(self, gate, old, at_work):
        """`old` is armed with 34 and inside a transaction; `gate` dies while it raises to 35 for a new client."""
        self.write(old, "stale")
        pid = old.info.backend_pid
        raiser = threading.Thread(target=lambda: self.assertRaises(psycopg2.Error, self.connect, 35, gate))
        self.server.freeze(pid)
        try:
            raiser.start()
            eventually(lambda: is_told_to_end(pid))
            self.assertTrue(self.server.value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
                                              "AND pid <> pg_backend_pid() AND query LIKE %s", f"%fencegate.{at_work}(%"))
            gate.kill()
        finally:
            self.server.thaw(pid)
        raiser.join(PATIENCE)
        with self.assertRaises(psycopg2.Error):
            old.commit()
        self.assertIn(self.mark(), (34, 35))
        self.assertEqual(self.written(), [])
        with PgGate(self.server) as another:
            new = self.connect(36, another)
            self.assertEqual(self.mark(), 36)
            self.write(new, "new")
            self.rejected("ZF001", self.connect, 35, another)
        self.assertEqual(self.written(), ["new"])

    def test_in_the_session_that_arms(self):
        with PgGate(self.server) as gate:
            self.killed(gate, self.connect(34, autocommit=False), "arm_all")

    def test_on_the_gates_own_connection(self):
        with PgGate(self.server) as gate:
            self.connect(34, gate).close()  # now it knows that the mark is lower than 35
            token = 0
            while not self.server.value("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' "
                                        "AND query LIKE '%%fencegate.raise_all(%%' AND pid <> pg_backend_pid()"):
                token += 1
                self.assertLess(token, 200, "no raise ever runs on the gate's own connection")
                gate.connect(f"{self.resource}.other={token}", user="alice").close()
            self.killed(gate, self.connect(34, autocommit=False), "raise_all")

    def test_of_guarded_transactions(self):
        self.server.sql("GRANT fencegate_gate TO alice")
        with PgGate(self.server, guard="transaction", user="alice") as gate, \
             PgGate(self.server, guard="transaction", user="alice") as other:
            self.killed(gate, self.connect(34, other, autocommit=False), "raise_all")


class Sweeps(LiveTest):
    def test_the_dead_are_swept_once_a_minute(self):
        server = self.start(PostgresServer(log_statement="all"))
        server.install()
        dead, living = 2 ** 31 - 1, server.cli.info.backend_pid
        server.sql("INSERT INTO fencegate.sessions SELECT 'orders', unnest(ARRAY[pid, %s]), backend_start, 5, "
                   "now() - interval '2 minutes' FROM pg_stat_get_activity(pg_backend_pid())", dead)

        def times(function):
            """When it was called, in seconds."""
            stamps = re.findall(rf"(?m)^(\S+ \S+) \w+ \[.*fencegate\.{function}\(", server.log())
            return [datetime.fromisoformat(stamp).timestamp() for stamp in stamps]
        self.start(PgGate(server))
        eventually(lambda: len(times("look")) > 3)
        self.assertEqual(len(times("sweep")), 1)
        self.assertEqual(server.sql("SELECT pid FROM fencegate.sessions"), [(living,)])
        eventually(lambda: len(times("sweep")) > 1, 90)
        self.assertAlmostEqual(times("sweep")[1] - times("sweep")[0], 60, delta=10)


if __name__ == "__main__":
    main(at_once=3)
