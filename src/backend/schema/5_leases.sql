-- ── leases (fencegate_gate) ─────────────────────────────────────────────────────────────────────────────

-- A lease is a row of fencegate.leases. Its token is a fencing token: above every earlier one of the resource, above the
-- mark, and above the floor that the caller read elsewhere. Times are of this server's clock and never leave it: what is
-- answered is a duration. They are read behind the rows' locks, since now() is when the transaction began.
--
-- A grant id names one acquisition. What is stored of it is its hash, by which none can be used.

-- What changes when this server may have lost grants that it had answered: every restore of its files, clone or promotion
-- is another start of a server (a timeline is not enough: a data directory that is put back keeps it), and a restored dump
-- has another secret.
CREATE OR REPLACE FUNCTION fencegate.incarnation() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT round(extract(epoch FROM pg_postmaster_start_time()) * 1000000) || ':'
         || left(encode(sha256(x.secret::bytea), 'hex'), 16) FROM fencegate.secret x
$$;
-- When leases were first granted here: a row that is not there may have been forgotten by a later start.
UPDATE fencegate.settings SET incarnation = fencegate.incarnation() WHERE incarnation = '';

CREATE OR REPLACE FUNCTION fencegate.grant_hash(grant_id text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT sha256(convert_to(grant_id, 'UTF8'))
$$;

-- Who this database is, for those who seal in it and those who take leases of it: random, written when the fence was
-- installed, and put back with the marks.
CREATE OR REPLACE FUNCTION fencegate.identity() RETURNS TABLE (store uuid, issuer uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.clear_way(5000);
  RETURN QUERY SELECT s.store_id, s.issuer_id FROM fencegate.settings s;
END $$;

-- What grants, renewals and releases have in common: they are as durable as what others commit, and wait for nobody long.
CREATE OR REPLACE FUNCTION fencegate.begin_lease() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.check_transaction();
  PERFORM fencegate.clear_way(5000);
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true); END IF;
  PERFORM set_config('lock_timeout', '5s', true);
END $$;

-- When the resource is free for another grant, unless it is renewed.
CREATE OR REPLACE FUNCTION fencegate.free_at(l fencegate.leases) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN l.frozen THEN 'infinity' ELSE greatest(l.expires_at + l.lock_delay_ms * interval '1 ms', l.not_before) END
$$;

-- How long it is until then: 0 = it is free. A frozen one: a century, which callers can calculate with.
CREATE OR REPLACE FUNCTION fencegate.left_ms(l fencegate.leases, at timestamptz) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN l.frozen THEN 3155760000000
              WHEN fencegate.free_at(l) <= at THEN 0
              ELSE ceil(extract(epoch FROM fencegate.free_at(l) - at) * 1000)::bigint END
$$;

-- Grants all resources or none, in one order. One row each. `outcome`: "granted", with its token; "held" by `held_by` for
-- `left_ms` more; "over": the time of this grant id has passed, or it was released; "uncovered": a holder sealed the store
-- `held_by`, which is not among `stores`. Any but "granted" granted nothing, and names only the resources it is about.
--
-- The same grant id asked again keeps its token while that is above the floor, and gets another one otherwise. `stores`:
-- the ids of all stores that the caller will seal. `stride`: what is added to a token where this server may have forgotten
-- some. `at_least_ms`: the resource stays taken for so long, even when it is released sooner. `lock_delay_ms`: and for so
-- long after it expired. `by_force`: an operator takes it from its holder, unless it is frozen. `freezes`: and nobody has it
-- until fencegate.lease_thaw.
CREATE OR REPLACE FUNCTION fencegate.lease_grant(resources text[], grant_id text, holder text, ttl_ms integer,
  floors bigint[], stores text[], stride bigint, at_least_ms integer DEFAULT 0, lock_delay_ms integer DEFAULT 0,
  by_force boolean DEFAULT false, freezes boolean DEFAULT false)
RETURNS TABLE (resource text, outcome text, token bigint, held_by text, left_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  hash constant bytea := fencegate.grant_hash($2);
  me text;
  token_max constant bigint := 4611686018427387904;  -- 2^62
  looked constant timestamptz := clock_timestamp();
  at timestamptz; r text; highest bigint;
BEGIN
  PERFORM fencegate.check_claims($1, $5);
  PERFORM fencegate.begin_lease();
  PERFORM set_config('lock_timeout', '1s', true);  -- it may have locked others' rows already
  me := fencegate.incarnation();
  -- Those who wait ask again and again: while it is held, a look costs no lock and no commit. It grants nothing; what may be
  -- more than that is found out behind the locks.
  IF by_force IS NOT TRUE AND NOT EXISTS (SELECT FROM fencegate.leases l WHERE l.resource = ANY ($1)
                                            AND (l.grant_hash = hash OR hash = ANY (l.past_grants))) THEN
    RETURN QUERY SELECT l.resource, 'held', l.token, l.holder, fencegate.left_ms(l, looked)
      FROM fencegate.leases l WHERE l.resource = ANY ($1) AND fencegate.free_at(l) > looked
       AND l.expires_at <= looked + l.ttl_ms * interval '1 ms' AND l.not_before <= looked + l.at_least_ms * interval '1 ms';
    IF FOUND THEN RETURN; END IF;
  END IF;

  INSERT INTO fencegate.leases AS l (resource, incarnation)
    SELECT q.r, s.incarnation FROM unnest($1) q(r), fencegate.settings s ORDER BY q.r COLLATE "C" ON CONFLICT DO NOTHING;
  PERFORM FROM fencegate.leases l WHERE l.resource = ANY ($1) ORDER BY l.resource FOR NO KEY UPDATE;
  at := clock_timestamp();
  -- The clock went back: from now on nobody holds for longer than what was granted.
  UPDATE fencegate.leases l SET expires_at = least(l.expires_at, at + l.ttl_ms * interval '1 ms'),
                                not_before = least(l.not_before, at + l.at_least_ms * interval '1 ms')
   WHERE l.resource = ANY ($1) AND (l.expires_at > at + l.ttl_ms * interval '1 ms'
                                    OR l.not_before > at + l.at_least_ms * interval '1 ms');

  RETURN QUERY SELECT l.resource, 'over', l.token, NULL::text, 0::bigint FROM fencegate.leases l
    WHERE l.resource = ANY ($1) AND l.token > 0
      AND (hash = ANY (l.past_grants) OR l.grant_hash = hash AND l.expires_at <= at);
  IF FOUND THEN RETURN; END IF;
  RETURN QUERY SELECT l.resource, 'held', l.token, l.holder, fencegate.left_ms(l, at)
    FROM fencegate.leases l WHERE l.resource = ANY ($1) AND l.grant_hash <> hash AND fencegate.free_at(l) > at
     AND (by_force IS NOT TRUE OR l.frozen AND freezes IS NOT TRUE);
  IF FOUND THEN RETURN; END IF;
  RETURN QUERY SELECT l.resource, 'uncovered', l.token, x.store, 0::bigint
    FROM fencegate.leases l, unnest(l.stores) x(store) WHERE l.resource = ANY ($1) AND (x.store = ANY ($6)) IS NOT TRUE;
  IF FOUND THEN RETURN; END IF;

  SELECT q.r, greatest(l.token, m.mark, q.floor) INTO r, highest
    FROM unnest($1, $5) q(r, floor) JOIN fencegate.leases l ON l.resource = q.r
    LEFT JOIN fencegate.marks m ON m.resource = q.r ORDER BY 2 DESC LIMIT 1;
  IF highest > token_max - greatest($7, 1) THEN
    PERFORM fencegate.unavailable(r, highest, NULL, 'no token above it is left for leases, which end at 2^62',
      'Give the resource another name.'); END IF;
  RETURN QUERY
  UPDATE fencegate.leases l SET
    token = CASE WHEN l.grant_hash = hash AND l.incarnation = me AND l.token > q.floor AND l.token >= coalesce(m.mark, 0)
                 THEN l.token
                 ELSE greatest(l.token, m.mark, q.floor)
                      + CASE WHEN l.incarnation = me THEN 1 ELSE greatest($7, 1) END END,
    past_grants = CASE WHEN l.grant_hash = hash OR l.token = 0 THEN l.past_grants ELSE (l.grant_hash || l.past_grants)[1:64] END,
    grant_hash = hash, holder = $3, ttl_ms = $4, at_least_ms = $8, lock_delay_ms = $9, incarnation = me, stores = $6,
    granted_at = at, expires_at = at + $4 * interval '1 ms', not_before = at + $8 * interval '1 ms',
    frozen = coalesce($11, false)
    FROM unnest($1, $5) q(r, floor) LEFT JOIN fencegate.marks m ON m.resource = q.r
   WHERE l.resource = q.r
  RETURNING l.resource, 'granted', l.token, NULL::text, $4::bigint;
END $$;

-- Renews what these terms hold: arrays of one length, one term each, of any number of holders. Answers those that it
-- renewed; whatever is missing was lost. While nobody took or released the row, an expired term revives. A term whose token
-- is below the mark was superseded, whatever its row says.
CREATE OR REPLACE FUNCTION fencegate.lease_renew(resources text[], tokens bigint[], grants text[])
RETURNS TABLE (resource text, token bigint, ttl_ms integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM fencegate.begin_lease();
  PERFORM set_config('lock_timeout', '200ms', true);  -- others' renewals wait in the same call
  RETURN QUERY
  WITH asked AS MATERIALIZED (SELECT q.r, q.t, fencegate.grant_hash(q.g) AS hash FROM unnest($1, $2, $3) q(r, t, g)),
  locked AS MATERIALIZED (
    SELECT l.resource FROM fencegate.leases l JOIN asked q ON l.resource = q.r AND l.token = q.t AND l.grant_hash = q.hash
     ORDER BY l.resource FOR NO KEY UPDATE OF l)
  UPDATE fencegate.leases l SET expires_at = clock_timestamp() + l.ttl_ms * interval '1 ms'
    FROM locked k, asked q
   WHERE l.resource = k.resource AND l.resource = q.r AND l.token = q.t AND l.grant_hash = q.hash
     AND l.expires_at > '-infinity'
     AND NOT EXISTS (SELECT FROM fencegate.marks m WHERE m.resource = l.resource AND m.mark > l.token)
  RETURNING l.resource, l.token, l.ttl_ms;
END $$;

-- Ends these terms, and tells those who listen. Answers the resources that were released by it. `unused`: nobody acted on
-- them, so that nobody has to wait for their at_least_ms.
CREATE OR REPLACE FUNCTION fencegate.lease_release(resources text[], tokens bigint[], grants text[],
                                                   unused boolean DEFAULT false)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r text;
BEGIN
  PERFORM fencegate.begin_lease();
  FOR r IN
    WITH asked AS MATERIALIZED (SELECT q.r, q.t, fencegate.grant_hash(q.g) AS hash FROM unnest($1, $2, $3) q(r, t, g)),
    locked AS MATERIALIZED (
      SELECT l.resource FROM fencegate.leases l JOIN asked q ON l.resource = q.r AND l.token = q.t AND l.grant_hash = q.hash
       ORDER BY l.resource FOR NO KEY UPDATE OF l)
    UPDATE fencegate.leases l SET expires_at = '-infinity', frozen = false,
                                  not_before = CASE WHEN $4 THEN '-infinity' ELSE l.not_before END
      FROM locked k, asked q
     WHERE l.resource = k.resource AND l.resource = q.r AND l.token = q.t AND l.grant_hash = q.hash
       AND l.expires_at > '-infinity'
    RETURNING l.resource LOOP
    PERFORM pg_notify('fencegate_released', r);
    RETURN NEXT r;
  END LOOP;
END $$;

-- Ends what an operator froze, and tells those who listen. False: it is not frozen.
CREATE OR REPLACE FUNCTION fencegate.lease_thaw(resource text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.begin_lease();
  UPDATE fencegate.leases l SET frozen = false, expires_at = '-infinity', not_before = '-infinity'
   WHERE l.resource = $1 AND l.frozen;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM pg_notify('fencegate_released', $1);
  RETURN true;
END $$;

-- A store that former holders of the resource sealed, and that is no more: later holders need not seal it.
CREATE OR REPLACE FUNCTION fencegate.lease_forget_store(resource text, store text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM fencegate.begin_lease();
  UPDATE fencegate.leases l SET stores = array_remove(l.stores, $2) WHERE l.resource = $1 AND $2 = ANY (l.stores);
  RETURN FOUND;
END $$;

-- Leases that exist, or existed. `left_ms`: until another may have it; 0 = it is free.
CREATE OR REPLACE FUNCTION fencegate.lease_list()
RETURNS TABLE (resource text, token bigint, mark bigint, holder text, granted_at timestamptz, ttl_ms integer, left_ms bigint,
               frozen boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.resource, l.token, m.mark, l.holder, l.granted_at, l.ttl_ms,
         fencegate.left_ms(l, clock_timestamp()), l.frozen
    FROM fencegate.leases l LEFT JOIN fencegate.marks m USING (resource) WHERE l.token > 0 ORDER BY l.resource
$$;

-- Notes who waits for a lease under which grant id, for `note_ms`; 0: he waits no more. For people alone: nothing depends on it.
-- So it waits for nobody, fails for nothing, and locks nothing that a grant reads; for one resource it notes 64.
CREATE OR REPLACE FUNCTION fencegate.lease_wait(resource text, grant_id text, holder text, note_ms integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE hash constant bytea := fencegate.grant_hash($2); at constant timestamptz := clock_timestamp();
BEGIN
  PERFORM set_config('lock_timeout', '200ms', true);
  DELETE FROM fencegate.waiters w
   WHERE (w.resource, w.grant_hash) IN (SELECT x.resource, x.grant_hash FROM fencegate.waiters x
                                         WHERE x.expires_at <= at LIMIT 100 FOR UPDATE SKIP LOCKED);
  IF $4 <= 0 THEN
    DELETE FROM fencegate.waiters w WHERE w.resource = $1 AND w.grant_hash = hash;
    RETURN;
  END IF;
  INSERT INTO fencegate.waiters AS w (resource, grant_hash, holder, since, expires_at)
    SELECT l.resource, hash, left($3, 200), at, at + least($4, 60000) * interval '1 ms' FROM fencegate.leases l
     WHERE l.resource = $1
       AND (SELECT count(*) FROM fencegate.waiters x WHERE x.resource = $1 AND x.grant_hash <> hash AND x.expires_at > at) < 64
    ON CONFLICT (resource, grant_hash) DO UPDATE SET expires_at = excluded.expires_at;
EXCEPTION WHEN OTHERS THEN NULL;
END $$;

-- Those who wait: neither those whose time is over (of a clock that went back, too), nor those who have it by now.
CREATE OR REPLACE FUNCTION fencegate.lease_waiters() RETURNS TABLE (resource text, holder text, since timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT w.resource, w.holder, w.since FROM fencegate.waiters w JOIN fencegate.leases l USING (resource)
   WHERE w.grant_hash <> l.grant_hash AND w.expires_at > clock_timestamp()
     AND w.expires_at <= clock_timestamp() + interval '1 min'
   ORDER BY w.resource, w.since
$$;

-- Gives the mark to another issuer, when it is that of `from_issuer`: from now on it rises by seals of `to_issuer` only. The
-- grant beside it is void then. Answers whose mark it is afterwards; NULL: nobody's, which the next seal changes. From one issuer
-- to itself: only that, and nobody waits.
CREATE OR REPLACE FUNCTION fencegate.move_issuer(resource text, from_issuer uuid, to_issuer uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE owner uuid; deadline timestamptz;
BEGIN
  PERFORM fencegate.check_claims(ARRAY[$1], ARRAY[0::bigint]);
  PERFORM fencegate.begin_lease();
  IF $2 <> $3 THEN
    SELECT clock_timestamp() + s.cut_ms * interval '1 ms' INTO STRICT deadline FROM fencegate.settings s;
    -- A seal that is under way has read whose mark it is.
    PERFORM fencegate.lock_exclusive($1, 9223372036854775807, fencegate.lock_key($1), clock_timestamp(), deadline);
    PERFORM set_config('lock_timeout', fencegate.ms_until(deadline), true);
    UPDATE fencegate.marks m SET issuer = $3, sealed = NULL, grant_hash = NULL WHERE m.resource = $1 AND m.issuer = $2;
  END IF;
  SELECT m.issuer INTO owner FROM fencegate.marks m WHERE m.resource = $1;
  RETURN owner;
END $$;

-- Seals: raises the marks to the tokens of one grant, all or none, and writes beside each whose it is. A mark that is at
-- its token must be of this very grant: else ZF004. One that is of another issuer: ZF007. The rest is as for
-- fencegate.raise_all; a seal has no largest step.
CREATE OR REPLACE FUNCTION fencegate.seal(resources text[], tokens bigint[], issuer uuid, grant_id text,
                                          cut_ms integer DEFAULT NULL, grace_ms integer DEFAULT 0)
RETURNS TABLE (resource text, mark bigint, raised boolean, cut integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF $3 IS NULL OR $4 IS NULL THEN
    PERFORM fencegate.malformed(NULL, NULL, 'a seal names its issuer and its grant'); END IF;
  RETURN QUERY SELECT a.resource, a.mark, a.raised, a.cut
    FROM fencegate.take($1, $2, $5, 0, false, $6, $3, fencegate.grant_hash($4)) a;
END $$;
