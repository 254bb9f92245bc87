"""How clients learn that their session is over: each driver raises ZF001 with its text, at rest, in flight and in a block;
a client at rest keeps its socket until it speaks; pools notice in their next use."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import psycopg
import psycopg2

from live_test import LiveTest, main
from pg_wire import FLUSH, SYNC, Wire, bind, execute, fields, message, parse, query, split
from postgres import PgBouncer, PgGate, PostgresServer, binary, run_sql
from processes import LOOPBACK, PATIENCE, eventually
from test_pg_gate import PgGateTest

sys.path.insert(0, str(Path(__file__).parent / "clients"))
import compiled  # noqa: E402

try:
    import asyncpg
except ImportError:
    asyncpg = None
try:
    import psycopg_pool
except ImportError:
    psycopg_pool = None
try:
    import sqlalchemy
except ImportError:
    sqlalchemy = None

READY = message(b"Z", b"I")
OWN = "INSERT INTO writes (who) VALUES ('own')"
INSERT = "INSERT INTO writes (who) VALUES ('stale')"
SLEEP = "INSERT INTO writes (who) SELECT 'stale' FROM pg_sleep(60)"


class Ends(PgGateTest):
    def options(self, token=34):
        return f"-c fencing.tokens={self.resource}={token}"

    def sleeps(self):
        return self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1

    def supersede(self):
        self.connect(35).close()
        eventually(lambda: self.gate.metric("connections_waiting") == 1)

    def assert_stale(self, text, state="ZF001"):
        self.assertEqual(state, "ZF001", text)
        self.assertIn(f"token 34 of {self.resource} is below mark 35", text)
        self.assertEqual(self.written(), [])

    def tearDown(self):
        eventually(lambda: self.gate.metric("connections_waiting") == 0)

    # ── what the bytes are

    def readable(self, wire):
        return bool(select.select([wire.sock], [], [], 0)[0])

    def wire(self):
        wire = self.enterContext(Wire(self.gate.address, user="alice", options=self.options()))
        wire.until_ready()
        return wire

    def assert_told(self, wire):
        kind, body = wire.read()
        self.assertEqual((kind, fields(body)["C"], fields(body)["V"]), (b"E", "ZF001", "FATAL"))
        self.assertEqual(wire.rest(), READY)

    def test_a_client_at_rest_is_told_when_it_speaks(self):
        for block in ("SELECT 1", "BEGIN"):
            for said in (query("SELECT 1"), parse("SELECT 1") + bind() + execute() + SYNC, query("SELECT " + "1" * 2_000_000)):
                wire = self.wire()
                wire.send(query(block))
                wire.until_ready()
                self.connect(35)
                eventually(lambda: self.gate.metric("connections_waiting") == 1)
                self.assertFalse(self.readable(wire))
                wire.send(said)
                self.assert_told(wire)
                self.resource += "."

    def test_extended_messages_are_answered_behind_their_sync(self):
        wire = self.wire()
        wire.send(parse("SELECT pg_sleep(60)") + bind() + execute() + FLUSH)
        eventually(self.sleeps)
        self.connect(35)
        kinds = [wire.read()[0] for _ in range(3)]
        self.assertEqual(kinds, [b"1", b"2", b"E"])
        self.assertFalse(self.readable(wire))
        wire.send(parse("SELECT 1") + SYNC)
        self.assertEqual(wire.rest(), READY)

    def told_in(self, gate, *sent):
        wire = self.enterContext(Wire(gate.address, user="alice", options=self.options()))
        wire.until_ready()
        wire.send(*sent)
        return wire

    def test_a_copy_whose_sync_was_ignored_ends(self):
        for gate in (self.gate, self.enterContext(PgGate(self.server, guard="transaction", extra={"pooled": False}))):
            wire = self.told_in(gate, parse("COPY writes FROM STDIN") + bind() + execute() + SYNC)
            self.assertEqual([wire.read()[0] for _ in range(3)], [b"1", b"2", b"G"])
            self.connect(35, gate).close()
            self.assert_told(wire)
            self.resource += "."

    def test_a_client_that_was_told_and_says_no_more_is_not_kept(self):
        wire = self.told_in(self.gate, parse("COPY writes FROM STDIN") + bind() + execute() + FLUSH)
        self.assertEqual([wire.read()[0] for _ in range(3)], [b"1", b"2", b"G"])
        self.connect(35).close()
        self.assertEqual([kind for kind, _ in split(wire.rest())], [b"E"])

    def test_timeouts_of_the_server_are_told_at_once(self):
        # The gate waits for seconds for the mark of a raise that may have ended a transaction.
        gate = self.enterContext(PgGate(self.server, guard="transaction", extra={"pooled": False}))
        for setting, state in (("idle_session_timeout", "57P05"), ("idle_in_transaction_session_timeout", "25P03")):
            wire = self.told_in(gate, query(f"SET {setting} = 100"))
            wire.until_ready()
            if state == "25P03":
                wire.send(query("BEGIN"))
                wire.until_ready()
            # To a client at rest, which was told nothing before it spoke.
            self.assertEqual([fields(body)["C"] for _, body in split(wire.rest())], [state])

    def test_there_are_places_for_a_quarter_and_the_oldest_goes_first(self):
        with PgGate(self.server, extra={"connections_max": 8}) as gate:
            waiting = []
            for number in range(3):
                waiting.append(self.enterContext(Wire(gate.address, user="alice", options=self.options())))
                waiting[-1].until_ready()
                self.connect(35, gate).close()
                eventually(lambda: gate.metric("connections_waiting") == min(number + 1, 2))
                self.resource += "."
            kinds = [kind for kind, _ in split(waiting[0].rest())]
            self.assertEqual(kinds, [b"E"])
            waiting[1].sock.close()
            eventually(lambda: gate.metric("connections_waiting") == 1)
            gate.terminate()
            self.assertEqual([fields(body)["C"] for _, body in split(waiting[2].rest())], ["ZF001"])
            self.assertEqual(gate.wait(30), 0)

    # ── drivers

    def test_psycopg2(self):
        for block in ("SELECT 1", "BEGIN"):
            client = self.connect(34)
            run_sql(client, block)
            self.supersede()
            with self.assertRaises(psycopg2.Error) as caught:
                run_sql(client, INSERT)
            self.assert_stale(str(caught.exception), caught.exception.pgcode)
            self.resource += "."

    def test_in_flight(self):
        def psycopg_2():
            run_sql(self.connect(34), SLEEP)

        def psycopg_3():
            with psycopg.connect(host=LOOPBACK, port=self.gate.port, user="alice", dbname="postgres", options=self.options(),
                                 autocommit=True) as client:
                client.execute(SLEEP)
        for run in (psycopg_2, psycopg_3):
            said = []

            def told(run=run, said=said):
                try:
                    run()
                except (psycopg2.Error, psycopg.Error) as error:
                    said.append((str(error), getattr(error, "pgcode", None) or error.sqlstate))
            with self.subTest(run.__name__):
                thread = threading.Thread(target=told)
                thread.start()
                eventually(self.sleeps)
                self.connect(35)
                thread.join(PATIENCE)
                self.assert_stale(*said[0])
                self.resource += "."

    def test_psycopg_3(self):
        for block in ("SELECT 1", "BEGIN"):
            client = psycopg.connect(host=LOOPBACK, port=self.gate.port, user="alice", dbname="postgres",
                                     options=self.options(), autocommit=True)
            self.addCleanup(client.close)
            client.execute(block)
            self.supersede()
            with self.assertRaises(psycopg.Error) as caught:
                client.execute(INSERT, prepare=True)
            self.assert_stale(str(caught.exception), caught.exception.sqlstate)
            self.resource += "."

    @unittest.skipUnless(asyncpg, "needs python3-asyncpg")
    def test_asyncpg(self):
        async def superseded(statement, moment):
            client = await asyncpg.connect(host=LOOPBACK, port=self.gate.port, user="alice", database="postgres",
                                           server_settings={"application_name": f"fence:{self.resource}=34"})
            try:
                if moment == "block":
                    await client.execute("BEGIN")
                running = asyncio.ensure_future(statement(client)) if moment == "flight" else None
                if running:
                    while not self.sleeps():
                        await asyncio.sleep(0.01)
                await asyncio.get_running_loop().run_in_executor(None, self.connect, 35)
                with self.assertRaises(asyncpg.PostgresError) as caught:
                    await (running or statement(client))
                self.assert_stale(str(caught.exception), caught.exception.sqlstate)
            finally:
                client.terminate()
        for moment in ("rest", "block", "flight"):
            text = SLEEP if moment == "flight" else INSERT
            for statement in (lambda c, text=text: c.execute(text), lambda c, text=text: c.fetch(text)):
                asyncio.run(superseded(statement, moment))
                self.resource += "."

    def test_psql(self):
        for before, text in (("SELECT 1;", INSERT), ("BEGIN;", INSERT), ("SELECT 1;", SLEEP)):
            child = subprocess.Popen([binary("psql"), "-XqAt", "-v", "VERBOSITY=verbose", "-h", LOOPBACK, "-p", str(self.gate.port), "-U",
                                      "alice", "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, env=os.environ | {"PGOPTIONS": self.options()})
            self.addCleanup(child.kill)
            flight = text == SLEEP
            child.stdin.write(f"{before}\n\\echo ready\n" + (f"{text};\n" if flight else ""))
            child.stdin.flush()
            while child.stdout.readline() != "ready\n":
                pass
            if flight:
                eventually(self.sleeps)
            self.connect(35)
            said = child.communicate("" if flight else f"{text};\n", timeout=PATIENCE)[1]
            self.assertIn("FATAL:  ZF001: ", said)
            self.assert_stale(said)
            self.resource += "."

    def jdbc_url(self):
        return f"jdbc:postgresql://{LOOPBACK}:{self.gate.port}/postgres?user=alice&options=-c%20fencing.tokens%3D{self.resource}%3D34"

    @unittest.skipUnless(compiled.HAS_JDBC, "needs a JDK, libpostgresql-jdbc-java and libhikaricp-java")
    def test_jdbc(self):
        client = self.enterContext(compiled.Jdbc())
        for before, text in (("execute SELECT 1", INSERT), ("begin SELECT 1", INSERT), ("execute SELECT 1", SLEEP)):
            self.assertEqual(client.do("connect", self.jdbc_url()), "ok")
            self.assertEqual(client.do("execute", OWN), "ok")
            self.assertEqual(self.written(), ["own"])
            self.assertEqual(client.do("execute", "DELETE FROM writes"), "ok")
            self.assertEqual(client.do(*before.split(" ", 1)), "ok")
            if text == SLEEP:
                client.start("execute", text)
                eventually(self.sleeps)
                self.connect(35)
            else:
                self.supersede()
                client.start("execute", text)
            said = client.finish()
            self.assert_stale(said, said.split(" ")[0])
            self.resource += "."

    # ── pools

    @unittest.skipUnless(compiled.HAS_JDBC, "needs a JDK, libpostgresql-jdbc-java and libhikaricp-java")
    def test_hikaricp(self):
        client = self.enterContext(compiled.Jdbc())
        self.assertEqual(client.do("pool", self.jdbc_url()), "ok")
        self.assertEqual(client.do("pooled", "SELECT 1"), "ok")
        self.supersede()
        said = [client.do("pooled", INSERT) for _ in range(3)]
        self.assert_stale(said[0], said[0].split(" ")[0])
        # It takes a state of its own list, or class 08, for the end of a connection: the next use may meet what is left of it.
        self.assertIn(said[1].split(" ")[0], ("08006", "ZF001"))
        self.assert_stale(said[2], said[2].split(" ")[0])  # told to the connection that the pool makes in its place

    @unittest.skipUnless(compiled.HAS_PGX, "needs golang-go and golang-github-jackc-pgx-v4-dev")
    def test_pgxpool(self):
        client = self.enterContext(compiled.PgxPool())
        self.assertEqual(client.do("pool", f"postgres://alice@{LOOPBACK}:{self.gate.port}/postgres?pool_max_conns=1"
                                   f"&options=-c%20fencing.tokens%3D{self.resource}%3D34"), "ok")
        self.assertEqual(client.do("pooled", "SELECT 1"), "ok")
        self.supersede()
        for _ in range(2):  # told to the connection that it has, and to the one that it makes in its place
            said = client.do("pooled", INSERT)
            self.assert_stale(said, said.split(" ")[0])

    @unittest.skipUnless(psycopg_pool, "needs python3-psycopg-pool")
    def test_psycopg_pool(self):
        conninfo = f"host={LOOPBACK} port={self.gate.port} user=alice dbname=postgres"
        with psycopg_pool.ConnectionPool(conninfo, min_size=1, max_size=1, kwargs={"application_name": f"fence:{self.resource}=34"},
                                         reconnect_timeout=1) as pool:
            pool.wait(20)
            self.supersede()
            with self.assertRaises(psycopg.Error) as caught, pool.connection() as client:
                client.execute(INSERT)
            self.assert_stale(str(caught.exception), caught.exception.sqlstate)
            with contextlib.suppress(psycopg.OperationalError), pool.connection() as client:  # what is left of it is closed
                client.execute(INSERT)
            eventually(lambda: pool.get_stats().get("returns_bad") == 1)
            self.assertEqual(self.written(), [])
            pool.close(0)

    @unittest.skipUnless(sqlalchemy, "needs python3-sqlalchemy")
    def test_sqlalchemys_pre_ping(self):
        """The pool asks whether its connection is alive, and is told why it is not."""
        engine = sqlalchemy.create_engine(f"postgresql+psycopg2://alice@{LOOPBACK}:{self.gate.port}/postgres", pool_pre_ping=True,
                                          pool_size=1, connect_args={"options": self.options()})
        self.addCleanup(engine.dispose)
        with engine.connect() as client:
            client.execute(sqlalchemy.text("SELECT 1"))
        self.supersede()
        with self.assertRaises(sqlalchemy.exc.DatabaseError) as caught, engine.connect() as client:
            client.execute(sqlalchemy.text(INSERT))
        self.assert_stale(str(caught.exception))


class MendedNames:
    """A tag in a changed application_name that is refused: nothing passes but what mends it."""

    state_of_older = None  # the SQLSTATE of a tag with an older token

    def test_it_is_mended(self):
        for bad, state in (("034", "ZF003"), ("33", self.state_of_older)):
            for mend in ("SET application_name = 'job'", "RESET application_name", "RESET ALL", "DISCARD ALL"):
                client = self.connect(34)
                run_sql(client, f"SET application_name = 'fence:{self.resource}={bad}'")
                for _ in range(2):
                    self.rejected(state, self.write, client, "stale")
                    self.rejected(state, run_sql, client, f"{mend}; INSERT INTO writes (who) VALUES ('stale')")
                run_sql(client, mend)
                self.write(client, mend)
                self.assertEqual(self.written()[-1], mend)
                client.close()
        self.assertNotIn("stale", self.written())

    def test_it_is_mended_by_extended_messages(self):
        wire = self.enterContext(Wire(self.gate.address, user="alice", options=f"-c fencing.tokens={self.resource}=34"))
        wire.until_ready()

        def errors(*said):
            wire.send(*said, SYNC)
            return [fields(body)["C"] for kind, body in wire.until_ready() if kind == b"E"]

        def statement(sql, name=""):
            return parse(sql, name) + bind(statement=name) + execute()
        for name in ("", "mends"):
            self.assertEqual(errors(statement(f"SET application_name = 'fence:{self.resource}=034'")), [])
            self.assertEqual(errors(statement("INSERT INTO writes VALUES ('stale')")), ["ZF003"])
            self.assertEqual(errors(statement("RESET application_name", name)), [])
            self.assertEqual(errors(statement("INSERT INTO writes VALUES ('mended')")), [])
        self.assertEqual(self.written(), ["mended"] * 2)

    def test_in_a_block(self):
        client = self.connect(34, autocommit=False)
        self.write(client, "rolled back")
        run_sql(client, f"SET application_name = 'fence:{self.resource}=034'")
        self.rejected("ZF003", self.write, client, "stale")
        client.rollback()
        self.write(client, "kept")
        client.commit()
        self.assertEqual(self.written(), ["kept"])


class RefusedNames(MendedNames, PgGateTest):
    gate_options = {"policy": {"missing_token": "allow"}}
    state_of_older = "ZF001"

    def test_behind_a_pooler_the_next_client_is_not_hit(self):
        """It may get the same connection to the gate."""
        for mode in ("session", "transaction"):
            pooler = self.start(PgBouncer(self.gate, user="alice", default_pool_size=1, pool_mode=mode))

            def client(name, pooler=pooler):
                connection = psycopg2.connect(host=LOOPBACK, port=pooler.port, user="alice", dbname="postgres",
                                              application_name=name)
                self.addCleanup(connection.close)
                connection.autocommit = True
                return connection
            first = client("first")
            run_sql(first, f"SET application_name = 'fence:{self.resource}=034'")
            with contextlib.suppress(psycopg2.Error):
                self.write(first, "stale")
            first.close()
            second = client(f"fence:{self.resource}=35")
            self.write(second, mode)
            self.assertEqual(self.mark(), 35)
        self.assertEqual(self.written(), ["session", "transaction"])


class GuardedNames(MendedNames, PgGateTest):
    gate_options = {"guard": "transaction", "extra": {"pooled": False}}
    state_of_older = "ZF003"  # there no changed name is taken for a tag


class Crash(LiveTest):
    """Clients in the middle of a statement are told before the server is up again, or ever."""

    def told(self, crash):
        """What clients of either guard hear; `crash` gets the server and the process of one."""
        server = self.start(PostgresServer())
        server.install()
        server.user("alice")
        flights = []
        for guard in ("session", "transaction"):
            gate = self.start(PgGate(server, guard=guard))
            for name in ("first", "second"):
                flight = self.start(Wire(gate.address, user="alice", options=f"-c fencing.tokens={name}=1"))
                flight.until_ready()
                flight.send(query(f"SELECT pg_sleep(60) AS {guard}_{name}"))
                flights.append(flight)
        sleeping = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        eventually(lambda: server.value(f"SELECT count(*) {sleeping}") == len(flights))
        crash(server, server.value(f"SELECT min(pid) {sleeping}"))
        for flight in flights:
            flight.sock.settimeout(PATIENCE)
        return [fields(body)["C"] for flight in flights for kind, body in split(flight.rest()) if kind == b"E"]

    def test_the_server_has_gone(self):
        self.assertEqual(len(self.told(lambda server, _: server.kill())), 4)

    def test_a_process_was_killed(self):
        self.assertEqual(self.told(lambda _, pid: os.kill(pid, signal.SIGKILL)), ["08006"] * 4)


if __name__ == "__main__":
    main(at_once=2)
