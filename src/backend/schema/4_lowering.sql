-- ── a mark that goes back, and one that is taken back (fencegate_gate) ──────────────────────────────────────

-- What both begin with. `spared`: until then, those who only hold the mark are waited for, as in fencegate.take.
CREATE OR REPLACE FUNCTION fencegate.begin_change(r text, t bigint, cut_ms integer, grace_ms integer,
                                                  OUT spared timestamptz, OUT deadline timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE started timestamptz;
BEGIN
  PERFORM fencegate.check_claims(ARRAY[r], ARRAY[t]);
  PERFORM fencegate.check_transaction();
  started := fencegate.check_session(false);
  PERFORM fencegate.clear_way(coalesce($3, 5000));
  IF EXISTS (SELECT FROM fencegate.sessions s
              WHERE s.resource = r AND s.pid = pg_backend_pid() AND s.backend_start = started) THEN
    PERFORM fencegate.malformed(r, t, 'this session is armed for it, and does not end itself'); END IF;
  SELECT clock_timestamp() + least(greatest(coalesce($4, 0), 0), s.grace_ms) * interval '1 ms' INTO STRICT spared
    FROM fencegate.settings s;
  SELECT spared + least(greatest(coalesce($3, s.cut_ms), 1), s.cut_ms) * interval '1 ms' INTO STRICT deadline
    FROM fencegate.settings s;
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true); END IF;
END $$;

-- Puts back a mark that went back, as by a restored backup or a promoted standby: whoever asks has seen `seen` here, under
-- the lowering `under`. One that stands under a later lowering stays as it is. Of one that stands under an earlier one, nobody
-- knows how it came to be: it does not fall, and stands under `under` from now on. It may be one that only seals of its
-- issuer raise: that stays its issuer, and no grant is written beside it. (No argument has a default: the calls of version 7,
-- which knew no lowerings, must not find this.)
CREATE OR REPLACE FUNCTION fencegate.put_back(name text, seen bigint, under bigint, cut_ms integer, grace_ms integer)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer, lowering bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  spared timestamptz; deadline timestamptz; m bigint; l bigint; became bigint;
BEGIN
  SELECT c.spared, c.deadline INTO spared, deadline FROM fencegate.begin_change($1, $2, $4, $5) c;
  IF ($3 >= 0) IS NOT TRUE THEN PERFORM fencegate.malformed($1, $2, 'a mark stands under a lowering'); END IF;
  -- Where others were first, nobody is ended for it. So it is looked at before the lock, too.
  FOR locked IN 0 .. 1 LOOP
    IF locked = 1 THEN PERFORM fencegate.lock_exclusive($1, NULL, fencegate.lock_key($1), spared, deadline); END IF;
    SELECT x.mark, x.lowering INTO m, l FROM fencegate.marks x WHERE x.resource = $1;
    IF l = $3 AND m > $2 THEN PERFORM fencegate.stale($1, $2, m, l); END IF;
    IF l > $3 OR l = $3 AND m = $2 THEN
      PERFORM set_config('lock_timeout', lock_timeout_before, true);
      resource := $1; mark := m; raised := false; cut := 0; lowering := l;
      RETURN NEXT;
      RETURN;
    END IF;
  END LOOP;
  raised := (m >= $2) IS NOT TRUE;
  BEGIN
    PERFORM set_config('lock_timeout', fencegate.ms_until(deadline), true);
    INSERT INTO fencegate.marks AS x (resource, mark, lowering) VALUES ($1, $2, $3) ON CONFLICT (resource) DO UPDATE
      SET mark = greatest(x.mark, EXCLUDED.mark), lowering = EXCLUDED.lowering, was = NULL,
          raised_at = CASE WHEN x.mark < EXCLUDED.mark THEN clock_timestamp() ELSE x.raised_at END,
          sealed = CASE WHEN x.mark >= EXCLUDED.mark THEN x.sealed END,
          grant_hash = CASE WHEN x.mark >= EXCLUDED.mark THEN x.grant_hash END
      WHERE x.lowering <= EXCLUDED.lowering RETURNING x.mark INTO became;
  EXCEPTION WHEN lock_not_available THEN
    PERFORM fencegate.unavailable($1, $2, m, 'its row is locked from outside', 'See pg_locks.');
  END;
  IF became IS DISTINCT FROM greatest(m, $2) THEN
    PERFORM fencegate.unavailable($1, $2, m, 'it does not rise', 'Is there a trigger or rule on fencegate.marks?'); END IF;
  cut := (fencegate.cut(ARRAY[$1], ARRAY[$2], ARRAY[raised], deadline))[1];
  IF raised THEN PERFORM fencegate.check_prepared($1, $2); END IF;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
  resource := $1; mark := became; lowering := $3;
  RETURN NEXT;
END $$;

