"""Leases and seals in PostgreSQL: the SQL itself."""

import itertools
import time

from live_test import main
from pg_fence import FenceTest, Rejected, add_mutations, within
from processes import eventually

GRANT = ("SELECT resource, outcome, token, held_by, left_ms FROM fencegate.lease_grant(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
         "ORDER BY resource")
ISSUER = "11111111-1111-1111-1111-111111111111"
OTHER_ISSUER = "22222222-2222-2222-2222-222222222222"
STRIDE = 1 << 20
LAST = 1 << 62


class Leases:
    """A session with the gate's rights."""

    def __init__(self, base, user="postgres"):
        self.client = base.writer(user)

    def grant(self, grant, resources="orders", ttl_ms=30_000, floor=0, stores=("s",), stride=STRIDE, at_least_ms=0,
              lock_delay_ms=0, by_force=False, freeze=False):
        resources = resources.split(",")
        return self.client.run(GRANT, resources, grant, f"holder of {grant}", ttl_ms, [floor] * len(resources), list(stores),
                               stride, at_least_ms, lock_delay_ms, by_force, freeze)

    def token(self, grant, **more):
        rows = self.grant(grant, **more)
        assert not isinstance(rows, Rejected), rows
        assert [row[1] for row in rows] == ["granted"], rows
        return rows[0][2]

    def outcome(self, grant, **more):
        rows = self.grant(grant, **more)
        return rows if isinstance(rows, Rejected) else rows[0][1]

    def renew(self, grant, token, resource="orders"):
        return self.client.run("SELECT resource, token, ttl_ms FROM fencegate.lease_renew(%s, %s, %s)", [resource], [token], [grant])

    def release(self, grant, token, resource="orders"):
        return self.client.run("SELECT fencegate.lease_release(%s, %s, %s)", [resource], [token], [grant])

    def seal(self, grant, token, issuer=ISSUER, resource="orders"):
        return self.client.run("SELECT resource, mark, raised FROM fencegate.seal(%s, %s, %s, %s)", [resource], [token], issuer, grant)


