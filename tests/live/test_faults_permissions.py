"""A command of the check is not allowed or not there: by ACL at run time or from the start, by rename-command."""

from fault_table import (CLIENT_ACL, GATE_ACL, Bench, Fault, FaultTest, LiveGate, between_batches, holder_writes,
                         in_flight, raises)
from live_test import main

OF_THE_CLIENT = ("multi", "exec", "watch", "mget", "select", "discard", "unwatch", "eval")
OF_THE_GATE = ("eval", "get", "getex", "set", "setnx", "del", "config", "info", "role", "command", "ping", "mget")


def acl(name, user, *change):
    usual = CLIENT_ACL if user == "app" else GATE_ACL
    return Fault(name, lambda bench: bench.must("ACL", "SETUSER", user, *change),
                 lambda bench: bench.must("ACL", "SETUSER", user, "on", *usual))


class Permissions(FaultTest):
    def test_client_user_loses_a_command_at_run_time(self):
        bench = Bench(self)
        for command in OF_THE_CLIENT:
            self.through(bench, acl(f"client -{command}", "app", f"-{command}"))

    def test_client_user_loses_several_commands_at_once(self):
        bench = Bench(self)
        base = ("-@all", "+rpush", "+auth", "+client")
        for name, change in (("client -@all +rpush", base), ("client only rpush, exec", (*base, "+exec")),
                             ("client only rpush, exec, multi", (*base, "+exec", "+multi")),
                             ("client -multi -exec", ("-multi", "-exec")),
                             ("client -multi -watch -mget", ("-multi", "-watch", "-mget")),
                             ("client -watch -exec", ("-watch", "-exec")),
                             ("client -@transaction", ("-@transaction",)), ("client -@all", ("-@all",)),
                             ("client off", ("off",))):
            self.through(bench, acl(name, "app", *change))

    def test_client_user_loses_keys_at_run_time(self):
        bench = Bench(self)
        for name, keys in (("client: no marks", ("~data:*", "%R~fencegate:epoch")),
                           ("client: no epoch", ("~data:*", "%R~fencegate:mark:*")),
                           ("client: only data", ("~data:*",)),
                           ("client: marks write-only", ("~data:*", "%W~fencegate:*")),
                           ("client: no data", ("%R~fencegate:*",))):
            self.through(bench, acl(name, "app", "resetkeys", *keys))

    def test_gate_user_loses_a_command_at_run_time(self):
        bench = Bench(self)
        for command in OF_THE_GATE:
            self.through(bench, acl(f"gate -{command}", "gate", f"-{command}"),
                         (between_batches, in_flight, holder_writes, raises))
        self.through(bench, acl("gate -@all", "gate", "-@all"))

    def test_gate_user_loses_keys_at_run_time(self):
        bench = Bench(self)
        for name, keys in (("gate: no keys", ("~data:*",)), ("gate: marks read-only", ("%R~fencegate:*",)),
                           ("gate: no epoch", ("~fencegate:mark:*",))):
            self.through(bench, acl(name, "gate", "resetkeys", *keys))

    def test_permissions_missing_from_the_start(self):
        for user, command in (*(("app", c) for c in OF_THE_CLIENT[:4]), *(("gate", c) for c in OF_THE_GATE)):
            self.from_the_start(f"{user} never had {command}", lambda bench, user=user,
                                command=command: bench.must("ACL", "SETUSER", user, f"-{command}"))

    def test_renamed_commands(self):
        for command in ("MULTI", "EXEC", "WATCH", "MGET", "SELECT", "DISCARD", "UNWATCH", "EVAL", "GET", "GETEX", "SET",
                        "DEL", "SETNX", "CONFIG", "INFO", "COMMAND", "ROLE"):
            self.from_the_start(f"rename-command {command}", lambda bench: None, rename_command=f'{command} ""')

    def from_the_start(self, name, prepare, **conf):
        """No gate could ever check here: a stale writer and a new one."""
        with self.subTest(fault=name):
            bench = Bench(self, gate=False, **conf)
            prepare(bench)
            bench.gate = self.start(LiveGate(bench.redis, user="gate", password="gatepw"))
            bench.next_resource()
            bench.must("INCRBY", bench.mark_key, 34)  # SET may be renamed away
            self.note(name, "arrives", "NOT CLOSED")
            stale = bench.fresh_write(33)
            self.assertNotIn(stale, ("done", "silent"))
            self.assertEqual((bench.log(), bench.mark()), ([], b"34"))
            self.note(name, "arrives", stale)
            new = bench.fresh_write(35)
            self.assertEqual((new == "done", bench.log()), (bench.mark() == b"35" and bool(bench.log()),
                                                            [b"35"] if new == "done" else []))
            self.assertNotEqual(new, "silent")
            self.note(name, "raises", new)


if __name__ == "__main__":
    main()
