"""fencegate.hold: a mark stays where it is while its holder lives. A raise waits for the holder, for as long as its grace
says; then it ends it, and fails where it cannot."""

from live_test import main
from pg_fence import FenceTest, NO_SHORT_WAY, Rejected, within
from processes import eventually

RAISE = "SELECT mark, raised FROM fencegate.raise_all('{{orders}}', '{{{}}}', grace_ms => {})"
LONG = 60_000  # a grace that no test waits for


class HoldTest(FenceTest):
    """alice and bob are users of gates."""

    def base(self, mutate=None, **install):
        return super().base(mutate, **{"grace_ms": LONG, "gate_users": ("alice", "bob")} | install)

    def holding(self, base, token=33, resource="orders"):
        client = base.writer()
        client.begin()
        held = client.run("SELECT fencegate.hold(ARRAY[%s], ARRAY[%s::bigint])", resource, token)
        self.assertEqual(held, [([0],)])
        return client

    def raising(self, base, token=34, grace=LONG):
        return base.writer("bob").in_background(RAISE.format(token, grace))


class Holds(HoldTest):

    def test_a_raise_waits_for_the_holder(self):
        base = self.base()
        holder = self.holding(base)
        raising = self.raising(base)
        self.assertTrue(raising.wait_until_blocked())
        self.assertEqual(base.mark(), 33)
        self.assertTrue(holder.alive())
        holder.run("COMMIT")
        self.assertEqual(raising.outcome(), [(34, True)])
        self.assertTrue(holder.alive())

    def test_a_holder_that_goes_away_lets_go(self):
        base = self.base()
        holder = self.holding(base)
        raising = self.raising(base)
        self.assertTrue(raising.wait_until_blocked())
        holder.close()
        self.assertEqual(raising.outcome(), [(34, True)])

    def test_a_holder_is_ended_after_the_grace(self):
        base = self.base()
        holder = self.holding(base)
        self.assertEqual(self.raising(base, grace=300).outcome(), [(34, True)])
        self.assertTrue(base.gone(holder.pid))
        self.assertFalse(holder.alive())

    def test_without_a_grace_it_is_ended_at_once(self):
        base = self.base()
        holder = self.holding(base)
        self.assertEqual(base.writer("bob").run("SELECT fencegate.raise('orders', 34)"), [(34,)])
        self.assertFalse(holder.alive())

    def test_time_outs_of_idle_transactions_do_not_count(self):
        base = self.base()
        holder = base.writer(options="-c idle_in_transaction_session_timeout=100")
        holder.begin()
        holder.run("SELECT fencegate.hold('{orders}', '{33}')")
        idle = "SELECT state_change < clock_timestamp() - interval '500 ms' FROM pg_stat_activity WHERE pid = %s"
        self.assertTrue(eventually(lambda: base.value(idle, holder.pid)))
        self.assertTrue(holder.alive())

    def test_the_grace_of_the_database_is_the_longest(self):
        base = self.base(grace_ms=0)
        holder = self.holding(base)
        self.assertEqual(self.raising(base).outcome(), [(34, True)])
        self.assertFalse(holder.alive())

    def test_a_holder_that_cannot_be_ended_fails_the_raise(self):
        """Its process is frozen: the lock is held as long as it is."""
        base = self.base(cut_ms=500)
        holder = self.holding(base)
        self.freeze(holder.pid)
        self.assert_rejected(self.raising(base, grace=100).outcome(), "ZF006", "orders", "did not end in time")
        self.assertEqual(base.mark(), 33)
        self.server.thaw(holder.pid)
        eventually(lambda: base.gone(holder.pid))
        self.assertEqual(self.raising(base).outcome(), [(34, True)])

    def test_a_superuser_cannot_hold(self):
        base = self.base()
        base.owner.begin()
        self.assert_rejected(base.owner.run("SELECT fencegate.hold('{orders}', '{33}')"), "ZF007", "superuser")
        base.owner.run("ROLLBACK")

    def test_a_raise_keeps_its_place_in_the_queue(self):
        """Who comes behind it, waits; else forwards of the old holder could keep it out until the grace is over."""
        base = self.base()
        holder = self.holding(base)
        raising = self.raising(base)
        self.assertTrue(raising.wait_until_blocked())
        late = base.writer()
        late.begin()
        holding = late.in_background("SELECT fencegate.hold('{orders}', '{33}')")
        self.assertTrue(holding.wait_until_blocked())
        # Longer than the 200 ms after which a raise without a grace would look who sits on the lock.
        waited = "SELECT clock_timestamp() - query_start > interval '500 ms' FROM pg_stat_activity WHERE pid = %s"
        eventually(lambda: base.value(waited, raising.client.pid))
        self.assertFalse(holding.done())
        holder.run("COMMIT")
        self.assertEqual(raising.outcome(), [(34, True)])
        self.assert_rejected(holding.outcome(), "ZF001", "token 33 of orders is below mark 34")

    def test_a_hold_that_waits_too_long(self):
        base = self.base()
        self.holding(base)
        self.assertTrue(self.raising(base).wait_until_blocked())
        late = base.writer()
        late.begin()
        self.assert_rejected(late.run("SELECT fencegate.hold('{orders}', '{33}', 200)"), "ZF006", "a raise is under way")

    def test_holders_do_not_wait_for_each_other(self):
        base = self.base()
        first, second = self.holding(base), self.holding(base)
        self.assertTrue(first.alive() and second.alive())
        self.assertEqual(base.writer("bob").run(RAISE.format(33, 0)), [(33, False)])
        self.assertTrue(first.alive() and second.alive())

    def test_an_arm_with_a_higher_token_ends_holders(self):
        base = self.base()
        holder = self.holding(base)
        base.armed(34, "bob")
        self.assertFalse(holder.alive())


