"""tag_from: listen: every connection of a listener is bound to the listener's tag, whatever its client does."""

import os
import sys

import psycopg2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))

from gate_process import Gate  # noqa: E402
from http_gate import HttpGate, Upstream  # noqa: E402
from live_test import LiveTest, main  # noqa: E402
from node_client import ClientError, NodeClient, install_packages  # noqa: E402
from postgres import PgGate, PostgresServer, run_sql  # noqa: E402
from processes import LOOPBACK, eventually  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from resp import Resp  # noqa: E402

setUpModule = install_packages

KEYS = {"tag_from": "listen", "tag": "orders=${FENCING_TOKEN}"}
MARK = "fencegate:mark:{orders}"


class OfRedis(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())
        os.environ["FENCING_TOKEN"] = "34"
        self.addCleanup(os.environ.pop, "FENCING_TOKEN", None)

    def gate(self, **keys):
        return self.start(Gate(self.redis, extra=KEYS, **keys))

    def test_a_connection_is_bound_when_it_is_accepted(self):
        gate = self.gate()
        client = self.start(Resp(gate.address))
        eventually(lambda: self.redis.cli.call("GET", MARK) == b"34")
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(client.call("FENCE", "GET"), [b"orders", b"34"])

    def test_neither_names_nor_resets_unbind_it(self):
        client = self.start(Resp(self.gate().address))
        for command in (("CLIENT", "SETNAME", "bull:worker"), ("RESET",), ("FENCE", "CLEAR"), ("HELLO", "3", "SETNAME", "x")):
            client.call(*command)
            self.assertEqual(client.call("FENCE", "GET"), [b"orders", b"34"], command)
            self.assertEqual(client.call("SET", "k", "v"), b"OK", command)
        self.redis.cli.call("SET", MARK, "35")
        self.assert_error(client.call("SET", "k", "stale"), "FENCED")

    def test_another_tag_is_refused_and_the_same_taken(self):
        gate = self.gate()
        for command in (("CLIENT", "SETNAME", "fence:orders=35"), ("FENCE", "SET", "orders", "35"), ("FENCE", "SET", "stock", "34"),
                        ("HELLO", "2", "SETNAME", "fence:stock=1")):
            client = self.start(Resp(gate.address))
            self.assert_error(client.call(*command), "FENCEBAD")
            self.assert_error(client.call("SET", "k", "v"), "FENCEBAD")
            self.assertEqual(client.call("FENCE", "CLEAR"), b"OK")
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
        client = self.start(Resp(gate.address))
        self.assert_error(client.call("FENCE", "CALL", "orders", "35", "SET", "k", "x"), "FENCEBAD")
        self.assertEqual(client.call("CLIENT", "SETNAME", "fence:orders=34"), b"OK")
        self.assertEqual(client.call("FENCE", "SET", "orders", "34"), b"OK")
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(self.redis.cli.call("GET", MARK), b"34")

    def test_a_stale_tag_is_told_with_each_write(self):
        self.redis.cli.call("SET", MARK, "35")
        client = self.start(Resp(self.gate().address))
        self.assert_error(client.call("SET", "k", "v"), "FENCED")
        self.assertEqual(client.call("GET", "k"), None)

    def test_a_tag_that_is_none_is_not_served(self):
        for token in ("", "3x", None):
            with self.subTest(token=token):
                os.environ.pop("FENCING_TOKEN", None)
                if token is not None:
                    os.environ["FENCING_TOKEN"] = token
                gate = Gate(self.redis, extra=KEYS)
                gate.needs_backend = False
                with self.assertRaises(RuntimeError) as failed:
                    gate.__enter__()
                self.assertIn("status 2", str(failed.exception))

    def test_a_client_that_overwrites_its_name(self):
        gate = self.gate()
        worker = self.start(NodeClient("renaming.mjs", gate.address, "", 2))
        self.assertEqual(worker.do("work"), [["jobs:wait", "first"], "OK"])
        self.redis.cli.call("SET", MARK, "35")
        with self.assertRaisesRegex(ClientError, "FENCED"):
            worker.do("work")


    def test_bullmq(self):
        """Its own names are no tags. A worker that is superseded takes no job any more, and its queue adds none."""
        old = self.start(NodeClient("bullmq.mjs", self.gate().address, "old", 2))
        old.do("start")
        self.assertEqual(old.do("add", "one", "two", "fails once"), 3)
        old.do("addLater", "later")
        self.assertEqual(old.do("done", 4), sorted(f"old: {job}" for job in ("one", "two", "fails once", "later")))
        self.assertEqual(old.do("counts"), {"completed": 4, "failed": 0, "wait": 0, "active": 0, "delayed": 0})
        self.assertEqual(old.do("names"), 1)
        self.assertIn("name=bull:", self.redis.cli.call("CLIENT", "LIST").decode())
        self.assertEqual(self.redis.cli.call("GET", MARK), b"34")

        os.environ["FENCING_TOKEN"] = "35"
        new = self.start(NodeClient("bullmq.mjs", self.gate().address, "new", 2))
        eventually(lambda: self.redis.cli.call("GET", MARK) == b"35")
        self.assertEqual(new.do("add", "three", "four"), 2)
        self.assertIn("FENCED token 34 of orders is below mark 35", old.do("failed", "FENCED"))
        self.assertEqual(new.do("counts")["wait"], 2)
        with self.assertRaisesRegex(ClientError, "FENCED"):
            old.do("add", "five")
        new.do("start")
        self.assertEqual(new.do("done", 2), ["new: four", "new: three"])
        self.assertEqual(new.do("counts"), {"completed": 6, "failed": 0, "wait": 0, "active": 0, "delayed": 0})
        new.do("stop")


