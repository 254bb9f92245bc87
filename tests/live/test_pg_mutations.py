"""Each part of the mechanism in PostgreSQL has an attack that fails, and that succeeds when the part is taken out."""

import contextlib
import functools

from live_test import main
from pg_fence import FenceTest, NO_SHORT_WAY, Rejected, add_mutations, everywhere, within, without
from processes import eventually


def raise_with_an_old_snapshot(base):
    new = base.writer("bob")
    new.begin("ISOLATION LEVEL REPEATABLE READ")
    new.run("SELECT count(*) FROM writes")
    old = base.armed(33)  # invisible to that snapshot
    new.arm(34)
    new.run("COMMIT")
    return base.mark() == 34 and old.write()


def raise_with_an_old_list_of_sessions(base):
    new = base.writer("bob")
    new.begin()
    new.run("SELECT count(*) FROM pg_stat_activity")  # cached until the transaction ends
    old = base.armed(33)
    new.arm(34)
    new.run("COMMIT")
    return base.mark() == 34 and old.write()


def raise_over_a_frozen_session(base):
    old = base.armed(33)
    old.begin()
    old.write()
    base.server.freeze(old.pid)
    try:
        base.writer("bob").run("SELECT * FROM fencegate.arm_all('{orders}', '{34}', 300)")
        return base.mark() == 34  # while it lives
    finally:
        base.server.thaw(old.pid)


def arm_while_a_raise_is_under_way(base):
    """The arm sees mark 33 = token 33, and must notice what the raise in front of it commits."""
    new, old = base.writer("bob"), base.writer()
    new.begin()
    new.arm(34)
    arming = old.in_background("SELECT fencegate.arm('orders', 33)")
    arming.wait_until_blocked()
    new.run("COMMIT")
    arming.outcome()
    return base.mark() == 34 and not isinstance(arming.outcome(), Rejected) and old.write()


def arm_with_an_old_snapshot(base):
    old = base.writer()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT count(*) FROM writes")
    base.writer("bob").arm(34)
    outcome = old.arm(33)
    old.run("COMMIT")
    return not isinstance(outcome, Rejected) and base.mark() == 34 and old.write()


def raise_between_a_look_and_the_lock(base):
    """With a stop on the short way, after it has seen mark 33 and before it takes the lock."""
    base.sql("SELECT pg_advisory_lock(4242)")
    old = base.writer()
    arming = old.in_background("SELECT fencegate.arm('orders', 33)")
    assert arming.wait_until_blocked()
    raised = base.writer("bob").arm(34)
    base.sql("SELECT pg_advisory_unlock(4242)")
    assert raised == [(34,)], raised
    return not isinstance(arming.outcome(), Rejected) and base.mark() == 34 and old.write()


def raise_while_an_arm_is_under_way(base):
    """The arm's registration is not visible yet."""
    old = base.writer()
    old.begin()
    old.arm(33)
    base.writer("bob").arm(34)
    old.run("COMMIT")
    return base.mark() == 34 and old.write()


def raise_past_another_raise(base):
    """Both see mark 33; the lower one comes second."""
    high, low = base.writer("bob"), base.writer()
    high.begin()
    high.arm(40)
    arming = low.in_background("SELECT fencegate.arm('orders', 34)")
    arming.wait_until_blocked()
    high.run("COMMIT")
    return not isinstance(arming.outcome(), Rejected) and base.mark() == 40 and low.write()


def raise_behind_a_write_past_the_lock(base):
    """An operator's own, for whose row the raise has to wait."""
    base.sql("BEGIN")
    base.sql("UPDATE fencegate.marks SET mark = 40")
    low = base.writer()
    arming = low.in_background("SELECT fencegate.arm('orders', 34)")
    arming.wait_until_blocked()
    base.sql("COMMIT")
    return not isinstance(arming.outcome(), Rejected) and base.mark() == 40 and low.write()


