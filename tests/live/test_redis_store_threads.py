"""An HTTP gate's threads have a connection to Redis each, which may be down, or lead to another server, alone."""

import threading

from cut_proxy import CutProxy, unread_bytes
from http_gate import HttpGate, Upstream
from http_raw import Client
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, eventually, free_port
from redis_server import RedisServer

ROUTES = [{"match": "PUT /checked/{id}", "resource": "order:{id}"},
          {"match": "PUT /kv/{id}", "resource": "order:{id}", "redis": ["SET", "{id}", "{body}"]}]


def mark(number):
    return f"fencegate:mark:{{order:{number}}}"


class Door(CutProxy):
    """One connection can be cut alone. What comes behind it goes where `target_port` says by then; while it is held, what
    clients say there does not get on."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self.held = threading.Event()  # a piece waits
        self.open = threading.Event()
        self.open.set()

    def cut_one(self):
        with self._lock:
            pair = next(iter(self._pairs))
        self._cut(pair)

    def _pump(self, pair, source, sink):
        if source is pair[0] and not self.open.is_set():
            self.held.set()
            self.open.wait()
        super()._pump(pair, source, sink)


class Threads(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer(repl_diskless_sync_delay=0))
        self.replica = self.start(RedisServer())
        # Its first replica makes a primary begin a new history, which gates would notice.
        self.replica.cli.call("REPLICAOF", LOOPBACK, self.redis.port)
        eventually(lambda: self.replica.info("replication")["master_link_status"] == "up")
        self.door = self.start(Door(self.redis.port))
        upstream = self.start(Upstream())
        self.gate = self.start(HttpGate(upstream, {"cache": f"redis://{LOOPBACK}:{self.door.port}"}, ROUTES))
        self.clients = [self.start(Client(self.gate.address)) for _ in range(4)]  # two to each thread
        self.assertEqual(self.put(5), [200] * 4)

    def put(self, token, route="checked"):
        """What each client was answered."""
        return [self.put_one(number, token, route) for number in range(len(self.clients))]

    def put_one(self, number, token, route="checked"):
        """Each client has a resource of its own: what is seen of one says nothing of the others."""
        client = self.clients[number]
        client.ask(f"PUT /{route}/{number}", {"Fencing-Token": token, "Content-Length": 1}, b"x")
        return client.answer().status

    def inspected(self, server, times):
        """Beyond what the test asks itself."""
        before, asked = server.calls("info"), 0

        def more():
            nonlocal asked
            asked += 1
            return server.calls("info") - before - asked >= times
        eventually(more)

    def replica_left_behind(self):
        """It has what the primary had, and hears no more of it."""
        eventually(lambda: all(self.replica.cli.call("GET", mark(one)) == b"5" for one in range(4)))
        self.replica.cli.call("REPLICAOF", LOOPBACK, free_port())
        for one in range(4):
            self.redis.cli.call("SET", mark(one), 6)
        return self.replica

    def test_a_connection_to_a_replica_proves_nothing_before_it_was_inspected(self):
        # thread 1   connects to a replica                      asks for marks there
        # thread 2                           inspects: ready
        self.door.target_port = self.replica_left_behind().port
        self.door.open.clear()
        self.door.cut_one()
        self.assertTrue(self.door.held.wait(PATIENCE))
        greeting = eventually(lambda: unread_bytes(self.door.port))  # sent in one piece
        self.inspected(self.redis, 2)
        answers = []
        asking = [threading.Thread(target=lambda one=one: answers.append(self.put_one(one, 5))) for one in range(4)]
        for one in asking:
            one.start()
        eventually(lambda: len(answers) == 4 or unread_bytes(self.door.port) > greeting)
        self.door.open.set()
        for one in asking:
            one.join()
        self.assertEqual(sorted(answers), [412, 412, 503, 503])

    def test_a_connection_to_a_replica_is_not_that_of_the_other_thread(self):
        replica = self.replica_left_behind()
        self.door.target_port = replica.port
        self.door.cut_one()
        self.inspected(replica, 4)
        for token, route, good in ((5, "checked", 412), (6, "checked", 200), (6, "kv", 200)):
            for _ in range(50):
                self.assertEqual(sorted(self.put(token, route)), [good] * 2 + [503] * 2, (token, route))

    def test_a_connection_that_cannot_be_made_is_not_that_of_the_other_thread(self):
        self.door.refuse = True
        self.door.cut_one()
        eventually(lambda: sorted(self.put(5)) == [200, 200, 503, 503])
        self.inspected(self.redis, 2)
        for _ in range(50):
            self.assertEqual(sorted(self.put(5)), [200, 200, 503, 503])
        self.door.refuse = False
        eventually(lambda: self.put(5) == [200] * 4)


if __name__ == "__main__":
    main()
