"""TLS of the live tests: certificates, servers that want it, and who listens on the way."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading

from cut_proxy import CutProxy
from processes import LOOPBACK, connect, eventually, free_port
from redis_server import RedisServer
from resp import Resp
from workers import Workers


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class Authority:
    """Makes certificates below a root of its own, all in `folder`."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "60",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")

    @property
    def certificate(self):
        return os.path.join(self.folder, f"{self.name}.crt")

    def issue(self, subject, names=None, days=30):
        """(certificate, key) for a common name; `names`: what a client may have asked for. Below 0 `days` it has expired."""
        file = f"{self.name}-{subject}"
        extension = ["-addext", f"subjectAltName={names}"] if names else []
        openssl(self.folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                f"/CN={subject}", "-keyout", f"{file}.key", "-out", f"{file}.csr", *extension)
        openssl(self.folder, "x509", "-req", "-in", f"{file}.csr", "-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key",
                "-CAcreateserial", "-days", str(days), "-copy_extensions", "copy", "-out", f"{file}.crt")
        os.chmod(os.path.join(self.folder, f"{file}.key"), 0o600)
        return os.path.join(self.folder, f"{file}.crt"), os.path.join(self.folder, f"{file}.key")

    def revoked(self, *certificates):
        """The path of a list that revokes these."""
        config = os.path.join(self.folder, f"{self.name}.cnf")
        with open(config, "w") as file:
            file.write(f"[ca]\ndefault_ca=own\n[own]\ndatabase={self.folder}/{self.name}.db\ncrlnumber={self.folder}/{self.name}.no\n"
                       f"certificate={self.certificate}\nprivate_key={self.folder}/{self.name}.key\ndefault_md=sha256\n"
                       "default_crl_days=9\n")
        for name, text in ((f"{self.name}.db", ""), (f"{self.name}.no", "01\n")):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
        for certificate in certificates:
            openssl(self.folder, "ca", "-config", config, "-revoke", certificate)
        path = os.path.join(self.folder, f"{self.name}.crl")
        openssl(self.folder, "ca", "-config", config, "-gencrl", "-out", path)
        return path


class Certificates:
    """In front of a test's other bases: an authority; a rogue, which nobody trusts; a server's own certificate and key; and
    `checked`, the parameters of a URL by which a gate checks the server."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(prefix="fencegate-tls-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        os.chmod(cls.folder, 0o755)  # servers run as other users
        cls.authority, cls.rogue = Authority(cls.folder, "authority"), Authority(cls.folder, "rogue")
        cls.own = cls.authority.issue("server", "DNS:localhost")
        cls.checked = f"?cafile={cls.authority.certificate}"


class PlainServer:
    """A server without TLS: it answers whatever comes first with these bytes, and keeps all that comes; `ended`: how many
    connections have ended."""

    def __init__(self, answer):
        self.answer, self.came, self.ended = answer, [], 0

    def __enter__(self):
        self.listener = socket.create_server((LOOPBACK, free_port()))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                with self.listener.accept()[0] as link, contextlib.suppress(OSError):
                    link.settimeout(10)
                    first = link.recv(1 << 16)
                    link.sendall(self.answer)
                    while first:
                        self.came.append(first)
                        first = link.recv(1 << 16)
                self.ended += 1


class Recorder(CutProxy):
    """Keeps what goes through, in both directions."""

    def __enter__(self):
        self.seen = []
        return super().__enter__()

    def change(self, data):
        self.seen.append(data)
        return data

    def bytes(self):
        return b"\n".join(self.seen)


def client_context(authority, certificate=None, key=None):
    """For a client that checks the certificate and the name of whom it asks."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def secure(sock, context):
    """The socket behind the handshake; it is closed where there is none."""
    try:
        return context.wrap_socket(sock, server_hostname="localhost")
    except OSError:
        sock.close()
        raise


class Load(Workers):
    """Threads that call `once` again and again. What it answers is in `done` where `good` says so, and else in `wrong`."""

    def __init__(self, once, good, threads=3):
        super().__init__(*[self._run] * threads)
        self.once, self.good = once, good
        self.wrong, self.done = [], []

    def _run(self):
        while not self.over.is_set():
            try:
                said = self.once()
                (self.done if self.good(said) else self.wrong).append(said)
            except OSError as e:
                self.wrong.append(e)

    def some_more(self):
        before = len(self.done)
        eventually(lambda: len(self.done) > before + 20 or self.wrong)


def read(*paths):
    """One file behind the other."""
    texts = []
    for path in paths:
        with open(path, "rb") as file:
            texts.append(file.read())
    return b"".join(texts)


def replace(path, content):
    """As a tool that renews certificates does it: at once, by a rename."""
    with open(path + ".new", "wb") as file:
        file.write(content)
    os.replace(path + ".new", path)


class TlsRedis(RedisServer):
    """Listens with TLS only for gates; `cli` still comes in plain text, over a unix socket. `certificates`: (its own, key)."""

    def __init__(self, authority, certificates, clients="no", **conf):
        own = {"tls_cert_file": certificates[0], "tls_key_file": certificates[1], "tls_ca_cert_file": authority.certificate}
        super().__init__(unix=True, tls_auth_clients=clients, **own | conf)

    def prepare(self):
        self.tls_port = free_port()
        self.conf["tls-port"] = self.tls_port
        super().prepare()

    def up(self):
        return super().up() and self.cli.call("CONFIG", "GET", "tls-port")[1] == b"%d" % self.tls_port

    def url(self, parameters, host="localhost", credentials=""):
        return f"rediss://{credentials}{host}:{self.tls_port}{parameters}"


class TlsResp(Resp):
    """Through TLS, checked by this context."""

    def __init__(self, port, context, **options):
        self.context, self.sock = context, None
        try:
            super().__init__(port, **options)
        except OSError:
            if self.sock:
                self.sock.close()
            raise

    def connect(self, address, timeout):
        return secure(connect(address, timeout), self.context)
