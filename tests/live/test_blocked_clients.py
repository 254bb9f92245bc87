"""Clients that wait under a tag (BLPOP and its like): what they cost while nothing comes, and how soon they are served."""

import time

from gate_process import Gate
from live_test import LiveTest, main
from processes import eventually
from redis_server import RedisServer
from resp import Resp

CLIENTS = 60
SERVED = 20  # of them, one after another


def processed(redis):
    info = redis.cli.call("INFO", "stats").decode()
    return int(info.split("total_commands_processed:")[1].split()[0])


class Blocked(LiveTest):
    def setUp(self):
        self.redis = self.start(RedisServer())

    def gate(self, **keys):
        return self.start(Gate(self.redis, threads=1, **keys))

    def clients(self, gate, count, *command):
        out = []
        for _ in range(count):
            out.append(self.start(Resp(gate.address, name="fence:orders=34")))
            out[-1].send_command(*command)
        return out

    def commands_per_second(self, seconds=2.0):
        before, began = processed(self.redis), time.monotonic()
        time.sleep(seconds)
        return (processed(self.redis) - before) / (time.monotonic() - began)

    def settle(self, most):
        eventually(lambda: self.commands_per_second(1.0) < most)

    def test_who_waits_costs_next_to_nothing_and_is_served_at_once(self):
        gate = self.gate()
        clients = self.clients(gate, CLIENTS, "BLPOP", "queue", "0")
        self.settle(6 * CLIENTS)  # a look every two seconds, of five commands; 80 each before
        one_by_one, at_once = clients[:SERVED], clients[SERVED:]
        began = time.monotonic()
        for client in one_by_one:
            self.redis.cli.call("RPUSH", "queue", "next")
            self.assertEqual(client.reply(), [b"queue", b"next"], "who came first is served first")
        self.assertLess(time.monotonic() - began, SERVED / 2, "a look of its own would have come to each in a second")
        self.redis.cli.call("RPUSH", "queue", *range(len(at_once)))
        self.assertEqual({client.reply()[1] for client in at_once}, {b"%d" % i for i in range(len(at_once))})

    def test_each_kind_and_each_database(self):
        gate = self.gate()
        list_waits, sorted_waits, stream_waits, move_waits, other = self.clients(gate, 5, "PING")
        for one in (list_waits, sorted_waits, stream_waits, move_waits, other):
            self.assertEqual(one.reply(), b"PONG")
        self.redis.cli.call("XGROUP", "CREATE", "stream", "workers", "$", "MKSTREAM")
        other.call("SELECT", "3")
        list_waits.send_command("BRPOP", "empty", "list", "0")
        other.send_command("BLPOP", "list", "0")
        sorted_waits.send_command("BZPOPMIN", "sorted", "0")
        stream_waits.send_command("XREADGROUP", "GROUP", "workers", "w", "BLOCK", "0", "STREAMS", "stream", ">")
        move_waits.send_command("BLMOVE", "from", "to", "LEFT", "LEFT", "0")
        self.settle(40)
        began = time.monotonic()
        cli = self.redis.cli
        cli.call("RPUSH", "list", "a")
        self.assertEqual(list_waits.reply(), [b"list", b"a"])
        cli.call("ZADD", "sorted", "1", "b")
        self.assertEqual(sorted_waits.reply(), [b"sorted", b"b", b"1"])
        cli.call("XADD", "stream", "1-1", "f", "c")
        self.assertEqual(stream_waits.reply(), [[b"stream", [[b"1-1", [b"f", b"c"]]]]])
        cli.call("RPUSH", "from", "d")
        self.assertEqual(move_waits.reply(), b"d")
        cli.call("SELECT", "3")
        cli.call("RPUSH", "list", "e")
        self.assertEqual(other.reply(), [b"list", b"e"])
        self.assertLess(time.monotonic() - began, 3, "a look of its own would have come to each in a second")

    def test_a_key_of_another_type_ends_the_wait(self):
        """In Redis it does not."""
        (client,) = self.clients(self.gate(), 1, "BLPOP", "queue", "0")
        self.settle(40)
        self.redis.cli.call("SET", "queue", "text")
        self.assert_error(client.reply(), "WRONGTYPE")

    def test_a_raise_ends_the_wait_of_the_old_holder(self):
        gate = self.gate()
        old, = self.clients(gate, 1, "BLPOP", "queue", "0")
        self.settle(20)
        new = self.start(Resp(gate.address, name="fence:orders=35"))
        self.redis.cli.call("RPUSH", "queue", "job")
        self.assert_error(old.reply(), "FENCED")
        self.assertEqual(new.call("LPOP", "queue"), b"job")

    def test_where_the_gate_may_not_read_the_keys_it_looks_again_and_again(self):
        acl = self.redis.cli.call
        acl("ACL", "SETUSER", "gate", "on", ">secret", "~fencegate:*", "+@all")
        gate = self.gate(user="gate", password="secret")
        client, = self.clients(gate, 1, "BLPOP", "queue", "0")
        self.settle(40)
        self.redis.cli.call("RPUSH", "queue", "job")
        self.assertEqual(client.reply(), [b"queue", b"job"])

    def test_a_link_that_is_cut_is_made_up_for(self):
        gate = self.gate()
        client, = self.clients(gate, 1, "BLPOP", "queue", "0")
        self.settle(20)
        for line in self.redis.cli.call("CLIENT", "LIST").decode().splitlines():
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "t" in words["flags"]:  # it tracks keys
                self.redis.cli.call("CLIENT", "KILL", "ID", words["id"])
        self.redis.cli.call("RPUSH", "queue", "job")
        self.assertEqual(client.reply(), [b"queue", b"job"])


if __name__ == "__main__":
    main()
