"""What a soak is about: servers that keep what they have answered when they are killed, and the two sidecars before them."""

import contextlib
import os
import secrets
import signal
import ssl
from collections import Counter
from types import SimpleNamespace

from history import http_run
from history.http_run import ROUTES, Backends
from history.pg_clients import USER
from history.pg_run import Server
from pg_wire import SSL_REQUEST
from processes import LOOPBACK, connect, eventually
from redis_server import RedisServer
from test_hold import _listens
from test_reload import Sidecar
from tls import Authority, client_context, replace, secure

KEEPER = "keeper"  # who the sidecars are to both servers
POOL = 4
LEASES = {"ttl": "5s", "margin": "1s", "skew": "100ms", "round_trip": "500ms", "stop_grace": "500ms"}


class Redis(RedisServer):
    def __init__(self):
        # One append-only file: the judge reads all marks from it.
        super().__init__(appendfsync="always", auto_aof_rewrite_percentage=0)

    def prepare(self):
        self.conf["aclfile"] = os.path.join(self.folder, "users.acl")
        with open(self.conf["aclfile"], "w"):
            pass
        super().prepare()


class Postgres(Server):
    def __init__(self):
        super().__init__(open_marks=False, pooled=False)
        self.hba = [f"host all {KEEPER} {LOOPBACK}/32 scram-sha-256"]
        self.conf["max_connections"] = 300
        self._commits = None

    def commits(self):
        """Once read, they are gone from the server."""
        self._commits = self._commits or super().commits()
        return self._commits

    def power_cut(self):
        """All of its processes at once; then it is started again."""
        self._drop_cli()
        self.stop_process()
        for pid in [*self.backends(), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.wait()
        eventually(self._is_gone)
        self.start()

    def _is_gone(self):
        return not _listens(self.port)


class Upstream(http_run.Upstream):
    def up(self):
        """When it listens: the sidecars come as soon as it does."""
        return self.others() >= 0


class Services(Backends):
    """With the passwords and certificates of the sidecars, in `folder`."""

    def __init__(self, seed, folder):
        super().__init__(seed)
        self.postgres, self.redis, self.upstream = Postgres(), Redis(), Upstream(seed)
        self.folder, self.passwords = folder, []
        self.password_file = os.path.join(folder, "password")
        self.cert, self.key = os.path.join(folder, "shown.crt"), os.path.join(folder, "shown.key")
        self.authority = Authority(folder, "authority")

    def __enter__(self):
        super().__enter__()
        self.postgres.user(KEEPER)
        self.postgres.sql(f"GRANT fencegate_gate TO {KEEPER}; GRANT INSERT, SELECT ON writes TO {KEEPER}")
        self.postgres.sql(f"CREATE TABLE log (n bigint, token bigint, job text); GRANT ALL ON log TO {USER}")
        self.rotate_password()
        self.rotate_certificate()
        return self

    def rotate_password(self):
        """At the servers first. Redis knows the one before, too; it forgets the one before that."""
        self.passwords.append(secrets.token_hex(8))
        call = self.redis.cli.call
        call("ACL", "SETUSER", KEEPER, "on", f">{self.passwords[-1]}", "~*", "&*", "+@all")
        for former in self.passwords[:-2][-1:]:
            call("ACL", "SETUSER", KEEPER, f"<{former}")
        if (saved := call("ACL", "SAVE")) != b"OK":
            raise AssertionError(f"ACL SAVE: {saved}")
        self.postgres.sql(f"ALTER ROLE {KEEPER} PASSWORD '{self.passwords[-1]}'")
        replace(self.password_file, self.passwords[-1].encode() + b"\n")

    def rotate_certificate(self):
        for path, new in zip((self.cert, self.key), self.authority.issue("gate", "DNS:localhost")):
            with open(new, "rb") as file:
                replace(path, file.read())

    def shown_by(self, sidecar):
        """Whether clients are shown the certificate that is in the file."""
        with connect(sidecar.ports["db"], 5) as sock:
            sock.sendall(SSL_REQUEST)
            if sock.recv(1) != b"S":
                return False
            with secure(sock, client_context(self.authority)) as secured:
                shown = secured.getpeercert(binary_form=True)
        with open(self.cert) as file:
            return shown == ssl.PEM_cert_to_DER_cert(file.read())


class SoakSidecar(Sidecar):
    """`network`: the services, or proxies in front of them. With `leases` it has no password: where there are leases, a
    new one needs a restart."""

    def __init__(self, services, network, binary=None, leases=False):
        postgres, redis, upstream = network.all
        super().__init__(SimpleNamespace(redis=redis, server=postgres, upstream=upstream), binary=binary)
        self.services, self.with_leases = services, leases
        self.back = self.front = None

    def prepare(self):
        super().prepare()
        case, user, password = self.case, f"{KEEPER}@", {"password_file": self.services.password_file}
        if self.with_leases:
            user, password = "", {}
        redis = {"url": f"redis://{user}{LOOPBACK}:{case.redis.port}"} | password
        postgres = {"url": f"postgres://{user or 'gate@'}{LOOPBACK}:{case.server.port}/postgres"} | password
        self.config |= {"drain_timeout": "3s", "stores": {"cache": redis, "ledger": postgres | {"pool": POOL}}}
        self.gate_keys("cache").update(upstream=redis["url"], share_writes="always", **password)
        self.gate_keys("db").update(upstream=postgres["url"], comment_tags="lead",
                                    tls={"cert": self.services.cert, "key": self.services.key}, **password)
        self.gate_keys("api").update(routes=ROUTES, hold_grace="100ms")
        if self.with_leases:
            self.socket = os.path.join(self.folder, "lease.sock")
            self.config["leases"] = {"issuers": {"main": {"store": "ledger"}}, "listen": [f"unix:{self.socket}"]} | LEASES
        self.write()

    def up(self):
        """A server may be away meanwhile."""
        return self.http("/readyz")[0] == 200

    # What test_hold.Hold asks of gates.
    @property
    def pg_port(self):
        return self.ports["db"]

    @property
    def redis_port(self):
        return self.ports["cache"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def connections(self):
        """{where to: how many of its descriptors}; `else`: what is no TCP connection, and listeners."""
        with open(f"/proc/{self.pid}/net/tcp") as file:
            rows = [line.split() for line in file][1:]
        remote = {row[9]: int(row[2].split(":")[1], 16) for row in rows}
        names = {self.case.redis.port: "Redis", self.case.server.port: "PostgreSQL", self.case.upstream.port: "the service"}
        found = Counter()
        for number in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                port = remote.get(os.readlink(f"/proc/{self.pid}/fd/{number}").removeprefix("socket:[").rstrip("]"), 0)
                found[names.get(port, "clients") if port else "else"] += 1
        return dict(found)