class OfPostgres(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.sql("CREATE TABLE writes (who text)")
        cls.server.sql("CREATE ROLE app LOGIN")  # a superuser's session cannot be armed
        cls.server.sql("GRANT INSERT ON writes TO app")

    def gate(self, token, **keys):
        return self.start(PgGate(self.server, extra={"tag_from": "listen", "tag": f"jobs=1,orders={token}"}, **keys))

    def connect(self, gate, tag=None, **more):
        connection = gate.connect(tag, user="app", **more)
        self.addCleanup(connection.close)
        return connection

    def mark(self):
        return self.server.value("SELECT mark FROM fencegate.marks WHERE resource = 'orders'")

    def test_each_session_is_armed_for_it(self):
        for number, guard in enumerate(("session", "transaction")):
            with self.subTest(guard=guard):
                token = 91 + 10 * number
                gate = self.gate(token, guard=guard)
                connection = self.connect(gate)
                run_sql(connection, "INSERT INTO writes VALUES (%s)", guard)
                self.assertEqual(self.mark(), token)
                same = self.connect(gate, f"orders={token}")
                run_sql(same, "INSERT INTO writes VALUES (%s)", guard)
                with self.assertRaisesRegex(psycopg2.OperationalError, "tag_from: listen"):
                    self.connect(gate, f"orders={token + 1}")
                with self.assertRaisesRegex(psycopg2.OperationalError, "tag_from: listen"):
                    self.connect(gate, application_name=f"fence:stock={token}")
                self.assertEqual(self.mark(), token)

    def test_a_name_that_comes_later_is_refused(self):
        gate = self.gate(60)
        connection = self.connect(gate)
        run_sql(connection, "SET application_name = 'celery'")
        run_sql(connection, "INSERT INTO writes VALUES ('named')")
        run_sql(connection, "SET application_name = 'fence:orders=61'")
        with self.assertRaises(psycopg2.Error):
            run_sql(connection, "INSERT INTO writes VALUES ('other')")
        self.assertEqual(self.mark(), 60)

    def test_a_stale_one_is_told_when_it_connects(self):
        self.connect(self.gate(81))
        with self.assertRaisesRegex(psycopg2.OperationalError, "is below mark"):
            self.connect(self.gate(80))


class OfHttp(LiveTest):
    def test_each_request_carries_it(self):
        redis, upstream = self.start(RedisServer()), self.start(Upstream())
        routes = [{"match": "PUT /kv/{key}", "resource": "kv", "redis": ["SET", "{key}", "{body}"]},
                  {"match": "PUT /orders/{id}", "resource": "orders"},
                  {"match": "PUT /other/{id}", "resource": "other"}]
        gate = self.start(HttpGate(upstream, {"marks": f"redis://{LOOPBACK}:{redis.port}"}, routes,
                                   extra={"tag_from": "listen", "tag": "kv=34,orders=7"}))

        def status(*request, **more):
            return gate.request(*request, **more)[0]
        self.assertEqual(status("PUT", "/kv/a", "v"), 200)
        self.assertEqual(status("PUT", "/kv/a", "v", token=34), 200)
        self.assertEqual(status("PUT", "/kv/a", "v", token="kv=34"), 200)
        self.assertEqual(status("PUT", "/kv/a", "v", token=35), 400)
        self.assertEqual(status("PUT", "/kv/a", "v", token="kv=34, stock=1"), 400)
        self.assertEqual(status("PUT", "/.fencegate/marks/kv", token=35), 400)
        self.assertEqual(status("PUT", "/other/a", "v"), 428)
        self.assertEqual(redis.cli.call("GET", "fencegate:mark:{kv}"), b"34")
        self.assertEqual(status("PUT", "/orders/1", "v"), 200)
        self.assertEqual(upstream.seen("PUT")[-1][2]["Fencing-Token"], "kv=34,orders=7")
        redis.cli.call("SET", "fencegate:mark:{kv}", "35")
        self.assertEqual(status("PUT", "/kv/a", "v"), 412)


if __name__ == "__main__":
    main()
