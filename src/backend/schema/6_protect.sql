-- ── protected tables ────────────────────────────────────────────────────────────────────────────────────

-- Refuses a statement that writes unless this session is armed, or this transaction guarded, for one of the resources
-- named in the trigger's arguments (for any at all when there are none). That a registered session is not stale need
-- not be checked: it would have been ended. backend_start tells it from a dead one with the same pid. A guard's lock may
-- have gone with a savepoint: it is taken again, which costs little where it is there.
CREATE OR REPLACE FUNCTION fencegate.refuse_unarmed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named constant text[] := TG_ARGV;
  left_by_guard constant text := coalesce(current_setting('fencegate.guarded', true), '');
  r text; t bigint;
BEGIN
  IF EXISTS (SELECT FROM fencegate.sessions s JOIN pg_stat_get_activity(pg_backend_pid()) a
                ON a.pid = s.pid AND a.backend_start = s.backend_start
              WHERE s.pid = pg_backend_pid() AND (TG_NARGS = 0 OR s.resource = ANY (named))) THEN
    RETURN NULL; END IF;
  -- Anybody may put something there, as anybody may call fencegate.guard: so it is proven here.
  FOR r, t IN SELECT x.r, x.t FROM unnest(string_to_array(split_part(left_by_guard, ';', 1), ','),
                                          string_to_array(split_part(left_by_guard, ';', 2), ',')) x(r, t)
               WHERE x.t ~ '^[0-9]{1,19}$' AND (TG_NARGS = 0 OR x.r = ANY (named)) LIMIT 1 LOOP
    IF fencegate.hold_one(r, t) IS NULL THEN PERFORM fencegate.guard_all(ARRAY[r], ARRAY[t], NULL); END IF;
    RETURN NULL;
  END LOOP;
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

-- All tables above it.
CREATE OR REPLACE FUNCTION fencegate.parents(t regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE p(oid) AS (
    SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = t
    UNION SELECT i.inhparent FROM pg_inherits i JOIN p ON p.oid = i.inhrelid)
  SELECT p.oid::regclass FROM p
$$;

-- Makes the server refuse writes to the table by sessions that are not armed (for the resource, when one is named).
-- Runs with the rights of its caller, who must own the table. ENABLE ALWAYS: session_replication_role does not get
-- around it. Covered: INSERT, UPDATE, DELETE, MERGE, COPY, TRUNCATE and foreign keys' cascades, on the table, its
-- partitions and children; also by the name of a parent that is not protected with them: a statement there fires no
-- statement trigger of theirs, so they have one for each row as well. Not covered: partitions and children made later,
-- written by their own names, and a table that became one later, written by its parent's (protect again); DDL and whoever
-- may drop the trigger; rows applied by logical replication, which fires no statement triggers (its first copy does, and
-- fails).
CREATE OR REPLACE FUNCTION fencegate.protect(t regclass, resource text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE one record; named constant text := coalesce(quote_literal(resource), '');
BEGIN
  IF resource IS NOT NULL THEN PERFORM fencegate.check_resource(resource, NULL); END IF;
  PERFORM fencegate.unprotect(t);
  FOR one IN SELECT n.nspname, c.relname,
                    -- Rows are in what has no partitions of its own.
                    c.relkind <> 'p' AND EXISTS (SELECT FROM fencegate.parents(f) p WHERE p NOT IN (
                      SELECT x FROM fencegate.family(t) x)) AS has_other_parent
               FROM fencegate.family(t) f JOIN pg_class c ON c.oid = f JOIN pg_namespace n ON n.oid = c.relnamespace LOOP
    EXECUTE format('CREATE TRIGGER fencegate_protect BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %I.%I '
                   'FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_unarmed(%s)', one.nspname, one.relname, named);
    EXECUTE format('ALTER TABLE %I.%I ENABLE ALWAYS TRIGGER fencegate_protect', one.nspname, one.relname);
    CONTINUE WHEN NOT one.has_other_parent;
    EXECUTE format('CREATE TRIGGER fencegate_protect_rows AFTER INSERT OR UPDATE OR DELETE ON %I.%I '
                   'FOR EACH ROW EXECUTE FUNCTION fencegate.refuse_unarmed(%s)', one.nspname, one.relname, named);
    EXECUTE format('ALTER TABLE %I.%I ENABLE ALWAYS TRIGGER fencegate_protect_rows', one.nspname, one.relname);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fencegate.unprotect(t regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE one record;
BEGIN
  FOR one IN SELECT n.nspname, c.relname, g.tgname FROM fencegate.family(t) f JOIN pg_class c ON c.oid = f
               JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_trigger g ON g.tgrelid = c.oid
              WHERE g.tgname IN ('fencegate_protect', 'fencegate_protect_rows') LOOP
    EXECUTE format('DROP TRIGGER %I ON %I.%I', one.tgname, one.nspname, one.relname);
  END LOOP;
END $$;