class Rejections(HoldTest):

    def hold(self, base, resources, tokens, begin=""):
        client = base.writer()
        client.begin(begin)
        return client.run("SELECT fencegate.hold(%s, %s)", resources, tokens)

    def test_stale(self):
        base = self.base()
        outcome = self.hold(base, "{orders}", "{32}")
        self.assert_rejected(outcome, "ZF001", "token 32 of orders is below mark 33")
        self.assertEqual((outcome.json()["token"], outcome.json()["mark"]), (32, 33))

    def test_not_raised(self):
        base = self.base()
        for resource, mark in (("orders", 33), ("new", None)):
            outcome = self.hold(base, f"{{{resource}}}", "{34}")
            self.assert_rejected(outcome, "ZF006", "not raised to the token")
            self.assertEqual((outcome.json()["not_raised"], outcome.json()["mark"]), (True, mark))
        self.assertEqual(base.mark(), 33)
        self.assertIsNone(base.mark("new"))

    def test_all_or_nothing(self):
        base = self.base()
        base.sql("INSERT INTO fencegate.marks (resource, mark) VALUES ('payments', 12)")
        self.assert_rejected(self.hold(base, "{orders,payments}", "{33,11}"), "ZF001", "payments")
        self.assertEqual(self.hold(base, "{payments,orders}", "{12,33}"), [([0, 0],)])

    def test_malformed(self):
        base = self.base()
        for resources, tokens in (("{}", "{}"), ("{orders}", "{33,34}"), ("{a b}", "{1}"), ("{orders}", "{-1}"),
                                  ("{orders,orders}", "{33,33}")):
            self.assert_rejected(self.hold(base, resources, tokens), "ZF003")

    def test_an_old_snapshot(self):
        self.assert_rejected(self.hold(self.base(), "{orders}", "{33}", "ISOLATION LEVEL REPEATABLE READ"), "ZF003")

    def test_gates_only(self):
        base = self.base(gate_users=())
        base.sql("REVOKE fencegate_gate FROM alice, bob")
        for text in ("SELECT fencegate.hold('{orders}', '{33}')", RAISE.format(34, 0)):
            self.assertEqual(base.writer().run(text).state, "42501")


class SeveralAtOnce(HoldTest):

    def test_all_are_raised_or_none(self):
        base = self.base()
        raised = base.writer().run("SELECT resource, mark, raised FROM fencegate.raise_all('{orders,payments}', '{34,1}') "
                                   "ORDER BY resource")
        self.assertEqual(raised, [("orders", 34, True), ("payments", 1, True)])
        self.assert_rejected(base.writer().run("SELECT * FROM fencegate.raise_all('{orders,payments}', '{33,2}')"), "ZF001")
        self.assert_rejected(base.writer().run("SELECT * FROM fencegate.raise_all('{payments,orders}', '{2,33}')"), "ZF001")
        self.assertEqual((base.mark(), base.mark("payments")), (34, 1))

    def test_steps(self):
        base = self.base()
        jump = base.writer().run("SELECT * FROM fencegate.raise_all('{orders}', '{50}', max_step => 10)")
        self.assert_rejected(jump, "ZF005", "max_step")


class Mutations(HoldTest):
    """Each part of it is needed: without it, an attack succeeds."""

    LOCK = "PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);"

    def raised_under_a_holder(self, base):
        """The mark rises while the holder lives."""
        holder = self.holding(base)
        outcome = self.raising(base, grace=100).outcome()
        return not isinstance(outcome, Rejected) and holder.alive() and base.mark() == 34

    def held_below_the_mark(self, base):
        """A hold that began before a raise was committed."""
        new, old = base.writer("bob"), base.writer()
        new.begin()
        new.run(RAISE.format(34, 0))
        old.begin()
        holding = old.in_background("SELECT fencegate.hold('{orders}', '{33}')")
        holding.wait_until_blocked()
        new.run("COMMIT")
        return not isinstance(holding.outcome(), Rejected) and base.mark() == 34

    @staticmethod
    def long_way_without(*change):
        return lambda schema: within("hold_all", *change)(NO_SHORT_WAY(schema))

    def test_the_lock(self):
        self.assertFalse(self.raised_under_a_holder(self.base()))
        self.assertTrue(self.raised_under_a_holder(self.base(self.long_way_without(self.LOCK))))

    def test_the_mark_is_read_behind_the_lock(self):
        read_again = self.LOCK + "\n    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;"
        self.assertFalse(self.held_below_the_mark(self.base()))
        self.assertTrue(self.held_below_the_mark(self.base(self.long_way_without(read_again, self.LOCK))))

    def test_a_raise_by_a_superuser_of_what_it_cannot_end(self):
        """A hold of a superuser would keep raises out for ever."""
        refused = within("hold", "PERFORM fencegate.check_session(true);")
        base = self.base(refused, cut_ms=300)
        base.owner.begin()
        base.owner.run("SELECT fencegate.hold('{orders}', '{33}')")
        self.assertIsInstance(self.raising(base, grace=0).outcome(), Rejected)
        base.owner.run("ROLLBACK")


if __name__ == "__main__":
    main()
