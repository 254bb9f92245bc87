-- The fence inside PostgreSQL: marks, armed sessions, and the raise that ends older sessions before it commits. Run as
-- one script (`fencegate install`, or psql -v ON_ERROR_STOP=1); running it again changes nothing, an older version is
-- upgraded in place with its marks. Needs PostgreSQL 14 or newer.
--
-- The rule: once the mark of R is t or more, no transaction of a session that was armed with less ever commits.
--   * An arm registers (resource, token, pid, backend_start) under a lock of its resource: shared when its token is the
--     mark, exclusive when it raises the mark. The lock is kept until the arm's transaction has ended.
--   * A raise ends every registered session with a lower token, and waits until none is left, before it commits.
--     So what an older session committed, it committed before the raise; and none can register while it is under way.
--   * Whatever cannot be seen, ended or proven makes the raise fail (ZF006) and leaves the mark as it was.
--
-- All functions have a fixed search_path and qualified names; nothing of ours runs with a caller's search_path. All
-- lists of backends come from pg_stat_get_activity after pg_stat_clear_snapshot(): the cached one lives as long as the
-- transaction and would show the past. Statements are kept apart on purpose: under READ COMMITTED each has a new
-- snapshot.
--
-- What it does not cover: superusers and the owner role itself; what has no session of the client: dblink, foreign
-- tables, background workers, COPY PROGRAM, logical replication. fencegate.protect makes the server refuse unarmed
-- writers.

BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL lock_timeout = '10s';  -- whoever waits for a lock has all others wait behind it

-- ── who owns it, and what is there already ──────────────────────────────────────────────────────────────

DO $$
DECLARE
  this_version constant integer := 4;  -- as in fencegate.version()
  found_version integer;
  schema_owner name;
  me constant name := current_user;
  foreign_object text;
BEGIN
  IF current_setting('server_version_num')::integer < 140000 THEN
    RAISE EXCEPTION 'fencegate needs PostgreSQL 14 or newer, this is %', current_setting('server_version')
      USING ERRCODE = 'feature_not_supported';
  END IF;
  PERFORM pg_advisory_xact_lock(7379554720400);  -- one installation at a time

  SELECT r.rolname INTO schema_owner FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
   WHERE n.nspname = 'fencegate';
  IF schema_owner <> 'fencegate_owner' THEN
    RAISE EXCEPTION 'schema fencegate exists and belongs to %, not to fencegate_owner', schema_owner
      USING ERRCODE = 'duplicate_schema', HINT = 'Find out who made it; rename or drop it, then install again.';
  END IF;

  BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencegate_owner') THEN
      CREATE ROLE fencegate_owner NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencegate_gate') THEN
      CREATE ROLE fencegate_gate NOLOGIN;
    END IF;
  EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'role % may not create the roles fencegate_owner and fencegate_gate', me
      USING ERRCODE = 'insufficient_privilege', HINT = format('As a superuser: CREATE ROLE fencegate_owner NOLOGIN; '
        'CREATE ROLE fencegate_gate NOLOGIN; GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner; '
        'GRANT fencegate_owner TO %I; GRANT fencegate_gate TO %I WITH ADMIN OPTION;', me, me);
  END;
  IF (SELECT r.rolcanlogin FROM pg_roles r WHERE r.rolname = 'fencegate_owner') THEN
    RAISE EXCEPTION 'role fencegate_owner may log in, and could change marks'
      USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'ALTER ROLE fencegate_owner NOLOGIN;';
  END IF;

  -- Both: pg_signal_backend ends sessions; without pg_read_all_stats the backend_start of others is invisible.
  IF NOT pg_has_role('fencegate_owner', 'pg_signal_backend', 'USAGE')
     OR NOT pg_has_role('fencegate_owner', 'pg_read_all_stats', 'USAGE') THEN
    BEGIN
      GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner;
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE EXCEPTION 'role % may not grant pg_signal_backend and pg_read_all_stats', me
        USING ERRCODE = 'insufficient_privilege',
        HINT = 'As a superuser: GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner;';
    END;
  END IF;

  -- The rest is done as fencegate_owner. Who is no member of it joins for the time of this transaction.
  BEGIN
    PERFORM set_config('fencegate.joined', '', true);
    BEGIN
      SET LOCAL ROLE fencegate_owner;
    EXCEPTION WHEN insufficient_privilege THEN
      EXECUTE format('GRANT fencegate_owner TO %I', me);
      PERFORM set_config('fencegate.joined', 'yes', true);
      SET LOCAL ROLE fencegate_owner;
    END;
    RESET ROLE;
  EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'role % is no member of fencegate_owner', me USING ERRCODE = 'insufficient_privilege',
      HINT = format('As a superuser: GRANT fencegate_owner TO %I;', me);
  END;

  IF schema_owner IS NULL THEN
    BEGIN
      CREATE SCHEMA fencegate AUTHORIZATION fencegate_owner;
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE EXCEPTION 'role % may not create a schema in database %', me, current_database()
        USING ERRCODE = 'insufficient_privilege',
        HINT = format('As its owner: GRANT CREATE ON DATABASE %I TO %I;', current_database(), me);
    END;
  END IF;

  SELECT format('%s %s', x.kind, x.name) INTO foreign_object
    FROM (SELECT 'relation' AS kind, c.relname AS name, c.relnamespace AS schema, c.relowner AS owner FROM pg_class c
          UNION ALL SELECT 'function', p.proname, p.pronamespace, p.proowner FROM pg_proc p
          UNION ALL SELECT 'type', t.typname, t.typnamespace, t.typowner FROM pg_type t
          UNION ALL SELECT 'operator', o.oprname, o.oprnamespace, o.oprowner FROM pg_operator o) x
   WHERE x.schema = 'fencegate'::regnamespace AND x.owner <> 'fencegate_owner'::regrole LIMIT 1;
  IF foreign_object IS NOT NULL THEN
    RAISE EXCEPTION 'schema fencegate holds a foreign object: %', foreign_object
      USING ERRCODE = 'duplicate_object', HINT = 'Find out who made it; drop it, then install again.';
  END IF;

  SET LOCAL ROLE fencegate_owner;
  IF to_regprocedure('fencegate.version()') IS NOT NULL THEN
    EXECUTE 'SELECT fencegate.version()' INTO found_version;
  ELSIF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'fencegate'::regnamespace) THEN
    RAISE EXCEPTION 'schema fencegate has tables but no version' USING ERRCODE = 'object_not_in_prerequisite_state',
      HINT = 'It was not made by fencegate install. Find out who made it; rename or drop it, then install again.';
  END IF;
  IF found_version > this_version THEN
    RAISE EXCEPTION 'this database has version % of the fence, this fencegate knows version %',
      found_version, this_version USING ERRCODE = 'object_not_in_prerequisite_state',
      HINT = 'Install with the newest fencegate that uses this database.';
  END IF;
  PERFORM set_config('fencegate.upgrades', CASE WHEN found_version < this_version THEN 'yes' ELSE '' END, true);
