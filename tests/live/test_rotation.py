"""Passwords that change in their files while leases are held: of the servers that grant and seal them, and of gates that hold one."""

import contextlib
import http.client
import os
import secrets

import figures
import psycopg2
from http_gate import Upstream
from lease_gates import LeaseGates
from live_test import LiveTest, main
from postgres import PostgresServer
from processes import LOOPBACK, PATIENCE, eventually
from redis_server import RedisServer
from resp import Resp

LONG = {"ttl": "20s"}  # both servers are left and reached again in that time


class Rotated(LeaseGates):
    """Its servers know it as `gate`, by the password in one file for both."""

    @property
    def password(self):
        return os.path.join(self.folder, "password")

    def configure(self):
        out = super().configure()
        for each in (*out["stores"].values(), *out["gates"]):
            key = "url" if "url" in each else "upstream"
            if each[key].startswith("redis:"):
                each[key] = f"redis://gate@{LOOPBACK}:{self.redis.port}"
            if not each[key].startswith("http:"):
                each["password_file"] = self.password
        return out

    def prepare(self):
        self.rotate("one")
        super().prepare()

    def rotate(self, password):
        """At the servers, then in the file; nothing that is connected ends by it."""
        self.database.sql(f"ALTER ROLE gate PASSWORD '{password}'")
        self.redis.cli.call("ACL", "SETUSER", "gate", "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        with open(self.password + ".new", "w") as file:
            file.write(password + "\n")
        os.rename(self.password + ".new", self.password)

    def cut_off(self):
        """By both servers: each connection of the gates, the stores and the leases has to be made anew."""
        pids = self.database.sql("SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gate'")
        self.redis.cli.call("CLIENT", "KILL", "USER", "gate")
        left = f"SELECT 1 FROM pg_stat_activity WHERE pid = ANY('{{{','.join(str(pid) for pid, _ in pids)}}}')"
        eventually(lambda: not self.database.sql(left))


class Rotation(LiveTest):
    def setUp(self):
        self.database = self.start(PostgresServer(hba=["host all gate samehost scram-sha-256"]))
        self.redis = self.start(RedisServer())
        self.database.sql("CREATE DATABASE app")
        self.database.user("gate")
        self.database.user("orders")
        self.database.install("app", gate_users=("gate",))
        with contextlib.closing(self.database.connect(database="app")) as admin, admin.cursor() as cursor:
            cursor.execute("CREATE TABLE notes(what text); GRANT ALL ON notes TO orders")
        self.upstream = self.start(Upstream())

    def test_with_leases_of_postgres(self):
        self.passwords_change("ledger")

    def test_with_leases_of_redis(self):
        self.passwords_change("cache")

    def passwords_change(self, issuer):
        sidecar = self.start(Rotated(self.database, self.redis, LONG, upstream=self.upstream, issuer=issuer))
        token = sidecar.hold()
        eventually(lambda: self.can_write(sidecar))
        status, lease = sidecar.api.take(secrets.token_hex(8), wait="10s")
        self.assertEqual(status, 201, lease)

        def is_renewed():
            return sidecar.api.renew(lease)[0] == 200

        for generation, password in enumerate(("two", "three"), 2):
            sidecar.rotate(password)
            eventually(lambda generation=generation: is_renewed() and sidecar.figure("fencegate_config_generation") == generation)
            sidecar.cut_off()
            eventually(is_renewed)
            eventually(lambda: sidecar.api.take(secrets.token_hex(8))[0] == 201)
            eventually(lambda: is_renewed() and self.can_write(sidecar))
            self.assertEqual(sidecar.writer()[1]["tokens"], {"orders": token})
        told = [line for line in figures.log_lines(sidecar.log()) if line["msg"] == "the configuration was taken over"]
        self.assertEqual([(one.get("changed"), one["passwords"]) for one in told],
                         [(None, "store:ledger,store:cache,gate:cache,gate:db")] * 2)

    def can_write(self, sidecar):
        """By way of each gate."""
        with contextlib.suppress(OSError, psycopg2.Error, http.client.HTTPException):
            with Resp(sidecar.redis_port) as client:
                if client.call("SET", "k", "v") != b"OK":
                    return False
            with contextlib.closing(psycopg2.connect(host=LOOPBACK, port=sidecar.pg_port, user="orders", dbname="app",
                                                     connect_timeout=PATIENCE)) as session, session.cursor() as cursor:
                cursor.execute("INSERT INTO notes VALUES ('x')")
                session.commit()
            with contextlib.closing(http.client.HTTPConnection(LOOPBACK, sidecar.http_port, timeout=PATIENCE)) as talk:
                talk.request("PUT", "/orders/7", b"x")
                return talk.getresponse().status == 200
        return False


if __name__ == "__main__":
    main(at_once=2)
