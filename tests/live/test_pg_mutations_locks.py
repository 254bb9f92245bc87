"""As in test_pg_mutations, for locks: in which order they are taken, who is ended for sitting on one and who never is,
and what a lock tells of a session's end."""

import contextlib
import threading
import time

import psycopg2

from live_test import main
from pg_fence import FenceTest, Rejected, add_mutations, within
from pg_wire import FLUSH, SYNC, Wire, extended
from postgres import run_sql
from processes import eventually


KEY = "SELECT fencegate.lock_key('orders')"


def arm_behind_a_write(base):
    client = base.writer()
    client.begin()
    client.write()
    return not isinstance(client.arm(33), Rejected)


def sit_on_the_lock(base):
    """An older session that stays in its arming transaction, or just takes the lock, keeps the successor out."""
    for token, how in ((34, "SELECT fencegate.arm('orders', 33)"),
                       (35, "SELECT pg_advisory_lock(fencegate_key)"), (36, "SELECT pg_advisory_lock_shared(fencegate_key)"),
                       (38, "SELECT fencegate.arm('orders', 37)")):
        key = base.value("SELECT fencegate.lock_key('orders')")
        old = base.writer()
        if "arm" in how:
            old.begin()
        old.run(how.replace("fencegate_key", str(key)))
        if isinstance(base.writer("bob").arm(token), Rejected):
            return True
    return False


def raise_behind_a_raise_at_work(base):
    """The one in front carries the higher token, and waits for an older session."""
    old, high, low = base.armed(33), base.writer("bob"), base.writer()
    base.server.freeze(old.pid)
    try:
        raising = high.in_background("SELECT fencegate.arm('orders', 40)")
        assert raising.wait_until_blocked("Timeout")
        behind = low.in_background("SELECT fencegate.arm('orders', 34)")
        behind.wait_until_blocked()
        time.sleep(0.5)  # it looks every 200 ms
    finally:
        base.server.thaw(old.pid)
    behind.outcome()
    return isinstance(raising.outcome(), Rejected) or base.mark() != 40


def raise_with_a_lock_of_ones_own(base):
    old, new = base.writer(), base.writer("bob")
    new.run("SELECT pg_advisory_lock_shared(%s)", base.value("SELECT fencegate.lock_key('orders')"))
    old.begin()
    old.arm(33)
    return isinstance(new.arm(34), Rejected)


def raise_beside_a_lock_in_another_database(base):
    """A resource of the same name there is another one."""
    with contextlib.closing(base.server.connect("alice")) as other:
        run_sql(other, "SELECT pg_advisory_lock_shared(%s)", base.value("SELECT fencegate.lock_key('orders')"))
        old = base.writer()
        old.begin()
        old.arm(33)
        assert base.writer("bob").arm(34) == [(34,)]
        try:
            return run_sql(other, "SELECT 1") != [(1,)]
        except psycopg2.Error:
            return True


def sit_on_the_lock_behind_an_old_list_of_sessions(base):
    new = base.writer("bob")
    new.begin()
    new.run("SELECT count(*) FROM pg_stat_activity")
    old = base.writer()
    old.begin()
    old.arm(33)
    return isinstance(new.arm(34), Rejected)


def sit_on_the_lock_at_work(base):
    """A statement that takes for ever; raises are allowed half a second, and five more are for their ends."""
    old = base.writer()
    old.in_background("SELECT fencegate.arm('orders', 34), pg_sleep(600)")
    eventually(lambda: base.value("SELECT query_start < clock_timestamp() - interval '5.6 s' FROM pg_stat_activity "
                                  "WHERE pid = %s AND wait_event = 'PgSleep'", old.pid))
    # The first may have no time left for more than ending it.
    return all(isinstance(base.writer("bob").arm(35), Rejected) for _ in range(3))


class InTurns:
    """Three sessions that take the key, whose text anybody can compute, one behind the other; who is ended comes back."""

    def __init__(self, base, count=3):
        self.statement = f"SELECT pg_advisory_lock({base.value(KEY)}), pg_sleep(600)"
        self.base, self.leaving = base, threading.Event()
        self.threads = [threading.Thread(target=self._sit) for _ in range(count)]

    def _sit(self):
        while not self.leaving.is_set():
            with contextlib.suppress(psycopg2.Error), contextlib.closing(self.base.server.connect("alice", self.base.name)) as one:
                run_sql(one, self.statement)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        eventually(lambda: len(self.sessions()) == len(self.threads))
        return self

    def sessions(self):
        return self.base.sql("SELECT pid FROM pg_stat_activity WHERE query = %s AND datname = current_database() AND "
                             "wait_event IN ('advisory', 'PgSleep')", self.statement)

    def __exit__(self, *_):
        self.leaving.set()
        while any(thread.is_alive() for thread in self.threads):
            self.base.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = %s", self.statement)
            time.sleep(0.02)