class Seals(FenceTest):
    def setUp(self):
        self.fenced = self.base()
        self.leases = Leases(self.fenced)

    def test_a_seal_raises_and_may_be_repeated_by_its_own_grant_alone(self):
        self.assertEqual(self.leases.seal("one", 34), [("orders", 34, True)])
        self.assertEqual(self.leases.seal("one", 34), [("orders", 34, False)])
        self.assert_rejected(self.leases.seal("two", 34), "ZF004", "token 34 of orders was sealed by another grant")
        self.assert_rejected(self.leases.seal("one", 33), "ZF001", "below mark 34")

    def test_a_mark_gets_another_issuer(self):
        def move(before, after, resource="orders"):
            ((owner,),) = self.leases.client.run("SELECT fencegate.move_issuer(%s, %s, %s)", resource, before, after)
            return owner
        self.assertIsNone(move(ISSUER, OTHER_ISSUER))
        self.leases.seal("one", 34)
        other = self.fenced.writer("postgres")
        other.begin()
        other.run("SELECT pg_advisory_xact_lock(fencegate.lock_key('orders'))")
        self.assertEqual(move(OTHER_ISSUER, OTHER_ISSUER), ISSUER)  # waits for nobody
        other.run("ROLLBACK")
        self.assertEqual(move(ISSUER, OTHER_ISSUER), OTHER_ISSUER)
        self.assertEqual(move(ISSUER, OTHER_ISSUER), OTHER_ISSUER)
        self.assert_rejected(self.leases.seal("one", 34), "ZF007", "another issuer")
        self.assert_rejected(self.leases.seal("one", 34, OTHER_ISSUER), "ZF004", "sealed by another grant")
        self.assert_rejected(self.leases.seal("one", 35), "ZF007", "another issuer")
        self.assertEqual(self.leases.seal("one", 35, OTHER_ISSUER), [("orders", 35, True)])
        self.assert_rejected(self.leases.client.run("SELECT fencegate.move_issuer('a b', %s, %s)", ISSUER, ISSUER), "ZF003")
        stranger = self.fenced.writer().run("SELECT fencegate.move_issuer('orders', %s, %s)", ISSUER, ISSUER)
        self.assertEqual(stranger.state, "42501")

    def test_a_seal_at_a_mark_that_nobody_sealed(self):
        self.assert_rejected(self.leases.seal("one", 33), "ZF004", "sealed by another grant")

    def test_a_mark_with_an_issuer_rises_by_its_seals_only(self):
        self.leases.seal("one", 34)
        client = self.fenced.writer()
        self.assert_rejected(client.arm(35), "ZF005", "token 35 of orders exceeds mark 34, which only leases")
        self.assertTrue(client.arm(35).json()["leased"])
        self.assert_rejected(client.arm(33), "ZF001")
        self.assertEqual(client.arm(34), [(34,)])
        self.assertTrue(client.write())
        self.assert_rejected(self.leases.client.run("SELECT fencegate.raise('orders', 35)"), "ZF005")
        self.assert_rejected(self.leases.client.run("SELECT * FROM fencegate.spend('{orders}', '{35}')"), "ZF005")
        self.assert_rejected(self.leases.seal("one", 40, OTHER_ISSUER), "ZF007", "another issuer (11111111")
        self.assert_rejected(self.leases.seal("one", 34, OTHER_ISSUER), "ZF007")
        self.assertEqual(self.fenced.mark(), 34)
        self.assertEqual(self.leases.seal("two", 35), [("orders", 35, True)])

    def test_a_seal_ends_sessions_with_lower_tokens(self):
        old = self.fenced.armed(33)
        self.leases.seal("one", 34)
        self.assertFalse(old.alive())

    def test_a_seal_has_no_largest_step(self):
        narrow = self.base(max_step=10)
        leases = Leases(narrow)
        self.assert_rejected(narrow.writer().arm(33 + STRIDE), "ZF005", "by more than max_step allows")
        self.assertEqual(leases.seal("one", 33 + STRIDE), [("orders", 33 + STRIDE, True)])

    def test_a_mark_that_was_raised_past_the_fence_has_no_grant_but_its_issuer(self):
        self.leases.seal("one", 34)
        self.fenced.sql("UPDATE fencegate.marks SET mark = 40")
        self.assert_rejected(self.leases.seal("one", 40), "ZF004")
        self.assert_rejected(self.fenced.writer().arm(41), "ZF005")
        self.assertEqual(self.leases.seal("one", 41), [("orders", 41, True)])

    def test_a_mark_that_is_put_back_has_no_grant_but_its_issuer(self):
        def put_back(seen, by=self.leases.client):
            return by.run("SELECT resource, mark, raised FROM fencegate.put_back('orders', %s, 0, 5000, 0)", seen)
        self.leases.seal("one", 34)
        old = self.fenced.armed(34)
        self.assertEqual(put_back(40), [("orders", 40, True)])
        self.assertFalse(old.alive())
        self.assertEqual(put_back(40), [("orders", 40, False)])
        self.assert_rejected(put_back(39), "ZF001")
        self.assertEqual(self.fenced.sql("SELECT issuer, sealed, grant_hash FROM fencegate.marks WHERE resource = 'orders'"),
                         [(ISSUER, None, None)])
        self.assert_rejected(self.leases.seal("one", 40), "ZF004")
        self.assert_rejected(self.fenced.writer().arm(41), "ZF005")
        self.assertEqual(self.leases.seal("two", 41), [("orders", 41, True)])
        self.assertEqual(put_back(42, self.fenced.writer()).state, "42501")

    def test_a_mark_of_no_issuer_that_is_put_back_has_none(self):
        self.assertEqual(self.leases.client.run("SELECT mark, raised FROM fencegate.put_back('orders', 40, 0, 5000, 0)"), [(40, True)])
        self.assertEqual(self.leases.client.run("SELECT mark, raised FROM fencegate.put_back('payments', 40, 0, 5000, 0)"), [(40, True)])
        for resource in ("orders", "payments"):
            self.assertEqual(self.fenced.writer().arm(41, resource), [(41,)])

    def test_a_seal_of_several_is_all_or_none(self):
        outcome = self.leases.client.run("SELECT * FROM fencegate.seal('{payments,orders}', '{7,33}', %s, 'one')", ISSUER)
        self.assert_rejected(outcome, "ZF004")
        self.assertIsNone(self.fenced.mark("payments"))

    def test_a_seal_names_its_issuer_and_its_grant(self):
        self.assert_rejected(self.leases.client.run("SELECT * FROM fencegate.seal('{orders}', '{34}', NULL, 'one')"), "ZF003")
        self.assert_rejected(self.leases.client.run("SELECT * FROM fencegate.seal('{orders}', '{34}', %s, NULL)", ISSUER), "ZF003")


