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
-- All functions have a fixed search_path and qualified names; two that qualify operators and types, too, need none. All
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
  this_version constant integer := 8;  -- as in fencegate.version()
  found_version integer;
  one record;
  me constant name := current_user;
  by_superuser text;
  foreign_object text;
BEGIN
  IF current_setting('server_version_num')::integer < 140000 THEN
    RAISE EXCEPTION 'fencegate needs PostgreSQL 14 or newer, this is %', current_setting('server_version')
      USING ERRCODE = 'feature_not_supported';
  END IF;
  PERFORM pg_advisory_xact_lock(7379554720400);  -- one installation at a time

  FOR one IN SELECT n.nspname, r.rolname FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
              WHERE n.nspname IN ('fencegate', 'fencegate_private') AND r.rolname <> 'fencegate_owner' LOOP
    RAISE EXCEPTION 'schema % exists and belongs to %, not to fencegate_owner', one.nspname, one.rolname
      USING ERRCODE = 'duplicate_schema', HINT = 'Find out who made it; rename or drop it, then install again.';
  END LOOP;

  -- What a superuser runs beforehand, where this role's rights are not enough. Nothing of this script stays when it fails,
  -- so the roles that it made are not there then.
  by_superuser := 'As a superuser: '
    || CASE WHEN to_regrole('fencegate_owner') IS NULL THEN 'CREATE ROLE fencegate_owner NOLOGIN; ' ELSE '' END
    || CASE WHEN to_regrole('fencegate_gate') IS NULL THEN 'CREATE ROLE fencegate_gate NOLOGIN; ' ELSE '' END
    || format('GRANT pg_signal_backend, pg_read_all_stats TO fencegate_owner; '
              'GRANT fencegate_owner TO %I; GRANT fencegate_gate TO %I WITH ADMIN OPTION;', me, me);
  BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencegate_owner') THEN
      CREATE ROLE fencegate_owner NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencegate_gate') THEN
      CREATE ROLE fencegate_gate NOLOGIN;
    END IF;
  EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'role % may not create the roles fencegate_owner and fencegate_gate', me
      USING ERRCODE = 'insufficient_privilege', HINT = by_superuser;
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
        USING ERRCODE = 'insufficient_privilege', HINT = by_superuser;
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
      HINT = by_superuser;
  END;

  IF to_regnamespace('fencegate') IS NULL OR to_regnamespace('fencegate_private') IS NULL THEN
    BEGIN
      -- Not IF NOT EXISTS: that asks for the right to create one in any case.
      IF to_regnamespace('fencegate') IS NULL THEN CREATE SCHEMA fencegate AUTHORIZATION fencegate_owner; END IF;
      IF to_regnamespace('fencegate_private') IS NULL THEN
        CREATE SCHEMA fencegate_private AUTHORIZATION fencegate_owner; END IF;
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
   WHERE x.schema IN ('fencegate'::regnamespace, 'fencegate_private'::regnamespace) AND x.owner <> 'fencegate_owner'::regrole LIMIT 1;
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
