"""TLS on the admin listener: probes, metrics, the status page and fencegate's own commands."""

import contextlib
import http.client
import os
import shlex
import shutil
import ssl
import subprocess

import documents
from gate_process import Gate
from live_test import LiveTest, main
from processes import LOOPBACK, PATIENCE, connect, eventually
from redis_server import RedisServer
from tls import Certificates, client_context, replace, secure

PEERS_MAX = 16


class AdminTlsGate(Gate):
    """Its admin listener has TLS; `context` asks there."""

    def __init__(self, redis, tls, context, **options):
        super().__init__(redis, process={"admin": {"tls": tls}}, **options)
        self.context = context

    def http(self, path, method="GET", context=None):
        return ask_securely(self.admin_port, path, method, context or self.context)


def ask_securely(port, path, method, context):
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE, context=context)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class Admin(Certificates, LiveTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.redis = cls.enterClassContext(RedisServer())
        cls.shown = cls.authority.issue("gate", f"DNS:localhost,IP:{LOOPBACK}")
        cls.context = client_context(cls.authority)

    def gate(self, context=None, **tls):
        keys = {"cert": self.shown[0], "key": self.shown[1]} | tls
        return self.start(AdminTlsGate(self.redis, keys, context or self.context))

    def proven(self):
        return self.authority.issue("prometheus", "DNS:prometheus")

    def says(self, gate, *words, host="localhost", parameters=""):
        url = f"https://{host}:{gate.admin_port}{parameters}"
        done = subprocess.run([gate.binary, *words, "--admin", url], capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stderr

    @staticmethod
    def whys(gate):
        return [line["detail"] for line in gate.log_lines() if line["msg"] == "a client was not served through TLS"
                and line["listener"] == "admin listener"]

    @staticmethod
    def rejected(gate):
        return gate.metrics()["fencegate_admin_tls_rejected_total"]

    def test_pages(self):
        gate = self.gate()
        for path, words in (("/livez", "alive"), ("/readyz", "ready"), ("/metrics", "fencegate_checks_total"), ("/", "<title>"),
                            ("/api/v1/status", '"gates"')):
            status, text = gate.http(path)
            self.assertEqual(status, 200, path)
            self.assertIn(words, text)
        self.assertEqual(gate.http("/reload", "POST")[0], 200)

    def test_a_kept_connection_and_events(self):
        gate = self.gate()
        talk = http.client.HTTPSConnection("localhost", gate.admin_port, timeout=PATIENCE, context=self.context)
        self.addCleanup(talk.close)
        for path in ("/livez", "/metrics", "/livez"):
            talk.request("GET", path)
            answer = talk.getresponse()
            self.assertEqual((answer.status, len(answer.read()) > 0), (200, True))
        talk.request("GET", "/api/v1/status/events")
        answer = talk.getresponse()
        for _ in range(2):
            self.assertEqual(answer.readline(), b"event: status\n")
            self.assertTrue(answer.readline().startswith(b"data: {"))
            self.assertEqual(answer.readline(), b"\n")

    def test_what_comes_in_plain_text_is_not_served(self):
        gate = self.gate()
        with contextlib.closing(connect(gate.admin_port)) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.settimeout(PATIENCE)
            said = b"".join(iter(lambda: sock.recv(1 << 16), b""))  # the end is clean
        self.assertTrue(said.startswith(b"HTTP/1.1 400 "), said)
        self.assertIn(b"The plain HTTP request was sent to a TLS port", said)
        eventually(lambda: any("does not speak it" in one or "http request" in one for one in self.whys(gate)))
        self.assertEqual(self.rejected(gate), 1)

    def test_who_must_prove_a_name(self):
        certificate, key = self.proven()
        gate = self.gate(client_context(self.authority, certificate, key), client_ca=self.authority.certificate,
                         client_name="prometheus")
        other = self.authority.issue("other", "DNS:other")
        for context, words in ((self.context, "TLS: the client has sent no certificate"),
                               (client_context(self.authority, *other), "has none of client_name"),
                               (client_context(self.authority, *self.rogue.issue("rogue", "DNS:prometheus")), "unable to get local")):
            with self.subTest(words):
                def seen(context=context, words=words):
                    with contextlib.suppress(OSError):
                        self.assertNotEqual(gate.http("/livez", context=context)[0], 200)
                    return any(words in one for one in self.whys(gate))
                eventually(seen)
        self.assertGreaterEqual(self.rejected(gate), 3)

    def test_who_shakes_no_hands_shuts_nobody_out(self):
        gate = self.gate()
        silent = [self.start(contextlib.closing(connect(gate.admin_port))) for _ in range(PEERS_MAX + 4)]
        for _ in range(3):
            self.assertEqual(gate.http("/readyz")[0], 200)
        for one in silent:  # those that were not displaced end with the time for a request
            one.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(one.recv(1), b"")
        eventually(lambda: any("has said nothing in time" in one for one in self.whys(gate)))
        self.assertEqual(gate.http("/readyz")[0], 200)

    def test_who_has_begun_to_shake_hands_stays(self):
        gate = self.gate()
        with contextlib.closing(connect(gate.admin_port)) as sock:
            came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = self.context.wrap_bio(came, goes, server_hostname="localhost")
            with self.assertRaises(ssl.SSLWantReadError):
                tls.do_handshake()
            sock.sendall(goes.read())
            sock.settimeout(PATIENCE)
            came.write(sock.recv(1 << 16))  # its answer: so it has read what came
            silent = [self.start(contextlib.closing(connect(gate.admin_port))) for _ in range(2 * PEERS_MAX)]
            silent[0].settimeout(PATIENCE)
            self.assertEqual(silent[0].recv(1), b"")  # they are accepted, and displace each other

            def when_it_has_come(step):
                while True:
                    try:
                        return step()
                    except ssl.SSLWantReadError:
                        came.write(sock.recv(1 << 16))

            when_it_has_come(tls.do_handshake)
            tls.write(b"GET /livez HTTP/1.0\r\n\r\n")
            sock.sendall(goes.read())
            self.assertIn(b"200 OK", when_it_has_come(lambda: tls.read(1 << 16)))

    def test_commands(self):
        certificate, key = self.proven()
        gate = self.gate(client_context(self.authority, certificate, key), client_ca=self.authority.certificate)
        ca, proof = f"?cafile={self.authority.certificate}", f"&cert={certificate}&key={key}"
        for words in (["healthcheck"], ["healthcheck", "--ready"], ["wait", "--seconds", "5"]):
            self.assertEqual(self.says(gate, *words, parameters=ca + proof), (0, ""))
        (line,) = [one for one in documents.commands("docs/tls.md") if one.startswith("fencegate healthcheck --admin")]
        for name, here in (("9180", str(gate.admin_port)), ("/run/secrets/ca.crt", self.authority.certificate),
                           ("/run/secrets/tls.crt", certificate), ("/run/secrets/tls.key", key)):
            self.assertIn(name, line)
            line = line.replace(name, here)
        self.assertEqual(subprocess.run([gate.binary, *shlex.split(line)[1:]], timeout=PATIENCE, check=False).returncode, 0)
        self.assertEqual(self.says(gate, "healthcheck", host=LOOPBACK, parameters=ca + proof), (0, ""))
        for parameters, words in ((f"?cafile={self.rogue.certificate}{proof}", "self-signed certificate in certificate chain"),
                                  (ca, "if it wants a certificate"), ("?cafile=/nowhere", "cafile"), ("?sslmode=prefer", "sslmode"),
                                  ("/livez" + ca, "a path has no meaning here")):
            with self.subTest(words):
                code, said = self.says(gate, "healthcheck", parameters=parameters)
                self.assertNotEqual(code, 0)
                self.assertIn(words, said)
        self.assertEqual(gate.says("healthcheck"), 1)  # in plain text
        self.assertEqual(self.says(gate, "quit", parameters=ca + proof), (0, ""))
        eventually(lambda: gate.child.poll() is not None)
        self.assertEqual(gate.child.returncode, 0)

    def test_certificates_are_replaced(self):
        files = [os.path.join(self.folder, name) for name in ("admin.crt", "admin.key")]
        for path, of in zip(files, self.shown):
            shutil.copy(of, path)
        both = client_context(self.authority)
        both.load_verify_locations(self.rogue.certificate)
        gate = self.gate(both, cert=files[0], key=files[1])

        def issuer():
            with secure(connect(gate.admin_port), both) as sock:
                return dict(pair[0] for pair in sock.getpeercert()["issuer"])["commonName"]

        self.assertEqual(issuer(), "authority")
        fresh = self.rogue.issue("gate", "DNS:localhost")
        for path, new in zip(files, fresh):
            with open(new, "rb") as file:
                replace(path, file.read())
        eventually(lambda: issuer() == "rogue")
        before = gate.metrics()["fencegate_admin_tls_files_refused_total"]
        replace(files[1], b"nonsense")
        self.assertEqual(issuer(), "rogue")
        self.assertEqual(gate.metrics()["fencegate_admin_tls_files_refused_total"], before + 1)
        times = os.stat(files[1])
        with open(fresh[1], "rb") as file:
            content = file.read()
        replace(files[1], content)
        os.utime(files[1], ns=(times.st_atime_ns, times.st_mtime_ns))  # as where there was no file descriptor to read them with
        self.assertEqual(issuer(), "rogue")
        self.assertEqual(gate.metrics()["fencegate_admin_tls_files_refused_total"], before + 1)
        eventually(lambda: sum(line["msg"] == "certificates were read again" for line in gate.log_lines()) > 1)
        (refused, *_) = [line for line in gate.log_lines() if line["msg"].startswith("new certificates cannot be used")][::-1]
        self.assertEqual(refused["listener"], "admin")


if __name__ == "__main__":
    main(at_once=2)