class Grants(FenceTest):
    def setUp(self):
        self.fenced = self.base()
        self.leases = Leases(self.fenced)

    def row(self, column):
        return self.fenced.value(f"SELECT {column} FROM fencegate.leases WHERE resource = 'orders'")

    def expire(self):
        self.fenced.sql("UPDATE fencegate.leases SET expires_at = clock_timestamp() - interval '1 ms'")

    def test_tokens_are_above_former_ones_above_the_mark_and_above_the_floor(self):
        self.assertEqual(self.leases.token("one"), 34)  # the mark is 33
        self.leases.release("one", 34)
        self.assertEqual(self.leases.token("two"), 35)
        self.leases.release("two", 35)
        self.assertEqual(self.leases.token("three", floor=100), 101)

    def test_the_same_grant_asked_again_keeps_its_token_unless_the_floor_has_risen(self):
        self.assertEqual(self.leases.token("one"), 34)
        self.assertEqual(self.leases.token("one"), 34)
        self.assertEqual(self.leases.token("one", floor=34), 35)

    def test_who_holds_it_and_for_how_long(self):
        self.leases.token("one", ttl_ms=20_000)
        ((resource, outcome, token, holder, left),) = self.leases.grant("two")
        self.assertEqual((resource, outcome, token, holder), ("orders", "held", 34, "holder of one"))
        self.assertTrue(0 < left <= 20_000, left)

    def test_all_or_none(self):
        self.leases.token("one", resources="b")
        self.assertEqual([row[:2] for row in self.leases.grant("two", resources="c,b,a")], [("b", "held")])
        self.assertEqual(self.leases.token("three", resources="a"), 1)
        self.leases.release("one", 1, "b")
        self.leases.release("three", 1, "a")
        self.assertEqual([row[:3] for row in self.leases.grant("two", resources="c,b,a")],
                         [("a", "granted", 2), ("b", "granted", 2), ("c", "granted", 1)])

    def test_a_grant_whose_time_is_over_is_never_granted_anew(self):
        self.leases.token("one")
        self.leases.release("one", 34)
        self.assertEqual(self.leases.outcome("one"), "over")
        self.leases.token("two")
        self.leases.release("two", 35)
        self.assertEqual(self.leases.outcome("one"), "over")
        self.leases.token("three")
        self.expire()
        self.assertEqual(self.leases.outcome("three"), "over")

    def test_an_expired_term_revives_while_nobody_took_or_released_it(self):
        self.leases.token("one", ttl_ms=20_000)
        self.expire()
        self.assertEqual(self.leases.renew("one", 34), [("orders", 34, 20_000)])
        self.assertEqual(self.leases.outcome("two"), "held")
        self.expire()
        self.leases.token("two")
        self.assertEqual(self.leases.renew("one", 34), [])
        self.assertEqual(self.leases.renew("two", 34), [])  # its token is 35
        self.leases.release("two", 35)
        self.assertEqual(self.leases.renew("two", 35), [])

    def test_a_term_below_the_mark_is_not_renewed(self):
        self.leases.token("one")
        self.leases.seal("one", 34)
        self.assertEqual(self.leases.renew("one", 34), [("orders", 34, 30_000)])
        self.leases.seal("from elsewhere", 35)
        self.assertEqual(self.leases.renew("one", 34), [])

    def test_a_release_by_others_does_nothing(self):
        self.leases.token("one")
        self.assertEqual(self.leases.release("two", 34), [])
        self.assertEqual(self.leases.release("one", 33), [])
        self.assertEqual(self.leases.outcome("two"), "held")
        self.assertEqual(self.leases.release("one", 34), [("orders",)])
        self.assertEqual(self.leases.release("one", 34), [])

    def test_a_hash_from_the_table_is_no_grant_id(self):
        self.leases.token("one")
        for seen in self.fenced.sql("SELECT encode(grant_hash, 'hex'), encode(grant_hash, 'escape') FROM fencegate.leases")[0]:
            self.assertEqual(self.leases.renew(seen, 34), [])

    def test_at_least(self):
        self.leases.token("one", at_least_ms=60_000)
        self.leases.release("one", 34)
        self.assertEqual(self.leases.outcome("two"), "held")
        self.fenced.sql("UPDATE fencegate.leases SET not_before = clock_timestamp()")
        self.assertEqual(self.leases.token("two"), 35)

    def test_a_delay_follows_an_expiry_but_no_release(self):
        self.leases.token("one", lock_delay_ms=60_000)
        self.expire()
        self.assertEqual(self.leases.outcome("two"), "held")
        self.leases.renew("one", 34)
        self.leases.release("one", 34)
        self.assertEqual(self.leases.token("two"), 35)

    def test_a_clock_that_went_back_makes_nobody_hold_for_longer(self):
        self.leases.token("one", ttl_ms=5_000)
        self.fenced.sql("UPDATE fencegate.leases SET expires_at = clock_timestamp() + interval '1 day', "
                        "not_before = clock_timestamp() + interval '1 day'")
        ((_, outcome, _, _, left),) = self.leases.grant("two")
        self.assertEqual(outcome, "held")
        self.assertLessEqual(left, 5_000)

    def test_another_start_of_the_server_costs_a_stride(self):
        self.leases.token("one")
        self.leases.release("one", 34)
        self.fenced.sql("UPDATE fencegate.leases SET incarnation = 'another'")
        self.assertEqual(self.leases.token("two"), 34 + STRIDE)
        self.leases.release("two", 34 + STRIDE)
        self.assertEqual(self.leases.token("three"), 35 + STRIDE)

    def test_the_same_id_behind_another_start_gets_another_token(self):
        """The row may be an older one, in front of a grant that was lost."""
        self.leases.token("one")
        self.assertEqual(self.leases.token("one"), 34)
        self.fenced.sql("UPDATE fencegate.leases SET incarnation = 'another'")
        self.assertEqual(self.leases.token("one"), 34 + STRIDE)
        self.assertEqual(self.leases.token("one"), 34 + STRIDE)

    def test_a_row_that_may_have_been_forgotten_costs_a_stride(self):
        self.fenced.sql("UPDATE fencegate.settings SET incarnation = 'another'")
        self.assertEqual(self.leases.token("one"), 33 + STRIDE)
        self.leases.release("one", 33 + STRIDE)
        self.assertEqual(self.leases.token("two"), 34 + STRIDE)

    def test_stores_that_were_sealed_must_be_covered(self):
        self.leases.token("one", stores=("a", "b"))
        self.leases.release("one", 34)
        ((_, outcome, _, missing, _),) = self.leases.grant("two", stores=("a", "c"))
        self.assertEqual((outcome, missing), ("uncovered", "b"))
        self.assertEqual(self.leases.token("two", stores=("a", "b", "c")), 35)

    def test_tokens_end(self):
        self.assertEqual(self.leases.token("one", resources="far", floor=LAST - STRIDE), LAST - STRIDE + 1)
        self.leases.release("one", LAST - STRIDE + 1, "far")
        self.assert_rejected(self.leases.grant("two", resources="far"), "ZF006", "no token above it is left")
        self.fenced.sql("UPDATE fencegate.marks SET mark = 9223372036854775807")
        self.assert_rejected(self.leases.grant("two"), "ZF006", "the mark of orders", "no token above it is left")

    def test_an_operator_takes_a_lease_by_force(self):
        self.leases.token("one")
        self.assertEqual(self.leases.token("operator", by_force=True), 35)
        self.assertEqual(self.leases.renew("one", 34), [])

    def test_what_an_operator_froze_nobody_has_until_it_is_thawed(self):
        self.leases.token("one")
        thaw = "SELECT fencegate.lease_thaw('orders')"
        self.assertEqual(self.leases.client.run(thaw), [(False,)])
        self.assertEqual(self.leases.token("operator", by_force=True, freeze=True, ttl_ms=1), 35)
        self.assertEqual(self.leases.renew("one", 34), [])
        time = "UPDATE fencegate.leases SET expires_at = expires_at - interval '1 day', granted_at = granted_at - interval '1 day'"
        self.fenced.sql(time)
        for force in (False, True):
            ((_, outcome, token, by, left),) = self.leases.grant("two", by_force=force)
            self.assertEqual((outcome, token, by), ("held", 35, "holder of operator"))
            self.assertGreater(left, 10 ** 12)
        self.assertEqual(self.leases.client.run("SELECT token, left_ms > 10 ^ 12, frozen FROM fencegate.lease_list()"),
                         [(35, True, True)])
        self.assertEqual(self.leases.token("again", by_force=True, freeze=True), 36)
        self.assertEqual(self.leases.client.run(thaw), [(True,)])
        self.assertEqual(self.leases.client.run(thaw), [(False,)])
        self.assertEqual(self.leases.outcome("again"), "over")
        self.assertEqual(self.leases.token("two"), 37)

    def test_a_release_ends_what_was_frozen(self):
        self.leases.token("operator", by_force=True, freeze=True)
        self.leases.release("operator", 34)
        self.assertEqual(self.leases.token("two"), 35)

    def test_names_and_times_that_make_no_sense(self):
        for bad in ({"resources": "a b"}, {"resources": "a,a"}, {"resources": ""}, {"floor": -1}):
            with self.subTest(**bad):
                self.assert_rejected(self.leases.grant("one", **bad), "ZF003")
        for bad in ({"ttl_ms": 0}, {"ttl_ms": 86_400_001}, {"at_least_ms": -1}):
            with self.subTest(**bad):
                self.assertEqual(self.leases.grant("one", **bad).state, "23514")

    def test_they_are_as_durable_as_what_others_commit(self):
        for statement in ("SELECT fencegate.lease_grant('{orders}', 'one', '', 1000, '{0}', '{}', 1)",
                          "SELECT fencegate.lease_renew('{orders}', '{34}', '{one}')",
                          "SELECT fencegate.lease_release('{orders}', '{34}', '{one}')"):
            with self.subTest(statement):
                client = self.fenced.writer("postgres", "-c synchronous_commit=off")
                client.begin()
                client.run(statement)
                self.assertEqual(client.run("SHOW synchronous_commit"), [("on",)])

    def test_those_who_listen_hear_of_a_release(self):
        listener = self.fenced.writer()
        listener.run("LISTEN fencegate_released")
        self.leases.token("one")
        self.leases.release("one", 34)

        def heard():
            listener.connection.poll()
            return [one.payload for one in listener.connection.notifies] == ["orders"]
        self.assertTrue(eventually(heard))

    def test_the_list(self):
        self.leases.token("one")
        self.leases.client.run("SELECT fencegate.lease_grant('{held}', 'x', '', 1000, '{0}', '{}', 1)")
        self.assertEqual(self.leases.client.run(
            "SELECT resource, token, mark, holder, left_ms > 0 FROM fencegate.lease_list() WHERE resource = 'orders'"),
            [("orders", 34, 33, "holder of one", True)])

    def waiters(self):
        return self.leases.client.run("SELECT resource, holder FROM fencegate.lease_waiters()")

    def waits(self, grant, ms=20_000, by=None, resource="orders"):
        return (by or self.leases.client).run("SELECT fencegate.lease_wait(%s, %s, %s, %s)", resource, grant, f"holder of {grant}", ms)

    def test_who_waits(self):
        self.leases.token("one")
        for grant in ("two", "three", "two"):
            self.waits(grant)
        self.waits("four", resource="never-granted")
        self.assertEqual(self.waiters(), [("orders", "holder of two"), ("orders", "holder of three")])
        self.leases.release("one", 34)
        self.leases.token("two")
        self.assertEqual(self.waiters(), [("orders", "holder of three")])
        self.waits("three", 0)
        self.assertEqual(self.waiters(), [])
        ((secrets,),) = self.leases.client.run("SELECT count(*) FROM fencegate.waiters w WHERE w::text LIKE '%%two %%'")
        self.assertEqual(secrets, 0)  # no grant id, but its hash

    def test_who_waited_and_died_is_forgotten(self):
        self.leases.token("one")
        self.waits("dead")
        self.waits("again")
        self.fenced.sql("UPDATE fencegate.waiters SET expires_at = clock_timestamp() - interval '1 ms'")
        self.assertEqual(self.waiters(), [])
        self.waits("again")
        self.assertEqual(self.waiters(), [("orders", "holder of again")])
        self.assertEqual(self.fenced.value("SELECT count(*) FROM fencegate.waiters"), 1)
        self.fenced.sql("UPDATE fencegate.waiters SET expires_at = expires_at + interval '1 day'")  # the clock went back
        self.assertEqual(self.waiters(), [])

    def test_not_more_than_64_are_noted(self):
        self.leases.token("one")
        for i in range(70):
            self.waits(f"grant {i}")
        self.assertEqual(len(self.waiters()), 64)
        self.waits("grant 1")
        self.waits("grant 2", 0)
        self.waits("grant 69")
        self.assertEqual(len(self.waiters()), 64)

    def test_a_note_waits_for_nobody_and_fails_for_nothing(self):
        self.leases.token("one")
        self.waits("two")
        locker = self.fenced.writer("postgres")
        locker.begin()
        locker.run("LOCK TABLE fencegate.waiters")
        self.assertEqual(self.waits("two"), [("",)])
        self.assertEqual(self.leases.outcome("two"), "held")  # nor does a grant ask it
        self.leases.release("one", 34)
        self.leases.token("two")
        locker.close()

    def test_who_may_ask(self):
        client = self.fenced.writer()
        for text in ("SELECT fencegate.lease_grant('{orders}', 'one', '', 1000, '{0}', '{}', 1)", "SELECT fencegate.lease_list()",
                     "SELECT fencegate.lease_renew('{orders}', '{1}', '{one}')", "SELECT fencegate.identity()",
                     "SELECT fencegate.lease_release('{orders}', '{1}', '{one}')",
                     f"SELECT fencegate.seal('{{orders}}', '{{34}}', '{ISSUER}', 'one')", "SELECT fencegate.incarnation()", "SELECT fencegate.lease_forget_store('orders', 'x')",
                     "SELECT fencegate.lease_wait('orders', 'one', '', 1000)", "SELECT fencegate.lease_waiters()",
                     "UPDATE fencegate.waiters SET holder = ''", "DELETE FROM fencegate.waiters",
                     "UPDATE fencegate.leases SET token = 1", "SELECT FROM fencegate.leases FOR UPDATE"):
            with self.subTest(text):
                self.assertEqual(client.run(text).state, "42501")
        self.server.user("gate")
        self.fenced.sql("GRANT fencegate_gate TO gate")
        self.assertEqual(Leases(self.fenced, "gate").token("one"), 34)

    def test_nobody_without_rights_shuts_leases_out(self):
        """By a lock that waits behind a reader's."""
        reader, waiting = self.fenced.writer(), self.fenced.writer("bob")
        reader.begin()
        reader.run("SELECT FROM fencegate.leases")
        waiting.in_background("CREATE RULE r AS ON INSERT TO fencegate.leases DO NOTHING").wait_until_blocked()
        self.assertEqual(self.leases.token("one"), 34)
        self.assertEqual(self.leases.renew("one", 34), [("orders", 34, 30_000)])

    def test_a_restored_dump_in_the_same_server_costs_a_stride(self):
        self.leases.token("one")
        self.leases.release("one", 34)
        self.fenced.sql("REFRESH MATERIALIZED VIEW fencegate.secret")  # as it is filled behind a dump
        self.assertEqual(self.leases.token("two"), 34 + STRIDE)

    def test_what_nobody_acted_on_blocks_nobody(self):
        self.leases.token("one", at_least_ms=60_000)
        self.leases.client.run("SELECT fencegate.lease_release('{orders}', '{34}', '{one}', true)")
        self.assertEqual(self.leases.token("two"), 35)

    def test_a_store_that_is_no_more(self):
        self.leases.token("one", stores=("a", "b"))
        self.leases.release("one", 34)
        self.assertEqual(self.leases.client.run("SELECT fencegate.lease_forget_store('orders', 'b')"), [(True,)])
        self.assertEqual(self.leases.client.run("SELECT fencegate.lease_forget_store('orders', 'b')"), [(False,)])
        self.assertEqual(self.leases.token("two", stores=("a",)), 35)

    def test_arguments_that_are_null_open_nothing(self):
        self.leases.token("one", stores=("a",))
        self.assertEqual(self.leases.outcome("two", by_force=None), "held")
        self.leases.release("one", 34)
        self.assertEqual(self.leases.outcome("two", stores=("b", None)), "uncovered")

    def test_two_databases_are_two_stores_and_two_issuers(self):
        one, other = (base.sql("SELECT store, issuer FROM fencegate.identity()")[0] for base in (self.fenced, self.base()))
        self.assertEqual(len({*one, *other}), 4)


