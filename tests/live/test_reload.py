"""The configuration is read again while it is served: SIGHUP, POST /reload (docs/operations.md)."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading

import psycopg2

import documents
from cut_proxy import SilentPort
from gate_process import GateProcess
from http_gate import Upstream
from live_test import LiveTest, main
from pg_wire import Wire, cancel_request, fields, query
from postgres import SUPERUSER, PostgresServer, run_sql
from processes import LOOPBACK, PATIENCE, connect, eventually, free_port
from redis_server import RedisServer
from resp import Resp
from tls import Authority

ROUTES = [{"match": "PUT /kv/{key}", "resource": "orders", "redis": ["SET", "{key}", "{body}"], "store": "cache"},
          {"match": "POST /rows", "resource": "orders", "sql": "INSERT INTO writes (who) VALUES ('http')", "store": "ledger"},
          {"match": "PUT /files/{id}", "resource": "orders", "guarantee": "held", "store": "ledger"}]


class Sidecar(GateProcess):
    """With a gate of each protocol in front of the servers of `case`. `config` is what write() writes, by gate(NAME)."""

    name = "cache"

    def __init__(self, case, **process):
        super().__init__({}, **process)
        self.case = case

    def prepare(self):
        super().prepare()
        self.ports = {name: free_port() for name in ("cache", "db", "api")}
        case = self.case
        self.config = self.process | {
            "admin": {"listen": self.admin_listen},
            "stores": {"cache": {"url": f"redis://{LOOPBACK}:{case.redis.port}"},
                       "ledger": {"url": f"postgres://gate@{LOOPBACK}:{case.server.port}/postgres", "pool": 4}},
            "gates": [
                {"name": "cache", "protocol": "redis", "upstream": f"redis://{LOOPBACK}:{case.redis.port}"},
                {"name": "db", "protocol": "postgres",
                 "upstream": f"postgres://{SUPERUSER}@{LOOPBACK}:{case.server.port}/postgres"},
                {"name": "api", "protocol": "http", "upstream": f"http://{LOOPBACK}:{case.upstream.port}",
                 "store": "ledger", "routes": [dict(route) for route in ROUTES]}]}
        for gate in self.config["gates"]:
            gate["listen"] = f"{LOOPBACK}:{self.ports[gate['name']]}"
        self.write()

    def upstream_url(self):
        return f"redis://{LOOPBACK}:1"  # not used

    def up(self):
        return self.http("/readyz")[0] == 200 and all(self.of(name, "backend_up") == 1 for name in self.ports)

    @property
    def path(self):
        return os.path.join(self.folder, "fencegate.yaml")

    def gate_keys(self, name):
        return next(gate for gate in self.config["gates"] if gate["name"] == name)

    def write(self, text=None):
        """In one step: others read it, too."""
        with open(f"{self.path}.new", "w") as file:
            file.write(text or json.dumps(self.config, indent=1))
        os.replace(f"{self.path}.new", self.path)

    def reload(self):
        """(status, answer)"""
        status, text = self.http("/reload", "POST")
        return status, json.loads(text)

    def take_over(self):
        """Writes the configuration, and has it read. The answer."""
        self.write()
        status, answer = self.reload()
        if status != 200:
            raise AssertionError(f"{status} {answer}")
        return answer

    def of(self, name, figure):
        return self.metrics().get(f'fencegate_{figure}{{gate="{name}"}}', 0.0)

    def outcomes(self):
        figures = self.metrics()
        return [figures[f'fencegate_reloads_total{{outcome="{one}"}}'] for one in ("applied", "unchanged", "refused")]

    def generation(self):
        return self.metrics()["fencegate_config_generation"]

    def retired(self):
        """Whether what was replaced has gone: where there were no connections, or no more."""
        return self.log().count('"msg":"the last connection under a former configuration has ended"')

    def redis(self, tag=None):
        return Resp(self.ports["cache"], name=f"fence:{tag}" if tag else None)

    def postgres(self, tag=None, **more):
        if tag:
            more["options"] = f"-c fencing.tokens={tag}"
        connection = psycopg2.connect(host=LOOPBACK, port=self.ports["db"], user="alice", dbname="postgres",
                                      connect_timeout=PATIENCE, **more)
        connection.autocommit = True
        return connection

    def http_link(self, gate="api"):
        return http.client.HTTPConnection(LOOPBACK, self.ports[gate], timeout=PATIENCE)


class NotifyingSidecar(Sidecar):
    """Its service manager listens at `manager`."""

    def __init__(self, case, manager):
        super().__init__(case)
        self.manager = manager

    def command(self):
        return ["env", f"NOTIFY_SOCKET={self.manager}", *super().command()]


def ask(link, target, token, method="PUT"):
    """The status."""
    link.request(method, target, b"v", {"Fencing-Token": str(token)})
    answer = link.getresponse()
    answer.read()
    return answer.status


class ReloadTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer(hba=[f"host all keeper {LOOPBACK}/32 scram-sha-256"]))
        for user in ("alice", "gate", "keeper"):
            cls.server.user(user)
        cls.server.install(gate_users=["gate", "keeper"])
        cls.server.sql("CREATE TABLE writes (who text)")
        cls.server.sql("GRANT ALL ON writes TO alice, gate")
        cls.upstream = cls.enterClassContext(Upstream())

    def setUp(self):
        self.redis = self.start(RedisServer())
        self.addCleanup(self.server.sql, "TRUNCATE writes; TRUNCATE fencegate.marks")
        self.sidecar = self.start(Sidecar(self))

    def client(self, tag=None):
        return self.start(self.sidecar.redis(tag))

    def session(self, tag=None):
        return self.start(contextlib.closing(self.sidecar.postgres(tag)))

    def link(self, *gate):
        return self.start(contextlib.closing(self.sidecar.http_link(*gate)))


class Load:
    """Calls `step` again and again in a thread, until the end; what failed is kept."""

    def __init__(self, step):
        self.step, self.done, self.failed, self.over = step, 0, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def run(self):
        while not self.over.is_set() and not self.failed:
            try:
                self.step()
                self.done += 1
            except Exception as error:  # whatever a client's library makes of it
                self.failed.append(error)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def demand(said, wanted):
    if said != wanted:
        raise AssertionError(f"{said!r}")


class UnderLoad(ReloadTest):
    def steps(self):
        """Of each gate: one connection that stays, and one for each request."""
        sidecar = self.sidecar
        client, session, link = self.client("orders=34"), self.session("orders=34"), self.link()

        def new_client():
            with sidecar.redis("orders=34") as one:
                demand(one.call("SET", "k", "v"), b"OK")

        def new_session():
            with contextlib.closing(sidecar.postgres("orders=34")) as one:
                run_sql(one, "INSERT INTO writes VALUES ('new')")

        def new_link():
            with contextlib.closing(sidecar.http_link()) as one:
                demand(ask(one, "/kv/a", 34), 200)
                demand(ask(one, "/files/1", 34), 200)

        return [lambda: demand(client.call("SET", "k", "v"), b"OK"), new_client,
                lambda: run_sql(session, "INSERT INTO writes VALUES ('old')"), new_session,
                lambda: demand(ask(link, "/kv/b", 34), 200), new_link]

    def test_no_request_fails_and_no_connection_ends(self):
        sidecar = self.sidecar
        loads = [self.start(Load(step)) for step in self.steps()]
        for number in range(1, 13):
            for gate in sidecar.config["gates"]:
                gate["connections_max"] = 1000 + number
            if number % 3:
                self.assertEqual(sidecar.take_over()["changed"], ["cache", "db", "api"])
            else:
                sidecar.write()
                os.kill(sidecar.pid, signal.SIGHUP)
                self.assertTrue(eventually(lambda: sidecar.generation() == number + 1))
            before = [load.done for load in loads]
            self.assertTrue(eventually(lambda: all(load.failed or load.done > was + 3
                                                   for load, was in zip(loads, before))))
            self.assertEqual([load.failed for load in loads], [[]] * len(loads))
        for load in loads:
            load.__exit__()
        self.assertEqual([load.failed for load in loads], [[]] * len(loads))
        self.assertEqual(sidecar.outcomes(), [12, 0, 0])
        # Those of the three that stay are of the first configuration.
        for name in sidecar.ports:
            self.assertTrue(eventually(lambda name=name: sidecar.of(name, "connections") == 1), name)

    def test_a_password_is_rotated(self):
        sidecar = self.sidecar
        kept = {name: os.path.join(sidecar.folder, name) for name in ("cache", "db", "store")}

        def rotate(password):
            """At the servers first, where the connections that are there go on."""
            self.redis.cli.call("ACL", "SETUSER", "keeper", "on", "resetpass", f">{password}", "~*", "&*", "+@all")
            self.server.sql(f"ALTER ROLE keeper PASSWORD '{password}'")
            for path in kept.values():
                with open(path, "w") as file:
                    file.write(password + "\n")

        rotate("one")
        postgres = f"postgres://keeper@{LOOPBACK}:{self.server.port}/postgres"
        redis = f"redis://keeper@{LOOPBACK}:{self.redis.port}"
        sidecar.gate_keys("cache").update(upstream=redis, password_file=kept["cache"])
        sidecar.gate_keys("db").update(upstream=postgres, password_file=kept["db"])
        sidecar.config["stores"] = {"cache": {"url": redis, "password_file": kept["store"]},
                                    "ledger": {"url": postgres, "password_file": kept["store"], "pool": 4}}
        sidecar.take_over()
        loads = [self.start(Load(step)) for step in self.steps()]
        for number, password in enumerate(("two", "three")):
            rotate(password)
            os.kill(sidecar.pid, signal.SIGHUP)
            self.assertTrue(eventually(lambda: sidecar.generation() == 3 + number))
            self.assertTrue(eventually(lambda: sidecar.up()))
            before = [load.done for load in loads]
            self.assertTrue(eventually(lambda: all(load.failed or load.done > was + 3
                                                   for load, was in zip(loads, before))))
            self.assertEqual([load.failed for load in loads], [[]] * len(loads))

    def test_a_file_with_a_password_is_read_again_by_itself(self):
        sidecar = self.sidecar
        path = os.path.join(sidecar.folder, "password")
        before = self.client("orders=34")

        def hold(password):
            with open(path + ".new", "w") as file:
                file.write(password + "\n")
            os.rename(path + ".new", path)

        def says(password):
            self.redis.cli.call("ACL", "SETUSER", "keeper", "on", f">{password}", "~*", "&*", "+@all")
            hold(password)

        says("one")
        sidecar.gate_keys("cache").update(upstream=f"redis://keeper@{LOOPBACK}:{self.redis.port}", password_file=path)
        certificate, key = Authority(sidecar.folder, "authority").issue("gate")
        sidecar.gate_keys("api")["tls"] = {"cert": certificate, "key": key}
        sidecar.take_over()
        client = self.client("orders=34")
        # What else the configuration says by now is not taken over with it, not even an error in it, or in a key.
        with open(key, "w") as file:
            file.write("half of")
        for number, text in enumerate((None, "gates: [")):
            sidecar.gate_keys("db")["connections_max"] = 5
            sidecar.write(text)
            says(f"two{number}")
            self.assertTrue(eventually(lambda: sidecar.generation() == 3 + number))
            changed = [line for line in sidecar.log_lines() if line["msg"] == "the configuration was taken over"][-1]
            self.assertEqual((changed.get("changed"), changed["passwords"]), (None, "gate:cache"))
        # One that nobody can use is tried once; the next good one is taken.
        hold("x\0y")
        os.unlink(path)
        self.assertTrue(eventually(lambda: sidecar.outcomes()[2] == 1))
        says("three")
        self.redis.cli.call("ACL", "SETUSER", "keeper", "<one", "<two0", "<two1")
        self.assertTrue(eventually(lambda: sidecar.generation() == 5))
        # The gate has to sign in again; of its clients it asks no password.
        ids = self.keepers_connections()
        self.assertNotEqual(ids, [])
        self.redis.cli.call("CLIENT", "KILL", "USER", "keeper")
        self.assertTrue(eventually(lambda: [one for one in self.keepers_connections() if one not in ids]))
        for one in (before, client, self.client("orders=34")):
            eventually(lambda one=one: one.call("SET", "k", "v") == b"OK")
        self.assertEqual(sidecar.outcomes(), [4, 0, 1])

    def keepers_connections(self):
        """By their ids."""
        lines = self.redis.cli.call("CLIENT", "LIST").decode().splitlines()
        return [line.split()[0] for line in lines if " user=keeper " in line]

    def test_a_hundred_leave_nothing_behind(self):
        sidecar = self.sidecar

        def descriptors():
            return len(os.listdir(f"/proc/{sidecar.pid}/fd"))

        def reload(number):
            for gate in sidecar.config["gates"]:
                gate["connections_max"] = 1000 + number
            sidecar.take_over()
            with sidecar.redis("orders=34") as client:
                self.assertEqual(client.call("SET", "k", "v"), b"OK")

        for number in range(10):
            reload(number)
        eventually(lambda: sidecar.retired() == 30)
        eventually(lambda: '"msg":"hazard"' in sidecar.log())  # for which it asks servers once, soon after its start
        before, memory = descriptors(), sidecar.rss_bytes()
        for number in range(10, 110):
            reload(number)
        self.assertTrue(eventually(lambda: sidecar.retired() == 330))
        self.assertTrue(eventually(lambda: descriptors() <= before + 2), (before, descriptors()))
        if not os.environ.get("FENCEGATE_SANITIZED"):
            self.assertLess(sidecar.rss_bytes() - memory, 8 << 20)
        self.assertTrue(eventually(lambda: sidecar.of("cache", "connections") == 0))
        self.assertEqual(sidecar.of("cache", "connections_total"), 110)
        self.assertEqual(sidecar.generation(), 111)
        self.assertEqual(self.server.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = ''"
                                           " AND datname = 'postgres' AND pid <> pg_backend_pid()") <= 20, True)


class Gates(ReloadTest):
    def test_one_is_added_and_removed(self):
        sidecar = self.sidecar
        port = free_port()
        more = {"name": "second", "protocol": "redis", "listen": f"{LOOPBACK}:{port}",
                "upstream": f"redis://{LOOPBACK}:{self.redis.port}"}
        sidecar.config["gates"].append(more)
        self.assertEqual(sidecar.take_over(), {"outcome": "applied", "generation": 2, "added": ["second"], "changed": [],
                                               "removed": [], "unchanged": ["cache", "db", "api"], "passwords": []})
        client = self.start(Resp(port, name="fence:orders=34"))
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual([gate["name"] for gate in self.status()["gates"]], ["cache", "second", "db", "api"])

        sidecar.config["gates"].pop()
        self.assertEqual(sidecar.take_over()["removed"], ["second"])
        self.assertRaises(ConnectionRefusedError, Resp, port)
        self.assertEqual(client.call("SET", "k", "v"), b"OK", "it was there before")
        self.assertEqual(sidecar.of("second", "connections"), 1)
        self.assertEqual([gate["name"] for gate in self.status()["gates"]], ["cache", "db", "api"])
        client.close()
        self.assertTrue(eventually(lambda: 'gate="second"' not in sidecar.http("/metrics")[1]))

    def test_a_store_is_added_and_removed_with_its_gate(self):
        sidecar = self.sidecar
        sidecar.ports["more"] = free_port()
        sidecar.config["stores"]["archive"] = sidecar.config["stores"]["ledger"] | {"pool": 2}
        sidecar.config["gates"].append(sidecar.gate_keys("api") | {
            "name": "more", "listen": f"{LOOPBACK}:{sidecar.ports['more']}", "store": "archive",
            "routes": [{"match": "PUT /files/{id}", "resource": "orders", "guarantee": "held"}]})
        self.assertEqual(sidecar.take_over(), {"outcome": "applied", "generation": 2, "added": ["more"], "changed": [],
                                               "removed": [], "unchanged": ["cache", "db", "api"], "passwords": []})
        link = self.link("more")
        self.assertEqual([ask(link, "/files/1", token) for token in (34, 33)], [200, 412])
        eventually(lambda: sidecar.metrics()['fencegate_store_up{gate="more",store="archive"}'] == 1)
        self.assertIn('fencegate_store_connections{gate="more",store="archive",state="idle"}', sidecar.metrics())
        self.assertIn('fencegate_store_waiting{gate="more",store="archive"}', sidecar.metrics())

        del sidecar.config["stores"]["archive"]
        sidecar.write()
        status, refused = sidecar.reload()
        self.assertEqual(status, 422, "it is in use")
        self.assertIn("archive", refused["detail"])
        sidecar.config["gates"].pop()
        answer = sidecar.take_over()
        self.assertEqual((answer["added"], answer["removed"], answer["unchanged"]), ([], ["more"], ["cache", "db", "api"]))
        self.assertEqual(ask(link, "/files/1", 35), 200, "it was there before")
        link.close()
        self.assertRaises(ConnectionRefusedError, connect, sidecar.ports.pop("more"))
        self.assertTrue(eventually(lambda: 'store="archive"' not in sidecar.http("/metrics")[1]))
        self.assertEqual([ask(self.link(), "/files/1", token) for token in (35, 34)], [200, 412])

    def status(self):
        return json.loads(self.sidecar.http("/api/v1/status")[1])

    def test_a_listener_moves(self):
        sidecar = self.sidecar
        client = self.client("orders=34")
        former = sidecar.ports["cache"]
        sidecar.ports["cache"] = free_port()
        sidecar.gate_keys("cache")["listen"] = f"{LOOPBACK}:{sidecar.ports['cache']}"
        self.assertEqual(sidecar.take_over()["changed"], ["cache"])
        self.assertRaises(ConnectionRefusedError, Resp, former)
        for one in (client, self.client("orders=34")):
            self.assertEqual(one.call("SET", "k", "v"), b"OK")
        # To where another one listens that is no gate of its own: then everything stays.
        with contextlib.closing(socket.create_server((LOOPBACK, 0))) as other:
            sidecar.gate_keys("cache")["listen"] = f"{LOOPBACK}:{other.getsockname()[1]}"
            sidecar.gate_keys("db")["connections_max"] = 7
            sidecar.write()
            status, answer = sidecar.reload()
            self.assertEqual(status, 422)
            self.assertIn("gate cache: cannot listen on", answer["detail"])
            self.assertEqual(self.client("orders=34").call("SET", "k", "v"), b"OK")
        # And two change their places.
        ports = sidecar.ports["cache"], sidecar.ports["db"]
        sidecar.ports["db"], sidecar.ports["cache"] = ports
        for name in ("cache", "db"):
            sidecar.gate_keys(name)["listen"] = f"{LOOPBACK}:{sidecar.ports[name]}"
        self.assertEqual(sidecar.take_over()["changed"], ["cache", "db"])
        self.assertEqual(self.client("orders=34").call("SET", "k", "v"), b"OK")
        run_sql(self.session("orders=34"), "INSERT INTO writes VALUES ('moved')")

    def test_a_listener_gets_wider_and_narrower(self):
        sidecar = self.sidecar
        client = self.client("orders=34")
        for host in ("0.0.0.0", "", LOOPBACK):
            sidecar.gate_keys("cache")["listen"] = f"{host}:{sidecar.ports['cache']}"
            self.assertEqual(sidecar.take_over()["changed"], ["cache"])
            for one in (client, self.client("orders=34")):
                self.assertEqual(one.call("SET", "k", "v"), b"OK")
            if host != LOOPBACK:
                socket.create_connection(("127.0.0.2", sidecar.ports["cache"]), PATIENCE).close()
        with contextlib.closing(socket.socket()) as other:  # the port is not shared with another fencegate
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.assertRaises(OSError, other.bind, (LOOPBACK, sidecar.ports["cache"]))

    def test_who_has_connected_to_a_listener_that_goes_is_served(self):
        sidecar = self.start(Sidecar(self, threads=1))
        former = sidecar.ports["cache"]
        sidecar.ports["cache"] = free_port()
        sidecar.gate_keys("cache")["listen"] = f"{LOOPBACK}:{sidecar.ports['cache']}"
        sidecar.write()
        # They and the order to read it anew wait for a process that stands still.
        os.kill(sidecar.pid, signal.SIGSTOP)
        clients = [self.start(Resp(former)) for _ in range(1000)]
        os.kill(sidecar.pid, signal.SIGHUP)
        os.kill(sidecar.pid, signal.SIGCONT)
        self.assertTrue(eventually(lambda: sidecar.generation() == 2))
        self.assertRaises(ConnectionRefusedError, Resp, former)
        for client in clients:
            self.assertEqual(client.call("CLIENT", "SETNAME", "fence:orders=34"), b"OK")
            self.assertEqual(client.call("SET", "k", "v"), b"OK")

    def test_the_file_of_a_socket_stays_and_goes_with_who_listens(self):
        sidecar = self.sidecar
        path = os.path.join(sidecar.folder, "cache.sock")
        keys = sidecar.gate_keys("cache")
        keys["listen"] = f"unix:{path}"
        sidecar.take_over()
        client = self.start(Resp(path, name="fence:orders=34"))
        for number in range(3):
            keys["connections_max"] = 100 + number
            sidecar.take_over()
            self.assertEqual(self.start(Resp(path, name="fence:orders=34")).call("SET", "k", "v"), b"OK")
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        # One that comes to nothing takes no file with it.
        keys["connections_max"] = 99
        sidecar.gate_keys("db")["listen"] = f"{LOOPBACK}:{self.redis.port}"
        sidecar.write()
        self.assertEqual(sidecar.reload()[0], 422)
        self.assertEqual(self.start(Resp(path, name="fence:orders=34")).call("SET", "k", "v"), b"OK")
        sidecar.gate_keys("db")["listen"] = f"{LOOPBACK}:{sidecar.ports['db']}"
        keys["listen"] = f"unix:{path}.2"
        sidecar.take_over()
        self.assertFalse(os.path.exists(path))
        self.assertTrue(os.path.exists(path + ".2"))

    def test_a_route_changes(self):
        sidecar = self.sidecar
        link = self.link()
        self.assertEqual(ask(link, "/kv/a", 34), 200)
        sidecar.gate_keys("api")["routes"][0]["match"] = "PUT /values/{key}"
        self.assertEqual(sidecar.take_over()["changed"], ["api"])
        new = self.link()
        self.assertEqual([ask(link, "/kv/a", 34), ask(new, "/values/a", 34)], [200, 200])
        self.assertEqual([ask(link, "/values/a", 34), ask(new, "/kv/a", 34)], [403, 403])


    def test_one_that_goes_while_it_connects_says_nothing_of_its_server(self):
        sidecar = self.sidecar
        keys = sidecar.gate_keys("db")
        server = keys["upstream"]
        with socket.create_server((LOOPBACK, 0)) as silent:  # lets in, and answers nothing
            silent.settimeout(PATIENCE)
            keys["upstream"] = f"postgres://{SUPERUSER}@{LOOPBACK}:{silent.getsockname()[1]}/postgres"
            sidecar.take_over()
            with silent.accept()[0]:
                keys["upstream"] = server
                sidecar.take_over()
                eventually(lambda: sidecar.retired() == 2)
        self.assertEqual(sidecar.warnings(), [])


class Tokens(ReloadTest):
    def test_a_policy_is_that_with_which_a_connection_began(self):
        sidecar = self.sidecar
        before = self.client()
        self.assert_error(before.call("SET", "k", "v"), "FENCEMISSING")
        sidecar.gate_keys("cache")["policy"] = {"missing_token": "allow"}
        sidecar.take_over()
        behind = self.client()
        self.assertEqual(behind.call("SET", "k", "v"), b"OK")
        self.assert_error(before.call("SET", "k", "v"), "FENCEMISSING")

    def test_who_was_superseded_by_way_of_the_new_one_is_refused_by_the_former(self):
        sidecar = self.sidecar
        client, session, link = self.client("orders=34"), self.session("orders=34"), self.link()
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        run_sql(session, "INSERT INTO writes VALUES ('34')")
        self.assertEqual([ask(link, "/kv/a", 34), ask(link, "/files/1", 34)], [200, 200])
        for gate in sidecar.config["gates"]:
            gate["connections_max"] = 77
        sidecar.take_over()
        self.assertEqual(self.client("orders=35").call("SET", "k", "35"), b"OK")
        run_sql(self.session("orders=35"), "INSERT INTO writes VALUES ('35')")
        self.assertEqual(ask(self.link(), "/files/1", 35), 200)
        self.assert_error(client.call("SET", "k", "34"), "FENCED")
        self.assertEqual(self.redis.cli.call("GET", "k"), b"35")
        with self.assertRaises(psycopg2.Error):
            run_sql(session, "INSERT INTO writes VALUES ('stale')")
        self.assertEqual(ask(link, "/files/1", 34), 412)
        # And the other way round: one of the former raises.
        with contextlib.ExitStack() as stack:
            late = stack.enter_context(sidecar.redis())
            for gate in sidecar.config["gates"]:
                gate["connections_max"] = 78
            sidecar.take_over()
            new = stack.enter_context(sidecar.redis("orders=35"))
            self.assertEqual(new.call("SET", "k", "35"), b"OK")
            self.assertEqual(late.call("CLIENT", "SETNAME", "fence:orders=36"), b"OK")
            self.assertEqual(late.call("SET", "k", "36"), b"OK")
            self.assert_error(new.call("SET", "k", "stale"), "FENCED")
        self.assertEqual(self.server.sql("SELECT who FROM writes ORDER BY who"), [("34",), ("35",)])


class Errors(ReloadTest):
    def check(self):
        done = subprocess.run([self.sidecar.binary, "check", "-c", self.sidecar.path], capture_output=True, text=True,
                              timeout=PATIENCE)
        return done.stderr.splitlines()

    def test_a_file_with_errors_changes_nothing(self):
        sidecar = self.sidecar
        client = self.client("orders=34")
        sidecar.gate_keys("cache")["connections_max"] = "many"
        sidecar.gate_keys("api")["routes"][0]["resources"] = "x"
        sidecar.write()
        status, answer = sidecar.reload()
        self.assertEqual((status, answer["status"], answer["type"]), (422, 422, "urn:fencegate:configuration"))
        self.assertEqual(["{file}:{line}:{column}: {message}".format(**one) for one in answer["errors"]], self.check())
        self.assertEqual(len(answer["errors"]), 2)
        self.assertEqual(answer["detail"], self.check()[0])
        self.assertTrue(all(one["line"] > 1 for one in answer["errors"]))
        sidecar.write("gates: [")
        os.kill(sidecar.pid, signal.SIGHUP)
        self.assertTrue(eventually(lambda: sidecar.outcomes() == [0, 0, 2]))
        self.assertIn(self.check()[0], [line.get("detail") for line in sidecar.log_lines()])
        os.unlink(sidecar.path)
        self.assertEqual(sidecar.reload()[0], 422)
        self.assertEqual((client.call("SET", "k", "v"), sidecar.generation()), (b"OK", 1))
        # The next good one is taken.
        del sidecar.gate_keys("api")["routes"][0]["resources"]
        sidecar.gate_keys("cache")["connections_max"] = 5
        self.assertEqual(sidecar.take_over()["generation"], 2)
        self.assertEqual(sidecar.outcomes(), [1, 0, 3])

    def test_what_needs_a_restart_is_refused_by_its_name(self):
        sidecar = self.sidecar
        for key, value in (("threads", 3), ("busy_poll_us", 50), ("admin", {"listen": f"{LOOPBACK}:{free_port()}"}),
                           ("leases", {"issuers": {"one": {"store": "ledger"}}})):
            before = sidecar.config.get(key)
            sidecar.config[key] = value
            sidecar.gate_keys("cache")["connections_max"] = 5
            sidecar.write()
            status, answer = sidecar.reload()
            self.assertEqual(status, 422, key)
            self.assertIn(f"{sidecar.path}: {key} has changed: that needs a restart", answer["detail"])
            if before is None:
                del sidecar.config[key]
            else:
                sidecar.config[key] = before
        self.assertEqual(sidecar.generation(), 1)

    def test_the_command_of_the_page(self):
        sidecar = self.sidecar
        sidecar.gate_keys("cache")["connections_max"] = 5
        sidecar.write()
        line = documents.command("docs/operations.md", "fencegate reload --admin")
        told = documents.run_shell(line.replace("9180", str(sidecar.admin_port)), sidecar.folder)
        self.assertEqual(told, "the configuration is applied, generation 2\n  changed: cache\n")
        sidecar.gate_keys("cache")["connections_max"] = 6
        sidecar.write()
        self.assertIn(json.dumps(sidecar.reload()[1] | {"generation": 2}, separators=(",", ":")), documents.text("docs/operations.md"))

    def test_the_command_tells_of_a_refusal(self):
        sidecar = self.sidecar

        def ask(port):
            return subprocess.run([sidecar.binary, "reload", "--admin", f"{LOOPBACK}:{port}"], capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)

        self.assertEqual(ask(sidecar.admin_port).stdout, "the configuration is unchanged, generation 1\n")
        sidecar.gate_keys("cache")["connections_max"] = "many"
        sidecar.write()
        refused = ask(sidecar.admin_port)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertEqual(refused.stderr.splitlines()[1:], self.check())
        self.assertEqual(ask(free_port()).returncode, 1)

    def test_the_same_once_more_is_no_generation(self):
        self.assertEqual(self.sidecar.take_over()["outcome"], "unchanged")
        self.assertEqual((self.sidecar.generation(), self.sidecar.outcomes()), (1, [0, 1, 0]))

    def test_one_at_a_time(self):
        sidecar = self.sidecar
        silent = self.start(SilentPort())
        keys = sidecar.gate_keys("cache")
        keys["upstream"], keys["timeouts"] = f"redis://{LOOPBACK}:{silent.port}", {"connect": "8s"}
        sidecar.write()
        answers = []
        both = [threading.Thread(target=lambda: answers.append(sidecar.reload()), daemon=True) for _ in range(2)]
        for one in both:
            one.start()
        eventually(lambda: answers)
        # The former one serves meanwhile.
        self.assertEqual(self.client("orders=34").call("SET", "k", "v"), b"OK")
        for one in both:
            one.join(PATIENCE)
        self.assertEqual([status for status, _ in answers], [409, 200])
        self.assertEqual(sidecar.of("cache", "backend_up"), 0)
        sidecar.terminate()
        self.assertEqual(sidecar.wait(), 0)

    def test_no_page_of_a_browser_can_have_it_read(self):
        link = http.client.HTTPConnection(LOOPBACK, self.sidecar.admin_port, timeout=PATIENCE)
        self.addCleanup(link.close)
        for fields in ({"Origin": "http://example.org"}, {"Host": "example.org"}, {"Sec-Fetch-Site": "cross-site"}):
            link.request("POST", "/reload", headers=fields)
            answer = link.getresponse()
            answer.read()
            self.assertEqual(answer.status, 403, fields)
        self.assertEqual(self.sidecar.http("/reload")[0], 405)
        self.assertEqual(self.sidecar.outcomes(), [0, 0, 0])


class Cancels(ReloadTest):
    """Of a statement of a session that began under a former configuration."""

    def setUp(self):
        super().setUp()
        self.wire = self.start(Wire(self.sidecar.ports["db"], user="alice", options="-c fencing.tokens=orders=34"))
        self.key = next(body for kind, body in self.wire.until_ready() if kind == b"K")
        self.wire.send(query("SELECT pg_sleep(600)"))
        eventually(lambda: self.server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))

    def assert_cancels(self):
        with contextlib.closing(connect(self.sidecar.ports["db"])) as asks:
            asks.sendall(cancel_request(int.from_bytes(self.key[:4], "big"), self.key[4:]))
            self.assertEqual(asks.recv(1), b"", "the answer to it")
        self.assertEqual([fields(body)["C"] for kind, body in self.wire.until_ready() if kind == b"E"], ["57014"])

    def test_it_reaches_the_server_as_its_session_did(self):
        self.sidecar.gate_keys("db")["upstream"] += "?sslmode=require"  # which the server has not
        self.sidecar.take_over()
        self.assert_cancels()

    def test_of_a_gate_that_was_removed_and_has_come_back(self):
        sidecar = self.sidecar
        gates = sidecar.config["gates"]
        sidecar.config["gates"] = [gate for gate in gates if gate["name"] != "db"]
        self.assertEqual(sidecar.take_over()["removed"], ["db"])
        sidecar.config["gates"] = gates
        sidecar.gate_keys("db")["upstream"] = f"postgres://{SUPERUSER}@{LOOPBACK}:{free_port()}/postgres"  # another's
        self.assertEqual(sidecar.take_over()["added"], ["db"])
        self.assert_cancels()


class TheEnd(ReloadTest):
    def test_a_drain_ends_those_of_former_configurations_too(self):
        sidecar = self.sidecar
        client, session, link = self.client("orders=34"), self.session("orders=34"), self.link()
        self.assertEqual(client.call("SET", "k", "v"), b"OK")
        self.assertEqual(ask(link, "/kv/a", 34), 200)
        for gate in sidecar.config["gates"]:
            gate["connections_max"] = 77
        sidecar.take_over()
        others = self.client("orders=34"), self.session("orders=34"), self.link()
        self.assertEqual(others[0].call("SET", "k", "v"), b"OK")
        self.assertEqual(ask(others[2], "/kv/a", 34), 200)
        sidecar.terminate()
        self.assertEqual(sidecar.wait(40), 0)
        for one in (session, others[1]):
            with self.assertRaises(psycopg2.Error):
                run_sql(one, "SELECT 1")

    def manager(self):
        """Is told by the sidecar, which begins anew, what it does, as systemd is."""
        name = f"fencegate-test-reload-{os.getpid()}"
        manager = self.start(contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
        manager.bind(f"\0{name}")
        manager.settimeout(PATIENCE)
        self.sidecar = self.start(NotifyingSidecar(self, f"@{name}"))
        self.assertEqual(self.told(manager), "READY=1")
        return manager

    @staticmethod
    def told(manager):
        return manager.recv(4096).decode().splitlines()[0]

    def assert_told_no_more(self, manager):
        manager.setblocking(False)
        self.assertRaises(BlockingIOError, manager.recv, 4096)

    def held(self):
        """A session that keeps a drain going, as it is in a transaction."""
        session = self.session("orders=34")
        session.autocommit = False
        run_sql(session, "SELECT 1")
        return session

    def refuses(self, port):
        """Whether nobody listens there."""
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), PATIENCE).close()
            return False
        return True

    def test_one_that_is_not_settled_ends_with_the_beginning_of_the_drain(self):
        manager = self.manager()
        sidecar = self.sidecar
        sidecar.config["drain_timeout"] = "15s"
        sidecar.take_over()
        self.assertEqual([self.told(manager) for _ in range(2)], ["RELOADING=1", "READY=1"])
        session = self.held()
        silent = self.start(SilentPort())
        keys = sidecar.gate_keys("cache")
        keys["upstream"], keys["timeouts"] = f"redis://{LOOPBACK}:{silent.port}", {"connect": "60s"}
        sidecar.write()
        answers = []
        with Load(lambda: answers.append(sidecar.reload())) as load:
            eventually(lambda: sidecar.log().count('"msg":"listening"') == 4)  # three of the start, and the one that connects
            load.over.set()
            sidecar.terminate()
            eventually(lambda: answers or load.failed)
        self.assertEqual([(status, answer["detail"]) for status, answer in answers], [(422, "the process is about to end")])
        # Nobody serves what connects now: no socket of either takes it.
        eventually(lambda: self.refuses(sidecar.ports["cache"]))
        run_sql(session, "SELECT 1")
        session.commit()
        self.assertEqual(sidecar.wait(), 0)
        self.assertEqual([self.told(manager) for _ in range(2)], ["RELOADING=1", "STOPPING=1"])
        self.assert_told_no_more(manager)

    def test_one_that_is_examined_comes_to_nothing_in_a_drain(self):
        manager = self.manager()
        sidecar = self.sidecar
        session = self.held()
        silent = self.start(SilentPort())
        keys = sidecar.gate_keys("cache")
        keys["upstream"], keys["timeouts"] = f"redis://{LOOPBACK}:{silent.port}", {"connect": "2s"}
        sidecar.config["strict"] = True
        sidecar.write()
        answers = []
        with Load(lambda: answers.append(sidecar.reload())) as load:
            self.assertEqual(self.told(manager), "RELOADING=1")
            load.over.set()
            sidecar.terminate()
            eventually(lambda: answers or load.failed)
        self.assertEqual([status for status, _ in answers], [422])
        self.assertEqual(sidecar.log().count('"msg":"listening"'), 3)
        session.commit()
        self.assertEqual(sidecar.wait(), 0)
        self.assertEqual(self.told(manager), "STOPPING=1")
        self.assert_told_no_more(manager)


if __name__ == "__main__":
    main()
