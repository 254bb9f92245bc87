"""guard: transaction: a function call (large objects of libpq and JDBC) never runs without its guard; and the gate's own block
is left, whatever hits its ROLLBACK."""

import struct
import time
import unittest

from cut_proxy import CutProxy
from guard.scripts import SCHEMA
from live_test import LiveTest
from pg_wire import Wire, fields, function_call, query
from postgres import PgGate, PostgresServer

STATEMENT_TIMEOUT_MS = 1000


class Holds(CutProxy):
    """The next `armed` times: stops between Bind and Execute of this command of the gate's, until `statement_timeout` is over. The
    server says so when it has got the rest."""

    unix = False

    def __init__(self, server, command):
        super().__init__(server.port)
        self.server, self.armed, self.stopped = server, 0, 0
        self.parsed = command + b"\0\0\0"

    def relay(self, pair, sink, data):
        at = data.find(self.parsed) if self.armed and sink is pair[1] else -1
        if at >= 0:
            bind = at + len(self.parsed)
            self.armed -= 1
            end = bind + 1 + struct.unpack("!i", data[bind + 1:bind + 5])[0]
            sink.sendall(data[:end])
            time.sleep(2 * STATEMENT_TIMEOUT_MS / 1000)
            self.stopped += 1
            data = data[end:]
        sink.sendall(data)


class Calls(LiveTest):
    def test_one_whose_block_could_not_be_begun_is_not_run(self):
        server = self.start(PostgresServer(fsync="on", track_commit_timestamp="on"))
        server.user("writer")
        server.install(gate_users=["writer"])
        server.sql(SCHEMA)
        function = server.value("SELECT 'app.ff'::regproc::oid::int")
        for pooled in (False, True):
            with self.subTest(pooled=pooled):
                proxy = self.start(Holds(server, b"BEGIN"))
                gate = self.start(PgGate(proxy, guard="transaction", user="writer", extra={"pooled": pooled}))
                resource = f"R{pooled}"
                wire = self.start(Wire(gate.address, user="writer",
                                       options=f"-c fencing.tokens={resource}=1 -c statement_timeout={STATEMENT_TIMEOUT_MS}"))
                wire.until_ready()

                def call(number):
                    wire.send(function_call(function, struct.pack("!q", number), resource.encode(), binary=True))
                    return [fields(body)["C"] if kind == b"E" else kind.decode() for kind, body in wire.until_ready()]
                self.assertEqual(call(1), ["V", "Z"])
                proxy.armed = 1
                self.assertEqual(call(2), ["57014", "Z"])
                self.assertEqual(proxy.stopped, 1)
                self.assertEqual(server.sql("SELECT id FROM app.w"), [(1,)])
                server.sql("TRUNCATE app.w")

    def test_a_block_whose_rollback_was_cancelled_is_left(self):
        server = self.start(PostgresServer())
        server.user("writer")
        server.install(gate_users=["writer"])
        proxy = self.start(Holds(server, b"ROLLBACK"))
        gate = self.start(PgGate(proxy, guard="transaction", user="writer", extra={"pooled": False}))
        wire = self.start(Wire(gate.address, user="writer",
                               options=f"-c fencing.tokens=R=1 -c statement_timeout={STATEMENT_TIMEOUT_MS}"))
        wire.until_ready()
        proxy.armed = 2
        wire.send(query("DO $$BEGIN RAISE division_by_zero; END$$"))
        replies = [fields(body)["C"] if kind == b"E" else body for kind, body in wire.until_ready()]
        self.assertEqual((replies, proxy.stopped), (["22012", b"I"], 2))
        wire.send(query("SELECT 1"))
        self.assertEqual([kind for kind, _ in wire.until_ready()], [b"T", b"D", b"C", b"Z"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