END $$;
-- ── tables ──────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE IF NOT EXISTS fencegate.marks (
  resource  text COLLATE "C" PRIMARY KEY
            CHECK (octet_length(resource) BETWEEN 1 AND 200 AND resource !~ '[^A-Za-z0-9_.:/-]'),
  mark      bigint NOT NULL CHECK (mark >= 0),
  raised_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, vacuum_truncate = off);

-- One row per (resource, pid); a reused pid overwrites its dead predecessor in place (HOT), so the table is bounded by
-- the pids seen, not by the connections made. UNLOGGED is right: it is emptied exactly when no backend can be alive. A
-- raise leaves the rows of the sessions that it ended: the gate asks fencegate.ended why its session died.
CREATE UNLOGGED TABLE IF NOT EXISTS fencegate.sessions (
  resource      text COLLATE "C" NOT NULL,
  pid           integer NOT NULL,
  backend_start timestamptz NOT NULL,
  token         bigint NOT NULL,
  dead_since    timestamptz,  -- when a sweep first found no backend for it
  PRIMARY KEY (resource, pid)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
DO $$  -- not IF NOT EXISTS: that locks the table also where there is nothing to do
BEGIN
  IF to_regclass('fencegate.sessions_pid') IS NULL THEN
    CREATE INDEX sessions_pid ON fencegate.sessions (pid); END IF;
END $$;

-- The database's own limits, which hold for every caller. One row.
CREATE TABLE IF NOT EXISTS fencegate.settings (
  one      boolean PRIMARY KEY DEFAULT true CHECK (one),
  max_step bigint NOT NULL DEFAULT 0 CHECK (max_step >= 0),                        -- largest allowed rise; 0 = any
  cut_ms   integer NOT NULL DEFAULT 5000 CHECK (cut_ms BETWEEN 1 AND 600000),      -- longest wait of a raise
  secret   text NOT NULL DEFAULT gen_random_uuid()::text || gen_random_uuid()      -- seals what fencegate.guard leaves
);
-- The longest time for which a raise may spare what holds a mark; on top of cut_ms. New in version 2.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'fencegate.settings'::regclass AND a.attname = 'grace_ms') THEN
    ALTER TABLE fencegate.settings ADD COLUMN
      grace_ms integer NOT NULL DEFAULT 5000 CHECK (grace_ms BETWEEN 0 AND 600000);
  END IF;
END $$;
INSERT INTO fencegate.settings DEFAULT VALUES ON CONFLICT DO NOTHING;
-- fencegate.new_max_step, new_cut_ms, new_grace_ms: what `fencegate install` sets before this script, from the
-- configuration.
UPDATE fencegate.settings s SET grace_ms = nullif(current_setting('fencegate.new_grace_ms', true), '')::integer
 WHERE s.grace_ms <> nullif(current_setting('fencegate.new_grace_ms', true), '')::integer;
UPDATE fencegate.settings s SET max_step = n.max_step, cut_ms = n.cut_ms
  FROM (SELECT nullif(current_setting('fencegate.new_max_step', true), '')::bigint AS max_step,
               nullif(current_setting('fencegate.new_cut_ms', true), '')::integer AS cut_ms) n
 WHERE n.max_step IS NOT NULL AND n.cut_ms IS NOT NULL
   AND (s.max_step, s.cut_ms) IS DISTINCT FROM (n.max_step, n.cut_ms);

-- ── words ───────────────────────────────────────────────────────────────────────────────────────────────

CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4;

-- A resource as it may stand in a sentence: a caller's name may hold anything.
CREATE OR REPLACE FUNCTION fencegate.shown(resource text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT regexp_replace(left(resource, 200) COLLATE "C", '[^A-Za-z0-9_.:/-]', '?', 'g')
$$;

-- The one way out: sentences as in fence/rejection.cpp; DETAIL is JSON for programs, `more` its further members.
CREATE OR REPLACE FUNCTION fencegate.reject(state text, sentence text, resource text, token bigint, mark bigint,
                                            hint text, more text DEFAULT '') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = state, MESSAGE = sentence || '; not applied', HINT = hint,
    DETAIL = format('{"resource":%s,"token":%s,"mark":%s,"applied":"no"%s}',
                    coalesce(to_json(fencegate.shown(resource))::text, 'null'), coalesce(token::text, 'null'),
                    coalesce(mark::text, 'null'), more);
END $$;

CREATE OR REPLACE FUNCTION fencegate.stale(r text, t bigint, m bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.reject('ZF001',
    format('token %s of %s is below %s', t, r, coalesce('mark ' || m, 'the mark')), r, t, m,
    'A newer holder of this lease is at work. Do not retry with this token; acquire the lease again.');
END $$;

CREATE OR REPLACE FUNCTION fencegate.used(r text, t bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.reject('ZF004', format('token %s of %s was used already (equal_token: reject)', t, r), r, t, t,
    'Each token is good for one request. Acquire the next one.');
END $$;

CREATE OR REPLACE FUNCTION fencegate.malformed(r text, t bigint, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.reject('ZF003',
    'no usable fencing token' || coalesce(' for ' || fencegate.shown(r), '') || ': ' || why
      || coalesce(' (token ' || t || ')', ''), r, t, NULL,
    'A resource is 1 to 200 bytes of [A-Za-z0-9_.:/-], a token an integer from 0 to 9223372036854775807.');
END $$;

CREATE OR REPLACE FUNCTION fencegate.unavailable(r text, t bigint, m bigint, why text, hint text, more text DEFAULT '')
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.reject('ZF006', 'the mark' || coalesce(' of ' || r, '') || ' could not be checked: ' || why
    || coalesce(' (token ' || t || coalesce(', mark ' || m, '') || ')', ''),
    r, t, m, hint, more);
END $$;

-- ── what a caller may ask for ───────────────────────────────────────────────────────────────────────────

CREATE OR REPLACE FUNCTION fencegate.check_resource(r text, t bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF r IS NULL OR octet_length(r) NOT BETWEEN 1 AND 200 OR r COLLATE "C" ~ '[^A-Za-z0-9_.:/-]' THEN
    PERFORM fencegate.malformed(r, t, 'this is no name of a resource'); END IF;
END $$;

CREATE OR REPLACE FUNCTION fencegate.check_claims(resources text[], tokens bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r text; t bigint;
BEGIN
  IF array_ndims(resources) IS DISTINCT FROM 1 OR array_ndims(tokens) IS DISTINCT FROM 1
     OR cardinality(resources) <> cardinality(tokens) THEN
    PERFORM fencegate.malformed(NULL, NULL, 'there must be one token for each resource'); END IF;
  IF cardinality(resources) > 32 THEN
    PERFORM fencegate.malformed(NULL, NULL, 'more than 32 resources'); END IF;
  FOR i IN 0 .. cardinality(resources) - 1 LOOP
    r := resources[array_lower(resources, 1) + i];
    t := tokens[array_lower(tokens, 1) + i];
    PERFORM fencegate.check_resource(r, t);
    IF t IS NULL OR t < 0 THEN PERFORM fencegate.malformed(r, t, 'the token is out of range'); END IF;
    IF r = ANY (resources[array_lower(resources, 1) + i + 1 :]) THEN
      PERFORM fencegate.malformed(r, NULL, 'the resource appears twice'); END IF;
  END LOOP;
END $$;

-- The transaction must be able to see what commits while it waits, and to write. An older snapshot would miss sessions
-- that were armed after it.
CREATE OR REPLACE FUNCTION fencegate.check_transaction() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM fencegate.malformed(NULL, NULL,
      'this needs READ COMMITTED, the transaction is ' || upper(current_setting('transaction_isolation'))); END IF;
  IF pg_is_in_recovery() THEN
    PERFORM fencegate.unavailable(NULL, NULL, NULL, 'this server is a standby', 'Connect to the primary.'); END IF;
  IF current_setting('transaction_read_only')::boolean THEN
    PERFORM fencegate.unavailable(NULL, NULL, NULL, 'the transaction is read only', 'Begin it READ WRITE.'); END IF;
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    PERFORM fencegate.malformed(NULL, NULL, 'this must come before anything else in its transaction'); END IF;
END $$;
-- ── locks ───────────────────────────────────────────────────────────────────────────────────────────────

-- A heavyweight lock per resource: its queue is fair, it writes no WAL and no multixact, its holders show in pg_locks.
CREATE OR REPLACE FUNCTION fencegate.lock_key(resource text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN hashtextextended(resource COLLATE "C", 7379554720401);

-- The locks of a key that are held, in this database.
CREATE OR REPLACE FUNCTION fencegate.locks_of(key bigint) RETURNS TABLE (pid integer, mode text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.pid, l.mode FROM pg_locks l
   WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND l.classid::bigint = (key >> 32) & 4294967295 AND l.objid::bigint = key & 4294967295
$$;

-- Who may be ended for sitting on a lock: shared holders (arms of the old token that froze half-way, guarded
-- transactions, holds), whoever holds it without doing anything (in the middle of a pipeline, too, whose rest does not
-- come), and whose statement takes longer than any raise may.
-- Never a raise at work: it may carry a higher token, and ends by itself. Nor the statement behind a fencegate.spend.
CREATE OR REPLACE FUNCTION fencegate.idle_holders(key bigint) RETURNS SETOF integer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_stat_clear_snapshot();
  SELECT l.pid FROM fencegate.locks_of(key) l JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid
   WHERE l.pid <> pg_backend_pid()
     AND (l.mode = 'ShareLock' OR a.state LIKE 'idle%'
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

-- Shared, for as long as the transaction lives. Never jumps the queue: a raise that waits goes first.
CREATE OR REPLACE FUNCTION fencegate.lock_shared(r text, t bigint, k bigint, deadline timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_try_advisory_xact_lock_shared(k) THEN RETURN; END IF;
  PERFORM set_config('lock_timeout', fencegate.ms_until(deadline), true);
  PERFORM pg_advisory_xact_lock_shared(k);
EXCEPTION WHEN lock_not_available THEN
  PERFORM fencegate.unavailable(r, t, NULL, 'a raise is under way and did not end in time', 'Try again.');
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
DECLARE m bigint;
BEGIN
  IF pg_try_advisory_xact_lock(k) THEN RETURN; END IF;  -- not past those who wait either
  LOOP
    BEGIN
      PERFORM set_config('lock_timeout', fencegate.ms_until(greatest(spared,
        least(deadline, clock_timestamp() + interval '200 ms'))), true);
      PERFORM pg_advisory_xact_lock(k);
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() >= deadline THEN
        PERFORM fencegate.unavailable(r, t, NULL,
          'it is locked by a raise or a transaction that did not end in time', 'Try again.'); END IF;
      SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
      IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
      PERFORM fencegate.end_idle_holders(k);
    END;
  END LOOP;
END $$;

-- ── the raise ───────────────────────────────────────────────────────────────────────────────────────────

-- Takes the lock and moves the mark up to t; false when it was there already. The mark is read again under the lock, in
-- a new statement: whoever was in front of us in the queue may have raised it.
CREATE OR REPLACE FUNCTION fencegate.raise_one(r text, t bigint, k bigint, spared timestamptz, deadline timestamptz,
                                               max_step bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE m bigint; became bigint;
BEGIN
  PERFORM fencegate.lock_exclusive(r, t, k, spared, deadline);
  SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
  IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
  -- Without a mark there is nothing to measure a step against.
  IF t - m > max_step THEN
    PERFORM fencegate.reject('ZF005',
      format('token %s of %s exceeds mark %s by more than max_step allows', t, r, m), r, t, m,
      'Is the token right? If so, raise the mark in smaller steps, or raise max_step and install again.'); END IF;
  BEGIN
    PERFORM set_config('lock_timeout', fencegate.ms_until(deadline), true);
    INSERT INTO fencegate.marks AS x (resource, mark) VALUES (r, t) ON CONFLICT (resource) DO UPDATE
      SET mark = EXCLUDED.mark, raised_at = clock_timestamp() WHERE x.mark < EXCLUDED.mark RETURNING x.mark INTO became;
  EXCEPTION WHEN lock_not_available THEN
    PERFORM fencegate.unavailable(r, t, m, 'its row is locked from outside', 'See pg_locks.');
  END;
  IF became = t THEN RETURN true; END IF;
  -- It was there already; or somebody wrote to the row past the lock, which a new statement sees.
  SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
  IF m = t THEN RETURN false; END IF;
  IF m > t THEN
    PERFORM fencegate.stale(r, t, m); END IF;
  PERFORM fencegate.unavailable(r, t, m, 'it does not rise', 'Is there a trigger or rule on fencegate.marks?');
  RETURN NULL;
END $$;

-- The token is the mark, as far as we know: holds on to it. A raise that was under way may have moved it meanwhile.
CREATE OR REPLACE FUNCTION fencegate.hold_equal(r text, t bigint, k bigint, deadline timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint;
BEGIN
  PERFORM fencegate.lock_shared(r, t, k, deadline);
  SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;  -- new statement, new snapshot
  IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
  IF m IS DISTINCT FROM t THEN
    PERFORM fencegate.unavailable(r, t, m, 'the mark went back', 'Was the table restored? Try again.'); END IF;
END $$;

-- How many live sessions are registered below the token; sends SIGTERM to each when told to. A session whose
-- backend_start cannot be seen counts as alive.
CREATE OR REPLACE FUNCTION fencegate.cut_once(r text, t bigint, signal boolean) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE n integer;
BEGIN
  PERFORM pg_stat_clear_snapshot();
  SELECT count(*) FILTER (WHERE CASE WHEN signal THEN pg_terminate_backend(s.pid) IS NOT NULL ELSE true END) INTO n
    FROM pg_stat_get_activity(NULL) a
    JOIN fencegate.sessions s ON s.pid = a.pid AND (a.backend_start = s.backend_start OR a.backend_start IS NULL)
   WHERE s.resource = r AND s.token < t AND s.pid <> pg_backend_pid();
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

-- Arms (with `registers`) or only seals: all resources in one global order, one lock each, of the right strength, never
-- upgraded. `cut_ms`, `max_step` and `grace_ms` are what the caller asks for; the database's own limits hold as well.
-- `grace_ms`: for so long, those who only hold a mark (fencegate.hold, fencegate.guard) are waited for and not ended; what
-- cut_ms allows begins behind it.
CREATE OR REPLACE FUNCTION fencegate.take(resources text[], tokens bigint[], cut_ms integer, max_step bigint,
                                          registers boolean, grace_ms integer DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  me constant integer := pg_backend_pid();
  lock_timeout_before constant text := current_setting('lock_timeout');
  spared timestamptz; deadline timestamptz; patience interval; step bigint; started timestamptz; r text; t bigint; m bigint; k bigint;
  names text[] := '{}'; toks bigint[] := '{}'; ups boolean[] := '{}'; counts integer[];
BEGIN
  PERFORM fencegate.check_claims(resources, tokens);
  PERFORM fencegate.check_transaction();
  started := fencegate.check_session(registers);
  SELECT clock_timestamp() + least(greatest(coalesce($6, 0), 0), s.grace_ms) * interval '1 ms',
         least(greatest(coalesce($3, s.cut_ms), 1), s.cut_ms) * interval '1 ms',
         least(CASE WHEN $4 > 0 THEN $4 END, CASE WHEN s.max_step > 0 THEN s.max_step END)
    INTO STRICT spared, patience, step FROM fencegate.settings s;
  deadline := spared + patience;

  -- The raise must be as durable as what others commit. This outlives the function, until the transaction's end.
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true); END IF;

  FOR r, t, k IN SELECT x.r, x.t, fencegate.lock_key(x.r) FROM unnest(resources, tokens) x(r, t)
                 ORDER BY fencegate.lock_key(x.r), x.r COLLATE "C" LOOP
    SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
    IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
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
      ups := ups || false;
    ELSE
      ups := ups || fencegate.raise_one(r, t, k, spared, deadline, step);
    END IF;
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
    RETURN NEXT;
  END LOOP;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
END $$;
-- ── for clients ─────────────────────────────────────────────────────────────────────────────────────────

-- The short way for what a new connection mostly is: one resource, the token is the mark, nothing is under way. NULL: use
-- fencegate.take, which also finds the words. Every condition comes before the lock, so that it is taken only to be kept.
-- It never waits for a lock, and so could come behind others; but whether an arm may must not depend on who else is there.
CREATE OR REPLACE FUNCTION fencegate.arm_equal(r text, t bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint; started timestamptz;
BEGIN
  SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
  IF (m = t) IS NOT TRUE THEN RETURN NULL; END IF;
  SELECT a.backend_start INTO started
    FROM pg_stat_get_activity(pg_backend_pid()) a JOIN pg_roles u ON u.oid = a.usesysid
   WHERE NOT u.rolsuper AND pg_has_role(current_user, 'pg_signal_backend', 'USAGE')
     AND current_setting('transaction_isolation') = 'read committed' AND NOT pg_is_in_recovery()
     AND NOT current_setting('transaction_read_only')::boolean AND pg_current_xact_id_if_assigned() IS NULL;
  IF started IS NULL OR NOT pg_try_advisory_xact_lock_shared(fencegate.lock_key(r)) THEN RETURN NULL; END IF;
  INSERT INTO fencegate.sessions AS s (resource, pid, backend_start, token)
    SELECT r, pg_backend_pid(), started, t FROM fencegate.marks x WHERE x.resource = r AND x.mark = t  -- as it is now
    ON CONFLICT (resource, pid) DO UPDATE
    SET backend_start = EXCLUDED.backend_start, token = EXCLUDED.token, dead_since = NULL;
  RETURN CASE WHEN FOUND THEN t END;
END $$;

-- Arms this session. It must be the first thing in its transaction, and counts when that has committed.
CREATE OR REPLACE FUNCTION fencegate.arm_all(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
                                             max_step bigint DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF cardinality(resources) = 1 AND cardinality(tokens) = 1 AND array_lower(resources, 1) = 1 THEN
    mark := fencegate.arm_equal(resources[1], tokens[1]);
    IF mark IS NOT NULL THEN
      resource := resources[1]; raised := false; cut := 0;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  RETURN QUERY SELECT a.resource, a.mark, a.raised, a.cut FROM fencegate.take($1, $2, $3, $4, true) a;
END $$;

CREATE OR REPLACE FUNCTION fencegate.arm(resource text, token bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.mark FROM fencegate.arm_all(ARRAY[$1], ARRAY[$2]) a
$$;

-- What fencegate.guard leaves in fencegate.guarded for triggers: the resources, sealed for this session and
-- transaction.
CREATE OR REPLACE FUNCTION fencegate.seal_of(names text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE secret text;
BEGIN
  SELECT s.secret INTO STRICT secret FROM fencegate.settings s;
  RETURN names || ';' || encode(sha256(convert_to(
           concat_ws('|', secret, pg_backend_pid(), extract(epoch FROM now()), names), 'UTF8')), 'hex');
END $$;

-- The mark of r as it is while the lock is held. READ COMMITTED: read in a new statement. REPEATABLE READ and
-- SERIALIZABLE: the snapshot may be older than the wait for the lock, so the row itself must be locked, which fails
-- when it has moved. What only reads has nothing to fence.
CREATE OR REPLACE FUNCTION fencegate.guarded_mark(r text, t bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint;
BEGIN
  SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
  IF current_setting('transaction_isolation') <> 'read committed'
     AND NOT current_setting('transaction_read_only')::boolean THEN
    BEGIN
      PERFORM FROM fencegate.marks x WHERE x.resource = r FOR SHARE;
    EXCEPTION WHEN serialization_failure THEN
      IF m >= t THEN PERFORM fencegate.stale(r, t, NULL); END IF;
      PERFORM fencegate.unavailable(r, t, NULL, 'it moved while the transaction began', 'Run the transaction again.');
    END;
  END IF;
  RETURN m;
END $$;

-- The short way of fencegate.guard and fencegate.hold, for one resource whose mark is the token while nobody raises it:
-- true when its lock is held and its mark was read behind that. Else the long way finds out, and finds the words.
CREATE OR REPLACE FUNCTION fencegate.hold_one(resources text[], tokens bigint[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r text; m bigint;
BEGIN
  IF array_ndims(resources) = 1 AND cardinality(resources) = 1 AND cardinality(tokens) = 1
     AND current_setting('transaction_isolation') = 'read committed' AND NOT pg_is_in_recovery() THEN
    r := resources[array_lower(resources, 1)];
    IF pg_try_advisory_xact_lock_shared(fencegate.lock_key(r)) THEN
      SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;  -- new statement, new snapshot
      RETURN coalesce(m = tokens[array_lower(tokens, 1)], false);
    END IF;
  END IF;
  RETURN false;
END $$;

-- guard: transaction. In front of a transaction's first statement, before any savepoint: holds the marks where they are
-- until the transaction ends. A raise waits for it, and ends it. ZF006 with "not_raised" when a mark is below its
-- token. `wait_ms`: for a raise that is under way, at most; from a gate that does not BEGIN, and could not say which kind
-- of transaction it wants: 25000 when this is another than READ COMMITTED, READ WRITE.
CREATE OR REPLACE FUNCTION fencegate.guard(resources text[], tokens bigint[], wait_ms integer DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  deadline timestamptz; r text; t bigint; m bigint;
BEGIN
  IF wait_ms IS NOT NULL AND (current_setting('transaction_read_only')::boolean
                              OR current_setting('transaction_isolation') <> 'read committed') THEN
    RAISE EXCEPTION 'transactions are not READ COMMITTED, READ WRITE by default; not applied'
      USING ERRCODE = 'invalid_transaction_state'; END IF;
  IF fencegate.hold_one(resources, tokens) THEN
    PERFORM set_config('fencegate.guarded', fencegate.seal_of(array_to_string(resources, ',')), true);
    RETURN;
  END IF;
  PERFORM fencegate.check_claims(resources, tokens);
  IF pg_is_in_recovery() THEN
    PERFORM fencegate.unavailable(NULL, NULL, NULL, 'this server is a standby', 'Connect to the primary.'); END IF;
  SELECT clock_timestamp() + greatest(least(s.cut_ms, wait_ms), 1) * interval '1 ms' INTO STRICT deadline
    FROM fencegate.settings s;
  FOR r, t IN SELECT x.r, x.t FROM unnest(resources, tokens) x(r, t)
              ORDER BY fencegate.lock_key(x.r), x.r COLLATE "C" LOOP
    PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);
    m := fencegate.guarded_mark(r, t);
    IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
    IF m IS DISTINCT FROM t THEN
      PERFORM fencegate.unavailable(r, t, m, 'it was not raised to the token', 'Raise it first.',
        ',"not_raised":true'); END IF;
  END LOOP;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
  PERFORM set_config('fencegate.guarded', fencegate.seal_of(array_to_string(resources, ',')), true);
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
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.resource, a.mark, a.raised, a.cut FROM fencegate.take($1, $2, $3, $4, false, $5) a
$$;

-- equal_token: reject. The same, and every token must be above its mark: of all who bring the same token, one gets through.
-- What follows in the transaction is one unit with it: the lock of a raise is kept until the end, and fencegate.take finds
-- out under that lock who was first. ZF004, for any of them: none was raised, nothing is applied. Triggers of protected
-- tables take the transaction for a guarded one.
CREATE OR REPLACE FUNCTION fencegate.spend(resources text[], tokens bigint[], cut_ms integer DEFAULT NULL,
                                           max_step bigint DEFAULT 0, grace_ms integer DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r text; t bigint; m bigint;
BEGIN
  PERFORM fencegate.check_claims($1, $2);
  -- These need not wait to be told, and nobody is ended for them. A token that is stale comes before one that was used: a
  -- request with it was not applied.
  FOR r, t, m IN SELECT x.r, x.t, k.mark FROM unnest($1, $2) x(r, t)
                   JOIN fencegate.marks k ON k.resource = x.r AND k.mark >= x.t ORDER BY k.mark = x.t LOOP
    IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
    PERFORM fencegate.used(r, t);
  END LOOP;
  FOR resource, mark, raised, cut IN
      SELECT a.resource, a.mark, a.raised, a.cut FROM fencegate.take($1, $2, $3, $4, false, $5) a LOOP
    IF raised IS NOT TRUE THEN PERFORM fencegate.used(resource, mark); END IF;
    RETURN NEXT;
  END LOOP;
  PERFORM set_config('fencegate.guarded', fencegate.seal_of(array_to_string($1, ',')), true);
END $$;

-- Holds the marks where they are until the transaction ends, for work that happens outside of the database. No raise
-- commits while this session lives: it waits, as long as its grace says, then ends the session; and fails when it cannot.
-- Raises nothing: ZF006 with "not_raised" when a mark is below its token. `wait_ms`: for a raise that is under way.
CREATE OR REPLACE FUNCTION fencegate.hold(resources text[], tokens bigint[], wait_ms integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.check_transaction();
  -- What could not be ended must not hold: raises would fail. Asked once a session.
  IF current_setting('fencegate.may_hold', true) IS DISTINCT FROM 'yes' THEN
    PERFORM fencegate.check_session(true);
    PERFORM set_config('fencegate.may_hold', 'yes', false);
  END IF;
  IF NOT fencegate.hold_one(resources, tokens) THEN PERFORM fencegate.hold_all(resources, tokens, wait_ms); END IF;
  -- For how long, is for the caller and for raises to say.
  PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
  IF current_setting('transaction_timeout', true) IS NOT NULL THEN  -- PostgreSQL 17 and newer
    PERFORM set_config('transaction_timeout', '0', true); END IF;
END $$;

-- The long way: any number of resources, waiting for raises, and the words for what is wrong.
CREATE OR REPLACE FUNCTION fencegate.hold_all(resources text[], tokens bigint[], wait_ms integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  deadline timestamptz; r text; t bigint; m bigint;
BEGIN
  PERFORM fencegate.check_claims(resources, tokens);
  SELECT clock_timestamp()
         + least(greatest(coalesce($3, s.cut_ms + s.grace_ms), 1), s.cut_ms + s.grace_ms) * interval '1 ms'
    INTO STRICT deadline FROM fencegate.settings s;
  FOR r, t IN SELECT x.r, x.t FROM unnest(resources, tokens) x(r, t)
              ORDER BY fencegate.lock_key(x.r), x.r COLLATE "C" LOOP
    SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;
    IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;  -- need not wait to be told
    PERFORM fencegate.lock_shared(r, t, fencegate.lock_key(r), deadline);
    SELECT x.mark INTO m FROM fencegate.marks x WHERE x.resource = r;  -- new statement, new snapshot
    IF m > t THEN PERFORM fencegate.stale(r, t, m); END IF;
    IF m IS DISTINCT FROM t THEN
      PERFORM fencegate.unavailable(r, t, m, 'it was not raised to the token', 'Raise it first.',
        ',"not_raised":true'); END IF;
  END LOOP;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
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
RETURNS TABLE (resource text, token bigint, mark bigint, raising boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM fencegate.malformed(NULL, NULL, 'this needs READ COMMITTED'); END IF;
  FOR resource, token IN SELECT s.resource, s.token FROM fencegate.sessions s WHERE s.pid = $1 LOOP
    raising := EXISTS (SELECT FROM fencegate.locks_of(fencegate.lock_key(resource)) l WHERE l.mode = 'ExclusiveLock');
    mark := (SELECT x.mark FROM fencegate.marks x WHERE x.resource = ended.resource);
    RETURN NEXT;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fencegate.look(resources text[]) RETURNS TABLE (resource text, mark bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT x.resource, x.mark FROM fencegate.marks x WHERE x.resource = ANY ($1)
$$;

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
-- ── protected tables ────────────────────────────────────────────────────────────────────────────────────

-- Refuses a statement that writes unless this session is armed, or this transaction guarded, for one of the resources
-- named in the trigger's arguments (for any at all when there are none). That a registered session is not stale need
-- not be checked: it would have been ended. backend_start tells it from a dead one with the same pid.
CREATE OR REPLACE FUNCTION fencegate.refuse_unarmed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named constant text[] := TG_ARGV;
  left_by_guard constant text := current_setting('fencegate.guarded', true);
  guarded constant text := split_part(coalesce(left_by_guard, ''), ';', 1);
BEGIN
  IF EXISTS (SELECT FROM fencegate.sessions s JOIN pg_stat_get_activity(pg_backend_pid()) a
                ON a.pid = s.pid AND a.backend_start = s.backend_start
              WHERE s.pid = pg_backend_pid() AND (TG_NARGS = 0 OR s.resource = ANY (named))) THEN
    RETURN NULL; END IF;
  IF guarded <> '' AND left_by_guard = fencegate.seal_of(guarded)
     AND (TG_NARGS = 0 OR named && string_to_array(guarded, ',')) THEN
    RETURN NULL; END IF;
  PERFORM fencegate.reject('ZF002',
    format('a write needs a fencing token%s (table %s.%s is protected)',
           CASE WHEN TG_NARGS > 0 THEN ' for ' || TG_ARGV[0] END, TG_TABLE_SCHEMA, TG_TABLE_NAME),
    CASE WHEN TG_NARGS > 0 THEN TG_ARGV[0] END, NULL, NULL,
    'Connect through fencegate with a token, or SELECT fencegate.arm(resource, token) first.');
  RETURN NULL;
END $$;

-- The table, its partitions and inheritance children, as they are now.
CREATE OR REPLACE FUNCTION fencegate.family(t regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE f(oid) AS (
    SELECT t::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN f ON f.oid = i.inhparent)
  SELECT f.oid::regclass FROM f
$$;

-- Makes the server refuse writes to the table by sessions that are not armed (for the resource, when one is named).
-- Runs with the rights of its caller, who must own the table. ENABLE ALWAYS: session_replication_role does not get
-- around it. Covered: INSERT, UPDATE, DELETE, MERGE, COPY, TRUNCATE and foreign keys' cascades, on the table, its
-- partitions and children. Not covered: partitions and children made later, written by their own names (protect again);
-- DDL and whoever may drop the trigger; rows applied by logical replication, which fires no statement triggers (its
-- first copy does, and fails).
CREATE OR REPLACE FUNCTION fencegate.protect(t regclass, resource text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE one record;
BEGIN
  IF resource IS NOT NULL THEN PERFORM fencegate.check_resource(resource, NULL); END IF;
  PERFORM fencegate.unprotect(t);
  FOR one IN SELECT n.nspname, c.relname FROM fencegate.family(t) f JOIN pg_class c ON c.oid = f
               JOIN pg_namespace n ON n.oid = c.relnamespace LOOP
    EXECUTE format('CREATE TRIGGER fencegate_protect BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %I.%I '
                   'FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_unarmed(%s)', one.nspname, one.relname,
                   coalesce(quote_literal(resource), ''));
    EXECUTE format('ALTER TABLE %I.%I ENABLE ALWAYS TRIGGER fencegate_protect', one.nspname, one.relname);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fencegate.unprotect(t regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE one record;
BEGIN
  FOR one IN SELECT n.nspname, c.relname FROM fencegate.family(t) f JOIN pg_class c ON c.oid = f
               JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_trigger g ON g.tgrelid = c.oid
              WHERE g.tgname = 'fencegate_protect' LOOP
    EXECUTE format('DROP TRIGGER fencegate_protect ON %I.%I', one.nspname, one.relname);
  END LOOP;
END $$;
-- ── what an older version left ──────────────────────────────────────────────────────────────────────────

-- Functions that this script did not make anew. What somebody has built on one is not dropped with it: then the
-- installation fails, and says what it is. (A function whose result changes is dropped by name, before it is made.)
DO $$
DECLARE old regprocedure;
BEGIN
  IF current_setting('fencegate.upgrades') <> 'yes' THEN RETURN; END IF;
  FOR old IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = 'fencegate'::regnamespace AND p.xmin <> pg_current_xact_id()::xid LOOP
    EXECUTE format('DROP FUNCTION %s', old);
  END LOOP;
END $$;

-- ── who may do what ─────────────────────────────────────────────────────────────────────────────────────

REVOKE ALL ON SCHEMA fencegate FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA fencegate FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fencegate FROM PUBLIC;
GRANT USAGE ON SCHEMA fencegate TO PUBLIC;
GRANT EXECUTE ON FUNCTION fencegate.version(), fencegate.arm_all(text[], bigint[], integer, bigint),
  fencegate.arm(text, bigint), fencegate.guard(text[], bigint[], integer) TO PUBLIC;
-- Those of `protect` do nothing that their caller could not do.
GRANT EXECUTE ON FUNCTION fencegate.protect(regclass, text), fencegate.unprotect(regclass), fencegate.family(regclass),
  fencegate.refuse_unarmed(), fencegate.check_resource(text, bigint), fencegate.malformed(text, bigint, text),
  fencegate.shown(text), fencegate.reject(text, text, text, bigint, bigint, text, text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION fencegate.ended(integer), fencegate.look(text[]), fencegate.list(),
  fencegate.raise(text, bigint, integer), fencegate.raise_all(text[], bigint[], integer, bigint, integer),
  fencegate.spend(text[], bigint[], integer, bigint, integer), fencegate.hold(text[], bigint[], integer),
  fencegate.sweep() TO fencegate_gate;

RESET ROLE;
-- fencegate.new_gate_user: whom `fencegate install` names, the user of the gate's own connections.
DO $$
DECLARE gate_user constant text := nullif(current_setting('fencegate.new_gate_user', true), '');
BEGIN
  IF gate_user IS NOT NULL AND NOT pg_has_role(gate_user, 'fencegate_gate', 'USAGE') THEN
    BEGIN
      EXECUTE format('GRANT fencegate_gate TO %I', gate_user);
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE EXCEPTION 'role % may not grant fencegate_gate', current_user USING ERRCODE = 'insufficient_privilege',
        HINT = format('As a superuser: GRANT fencegate_gate TO %I;', gate_user);
    END;
  END IF;
  IF current_setting('fencegate.joined') = 'yes' THEN
    EXECUTE format('REVOKE fencegate_owner FROM %I', current_user);
  END IF;
END $$;
COMMIT;