def commit_prepared_under_an_old_token(base):
    old = base.armed(33)
    old.begin()
    old.write()
    prepared = old.run("PREPARE TRANSACTION 'orphan'")
    assert prepared is None, prepared
    base.writer("bob").arm(34)
    raised = base.mark() == 34
    base.writer().run("COMMIT PREPARED 'orphan'")
    return raised and "a stale write" in base.writes()


def commit_prepared_with_a_forged_catalog(base):
    """pg_temp comes first for tables unless it is named last."""
    old = base.armed(33)
    old.begin()
    old.write()
    old.run("PREPARE TRANSACTION 'orphan'")
    new = base.writer("bob")
    new.run("CREATE TEMP TABLE pg_database (oid oid, datname name)")
    new.run("GRANT ALL ON pg_temp.pg_database TO PUBLIC")
    new.arm(34)
    raised = base.mark() == 34
    base.writer().run("COMMIT PREPARED 'orphan'")
    return raised and "a stale write" in base.writes()


def call_a_hostile_function(base):
    """Unqualified names must not be looked up where the caller says."""
    base.sql("GRANT CREATE ON DATABASE " + base.name + " TO alice")
    evil = base.writer()
    for text in ("CREATE SCHEMA evil", "GRANT USAGE ON SCHEMA evil TO PUBLIC",
                 "CREATE FUNCTION evil.pg_try_advisory_xact_lock_shared(bigint) RETURNS boolean LANGUAGE plpgsql AS "
                 "$$ BEGIN INSERT INTO fencegate.marks VALUES ('forged', 7); RETURN true; END $$",
                 "SET search_path = evil, pg_catalog"):
        outcome = evil.run(text)
        assert outcome is None, outcome
    evil.arm(33)
    return base.mark("forged") is not None


def jump_far(base):
    outcome = base.writer().run("SELECT * FROM fencegate.arm_all('{orders}', '{1000}', 5000, 100)")
    return not isinstance(outcome, Rejected)


def jump_past_the_database(base):
    """The caller asks for more than the database allows."""
    outcomes = [base.writer().run("SELECT * FROM fencegate.arm_all('{orders}', '{1000}', 5000, %s)", step)
                for step in (0, -1, 10_000, None)]
    return not all(isinstance(outcome, Rejected) for outcome in outcomes)


def wait_longer_than_the_database_allows(base):
    """Whoever asks to wait for an hour would hold the lock for as long."""
    old = base.armed(33)
    base.server.freeze(old.pid)
    try:
        raising = base.writer("bob").in_background("SELECT * FROM fencegate.arm_all('{orders}', '{34}', 3600000)")
        try:
            eventually(raising.done, 15)
            return False
        except AssertionError:
            return True
    finally:
        base.server.thaw(old.pid)
        raising.outcome()


def arm_a_superuser(base):
    return not isinstance(base.owner.arm(33), Rejected)


def survive_ones_own_raise(base):
    """Who raises without arming does not end itself."""
    base.sql("GRANT fencegate_gate TO alice")
    old = base.armed(33)
    old.run("SELECT fencegate.raise('orders', 34)")
    return base.mark() == 34 and old.write()


def commit_a_raise_asynchronously(base):
    new = base.writer()
    new.run("SET synchronous_commit = off")
    new.begin()
    new.arm(34)
    return new.run("SHOW synchronous_commit") == [("off",)]


def reuse_the_pid_of_a_dead_session(base):
    """Its row is still there; whoever has the pid now was never armed."""
    client = base.writer()
    base.sql("INSERT INTO fencegate.sessions VALUES ('orders', %s, now() - interval '1 day', 33)", client.pid)
    base.writer("bob").arm(34)
    return base.mark() == 34 and not client.alive()


def be_swept_while_alive(base):
    """Who has no row is not ended."""
    old = base.armed(33)
    for _ in range(2):
        base.sql("SELECT fencegate.sweep()")
        base.sql("UPDATE fencegate.sessions SET dead_since = dead_since - interval '2 minutes'")
    base.writer("bob").arm(34)
    return base.mark() == 34 and old.write()