-- Whether the mark may be lowered: see fencegate.lower.
CREATE OR REPLACE FUNCTION fencegate.check_lowering(r text, expected bigint, under bigint, target bigint, force boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE m bigint; floor bigint; owner uuid; stands_under bigint;
BEGIN
  SELECT x.mark, x.was, x.issuer, x.lowering INTO m, floor, owner, stands_under FROM fencegate.marks x WHERE x.resource = r;
  IF stands_under IS DISTINCT FROM coalesce(under, stands_under) THEN
    PERFORM fencegate.unavailable(r, NULL, m, 'it was lowered meanwhile', 'Look at it again.'); END IF;
  IF (m = expected) IS NOT TRUE THEN
    PERFORM fencegate.unavailable(r, NULL, m, 'it is no longer ' || coalesce(expected::text, 'what was seen'),
      'Look at it again.'); END IF;
  IF target >= m THEN PERFORM fencegate.malformed(r, target, 'it is not below mark ' || m); END IF;
  IF owner IS NOT NULL THEN
    PERFORM fencegate.reject('ZF007', format('mark %s of %s is not lowered, since its leases raise it: fencegate lease break %s',
      m, r, r), r, NULL, m, 'That raises the mark above all tokens that its issuer and the mark know of.'); END IF;
  IF force IS NOT TRUE AND (floor <= target) IS NOT TRUE THEN
    PERFORM fencegate.reject('ZF007', format('mark %s of %s was %s before it rose last: below that, the token of an older '
      'holder would be good again', m, r, coalesce(floor::text, 'not known')), r, NULL, m,
      'Make sure that no holder with such a token is at work, then force it.'); END IF;
END $$;

-- For an operator: takes back a mark that nobody should have raised, as by a token of the largest number. Every session that
-- is armed for the resource ends first, whatever its token, and so do those that hold it: none with the wrong token goes on
-- beside holders of good ones. From then on the mark stands under this lowering, and what was seen of it under another says
-- nothing any more. `expected`: what the operator has seen the mark to be. `force`: below what the mark was before it rose
-- last, too, where the token of an older holder is good again. A mark that leases raise is not lowered. What is refused ends
-- no session. `under`: the lowering under which it was seen, so that what stood still behind a look lowers nothing that has risen
-- behind somebody else's lowering; NULL: any.
CREATE OR REPLACE FUNCTION fencegate.lower(name text, expected bigint, target bigint, operator text, why text, force boolean,
                                           cut_ms integer DEFAULT NULL, under bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  lock_timeout_before constant text := current_setting('lock_timeout');
  at timestamptz; spared timestamptz; deadline timestamptz; n bigint;
BEGIN
  SELECT c.spared, c.deadline INTO spared, deadline FROM fencegate.begin_change($1, $3, $7, 0) c;
  PERFORM fencegate.clear_way(coalesce($7, 5000), true);  -- in front of the end of any session
  IF ($4 <> '' AND $5 <> '') IS NOT TRUE THEN PERFORM fencegate.malformed($1, $3, 'a lowering says by whom and why'); END IF;
  PERFORM fencegate.check_lowering($1, $2, $8, $3, $6);
  PERFORM fencegate.check_prepared($1, NULL);
  PERFORM fencegate.lock_exclusive($1, NULL, fencegate.lock_key($1), spared, deadline);
  PERFORM fencegate.check_lowering($1, $2, $8, $3, $6);  -- whoever was in front of us may have changed it
  PERFORM fencegate.cut(ARRAY[$1], ARRAY[NULL::bigint], ARRAY[true], deadline);
  PERFORM fencegate.check_prepared($1, NULL);
  BEGIN
    PERFORM set_config('lock_timeout', fencegate.ms_until(deadline), true);
    PERFORM FROM fencegate.settings FOR UPDATE;  -- one number after the other, and each is committed before the next is made
    at := clock_timestamp();
    n := greatest((extract(epoch FROM at) * 1000000)::bigint, (SELECT max(x.number) + 1 FROM fencegate.lowerings x),
                  (SELECT x.lowering + 1 FROM fencegate.marks x WHERE x.resource = $1));
    UPDATE fencegate.marks x SET mark = $3, lowering = n, was = $3, lowered_from = $2, lowered_by = $4,
                                 lowered_role = session_user, lowered_why = $5, lowered_at = at
     WHERE x.resource = $1 AND x.mark = $2;
    INSERT INTO fencegate.lowerings (number, resource, "from", "to", by, role, why, at)
      VALUES (n, $1, $2, $3, $4, session_user, $5, at);
  EXCEPTION WHEN lock_not_available THEN
    PERFORM fencegate.unavailable($1, NULL, $2, 'its row is locked from outside', 'See pg_locks.');
  END;
  IF NOT EXISTS (SELECT FROM fencegate.marks x WHERE x.resource = $1 AND x.mark = $3 AND x.lowering = n) THEN
    PERFORM fencegate.unavailable($1, NULL, $2, 'it cannot be lowered', 'Is there a trigger or rule on fencegate.marks?'); END IF;
  PERFORM set_config('lock_timeout', lock_timeout_before, true);
  RETURN $3;
END $$;
