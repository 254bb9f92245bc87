"""guard: transaction in mode: monitor shows what enforcing would refuse, and changes nothing."""

import re
import unittest
from pathlib import Path

from live_test import LiveTest
from pg_wire import SYNC, Wire, bind, execute, extended, fields, function_call, parse, query
from postgres import PgGate, PostgresServer

PAGE = Path(__file__).parents[2] / "docs/postgresql.md"
PG_BACKEND_PID = 2026  # pg_proc.oid


def bound(name="", portal=""):
    return bind(statement=name, portal=portal) + execute(portal) + SYNC


# By the beginnings of the page's list. Each is a conversation: what is sent up to one ReadyForQuery after the other.
# `True`: it is refused behind a pooler only.
REFUSED = {
    "`PREPARE TRANSACTION`; behind": [
        ([query("PREPARE TRANSACTION 'x'")], False),
        ([query("SELECT 1; PREPARE TRANSACTION 'x'; PREPARE TRANSACTION 'y'")], False),
        ([extended("PREPARE TRANSACTION 'x'") + SYNC], False),
        ([query("PREPARE s AS SELECT 1")], True)],
    "`COMMIT AND CHAIN`, `ROLLBACK TO`, `SAVEPOINT`, `RELEASE`": [
        ([query("BEGIN"), parse(sql, "s") + SYNC, query("ROLLBACK")], False)
        for sql in ("COMMIT AND CHAIN", "ROLLBACK TO a", "SAVEPOINT a", "RELEASE a")] + [
        ([parse("COMMIT PREPARED 'x'", "s") + SYNC], False)],
    "a `Bind` of a name": [
        ([bound("s")], False),
        ([parse("SELECT 1", "s") + SYNC, bound("s")], True),
        ([parse("SELECT 1", "s") + SYNC, query("BEGIN"), bound("s"), query("ROLLBACK")], True)],
    "`COMMIT AND CHAIN`, `SAVEPOINT`, `EXECUTE` and the like behind": [
        ([extended("CALL nothing()") + extended("SAVEPOINT a") + SYNC], False),
        ([query("DO 'BEGIN END'; EXECUTE s")], False)],
    "`CALL`, `DO` and function calls behind": [
        ([query("BEGIN"), extended("COMMIT AND CHAIN") + extended("DO 'BEGIN END'") + SYNC, query("ROLLBACK")], False),
        ([query("BEGIN"), extended("COMMIT AND CHAIN") + function_call(PG_BACKEND_PID), query("ROLLBACK")], False)],
    "several statements in one message that change": [
        ([query("SET standard_conforming_strings = off; SELECT '\\\\'")], False),
        ([query("SET client_encoding = UTF8; SELECT 'é'")], False)],
    "several statements in one message that is larger": [
        ([query("SELECT 1; SELECT 2 /*" + 17 * 1024 * 1024 * "x" + "*/")], False)],
    "names of prepared statements": [
        ([parse("SELECT 1", "_fencegate") + SYNC], False),
        ([parse("SELECT 1") + bound(portal="_fencegate_1")], False)],
}
PASSES = [
    [query("BEGIN"), query("SAVEPOINT a"), query("DO 'BEGIN END'"), query("ROLLBACK TO a"), query("COMMIT AND CHAIN"), query("COMMIT")],
    [query("BEGIN; SELECT 1; SAVEPOINT a; COMMIT")],
    [query("BEGIN"), parse("SELECT 1", "s") + SYNC, bound("s"), query("COMMIT")],
    [query("SELECT '\\'"), query("SET standard_conforming_strings = off")],
    [extended("SELECT 1/0") + SYNC, query("SELECT 1")],
]


class Monitored(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.user("alice")
        cls.server.install(gate_users=["alice"])
        cls.server.sql("CREATE PROCEDURE nothing() LANGUAGE plpgsql AS 'BEGIN END'")

    def setUp(self):
        self.gates = {(mode, pooled): self.start(PgGate(self.server, guard="transaction", user="alice", policy={"mode": mode},
                                                        extra={"pooled": pooled}))
                      for mode in ("enforce", "monitor") for pooled in (True, False)}

    def converse(self, address, said):
        """What the server says, without what differs from one session to the next."""
        with Wire(address, user="alice", options="-c fencing.tokens=monitored=34") as wire:
            wire.until_ready()
            heard = []
            for messages in said:
                wire.send(messages)
                heard += wire.until_ready()
        return [(kind, fields(body)["C"] if kind == b"E" else b"" if kind in b"DNV" else body) for kind, body in heard]

    def judge(self, said, pooled, refused):
        directly = self.converse(self.server.address, said)
        for mode in ("enforce", "monitor"):
            gate = self.gates[mode, pooled]
            before = gate.metric("checks_total", outcome="refused")
            heard = self.converse(gate.address, said)
            with self.subTest(said=[message[:80] for message in said], pooled=pooled, mode=mode):
                self.assertEqual(gate.metric("checks_total", outcome="refused") - before, refused)
                if mode == "monitor":
                    self.assertEqual(heard, directly)
                elif refused:
                    self.assertIn((b"E", "ZF007"), heard)

    def test_what_the_page_lists_is_counted_and_passes(self):
        listed = PAGE.read_text().partition("Refused (ZF007):\n\n")[2].partition("\n\n")[0]
        rows = re.findall(r"^- (.*)", listed, re.M)
        self.assertEqual(len(rows), len(REFUSED))
        for beginning, conversations in REFUSED.items():
            self.assertEqual(len([row for row in rows if row.startswith(beginning)]), 1, beginning)
            for said, pooled_only in conversations:
                for pooled in (True, False):
                    self.judge(said, pooled, 1 if pooled or not pooled_only else 0)

    def test_nothing_else_is_counted(self):
        for said in PASSES:
            for pooled in (True, False):
                self.judge(said, pooled, 0)

    def test_the_log_names_resource_and_token(self):
        self.judge(REFUSED["a `Bind` of a name"][0][0], True, 1)
        logged = [line for line in self.gates["monitor", True].log_lines() if line.get("reason") == "refused"]
        self.assertEqual([(line["msg"], line["resource"], line["token"]) for line in logged],
                         [("write would be rejected", "monitored", 34)])
        self.assertIn("behind a pooler a prepared statement is known", logged[0]["detail"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