def grant_to_two_at_once(base):
    """With a stop behind all looks, in front of what grants; the row was there before."""
    Leases(base).release("zero", Leases(base).token("zero"))
    base.sql("SELECT pg_advisory_lock(4242)")
    first, second = Leases(base), Leases(base)
    asking = [one.client.in_background(GRANT, ["orders"], grant, "", 30_000, [0], ["s"], 1, 0, 0, False, False)
              for one, grant in ((first, "one"), (second, "two"))]
    assert all(one.wait_until_blocked() for one in asking)
    base.sql("SELECT pg_advisory_unlock(4242)")
    return [one.outcome()[0][1] for one in asking] == ["granted", "granted"]


def grant_in_a_transaction_that_began_long_ago(base):
    leases, other, ttl_ms = Leases(base), Leases(base), 200
    for grant in itertools.count():
        leases.client.begin()
        leases.client.run("SELECT pg_sleep(0.3)")
        begun = time.monotonic()
        token = leases.token(f"one {grant}", ttl_ms=ttl_ms)
        leases.client.run("COMMIT")
        outcome = other.outcome(f"two {grant}")
        if time.monotonic() - begun < ttl_ms / 1000:
            return outcome == "granted"
        # It was over by then, whatever its time had been counted from.
        leases.release(f"one {grant}", token)
        leases.release(f"two {grant}", token + 1)


