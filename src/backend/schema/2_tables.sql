-- ── tables ──────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE IF NOT EXISTS fencegate.marks (
  resource  text COLLATE "C" PRIMARY KEY
            CHECK (octet_length(resource) BETWEEN 1 AND 200 AND resource !~ '[^A-Za-z0-9_.:/-]'),
  mark      bigint NOT NULL CHECK (mark >= 0),
  raised_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, vacuum_truncate = off);

-- The record of the grant that sealed the mark (fencegate.seal). It counts while `sealed` is the mark; its issuer always:
-- a mark that has one rises only by a seal. New in version 7.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'fencegate.marks'::regclass AND a.attname = 'sealed') THEN
    ALTER TABLE fencegate.marks ADD COLUMN sealed bigint, ADD COLUMN issuer uuid, ADD COLUMN grant_hash bytea; END IF;
END $$;

-- Which lowering the mark stands under (fencegate.lower): 0, or the number of the last one. Of two who say what the mark is, the
-- one that names the higher lowering is right; under the same one, the higher mark. `was`: the mark before it rose last; NULL:
-- nobody knows. New in version 8, as the table of all lowerings.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'fencegate.marks'::regclass AND a.attname = 'lowering') THEN
    ALTER TABLE fencegate.marks ADD COLUMN lowering bigint NOT NULL DEFAULT 0, ADD COLUMN was bigint,
      ADD COLUMN lowered_from bigint, ADD COLUMN lowered_by text, ADD COLUMN lowered_role text,
      ADD COLUMN lowered_why text, ADD COLUMN lowered_at timestamptz; END IF;
END $$;
CREATE TABLE IF NOT EXISTS fencegate.lowerings (
  number   bigint PRIMARY KEY,
  resource text COLLATE "C" NOT NULL,
  "from"   bigint NOT NULL,
  "to"     bigint NOT NULL,
  by       text NOT NULL,  -- as he says
  role     text NOT NULL,  -- as the server knows him
  why      text NOT NULL,
  at       timestamptz NOT NULL
);

-- Leases (fencegate.lease_grant). A row is never deleted: its token is the floor of the next grant. New in version 7.
CREATE TABLE IF NOT EXISTS fencegate.leases (
  resource      text COLLATE "C" PRIMARY KEY
                CHECK (octet_length(resource) BETWEEN 1 AND 200 AND resource !~ '[^A-Za-z0-9_.:/-]'),
  token         bigint NOT NULL DEFAULT 0 CHECK (token >= 0),    -- 0: it was never granted
  grant_hash    bytea NOT NULL DEFAULT '',
  past_grants   bytea[] NOT NULL DEFAULT '{}',                   -- so that none of these is granted again
  holder        text NOT NULL DEFAULT '' CHECK (octet_length(holder) <= 200),  -- for people; decides nothing
  ttl_ms        integer NOT NULL DEFAULT 1000 CHECK (ttl_ms BETWEEN 1 AND 86400000),
  at_least_ms   integer NOT NULL DEFAULT 0 CHECK (at_least_ms BETWEEN 0 AND 86400000),
  lock_delay_ms integer NOT NULL DEFAULT 0 CHECK (lock_delay_ms BETWEEN 0 AND 86400000),
  granted_at    timestamptz NOT NULL DEFAULT '-infinity',
  expires_at    timestamptz NOT NULL DEFAULT '-infinity',        -- '-infinity': it was released
  not_before    timestamptz NOT NULL DEFAULT '-infinity',        -- nobody else has it earlier
  frozen        boolean NOT NULL DEFAULT false,                  -- by an operator, until fencegate.lease_thaw
  incarnation   text NOT NULL,                                   -- of the server that granted
  stores        text[] NOT NULL DEFAULT '{}'                     -- those that its holders sealed
) WITH (fillfactor = 50);

-- Who waits for a lease, for people: nothing depends on it (fencegate.lease_wait). UNLOGGED: who still waits, says so again. New
-- in version 7.
CREATE UNLOGGED TABLE IF NOT EXISTS fencegate.waiters (
  resource   text COLLATE "C" NOT NULL,
  grant_hash bytea NOT NULL,
  holder     text NOT NULL,
  since      timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (resource, grant_hash)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
DO $$
BEGIN
  IF to_regclass('fencegate.waiters_end') IS NULL THEN
    CREATE INDEX waiters_end ON fencegate.waiters (expires_at); END IF;
END $$;

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
  cut_ms   integer NOT NULL DEFAULT 5000 CHECK (cut_ms BETWEEN 1 AND 600000)       -- longest wait of a raise
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

-- Everybody may read the tables, so that everybody's pg_dump works: no table holds a secret. This is no table, nobody but
-- its owner may read it, and pg_dump does not try. What is restored from a dump is filled anew, hence another one: its hash
-- in settings tells such a copy, whose marks may be old (fencegate.is_copy). New in version 5, as the hash.
DO $$
BEGIN
  IF to_regclass('fencegate.secret') IS NULL THEN
    CREATE MATERIALIZED VIEW fencegate.secret AS SELECT gen_random_uuid()::text || gen_random_uuid() AS secret;
  END IF;
  IF NOT (SELECT c.relispopulated FROM pg_class c WHERE c.oid = 'fencegate.secret'::regclass) THEN
    REFRESH MATERIALIZED VIEW fencegate.secret; END IF;
  IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'fencegate.settings'::regclass AND a.attname = 'secret') THEN
    ALTER TABLE fencegate.settings DROP COLUMN secret; END IF;
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'fencegate.settings'::regclass AND a.attname = 'secret_hash') THEN
    ALTER TABLE fencegate.settings ADD COLUMN secret_hash text; END IF;
