"""node-postgres and postgres.js live with the fence: a stale token and a superseded session are ordinary errors."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))

from live_test import main  # noqa: E402
from node_client import NodeClient, install_packages  # noqa: E402
from processes import eventually  # noqa: E402
from test_pg_gate import PgGateTest  # noqa: E402

setUpModule = install_packages


class Story:
    """Subclasses name the script, and say how a client learns that it was superseded."""

    script = None

    def node(self, token=34, way="options", gate=None):
        return self.enterContext(NodeClient(self.script, (gate or self.gate).port, f"{self.resource}={token}", way))

    def ready(self, **how):
        client = self.node(**how)
        self.assertEqual(client.do("connect"), "connected")
        return client

    def assert_stale(self, said):
        self.assertIn(f"ZF001 token 34 of {self.resource} is below mark 35", said)

    def test_statements(self):
        client = self.ready()
        self.assertEqual(client.do("statements")[:4], [[{"a": 1}], [{"a": 42}], [{"a": "x"}], [{"a": "y"}]])
        *_, zero, bad, many = client.do("statements")
        self.assertEqual((zero, bad[:5], many), ("22012 division by zero", "22P02", 200))
        self.assertEqual(client.do("transaction"), ["kept"])
        self.assertEqual(client.do("listen"), "hello")
        self.assertEqual(client.do("pooled"), sum(range(30)))
        self.assertEqual(self.mark(), 34)

    def test_the_tag_in_application_name(self):
        self.ready(way="application_name")
        self.assertEqual(self.mark(), 34)

    def test_a_stale_token_is_refused(self):
        self.connect(35)
        for way in ("options", "application_name"):
            self.assert_stale(self.node(way=way).do("refused"))

    def test_superseded_in_a_transaction(self):
        client = self.ready()
        client.do("begin")
        self.connect(35)
        eventually(lambda: self.sessions() == 1)
        self.assert_stale(self.failure(client.do("commit")))
        self.assertEqual(self.written(), [])

    def test_superseded_in_a_statement(self):
        client = self.ready()
        client.start("sleep")
        eventually(lambda: self.server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1)
        self.connect(35)
        self.assert_stale(self.failure(client.finish()))
        self.assertEqual(self.written(), [])

    def failure(self, said):
        """The text of an error; what succeeds is no text."""
        self.assertIsInstance(said, str, "it has succeeded")
        return said

    def sessions(self):
        return self.server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'alice'")


class NodePostgres(Story, PgGateTest):
    script = "node_postgres.mjs"

    def test_superseded_while_idle_nothing_later_is_written(self):
        client = self.ready()
        self.connect(35)
        eventually(lambda: self.sessions() == 1)
        self.assert_stale(client.do("write"))
        # The statement got the error; that the connection ends behind it, the client says too.
        self.assertLessEqual(set(client.do("seen")), {" Connection terminated unexpectedly"})
        self.assert_stale(client.do("poolFails"))
        self.failure(client.do("write"))
        self.assertEqual(self.written(), [])


class PostgresJs(Story, PgGateTest):
    script = "postgres_js.mjs"

    def test_superseded_while_idle_nothing_later_is_written(self):
        client = self.ready()
        self.connect(35)
        eventually(lambda: self.sessions() == 1)
        before = self.gate.metric("checks_total", outcome="stale")
        client.start("write")
        told = []

        def connects_again():
            if client.answered():
                told.append(self.failure(client.finish()))
                client.start("write")
            return self.gate.metric("checks_total", outcome="stale") > before
        eventually(connects_again)  # and its caller may wait for ever
        if told:  # the first met the end of the old connection; a later one, perhaps, a socket that was about to close
            self.assert_stale(told[0])
        self.assertEqual(self.written(), [])


if __name__ == "__main__":
    main()
