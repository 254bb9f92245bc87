-- ── locks ───────────────────────────────────────────────────────────────────────────────────────────────

-- A heavyweight lock per resource: its queue is fair, it writes no WAL and no multixact, its holders show in pg_locks.
CREATE OR REPLACE FUNCTION fencegate.lock_key(resource text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN hashtextextended(resource COLLATE "C", 7379554720401);

-- The locks of a key that are held, in this database; or also those that are waited for.
DROP FUNCTION IF EXISTS fencegate.locks_of(bigint);  -- that of version 4
CREATE OR REPLACE FUNCTION fencegate.locks_of(key bigint, waiting boolean DEFAULT false)
RETURNS TABLE (pid integer, mode text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.pid, l.mode FROM pg_locks l
   WHERE l.locktype = 'advisory' AND (l.granted OR waiting) AND l.objsubid = 1
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND l.classid::bigint = (key >> 32) & 4294967295 AND l.objid::bigint = key & 4294967295
$$;

-- Who may be ended for sitting on a lock: shared holders (arms of the old token that froze half-way, guarded
-- transactions, holds), whoever holds it without doing anything (in the middle of a pipeline, too, whose rest does not
-- come), and whose statement takes longer than any raise may.
-- Never a raise at work: it may carry a higher token, and ends by itself. Nor the statement behind a fencegate.spend. Where
-- the session does not say what it does (track_activities = off), it is ended in any case.
CREATE OR REPLACE FUNCTION fencegate.idle_holders(key bigint) RETURNS SETOF integer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_stat_clear_snapshot();
  SELECT l.pid FROM fencegate.locks_of(key) l JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid
   WHERE l.pid <> pg_backend_pid()
     AND (l.mode = 'ShareLock' OR a.state LIKE 'idle%' OR a.state IS NULL OR a.state = 'disabled'
          OR a.state = 'active' AND a.wait_event = 'ClientRead' AND a.query_start < clock_timestamp() - interval '1 s'
          OR a.query_start < clock_timestamp() - (SELECT s.cut_ms + s.grace_ms + 5000 FROM fencegate.settings s) * interval '1 ms')
$$;

-- Each is ended only while it still holds the lock: pids are used again.
CREATE OR REPLACE FUNCTION fencegate.end_idle_holders(key bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE p integer;
BEGIN
  FOR p IN SELECT h FROM fencegate.idle_holders(key) h LOOP
    BEGIN
      PERFORM pg_terminate_backend(h) FROM fencegate.idle_holders(key) h WHERE h = p;
    EXCEPTION WHEN insufficient_privilege THEN NULL;  -- a superuser's session: the wait for it ends at the deadline
    END;
  END LOOP;
END $$;

-- Everybody who may log in can compute a key, and lock it. So a raise also locks fencegate_private.raising, which nobody
-- else can, before its key and for as long.
CREATE OR REPLACE FUNCTION fencegate.show_raise() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE fencegate_private.raising IN ROW EXCLUSIVE MODE;
END $$;

-- Of these sessions, those that show no raise.
CREATE OR REPLACE FUNCTION fencegate.without_raise(pids integer[]) RETURNS integer[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(array_agg(p), '{}') FROM unnest(pids) p
   WHERE p NOT IN (SELECT l.pid FROM pg_locks l
                    WHERE l.locktype = 'relation' AND l.relation = 'fencegate_private.raising'::regclass AND l.granted
                      AND l.mode = 'RowExclusiveLock' AND l.pid IS NOT NULL
                      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
$$;

-- Who holds the key exclusively, or waits for it, and is no raise. Keys are looked at first, then raises: a raise that was
-- seen with its key shows itself for longer than that. Twice, since what was seen with its key may have ended in between,
-- and its session may be at its next raise.
CREATE OR REPLACE FUNCTION fencegate.intruders(key bigint) RETURNS integer[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE found integer[]; again integer[];
BEGIN
  found := ARRAY(SELECT l.pid FROM fencegate.locks_of(key, true) l
                  WHERE l.mode = 'ExclusiveLock' AND l.pid <> pg_backend_pid());
  IF found = '{}' THEN RETURN found; END IF;
  found := fencegate.without_raise(found);
  IF found = '{}' THEN RETURN found; END IF;
  again := ARRAY(SELECT l.pid FROM fencegate.locks_of(key, true) l
                  WHERE l.mode = 'ExclusiveLock' AND l.pid = ANY (found));
  RETURN fencegate.without_raise(again);
END $$;

-- Ends these sessions, and says whether there were any. `roles`: and all other sessions of their roles in this database that
-- show no raise. A role could end those itself, and one of them may be about to take their place.
CREATE OR REPLACE FUNCTION fencegate.end_sessions(pids integer[], roles boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE p integer; ends integer[] := pids;
BEGIN
  IF pids = '{}' THEN RETURN false; END IF;
  PERFORM pg_stat_clear_snapshot();
  IF roles THEN
    ends := pids || fencegate.without_raise(ARRAY(
      SELECT a.pid FROM pg_stat_get_activity(NULL) a
       WHERE a.pid <> pg_backend_pid() AND a.pid <> ALL (pids)
         AND a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
         AND a.usesysid IN (SELECT b.usesysid FROM pg_stat_get_activity(NULL) b WHERE b.pid = ANY (pids))));
  END IF;
  FOREACH p IN ARRAY ends LOOP
    BEGIN
      PERFORM pg_terminate_backend(p);
    EXCEPTION WHEN insufficient_privilege THEN NULL;  -- a superuser's session: the wait for it ends at the deadline
    END;
  END LOOP;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION fencegate.end_intruders(key bigint, roles boolean) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT fencegate.end_sessions(fencegate.intruders(key), roles)
$$;

-- Who has or awaits a lock on one of our tables, or their indexes, that shuts raises out, and has no right to it: CREATE RULE, CREATE TRIGGER,
-- REFERENCES and ATTACH PARTITION wait for such a lock before they ask for rights, and whoever may read a table can make
-- them wait for ever.
CREATE OR REPLACE FUNCTION fencegate.table_intruders() RETURNS integer[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_stat_clear_snapshot();
  SELECT coalesce(array_agg(DISTINCT l.pid), '{}') FROM pg_locks l JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid
    JOIN pg_roles u ON u.oid = a.usesysid
   WHERE l.locktype = 'relation' AND l.pid <> pg_backend_pid()
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND l.relation IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'fencegate'::regnamespace)
     AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
     AND NOT u.rolsuper AND NOT pg_has_role(u.oid, 'fencegate_owner', 'MEMBER')
$$;

-- Locks what no LOCK TABLE locks, in passing: CREATE RULE waits for a lock on an index, too, before it says that this is none.
CREATE OR REPLACE FUNCTION fencegate.touch_indexes() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_relation_size(x, 'init') FROM unnest(ARRAY[
    'fencegate.marks_pkey', 'fencegate.sessions_pkey', 'fencegate.sessions_pid', 'fencegate.settings_pkey',
    'fencegate.leases_pkey', 'fencegate.lowerings_pkey', 'fencegate.secret']::regclass[]) x;
END $$;

-- That of version 7: with both, the calls below are ambiguous.
DROP FUNCTION IF EXISTS fencegate.clear_way(integer);
-- Before anything else of ours is locked or read; also every two seconds, by a gate's look. `lowers`: to the table of lowerings.
CREATE OR REPLACE FUNCTION fencegate.clear_way(wait_ms integer, lowers boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  deadline constant timestamptz := clock_timestamp() + greatest(wait_ms, 1) * interval '1 ms';
  patience integer := 200; intruded boolean := false;
BEGIN
  BEGIN
    PERFORM set_config('lock_timeout', '20', true);
    LOCK TABLE fencegate.marks, fencegate.sessions, fencegate.settings, fencegate.leases IN ROW EXCLUSIVE MODE NOWAIT;
    IF lowers THEN LOCK TABLE fencegate.lowerings IN ROW EXCLUSIVE MODE NOWAIT; END IF;
    PERFORM fencegate.touch_indexes();
    PERFORM set_config('lock_timeout', lock_timeout_before, true);
    RETURN;
  EXCEPTION WHEN lock_not_available THEN NULL;
  END;
  LOOP
    BEGIN
      PERFORM set_config('lock_timeout', fencegate.ms_until(deadline, patience), true);
      LOCK TABLE fencegate.marks, fencegate.sessions, fencegate.settings, fencegate.leases IN ROW EXCLUSIVE MODE;
      IF lowers THEN LOCK TABLE fencegate.lowerings IN ROW EXCLUSIVE MODE; END IF;
      PERFORM fencegate.touch_indexes();
      PERFORM set_config('lock_timeout', lock_timeout_before, true);
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() >= deadline THEN
        PERFORM fencegate.unavailable(NULL, NULL, NULL, 'its tables are locked from outside', 'See pg_locks.'); END IF;
      intruded := fencegate.end_sessions(fencegate.table_intruders(), intruded);
      patience := CASE WHEN intruded THEN 20 ELSE 200 END;
    END;
  END LOOP;
END $$;

-- Shared, for as long as the transaction lives. Never jumps the queue: a raise that waits goes first.
CREATE OR REPLACE FUNCTION fencegate.lock_shared(r text, t bigint, k bigint, deadline timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE patience integer := 200; intruded boolean := false;
BEGIN
  IF pg_try_advisory_xact_lock_shared(k) THEN RETURN; END IF;
  LOOP
    BEGIN
      PERFORM set_config('lock_timeout', fencegate.ms_until(deadline, patience), true);
      PERFORM pg_advisory_xact_lock_shared(k);
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() >= deadline THEN
        PERFORM fencegate.unavailable(r, t, NULL, 'a raise is under way and did not end in time', 'Try again.'); END IF;
      intruded := fencegate.end_intruders(k, intruded);
      patience := CASE WHEN intruded THEN 20 ELSE 200 END;
    END;
  END LOOP;
END $$;

-- As a value of lock_timeout, at least 1 (0 would mean for ever).
CREATE OR REPLACE FUNCTION fencegate.ms_until(deadline timestamptz, most integer DEFAULT 600000) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT greatest(1, least(most, extract(epoch FROM deadline - clock_timestamp()) * 1000))::integer::text
$$;

-- Exclusive, for as long as the transaction lives. Queues fairly; every 200 ms it ends those who sit on the lock. With a
-- grace, only from `spared` on: until then it keeps its place in the queue, so that no new holder gets in front of it.
CREATE OR REPLACE FUNCTION fencegate.lock_exclusive(r text, t bigint, k bigint, spared timestamptz,
                                                    deadline timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint; l bigint; patience integer := 200; intruded boolean := false;
BEGIN
  PERFORM fencegate.show_raise();
  IF pg_try_advisory_xact_lock(k) THEN RETURN; END IF;  -- not past those who wait either
  LOOP
    BEGIN
      PERFORM set_config('lock_timeout', fencegate.ms_until(greatest(spared,
        least(deadline, clock_timestamp() + patience * interval '1 ms'))), true);
      PERFORM pg_advisory_xact_lock(k);
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() >= deadline THEN
        PERFORM fencegate.unavailable(r, t, NULL,
          'it is locked by a raise or a transaction that did not end in time', 'Try again.'); END IF;
      SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;
      IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
      PERFORM fencegate.end_idle_holders(k);
      intruded := fencegate.end_intruders(k, intruded);
      patience := CASE WHEN intruded THEN 20 ELSE 200 END;
    END;
  END LOOP;
END $$;

-- ── the raise ───────────────────────────────────────────────────────────────────────────────────────────

-- A mark that has an issuer rises by its seals only; one of another issuer, by none.
CREATE OR REPLACE FUNCTION fencegate.not_the_issuer(r text, t bigint, m bigint, owner uuid, by_issuer uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF owner IS NULL THEN RETURN; END IF;
  IF by_issuer IS NULL THEN
    PERFORM fencegate.reject('ZF005',
      format('token %s of %s exceeds mark %s, which only leases of its issuer raise', t, r, m), r, t, m,
      'Is the token right? Run the writer under fencegate hold, or take a lease for it.', ',"leased":true'); END IF;
  PERFORM fencegate.reject('ZF007', format('mark %s of %s belongs to leases of another issuer (%s)', m, r, owner), r, t, m,
    'Leases of one resource have one issuer.');
END $$;

-- That of version 6: with both, there would be two ways.
DROP FUNCTION IF EXISTS fencegate.raise_one(text, bigint, bigint, timestamptz, timestamptz, bigint);

-- Takes the lock and moves the mark up to t, for a seal with its grant beside it; false when it was there already. The mark
-- is read again under the lock, in a new statement: whoever was in front of us in the queue may have raised it.
CREATE OR REPLACE FUNCTION fencegate.raise_one(r text, t bigint, k bigint, spared timestamptz, deadline timestamptz,
                                               max_step bigint, by_issuer uuid, by_grant bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE m bigint; l bigint; became bigint; owner uuid;
BEGIN
  PERFORM fencegate.lock_exclusive(r, t, k, spared, deadline);
  SELECT x.mark, x.lowering, x.issuer INTO m, l, owner FROM fencegate.marks x WHERE x.resource = r;
  IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
  IF m < t AND owner IS DISTINCT FROM by_issuer THEN PERFORM fencegate.not_the_issuer(r, t, m, owner, by_issuer); END IF;
  -- Without a mark there is nothing to measure a step against.
  IF t - m > max_step THEN
    PERFORM fencegate.reject('ZF005',
      format('token %s of %s exceeds mark %s by more than max_step allows', t, r, m), r, t, m,
      'Is the token right? If so, raise the mark in smaller steps, or raise max_step and install again.'); END IF;
  BEGIN
    PERFORM set_config('lock_timeout', fencegate.ms_until(deadline), true);
    INSERT INTO fencegate.marks AS x (resource, mark, was, sealed, issuer, grant_hash)
      VALUES (r, t, 0, CASE WHEN by_grant IS NOT NULL THEN t END, by_issuer, by_grant) ON CONFLICT (resource) DO UPDATE
      SET mark = EXCLUDED.mark, was = x.mark, raised_at = clock_timestamp(), sealed = EXCLUDED.sealed,
          issuer = EXCLUDED.issuer, grant_hash = EXCLUDED.grant_hash
      WHERE x.mark < EXCLUDED.mark RETURNING x.mark INTO became;
  EXCEPTION WHEN lock_not_available THEN
    PERFORM fencegate.unavailable(r, t, m, 'its row is locked from outside', 'See pg_locks.');
  END;
  IF became = t THEN RETURN true; END IF;
  -- It was there already; or somebody wrote to the row past the lock, which a new statement sees.
  SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;
  IF m = t THEN RETURN false; END IF;
  IF m > t THEN
    PERFORM fencegate.stale(r, t, m, l); END IF;
  PERFORM fencegate.unavailable(r, t, m, 'it does not rise', 'Is there a trigger or rule on fencegate.marks?');
  RETURN NULL;
END $$;

-- The token is the mark, as far as we know: holds on to it. A raise that was under way may have moved it meanwhile.
CREATE OR REPLACE FUNCTION fencegate.hold_equal(r text, t bigint, k bigint, deadline timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint; l bigint;
BEGIN
  PERFORM fencegate.lock_shared(r, t, k, deadline);
  SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;  -- new statement, new snapshot
  IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
  IF m IS DISTINCT FROM t THEN
    PERFORM fencegate.unavailable(r, t, m, 'the mark went back', 'Was the table restored? Try again.'); END IF;
END $$;

-- The mark is at the token of a seal that did not raise it: it must be of the very same grant. An issuer that gave a token
-- twice, after it was restored, admits nobody twice. REQUIRES: the lock is held.
CREATE OR REPLACE FUNCTION fencegate.check_sealed(r text, t bigint, by_issuer uuid, by_grant bytea) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE owner uuid; same boolean;
BEGIN
  SELECT x.issuer, x.sealed = t AND x.issuer = by_issuer AND x.grant_hash = by_grant INTO owner, same
    FROM fencegate.marks x WHERE x.resource = r;
  IF same THEN RETURN; END IF;
  IF owner <> by_issuer THEN PERFORM fencegate.not_the_issuer(r, t, t, owner, by_issuer); END IF;
  PERFORM fencegate.reject('ZF004', format('token %s of %s was sealed by another grant', t, r), r, t, t,
    'Acquire the lease again, above this mark.');
END $$;

-- How many live sessions are registered below the token (NULL: with any); sends SIGTERM to each when told to. A session
-- whose backend_start cannot be seen counts as alive.
CREATE OR REPLACE FUNCTION fencegate.cut_once(r text, t bigint, signal boolean) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE n integer;
BEGIN
  PERFORM pg_stat_clear_snapshot();
  SELECT count(*) FILTER (WHERE CASE WHEN signal THEN pg_terminate_backend(s.pid) IS NOT NULL ELSE true END) INTO n
    FROM pg_stat_get_activity(NULL) a
    JOIN fencegate.sessions s ON s.pid = a.pid AND (a.backend_start = s.backend_start OR a.backend_start IS NULL)
   WHERE s.resource = r AND (s.token < t) IS NOT FALSE AND s.pid <> pg_backend_pid();
  RETURN n;
EXCEPTION WHEN insufficient_privilege THEN  -- its user became a superuser after it was armed
  PERFORM fencegate.unavailable(r, t, NULL, 'an older session belongs to a superuser and may not be ended', 'End it.');
END $$;

-- Ends the older sessions of all resources that were raised: signals all of them first, then waits for all of them. A
-- session that is gone from pg_stat_activity has ended its transaction before. Returns how many were found, for each.
CREATE OR REPLACE FUNCTION fencegate.cut(names text[], tokens bigint[], ups boolean[], deadline timestamptz)
RETURNS integer[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE counts integer[] := '{}'; nap float8;
BEGIN
  FOR i IN 1 .. cardinality(names) LOOP
    counts := counts || CASE WHEN ups[i] THEN fencegate.cut_once(names[i], tokens[i], true) ELSE 0 END;
  END LOOP;
  FOR i IN 1 .. cardinality(names) LOOP
    nap := 0.0005;
    WHILE ups[i] AND fencegate.cut_once(names[i], tokens[i], false) > 0 LOOP
      IF clock_timestamp() >= deadline THEN
        PERFORM fencegate.unavailable(names[i], tokens[i], NULL, 'older sessions did not end in time',
          'They were told to; some may have ended. Try again.'); END IF;
      PERFORM pg_sleep(nap);
      nap := least(nap * 1.3, 0.02);
    END LOOP;
  END LOOP;
  RETURN counts;
END $$;

-- A prepared transaction outlives its session, and whoever comes may commit it. It is looked for after the older
-- sessions have ended, so that none can be made any more.
CREATE OR REPLACE FUNCTION fencegate.check_prepared(r text, t bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('max_prepared_transactions') = '0' THEN RETURN; END IF;
  IF EXISTS (SELECT FROM pg_prepared_xact() x
              WHERE x.dbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) THEN
    PERFORM fencegate.unavailable(r, t, NULL, 'prepared transactions exist; they may belong to an older holder',
      'Finish them (pg_prepared_xacts), and set max_prepared_transactions = 0.'); END IF;
END $$;

-- A session that could not be ended later must not be armed now. Returns its backend_start.
CREATE OR REPLACE FUNCTION fencegate.check_session(registers boolean) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE started timestamptz; super boolean;
BEGIN
  SELECT a.backend_start, u.rolsuper INTO started, super
    FROM pg_stat_get_activity(pg_backend_pid()) a JOIN pg_roles u ON u.oid = a.usesysid;
  IF started IS NULL OR super IS NULL THEN
    PERFORM fencegate.unavailable(NULL, NULL, NULL, 'the sessions of others are invisible',
      'GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner;'); END IF;
  IF NOT pg_has_role(current_user, 'pg_signal_backend', 'USAGE') THEN  -- a superuser has it, too
    PERFORM fencegate.unavailable(NULL, NULL, NULL, 'fencegate may not end sessions',
      'GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner;'); END IF;
  IF registers AND super THEN
    IF NOT (SELECT o.rolsuper FROM pg_roles o WHERE o.rolname = current_user) THEN
      PERFORM fencegate.reject('ZF007', 'a superuser session cannot be fenced, since fencegate may not end it',
        NULL, NULL, NULL, 'Connect as another role.'); END IF;
  END IF;
  RETURN started;
END $$;

-- That of version 1: with both, the calls below are ambiguous.
DROP FUNCTION IF EXISTS fencegate.take(text[], bigint[], integer, bigint, boolean);
-- That of version 6.
DROP FUNCTION IF EXISTS fencegate.take(text[], bigint[], integer, bigint, boolean, integer);

-- Arms (with `registers`) or only seals: all resources in one global order, one lock each, of the right strength, never
-- upgraded. `cut_ms`, `max_step` and `grace_ms` are what the caller asks for; the database's own limits hold as well.
-- `grace_ms`: for so long, those who only hold a mark (fencegate.hold, fencegate.guard) are waited for and not ended; what
-- cut_ms allows begins behind it. `by_issuer`: it may raise marks of this issuer. `by_grant`: it is a seal (fencegate.seal).
CREATE OR REPLACE FUNCTION fencegate.take(resources text[], tokens bigint[], cut_ms integer, max_step bigint,
                                          registers boolean, grace_ms integer DEFAULT 0,
                                          by_issuer uuid DEFAULT NULL, by_grant bytea DEFAULT NULL)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer, lowering bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me constant integer := pg_backend_pid();
  lock_timeout_before constant text := current_setting('lock_timeout');
  spared timestamptz; deadline timestamptz; patience interval; step bigint; started timestamptz;
  r text; t bigint; m bigint; l bigint; k bigint;
  names text[] := '{}'; toks bigint[] := '{}'; up boolean; ups boolean[] := '{}'; counts integer[];
BEGIN
  PERFORM fencegate.check_claims(resources, tokens);
  PERFORM fencegate.check_transaction();
  started := fencegate.check_session(registers);
  PERFORM fencegate.clear_way(coalesce($3, 5000));
  SELECT clock_timestamp() + least(greatest(coalesce($6, 0), 0), s.grace_ms) * interval '1 ms',
         least(greatest(coalesce($3, s.cut_ms), 1), s.cut_ms) * interval '1 ms',
         CASE WHEN by_issuer IS NULL
              THEN least(CASE WHEN $4 > 0 THEN $4 END, CASE WHEN s.max_step > 0 THEN s.max_step END) END
    INTO STRICT spared, patience, step FROM fencegate.settings s;
  deadline := spared + patience;

  -- The raise must be as durable as what others commit. This outlives the function, until the transaction's end.
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true); END IF;

  FOR r, t, k IN SELECT x.r, x.t, fencegate.lock_key(x.r) FROM unnest(resources, tokens) x(r, t)
                 ORDER BY fencegate.lock_key(x.r), x.r COLLATE "C" LOOP
    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = r;
    IF m > t THEN PERFORM fencegate.stale(r, t, m, l); END IF;
    -- A session that keeps an older registration would outlive the raise: it does not end itself.
    IF NOT registers THEN
      IF EXISTS (SELECT FROM fencegate.sessions s
                  WHERE s.resource = r AND s.pid = me AND s.backend_start = started AND s.token < t) THEN
        PERFORM fencegate.malformed(r, t, 'this session is armed with an older token'); END IF;
    END IF;
    names := names || r;
    toks := toks || t;
    IF m = t THEN
      PERFORM fencegate.hold_equal(r, t, k, deadline);
      up := false;
    ELSE
      up := fencegate.raise_one(r, t, k, spared, deadline, step, by_issuer, by_grant);
    END IF;
    IF by_grant IS NOT NULL AND NOT up THEN PERFORM fencegate.check_sealed(r, t, by_issuer, by_grant); END IF;
    ups := ups || up;
  END LOOP;

  counts := fencegate.cut(names, toks, ups, deadline);
  IF true = ANY (ups) THEN PERFORM fencegate.check_prepared(names[1], toks[1]); END IF;
  FOR i IN 1 .. cardinality(names) LOOP
    IF registers THEN
      INSERT INTO fencegate.sessions AS s (resource, pid, backend_start, token) VALUES (names[i], me, started, toks[i])
        ON CONFLICT (resource, pid) DO UPDATE
        SET backend_start = EXCLUDED.backend_start, token = EXCLUDED.token, dead_since = NULL;
    END IF;
    resource := names[i]; mark := toks[i]; raised := ups[i]; cut := counts[i];
    -- Nobody lowers it while its lock is held. Of what was written past the lock, nothing was proven.
    lowering := (SELECT x.lowering FROM fencegate.marks x WHERE x.resource = names[i] AND x.mark = toks[i]);
    RETURN NEXT;
  END LOOP;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
END $$;
