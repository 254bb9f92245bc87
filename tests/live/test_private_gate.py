"""`hold --private-gate`: a gate of the sidecar for one command, for programs that can say no token."""

import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile

import documents
from lease_sidecar import Api, Sidecar
from live_test import LiveTest, main
from postgres import PostgresServer, run_sql
from processes import LOOPBACK, eventually, free_port
from redis_server import RedisServer
from test_hold import Hold

THREADS = 2
WRITE = "INSERT INTO writes VALUES ('$FENCING_TOKEN')"
REDIS = "redis-cli -s \"$FENCEGATE_SOCKET\""


class PrivateSidecar(Sidecar):
    """Its gates take nothing without a token; one holds a lease of its own, one has a tag, one speaks HTTP."""

    def configure(self):
        configuration = super().configure() | {"threads": THREADS}
        for gate in configuration["gates"]:
            gate["policy"] = {"missing_token": "reject"}
        upstream = {"protocol": "redis", "upstream": self.redis_url()}
        configuration["gates"] += [
            {"name": "tagged", "listen": f"{LOOPBACK}:{free_port()}", "tag_from": "listen", "tag": "orders=1"} | upstream,
            {"name": "web", "protocol": "http", "listen": f"{LOOPBACK}:{free_port()}", "store": "ledger",
             "routes": [{"match": "PUT /orders/{id:int}", "resource": "orders",
                         "sql": "INSERT INTO writes VALUES ($1)", "params": ["{id}"]}]}]
        return configuration


class Static(Hold):
    """`fencegate-hold hold`, which asks the sidecar."""

    program = "FENCEGATE_HOLD"

    def __init__(self, sidecar, *words, command, **more):
        super().__init__(sidecar, *words, command=command, **more)
        self.words = [os.environ[self.program], "hold", *words, "--api", f"unix:{sidecar.socket}", "--", *command]


class Dynamic(Static):
    program = "FENCEGATE"


