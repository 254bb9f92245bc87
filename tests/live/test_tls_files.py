"""Files of TLS under a running gate: which change is noticed, and which file is used."""

import calendar
import json
import os
import re
import subprocess
import time

import test_tls_listeners as listeners
from live_test import main
from processes import eventually
from tls import client_context, read, replace


def end_of(certificate):
    """When it expires, in seconds since 1970."""
    said = subprocess.run(["openssl", "x509", "-in", certificate, "-noout", "-enddate", "-dateopt", "iso_8601"],
                          capture_output=True, text=True, check=True).stdout
    return calendar.timegm(time.strptime(re.search(r"=(.*)", said)[1], "%Y-%m-%d %H:%M:%SZ"))


def put(path, content, like):
    """As `cp -p` and layers of images do it: another file with the times of this one."""
    replace(path, content)
    os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))


class Files(listeners.Listeners):
    def issuer(self, gate):
        both = client_context(self.authority)
        both.load_verify_locations(self.rogue.certificate)
        sock = self.resp(gate, context=both).sock
        return dict(pair[0] for pair in sock.getpeercert()["issuer"])["commonName"]

    def copies(self, *paths):
        out = [os.path.join(self.folder, f"copy-{os.path.basename(path)}") for path in paths]
        for path, copy in zip(paths, out):
            replace(copy, read(path))
            os.chmod(copy, 0o600)
        return out

    def test_a_certificate_with_the_times_of_the_one_before_it(self):
        shown = self.copies(*self.shown)
        gate = self.redis_gate(self.tls(shown))
        self.assertEqual(self.issuer(gate), "authority")
        for path, fresh in zip(shown, self.rogue.issue("gate", "DNS:localhost")):
            put(path, read(fresh), os.stat(path))
        eventually(lambda: self.issuer(gate) == "rogue")

    def test_an_authority_that_was_taken_away_with_the_times_of_the_file_before(self):
        (known,) = self.copies(self.authority.certificate)
        replace(known, read(self.authority.certificate, self.rogue.certificate))
        gate = self.redis_gate(self.tls(client_ca=known))
        former = self.context_of("former", self.rogue)
        self.assertEqual(self.resp(gate, context=former).call("SET", "k", "v"), b"OK")
        before = gate.metric("connections_rejected_total", reason="tls")
        put(known, read(self.authority.certificate), os.stat(known))
        with self.assertRaises(OSError):
            self.resp(gate, context=former)
        self.not_served(gate, "unable to get local issuer certificate", before)

    def test_what_is_not_valid_replaces_nothing(self):
        shown = self.copies(*self.shown)
        gate = self.redis_gate(self.tls(shown))
        self.assertEqual(self.issuer(gate), "authority")
        for path, fresh in zip(shown, self.rogue.issue("late", "DNS:localhost", days=-1)):
            replace(path, read(fresh))
        self.assertEqual(self.issuer(gate), "authority")
        eventually(lambda: gate.metric("tls_files_refused_total") >= 1)
        eventually(lambda: any("the certificate has expired on" in line.get("detail", "") for line in gate.log_lines()))
        for path, fresh in zip(shown, self.rogue.issue("good", "DNS:localhost")):
            replace(path, read(fresh))
        eventually(lambda: self.issuer(gate) == "rogue")

    def test_the_process_tells_when_certificates_expire(self):
        soon = self.authority.issue("soon", "DNS:localhost", days=3)
        gate = self.redis_gate(self.tls(soon))
        self.assertEqual(gate.metrics()[f'fencegate_certificate_expires_seconds{{file="{soon[0]}"}}'], end_of(soon[0]))
        eventually(lambda: any(line["msg"] == "certificate" and "expires on" in line["detail"] for line in gate.log_lines()))
        path = os.path.join(self.folder, "soon.yaml")
        with open(path, "w") as file:
            json.dump({"gates": [{"name": "cache", "protocol": "redis", "listen": "127.0.0.1:6380",
                                  "upstream": self.redis.url(self.checked)} | self.tls(soon)]}, file)
        check = subprocess.run([os.environ["FENCEGATE"], "check", "-c", path], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stderr)
        self.assertRegex(check.stderr, r"soon.yaml:\d+:\d+: warning: .*: the certificate expires on \d{4}-")
        doctor = subprocess.run([os.environ["FENCEGATE"], "doctor", "-c", path, "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(doctor.returncode, 1, doctor.stderr)
        self.assertIn(("certificate-expires", "gate:cache", soon[0]),
                      [(one["id"], one["where"], one["address"]) for one in json.loads(doctor.stdout)["hazards"]])

    def test_revoked_certificates_of_clients(self):
        good, bad = (self.authority.issue(name) for name in ("good-client", "bad-client"))
        lists = self.copies(self.authority.revoked())[0]
        gate = self.redis_gate(self.tls(client_ca=self.authority.certificate, client_crl=lists))
        contexts = [client_context(self.authority, *one) for one in (good, bad)]
        for context in contexts:
            self.assertEqual(self.resp(gate, context=context).call("SET", "k", "v"), b"OK")
        before = gate.metric("connections_rejected_total", reason="tls")
        replace(lists, read(self.authority.revoked(bad[0])))
        self.assertEqual(self.resp(gate, context=contexts[0]).call("SET", "k", "v"), b"OK")
        with self.assertRaises(OSError):
            self.resp(gate, context=contexts[1])
        self.not_served(gate, "certificate revoked", before)

    def test_a_revoked_certificate_of_a_server(self):
        lists = self.authority.revoked(self.own[0])
        gate = listeners.TlsGate(self.redis.url(f"{self.checked}&crlfile={lists}"))
        gate.needs_backend = False
        self.start(gate)
        eventually(lambda: any("certificate revoked" in json.dumps(line) for line in gate.log_lines()))
        self.assertEqual(gate.metric("backend_up"), 0)


if __name__ == "__main__":
    main()