def wait_for_a_row_that_is_locked_from_outside(base):
    base.sql("BEGIN")
    base.sql("SELECT FROM fencegate.marks FOR UPDATE")
    outcome = base.writer().arm(34)
    base.sql("ROLLBACK")
    return outcome.state != "ZF006"


GUARD = "SELECT fencegate.guard('{orders}', '{33}')"
GUARD_ONE = "SELECT fencegate.guard_one('orders', '33')"


def guard_with_an_old_snapshot(base, guard=GUARD):
    """REPEATABLE READ: the mark as it was before the raise."""
    old = base.writer()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT count(*) FROM writes")
    base.writer("bob").arm(34)
    old.run(guard)
    old.write()
    old.run("COMMIT")
    return base.mark() == 34 and "a stale write" in base.writes()


def guard_while_a_raise_is_under_way(base):
    new, old = base.writer("bob"), base.writer()
    new.begin()
    new.arm(34)
    old.begin()
    guarding = old.in_background(GUARD)
    guarding.wait_until_blocked()
    new.run("COMMIT")
    guarding.outcome()
    old.write()
    old.run("COMMIT")
    return base.mark() == 34 and "a stale write" in base.writes()


def guard_while_the_mark_moves(base, guard=GUARD):
    """With a stop in front of the lock."""
    base.sql("SELECT pg_advisory_lock(4242)")
    old = base.writer()
    old.begin()
    guarding = old.in_background(guard)
    assert guarding.wait_until_blocked()
    raised = base.writer("bob").arm(34)
    base.sql("SELECT pg_advisory_unlock(4242)")
    assert raised == [(34,)], raised
    guarding.outcome()
    old.write()
    old.run("COMMIT")
    return base.mark() == 34 and "a stale write" in base.writes()


def guard_in_a_savepoint(base):
    """ROLLBACK TO drops the lock, and what the guard has left is put back."""
    base.sql("SELECT fencegate.protect('writes', 'orders')")
    old = base.writer()
    old.begin()
    old.run("SAVEPOINT a")
    old.run(GUARD)
    left = old.run("SHOW fencegate.guarded")[0][0]
    old.run("ROLLBACK TO a")
    base.writer("bob").arm(34)
    old.run("SET LOCAL fencegate.guarded = %s", left)
    old.write()
    old.run("COMMIT")
    return base.mark() == 34 and "a stale write" in base.writes()


def guard_and_stay(base, guard=GUARD):
    old = base.writer()
    old.begin()
    old.run(guard)
    old.write()
    base.writer("bob").arm(34)
    old.run("COMMIT")
    return base.mark() == 34 and "a stale write" in base.writes()


LOOK_ALIKES = """
    CREATE SCHEMA look_alikes;
    CREATE DOMAIN look_alikes.text AS integer; CREATE DOMAIN look_alikes.int8 AS pg_catalog.text;
    CREATE FUNCTION look_alikes.current_setting(pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql AS $$ SELECT 'read committed' $$;
    CREATE FUNCTION look_alikes.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
    CREATE FUNCTION look_alikes.pg_try_advisory_xact_lock_shared(bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
    CREATE FUNCTION look_alikes.set_config(pg_catalog.text, pg_catalog.text, boolean) RETURNS pg_catalog.text LANGUAGE sql AS $$ SELECT '' $$;
    CREATE FUNCTION look_alikes.yes(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
    CREATE FUNCTION look_alikes.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
    CREATE OPERATOR look_alikes.= (FUNCTION = look_alikes.yes, LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text);
    CREATE OPERATOR look_alikes.= (FUNCTION = look_alikes.yes, LEFTARG = bigint, RIGHTARG = bigint);
    GRANT USAGE ON SCHEMA look_alikes TO PUBLIC"""


def among_look_alikes(attack):
    """The guard finds functions, operators and types of somebody else's in front of the server's."""
    def attack_by_them(base):
        base.sql(LOOK_ALIKES)
        return attack(base, f"SET LOCAL search_path = look_alikes, pg_catalog, public; {GUARD_ONE}")
    return attack_by_them


