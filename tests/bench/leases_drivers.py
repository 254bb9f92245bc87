"""What asks for leases: the sidecar's API by wrk, and PostgreSQL and Redis themselves, by the SQL and the Lua that the sidecar sends."""

import json
import os
import selectors
import subprocess
import tempfile
import time
import uuid

from contenders import LOOPBACK
from postgres import binary
from redis_scripts import script_of
from resp import Resp, encode

HERE = os.path.dirname(os.path.abspath(__file__))
STRIDE = 1 << 20
RENEW = ("\\set i random(1, {leases})\nSELECT * FROM fencegate.lease_renew(ARRAY['bench-' || :i::int], ARRAY[1::bigint], "
         "ARRAY[lpad(to_hex(:i::int), 32, '0')]);\n")
# A grant, its seal, and its release; each client has a resource of its own.
GRANT = ("\\set i random(1, 1000000000000000)\nSELECT token AS taken FROM fencegate.lease_grant(ARRAY['direct-' || :client_id::text], "
         f"lpad(:i::text, 32, '0'), '', 30000, ARRAY[0::bigint], ARRAY['s'], {STRIDE}) \\gset\n"
         "SELECT * FROM fencegate.seal(ARRAY['direct-' || :client_id::text], ARRAY[:taken::bigint], '{issuer}', lpad(:i::text, 32, '0'));\n"
         "SELECT * FROM fencegate.lease_release(ARRAY['direct-' || :client_id::text], ARRAY[:taken::bigint], "
         "ARRAY[lpad(:i::text, 32, '0')]);\n")


def by_wrk(sidecar, clients, seconds, script, *arguments, threads=1):
    """Requests a second."""
    done = subprocess.run(["wrk", "-t", str(threads), "-c", str(clients), "-d", f"{seconds}s", "-s", os.path.join(HERE, script),
                           f"http://{LOOPBACK}:{sidecar.port}", "--", *map(str, arguments)],
                          capture_output=True, text=True, check=True, timeout=seconds + 60)
    figures = json.loads(done.stdout.splitlines()[-1])
    if figures["status"] or not figures["requests"]:
        raise RuntimeError(f"of {figures['requests']} requests {figures['status']} failed")
    return figures["requests"] / figures["seconds"]


class Postgres:
    title, first = "PostgreSQL", "the same SQL directly, a second"

    def __init__(self, server):
        self.server = server

    def renewals(self, clients, seconds, leases):
        return self._by_pgbench(RENEW.format(leases=leases), clients, seconds)

    def grants(self, clients, seconds):
        ((issuer,),) = self.server.sql_in_app("SELECT issuer FROM fencegate.identity()")
        return self._by_pgbench(GRANT.replace("{issuer}", str(issuer)), clients, seconds)

    def _by_pgbench(self, text, clients, seconds):
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(text)
            script.flush()
            done = subprocess.run([binary("pgbench"), "-n", "-M", "prepared", "-f", script.name, "-c", str(clients), "-j", "1",
                                   "-T", str(seconds), "-h", LOOPBACK, "-p", str(self.server.port), "-U", "gate", "app"],
                                  capture_output=True, text=True, check=True, timeout=seconds + 60)
        return next(float(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("tps ="))


class Redis:
    title, first = "Redis", "the same Lua directly, a second"

    def __init__(self, redis):
        self.redis, self.runs = redis, 0
        front = ("compare_digits", "lease_lead", "lease_rows")
        self.sha = {name: redis.cli.call("SCRIPT", "LOAD", script_of(*names)).decode() for name, names in {
            "grant": (*front, "lease_grant_script"), "renew": (*front, "lease_renew_script"), "release": (*front, "lease_release_script"),
            "seal": ("compare_digits", "seal_marks")}.items()}

    def who(self):
        """The epoch, and the issuer's id."""
        return self.redis.cli.call("GET", "fencegate:epoch"), self.redis.cli.call("GET", "fencegate:issuer").split()[0]

    def renewals(self, clients, seconds, leases):
        """All of one lease: Redis has one thread, and locks no row."""
        epoch, issuer = self.who()
        words = ("EVALSHA", self.sha["renew"], 4, "fencegate:epoch", "fencegate:issuer", "fencegate:lease:{bench-1}",
                 "fencegate:mark:{bench-1}", epoch, issuer, 1, f"{1:032x}")
        if self.redis.cli.call(*words) == [b"0"]:
            raise RuntimeError("not renewed")
        return self._cycles(clients, seconds, lambda _number: [lambda _reply: encode(*words)])

    def grants(self, clients, seconds):
        epoch, issuer = self.who()
        self.runs += 1  # at whose end leases are left that were not released

        def cycle(number):
            r, grant = f"{{direct-{self.runs}-{number}}}", uuid.uuid4().hex
            keys = ("fencegate:epoch", "fencegate:issuer")
            token = []

            def seal(reply):
                token.append(reply.split(b"\r\n")[4])
                return encode("EVALSHA", self.sha["seal"], 3, f"fencegate:mark:{r}", f"fencegate:grant:{r}", "fencegate:epoch", epoch,
                              issuer, grant, token[0], "")
            return [lambda _reply: encode("EVALSHA", self.sha["grant"], 5, *keys, "fencegate:leases", f"fencegate:lease:{r}",
                                          f"fencegate:mark:{r}", epoch, issuer, grant, "", 30000, 0, 0, STRIDE, (1 << 62) - STRIDE, "s",
                                          "", 0),
                    seal,
                    lambda _reply: encode("EVALSHA", self.sha["release"], 3, *keys, f"fencegate:lease:{r}", epoch, issuer, "", token[0],
                                          grant)]
        return self._cycles(clients, seconds, cycle)

    def _cycles(self, clients, seconds, cycle):
        """How many a second, of all clients, each of which sends one request after the other. `cycle(client)`: for each of its
        requests, what makes it of the reply before."""
        count, end = 0, time.monotonic() + seconds
        with selectors.DefaultSelector() as events:
            for number in range(clients):
                one = Resp(self.redis.port)
                events.register(one.sock, selectors.EVENT_READ, [number, one, cycle(number)])
                one.send(events.get_key(one.sock).data[2].pop(0)(None))
            while time.monotonic() < end:
                for key, _ in events.select(1):
                    number, one, left = key.data
                    reply = one.sock.recv(65536)
                    if reply[:1] == b"-" or not reply.endswith(b"\r\n"):
                        raise RuntimeError(f"an unexpected reply: {reply!r}")
                    if not left:
                        count += 1
                        left = key.data[2] = cycle(number)
                    one.send(left.pop(0)(reply))
            for key in list(events.get_map().values()):
                key.data[1].close()
        return count / seconds
