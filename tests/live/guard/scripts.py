"""Conversations by which a client could escape its guard: each is a list of what goes out in one piece. They write rows
(id, resource, 1) to app.w; the test puts a raise in front of each piece, and behind it nothing of token 1 may be committed.

SCHEMA is what they need in the database, and a role `writer`."""

import struct

from pg_wire import (COPY_DONE, FLUSH, SYNC, bind_to, close, copy_data, copy_fail, describe, execute, function_call,
                     message, parse, query)

SCHEMA = """
CREATE SCHEMA app;
CREATE TABLE app.w (id bigint, resource text, token bigint) WITH (autovacuum_enabled = off);
CREATE TABLE app.other (a int);
CREATE FUNCTION app.fw(i bigint, r text, t bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN PERFORM set_config('app.x', i::text, true); INSERT INTO app.w VALUES (i, r, t); RETURN true; END $$;
-- A value "id/resource/token" is written when it is looked at.
CREATE FUNCTION app.see(v text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN RETURN app.fw(split_part(v, '/', 1)::bigint, split_part(v, '/', 2), split_part(v, '/', 3)::bigint); END $$;
CREATE DOMAIN app.d AS text CHECK (app.see(VALUE));
CREATE FUNCTION app.imm(v text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM app.see(v); RETURN 1; END $$;
CREATE PROCEDURE app.p(i bigint, j bigint, r text, t bigint, pause float8) LANGUAGE plpgsql AS $$
BEGIN INSERT INTO app.w VALUES (i, r, t); COMMIT; PERFORM pg_sleep(pause); INSERT INTO app.w VALUES (j, r, t); END $$;
CREATE PROCEDURE app.p0(i bigint, r text, t bigint) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.w VALUES (i, r, t); END $$;
CREATE FUNCTION app.x(s text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE s; RETURN 1; END $$;
CREATE FUNCTION app.ff(i bigint, r text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN INSERT INTO app.w VALUES (i, r, 1); RETURN i; END $$;
CREATE PROCEDURE app.po(INOUT i int) LANGUAGE plpgsql AS $$ BEGIN i := 2; END $$;
-- Runs what it looks at.
CREATE DOMAIN app.runs AS text CHECK (app.x(VALUE) = 1);
CREATE TABLE app.dummy (a int);
ALTER TABLE app.dummy OWNER TO writer;
-- A COPY that fails when it has asked for its data.
CREATE TABLE app.copied (id bigint);
CREATE FUNCTION app.fail_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(0.05); RAISE EXCEPTION 'late'; END $$;
CREATE TRIGGER fail_late BEFORE INSERT ON app.copied FOR EACH STATEMENT EXECUTE FUNCTION app.fail_late();
-- Each raise, with the time of its commit: for the judge.
CREATE TABLE app.raises (resource text, mark bigint) WITH (autovacuum_enabled = off);
CREATE FUNCTION app.note_raise() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN INSERT INTO app.raises VALUES (NEW.resource, NEW.mark); RETURN NULL; END $$;
CREATE TRIGGER note_raise AFTER INSERT OR UPDATE ON fencegate.marks FOR EACH ROW EXECUTE FUNCTION app.note_raise();
-- Committed behind the first raise above its token. One clock; a raise commits when all holders have let go.
CREATE VIEW app.stale AS
  SELECT w.* FROM app.w w, LATERAL (
    SELECT r.xmin FROM app.raises r WHERE r.resource = w.resource AND r.mark > w.token ORDER BY r.mark LIMIT 1) x
   WHERE pg_xact_commit_timestamp(w.xmin) > pg_xact_commit_timestamp(x.xmin);
GRANT USAGE, CREATE ON SCHEMA app TO writer;
GRANT ALL ON app.w, app.other, app.copied TO writer;
"""


class Titles(dict):
    """Each once: one of two would not be held."""

    def __setitem__(self, title, pieces):
        assert title not in self, title
        super().__setitem__(title, pieces)