def wake_the_row_of_a_dead_session(token):
    """Whoever has its pid now arms with this token, and must be found by its own start."""
    def attack(base):
        old = base.writer()
        base.sql("INSERT INTO fencegate.sessions VALUES ('orders', %s, now() - interval '1 day', 5)", old.pid)
        assert old.arm(token) == [(token,)]
        base.writer("bob").arm(40)
        return base.mark() == 40 and old.write()
    return attack


@contextlib.contextmanager
def only_bob_is_visible(base):
    """Of the sessions of others, nobody sees when they began."""
    base.sql("REVOKE pg_read_all_stats FROM fencegate_owner; GRANT bob TO fencegate_owner")
    try:
        yield
    finally:
        base.sql("REVOKE bob FROM fencegate_owner; GRANT pg_read_all_stats TO fencegate_owner")


def raise_over_an_invisible_session(base):
    old, new = base.armed(33), base.writer("bob")
    with only_bob_is_visible(base):
        new.arm(34)
    return base.mark() == 34 and old.write()


def sweep_twice(base, sweepers):
    """A minute lies between them, and behind them."""
    for one in sweepers:
        assert not isinstance(one.run("SELECT fencegate.sweep()"), Rejected)
        one.run("COMMIT")
        base.sql("UPDATE fencegate.sessions SET dead_since = dead_since - interval '2 minutes'")


def be_swept_while_invisible(base):
    base.sql("GRANT fencegate_gate TO bob")
    old, sweeper = base.armed(33), base.writer("bob")
    with only_bob_is_visible(base):
        sweep_twice(base, [sweeper, sweeper])
    base.writer("bob").arm(34)
    return base.mark() == 34 and old.write()


def be_swept_by_old_lists_of_sessions(base):
    """In transactions that have looked at the sessions before this one began."""
    base.sql("GRANT fencegate_gate TO bob")
    sweepers = [base.writer("bob"), base.writer("bob")]
    for one in sweepers:
        one.begin()
        one.run("SELECT count(*) FROM pg_stat_activity")
    old = base.armed(33)
    sweep_twice(base, sweepers)
    base.writer("bob").arm(34)
    return base.mark() == 34 and old.write()


STOP_ON_THE_SHORT_WAY = within("arm_equal", "  IF started IS NULL",
                               "  IF t = 33 THEN PERFORM pg_advisory_xact_lock_shared(4242); END IF;\n  IF started IS NULL")

TRY_LOCK = "pg_catalog.pg_try_advisory_xact_lock_shared(fencegate.lock_key(r))"
ISOLATION = "pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'"
HOLD = f"  IF {ISOLATION}\n     AND NOT pg_catalog.pg_is_in_recovery()\n     AND {TRY_LOCK} THEN\n"
STOP_AND_HOLD = f"  PERFORM pg_catalog.pg_advisory_xact_lock_shared(4242);\n{HOLD}"
LOOK = "    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x\n" \
       "     WHERE x.resource OPERATOR(pg_catalog.=) r;  -- new statement, new snapshot\n"
EQUAL = "(m OPERATOR(pg_catalog.=) t)"
GUARDED_MARK = "SELECT g.mark, g.lowering INTO m, l FROM fencegate.guarded_mark(r, t) g;"

# No other row was written: then it was there already.
BELIEVES_ITS_WRITE = within("raise_one", "IF became = t THEN RETURN true; END IF;", "RETURN coalesce(became = t, false);")