def raise_against_sessions_in_turns(base):
    with InTurns(base):
        return any(isinstance(base.writer("bob").arm(token), Rejected) for token in (34, 35, 36))


def waiting_intruder(base):
    """While one raise is at work, it waits for the key, and a second raise behind it."""
    old = base.armed(33)
    base.server.freeze(old.pid)
    waiting = base.writer()
    try:
        raising = base.writer("bob").in_background("SELECT fencegate.arm('orders', 34)")
        assert raising.wait_until_blocked("Timeout")
        waiting.in_background(f"SELECT pg_advisory_lock({base.value(KEY)}), pg_sleep(600)")
        eventually(lambda: base.waits_for(waiting.pid) == "Lock")
        behind = base.writer("bob").in_background("SELECT fencegate.arm('orders', 35)")
        assert behind.wait_until_blocked()
        with contextlib.suppress(AssertionError):
            eventually(lambda: base.gone(waiting.pid), 5)
        return not base.gone(waiting.pid)
    finally:
        base.server.thaw(old.pid)
        raising.outcome()
        behind.outcome()


def rule_that_waits(base):
    """CREATE RULE waits for the end of a transaction that only named the table, and everybody for it."""
    holder, waiting = base.writer(), base.writer()
    holder.begin()
    holder.run("PREPARE x AS INSERT INTO fencegate.marks VALUES ('orders', 1)")
    waiting.in_background("CREATE RULE r AS ON INSERT TO fencegate.marks DO NOTHING")
    eventually(lambda: base.waits_for(waiting.pid) == "Lock")
    return isinstance(base.writer("bob").run("SELECT fencegate.arm_all('{orders}', '{34}', 1000)"), Rejected)


def rules_on_what_is_no_table(base):
    """As above, for what no LOCK TABLE locks: indexes, and the secret. Raises and leases go on."""
    for index, token in (("marks_pkey", 34), ("sessions_pid", 35), ("secret", 36)):
        with contextlib.closing(base.server.connect("postgres", base.name)) as holder:
            holder.autocommit = False  # it keeps its lock
            with holder.cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.execute("SET LOCAL enable_seqscan = off")
                table = {"marks_pkey": "fencegate.marks WHERE resource = 'orders'",
                         "sessions_pid": "fencegate.sessions WHERE pid = 1", "secret": "fencegate.secret"}[index]
                cursor.execute(f"SELECT FROM {table}")
                waiting = base.writer()
                waiting.in_background(f"CREATE RULE r AS ON INSERT TO fencegate.{index} DO INSTEAD NOTHING")
                eventually(lambda: base.waits_for(waiting.pid) == "Lock")
                if isinstance(base.writer("bob").run(f"SELECT fencegate.arm_all('{{orders}}', '{{{token}}}', 1000)"), Rejected):
                    return True
    return False


def guard_against_sessions_in_turns(base):
    with InTurns(base):
        return isinstance(base.writer("bob").run("SELECT fencegate.guard('{orders}', '{33}')"), Rejected)


def bystander_of_an_intruder(base):
    """The intruder does not end. Others of its role might be about to take its place, and could end it themselves."""
    intruder, bystander, other = base.writer(), base.writer(), base.writer("bob")
    intruder.run("SELECT pg_advisory_lock(%s)", base.value(KEY))
    base.server.freeze(intruder.pid)
    try:
        assert isinstance(base.writer("bob").arm(34), Rejected)
    finally:
        base.server.thaw(intruder.pid)
    assert other.alive()
    return bystander.alive()


def sit_on_the_lock_and_say_nothing(base):
    """The raise of a session that does not say whether it is at work."""
    base.sql(f"ALTER ROLE alice IN DATABASE {base.name} SET track_activities = off")
    old = base.writer()
    old.begin()
    assert old.arm(34) == [(34,)]
    return isinstance(base.writer("bob").arm(35), Rejected)