class PrivateGate(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.database, cls.redis = cls.enterClassContext(PostgresServer()), cls.enterClassContext(RedisServer())
        cls.database.sql("CREATE DATABASE app")
        for name in ("gate", "orders"):
            cls.database.user(name)
        cls.database.install("app", gate_users=("gate",))
        cls.admin = cls.database.connect(database="app")
        cls.addClassCleanup(cls.admin.close)
        run_sql(cls.admin, "CREATE TABLE writes (what text); GRANT ALL ON writes TO orders, gate")
        cls.sidecar = cls.enterClassContext(PrivateSidecar(cls.database, cls.redis))

    def setUp(self):
        self.folders = self.enterContext(tempfile.TemporaryDirectory())
        self.addCleanup(run_sql, self.admin, "TRUNCATE writes")
        self.addCleanup(self.redis.cli.call, "DEL", "log", "big")

    def hold(self, gate, script, *words, kind=Dynamic, **environment):
        given = {"TMPDIR": self.folders, "XDG_RUNTIME_DIR": ""} | environment
        return kind(self.sidecar, "orders", "--private-gate", gate, *words, command=["sh", "-c", script], environment=given)

    def ended(self, hold):
        with hold:
            status = hold.ended()
        self.assertEqual(os.listdir(self.folders), [], "a folder is left")
        return status, hold.told, hold.said

    def written(self):
        return [what for what, in run_sql(self.admin, "SELECT what FROM writes")]

    def log(self):
        return [entry.decode() for entry in self.redis.cli.call("LRANGE", "log", 0, -1)]

    def mark(self):
        return run_sql(self.admin, "SELECT mark FROM fencegate.marks WHERE resource = 'orders'")[0][0]

    def test_psql_as_it_is(self):
        """An environment that names another server, and would say no token."""
        for kind in (Static, Dynamic):
            status, _, said = self.ended(self.hold(
                "db", f"unset PGOPTIONS; psql -qXc \"{WRITE}\" && psql -qXc \"{WRITE}\"", kind=kind, PGHOST="nowhere.invalid", PGHOSTADDR="192.0.2.1", PGPORT="1"))
            self.assertEqual((status, said), (0, ""))
            self.assertEqual(self.written()[-2:], [str(self.mark())] * 2)

    def test_the_line_of_the_page(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(os.path.join(folder, "job.sh"), "w") as file:
            file.write(f"#!/bin/sh\npsql -qXc \"{WRITE}\"\n")
        os.chmod(file.name, 0o755)
        line = documents.command("docs/leases.md", "fencegate-hold hold orders --private-gate")
        line = line.replace("fencegate-hold hold orders", f"{os.environ['FENCEGATE_HOLD']} hold orders --api unix:{self.sidecar.socket}")
        given = os.environ | {"PGUSER": "orders", "PGDATABASE": "app", "TMPDIR": self.folders}
        subprocess.run(["sh", "-ec", line], cwd=folder, env=given, check=True)
        self.assertEqual(self.written(), [str(self.mark())])

    def test_redis_cli_as_it_is(self):
        status, told, said = self.ended(self.hold("cache", f"{REDIS} RPUSH log $FENCING_TOKEN; echo $PGHOST", PGHOST="db.example"))
        self.assertEqual((status, told, said), (0, "1\ndb.example\n", ""))
        self.assertEqual(self.log(), [str(self.mark())])

    def test_curl_as_it_is(self):
        script = "curl -sS --fail-with-body --unix-socket $FENCEGATE_SOCKET -X PUT http://web/orders/7"
        status, told, _ = self.ended(self.hold("web", script))
        self.assertEqual((status, self.written()), (0, ["7"]), told)

    def test_the_gate_itself_takes_nothing_without_a_token(self):
        """So what the tests above wrote had one."""
        status, told, _ = self.ended(self.hold("cache", f"redis-cli -p $REDIS_PORT RPUSH log x; unset PGOPTIONS PGHOST; psql -h {LOOPBACK} "
                                               f"-p {self.sidecar.pg_port} -qXc \"{WRITE}\" 2>&1"))
        self.assertIn("FENCEMISSING", told)
        self.assertNotEqual(status, 0)
        self.assertEqual((self.log(), self.written()), ([], []))

    def test_a_superseded_holder_writes_nothing(self):
        """All of it stands still for longer than its lease, the next one works, and it goes on."""
        ready = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "ready")
        script = (f"{{ echo; touch {ready}; while [ ! -e {ready}.go ]; do sleep 0.05; done; echo RPUSH log stale; }} | {REDIS} > /dev/null; "
                  f"{REDIS} RPUSH log late > /dev/null")
        with self.hold("cache", script, "--ttl", "5s") as old:
            eventually(lambda: os.path.exists(ready))
            old.freeze()
            with self.hold("cache", f"{REDIS} RPUSH log new") as new:
                self.assertEqual(new.ended(), 0, new.said)
            open(ready + ".go", "w").close()
            old.thaw()
            self.assertEqual(old.ended(), 79)
        self.assertEqual(self.log(), ["new"])

    def test_nobody_else_of_this_user_may_use_it(self):
        with self.hold("cache", "echo $FENCEGATE_SOCKET; exec sleep 60") as hold:
            path = hold.child.stdout.readline().strip()
            folder = os.path.dirname(path)
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(20)
                stranger.connect(path)
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(b"RPUSH log stranger\r\n")
                    self.assertEqual(stranger.recv(100), b"")
            hold.child.terminate()
            hold.ended()
        self.assertEqual(self.log(), [])
        self.assertIn("not the command's", hold.said)

    def test_gates_that_cannot_be_had(self):
        """The command does not run, and the lease is free at once."""
        for gate, why in (("nowhere", "there is no gate nowhere"), ("tagged", "binds its connections itself"), ("a/b", "names no gate"),
                          ("", "names no gate")):
            status, told, said = self.ended(self.hold(gate, "echo ran", "--no-wait"))
            self.assertEqual((status, told), (125, ""))
            self.assertIn(why, said)
        self.assertEqual(self.ended(self.hold("cache", "true", "--no-wait"))[0], 0)

    def test_a_hold_within_a_hold_has_none(self):
        """Its connections would carry one of the two tokens."""
        api = f"--api unix:{self.sidecar.socket}"
        inner = self.ended(self.hold("cache", f"\"$FENCEGATE\" hold refunds {api} -- echo ran"))
        self.assertEqual(inner[:2], (125, ""))
        self.assertIn("hold all resources at once", inner[2])
        with Dynamic(self.sidecar, "refunds", command=["sh", "-c", f"\"$FENCEGATE\" hold orders {api} --private-gate cache -- echo ran"]) as outer:
            self.assertEqual((outer.ended(), outer.told), (125, ""))
        self.assertIn("hold all resources at once", outer.said)

    def test_it_opens_no_more_than_it_may(self):
        """Else nothing would be left for the renewals."""
        many = ("import os, socket, time\nall = [socket.socket(socket.AF_UNIX) for _ in range(100)]\n"
                "for one in all: one.connect(os.environ['FENCEGATE_SOCKET']); one.settimeout(20)\n"
                "served = 0\nfor one in all:\n  try: one.sendall(b'PING\\r\\n'); served += one.recv(7) == b'+PONG\\r\\n'\n"
                "  except OSError: pass\nprint(served)\n")
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(os.path.join(folder, "many.py"), "w") as file:
            file.write(many)
        hold = self.hold("cache", f"{sys.executable} {file.name}")
        hold.words = ["prlimit", "--nofile=128:128", *hold.words]
        with hold:
            self.assertEqual((hold.ended(60), hold.told), (0, "32\n"), hold.said)
        self.assertIn("ulimit -n", hold.said)

    def test_answers_reach_a_client_that_says_more_to_a_gate_that_has_closed(self):
        self.redis.cli.call("SET", "big", "x" * 300_000)
        late = ("import os, socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(os.environ['FENCEGATE_SOCKET'])\n"
                "s.sendall(b'GET big\\r\\nQUIT\\r\\n')\ngot = s.recv(1)\nimport time\ntime.sleep(0.5)\n"
                "try: s.sendall(b'PING\\r\\n')\nexcept OSError: pass\n"
                "try:\n  while more := s.recv(65536): got += more\nexcept ConnectionError: pass\nprint(len(got))\n")
        status, told, _ = self.ended(self.hold("cache", f"{sys.executable} -c \"{late}\""))
        self.assertEqual((status, told), (0, f"{len('$300000') + 2 + 300_000 + 2 + len('+OK') + 2}\n"))

    def test_with_a_configuration_it_is_refused(self):
        with Hold(self.sidecar, "orders", "--private-gate", "cache", command=["echo", "ran"]) as hold:
            self.assertEqual(hold.ended(), 125)
        self.assertEqual(hold.told, "")
        self.assertIn("--private-gate is opened by a sidecar", hold.said)

    def test_much_at_once_both_ways(self):
        """64 MB to the gate and back, while 40 other connections work."""
        script = (f"head -c 64000000 /dev/zero | tr '\\0' x | {REDIS} -x SET big > /dev/null; {REDIS} --raw GET big | wc -c & "
                  f"for i in $(seq 40); do {REDIS} RPUSH log $i > /dev/null & done; wait")
        status, told, said = self.ended(self.hold("cache", script))
        self.assertEqual((status, told.strip(), said), (0, "64000001", ""))  # and the end of a line
        self.assertEqual(sorted(map(int, self.log())), list(range(1, 41)))

    def test_a_client_that_has_said_all_gets_its_answers(self):
        script = (f"{sys.executable} -c \"import os, socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(os.environ['FENCEGATE_SOCKET'])\n"
                  "s.sendall(b'RPUSH log a\\r\\nRPUSH log b\\r\\n')\ns.shutdown(socket.SHUT_WR)\nprint(s.makefile().read())\"")
        status, told, said = self.ended(self.hold("cache", script))
        self.assertEqual((status, told.split(), said), (0, [":1", ":2"], ""))

    def test_a_sidecar_that_was_started_anew_serves_it_again(self):
        sidecar = self.start(PrivateSidecar(self.database, self.redis, {"ttl": "20s"}))
        ready = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "ready")
        # Many at once: the sidecar knows nothing of the lease, and asks the issuer for each.
        script = (f"{REDIS} RPUSH log before; touch {ready}; while [ ! -e {ready}.go ]; do sleep 0.05; done; "
                  f"for i in $(seq 20); do {REDIS} RPUSH log behind & done; wait")
        with Dynamic(sidecar, "orders", "--ttl", "20s", "--private-gate", "cache", command=["sh", "-c", script]) as hold:
            eventually(lambda: os.path.exists(ready))
            before = len(sidecar.log())
            sidecar.restart()
            reached = re.compile('"msg":"backend up","gate":"cache"}')  # Redis, on each thread
            eventually(lambda: len(reached.findall(sidecar.log()[before:])) == THREADS)
            open(ready + ".go", "w").close()
            self.assertEqual(hold.ended(), 0, hold.said)
        self.assertEqual(sorted(self.log()), ["before", *["behind"] * 20], hold.said)

    def test_what_the_api_refuses(self):
        api = Api(self.sidecar.socket)
        status, lease = api.take("orders", wait="20s")
        self.assertEqual(status, 201)
        self.addCleanup(api.release, lease)
        body = '{"tokens":{"orders":%d}}' % lease["tokens"]["orders"]
        target = f"/v1/leases/{lease['id']}/gates/cache"

        def ask(method, target, body, *fields, behind=""):
            with api.connected() as client:
                text = "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
                                    f"Content-Length: {len(body)}", *fields, "", body + behind])
                client.sendall(text.encode())
                return client.recv(4096).decode().split()[1]

        upgrade = "Upgrade: h2c, fencegate-gate", "Connection: keep-alive, Upgrade"
        self.assertEqual(ask("POST", target, body, *upgrade), "101")
        self.assertEqual(ask("POST", target, body), "426")
        self.assertEqual(ask("POST", target, body, "Upgrade: websocket", "Connection: Upgrade"), "426")
        self.assertEqual(ask("POST", target, body, upgrade[0]), "426")
        self.assertEqual(ask("PUT", target, body, *upgrade), "405")
        self.assertEqual(ask("POST", target, body, *upgrade, behind="RPUSH log early\r\n"), "400")
        self.assertEqual(ask("POST", target, '{"tokens":{"orders":1}}', *upgrade), "410")
        self.assertEqual(ask("POST", target.replace(lease["id"], "0" * 32), body, *upgrade), "410")
        self.assertEqual(ask("POST", target, "{}", *upgrade), "400")
        self.assertEqual(ask("POST", target + "x", body, *upgrade), "404")
        self.assertEqual(self.log(), [])


if __name__ == "__main__":
    main()
