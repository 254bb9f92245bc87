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

REVOKE ALL ON SCHEMA fencegate, fencegate_private FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA fencegate, fencegate_private FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fencegate FROM PUBLIC;
GRANT USAGE ON SCHEMA fencegate TO PUBLIC;
GRANT SELECT ON fencegate.marks, fencegate.sessions, fencegate.settings, fencegate.leases, fencegate.waiters,
  fencegate.lowerings TO PUBLIC;  -- pg_dump
GRANT EXECUTE ON FUNCTION fencegate.version(), fencegate.arm_all(text[], bigint[], integer, bigint),
  fencegate.arm(text, bigint), fencegate.guard(text[], bigint[], integer),
  fencegate.guard_one(text, bigint), fencegate.guard_under(text[], bigint[], integer),
  fencegate.guard_one_under(text, bigint) TO PUBLIC;
-- Those of `protect` do nothing that their caller could not do.
GRANT EXECUTE ON FUNCTION fencegate.protect(regclass, text), fencegate.unprotect(regclass), fencegate.family(regclass),
  fencegate.parents(regclass), fencegate.refuse_unarmed(), fencegate.check_resource(text, bigint),
  fencegate.malformed(text, bigint, text),
  fencegate.shown(text), fencegate.reject(text, text, text, bigint, bigint, text, text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION fencegate.ended(integer), fencegate.look(text[]), fencegate.list(),
  fencegate.is_copy(), fencegate.accept_copy(),
  fencegate.raise(text, bigint, integer), fencegate.raise_all(text[], bigint[], integer, bigint, integer),
  fencegate.put_back(text, bigint, bigint, integer, integer),
  fencegate.lower(text, bigint, bigint, text, text, boolean, integer, bigint),
  fencegate.spend(text[], bigint[], integer, bigint, integer), fencegate.hold(text[], bigint[], integer),
  fencegate.identity(), fencegate.move_issuer(text, uuid, uuid), fencegate.seal(text[], bigint[], uuid, text, integer, integer),
  fencegate.lease_grant(text[], text, text, integer, bigint[], text[], bigint, integer, integer, boolean, boolean),
  fencegate.lease_renew(text[], bigint[], text[]), fencegate.lease_release(text[], bigint[], text[], boolean),
  fencegate.lease_thaw(text), fencegate.lease_forget_store(text, text),
  fencegate.lease_list(), fencegate.lease_wait(text, text, text, integer), fencegate.lease_waiters(),
  fencegate.sweep() TO fencegate_gate;
-- Those of functions that were made anew with another result (2_tables.sql).
DO $$
DECLARE kept text;
BEGIN
  FOREACH kept IN ARRAY current_setting('fencegate.kept_grants')::text[] LOOP
    IF to_regprocedure(split_part(kept, ' TO ', 1)) IS NOT NULL THEN
      EXECUTE 'GRANT EXECUTE ON FUNCTION ' || kept; END IF;
  END LOOP;
END $$;

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