def end_a_pipeline_whose_rest_is_on_its_way(base):
    """What spends waits for its client for a moment, while a raise waits for it."""
    base.sql("GRANT fencegate_gate TO alice")
    with Wire(base.server.port, user="alice", database=base.name) as wire:
        wire.until_ready()
        spend = "SELECT * FROM fencegate.spend('{orders}', '{34}')"
        wire.send(extended("BEGIN"), extended(spend), FLUSH)
        eventually(lambda: base.value("SELECT true FROM pg_stat_activity WHERE query = %s AND state = 'active' "
                                      "AND wait_event = 'ClientRead'", spend))
        raising = base.writer("bob").in_background("SELECT fencegate.arm('orders', 35)")
        looks = set()  # each time that it waits anew, it has looked at the holders

        def has_looked():
            looks.update(base.sql("SELECT waitstart FROM pg_locks WHERE pid = %s AND waitstart IS NOT NULL",
                                  raising.client.pid))
            return len(looks) > 2 or raising.done()
        eventually(has_looked)
        try:
            wire.send(extended("INSERT INTO writes (note) VALUES ('spent')"), extended("COMMIT"), SYNC)
            wire.until_ready()
        except ConnectionError:
            pass
        assert raising.outcome() == [(35,)]
    return "spent" not in base.writes()


def let_go_before_the_end(base):
    """It was found on the lock, and holds it no longer when it is its turn to be ended."""
    key = base.value("SELECT fencegate.lock_key('orders')")
    bystander, new = base.writer(), base.writer("bob")
    bystander.run("SELECT pg_advisory_lock_shared(%s)", key)
    base.sql("SELECT pg_advisory_lock(4242)")
    raising = new.in_background("SELECT fencegate.arm('orders', 34)")
    assert raising.wait_until_blocked("Timeout")
    bystander.run("SELECT pg_advisory_unlock_shared(%s)", key)
    base.sql("SELECT pg_advisory_unlock(4242)")
    assert raising.outcome() == [(34,)]
    return not bystander.alive()


def two_resources(base):
    """In the order of their locks; both marks are 33."""
    base.sql("INSERT INTO fencegate.marks (resource, mark) VALUES ('left', 33), ('right', 33)")
    return [name for (name,) in base.sql("SELECT r FROM unnest('{left,right}'::text[]) r ORDER BY fencegate.lock_key(r)")]


def outlive_the_wait_for_another(base):
    """While a raise of two waits for the older session of one, that of the other goes on."""
    first, second = two_resources(base)
    frozen, other = base.writer(), base.writer()
    frozen.arm(33, first)
    other.arm(33, second)
    base.server.freeze(frozen.pid)
    try:
        raising = base.writer("bob").in_background("SELECT FROM fencegate.arm_all(%s, '{34,34}')", [first, second])
        assert raising.wait_until_blocked("Timeout")
        return other.alive()
    finally:
        base.server.thaw(frozen.pid)
        assert not isinstance(raising.outcome(), Rejected)


def raise_two_in_two_orders(base):
    """Both stop behind their first lock."""
    base.sql("GRANT fencegate_gate TO alice, bob")
    first, second = two_resources(base)
    base.sql("SELECT pg_advisory_lock(4242)")
    raising = []
    for user, names, tokens in (("alice", [first, second], "{34,34}"), ("bob", [second, first], "{35,35}")):
        raising.append(base.writer(user).in_background("SELECT FROM fencegate.raise_all(%s, %s)", names, tokens))
        assert raising[-1].wait_until_blocked()
    base.sql("SELECT pg_advisory_unlock(4242)")
    return any(isinstance(one.outcome(), Rejected) for one in raising)


def patient_writer(base):
    """When it waits in a circle with others, it is one of the others that PostgreSQL ends."""
    base.sql(f"ALTER ROLE alice IN DATABASE {base.name} SET deadlock_timeout = '1min'")
    return base.writer()


def raise_with_a_grace(base, names):
    """It waits in one piece, as long as its grace says."""
    base.sql("GRANT fencegate_gate TO bob")
    base.sql(f"ALTER ROLE bob IN DATABASE {base.name} SET deadlock_timeout = '3s'")
    raising = base.writer("bob").in_background("SELECT FROM fencegate.raise_all(%s, '{34,34}', 5000, 0, 20000)", names)
    assert raising.wait_until_blocked()
    return raising


def arm_twice_in_a_transaction(base):
    """The second arm would wait for the raise that waits for the first."""
    first, second = two_resources(base)
    old = patient_writer(base)
    old.begin()
    old.arm(33, second)
    raising = raise_with_a_grace(base, [first, second])
    arming = old.in_background("SELECT fencegate.arm(%s, 33)", first)
    return isinstance(raising.outcome(), Rejected) or not isinstance(arming.outcome(), Rejected)


