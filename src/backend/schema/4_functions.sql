-- ── for clients ─────────────────────────────────────────────────────────────────────────────────────────

-- The short way for what a new connection mostly is: one resource, the token is the mark, nothing is under way. NULL: use
-- fencegate.take, which also finds the words. Else the lowering that the mark stands under. Every condition comes before the lock, so that it is taken only to be kept.
-- It never waits for a lock, and so could come behind others; but whether an arm may must not depend on who else is there.
CREATE OR REPLACE FUNCTION fencegate.arm_equal(r text, t bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint; l bigint; started timestamptz;
BEGIN
  SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;
  IF (m = t) IS NOT TRUE THEN RETURN NULL; END IF;
  SELECT a.backend_start INTO started
    FROM pg_stat_get_activity(pg_backend_pid()) a JOIN pg_roles u ON u.oid = a.usesysid
   WHERE NOT u.rolsuper AND pg_has_role(current_user, 'pg_signal_backend', 'USAGE')
     AND current_setting('transaction_isolation') = 'read committed' AND NOT pg_is_in_recovery()
     AND NOT current_setting('transaction_read_only')::boolean AND pg_current_xact_id_if_assigned() IS NULL;
  IF started IS NULL OR NOT pg_try_advisory_xact_lock_shared(fencegate.lock_key(r)) THEN RETURN NULL; END IF;
  INSERT INTO fencegate.sessions AS s (resource, pid, backend_start, token)
    SELECT r, pg_backend_pid(), started, t FROM fencegate.marks x
     WHERE x.resource = r AND x.mark = t AND x.lowering = l  -- as it is now
    ON CONFLICT (resource, pid) DO UPDATE
    SET backend_start = EXCLUDED.backend_start, token = EXCLUDED.token, dead_since = NULL;
  RETURN CASE WHEN FOUND THEN l END;
END $$;

-- Arms this session. It must be the first thing in its transaction, and counts when that has committed.
CREATE OR REPLACE FUNCTION fencegate.arm_all(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
                                             max_step bigint DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer, lowering bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.clear_way(coalesce($3, 5000));
  IF cardinality(resources) = 1 AND cardinality(tokens) = 1 AND array_lower(resources, 1) = 1 THEN
    lowering := fencegate.arm_equal(resources[1], tokens[1]);
    IF lowering IS NOT NULL THEN
      resource := resources[1]; mark := tokens[1]; raised := false; cut := 0;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  RETURN QUERY SELECT a.resource, a.mark, a.raised, a.cut, a.lowering FROM fencegate.take($1, $2, $3, $4, true) a;
END $$;

CREATE OR REPLACE FUNCTION fencegate.arm(resource text, token bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.mark FROM fencegate.arm_all(ARRAY[$1], ARRAY[$2]) a
$$;

-- The mark of r, and its lowering, as they are while the lock is held. READ COMMITTED: read in a new statement. REPEATABLE READ and
-- SERIALIZABLE: the snapshot may be older than the wait for the lock, so the row itself must be locked, which fails
-- when it has moved. What only reads has nothing to fence.
CREATE OR REPLACE FUNCTION fencegate.guarded_mark(r text, t bigint, OUT mark bigint, OUT lowering bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT x.mark, x.lowering INTO mark, lowering FROM fencegate.marks x WHERE x.resource = r;
  IF current_setting('transaction_isolation') <> 'read committed'
     AND NOT current_setting('transaction_read_only')::boolean THEN
    BEGIN
      PERFORM FROM fencegate.marks x WHERE x.resource = r FOR SHARE;
    EXCEPTION WHEN serialization_failure THEN
      IF mark >= t THEN PERFORM fencegate.stale(r, t, NULL); END IF;
      PERFORM fencegate.unavailable(r, t, NULL, 'it moved while the transaction began', 'Run the transaction again.');
    END;
  END IF;
END $$;

-- The short way of guards and holds, for a resource whose mark is the token while nobody raises it: when its lock is held and
-- its mark was read behind that, the lowering that the mark stands under. NULL: the long way finds out, and finds the words.
-- This and guard_one_under set no search_path, which would take a tenth of their time: every name and operator says its schema
-- instead, whoever calls.
CREATE OR REPLACE FUNCTION fencegate.hold_one(r text, t bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE m bigint; l bigint;
BEGIN
  IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
     AND NOT pg_catalog.pg_is_in_recovery()
     AND pg_catalog.pg_try_advisory_xact_lock_shared(fencegate.lock_key(r)) THEN
    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x
     WHERE x.resource OPERATOR(pg_catalog.=) r;  -- new statement, new snapshot
  END IF;
  RETURN CASE WHEN (m OPERATOR(pg_catalog.=) t) THEN l END;
END $$;

-- guard: transaction. In front of a transaction's first statement, before any savepoint: holds the marks where they are
-- until the transaction ends. A raise waits for it, and ends it. ZF006 with "not_raised" when a mark is below its
-- token. `wait_ms`: for a raise that is under way, at most; from a gate that does not BEGIN, and could not say which kind
-- of transaction it wants: 25000 when this is another than READ COMMITTED, READ WRITE. It leaves in fencegate.guarded, for
-- the triggers of protected tables, what it was called with. That says who is meant, and proves nothing. It answers the
-- lowerings that the marks stand under, in the order of the resources.
CREATE OR REPLACE FUNCTION fencegate.guard_under(resources text[], tokens bigint[], wait_ms integer DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l bigint; lowerings bigint[];
BEGIN
  IF wait_ms IS NOT NULL AND (current_setting('transaction_read_only')::boolean
                              OR current_setting('transaction_isolation') <> 'read committed') THEN
    RAISE EXCEPTION 'transactions are not READ COMMITTED, READ WRITE by default; not applied'
      USING ERRCODE = 'invalid_transaction_state'; END IF;
  l := CASE WHEN cardinality(resources) = 1 AND cardinality(tokens) = 1 THEN fencegate.hold_one(resources[1], tokens[1]) END;
  lowerings := CASE WHEN l IS NULL THEN fencegate.guard_all(resources, tokens, wait_ms) ELSE ARRAY[l] END;
  PERFORM set_config('fencegate.guarded', array_to_string(resources, ',') || ';' || array_to_string(tokens, ','), true);
  RETURN lowerings;
END $$;

-- The same for one. It stands in front of each transaction: so it takes no arrays, spells fencegate.hold_one out, and runs no
-- query where an expression will do (PERFORM is one).
CREATE OR REPLACE FUNCTION fencegate.guard_one_under(r text, t bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE m bigint; l bigint; guarded pg_catalog.text;
BEGIN
  IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
     AND NOT pg_catalog.pg_is_in_recovery()
     AND pg_catalog.pg_try_advisory_xact_lock_shared(fencegate.lock_key(r)) THEN
    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x
     WHERE x.resource OPERATOR(pg_catalog.=) r;  -- new statement, new snapshot
  END IF;
  IF (m OPERATOR(pg_catalog.=) t) IS NOT TRUE THEN
    l := (fencegate.guard_all(ARRAY[r], ARRAY[t], NULL))[1]; END IF;
  guarded := pg_catalog.set_config('fencegate.guarded',
    r OPERATOR(pg_catalog.||) ';' OPERATOR(pg_catalog.||) t::pg_catalog.text, true);
  RETURN l;
END $$;

-- The same, without an answer. Sessions that were open when an older version was upgraded have calls of these parsed: for them, a
-- call that began to answer would fail.
CREATE OR REPLACE FUNCTION fencegate.guard(resources text[], tokens bigint[], wait_ms integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.guard_under(resources, tokens, wait_ms);
END $$;

CREATE OR REPLACE FUNCTION fencegate.guard_one(r text, t bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE l pg_catalog.int8;
BEGIN
  l := fencegate.guard_one_under(r, t);
END $$;

-- The long way: any number of resources, waiting for raises, and the words for what is wrong.
CREATE OR REPLACE FUNCTION fencegate.guard_all(resources text[], tokens bigint[], wait_ms integer) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  deadline timestamptz; r text; t bigint; m bigint; l bigint; at bigint; lowerings bigint[];
BEGIN
  PERFORM fencegate.check_claims(resources, tokens);
  lowerings := array_fill(NULL::bigint, ARRAY[cardinality(resources)]);
  IF pg_is_in_recovery() THEN
    PERFORM fencegate.unavailable(NULL, NULL, NULL, 'this server is a standby', 'Connect to the primary.'); END IF;
  SELECT clock_timestamp() + greatest(least(s.cut_ms, wait_ms), 1) * interval '1 ms' INTO STRICT deadline
    FROM fencegate.settings s;
  FOR r, t, at IN SELECT x.r, x.t, x.at FROM unnest(resources, tokens) WITH ORDINALITY x(r, t, at)
              ORDER BY fencegate.lock_key(x.r), x.r COLLATE "C" LOOP
    PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);
    SELECT g.mark, g.lowering INTO m, l FROM fencegate.guarded_mark(r, t) g;
    IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
    IF m IS DISTINCT FROM t THEN
      PERFORM fencegate.unavailable(r, t, m, 'it was not raised to the token', 'Raise it first.',
        ',"not_raised":true'); END IF;
    lowerings[at] := l;
  END LOOP;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
  RETURN lowerings;
END $$;

-- ── for gates and operators (fencegate_gate) ────────────────────────────────────────────────────────────

-- Raises the mark without arming this session.
CREATE OR REPLACE FUNCTION fencegate.raise(resource text, token bigint, cut_ms integer DEFAULT NULL) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.mark FROM fencegate.take(ARRAY[$1], ARRAY[$2], $3, 0, false) a
$$;

-- The same for several at once, all or none; with a grace for those who hold a mark, as in fencegate.take.
CREATE OR REPLACE FUNCTION fencegate.raise_all(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
                                               max_step bigint DEFAULT 0, grace_ms integer DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer, lowering bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.resource, a.mark, a.raised, a.cut, a.lowering FROM fencegate.take($1, $2, $3, $4, false, $5) a
$$;

-- equal_token: reject. The same as raise_all, and every token must be above its mark: of all who bring the same token, one gets through.
-- What follows in the transaction is one unit with it: the lock of a raise is kept until the end, and fencegate.take finds
-- out under that lock who was first. ZF004, for any of them: none was raised, nothing is applied. Triggers of protected
-- tables take the transaction for a guarded one.
CREATE OR REPLACE FUNCTION fencegate.spend(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
                                           max_step bigint DEFAULT 0, grace_ms integer DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer, lowering bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r text; t bigint; m bigint; l bigint;
BEGIN
  PERFORM fencegate.check_claims($1, $2);
  -- These need not wait to be told, and nobody is ended for them. A token that is stale comes before one that was used: a
  -- request with it was not applied.
  FOR r, t, m, l IN SELECT x.r, x.t, k.mark, k.lowering FROM unnest($1, $2) x(r, t)
                   JOIN fencegate.marks k ON k.resource = x.r AND k.mark >= x.t ORDER BY k.mark = x.t LOOP
    IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
    PERFORM fencegate.used(r, t, l);
  END LOOP;
  FOR resource, mark, raised, cut, lowering IN
      SELECT a.resource, a.mark, a.raised, a.cut, a.lowering FROM fencegate.take($1, $2, $3, $4, false, $5) a LOOP
    IF raised IS NOT TRUE THEN PERFORM fencegate.used(resource, mark, lowering); END IF;
    RETURN NEXT;
  END LOOP;
  PERFORM set_config('fencegate.guarded', array_to_string($1, ',') || ';' || array_to_string($2, ','), true);
END $$;

-- Holds the marks where they are until the transaction ends, for work that happens outside of the database. No raise
-- commits while this session lives: it waits, as long as its grace says, then ends the session; and fails when it cannot.
-- Raises nothing: ZF006 with "not_raised" when a mark is below its token. `wait_ms`: for a raise that is under way. Answers as
-- fencegate.guard does.
CREATE OR REPLACE FUNCTION fencegate.hold(resources text[], tokens bigint[], wait_ms integer DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l bigint; lowerings bigint[];
BEGIN
  PERFORM fencegate.check_transaction();
  -- What could not be ended must not hold: raises would fail. Asked once a session.
  IF current_setting('fencegate.may_hold', true) IS DISTINCT FROM 'yes' THEN
    PERFORM fencegate.check_session(true);
    PERFORM set_config('fencegate.may_hold', 'yes', false);
  END IF;
  l := CASE WHEN cardinality(resources) = 1 AND cardinality(tokens) = 1 THEN fencegate.hold_one(resources[1], tokens[1]) END;
  lowerings := CASE WHEN l IS NULL THEN fencegate.hold_all(resources, tokens, wait_ms) ELSE ARRAY[l] END;
  -- For how long, is for the caller and for raises to say.
  PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
  IF current_setting('transaction_timeout', true) IS NOT NULL THEN  -- PostgreSQL 17 and newer
    PERFORM set_config('transaction_timeout', '0', true); END IF;
  RETURN lowerings;
END $$;

-- The long way: any number of resources, waiting for raises, and the words for what is wrong.
CREATE OR REPLACE FUNCTION fencegate.hold_all(resources text[], tokens bigint[], wait_ms integer) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  deadline timestamptz; r text; t bigint; m bigint; l bigint; at bigint; lowerings bigint[];
BEGIN
  PERFORM fencegate.check_claims(resources, tokens);
  lowerings := array_fill(NULL::bigint, ARRAY[cardinality(resources)]);
  SELECT clock_timestamp()
         + least(greatest(coalesce($3, s.cut_ms + s.grace_ms), 1), s.cut_ms + s.grace_ms) * interval '1 ms'
    INTO STRICT deadline FROM fencegate.settings s;
  FOR r, t, at IN SELECT x.r, x.t, x.at FROM unnest(resources, tokens) WITH ORDINALITY x(r, t, at)
              ORDER BY fencegate.lock_key(x.r), x.r COLLATE "C" LOOP
    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;
    IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;  -- need not wait to be told
    PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);
    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;  -- new statement, new snapshot
    IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
    IF m IS DISTINCT FROM t THEN
      PERFORM fencegate.unavailable(r, t, m, 'it was not raised to the token', 'Raise it first.',
        ',"not_raised":true'); END IF;
    lowerings[at] := l;
  END LOOP;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
  RETURN lowerings;
END $$;

-- Why did my session end? For a gate, after the session's end was seen: what it was registered for, the marks, and
-- whether a raise is under way. When `raising` is false and the mark is not above the session's token, no raise that
-- cut it can still commit:
--
--   raise      lock ── SIGTERM ─────────── commit (its mark becomes visible) ── unlock
--   session               └─ end
--   here                        └─ is it locked? ── which mark?
--
-- A raise that cut it held the lock since before the signal, so since before we came. Found locked: raising. Found
-- unlocked: it is over, and its mark has become visible before it let go of the lock, hence before the question for the
-- mark, which is a later statement with a later snapshot. (The other order would miss a raise that commits in between.)
-- A raise that comes later did not cut it. Compare with the token that the *gate* remembers: a row may belong to the
-- next session with the same pid, and no row at all (swept, or the server crashed) proves nothing.
CREATE OR REPLACE FUNCTION fencegate.ended(pid integer)
RETURNS TABLE (resource text, token bigint, mark bigint, raising boolean, lowering bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE locked bigint[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM fencegate.malformed(NULL, NULL, 'this needs READ COMMITTED'); END IF;
  PERFORM fencegate.clear_way(5000);
  -- One look for all of them: a session may be registered for thousands.
  locked := ARRAY(SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_locks l
                   WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
                     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
  RETURN QUERY SELECT s.resource, s.token, x.mark, fencegate.lock_key(s.resource) = ANY (locked), x.lowering
    FROM fencegate.sessions s LEFT JOIN fencegate.marks x ON x.resource = s.resource WHERE s.pid = $1;
END $$;

-- Was this database restored from a dump? Then its marks may be older than what was written under them: raise each to the
-- highest token that was given out, then call fencegate.accept_copy. (A copy of the files is not told.)
CREATE OR REPLACE FUNCTION fencegate.is_copy() RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT s.secret_hash IS DISTINCT FROM encode(sha256(x.secret::bytea), 'hex')
    FROM fencegate.settings s, fencegate.secret x
$$;

CREATE OR REPLACE FUNCTION fencegate.accept_copy() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE fencegate.settings SET secret_hash = encode(sha256(x.secret::bytea), 'hex') FROM fencegate.secret x
$$;

CREATE OR REPLACE FUNCTION fencegate.look(resources text[]) RETURNS TABLE (resource text, mark bigint, lowering bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.clear_way(5000);
  RETURN QUERY SELECT x.resource, x.mark, x.lowering FROM fencegate.marks x WHERE x.resource = ANY ($1);
END $$;

-- `sessions`: those that are alive.
CREATE OR REPLACE FUNCTION fencegate.list()
RETURNS TABLE (resource text, mark bigint, raised_at timestamptz, sessions bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_stat_clear_snapshot();
  SELECT x.resource, x.mark, x.raised_at,
         (SELECT count(*) FROM fencegate.sessions s JOIN pg_stat_get_activity(NULL) a
            ON a.pid = s.pid AND a.backend_start = s.backend_start WHERE s.resource = x.resource)
    FROM fencegate.marks x ORDER BY x.resource
$$;

-- House-keeping, once a minute. Removes what has been dead for a minute at least, so that a gate can still ask. The
-- table's snapshot is older than the list of backends, so a row that is visible and has no backend is dead. Then each
-- row is changed only if it still is that of the dead session: a new session with its pid may have overwritten it.
CREATE OR REPLACE FUNCTION fencegate.sweep() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE dead record; n bigint := 0;
BEGIN
  PERFORM fencegate.check_transaction();
  PERFORM fencegate.check_session(false);
  PERFORM pg_stat_clear_snapshot();
  FOR dead IN SELECT s.resource, s.pid, s.backend_start, s.dead_since FROM fencegate.sessions s
               WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) a WHERE a.pid = s.pid
                                 AND (a.backend_start = s.backend_start OR a.backend_start IS NULL)) LOOP
    IF dead.dead_since IS NULL THEN
      UPDATE fencegate.sessions s SET dead_since = clock_timestamp()
       WHERE s.resource = dead.resource AND s.pid = dead.pid AND s.backend_start = dead.backend_start;
    ELSIF dead.dead_since < clock_timestamp() - interval '1 minute' THEN
      DELETE FROM fencegate.sessions s
       WHERE s.resource = dead.resource AND s.pid = dead.pid AND s.backend_start = dead.backend_start;
      n := n + 1;
    END IF;
  END LOOP;
  RETURN n;
END $$;
