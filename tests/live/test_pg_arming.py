"""Arming, raising and cutting in PostgreSQL: what older sessions may be doing when the raise comes, raises that meet, raises
that fail, and what everybody is told. test_pg_mutations shows that each part of the mechanism is needed."""

import contextlib
import struct
import threading

from live_test import main
from pg_fence import FenceTest, Rejected
from postgres import PostgresStandby
from processes import connect, eventually


class OlderSessions(FenceTest):
    """Each is armed with 33 and busy with something; a raise to 34 ends it, and nothing of it is committed later."""

    def assert_cut(self, base, old, notes=()):
        raised = base.writer("bob").run("SELECT * FROM fencegate.arm_all('{orders}', '{34}')")
        self.assertEqual(raised, [("orders", 34, True, 1, 0)])
        self.assertTrue(base.gone(old.pid))
        self.assertEqual(base.writes(), list(notes))
        self.assertFalse(old.write())
        self.assertEqual(base.writes(), list(notes))

    def test_idle(self):
        base = self.base()
        old = base.armed(33)
        self.assertTrue(old.write("in time"))
        self.assert_cut(base, old, ["in time"])

    def test_idle_in_a_transaction_that_holds_locks(self):
        base = self.base()
        old = base.armed(33)
        old.begin()
        old.run("LOCK TABLE writes")
        old.write()
        new = base.writer("bob")
        self.assertEqual(new.arm(34), [(34,)])
        self.assertTrue(new.write("successor"))  # the lock is free
        self.assertEqual(base.writes(), ["successor"])

    def busy(self, text, kind):
        base = self.base()
        old = base.armed(33)
        old.begin()
        old.write()
        running = old.in_background(text.format(key=77))
        if kind:
            self.assertTrue(running.wait_until_blocked(kind))
        else:
            eventually(lambda: base.value("SELECT state FROM pg_stat_activity WHERE pid = %s", old.pid) == "active")
        self.assert_cut(base, old)
        self.assertIsInstance(running.outcome(), Rejected)

    def test_in_a_long_query(self):
        self.busy("SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 1000) b", None)

    def test_asleep(self):
        self.busy("SELECT pg_sleep(600)", "Timeout")

    def test_in_a_procedure_that_commits(self):
        base = self.base()
        old = base.armed(33)
        running = old.in_background("DO $$ BEGIN LOOP INSERT INTO writes VALUES (pg_backend_pid(), 'loop'); COMMIT; "
                                    "PERFORM pg_sleep(0.001); END LOOP; END $$")
        eventually(lambda: "loop" in base.writes())
        self.assertEqual(base.writer("bob").arm(34), [(34,)])
        count = len(base.writes())
        self.assertIsInstance(running.outcome(), Rejected)
        self.assertEqual(len(base.writes()), count)

    def test_blocked_on_a_lock(self):
        base = self.base()
        holder, old = base.writer(), base.armed(33)
        holder.begin()
        holder.run("LOCK TABLE writes")
        blocked = old.in_background("INSERT INTO writes (note) VALUES ('a stale write')")
        self.assertTrue(blocked.wait_until_blocked())
        self.assertEqual(base.writer("bob").arm(34), [(34,)])
        holder.run("COMMIT")
        self.assertIsInstance(blocked.outcome(), Rejected)
        self.assertEqual(base.writes(), [])

    def raw(self, base, text):
        """A session armed with 33 that has sent a Query and does not read."""
        sock = self.start(contextlib.closing(connect(self.server.port)))
        fields = f"user\0alice\0database\0{base.name}\0\0".encode()
        sock.sendall(struct.pack("!ii", 8 + len(fields), 196608) + fields)
        for query in ("SELECT fencegate.arm('orders', 33)", text):
            data = query.encode() + b"\0"
            sock.sendall(b"Q" + struct.pack("!i", 4 + len(data)) + data)
        return eventually(lambda: base.value("SELECT pid FROM fencegate.sessions"))

    def test_copying_in(self):
        base = self.base()
        pid = self.raw(base, "COPY writes FROM STDIN")
        eventually(lambda: base.value("SELECT query LIKE 'COPY%%' AND wait_event = 'ClientRead' FROM pg_stat_activity "
                                      "WHERE pid = %s", pid))
        self.assertEqual(base.writer("bob").arm(34), [(34,)])
        self.assertTrue(base.gone(pid))
        self.assertEqual(base.writes(), [])

    def test_writing_to_a_client_that_does_not_read(self):
        base = self.base()
        pid = self.raw(base, "BEGIN; INSERT INTO writes VALUES (1, 'a stale write'); "
                             "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)")
        eventually(lambda: base.value("SELECT wait_event = 'ClientWrite' FROM pg_stat_activity WHERE pid = %s", pid))
        self.assertEqual(base.writer("bob").arm(34), [(34,)])
        self.assertTrue(base.gone(pid))
        self.assertEqual(base.writes(), [])


