"""Private PostgreSQL servers for the live tests, in the manner of RedisServer.

    class Arming(LiveTest):
        def test_a_claim(self):
            server = self.start(PostgresServer(max_prepared_transactions=5))
            server.install()
            server.user("alice")
            alice = server.connect("alice")
            run_sql(alice, "SELECT fencegate.arm(%s, %s)", "orders", 34)

PostgreSQL refuses to run as root: then its processes belong to the system user `postgres`, and so do its files.
$FENCEGATE_POSTGRES names the version of all servers: see pg_versions.py.
"""

import contextlib
import fcntl
import functools
import glob
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import unittest
import urllib.parse

import psycopg2
import psycopg2.extensions

import pg_versions
from gate_process import GateProcess
from pg_versions import binary
from processes import LOOPBACK, PATIENCE, Process, eventually, free_port

SCHEMA_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/backend/schema")
SUPERUSER = "postgres"
_SYSTEM_USER = "postgres"
_MEMORY = "/dev/shm"
_MEMORY_LEFT = 4 << 30  # bytes, for all servers that run at once


def _as_system_user():
    """What goes in front of a command. The parent's death comes after the change of user, which would clear it."""
    dying = ["setpriv", "--pdeathsig", "QUIT"]
    return dying + (["--reuid", _SYSTEM_USER, "--regid", _SYSTEM_USER, "--init-groups"] if os.geteuid() == 0 else [])


def give_to_system_user(path):
    if os.geteuid() == 0:
        user = pwd.getpwnam(_SYSTEM_USER)
        os.chown(path, user.pw_uid, user.pw_gid)


_NEW_CLUSTER = ("-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")


