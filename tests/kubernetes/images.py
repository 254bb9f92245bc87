"""The images of the tests: the program's and the writers'. Debian's is made of its packages: no registry is asked."""

import concurrent.futures
import os
import subprocess
from pathlib import Path

import pg_versions
from tools import needed, run, timed

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = "docker.io/library/"  # where a name without a registry belongs
FENCEGATE, WRITER = REGISTRY + "fencegate:0.1.0", REGISTRY + "orders-writer:1"
NEXT = REGISTRY + "fencegate:0.1.0-next"  # the same as FENCEGATE
BASE = [REGISTRY + "debian:12", REGISTRY + "debian:12-slim"]
# As Debian's own slim images have it: no manuals, no syncing to disk.
SLIM = ["--dpkgopt=force-unsafe-io", '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info"))]


class Images:
    """Gone afterwards, but for those that make() alone has made. `engine`: podman or docker, and what goes in front of `build`."""

    def __init__(self, engine):
        self.engine, *self.arguments = engine.split()
        self.made = []
        is_podman = self.engine != "docker"
        self.built = "localhost/fencegate:0.1.0" if is_podman else FENCEGATE  # by `./dev image`
        self.format = ["--format", "docker"] if is_podman else []

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.made:
            subprocess.run([self.engine, "rmi", "-f", *reversed(self.made)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def make(self):
        self._make_base()
        with timed("images"):
            self._make_all()

    def _has(self, image):
        return subprocess.run([self.engine, "image", "inspect", image], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def _tag(self, old, new):
        if old != new:
            run(self.engine, "tag", old, new)
            self.made.append(new)

    def _make_base(self):
        if self._has(BASE[-1]):
            return
        archive = Path(pg_versions.kept("debian-12.tar"))
        with timed("Debian's image"), needed("no Debian image"):
            if not archive.exists():
                archive.parent.mkdir(parents=True, exist_ok=True)
                part = f"{archive}.{os.getpid()}"
                run("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", *SLIM, "bookworm", part)
                os.rename(part, archive)
            run(self.engine, "import", str(archive), BASE[0])
            self.made.append(BASE[0])
            self._tag(*BASE)

    def _make_all(self):
        with concurrent.futures.ThreadPoolExecutor() as two:
            for made in [two.submit(self._make_writer), two.submit(self._make_fencegate)]:
                made.result()

    def _make_writer(self):
        with needed("the writers' image does not build"):  # with packages of Debian alone, as the program's
            folder = ROOT / "tests/kubernetes/writer"
            run(self.engine, *self.arguments, "build", *self.format, "--network", "host", "-t", WRITER, "-f",
                str(folder / "Dockerfile"), str(folder))
        self.made.append(WRITER)

    def _make_fencegate(self):
        try:
            run(str(ROOT / "dev"), "image", "--programs", os.path.dirname(os.environ["FENCEGATE"]))
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"./dev image: {error.stderr[-3000:]}") from error
        self.made.append(self.built)
        for name in (FENCEGATE, NEXT):
            self._tag(self.built, name)
