"""The store of HTTP gates in Redis: marks raised and looked at, and commands that run in a script with their check."""

import support
from store_probe import RedisProbe
from support import CutProxy, LiveTest, RedisServer, eventually

MARK = "fencegate:mark:{orders}"


def unread_bytes(port):
    """What has arrived on connections to the port and was not read yet."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    established = "01"
    return sum(int(row[4].split(":")[1], 16) for row in rows
               if row[1].endswith(f":{port:04X}") and row[3] == established)


class StoreTest(LiveTest):

    def probe(self, **conf):
        self.redis = self.start(RedisServer(**conf))
        self.redis.cli.call("SET", MARK, "33")
        return self.ready(self.redis.port)

    def ready(self, port):
        probe = self.start(RedisProbe(port))
        eventually(lambda: probe.seal("ready=1")[0] == "sealed")
        return probe

    def get(self, key):
        return self.redis.cli.call("GET", key)


class Marks(StoreTest):

    def test_look_and_seal(self):
        probe = self.probe()
        self.assertEqual(probe.look("orders", "new"), ["found", "orders=33", "new="])
        self.assertEqual(probe.seal("orders=34,payments=7"), ["sealed", "orders=34!", "payments=7!"])
        self.assertEqual(probe.seal("orders=34"), ["sealed", "orders=34"])
        self.assertEqual(self.get(MARK), b"34")

    def test_rejections(self):
        probe = self.probe()
        self.assertEqual(probe.seal("orders=32")[:5], ["rejected", "stale", "orders", "32", "33"])
        self.assertEqual(probe.seal("orders=50", 10)[:5], ["rejected", "jump", "orders", "50", "33"])
        self.assertEqual(probe.run("orders=32", "SET", "k", "v")[:5], ["rejected", "stale", "orders", "32", "33"])
        self.assertIsNone(self.get("k"))


class Commands(StoreTest):

    def test_they_run_behind_their_check(self):
        probe = self.probe()
        self.assertEqual(probe.run("orders=33", "SET", "k", "in time"), ["done", "OK"])
        self.assertEqual(probe.run("orders=34,payments=7", "SET", "k", "raised first"), ["done", "OK"])
        self.assertEqual((self.get(MARK), self.get("k")), (b"34", b"raised first"))
        self.assertEqual(probe.run("orders=34", "LRANGE", "none", "0", "-1"), ["done", ""])
        self.assertEqual(probe.run("orders=34", "MGET", "k", "none"), ["done", "[raised first][(null)]"])

    def test_a_raise_in_between(self):
        """By another gate: what this one has seen is old."""
        probe = self.probe()
        self.assertEqual(probe.run("orders=33", "SET", "k", "1"), ["done", "OK"])
        self.redis.cli.call("SET", MARK, "34")
        self.assertEqual(probe.run("orders=33", "SET", "k", "a stale write")[:5],
                         ["rejected", "stale", "orders", "33", "34"])
        self.assertEqual(self.get("k"), b"1")

    def test_a_raise_in_between_of_one_of_several(self):
        probe = self.probe()
        self.assertEqual(probe.run("orders=33,payments=7", "SET", "k", "1"), ["done", "OK"])
        self.redis.cli.call("SET", "fencegate:mark:{payments}", "8")
        self.assertEqual(probe.run("orders=33,payments=7", "SET", "k", "a stale write")[:5],
                         ["rejected", "stale", "payments", "7", "8"])
        self.assertEqual(self.get("k"), b"1")

    def test_many_at_once_share_a_link(self):
        probe = self.probe()
        asked = [probe.ask("run", "orders=33", "INCR", "n") for _ in range(200)]
        self.assertEqual([one.answer() for one in asked], [["done", str(n)] for n in range(1, 201)])
        self.assertLessEqual(len(self.redis.cli.call("CLIENT", "LIST").splitlines()), 3)

    def test_requests_that_only_read(self):
        probe = self.probe()
        self.redis.cli.call("SET", "k", "v")
        for tag in ("read orders=33", "read orders=50,new=1", "none"):
            self.assertEqual(probe.run(tag, "GET", "k"), ["done", "v"])
        self.assertEqual(probe.run("read orders=32", "GET", "k")[:2], ["rejected", "stale"])
        self.assertEqual(probe.run("read orders=33", "SET", "k", "x")[:2], ["rejected", "refused"])
        self.assertEqual((self.get(MARK), self.get("k")), (b"33", b"v"))

    def test_errors_of_the_command(self):
        probe = self.probe()
        self.redis.cli.call("SET", "k", "text")
        failed = probe.run("orders=33", "INCR", "k")
        self.assertEqual(failed[0], "failed")
        self.assertIn("not an integer", failed[1])

    def test_what_is_refused(self):
        probe = self.probe()
        for command in (["FLUSHALL"], ["SET", MARK, "99"], ["SET", "fencegate:epoch", "x"],
                        ["CONFIG", "SET", "save", ""], ["MULTI"], ["EXEC"], ["SUBSCRIBE", "c"], ["EVAL", "return 1", "0"],
                        ["SELECT", "1"], ["RENAME", "k", MARK], ["SORT", "k", "STORE", MARK],
                        ["BLPOP", "k", "0"], ["nonsense"], ["nonsense", MARK]):
            answer = probe.run("orders=33", *command)
            self.assertIn(answer[0], ("rejected", "failed"), command)
            if command[0] != "nonsense":
                self.assertEqual(answer[:2], ["rejected", "refused"], command)
        self.assertEqual(self.get(MARK), b"33")

    def test_marks_that_were_lost(self):
        """Together with everything: they are put back before anything is written."""
        probe = self.probe()
        self.assertEqual(probe.run("orders=40", "SET", "k", "v"), ["done", "OK"])
        self.redis.cli.call("FLUSHALL")
        self.assertEqual(probe.run("orders=39", "SET", "k", "a stale write")[:2], ["rejected", "stale"])
        eventually(lambda: probe.run("orders=40", "SET", "k", "w") == ["done", "OK"])
        self.assertEqual(self.get(MARK), b"40")

    def test_a_server_that_is_full(self):
        probe = self.probe(maxmemory="3mb", maxmemory_policy="noeviction")
        self.redis.cli.call("CONFIG", "SET", "maxmemory", "1")
        self.assertIn(probe.run("orders=33", "SET", "k", "v")[0], ("rejected", "failed"))
        self.assertIsNone(self.get("k"))


class Connections(StoreTest):

    def test_a_connection_that_is_lost_leaves_the_outcome_unknown(self):
        self.redis = self.start(RedisServer())
        proxy = self.start(CutProxy(self.redis.port))
        probe = self.ready(proxy.port)
        self.redis.stop_process()
        asked = probe.ask("run", "ready=1", "INCR", "n")
        behind = probe.ask("look", "ready")  # goes the same way
        eventually(lambda: unread_bytes(self.redis.port) > 400)  # the script of the check
        proxy.cut_all()
        self.assertEqual(asked.answer()[0], "unknown")
        self.assertEqual(behind.answer()[0], "rejected")
        self.redis.continue_process()
        eventually(lambda: probe.run("ready=1", "GET", "n")[0] == "done")
        self.assertIn(self.get("n"), (None, b"1"))  # not sent again

    def test_a_server_that_is_frozen(self):
        probe = self.probe()
        self.redis.stop_process()
        asked = probe.ask("run", "orders=33", "SET", "k", "v")
        self.assertEqual(asked.answer()[0], "unknown")
        self.assertEqual(probe.run("orders=33", "SET", "k", "w")[:2], ["rejected", "unavailable"])
        self.redis.continue_process()
        eventually(lambda: probe.run("orders=33", "SET", "k", "w") == ["done", "OK"])

    def test_no_server(self):
        probe = self.start(RedisProbe(support.free_port()))
        for _ in range(3):
            self.assertEqual(probe.run("orders=33", "SET", "k", "v")[:2], ["rejected", "unavailable"])


if __name__ == "__main__":
    support.main()