def grant_a_repeated_request_behind_its_release(base):
    leases = Leases(base)
    leases.token("one")
    leases.release("one", 34)
    leases.token("two")
    leases.release("two", 35)
    return leases.outcome("one") == "granted"


def break_what_is_frozen(base):
    Leases(base).token("one", by_force=True, freeze=True)
    return Leases(base).outcome("two", by_force=True) == "granted"


def renew_below_the_mark(base):
    leases = Leases(base)
    leases.token("one")
    leases.seal("from elsewhere", 35)
    return leases.renew("one", 34) != []


def give_a_token_twice(base):
    """An issuer that was restored gives 34 again, to another."""
    first, second = Leases(base), Leases(base)
    assert first.seal("one", 34) == [("orders", 34, True)]
    return not isinstance(second.seal("two", 34), Rejected)


def shut_all_holders_out(base):
    """By one bare tag."""
    Leases(base).seal("one", 34)
    return not isinstance(base.writer().arm((1 << 63) - 1), Rejected)


def seal_under_two_issuers(base):
    leases = Leases(base)
    leases.seal("one", 34)
    return not isinstance(leases.seal("two", 35, OTHER_ISSUER), Rejected)


def seal_what_a_write_past_the_fence_raised(base):
    leases = Leases(base)
    leases.seal("one", 34)
    base.sql("UPDATE fencegate.marks SET mark = 35")
    return not isinstance(leases.seal("one", 35), Rejected)