def scripts(r, ids, function):
    """{title: pieces}. A number is a pause, in seconds. `r`: the resource; `ids`: an iterator of row numbers; `function`: the oid of app.ff."""
    made = Titles()

    def ins():
        return f"INSERT INTO app.w VALUES ({next(ids)},'{r}',1)"

    def v():
        return f"({next(ids)},'{r}',1)"

    def lit():
        return f"{next(ids)}/{r}/1"

    def pbe(sql, name="", portal=""):
        return [parse(sql, name), bind_to(portal, name), execute(portal)]

    def pbde(sql):
        return [parse(sql), bind_to(), describe(b"P"), execute()]

    def call(oid, *values):
        return function_call(oid, *values, binary=True)

    made["q"] = [query(ins())]
    made["q x3"] = [query(ins()), query(ins()), query(ins())]
    made["q multi"] = [query(ins() + ";" + ins() + " ; ")]
    made["q block"] = [query("BEGIN"), query(ins()), query(ins()), query("COMMIT"), query(ins())]
    made["q block in one"] = [query(f"BEGIN;{ins()};COMMIT;{ins()};BEGIN;{ins()};END"), query(ins())]
    made["q commit in middle"] = [query(f"{ins()};COMMIT;{ins()};SELECT pg_sleep(0.15);{ins()}")]
    made["q begin in middle"] = [query(f"{ins()};BEGIN;{ins()}"), query(ins()), query("COMMIT")]
    made["q chain"] = [query("BEGIN"), query(ins()), query("COMMIT AND CHAIN"), query(ins()), query("ROLLBACK AND CHAIN"),
            query(ins()), query("COMMIT")]
    made["q savepoint"] = [query("BEGIN"), query("SAVEPOINT a"), query(ins()), query("ROLLBACK TO a"), query(ins()),
            query("RELEASE a"), query(ins()), query("COMMIT")]
    made["q failed"] = [query("BEGIN"), query(ins()), query("SELECT 1/0"), query(ins()), query("ROLLBACK;" + ins())]
    made["q failed 2"] = [query("BEGIN"), query("SAVEPOINT a"), query(ins()), query("SELECT 1/0"),
            query("/**/ROLLBACK TO a;" + ins() + ";COMMIT;" + ins())]
    made["junk number"] = [query(f"SELECT 1a$$; COMMIT; {ins()}; SELECT pg_sleep(0.15); {ins()}; SELECT 1 AS b$$")]
    made["junk number e"] = [query("BEGIN"), query(f"SELECT 1e$$; COMMIT; {ins()}; SELECT 1 AS b$$"), query(ins())]
    for scs in ("on", "off"):
        made["quote " + scs] = [query(f"SET standard_conforming_strings={scs}"), query(f"SELECT 'a\\'; COMMIT; {ins()}; --'"),
                query(f"SELECT 'a\\'' ; COMMIT; {ins()}; SELECT ''"), query(ins())]
        made["quote2 " + scs] = [query(f"SET standard_conforming_strings={scs}; SELECT 'a\\'; COMMIT; {ins()}; --'"),
                query("COMMIT")]
        made["unicode " + scs] = [query(f"SET standard_conforming_strings={scs}"),
                query(f"SELECT U&'\\0027; COMMIT; {ins()}; --'"), query(f'SELECT U&"a\\" ; COMMIT; {ins()}')]
    made["dollar"] = [query(f"SELECT $a$ ; COMMIT; {ins()}; $b$ $a$; COMMIT; {ins()}; SELECT $$ $$")]
    made["dollar ident"] = [query(f"SELECT 1 AS a$b$; COMMIT; {ins()}; SELECT 1 AS c$b$; {ins()}")]
    pad = "x" * 300_000  # in a larger message than the gate reads at once
    made["large"] = [query(f"{ins()}; SELECT '{pad}' LIMIT 0; COMMIT; {ins()}; SELECT pg_sleep(0.1); COMMIT AND CHAIN; {ins()}; COMMIT; "
                           f"SELECT '{pad}' LIMIT 0; {ins()}; BEGIN; {ins()}"), query(ins())]
    made["nested comment"] = [query(f"/* /* */ ; COMMIT; {ins()} */ SELECT 1; COMMIT /* /* */ */; {ins()}")]
    made["comment in op"] = [query(f"SELECT 1 -/* */- ; COMMIT; {ins()}"), query(f"SELECT 1 --\\\r; COMMIT; {ins()}")]
    made["psql backslash"] = [query(f"SELECT 1\\; COMMIT; {ins()}")]
    made["NUL"] = [message(b"Q", b"SELECT 1\x00; COMMIT; " + ins().encode() + b"\x00"), query(ins())]
    made["bad utf8"] = [query(b"SELECT '\xc3'; COMMIT; " + ins().encode()),
            query(b"SELECT '\xf0('; COMMIT; " + ins().encode())]
    made["sjis"] = [query("SET client_encoding=SJIS"),
            query(b"SELECT '\x95\\'; COMMIT; " + ins().encode() + b"; SELECT '\x95\\'"),
            query(b"SELECT '\x95\\'; COMMIT; " + ins().encode() + b" --'"), query(ins())]
    made["gbk scs off"] = [query("SET client_encoding=GBK"), query("SET standard_conforming_strings=off"),
            query(b"SELECT '\xbf\\'; COMMIT; " + ins().encode() + b" --'"), query(ins())]
    made["johab semi"] = [query("SET client_encoding=JOHAB"), query(b"SELECT '\x88;'; COMMIT; " + ins().encode()),
            query(ins())]
    made["bom, vt, nbsp"] = [query(b"\xef\xbb\xbfCOMMIT"), query("BEGIN"), query(ins()), query(b"\x0bCOMMIT;" + ins().encode()),
            query(b"\xc2\xa0COMMIT"), query(ins())]
    made["empty"] = [query(""), query(";;"), query("-- x"), query("BEGIN"), query(";"), query(f"/* */;;COMMIT;;;{ins()}")]
    made["begin atomic"] = [query(f"CREATE OR REPLACE FUNCTION app.ba() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END; COMMIT; {ins()}")]
    made["do commit"] = [query(f"DO $$BEGIN {ins()}; COMMIT; PERFORM pg_sleep(0.15); {ins()}; END$$")]
    made["call commit"] = [query(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.25)")]
    made["call commit comment"] = [query(f"/* x */ -- y\n;CALL app.p({next(ids)},{next(ids)},'{r}',1,0.25)")]
    made["call plain"] = [query(f"CALL app.p0({next(ids)},'{r}',1)"), query(ins())]
    made["call in multi"] = [query(f"{ins()};CALL app.p({next(ids)},{next(ids)},'{r}',1,0.2);{ins()}")]
    made["commit then call"] = [query(f"{ins()};COMMIT;CALL app.p({next(ids)},{next(ids)},'{r}',1,0.2);{ins()}")]
    made["ext call"] = (pbe(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.25)") + [SYNC])
    made["ext call named"] = [parse(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.25)", "x"), SYNC, bind_to("", "x"),
            execute(), SYNC]
    made["ext call behind insert"] = (pbe(ins()) + pbe(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.25)") + [SYNC])
    made["ext call behind unknown"] = ([parse("COMMIT", "c"), SYNC] + [bind_to("", "c"), execute()] +
            pbe(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.25)") + [SYNC])
    made["ext"] = (pbde(ins()) + [SYNC] + pbde(ins()) + [SYNC])
    made["ext pipeline"] = (sum((pbe(ins()) for _ in range(4)), []) + [SYNC])
    made["ext pipeline syncs"] = sum((pbe(ins()) + [SYNC] for _ in range(4)), [])
    made["ext one packet"] = [b"".join(pbe(ins()) + [SYNC] + pbe("COMMIT") + pbe(ins()) + [SYNC])]
    made["ext commit inside"] = (pbe(ins()) + pbe("COMMIT") + pbe(ins()) + pbe("/**/END") + pbe(ins()) + [SYNC])
    made["ext rollback inside"] = (pbe(ins()) + pbe("ROLLBACK") + pbe(ins()) + [FLUSH] + pbe(ins()) + [SYNC])
    made["ext block"] = (pbe("BEGIN") + [SYNC] + pbe(ins()) + [SYNC] + pbe(ins()) + pbe("COMMIT") + pbe(ins()) + [SYNC])
    made["ext block pipelined"] = (pbe("BEGIN") + pbe(ins()) + pbe("COMMIT") + pbe("BEGIN") + pbe(ins()) + pbe("COMMIT") +
            [SYNC])
    made["ext chain"] = (pbe("BEGIN") + pbe(ins()) + pbe("COMMIT AND CHAIN") + pbe(ins()) + [SYNC] + pbe(ins()) + pbe("COMMIT") +
            [SYNC])
    made["portal of commit"] = (pbe("BEGIN") + pbe(ins()) + [parse("COMMIT"), bind_to("p"), SYNC, execute("p")] + pbe(ins()) +
            [SYNC])
    made["portal kept"] = (pbe("BEGIN") + [parse(ins()), bind_to("p"), SYNC, execute("p"), SYNC] + pbe("COMMIT") + [SYNC])
    made["prepared commit"] = ([parse("COMMIT", "c"), parse("BEGIN", "b"), parse(ins(), "i"), SYNC] + [bind_to("", "b"),
            execute(), bind_to("", "i"), execute(), bind_to("", "c"), execute(), bind_to("", "i"), execute(), SYNC])
    made["prepared commit 2"] = [parse("COMMIT", "c"), SYNC, query("BEGIN"), query(ins()), bind_to("", "c"), execute(), SYNC,
            query(ins())]
    made["overwritten name"] = ([parse("COMMIT", "x"), SYNC, parse("SELECT 1", "x"), SYNC, query("BEGIN"), query(ins()),
            bind_to("", "x"), execute()] + pbe(ins()) + [SYNC])
    made["overwritten, no sync"] = ([parse("COMMIT", "x"), SYNC, query("BEGIN"), query(ins()), parse("SELECT 1", "x"),
            bind_to("", "x"), execute(), SYNC] + pbe(ins()) + [SYNC, query("ROLLBACK")])
    made["sql replaces name"] = [parse("BEGIN", "x"), SYNC, query("DEALLOCATE x"), query(f"PREPARE x AS {ins()}"),
            bind_to("", "x"), execute(), SYNC]
    made["sql replaces name 2"] = ([parse("BEGIN", "x")] + pbe("DEALLOCATE x") + pbe(f"PREPARE x AS {ins()}") + pbe("COMMIT") +
            [bind_to("", "x"), execute(), SYNC])
    made["sql prepare"] = [query(f"PREPARE e AS {ins()}"), query("EXECUTE e"), query("BEGIN"), query("EXECUTE e"),
            query("COMMIT"), query("EXECUTE e;COMMIT;EXECUTE e")]
    made["execute of protocol name"] = [parse("COMMIT", "c"), SYNC, query("BEGIN"), query(ins()), query(f"EXECUTE c;{ins()}"),
            query(ins())]
    made["execute commit in fn"] = [parse("COMMIT", "c"), SYNC, query("BEGIN"), query(ins()),
            query("SELECT app.x('EXECUTE c')"), query(ins())]
    made["execute chain in fn"] = [parse("COMMIT AND CHAIN", "c"), SYNC, query("BEGIN"), query(ins()),
            query("SELECT app.x('EXECUTE c')"), query(ins()), query("COMMIT")]
    made["execute chain in fn 2"] = [parse("/**/ROLLBACK AND CHAIN", "c"), SYNC, query("BEGIN"),
            query("SELECT app.x('EXECUTE c')"), query(ins()), query("COMMIT")]
    made["execute rollback to in fn"] = [parse("ROLLBACK TO s", "c"), SYNC, query("BEGIN"), query("SAVEPOINT s"),
            query("SELECT 1"), query("SELECT app.x('EXECUTE c')"), query(ins()), query("COMMIT")]
    # A guard of a direct session stays where a statement without a name is.
    again = [bind_to("", "i"), execute(), SYNC]
    named = [parse(ins(), "i"), SYNC, *again]
    made["unnamed"] = (named + [parse("SELECT 1"), SYNC] + again + [close(b"S", ""), SYNC] + again + [query("SHOW work_mem")] +
            again * 2 + [parse("SELEC"), SYNC] + again)
    made["unnamed in one segment"] = (named + pbe("SELECT 1") + pbe("COMMIT") + again + pbe("COMMIT") + [bind_to("", "i"), execute()] +
            pbe("SELECT 1/0") + [SYNC] + again)
    made["unnamed, skipped"] = (named + [parse("SELECT 1/0", "z"), bind_to("", "z"), execute(), parse("SELECT 1"), close(b"S", ""),
            SYNC] + again)
    made["unnamed and sql"] = (named + pbe("SELECT app.x('DEALLOCATE ALL')", "f") + [SYNC, parse(ins(), "i"), SYNC] + again +
            pbe("DISCARD ALL", "d") + [SYNC, parse(ins(), "i"), SYNC] + again +
            pbe("""SELECT app.x('PREPARE "" AS SELECT 1')""", "p") + [SYNC] + again)
    made["unnamed query"] = (named + [query("SELECT 1")] + again + [query("BEGIN")] + again + [query("COMMIT AND CHAIN")] + again +
            [query("COMMIT")] + again)
    made["fetch from portal"] = (pbe("BEGIN") + [parse(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.1)"), bind_to("pp"),
            SYNC, query("FETCH ALL FROM pp"), query("COMMIT")])
    made["parse writes"] = [parse(f"SELECT '{{{lit()}}}'::app.d[]"), SYNC, parse(f"SELECT '{{{lit()}}}'::app.d[]", "n"), FLUSH,
            SYNC]
    made["bind writes"] = [parse(f"SELECT app.imm('{lit()}')", "i"), SYNC, bind_to("", "i"), SYNC,
            parse("SELECT $1::app.d", "j"), SYNC, bind_to("", "j", (lit(),)), SYNC]
    made["describe re-analyses"] = [parse(f"SELECT '{{{lit()}}}'::app.d[], a FROM app.other", "i"), SYNC,
            query("ALTER TABLE app.other ALTER a TYPE int"), describe(b"S", "i"), SYNC]
    made["copy in"] = [query("COPY app.w FROM STDIN"), copy_data(f"{next(ids)}\t{r}\t1\n".encode()),
            copy_data(f"{next(ids)}\t{r}\t1\n".encode()), COPY_DONE, query(ins())]
    made["copy in multi"] = [query(f"{ins()};COPY app.w FROM STDIN;COMMIT;{ins()}"),
            copy_data(f"{next(ids)}\t{r}\t1\n".encode()), COPY_DONE, query(ins())]
    made["copy ext"] = (pbe("COPY app.w FROM STDIN") + [SYNC, copy_data(f"{next(ids)}\t{r}\t1\n".encode()), COPY_DONE, SYNC] +
            pbe(ins()) + [SYNC])
    made["copy ext, data blind"] = ([b"".join(pbe("COPY app.w FROM STDIN") + [SYNC, copy_data(f"{next(ids)}\t{r}\t1\n".encode()), COPY_DONE, SYNC])] +
            pbe(ins()) + [SYNC])
    made["copy then more, no sync"] = (pbe("COPY app.w FROM STDIN") + [copy_data(f"{next(ids)}\t{r}\t1\n".encode()),
            COPY_DONE] + pbe("COMMIT") + pbe(ins()) + [SYNC])
    made["copy fail"] = [query("COPY app.w FROM STDIN"), copy_data(f"{next(ids)}\t{r}\t1\n".encode()), copy_fail("no"),
            query(ins())]
    made["copy bad data"] = [query("COPY app.w FROM STDIN"), copy_data(b"x\n"), copy_data(b"y\n"), COPY_DONE, query(ins())]
    made["copy out"] = [query(f"COPY (SELECT app.fw({next(ids)},'{r}',1)) TO STDOUT"), query(ins())]
    made["rr"] = [query("BEGIN ISOLATION LEVEL REPEATABLE READ"), query(ins()), query(ins()), query("COMMIT")]
    made["rr late"] = [query("BEGIN ISOLATION LEVEL REPEATABLE READ"), query("SET LOCAL work_mem='5MB'"),
            query("SHOW work_mem"), query("SELECT 1"), query(ins()), query("COMMIT")]
    made["serializable"] = [query("BEGIN"), query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
            query("SELECT count(*) FROM app.other"), query(ins()), query("COMMIT")]
    made["default rr"] = [query("SET default_transaction_isolation='repeatable read'"), query(ins()), query("BEGIN"),
            query("SELECT 1"), query(ins()), query("COMMIT"), query(f"{ins()};COMMIT;{ins()}")]
    made["rr chain"] = [query("BEGIN ISOLATION LEVEL REPEATABLE READ"), query(ins()), query("COMMIT AND CHAIN"),
            query("SAVEPOINT s"), query(ins()), query("ROLLBACK TO s"), query(ins()), query("COMMIT")]
    made["read only then write"] = [query("BEGIN READ ONLY"), query("SELECT 1"), query("SET TRANSACTION READ WRITE"),
            query(ins()), query("ROLLBACK"), query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), query("SELECT 1"),
            query("SET TRANSACTION READ WRITE"), query(ins()), query("COMMIT")]
    made["ro then rw before query"] = [query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            query("SET TRANSACTION READ WRITE"), query(ins()), query("COMMIT")]
    made["cursor"] = [query("BEGIN"),
            query(f"DECLARE k CURSOR FOR SELECT app.fw({next(ids)},'{r}',1) UNION ALL SELECT app.fw({next(ids)},'{r}',1)"),
            query("FETCH 1 FROM k"), query("FETCH 1 FROM k"), query("COMMIT")]
    made["cursor hold"] = [query(f"BEGIN;DECLARE k CURSOR WITH HOLD FOR SELECT app.fw({next(ids)},'{r}',1) UNION ALL SELECT app.fw({next(ids)},'{r}',1);COMMIT"),
            query("FETCH 1 FROM k"), query("FETCH 1 FROM k")]
    made["row limit"] = (pbe("BEGIN") + [parse(f"SELECT app.fw({next(ids)}+g,'{r}',1) FROM generate_series(0,2) g"),
            bind_to("p"), execute("p", 1), SYNC, execute("p", 1), SYNC, execute("p", 1)] + pbe("COMMIT") + [SYNC])
    [next(ids) for _ in range(3)]
    made["row limit, implicit"] = [parse(f"SELECT app.fw({next(ids)}+g,'{r}',1) FROM generate_series(0,2) g"), bind_to("p"),
            execute("p", 1), FLUSH, execute("p", 1), execute("p", 0), SYNC]
    [next(ids) for _ in range(3)]
    made["error unsynced then Q"] = (pbe("SELECT 1/0") + [query(ins())] + pbe(ins()) + [SYNC, query(ins())])
    made["unsynced then Q"] = (pbe(ins()) + [query(ins())] + pbe(ins()) + [SYNC])
    made["parse flush Q"] = [parse(ins(), "z"), describe(b"S", "z"), FLUSH, query(ins()), bind_to("", "z"), execute(), SYNC]
    made["half a message"] = [pbe(ins())[0] + pbe(ins())[1][:4]]
    made["split message"] = ((lambda m: [m[:7], m[7:]])(query(ins())) +
            (lambda m: [m[:11], m[11:]])(b"".join(pbe(ins()) + [SYNC])))
    made["F"] = [call(function, struct.pack("!q", next(ids)), r.encode()), query("BEGIN"),
            call(function, struct.pack("!q", next(ids)), r.encode()), query("COMMIT")]
    made["F behind unsynced"] = (pbe(ins()) + [call(function, struct.pack("!q", next(ids)), r.encode()), query(ins())])
    made["large object"] = [call(957, struct.pack("!I", 131072 | 262144)), query(ins())]
    made["lock in blocks"] = [query("BEGIN"), query("LOCK app.other"), query(ins()), query("COMMIT"), query("LOCK app.other;" + ins())]
    made["listen"] = [query("LISTEN a"), query("NOTIFY a;" + ins()), query("UNLISTEN *"), query("DISCARD ALL"), query(ins()),
            query("DEALLOCATE ALL"), query(ins()), query("RESET ALL;" + ins())]
    made["session auth"] = [query("SET SESSION AUTHORIZATION DEFAULT"), query("SET ROLE writer"), query(ins()),
            query("RESET ROLE;" + ins())]
    made["set search_path"] = [query("CREATE OR REPLACE FUNCTION app.eq(bigint,bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'"),
            query("SET search_path=app,pg_catalog"), query(ins())]
    made["prepare transaction"] = [query("BEGIN"), query(ins()), query("PREPARE TRANSACTION 'a'"), query("ROLLBACK"),
            query("COMMIT PREPARED 'a'"), query(ins() + ";PREPARE /**/ TRANSACTION 'a'"), query("COMMIT PREPARED 'a'"),
            query("COMMIT;COMMIT PREPARED 'a'")]
    made["no blocks"] = [query("VACUUM app.other"), query("CREATE INDEX CONCURRENTLY ON app.other(a)"),
            query("CREATE DATABASE nope"), query("ALTER SYSTEM SET work_mem='4MB'"),
            query("REINDEX TABLE CONCURRENTLY app.other"), query(ins())]
    made["deferred"] = [query(ins()), query("BEGIN"), query(ins()), query("SET CONSTRAINTS ALL DEFERRED"), query(ins()),
            query("SET CONSTRAINTS ALL IMMEDIATE"), query("COMMIT")]
    made["timeout"] = [query("SET statement_timeout=50"), query(f"SELECT pg_sleep(0.03);{ins()}"),
            query(ins() + ";SELECT pg_sleep(1)"), query(ins())]
    made["temp shadows"] = [query("CREATE TEMP TABLE marks(resource text, mark bigint)"),
            query(f"INSERT INTO marks VALUES ('{r}',1)"), query("SET search_path=pg_temp"), query(ins())]
    made["guard name taken"] = [query("PREPARE _fencegate AS SELECT 1"), query(ins()), parse("SELECT 1", "_fencegate"), SYNC, query(ins()),
            query("BEGIN"), query("DECLARE _fencegate CURSOR FOR SELECT 1"), query(ins()), query("COMMIT")]
    made["advisory unlock"] = [query("BEGIN"), query(ins()),
            query(f"SELECT pg_advisory_unlock_all(), pg_advisory_unlock_shared(fencegate.lock_key('{r}'))"), query(ins()), query("COMMIT")]
    made["slow in the middle of a pipeline"] = [query("BEGIN"), query(ins()),
            query("COMMIT") + query(f"INSERT INTO app.w SELECT {next(ids)},'{r}',1 FROM pg_sleep(0.2)")]
    made["100 statements"] = [query(";".join([ins() for _ in range(100)]))]
    made["comment behind a semicolon"] = [query(f"SELECT '; -- '; COMMIT; {ins()}; SELECT ''"),
            query("BEGIN"), query(ins()), query(f"SELECT '; -- '; COMMIT; {ins()}; SELECT ''"), query(ins())]
    made["copy bad data, then more"] = (pbe("COPY app.w FROM STDIN") + [SYNC, copy_data(b"x\n"), SYNC, query(ins()),
            COPY_DONE, SYNC, query(ins())])
    made["copy bad data, blind"] = [query("BEGIN"), query(ins()), query("COPY app.w FROM STDIN"),
            copy_data(b"x\n") + query(f"ROLLBACK;{ins()}") + query(ins()), query("ROLLBACK"), query(ins())]
    made["copy, then extended"] = [query("BEGIN"), query(ins()), query("COPY app.w FROM STDIN"),
            copy_data(f"{next(ids)}\t{r}\t1\n".encode()), *pbe(ins()), SYNC, query("COMMIT"), query(ins())]
    made["copy in one packet"] = [query("COPY app.w FROM STDIN") + copy_data(f"{next(ids)}\t{r}\t1\n".encode()) +
            COPY_DONE + query(ins()), query(ins())]
    made["names of 63 bytes"] = [parse("COMMIT", "n" * 63 + "1"), SYNC, parse("SELECT 1", "n" * 63 + "2"), SYNC,
            query("BEGIN"), query(ins()), bind_to("", "n" * 63 + "2"), execute(), *pbe(ins()), SYNC, query(ins())]
    made["names kept"] = [parse(ins(), "k"), parse("BEGIN", "b"), parse("COMMIT", "c"), SYNC, bind_to("", "k"), execute(),
            SYNC, bind_to("", "b"), execute(), SYNC, query(ins()), bind_to("", "c"), execute(), SYNC]
    made["calls under names, in one"] = [parse(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.1)", "k"),
            parse("COMMIT", "c"), SYNC, bind_to("", "k"), execute(), bind_to("", "c"), execute(), bind_to("", "k"),
            execute(), SYNC, query(ins())]
    made["lock"] = [query("BEGIN"), query("LOCK app.other"), query("LOCK app.other; COMMIT AND CHAIN; LOCK app.other"),
            query(ins()), query("COMMIT")]
    made["large inserts"] = [query(f"INSERT INTO app.w SELECT {next(ids)},'{r}',1 /* {'x' * 300_000} */"),
            query(f"SELECT '{'x' * 300_000}'; COMMIT; {ins()}"), query(f"/* {'x' * 300_000} */ COMMIT; {ins()}"), query(ins())]
    made["function call, then more"] = (pbe(ins()) + pbe("SAVEPOINT a") +
            [call(function, struct.pack("!q", next(ids)), r.encode()), query(ins())] +
            pbe(f"CALL app.p0({next(ids)},'{r}',1)") + [call(function, struct.pack("!q", next(ids)), r.encode()), query(ins())])
    locks = parse("LOCK app.other IN ACCESS SHARE MODE", "x")
    made["sql replaces a lock"] = [locks, SYNC, query("DEALLOCATE x"), query(f"PREPARE x AS {ins()}"),
            query("BEGIN ISOLATION LEVEL REPEATABLE READ"), bind_to("", "x"), execute(), SYNC, query("COMMIT")]
    made["sql replaces a lock in a block"] = [query("BEGIN ISOLATION LEVEL REPEATABLE READ"), locks, SYNC,
            query("SAVEPOINT s"), query("DEALLOCATE x"), query(f"SELECT app.x($$PREPARE x AS {ins()}$$)"),
            query("ROLLBACK TO s"), bind_to("", "x"), execute(), SYNC, query("COMMIT")]
    swaps = """SELECT '{"DEALLOCATE x","PREPARE x AS SELECT 1"}'::app.runs[], a FROM app.dummy"""
    for kind, name, portal, title in (b"S", "x", "", "name"), (b"P", "", "p", "portal"):
        made[f"a describe replaces a {title}, then call"] = [parse("SELECT 1", "x"), SYNC, parse(swaps, "y"), SYNC,
                query(f"ALTER TABLE app.dummy ALTER a TYPE {'big' if kind == b'S' else ''}int"), close(b"S", "x"), SYNC,
                b"".join([parse("BEGIN", "x"), *([] if kind == b"S" else [bind_to(portal, "x")]), describe(b"S", "y"),
                          *([bind_to(portal, "x")] if kind == b"S" else []), execute(portal),
                          *pbe(f"CALL app.p({next(ids)},{next(ids)},'{r}',1,0.2)"), SYNC])]
    late = f"INSERT INTO app.w SELECT {next(ids)},'{r}',1 FROM pg_sleep(0.15)"
    made["copy that fails late, do more"] = [b"".join(pbe("COPY app.copied FROM STDIN") + [SYNC, copy_data(b"1\n"), COPY_DONE] +
                                                    pbe(late) + [SYNC])]
    for title, stray in ("data", copy_data(b"1\n")), ("its end", COPY_DONE), ("its failure", copy_fail("no")):
        made[f"timeout at {title} for no copy"] = [query("SET statement_timeout = 100"),
                parse(f"INSERT INTO app.w SELECT {next(ids)},'{r}',1 FROM pg_sleep(0.08)"), 0.15,
                stray + bind_to() + execute() + SYNC]
    return made