def hold_two_in_another_order(function):
    """It stops behind its first lock, so that a raise of both waits for one of them."""
    def attack(base):
        base.sql("GRANT fencegate_gate TO alice")
        first, second = two_resources(base)
        base.sql("SELECT pg_advisory_lock(4242)")
        holder = patient_writer(base)
        holder.begin()
        holding = holder.in_background(f"SELECT fencegate.{function}(%s, '{{33,33}}')", [second, first])
        assert holding.wait_until_blocked()
        raising = raise_with_a_grace(base, [first, second])
        base.sql("SELECT pg_advisory_unlock(4242)")
        holding.outcome()
        holder.run("COMMIT")
        return isinstance(raising.outcome(), Rejected)
    return attack


def ask_while_the_raise_commits(base):
    """Between the two looks. "Not raising, and the mark is 33" would say that no raise has ended it."""
    old, new = base.armed(33), base.writer("bob")
    new.begin()
    new.arm(34)
    base.sql("GRANT fencegate_gate TO alice")
    base.sql("SELECT pg_advisory_lock(4242)")
    asking = base.writer().in_background("SELECT mark, raising FROM fencegate.ended(%s)", old.pid)
    assert asking.wait_until_blocked()
    new.run("COMMIT")
    base.sql("SELECT pg_advisory_unlock(4242)")
    return asking.outcome() == [(33, False)]


INTRUDERS = "intruded := fencegate.end_intruders(k, intruded);"
STOP = "PERFORM pg_advisory_xact_lock_shared(4242);"  # for as long as the test holds it
GUARD_LOCK = "PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);\n"
IN_ORDER = "ORDER BY fencegate.lock_key(x.r), x.r COLLATE \"C\""
WHICH_ARE_RAISED = """\
  locked := ARRAY(SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_locks l
                   WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
                     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
"""
READ_MARKS = """\
  RETURN QUERY SELECT s.resource, s.token, x.mark, fencegate.lock_key(s.resource) = ANY (locked), x.lowering
    FROM fencegate.sessions s LEFT JOIN fencegate.marks x ON x.resource = s.resource WHERE s.pid = $1;
"""
MARKS_FIRST = f"""\
  FOR resource, token, mark, lowering IN SELECT s.resource, s.token, x.mark, x.lowering
    FROM fencegate.sessions s LEFT JOIN fencegate.marks x ON x.resource = s.resource WHERE s.pid = $1 LOOP
  {STOP}
  {WHICH_ARE_RAISED}
    raising := fencegate.lock_key(resource) = ANY (locked);
    RETURN NEXT;
  END LOOP;
"""