TABLE = {
    "READ COMMITTED only": (
        without("IF current_setting('transaction_isolation') <> 'read committed' THEN\n    PERFORM fencegate.malformed(NULL, "
                "NULL,\n      'this needs", instead="IF false THEN PERFORM fencegate.malformed(NULL, NULL, 'this needs"),
        raise_with_an_old_snapshot, {}),
    "a new list of sessions for each look": (
        within("cut_once", "PERFORM pg_stat_clear_snapshot();"), raise_with_an_old_list_of_sessions, {}),
    "waiting until older sessions are gone": (
        within("cut", "WHILE ups[i] AND", "WHILE false AND"), raise_over_a_frozen_session, {}),
    "ending older sessions": (
        within("take", "counts := fencegate.cut(names, toks, ups, deadline);", "counts := array_fill(0, ARRAY[32]);"),
        lambda base: [old := base.armed(33), base.writer("bob").arm(34)] and base.mark() == 34 and old.write(), {}),
    "reading the mark again behind a raise": (
        within("hold_equal", "IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;\n  IF m IS DISTINCT FROM t THEN",
               "IF false THEN"), arm_while_a_raise_is_under_way, {}),
    "the lock of an equal arm": (
        within("hold_equal", "PERFORM fencegate.lock_shared(r, t, k, deadline);"), arm_while_a_raise_is_under_way, {}),
    "the lock on the short way": (
        within("arm_equal", "OR NOT pg_try_advisory_xact_lock_shared(fencegate.lock_key(r)) ", ""),
        arm_while_a_raise_is_under_way, {}),
    "reading the mark again on the short way": (
        within("arm_equal", "\n     WHERE x.resource = r AND x.mark = t AND x.lowering = l  -- as it is now", ""),
        raise_between_a_look_and_the_lock, {"mutate": STOP_ON_THE_SHORT_WAY}),
    "READ COMMITTED only on the short way": (
        within("arm_equal", "AND current_setting('transaction_isolation') = 'read committed'", ""),
        arm_with_an_old_snapshot, {}),
    "superusers on the short way": (within("arm_equal", "NOT u.rolsuper AND ", ""), arm_a_superuser, {}),
    "the lock of a raise": (
        within("raise_one", "PERFORM fencegate.lock_exclusive(r, t, k, spared, deadline);"), raise_while_an_arm_is_under_way, {}),
    "reading the mark again under the lock of a raise": (
        lambda schema: BELIEVES_ITS_WRITE(within("raise_one", "IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;")(schema)),
        raise_past_another_raise, {}),
    "reading the mark again that did not rise": (BELIEVES_ITS_WRITE, raise_behind_a_write_past_the_lock, {}),
    "sweeping the dead only": (
        within("sweep", "AND (a.backend_start = s.backend_start OR a.backend_start IS NULL)", "AND false"),
        be_swept_while_alive, {}),
    "taking the invisible for alive in a sweep": (
        within("sweep", " OR a.backend_start IS NULL", ""), be_swept_while_invisible, {}),
    "a new list of sessions for each sweep": (
        within("sweep", "PERFORM pg_stat_clear_snapshot();"), be_swept_by_old_lists_of_sessions, {}),
    "a row that is locked from outside": (
        within("raise_one", "EXCEPTION WHEN lock_not_available", "EXCEPTION WHEN division_by_zero"),
        wait_for_a_row_that_is_locked_from_outside, {"cut_ms": 500}),
    "the start of a session beside its pid": (
        within("cut_once", "AND (a.backend_start = s.backend_start OR a.backend_start IS NULL)", ""),
        reuse_the_pid_of_a_dead_session, {}),
    "the start of a session that arms with the pid of a dead one": (
        within("take", "SET backend_start = EXCLUDED.backend_start, token", "SET token"),
        wake_the_row_of_a_dead_session(34), {}),
    "the start of a session that arms with the pid of a dead one on the short way": (
        within("arm_equal", "SET backend_start = EXCLUDED.backend_start, token", "SET token"),
        wake_the_row_of_a_dead_session(33), {}),
    "taking the invisible for alive": (
        within("cut_once", " OR a.backend_start IS NULL", ""), raise_over_an_invisible_session, {}),
    "prepared transactions": (
        within("take", "IF true = ANY (ups) THEN PERFORM", "IF false THEN PERFORM"), commit_prepared_under_an_old_token, {}),
    "pg_temp last": (
        everywhere("SET search_path = pg_catalog, pg_temp AS", "SET search_path = pg_catalog AS"),
        commit_prepared_with_a_forged_catalog, {}),
    "a fixed search_path": (
        everywhere("SET search_path = pg_catalog, pg_temp AS", "AS"), call_a_hostile_function, {}),
    "max_step of the caller": (within("raise_one", "IF t - m > max_step", "IF false"), jump_far, {}),
    "max_step of the database": (
        within("take", ", CASE WHEN s.max_step > 0 THEN s.max_step END)", ")"), jump_past_the_database, {"max_step": 100}),
    "the longest wait of the database": (
        within("take", "least(greatest(coalesce($3, s.cut_ms), 1), s.cut_ms)", "coalesce($3, s.cut_ms)"),
        wait_longer_than_the_database_allows, {"cut_ms": 500}),
    "superusers": (within("check_session", "IF registers AND super", "IF false AND super"), arm_a_superuser, {}),
    "the raiser's own registration": (
        within("take", "IF NOT registers THEN", "IF false THEN"), survive_ones_own_raise, {}),
    "durable raises": (
        within("take", "PERFORM set_config('synchronous_commit', 'on', true);", "NULL;"), commit_a_raise_asynchronously, {}),
    "guard: the row's lock": (
        within("guarded_mark", "PERFORM FROM fencegate.marks x WHERE x.resource = r FOR SHARE;", "NULL;"),
        guard_with_an_old_snapshot, {}),
    "guard: the lock": (
        within("guard_all", "PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);"), guard_and_stay,
        {"mutate": NO_SHORT_WAY}),
    "guard: the mark is read behind the lock": (
        within("guard_all", "PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);\n"
               f"    {GUARDED_MARK}",
               f"{GUARDED_MARK} PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);"),
        guard_while_a_raise_is_under_way, {"mutate": NO_SHORT_WAY}),
    "guard: a protected table proves it anew": (
        within("refuse_unarmed", "IF fencegate.hold_one(r, t) IS NULL THEN PERFORM "
               "fencegate.guard_all(ARRAY[r], ARRAY[t], NULL); END IF;"), guard_in_a_savepoint, {}),
    "guard_one: the token is the mark": (
        within("guard_one_under", f"IF {EQUAL} IS NOT TRUE THEN", "IF false THEN"),
        functools.partial(guard_with_an_old_snapshot, guard=GUARD_ONE), {}),
}


