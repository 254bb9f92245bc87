"""fencegate doctor in front of Redis: each hazard on a server that has it, and none on one that has none."""

import os

from cut_proxy import CutProxy
from doctor import DoctorTest
from documents import block, command, gates_user, run_shell
from gate_process import Gate
from live_test import main
from processes import eventually, free_port
from redis_server import RedisServer
from resp import Resp

SAFE = {"appendonly": "yes", "appendfsync": "always"}
LOOK = block("docs/doctor.md", "acl").split()[3:]  # the rights to ask


class Redis(DoctorTest):

    def server(self, users=True, **conf):
        """With the users of docs/redis.md, and the rights for the gate's that doctor asks for."""
        redis = self.start(RedisServer(**SAFE | conf))
        if users:
            redis.cli  # stays signed in
            gates_user(redis, *LOOK)
            for line in block("docs/redis.md", "acl").splitlines():
                if "SETUSER orders" in line:
                    redis.cli.call(*line.split())
            redis.cli.call("ACL", "SETUSER", "default", "resetpass", ">only-tests", "off")
        return redis

    def look_at(self, redis, login="fencegate:gate-secret@", **more):
        gate = {"name": "cache", "protocol": "redis", "listen": f"127.0.0.1:{free_port()}",
                "upstream": f"redis://{login}127.0.0.1:{redis.port}"}
        return self.look(redis.folder, gates=[gate], **more)

    def test_none(self):
        redis = self.server()
        self.assertEqual(self.look_at(redis), ({}, []))
        os.rename(os.path.join(redis.folder, "doctor.yaml"), os.path.join(redis.folder, "fencegate.yaml"))
        self.assertEqual(run_shell(command("docs/doctor.md", "fencegate doctor"), redis.folder), "fencegate.yaml: no hazards\n")

    def test_nothing_is_written(self):
        redis = self.server(users=False)
        self.look_at(redis, login="")
        self.assertEqual(redis.cli.call("DBSIZE"), 0)

    def test_what_a_bare_redis_has(self):
        redis = self.server(users=False, appendonly="no")
        hazards, unknown = self.look_at(redis, login="")
        self.assertEqual(sorted(hazards), ["redis-not-persistent", "redis-open-default"])
        self.assertEqual(unknown, [])

    def test_appendfsync(self):
        for value in ("everysec", "no"):
            hazards, unknown = self.look_at(self.server(appendfsync=value))
            self.assertEqual((hazards, unknown), ({"redis-appendfsync": [f"appendfsync is {value}"]}, []))
        hazards, _ = self.look_at(self.server(no_appendfsync_on_rewrite="yes"))
        self.assertEqual(list(hazards), ["redis-appendfsync"])

    def test_eviction(self):
        hazards, _ = self.look_at(self.server(maxmemory_policy="allkeys-lru"))
        self.assertEqual(hazards, {"redis-eviction": ["maxmemory-policy allkeys-lru can evict marks"]})
        self.assertEqual(self.look_at(self.server(maxmemory_policy="volatile-lru")), ({}, []))

    def test_cluster_mode(self):
        hazards, _ = self.look_at(self.server(cluster_enabled="yes", cluster_port=free_port()))
        self.assertEqual(hazards, {"redis-cluster": ["cluster mode is on"]})

    def test_replicas(self):
        redis = self.server()
        replica = self.start(RedisServer(**SAFE, replicaof=f"127.0.0.1 {redis.port}", masteruser="fencegate",
                                         masterauth="gate-secret"))
        redis.cli.call("ACL", "SETUSER", "fencegate", "+psync", "+replconf", "+ping")
        eventually(lambda: "connected_slaves:1" in redis.cli.call("INFO", "replication").decode())
        hazards, unknown = self.look_at(redis)
        self.assertEqual((list(hazards), unknown), (["redis-min-replicas"], []))
        self.assertIn("1 replica is connected", hazards["redis-min-replicas"][0])
        redis.cli.call("CONFIG", "SET", "min-replicas-to-write", "1")
        self.assertEqual(self.look_at(redis), ({}, []))
        hazards, _ = self.look_at(replica, login="")
        self.assertIn("redis-replica", hazards)

    def test_who_may_change_marks(self):
        redis = self.server()
        for rights in ("~* +@all", "~fencegate:* +del", "~fencegate:mark:* +rename", "%W~fencegate:* +expire"):
            redis.cli.call("ACL", "SETUSER", "mallory", "reset", "on", ">secret", *rights.split())
            hazards, unknown = self.look_at(redis)
            self.assertEqual((list(hazards), unknown), (["redis-forgeable-marks"], []), rights)
            self.assertIn("mallory may write", hazards["redis-forgeable-marks"][0])
        for rights in ("%R~* +@all", "~fencegate:* +get", "off"):
            redis.cli.call("ACL", "SETUSER", "mallory", *(["reset", "on", ">secret"] if rights != "off" else ["~*", "+@all"]),
                           *rights.split())
            self.assertEqual(self.look_at(redis), ({}, []), rights)

    def test_what_strangers_may_do(self):
        redis = self.server()
        redis.cli.call("ACL", "SETUSER", "root", "on", ">secret", "+@all")  # of no key
        root = self.start(Resp(redis.port, user="root", password="secret"))
        root.call("ACL", "SETUSER", "default", "on", "nopass", "resetkeys", "~data:*")
        self.assertEqual(list(self.look_at(redis)[0]), ["redis-open-default"])
        root.call("ACL", "SETUSER", "default", "-@all", "+ping", "+multi", "+get")
        self.assertEqual(self.look_at(redis), ({}, []))
        root.call("ACL", "SETUSER", "default", "-multi")
        hazards, unknown = self.look_at(redis)
        self.assertEqual((hazards, len(unknown)), ({}, 1))
        self.assertIn("may not MULTI", unknown[0])

    def test_rights_that_are_missing(self):
        redis = self.server()
        redis.cli.call("ACL", "SETUSER", "fencegate", "-acl", "-config|get")
        hazards, unknown = self.look_at(redis)
        self.assertEqual(hazards, {})
        self.assertEqual(unknown, ["whether Redis syncs each write (appendfsync): the gate's user lacks +config|get",
                                   "which users may change marks: the gate's user lacks +acl|list and +acl|dryrun"])
        redis.cli.call("ACL", "SETUSER", "fencegate", *LOOK, "-acl|dryrun", "-info")
        _, unknown = self.look_at(redis)
        self.assertEqual([one.rsplit("lacks ", 1)[1] for one in unknown], ["+info", "+acl|dryrun"])

    def test_who_does_not_answer(self):
        redis = self.server()
        proxy = self.start(CutProxy(redis.port))
        proxy.freeze()
        gate = {"name": "cache", "protocol": "redis", "listen": f"127.0.0.1:{free_port()}", "timeouts": {"connect": "300ms"},
                "upstream": f"redis://127.0.0.1:{proxy.port}"}
        hazards, unknown = self.look(redis.folder, gates=[gate])
        self.assertEqual((hazards, unknown), ({}, ["anything of it: no answer within 300 ms"]))
        _, unknown = self.look_at(redis, login="fencegate:wrong@")
        self.assertEqual(len(unknown), 1)
        self.assertIn("WRONGPASS", unknown[0])
        self.assertNotIn("wrong@", unknown[0])

    def test_one_server_is_asked_once(self):
        redis = self.server(appendfsync="no")
        url = f"redis://fencegate:gate-secret@127.0.0.1:{redis.port}"
        hazards, _ = self.look_at(redis, stores={"ledger": {"url": url}})
        self.assertEqual(hazards, {"redis-appendfsync": ["appendfsync is no"]})

    def test_it_is_said_in_paragraphs(self):
        redis = self.server(appendfsync="no")
        done = self.doctor(redis.folder, gates=[{"name": "cache", "protocol": "redis", "listen": f"127.0.0.1:{free_port()}",
                                                 "upstream": f"redis://fencegate:gate-secret@127.0.0.1:{redis.port}"}])
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        where, why, mend, empty, total = done.stdout.splitlines()
        self.assertEqual(where, f"gate:cache (127.0.0.1:{redis.port}): redis-appendfsync: appendfsync is no")
        self.assertTrue(why.startswith("  Why it matters: ") and mend.startswith("  How to mend it: ") and empty == "", done.stdout)
        self.assertTrue(total.endswith("doctor.yaml: 1 hazard"), total)
        self.assertEqual(self.doctor(redis.folder, gates=[{"name": "x"}]).returncode, 2)

    def test_listeners(self):
        redis = self.server()
        gate = {"name": "cache", "protocol": "redis", "listen": f"0.0.0.0:{free_port()}",
                "upstream": f"redis://fencegate:gate-secret@127.0.0.1:{redis.port}"}
        hazards, _ = self.look(redis.folder, gates=[gate], admin={"listen": f":{free_port()}"})
        self.assertEqual(sorted(hazards), ["admin-exposed", "gate-exposed"])
        self.assertEqual(self.look(redis.folder, gates=[gate | {"listen": f"unix:{redis.folder}/gate.sock"}],
                                   admin={"listen": f"[::1]:{free_port()}"}), ({}, []))


