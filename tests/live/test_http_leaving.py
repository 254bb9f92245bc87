"""Clients of an HTTP gate that leave before the answer: what is given up, what is waited for, and what that keeps from others."""

import socket
import struct
import subprocess
import threading

from http_gate import HttpGate, start_services
from http_raw import Client, RawUpstream
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually

ROUTES = [{"match": "PUT /orders/{id}", "resource": "order:{id}"},
          {"match": "PUT /checked/{id}", "resource": "checked:{id}", "store": "cache"},
          {"match": "PUT /slow/{id}", "resource": "slow:{id}", "params": ["{id}"],
           "sql": "insert into slow select $1 from pg_sleep(1)"}]


class Leaving(LiveTest):
    @classmethod
    def setUpClass(cls):
        start_services(cls)
        cls.server.sql("CREATE TABLE slow (id text)")
        cls.server.sql("GRANT ALL ON slow TO gate")

    def gate(self, upstream, pool=10, **extra):
        urls = {"ledger": f"postgres://gate@{LOOPBACK}:{self.server.port}/postgres",
                "cache": f"redis://{LOOPBACK}:{self.redis.port}"}
        stores = {name: {"url": url} for name, url in urls.items()}
        stores["ledger"]["pool"] = pool
        return self.enterContext(HttpGate(upstream, urls, ROUTES, extra=extra, process={"stores": stores}))

    @staticmethod
    def leave(client, how):
        if how == "reset":
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sock.close()

    @staticmethod
    def ask(gate, line, token=None, **fields):
        client = Client(gate.address)
        fields = {name.replace("_", "-"): value for name, value in fields.items()}
        if token is not None:
            fields |= {"Fencing-Token": token, "Content-Length": 3}
        client.ask(line, fields, b"" if token is None else b"abc")
        return client

    def left(self, gate, outcome):
        return gate.metric("clients_left_total", outcome=outcome)

    def test_the_service_hears_of_it_where_nothing_is_held(self):
        heard, seen = [], []

        def serve(reader, number):
            while (message := reader.head()) is not None:
                reader.body(message)
                seen.append(number)
            heard.append(number)

        gate = self.gate(self.enterContext(RawUpstream(serve)))
        for how in ("reset", "close"):
            for line, token in (("GET /orders/7", None), ("PUT /checked/7", 34), ("GET /elsewhere", None)):
                with self.subTest(how=how, line=line):
                    before = len(seen), len(heard), self.left(gate, "given_up")
                    client = self.ask(gate, line, token)
                    eventually(lambda before=before: len(seen) > before[0])
                    self.leave(client, how)
                    eventually(lambda before=before: len(heard) > before[1])
                    eventually(lambda before=before: self.left(gate, "given_up") == before[2] + 1)
        eventually(lambda: gate.metric("connections") == 0)
        self.assertEqual(len(seen), 6)  # nothing was sent twice

    def test_a_client_that_only_sends_no_more_gets_its_answer(self):
        gate = self.gate(self.upstream)
        for line, token in (("GET /orders/half", None), ("PUT /orders/half", 34)):
            go = self.upstream.event(line)
            with self.ask(gate, line, token, X_Sleep_Until=line) as client:
                client.end()
                asked = client.reader.head()
                self.assertEqual(asked.status, 100)  # whether it still reads, only bytes can show
                go.set()
                self.assertEqual(client.answer().status, 200)
        self.assertEqual(self.left(gate, "given_up") + self.left(gate, "awaited"), 0)

    def test_what_a_store_was_asked_to_carry_out_is_carried_out(self):
        gate = self.gate(self.upstream)
        client = self.ask(gate, "PUT /slow/7", 34)
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'insert into slow%' "
                                           "AND state = 'active'"))
        self.leave(client, "reset")
        eventually(lambda: self.server.value("SELECT count(*) FROM slow") == 1)

    def test_those_who_have_left_keep_no_hold_from_others(self):
        gate, go = self.gate(self.upstream), self.upstream.event("service")
        before = len(self.upstream.seen("PUT"))
        curls = [subprocess.Popen(["curl", "-s", "-m", "0.5", "-X", "PUT", "-d", "abc", "-H", "Fencing-Token: 34",
                                   "-H", "X-Sleep-Until: service", f"http://{LOOPBACK}:{gate.port}/orders/left-{number}"])
                 for number in range(12)]
        self.addCleanup(go.set)
        self.assertEqual({curl.wait(PATIENCE) for curl in curls}, {28})  # the time was over
        eventually(lambda: self.left(gate, "awaited") >= 8)

        def all_beside():
            taken = len(self.upstream.seen("PUT")) - before
            return gate.metric("store_connections", store="ledger", state="beside") == taken and taken

        taken = eventually(all_beside)
        # The others' way is free, and each hold stands.
        self.assertEqual(gate.request("PUT", "/orders/other", b"x", token=1)[0], 200)
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock'"
        self.assertGreaterEqual(self.server.value(held), taken)
        newer = threading.Thread(target=gate.request, args=("PUT", "/orders/left-0", b"new", 35))
        newer.start()
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        self.assertEqual(self.server.value("SELECT mark FROM fencegate.marks WHERE resource = 'order:left-0'"), 34)
        go.set()
        newer.join()
        eventually(lambda: gate.metric("store_connections", store="ledger", state="beside") == 0)
        eventually(lambda: not self.server.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"))
        eventually(lambda: gate.metric("connections") == 0)

    def test_there_are_as_many_beside_a_pool_as_in_it(self):
        gate, go = self.gate(self.upstream, pool=2, answer_timeout="1s", hold_grace="300ms"), self.upstream.event("many")
        self.addCleanup(go.set)
        for number in range(3):
            client = self.ask(gate, f"PUT /orders/many-{number}", 34, X_Sleep_Until="many")
            path = f"/orders/many-{number}"
            eventually(lambda path=path: any(one[1] == path for one in self.upstream.seen("PUT")))
            self.leave(client, "reset")
            eventually(lambda number=number: self.left(gate, "awaited") == number + 1)
        self.assertEqual(gate.metric("store_connections", store="ledger", state="beside"), 2)
        self.assertEqual(gate.request("PUT", "/orders/other", b"x", token=1)[0], 503)  # the third counts
        go.set()
        eventually(lambda: gate.request("PUT", "/orders/other", b"x", token=1)[0] == 200)
        eventually(lambda: gate.metric("store_connections", store="ledger", state="beside") == 0)
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'gate'") <= 2)


if __name__ == "__main__":
    main()
