"""fencegate.spend (equal_token: reject): marks rise from below their tokens in one unit with what follows, or nothing happens.
Of all who bring the same token, one gets through."""

from live_test import main
from pg_fence import FenceTest, Rejected, within
from pg_wire import FLUSH, Wire, extended
from processes import eventually

SPEND = "SELECT resource, mark, raised FROM fencegate.spend(%s, %s) ORDER BY resource"


class SpendTest(FenceTest):
    """alice and bob are users of gates."""

    def base(self, mutate=None, **install):
        return super().base(mutate, **{"gate_users": ("alice", "bob")} | install)

    def spending(self, base, token=34, user="alice"):
        """A transaction that has spent the token, and written."""
        client = base.writer(user)
        client.begin()
        self.assertEqual(client.run(SPEND, "{orders}", f"{{{token}}}"), [("orders", token, True)])
        self.assertTrue(client.write(f"under {token}"))
        return client


class Spending(SpendTest):

    def test_a_token_is_good_for_one(self):
        base = self.base()
        self.assertEqual(base.writer().run(SPEND, "{orders}", "{34}"), [("orders", 34, True)])
        used = base.writer().run(SPEND, "{orders}", "{34}")
        self.assert_rejected(used, "ZF004", "token 34 of orders was used already")
        self.assertEqual((used.json()["resource"], used.json()["token"], used.json()["mark"]), ("orders", 34, 34))
        self.assert_rejected(base.writer().run(SPEND, "{orders}", "{33}"), "ZF001", "below mark 34")
        self.assertEqual(base.writer().run(SPEND, "{orders}", "{35}"), [("orders", 35, True)])
        self.assertEqual(base.writer().run(SPEND, "{new}", "{0}"), [("new", 0, True)])

    def test_a_token_that_was_bound_or_sealed_is_used(self):
        base = self.base()
        base.armed(34)
        self.assert_rejected(base.writer().run(SPEND, "{orders}", "{34}"), "ZF004")
        base.writer("bob").run("SELECT fencegate.raise('orders', 35)")
        self.assert_rejected(base.writer().run(SPEND, "{orders}", "{35}"), "ZF004")

    def test_all_or_nothing(self):
        base = self.base()
        self.assertEqual(base.writer().run(SPEND, "{orders,payments}", "{34,7}"),
                         [("orders", 34, True), ("payments", 7, True)])
        for tokens, state in (("{35,7}", "ZF004"), ("{34,8}", "ZF004"), ("{35,6}", "ZF001"), ("{33,8}", "ZF001"),
                              ("{33,7}", "ZF001"), ("{34,6}", "ZF001")):  # stale comes before used
            self.assert_rejected(base.writer().run(SPEND, "{orders,payments}", tokens), state)
        self.assertEqual((base.mark(), base.mark("payments")), (34, 7))

    def test_it_is_one_unit_with_what_follows(self):
        base = self.base()
        client = self.spending(base)
        self.assertEqual(base.mark(), 33)
        client.run("ROLLBACK")
        self.assertEqual((base.mark(), base.writes()), (33, []))
        client = self.spending(base)
        client.run("COMMIT")
        self.assertEqual((base.mark(), base.writes()), (34, ["under 34"]))

    def test_what_writes_to_marks_past_their_locks(self):
        """A raise believes no count of rows: who was overtaken while it waited for the row is stale."""
        base = self.base()
        for statement in (SPEND, "SELECT fencegate.arm(({})[1], ({})[1])",
                          "SELECT mark FROM fencegate.raise_all({}, {})"):
            with self.subTest(statement):
                base.sql("UPDATE fencegate.marks SET mark = 33")
                base.sql("BEGIN")
                base.sql("UPDATE fencegate.marks SET mark = 100")
                text = statement.format("'{orders}'::text[]", "'{34}'::bigint[]")
                late = base.writer().in_background(text, *(("{orders}", "{34}") if text == SPEND else ()))
                self.assertTrue(late.wait_until_blocked())
                base.sql("COMMIT")
                self.assert_rejected(late.outcome(), "ZF001", "below mark 100")

    def test_a_mark_that_does_not_rise_has_not_been_used(self):
        base = self.base()
        base.sql("CREATE FUNCTION eats() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        base.sql("CREATE TRIGGER eats BEFORE INSERT OR UPDATE ON fencegate.marks FOR EACH ROW EXECUTE FUNCTION eats()")
        for resource in ("orders", "new"):
            self.assert_rejected(base.writer().run(SPEND, f"{{{resource}}}", "{34}"), "ZF006", "does not rise")
            self.assert_rejected(base.writer().arm(34, resource), "ZF006", "does not rise")

    def test_protected_tables_let_it_write_and_what_comes_later_not(self):
        base = self.base()
        base.sql("SELECT fencegate.protect('writes', 'orders')")
        self.assert_rejected(base.writer().run("INSERT INTO writes (note) VALUES ('unfenced')"), "ZF002")
        client = self.spending(base)
        self.assertIsNone(client.run("COMMIT"))
        self.assertFalse(client.write())
        client.begin()
        client.run(SPEND, "{payments}", "{1}")
        self.assertFalse(client.write())  # not for this resource
        self.assertEqual(base.writes(), ["under 34"])

    def test_steps_and_malformed_claims(self):
        base = self.base()
        spend = "SELECT * FROM fencegate.spend('{orders}', '{50}', max_step => 10)"
        self.assert_rejected(base.writer().run(spend), "ZF005", "max_step")
        for resources, tokens in (("{}", "{}"), ("{orders}", "{34,35}"), ("{a b}", "{1}"), ("{orders}", "{-1}"),
                                  ("{orders,orders}", "{34,34}"), ("{orders}", "{NULL}")):
            self.assert_rejected(base.writer().run(SPEND, resources, tokens), "ZF003")
        client = base.writer()
        client.begin("ISOLATION LEVEL REPEATABLE READ")
        self.assert_rejected(client.run(SPEND, "{orders}", "{34}"), "ZF003")
        self.assertEqual(base.mark(), 33)

    def test_gates_only(self):
        base = self.base(gate_users=())
        base.sql("REVOKE fencegate_gate FROM alice, bob")
        self.assertEqual(base.writer().run(SPEND, "{orders}", "{34}").state, "42501")


class AtTheSameTime(SpendTest):

    def test_of_many_with_the_same_token_one_gets_through(self):
        base = self.base()
        for token in (34, 35):
            text = "WITH s AS MATERIALIZED (SELECT mark FROM fencegate.spend('{orders}', ARRAY[%s::bigint])) " \
                   "INSERT INTO writes (note) SELECT mark FROM s RETURNING note"
            asked = [base.writer().in_background(text, token) for _ in range(30)]
            outcomes = [one.outcome() for one in asked]
            through = [one for one in outcomes if not isinstance(one, Rejected)]
            self.assertEqual(through, [[(str(token),)]])
            for one in outcomes:
                if isinstance(one, Rejected):
                    self.assert_rejected(one, "ZF004")
        self.assertEqual(base.writes(), ["34", "35"])

    def test_who_comes_second_learns_what_became_of_the_first(self):
        for how, state in (("COMMIT", "ZF004"), ("ROLLBACK", None)):
            base = self.base()
            first = self.spending(base)
            second = base.writer("bob").in_background(SPEND, "{orders}", "{34}")
            self.assertTrue(second.wait_until_blocked())
            first.run(how)
            if state:
                self.assert_rejected(second.outcome(), state)
            else:
                self.assertEqual(second.outcome(), [("orders", 34, True)])

    def test_what_spends_keeps_newer_holders_out_until_it_ends(self):
        for newer in ("SELECT fencegate.arm('orders', 35)", "SELECT fencegate.raise('orders', 35)"):
            base = self.base()
            old = self.spending(base)
            # For longer than a raise without a grace waits before it looks who is there.
            sleeping = old.in_background("SELECT pg_sleep(0.7); COMMIT")
            self.assertTrue(sleeping.wait_until_blocked("Timeout"))
            raising = base.writer("bob").in_background(newer)
            self.assertTrue(raising.wait_until_blocked())
            self.assertEqual(base.mark(), 33)
            self.assertEqual(raising.outcome(), [(35,)])
            self.assertNotIsInstance(sleeping.outcome(), Rejected)
            self.assertEqual((base.mark(), base.writes()), (35, ["under 34"]))

    def test_an_older_token_does_not_end_what_spends_a_newer_one(self):
        base = self.base(cut_ms=700)
        new = self.spending(base, 35)
        sleeping = new.in_background("SELECT pg_sleep(2)")
        self.assertTrue(sleeping.wait_until_blocked("Timeout"))
        self.assert_rejected(base.writer("bob").run("SELECT fencegate.raise('orders', 34)"), "ZF006")
        self.assertEqual(sleeping.outcome(), [("",)])
        self.assertIsNone(new.run("COMMIT"))
        self.assertEqual((base.mark(), base.writes()), (35, ["under 35"]))

    def test_a_frozen_server_session_keeps_the_mark_where_it_is(self):
        base = self.base(cut_ms=500)
        old = self.spending(base)
        sleeping = old.in_background("SELECT pg_sleep(0.5); COMMIT")
        self.assertTrue(sleeping.wait_until_blocked("Timeout"))
        self.freeze(old.pid)
        self.assert_rejected(base.writer("bob").arm(35), "ZF006")
        self.assertEqual(base.mark(), 33)
        self.server.thaw(old.pid)
        self.assertNotIsInstance(sleeping.outcome(), Rejected)
        self.assertEqual((base.mark(), base.writes()), (34, ["under 34"]))

    def test_one_that_does_nothing_is_ended(self):
        base = self.base()
        old = self.spending(base)
        self.assertEqual(base.writer("bob").arm(35), [(35,)])
        self.assertFalse(old.alive())
        self.assertEqual((base.mark(), base.writes()), (35, []))


def spend_twice(base):
    """Both see mark 33; the second waits for the first."""
    first, second = base.writer(), base.writer()
    first.begin()
    first.run(SPEND, "{orders}", "{34}")
    spending = second.in_background(SPEND, "{orders}", "{34}")
    spending.wait_until_blocked()
    first.run("COMMIT")
    return not isinstance(spending.outcome(), Rejected)


def end_sessions_for_nothing(base):
    """One of two tokens was used; the other would end an armed session."""
    base.sql("INSERT INTO fencegate.marks (resource, mark) VALUES ('payments', 7)")
    armed = base.armed(33)
    outcome = base.writer().run(SPEND, "{orders,payments}", "{34,7}")
    assert outcome.state == "ZF004" and base.mark() == 33, outcome
    return not armed.alive()


class Mutations(SpendTest):
    """Each part of it is needed: without it, an attack succeeds."""

    CHECK = "IF raised IS NOT TRUE THEN PERFORM fencegate.used(resource, mark, lowering); END IF;"

    def keep_out_by_half_a_pipeline(self, base):
        """A gate that froze, or was cut off, before the statement behind the spend had left it."""
        with Wire(self.server.port, user="alice", database=base.name) as wire:
            wire.until_ready()
            spend = "SELECT * FROM fencegate.spend('{orders}', '{34}')"
            wire.send(extended("BEGIN"), extended(spend), FLUSH)
            eventually(lambda: base.value("SELECT count(*) FROM pg_stat_activity WHERE query = %s AND state = 'active' "
                                          "AND wait_event = 'ClientRead'", spend))
            return isinstance(base.writer("bob").arm(35), Rejected)

    def test_the_raise_says_who_was_first(self):
        self.assertFalse(spend_twice(self.base()))
        self.assertTrue(spend_twice(self.base(within("spend", self.CHECK))))

    def test_a_used_token_ends_nobody(self):
        self.assertFalse(end_sessions_for_nothing(self.base()))
        need_not_wait = within("spend", "PERFORM fencegate.used(r, t, l);", "NULL;")
        self.assertTrue(end_sessions_for_nothing(self.base(need_not_wait)))

    def test_ending_half_a_pipeline(self):
        self.assertFalse(self.keep_out_by_half_a_pipeline(self.base()))
        waiting = within("idle_holders", "OR a.state = 'active' AND", "OR false AND")
        self.assertTrue(self.keep_out_by_half_a_pipeline(self.base(waiting, cut_ms=3000)))


if __name__ == "__main__":
    main()