class Serve(DoctorTest):

    def test_it_logs_them_once_and_serves(self):
        redis = self.start(RedisServer(appendfsync="everysec"))
        gate = self.start(Gate(redis))
        hazards = eventually(lambda: [line for line in gate.log_lines() if line["msg"] == "hazard"])
        self.assertEqual(sorted(line["id"] for line in hazards), ["redis-appendfsync", "redis-open-default"])
        for line in hazards:
            self.assertEqual((line["level"], line["where"]), ("warn", f"gate:{gate.name}"))
            self.assertTrue(line["detail"] and line["why"] and line["mend"], line)

    def start_strictly(self, redis, **more):
        """The status and the log of a serve that ends by itself."""
        gate = Gate(redis, process={"strict": True}, **more)
        with self.assertRaisesRegex(RuntimeError, "ended with status 1") as ended:
            with gate:
                pass
        return str(ended.exception)

    def test_strict_refuses_to_start(self):
        redis = self.start(RedisServer(appendfsync="always"))
        log = self.start_strictly(redis)
        self.assertIn("strict: true, and there is 1 hazard", log)
        self.assertIn("redis-open-default", log)

    def test_strict_refuses_to_start_without_its_servers(self):
        redis = self.start(RedisServer(appendfsync="always"))
        redis.kill()
        self.assertIn("it is not known what is hazardous in gate:", self.start_strictly(redis))

    def test_strict_starts_where_there_is_none(self):
        redis = self.start(RedisServer(**SAFE))
        redis.cli
        gates_user(redis)  # which may not ask for all of it
        redis.cli.call("ACL", "SETUSER", "default", "resetpass", ">only-tests", "off")
        gate = self.start(Gate(redis, process={"strict": True}, user="fencegate", password="gate-secret"))
        self.assertEqual([line for line in gate.log_lines() if line["msg"] == "hazard"], [])
        unknown = [line["detail"] for line in gate.log_lines() if line["msg"] == "hazards are not known"]
        self.assertEqual(len(unknown), 2)


if __name__ == "__main__":
    main()