TABLE = {
    "ending who sits on the lock": (
        within("lock_exclusive", "PERFORM fencegate.end_idle_holders(k);"), sit_on_the_lock, {"cut_ms": 3000}),
    "ending who holds the lock of a raise and does nothing": (
        within("idle_holders", "OR a.state LIKE 'idle%'"), sit_on_the_lock, {"cut_ms": 3000}),
    "ending who takes the key and is no raise": (
        within("lock_exclusive", INTRUDERS), raise_against_sessions_in_turns, {"cut_ms": 2500}),
    "ending who waits for the key and is no raise": (
        within("intruders", "fencegate.locks_of(key, true) l\n                  WHERE l.mode = 'ExclusiveLock' AND l.pid <>",
               "fencegate.locks_of(key) l\n                  WHERE l.mode = 'ExclusiveLock' AND l.pid <>"),
        waiting_intruder, {"cut_ms": 8000}),
    "guard: ending who takes the key and is no raise": (
        within("lock_shared", INTRUDERS), guard_against_sessions_in_turns, {"cut_ms": 2500}),
    "ending who shuts the tables and has no right to": (
        within("clear_way", "intruded := fencegate.end_sessions(fencegate.table_intruders(), intruded);"), rule_that_waits, {}),
    "ending who shuts an index and has no right to": (
        within("touch_indexes", "PERFORM pg_relation_size(x, 'init') FROM", "PERFORM FROM"), rules_on_what_is_no_table, {}),
    "ending others of the role": (
        within("lock_exclusive", INTRUDERS, INTRUDERS.replace("k, intruded", "k, false")), bystander_of_an_intruder,
        {"cut_ms": 1000}),
    "a raise shows that it is one": (
        within("show_raise", "LOCK TABLE fencegate_private.raising IN ROW EXCLUSIVE MODE;", "NULL;"),
        raise_behind_a_raise_at_work, {}),
    "ending who does not say what it does": (
        within("idle_holders", " OR a.state IS NULL OR a.state = 'disabled'"), sit_on_the_lock_and_say_nothing,
        {"cut_ms": 1500, "grace_ms": 0}),
    "never ending a raise at work": (
        within("idle_holders", "AND (l.mode = 'ShareLock'", "AND (true OR l.mode = 'ShareLock'"),
        raise_behind_a_raise_at_work, {}),
    "never ending itself": (
        within("idle_holders", "WHERE l.pid <> pg_backend_pid()", "WHERE true"), raise_with_a_lock_of_ones_own, {}),
    "locks of this database only": (
        within("locks_of", "     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())\n"),
        raise_beside_a_lock_in_another_database, {}),
    "a new list of sessions for who sits on the lock": (
        within("idle_holders", "SELECT pg_stat_clear_snapshot();"), sit_on_the_lock_behind_an_old_list_of_sessions,
        {"cut_ms": 3000}),
    "ending whose statement takes longer than any raise": (
        within("idle_holders", "OR a.query_start <", "OR false AND a.query_start <"),
        sit_on_the_lock_at_work, {"cut_ms": 500, "grace_ms": 0}),
    "a moment for the rest of a pipeline": (
        within("idle_holders", " AND a.query_start < clock_timestamp() - interval '20 s'", ""),
        end_a_pipeline_whose_rest_is_on_its_way,
        {"mutate": within("idle_holders", "interval '1 s'", "interval '20 s'"), "cut_ms": 15000}),
    "ending only who sits on the lock still": (
        within("end_idle_holders", "PERFORM pg_terminate_backend(h) FROM fencegate.idle_holders(key) h WHERE h = p;",
               "PERFORM pg_terminate_backend(p);"), let_go_before_the_end,
        {"mutate": within("end_idle_holders", "PERFORM pg_terminate_backend(h)",
                          "WHILE NOT pg_try_advisory_xact_lock_shared(4242) LOOP PERFORM pg_sleep(0.01); END LOOP;\n"
                          "      PERFORM pg_terminate_backend(h)"), "cut_ms": 20000}),
    "signals to all before the first wait": (
        within("cut", "ELSE 0 END;\n  END LOOP;\n  FOR i IN 1 .. cardinality(names) LOOP\n", "ELSE 0 END;\n"),
        outlive_the_wait_for_another, {"cut_ms": 20000}),
    "one order of locks": (
        within("take", IN_ORDER, ""), raise_two_in_two_orders,
        {"mutate": within("take", "toks := toks || t;", f"toks := toks || t; IF cardinality(toks) = 2 THEN {STOP} END IF;"),
         "cut_ms": 5000}),
    "guard: one order of locks": (
        within("guard_all", IN_ORDER, ""), hold_two_in_another_order("guard"),
        {"mutate": within("guard_all", GUARD_LOCK, GUARD_LOCK + STOP), "grace_ms": 20000}),
    "hold: one order of locks": (
        within("hold_all", IN_ORDER, ""), hold_two_in_another_order("hold"),
        {"mutate": within("hold_all", GUARD_LOCK, GUARD_LOCK + STOP), "grace_ms": 20000}),
    "an arm comes first": (
        within("check_transaction", "IF pg_current_xact_id_if_assigned() IS NOT NULL", "IF false"),
        arm_twice_in_a_transaction, {"grace_ms": 20000}),
    "an arm comes first on the short way": (
        within("arm_equal", " AND pg_current_xact_id_if_assigned() IS NULL", ""), arm_behind_a_write, {}),
    "why a session ended: the lock before the mark": (
        within("ended", WHICH_ARE_RAISED + STOP + READ_MARKS, MARKS_FIRST), ask_while_the_raise_commits,
        {"mutate": within("ended", READ_MARKS, STOP + READ_MARKS)}),
}


class Mutations(FenceTest):
    def test_under_load_sessions_in_turns_stop_no_raise(self):
        """32 clients whose transactions are guarded, and three that take the key."""
        base = self.base()
        base.sql("GRANT fencegate_gate TO bob")
        leaving, guarded = threading.Event(), []

        def work(client):
            token, count = 33, 0
            while not leaving.is_set():
                client.begin()
                if isinstance(client.run("SELECT fencegate.guard('{orders}', %s)", [token]), Rejected):
                    token += 1
                elif client.write("under load") is True:
                    count += 1
                client.run("ROLLBACK")
                if client.connection.closed:  # it held the mark when that rose
                    client = base.writer("bob")
            guarded.append(count)

        threads = [threading.Thread(target=work, args=(base.writer("bob"),)) for _ in range(32)]
        for thread in threads:
            thread.start()
        try:
            with InTurns(base):
                for token in range(34, 39):
                    self.assertEqual(base.writer("bob").run("SELECT fencegate.raise('orders', %s)", token), [(token,)])
        finally:
            leaving.set()
            for thread in threads:
                thread.join()
        self.assertGreater(sum(guarded), 32)


add_mutations(Mutations, TABLE)

if __name__ == "__main__":
    main(at_once=4)
