"""Test suites of others, by which test_suites.py compares a gate with the server behind it: from the source packages of the
Debian release at hand, or of another one, built where there is something to build, and kept for the next run. apt reads them with a
state of its own: what the system has configured stays as it is."""

import fcntl
import glob
import os
import platform
import re
import shutil
import subprocess

import pg_versions

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def release():
    """The name of the Debian release at hand; None elsewhere."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return None
    return system.get("VERSION_CODENAME") if system.get("ID") == "debian" else None


def _run(command, folder):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def _download(package, folder, of, *how):
    """The files of the package's source, of that release, into the folder: apt verifies them."""
    state = os.path.join(folder, "apt")
    os.makedirs(os.path.join(state, "lists/partial"))
    lines = _run(["apt-get", "indextargets", "--format", f"deb-src [signed-by={_KEYRING}] $(REPO_URI) $(RELEASE) $(COMPONENT)",
                  "Created-By: Packages"], folder)
    if of != release():
        lines = "".join(line.replace(f" {release()} ", f" {of} ") for line in lines.splitlines(True) if f" {release()} " in line)
    with open(os.path.join(state, "sources.list"), "w") as file:
        file.write(lines)
    options = {"Dir::Etc::sourcelist": f"{state}/sources.list", "Dir::Etc::sourceparts": "/dev/null",
               "Dir::State::lists": f"{state}/lists", "Dir::Cache": state, "APT::Sandbox::User": "root"}
    apt = ["apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    _run([*apt, "update"], folder)
    _run([*apt, "source", "--download-only", *how, package], folder)
    shutil.rmtree(state)


def _fetch(package, folder):
    """Unpacks the package's source as folder/source."""
    _download(package, folder, release())
    (description,) = glob.glob(os.path.join(folder, "*.dsc"))
    _run(["dpkg-source", "--no-check", "-x", description, "source"], folder)


def _fetch_as_published(package, folder, of):
    """The same without Debian's changes."""
    _download(package, folder, of, "--tar-only")
    (archive,) = glob.glob(os.path.join(folder, "*.orig.tar.*"))
    os.mkdir(os.path.join(folder, "source"))
    _run(["tar", "-x", "--strip-components=1", "-C", "source", "-f", archive], folder)


def _suite(package, build, fetch=_fetch):
    """The folder of the package's source, on which `build` was called."""
    folder = pg_versions.kept(f"suites/{release()}/{package}")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(folder):
            unfinished = folder + ".new"
            shutil.rmtree(unfinished, ignore_errors=True)
            os.mkdir(unfinished)
            fetch(package, unfinished)
            build(os.path.join(unfinished, "source"))
            os.rename(unfinished, folder)  # whole, or not there
    return os.path.join(folder, "source")


def hiredis():
    """The path of hiredis-test."""
    return os.path.join(_suite("hiredis", lambda folder: _run(["make", "hiredis-test"], folder)), "hiredis-test")


def libpqxx():
    """The paths of its two runners."""
    folder = os.path.join(_suite("libpqxx", _build_libpqxx), "test")
    return [os.path.join(folder, "runner"), os.path.join(folder, "unit/runner")]


def _build_libpqxx(folder):
    """Against the release's own libpqxx. What each of its hundred files would read anew is compiled once."""
    tests = os.path.join(folder, "test")
    compiler = ["g++", "-O0", "-w", "-I" + _run(["pg_config", "--includedir"], folder).strip()]
    common = os.path.join(tests, "common.hxx")
    with open(common, "w") as file:
        file.write("#include <pqxx/pqxx>\n#include <iostream>\n#include <map>\n#include <sstream>\n")
    _run([*compiler, "-x", "c++-header", common, "-o", common + ".gch"], tests)
    for program in (tests, os.path.join(tests, "unit")):
        for source in sorted(glob.glob(os.path.join(program, "*.cxx"))):
            _run([*compiler, "-include", common, "-c", source, "-o", source + ".o"], tests)
        _run(["g++", "-o", os.path.join(program, "runner"), *glob.glob(os.path.join(program, "*.o")), "-lpqxx", "-lpq"], tests)


def redis():
    """The folder of Redis, whose tests are in Tcl. They run in a copy that `adapt_redis` has changed."""
    return _suite("redis", lambda folder: None)


def redis_py():
    """The folder of redis-py, whose tests are for pytest: of Debian's testing, which has other versions in time. They empty their
    database, 9, in place of the server, which has marks in another one."""
    return _suite("python-redis", _adapt_redis_py, lambda package, folder: _fetch_as_published(package, folder, "testing"))


def psycopg2():
    """The folder of psycopg2, of Debian 13. Its tests are in Python, and take the psycopg2 that is installed."""
    return _suite("psycopg2", lambda folder: None, lambda package, folder: _fetch_as_published(package, folder, "trixie"))


def _adapt_redis_py(folder):
    for path in glob.glob(os.path.join(folder, "tests/**/*.py"), recursive=True):
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(re.sub(r"\bflushall\(", "flushdb(", text))


# A client that waits behind a gate is not blocked in Redis, where the tests look for it. And what a failed test leaves behind
# is to fail no other one.
_REDIS_TESTS = """
proc wait_for_blocked_client {args} { after 300 }
proc wait_for_blocked_clients_count {args} { after 300 }
rename test test_as_it_is
proc test {args} {
    set failed $::num_failed
    uplevel 1 [list test_as_it_is {*}$args]
    if {$::num_failed > $failed} {
        foreach undo {{discard} {unwatch} {auth default ""} {select 9} {config set maxmemory 0}
                      {config set maxmemory-policy noeviction} {debug set-active-expire 1} {function flush}} {
            catch {r {*}$undo}
        }
    }
}
"""


def adapt_redis(folder):
    """For both runs: they empty their database, 9, in place of the server, which has marks in another one."""
    for path in glob.glob(os.path.join(folder, "tests/**/*.tcl"), recursive=True):
        with open(path, encoding="latin-1", newline="") as file:
            text = file.read()
        with open(path, "w", encoding="latin-1", newline="") as file:
            file.write(re.sub(r"\bflushall\b", "flushdb", text, flags=re.I))
            if path.endswith("support/util.tcl"):
                file.write(_REDIS_TESTS)