def short_way(function, guard):
    """The same of each function that has the short way."""
    def attack(of):
        return functools.partial(of, guard=guard)
    return {
        f"{function}: the lock on the short way": (
            within(function, f"AND {TRY_LOCK} THEN", "THEN"), attack(guard_and_stay), {}),
        f"{function}: reading the mark behind the lock on the short way": (
            within(function, STOP_AND_HOLD + LOOK, LOOK + STOP_AND_HOLD), attack(guard_while_the_mark_moves),
            {"mutate": within(function, HOLD, STOP_AND_HOLD)}),
        f"{function}: READ COMMITTED only on the short way": (
            within(function, ISOLATION, "true"), attack(guard_with_an_old_snapshot), {}),
    }


TABLE |= short_way("hold_one", GUARD) | short_way("guard_one_under", GUARD_ONE)

# guard_one, which is called with a search_path of the caller's.
TABLE |= {f"guard_one: the schema of {what}": (within("guard_one_under", old, new), among_look_alikes(attack), {}) for what, old, new, attack in (
    ("current_setting", "pg_catalog.current_setting", "current_setting", guard_with_an_old_snapshot),
    ("what compares the isolation", ISOLATION, ISOLATION.replace("OPERATOR(pg_catalog.=)", "="), guard_with_an_old_snapshot),
    ("the lock", TRY_LOCK, TRY_LOCK.replace("pg_catalog.", ""), guard_and_stay),
    ("what compares the mark", EQUAL, "(m = t)", guard_with_an_old_snapshot))}


class Mutations(FenceTest):
    pass


add_mutations(Mutations, TABLE)

if __name__ == "__main__":
    main(at_once=2)