END $$;
UPDATE fencegate.settings s SET secret_hash = encode(sha256(x.secret::bytea), 'hex') FROM fencegate.secret x
 WHERE s.secret_hash IS NULL;

-- Who this database is as a store of marks, and as an issuer of leases (fencegate.identity). New in version 7.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'fencegate.settings'::regclass AND a.attname = 'store_id') THEN
    ALTER TABLE fencegate.settings ADD COLUMN store_id uuid NOT NULL DEFAULT gen_random_uuid(),
                                   ADD COLUMN issuer_id uuid NOT NULL DEFAULT gen_random_uuid(),
                                   ADD COLUMN incarnation text NOT NULL DEFAULT ''; END IF;  -- see fencegate.incarnation
END $$;

-- What a raise locks to show that it is one (fencegate.intruders). In a schema that nobody else may use: PREPARE locks
-- tables before it asks for rights, so that everybody could lock, or block, what stands in a schema that he may use. A view,
-- since pg_dump locks tables. New in version 5.
DO $$
BEGIN
  IF to_regclass('fencegate_private.raising') IS NULL THEN
    CREATE VIEW fencegate_private.raising AS SELECT true AS one; END IF;
END $$;
-- fencegate.new_max_step, new_cut_ms, new_grace_ms: what `fencegate install` sets before this script, from the
-- configuration.
UPDATE fencegate.settings s SET grace_ms = nullif(current_setting('fencegate.new_grace_ms', true), '')::integer
 WHERE s.grace_ms <> nullif(current_setting('fencegate.new_grace_ms', true), '')::integer;
UPDATE fencegate.settings s SET max_step = n.max_step, cut_ms = n.cut_ms
  FROM (SELECT nullif(current_setting('fencegate.new_max_step', true), '')::bigint AS max_step,
               nullif(current_setting('fencegate.new_cut_ms', true), '')::integer AS cut_ms) n
 WHERE n.max_step IS NOT NULL AND n.cut_ms IS NOT NULL
   AND (s.max_step, s.cut_ms) IS DISTINCT FROM (n.max_step, n.cut_ms);

-- ── what older versions left ────────────────────────────────────────────────────────────────────────────

-- Functions that tell more than those of version 7: they are made anew below, and whoever may call one by a grant of an
-- operator's still may (7_rights.sql).
DO $$
DECLARE old record; kept text[] := '{}';
BEGIN
  FOR old IN SELECT p.oid::regprocedure AS name, p.proacl FROM pg_proc p
              WHERE p.pronamespace = 'fencegate'::regnamespace
                AND (p.proname = ANY ('{take,arm_all,raise_all,put_back,spend,look,ended,guarded_mark}')
                     AND NOT 'lowering' = ANY (coalesce(p.proargnames, '{}'))
                     OR p.proname = ANY ('{hold,hold_one,hold_all,guard_all}')
                        AND p.prorettype IN ('void'::regtype, 'boolean'::regtype)) LOOP
    kept := kept || ARRAY(SELECT format('%s TO %I', old.name, pg_get_userbyid(a.grantee)) FROM aclexplode(old.proacl) a
                           WHERE a.grantee NOT IN (0, 'fencegate_owner'::regrole));
    EXECUTE format('DROP FUNCTION %s', old.name);
  END LOOP;
  PERFORM set_config('fencegate.kept_grants', kept::text, true);
END $$;

-- ── words ───────────────────────────────────────────────────────────────────────────────────────────────

CREATE OR REPLACE FUNCTION fencegate.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 8;

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

-- `l`: the lowering that the mark stands under, where both were read in one statement. So gates remember the mark.
CREATE OR REPLACE FUNCTION fencegate.stale(r text, t bigint, m bigint, l bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.reject('ZF001',
    format('token %s of %s is below %s', t, r, coalesce('mark ' || m, 'the mark')), r, t, m,
    'A newer holder of this lease is at work. Do not retry with this token; acquire the lease again.',
    coalesce(',"lowering":' || l, ''));
END $$;

CREATE OR REPLACE FUNCTION fencegate.used(r text, t bigint, l bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.reject('ZF004', format('token %s of %s was used already (equal_token: reject)', t, r), r, t, t,
    'Each token is good for one request. Acquire the next one.', coalesce(',"lowering":' || l, ''));
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