class Raises(FenceTest):

    def test_time_is_up(self):
        """A session that does not end in time: unavailable, and the mark is where it was."""
        base = self.base(cut_ms=300)
        old = base.armed(33)
        self.freeze(old.pid)
        outcome = base.writer("bob").arm(34)
        self.assert_rejected(outcome, "ZF006", "the mark of orders could not be checked", "did not end in time")
        self.assertEqual(outcome.json(), {"resource": "orders", "token": 34, "mark": None, "applied": "no"})
        self.assertEqual(base.mark(), 33)
        self.server.thaw(old.pid)
        eventually(lambda: base.gone(old.pid))
        self.assertEqual(base.armed(33).arm(34), [(34,)])

    def test_a_killed_raiser_changes_nothing(self):
        base = self.base()
        old, new = base.armed(33), base.writer("bob")
        self.freeze(old.pid)
        raising = new.in_background("SELECT fencegate.arm('orders', 34)")
        self.assertTrue(raising.wait_until_blocked("Timeout"))
        self.assertEqual(base.sql("SELECT resource, token, mark, raising FROM fencegate.ended(%s)", old.pid),
                         [("orders", 33, 33, True)])
        base.sql("SELECT pg_terminate_backend(%s, 5000)", new.pid)
        self.assertIsInstance(raising.outcome(), Rejected)
        self.server.thaw(old.pid)
        eventually(lambda: base.gone(old.pid))
        self.assertEqual(base.sql("SELECT resource, token, mark, raising FROM fencegate.ended(%s)", old.pid),
                         [("orders", 33, 33, False)])
        self.assertTrue(base.armed(33).write("the old holder again"))

    def test_a_frozen_raiser_keeps_equal_tokens_waiting_and_no_longer(self):
        base = self.base(cut_ms=400)
        new = base.writer("bob")
        new.begin()
        new.arm(34)
        self.freeze(new.pid)
        self.assert_rejected(base.writer().arm(33), "ZF006", "a raise is under way")
        for guard in ("guard('{orders}', '{33}')", "guard_one('orders', 33)"):
            self.assert_rejected(base.writer().run(f"SELECT fencegate.{guard}"), "ZF006", "a raise is under way")
        self.assert_rejected(base.writer().arm(35), "ZF006", "it is locked")
        self.server.thaw(new.pid)

    def test_two_at_once(self):
        base = self.base()
        for low in range(40, 60, 2):
            clients = [base.writer(), base.writer("bob")]
            arming = [client.in_background("SELECT fencegate.arm('orders', %s)", low + i) for i, client in enumerate(clients)]
            outcomes = [one.outcome() for one in arming]
            self.assertEqual(outcomes[1], [(low + 1,)])
            self.assertEqual(base.mark(), low + 1)
            if isinstance(outcomes[0], Rejected):  # it came second, or was ended while it raised
                self.assertIn(outcomes[0].state, ("ZF001", "57P01", None))
            else:
                self.assertFalse(clients[0].write())
            self.assertTrue(clients[1].write(f"{low + 1}"))

    def test_several_resources_in_any_order(self):
        """Many at once, in both orders: none waits for another for ever, and the marks end at the highest token."""
        base = self.base(cut_ms=20000)
        orders = ["{a,b,c}", "{c,b,a}", "{b,c,a}"]

        def arm(number):
            for step in range(10):
                tokens = "{%d,%d,%d}" % ((step * 3 + number,) * 3)
                outcome = base.writer().run("SELECT count(*) FROM fencegate.arm_all(%s, %s)", orders[number], tokens)
                if isinstance(outcome, Rejected) and outcome.state not in ("ZF001", None, "57P01"):
                    failures.append(outcome)

        failures = []
        threads = [threading.Thread(target=arm, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual([base.mark(name) for name in "abc"], [29, 29, 29])

    def test_equal_tokens_do_not_wait_for_each_other(self):
        base = self.base()
        first = base.writer()
        first.begin()
        first.arm(33)
        self.assertEqual(base.writer("bob").arm(33), [(33,)])
        first.run("COMMIT")
        self.assertTrue(first.write())

    def test_a_higher_token_of_ones_own(self):
        base = self.base()
        one, other = base.armed(33), base.armed(33)
        self.assertEqual(one.arm(34), [(34,)])
        self.assertTrue(one.write())
        self.assertFalse(other.alive())

    def test_other_resources_and_databases_are_left_alone(self):
        base, elsewhere = self.base(), self.base()
        neighbour, stranger = base.writer(), elsewhere.armed(33)
        neighbour.arm(1, "payments")
        base.armed(34)
        self.assertTrue(neighbour.write())
        self.assertTrue(stranger.write())

    def test_rollback_of_a_raise(self):
        base = self.base()
        new = base.writer("bob")
        new.begin()
        new.arm(34)
        new.run("ROLLBACK")
        self.assertEqual(base.mark(), 33)
        self.assertTrue(base.armed(33).write())
        base.armed(34)
        self.assertEqual(base.sql("SELECT * FROM fencegate.ended(%s)", new.pid), [])

    def test_settings_of_the_caller_are_as_before(self):
        base = self.base()
        client = base.writer(options="-c lock_timeout=7s")
        client.begin()
        client.arm(34)
        self.assertEqual(client.run("SHOW lock_timeout"), [("7s",)])


class Words(FenceTest):
    """What rejections say, as in fence/rejection.cpp."""

    def test_sentences_and_details(self):
        base = self.base()
        client = base.writer()
        stale = client.arm(32)
        self.assert_rejected(stale, "ZF001")
        self.assertEqual(stale.message, "token 32 of orders is below mark 33; not applied")
        self.assertEqual(stale.json(), {"resource": "orders", "token": 32, "mark": 33, "applied": "no", "lowering": 0})
        self.assertTrue(stale.hint)
        jump = client.run("SELECT * FROM fencegate.arm_all('{orders}', '{99}', 5000, 10)")
        self.assert_rejected(jump, "ZF005")
        self.assertEqual(jump.message, "token 99 of orders exceeds mark 33 by more than max_step allows; not applied")
        self.assertEqual(jump.json()["mark"], 33)

    def test_steps_are_measured_against_a_mark_only(self):
        base = self.base(max_step=10)
        self.assertEqual(base.writer().arm(10 ** 12, "new"), [(10 ** 12,)])
        self.assertEqual(base.writer().arm(43), [(43,)])
        self.assert_rejected(base.writer().arm(54), "ZF005")
        largest = 2 ** 63 - 1
        self.assert_rejected(base.writer().arm(largest), "ZF005")
        self.assertEqual(base.writer().arm(largest, "largest"), [(largest,)])

    def test_malformed(self):
        base = self.base()
        for resource in ("", "a b", "x" * 201, "ä", 'a"b', "a\nb", None):
            outcome = base.writer().arm(34, resource)
            self.assert_rejected(outcome, "ZF003", "no usable fencing token")
        self.assert_rejected(base.writer().arm(-1), "ZF003", "out of range")
        self.assert_rejected(base.writer().arm(None), "ZF003", "out of range")
        for arguments in ("'{a,b}', '{1}'", "'{}', '{}'", "NULL, NULL", "'{{a,b}}', '{{1,2}}'", "'{a,a}', '{1,2}'",
                          "'{a,NULL}', '{1,2}'", "'{a}', '{NULL}'"):
            self.assert_rejected(base.writer().run(f"SELECT * FROM fencegate.arm_all({arguments})"), "ZF003")
            self.assert_rejected(base.writer().run(f"SELECT fencegate.guard({arguments})"), "ZF003")
        for arguments in ("'a b', 1", "'', 1", "NULL, 1", "'a', -1", "'a', NULL", "NULL, NULL"):
            self.assert_rejected(base.writer().run(f"SELECT fencegate.guard_one({arguments})"), "ZF003")
        many = "{" + ",".join(f"r{i}" for i in range(33)) + "}"
        self.assert_rejected(base.writer().run("SELECT * FROM fencegate.arm_all(%s, array_fill(1::bigint, ARRAY[33]))", many),
                             "ZF003", "more than 32")
        self.assertEqual(base.sql("SELECT resource FROM fencegate.marks"), [("orders",)])

    def test_read_only_transactions(self):
        base = self.base()
        client = base.writer(options="-c default_transaction_read_only=on")
        self.assert_rejected(client.arm(33), "ZF006", "read only")

    def test_missing_rights_of_the_owner_close(self):
        base = self.base()
        for right in ("pg_read_all_stats", "pg_signal_backend"):
            base.sql(f"REVOKE {right} FROM fencegate_owner")
            self.addCleanup(self.server.sql, f"GRANT {right} TO fencegate_owner")
            for token in (33, 34):
                outcome = base.writer().arm(token)
                self.assert_rejected(outcome, "ZF006")
                self.assertIn("GRANT", outcome.hint)
            base.sql(f"GRANT {right} TO fencegate_owner")

    def test_users_that_became_superusers_later(self):
        base = self.base()
        self.server.user("riser")
        old = base.armed(33, "riser")
        base.sql("ALTER ROLE riser SUPERUSER")
        self.assert_rejected(base.writer().arm(34), "ZF006")
        self.assertEqual(base.mark(), 33)
        self.assertTrue(old.write())

    def test_superusers_where_the_owner_may_end_them(self):
        base = self.base()
        base.sql("ALTER ROLE fencegate_owner SUPERUSER")
        self.addCleanup(self.server.sql, "ALTER ROLE fencegate_owner NOSUPERUSER")
        self.server.user("boss", "SUPERUSER")
        boss = base.armed(33, "boss")
        base.armed(34)
        self.assertFalse(boss.alive())


class HouseKeeping(FenceTest):

    def test_sweep_keeps_the_living_and_the_lately_dead(self):
        base = self.base()
        living, dead = base.armed(33), base.armed(33)
        dead.close()
        eventually(lambda: base.gone(dead.pid))
        pids = lambda: {pid for (pid,) in base.sql("SELECT pid FROM fencegate.sessions")}
        for _ in range(2):
            self.assertEqual(base.value("SELECT fencegate.sweep()"), 0)
            self.assertEqual(pids(), {living.pid, dead.pid})
        base.sql("UPDATE fencegate.sessions SET dead_since = dead_since - interval '61 s' WHERE pid = %s", dead.pid)
        self.assertEqual(base.value("SELECT fencegate.sweep()"), 1)
        self.assertEqual(pids(), {living.pid})
        base.armed(34)
        self.assertFalse(living.alive())

    def test_list_and_look(self):
        base = self.base()
        client = base.armed(34)
        client.arm(5, "payments")
        self.assertEqual(base.sql("SELECT resource, mark, sessions FROM fencegate.list()"),
                         [("orders", 34, 1), ("payments", 5, 1)])
        self.assertEqual(base.sql("SELECT * FROM fencegate.look('{payments,none}')"), [("payments", 5, 0)])

    def test_raise_seals_without_arming(self):
        base = self.base()
        old = base.armed(33)
        self.assertEqual(base.sql("SELECT fencegate.raise('orders', 40)"), [(40,)])
        self.assertFalse(old.alive())
        self.assertEqual(base.sql("SELECT sessions FROM fencegate.list()"), [(0,)])
        self.assert_rejected(base.owner.run("SELECT fencegate.raise('orders', 39)"), "ZF001")

    def test_marks_survive_a_crash_and_sessions_do_not(self):
        base = self.base()
        base.armed(34)
        self.server.restart()
        again = self.server.connect(database=base.name)
        self.addCleanup(again.close)
        with again.cursor() as cursor:
            cursor.execute("SELECT (SELECT mark FROM fencegate.marks), (SELECT count(*) FROM fencegate.sessions)")
            self.assertEqual(cursor.fetchall(), [(34, 0)])


class Standbys(FenceTest):
    @staticmethod
    def commit_that_waits(client):
        """The checkpointer tells all sessions, some time after the configuration was read again."""
        def waits():
            return client.in_background("INSERT INTO writes (note) VALUES ('in time')").wait_until_blocked("IPC")
        eventually(waits)

    def test_a_session_that_waits_for_a_standby_in_its_commit(self):
        """Its row is committed, before the mark rises; the raise waits for the standby as well."""
        base = self.base()
        old, new = base.armed(33), base.writer("bob")
        base.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        base.sql("SELECT pg_reload_conf()")
        self.addCleanup(self.server.sql, "SELECT pg_reload_conf()")
        self.addCleanup(self.server.sql, "ALTER SYSTEM RESET synchronous_standby_names")
        eventually(lambda: old.run("SHOW synchronous_standby_names") == [("nobody",)])
        self.commit_that_waits(old)
        raising = new.in_background("SET synchronous_commit = local; SELECT fencegate.arm('orders', 34)")
        self.assertTrue(raising.wait_until_blocked("IPC"))  # waits, although it was told not to
        self.assertTrue(base.gone(old.pid))
        base.sql("SET synchronous_commit = local")
        self.assertEqual(set(base.writes()), {"in time"})
        base.sql("ALTER SYSTEM RESET synchronous_standby_names")
        base.sql("SELECT pg_reload_conf()")
        self.assertEqual(raising.outcome(), [(34,)])
        self.assertEqual((base.mark(), set(base.writes())), (34, {"in time"}))

    def test_a_hot_standby_arms_and_guards_nobody(self):
        base = self.base()
        standby = self.start(PostgresStandby(self.server))
        connection = self.start(contextlib.closing(standby.connect("alice", base.name)))
        with connection.cursor() as cursor:
            for text in ("SELECT fencegate.arm('orders', 33)", "SELECT fencegate.guard('{orders}', '{33}')",
                         "SELECT fencegate.guard_one('orders', 33)"):
                with self.assertRaises(Exception) as caught:
                    cursor.execute(text)
                self.assertEqual(caught.exception.pgcode, "ZF006")


if __name__ == "__main__":
    main(at_once=2)