@functools.cache
def _template():
    """An archive of a new cluster, which each server unpacks: made once for each build of PostgreSQL, and kept. Only this is not
    synced to disk."""
    built = subprocess.run([binary("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    name = hashlib.sha256("\n".join((built, *_NEW_CLUSTER)).encode()).hexdigest()[:16]
    archive = pg_versions.kept(f"clusters/{name}.tar")
    os.makedirs(os.path.dirname(archive), exist_ok=True)
    with open(archive + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test files may come here at the same time
        if not os.path.exists(archive):
            unfinished = archive + ".new"
            shutil.rmtree(unfinished, ignore_errors=True)
            os.mkdir(unfinished)
            give_to_system_user(unfinished)
            made = subprocess.run(_as_system_user() + [binary("initdb"), "-D", unfinished, *_NEW_CLUSTER], capture_output=True,
                                  text=True, cwd="/", check=False)
            if made.returncode != 0:
                raise RuntimeError(f"initdb: {made.stdout}{made.stderr}")
            subprocess.run(["tar", "-C", unfinished, "-cf", archive + ".part", "."], check=True)
            shutil.rmtree(unfinished)
            os.rename(archive + ".part", archive)  # whole, or not there
    return archive


def _has_room(place):
    if not os.path.isdir(place):
        return False
    room = os.statvfs(place)
    return room.f_bavail * room.f_frsize > _MEMORY_LEFT


def _quoted(value):
    return "'" + str(value).replace("'", "''") + "'"


class PostgresServer(Process):
    """A private server. Not synced to disk: the tests kill processes, and never the machine; what needs commits that take
    their time says `fsync="on"`. Settings are keyword arguments: `max_prepared_transactions=5`.
    `hba`: lines that go before "everybody is trusted". With `unix=True` it listens on a unix socket only, and `address`
    is its path; otherwise `address` is its port."""

    title = "postgres"

    def __init__(self, unix=False, hba=(), **conf):
        super().__init__()
        self.unix = unix
        self.hba = list(hba)
        self.conf = {"max_connections": 100, "shared_buffers": "16MB", "wal_level": "replica", "fsync": "off",
                     "min_wal_size": "2MB", "max_wal_size": "512MB", "max_prepared_transactions": 0,
                     "log_line_prefix": "%m [%p] %u@%d "} | conf
        self._cli = None

    @property
    def data(self):
        return os.path.join(self.folder, "data")

    def place(self):
        """In memory, where nothing is synced: most of what a short test costs is the writing of a cluster's thousand files."""
        return _MEMORY if self.conf["fsync"] == "off" and _has_room(_MEMORY) else None

    def prepare(self):
        give_to_system_user(self.folder)
        self._make_data()
        self.port = free_port()
        self.address = os.path.join(self.folder, f".s.PGSQL.{self.port}") if self.unix else self.port
        self.conf |= {"port": self.port, "listen_addresses": "" if self.unix else LOOPBACK,
                      "unix_socket_directories": self.folder}
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a") as file:
            file.writelines(f"{key} = {_quoted(value)}\n" for key, value in self.conf.items())
        if self.hba:
            path = os.path.join(self.data, "pg_hba.conf")
            with open(path) as file:
                before = file.read()
            with open(path, "w") as file:
                file.write("\n".join(self.hba) + "\n" + before)

    def _make_data(self):
        os.mkdir(self.data, 0o700)
        give_to_system_user(self.data)
        subprocess.run(_as_system_user() + ["tar", "-C", self.data, "-xf", _template()], check=True, cwd=self.folder)

    def command(self):
        return _as_system_user() + [binary("postgres"), "-D", self.data]

    def up(self):
        self._drop_cli()
        try:
            return self._says_ready() and self.cli is not None
        except psycopg2.OperationalError:
            return False

    def _says_ready(self):
        """As pg_ctl looks for it: who connects before makes the server start a process that refuses."""
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.data, "postmaster.pid")) as file:
            lines = file.read().splitlines()
            return len(lines) > 7 and lines[7].strip() == "ready"
        return False

    @property
    def host(self):
        return self.folder if self.unix else LOOPBACK

    def url(self, user=SUPERUSER, database="postgres", password=None):
        """As the configuration of a gate has it."""
        login = user + (f":{password}" if password else "")
        return f"postgres://{login}@{LOOPBACK}:{self.port}/{database}"

    def connect(self, user=SUPERUSER, database="postgres", password=None, **more):
        """A psycopg2 connection with autocommit; `more`: options, application_name, …"""
        connection = psycopg2.connect(host=self.host, port=self.port, user=user, dbname=database, password=password,
                                      connect_timeout=PATIENCE, **more)
        connection.autocommit = True
        return connection

    @property
    def cli(self):
        """The superuser's connection, with autocommit."""
        if self._cli is None or self._cli.closed:
            self._cli = self.connect()
        return self._cli

    def _drop_cli(self):
        if self._cli is not None:
            with contextlib.suppress(psycopg2.Error):
                self._cli.close()
            self._cli = None

    def sql(self, text, *values):
        """Runs it as superuser; all rows, None when it returns none."""
        return run_sql(self.cli, text, *values)

    def value(self, text, *values):
        """The first column of the first row; None when there is none."""
        rows = self.sql(text, *values)
        return rows[0][0] if rows else None

    def user(self, name, *options, password=None):
        """Creates a login role: `user("alice", "CREATEROLE", password="secret")`. Returns the name."""
        login = f"PASSWORD {_quoted(password)}" if password else ""
        self.sql(f'CREATE ROLE "{name}" LOGIN {login} {" ".join(options)}')
        return name

    def install(self, database="postgres", max_step=0, cut_ms=5000, grace_ms=5000, gate_users=(), user=SUPERUSER,
                mutate=None):
        """Creates the schema of the fence as `fencegate install` does. `mutate`: a function that changes its text."""
        text = schema_text()
        with contextlib.closing(self.connect(user, database)) as connection:
            run_sql(connection, "SELECT set_config('fencegate.new_max_step', %s, false)", str(max_step))
            run_sql(connection, "SELECT set_config('fencegate.new_cut_ms', %s, false)", str(cut_ms))
            run_sql(connection, "SELECT set_config('fencegate.new_grace_ms', %s, false)", str(grace_ms))
            run_sql(connection, mutate(text) if mutate else text)
            for name in gate_users:
                run_sql(connection, f'GRANT fencegate_gate TO "{name}"')

    def dump_schema(self, database, schema="fencegate"):
        """All that is in the schema, but for rows, in lines as pg_dump has them. Skips the test where pg_dump is too old."""
        text = self.client_tool("pg_dump", "-s", "-n", schema, database)
        return [line for line in text.splitlines() if not line.startswith("\\")]  # \restrict has a new key each time

    def client_tool(self, name, *arguments, user=SUPERUSER):
        """pg_dump and the like, which skip the test where they are older than the server."""
        skip_without_client_tools()
        done = subprocess.run([binary(name), "-h", self.host, "-p", str(self.port), "-U", user, *arguments],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{name}: {done.stderr}")
        return done.stdout

    def freeze(self, pid):
        """Freezes one backend."""
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: _state_of(pid) in "Tt")

    def thaw(self, pid):
        with contextlib.suppress(ProcessLookupError):  # it may have ended since its server was thawed
            os.kill(pid, signal.SIGCONT)

    def backends(self):
        """The processes below the postmaster."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]

    def kill(self):
        """An immediate shutdown: what a crash is to clients and files, but the kernel's shared memory is given back."""
        self._drop_cli()
        if self.child is None or self.child.poll() is not None:
            return
        self._signal(signal.SIGCONT)
        for pid in self.backends():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._signal(signal.SIGQUIT)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            super().kill()

    def stop_fast(self):
        """An orderly shutdown that ends all sessions."""
        self._drop_cli()
        self._signal(signal.SIGINT)
        self.child.wait(PATIENCE)


class PostgresStandby(PostgresServer):
    """A streaming standby of `primary`. Made synchronous by the primary's `synchronous_standby_names = '*'`."""

    title = "postgres-standby"

    def __init__(self, primary, **conf):
        super().__init__(**conf)
        # It must not have less room than its primary.
        self.conf |= {key: primary.conf[key] for key in ("max_connections", "max_prepared_transactions")}
        self.conf = {"primary_conninfo": f"host={LOOPBACK} port={primary.port} user={SUPERUSER} application_name=standby",
                     "hot_standby": "on"} | self.conf
        self.primary = primary

    def _make_data(self):
        if pg_versions.client_version() == pg_versions.version():
            made = subprocess.run(_as_system_user() + [binary("pg_basebackup"), "-D", self.data, "-h", LOOPBACK, "-p",
                                                       str(self.primary.port), "-U", SUPERUSER, "-X", "stream", "-c", "fast"],
                                  capture_output=True, text=True, cwd=self.folder, check=False)
            if made.returncode != 0:
                raise RuntimeError(f"pg_basebackup: {made.stderr}")
        else:
            self._copy_primary()
        with open(os.path.join(self.data, "standby.signal"), "w"):
            pass

    def _copy_primary(self):
        """What pg_basebackup does; the one at hand may know other versions only."""
        start, stop = (("pg_backup_start(%s, true)", "pg_backup_stop()") if pg_versions.version() >= 15 else
                       ("pg_start_backup(%s, true, false)", "pg_stop_backup(false)"))
        with contextlib.closing(self.primary.connect()) as session:
            run_sql(session, f"SELECT {start}", "standby")
            copied = subprocess.run(_as_system_user() + ["cp", "-a", self.primary.data, self.data], capture_output=True, text=True,
                                    cwd=self.folder, env=os.environ | {"LC_ALL": "C"}, check=False)
            # The server is at work: it may remove or replace a file before it was read, and such a one is not needed.
            gone = (": No such file or directory", ", as it was replaced while being copied")
            wrong = [line for line in copied.stderr.splitlines() if not line.endswith(gone)]
            if wrong or (copied.returncode != 0 and not copied.stderr):
                raise RuntimeError(f"cp: {wrong or copied.returncode}")
            label = run_sql(session, f"SELECT labelfile FROM {stop}")[0][0]
        os.remove(os.path.join(self.data, "postmaster.pid"))
        path = os.path.join(self.data, "backup_label")
        with open(path, "w") as file:
            file.write(label)
        give_to_system_user(path)

    def promote(self):
        self.sql("SELECT pg_promote(true, 30)")


class PgGate(GateProcess):
    """With one PostgreSQL gate called "db". `server`: a PostgresServer or a CutProxy in front of one; the gate's own
    connections go to `database` as `user`. Further keyword arguments: see GateProcess."""

    name, protocol = "db", "postgres"

    def __init__(self, server, policy=None, guard=None, comment_tags=None, cut_timeout=None, user=SUPERUSER,
                 password=None, database="postgres", extra=None, upstream_host=LOOPBACK, upstream_parameters="", **process):
        super().__init__({"policy": policy, "guard": guard, "comment_tags": comment_tags,
                          "cut_timeout": cut_timeout} | (extra or {}), **process)
        self.server = server
        self.upstream_host, self.upstream_parameters = upstream_host, upstream_parameters
        self.login = user + (f":{urllib.parse.quote(password, safe='')}" if password else "")
        self.database = database

    @property
    def host(self):
        return self.folder if self.unix else LOOPBACK

    def socket_name(self):
        return f".s.PGSQL.{self.port}"

    def upstream_url(self):
        if getattr(self.server, "unix", False):
            return f"postgres://{self.login}@:{self.server.port}/{self.database}?host={self.server.host}"
        return f"postgres://{self.login}@{self.upstream_host}:{self.server.port}/{self.database}{self.upstream_parameters}"

    def connect(self, tag=None, user=SUPERUSER, database="postgres", autocommit=True, **more):
        """A psycopg2 connection through the gate, whose tag comes as PGOPTIONS would bring it."""
        if tag:
            more["options"] = f"-c fencing.tokens={tag} " + more.get("options", "")
        connection = psycopg2.connect(host=self.host, port=self.port, user=user, dbname=database,
                                      connect_timeout=PATIENCE, **more)
        connection.autocommit = autocommit
        return connection


def skip_without_client_tools():
    """For tests of pg_dump, which reads no server that is newer than itself."""
    if pg_versions.version() > pg_versions.client_version():
        raise unittest.SkipTest(f"pg_dump {pg_versions.client_version()} reads no PostgreSQL {pg_versions.version()}")


def _state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "T"  # it is gone


def run_sql(connection, text, *values):
    """All rows, None when it returns none."""
    with connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return cursor.fetchall() if cursor.description else None


@functools.cache
def schema_text():
    """The parts of the schema in their order, as the program carries them."""
    parts = []
    for path in sorted(glob.glob(os.path.join(SCHEMA_FOLDER, "*.sql"))):
        with open(path) as file:
            parts.append(file.read())
    return "\n".join(parts)


class PgBouncer(Process):
    """A private PgBouncer in front of `server`, which pools by transaction: few server connections for many clients."""

    title = "pgbouncer"

    def __init__(self, server, **conf):
        super().__init__()
        self.server = server
        self.conf = {"pool_mode": "transaction", "auth_type": "any", "default_pool_size": 4, "max_client_conn": 200,
                     "listen_addr": LOOPBACK, "unix_socket_dir": "", "log_connections": 0,
                     "log_disconnections": 0} | conf
        self.host = LOOPBACK

    def prepare(self):
        give_to_system_user(self.folder)
        self.port = self.address = free_port()
        path = os.path.join(self.folder, "pgbouncer.ini")
        with open(path, "w") as file:
            file.write(f"[databases]\npostgres = host={LOOPBACK} port={self.server.port} dbname=postgres "
                       f"user={self.conf.pop('user', SUPERUSER)}\n[pgbouncer]\nlisten_port = {self.port}\n")
            file.writelines(f"{key} = {value}\n" for key, value in self.conf.items())

    def command(self):
        return _as_system_user() + [shutil.which("pgbouncer") or "/usr/sbin/pgbouncer",
                                    os.path.join(self.folder, "pgbouncer.ini")]

    def up(self):
        with contextlib.suppress(psycopg2.OperationalError):
            psycopg2.connect(host=LOOPBACK, port=self.port, user="alice", dbname="postgres",
                             connect_timeout=PATIENCE).close()
            return True
        return False
