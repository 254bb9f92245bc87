"""The history test: many writers under leases that are taken over all the time, gates and writers that are frozen,
killed and cut off, a Redis that is frozen, too; afterwards no stale write may be there, and each writer must have been
told the truth.

    run.py [--binary PATH] [--takeovers N] [--seconds-max S] [--script-flush] [--server-dies]
        exit 0: no violation, 1: violations, 2: too few takeovers or stale tries
    --server-dies: Redis is killed and started again, too, with its append-only file synced before each answer.
    FENCEGATE_SEED=… repeats the random choices (the interleaving of processes is the machine's)."""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gate_process import Gate
from history.checker import check
from history.rig import Rig, run_and_exit
from redis_server import RedisServer

RESOURCES = {"orders": 0, "stock": 0, "ledger": 3, "mail": 1}  # the database of its list; marks are in 0


class Run(Rig):
    """Writers to Redis."""

    writer_script = "writer.py"
    resources = tuple(RESOURCES)

    def __init__(self, binary=None, takeovers=500, seconds_max=240, script_flush=False, server_dies=False, share="always"):
        super().__init__(binary, takeovers, seconds_max)
        self.script_flush, self.server_dies, self.share = script_flush, server_dies, share
        self.server_freezes = 0

    def make_server(self):
        # Without the sync, acknowledged writes and marks may be lost together.
        return RedisServer(appendfsync="always") if self.server_dies else RedisServer()

    def make_gate(self, upstream):
        return Gate(upstream, extra={"share_writes": self.share}, binary=self.binary)

    def writer_arguments(self, resource, gate_ports):
        return [RESOURCES[resource], *gate_ports]

    def trouble(self):
        more = {self.freeze_server: 5}
        least = {}
        if self.server_dies:
            more[self.kill_server] = 6
            least[self.kill_server] = 3
        return {"more": more, "least": least} | ({"always": self._flush} if self.script_flush else {})

    def freeze_server(self, chaos):
        """Nothing else begins meanwhile: a gate that starts waits for its server."""
        self.server.stop_process()
        time.sleep(chaos.random.uniform(0.02, 0.3))
        self.server.continue_process()
        self.server_freezes += 1
        return True

    def kill_server(self, _):
        self.server.restart()
        return True

    def _flush(self):
        self.server.cli.call("SCRIPT", "FLUSH", "SYNC")
        return "scripts flushed"

    def left_alone(self):
        return self.server.info("clients")["connected_clients"] == "1"

    def judge(self, histories):
        lists = {}
        for resource, database in RESOURCES.items():
            self.server.cli.call("SELECT", database)
            lists[resource] = [entry.decode() for entry in self.server.cli.call("LRANGE", f"log:{resource}", 0, -1)]
        return check(lists, histories)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="default: $FENCEGATE")
    parser.add_argument("--takeovers", type=int, default=500)
    parser.add_argument("--seconds-max", type=float, default=240)
    parser.add_argument("--script-flush", action="store_true")
    parser.add_argument("--server-dies", action="store_true")
    options = parser.parse_args()
    rig = Run(options.binary, options.takeovers, options.seconds_max, options.script_flush, options.server_dies)
    return run_and_exit(rig, lambda verdict: verdict.codes["FENCED"])


if __name__ == "__main__":
    sys.exit(main())