def seal_what_is_moved_meanwhile(base):
    """With a stop in front of the mark's row, where the move is the first in line."""
    Leases(base).seal("one", 34)
    outside = base.writer("postgres")
    outside.begin()
    outside.run("SELECT FROM fencegate.marks FOR UPDATE")
    mover, late = Leases(base).client, Leases(base).client
    move = mover.in_background("SELECT fencegate.move_issuer('orders', %s, %s)", ISSUER, OTHER_ISSUER)
    assert move.wait_until_blocked()
    seal = late.in_background("SELECT fencegate.seal('{orders}', '{35}', %s, 'two')", ISSUER)
    assert seal.wait_until_blocked()
    outside.run("COMMIT")
    assert move.outcome() == [(OTHER_ISSUER,)]
    seal.outcome()
    return base.value("SELECT issuer FROM fencegate.marks") == ISSUER


class Mutations(FenceTest):
    pass


add_mutations(Mutations, {
    "leases: the locks of the rows": (
        within("lease_grant", "PERFORM FROM fencegate.leases l WHERE l.resource = ANY ($1) ORDER BY l.resource FOR NO KEY UPDATE;"),
        grant_to_two_at_once,
        {"mutate": within("lease_grant", "  SELECT q.r, greatest(", "  PERFORM pg_advisory_xact_lock_shared(4242);\n  SELECT q.r, greatest(")}),
    "leases: the time behind the locks": (
        within("lease_grant", "at := clock_timestamp();", "at := now();"), grant_in_a_transaction_that_began_long_ago, {}),
    "leases: grants of the past": (
        within("lease_grant", "hash = ANY (l.past_grants) OR "), grant_a_repeated_request_behind_its_release, {}),
    "leases: what is frozen": (within("lease_grant", "OR l.frozen AND freezes IS NOT TRUE"), break_what_is_frozen, {}),
    "leases: the mark in a renewal": (
        within("lease_renew", "AND NOT EXISTS (SELECT FROM fencegate.marks m WHERE m.resource = l.resource AND m.mark > l.token)"),
        renew_below_the_mark, {}),
    "seals: strict": (
        within("take", "IF by_grant IS NOT NULL AND NOT up THEN PERFORM fencegate.check_sealed(r, t, by_issuer, by_grant); END IF;"),
        give_a_token_twice, {}),
    "seals: the grant at the mark": (
        within("check_sealed", "x.sealed = t AND "), seal_what_a_write_past_the_fence_raised, {}),
    "seals: bare tokens": (
        within("not_the_issuer", "IF by_issuer IS NULL THEN", "IF by_issuer IS NULL THEN RETURN;"), shut_all_holders_out, {}),
    "seals: the lock of a move": (
        within("move_issuer", "    PERFORM fencegate.lock_exclusive($1, 9223372036854775807, fencegate.lock_key($1), "
                              "clock_timestamp(), deadline);"),
        seal_what_is_moved_meanwhile, {}),
    "seals: other issuers": (
        within("raise_one", "IF m < t AND owner", "IF m < t AND by_issuer IS NULL AND owner"), seal_under_two_issuers, {}),
})


if __name__ == "__main__":
    main()
