"""Three ways to speak SQL for the writers of the PostgreSQL history test: psycopg2 (simple queries), psycopg 3
(extended protocol, pipelines), and psql at the ends of two pipes. All end with `abort`, from another thread, at any
moment.

A connection begins outside a transaction and commits by itself; BEGIN and COMMIT are statements as others."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time

import psycopg
import psycopg2

from processes import LOOPBACK, die_with_parent

USER = "writer"
DATABASE = "postgres"
CLEAR = "\\set SQLSTATE none\n"
_error = re.compile(r"\b(ERROR|FATAL|PANIC):  ([0-9A-Z]{5}): ")


class Failure(Exception):
    """A statement, or the start of a connection, failed."""

    def __init__(self, text, sqlstate=None, lost=False):
        super().__init__(text.strip())
        found = re.search(r'"applied":"(no|unknown)"', text)
        self.applied = found.group(1) if found else None  # what the answer says about it
        # An answer to the start of a connection has no code for libpq's users to see.
        self.sqlstate = sqlstate or ("ZF001" if self.applied and "is below" in text else None)
        self.lost = lost  # the connection is over
        self.done = 0  # of a pipeline: so many of its transactions had been answered before

    @property
    def stale(self):
        return self.sqlstate == "ZF001"

    @property
    def bare_end(self):
        """What a server says to a session that it ends, without a word why: a gate's client must never see that."""
        return self.applied is None and (self.sqlstate == "57P01" or "administrator command" in str(self))


class Psycopg:
    glue = "; "  # between statements of one message

    def __init__(self, port, options, application_name):
        try:
            self._connection = psycopg2.connect(host=LOOPBACK, port=port, user=USER, dbname=DATABASE, options=options,
                                                application_name=application_name, connect_timeout=3)
        except psycopg2.OperationalError as error:
            raise Failure(str(error), lost=True) from None
        self._connection.autocommit = True
        self._socket = socket.socket(fileno=os.dup(self._connection.fileno()))

    def execute(self, sql):
        with self._failing():
            self._cursor().execute(sql)

    def value(self, sql):
        with self._failing():
            cursor = self._cursor()
            cursor.execute(sql)
            return cursor.fetchone()[0]

    def copy(self, table, lines, pause):
        """Sleeps `pause` seconds in the middle of the data."""
        with self._failing():
            self._cursor().copy_expert(f"COPY {table} FROM STDIN", _Slow(lines, pause))

    def abort(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._connection.close()
        self._socket.close()

    def _cursor(self):
        return self._connection.cursor()

    @contextlib.contextmanager
    def _failing(self):
        try:
            yield
        except psycopg2.Error as error:
            raise failure_of(error, error.pgcode, self._connection.closed != 0) from None


def failure_of(error, sqlstate, closed):
    # A pooler's own error has no field V.
    fatal = (error.diag.severity_nonlocalized or error.diag.severity) in ("FATAL", "PANIC")
    text = "\n".join(filter(None, [str(error), error.diag.message_detail]))
    return Failure(text, sqlstate, fatal or closed or sqlstate is None)


class Psycopg3:
    glue = None  # the extended protocol has one statement in a message

    def __init__(self, port, options, application_name):
        try:
            self._connection = psycopg.connect(host=LOOPBACK, port=port, user=USER, dbname=DATABASE, options=options,
                                               application_name=application_name, connect_timeout=3, autocommit=True,
                                               prepare_threshold=None)
        except psycopg.OperationalError as error:
            raise Failure(str(error), lost=True) from None
        self._socket = socket.socket(fileno=os.dup(self._connection.fileno()))

    def execute(self, sql):
        with self._failing():
            self._execute(sql)

    def value(self, sql):
        with self._failing():
            return self._execute(sql).fetchone()[0]

    def copy(self, table, lines, pause):
        """Sleeps `pause` seconds in the middle of the data."""
        try:
            self._copy(table, lines, pause)
        except ValueError as error:  # psycopg expects one answer: not the end of the session behind it
            raise Failure(f"COPY: {error}", lost=True) from None

    def _copy(self, table, lines, pause):
        with self._failing(), self._connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for number, line in enumerate(lines):
                if number == len(lines) // 2:
                    time.sleep(pause)
                copy.write(line + "\n")

    def pipeline(self, transactions):
        """Lists of statements, all in one stretch that ends with a single Sync."""
        last = []
        try:
            with self._failing(), self._connection.pipeline():
                for statements in transactions:
                    last.append([self._execute(sql) for sql in statements][-1])
        except Failure as failure:
            # What ends with another statement ends with the Sync.
            failure.done = sum(cursor.statusmessage == "COMMIT" for cursor in last)
            raise

    def abort(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._connection.close()
        self._socket.close()

    def _execute(self, sql):
        # With binary results, it takes the extended protocol.
        return self._connection.cursor().execute(sql, binary=True)

    @contextlib.contextmanager
    def _failing(self):
        try:
            yield
        except psycopg.Error as error:
            raise failure_of(error, error.sqlstate, self._connection.closed) from None


class _Slow:
    def __init__(self, lines, pause):
        self._pieces = [line + "\n" for line in lines]
        self._middle, self._pause = len(lines) // 2, pause

    def read(self, _size):
        if not self._pieces:
            return ""
        if len(self._pieces) == self._middle:
            time.sleep(self._pause)
        return self._pieces.pop(0)


class Psql:
    """Behind each command a \\warn says on stderr how it went; messages come there too, in order. :SQLSTATE alone tells
    a statement's own error from the end of the session behind it, which is a message too; but psql leaves it as it was when
    COPY fails, so it is cleared before."""

    glue = "\\; "

    def __init__(self, port, options, application_name):
        environment = os.environ | {"PGOPTIONS": options, "PGAPPNAME": application_name, "PGCONNECT_TIMEOUT": "3"}
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "VERBOSITY=verbose", "-h", LOOPBACK, "-p", str(port),
                   "-U", USER, "-d", DATABASE]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=die_with_parent)
        try:
            self._finish("")
        except Failure:
            self.close()
            raise

    def execute(self, sql):
        self._finish(f"{CLEAR}{sql};\n")

    def value(self, sql):
        return self._finish(f"{CLEAR}{sql} AS value \\gset\n", ":value")

    def copy(self, table, lines, pause):
        middle = len(lines) // 2
        self._write(f"{CLEAR}COPY {table} FROM STDIN;\n" + "".join(line + "\n" for line in lines[:middle]))
        time.sleep(pause)
        try:
            self._finish("".join(line + "\n" for line in lines[middle:]) + "\\.\n")
        except Failure as failure:
            failure.lost = True  # psql may have taken the rest of the data for commands
            raise

    def abort(self):
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGKILL)

    def close(self):
        for pipe in (self._child.stdin, self._child.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        self.abort()
        self._child.wait()

    def _write(self, text):
        try:
            self._child.stdin.write(text)
            self._child.stdin.flush()
        except OSError:
            self._lost(self._child.stderr.read())

    def _finish(self, text, value=""):
        self._write(f"{text}\\warn done=:SQLSTATE={value}\n")
        said = ""
        while line := self._child.stderr.readline():
            if line.startswith("done="):
                _, state, answer = line.rstrip("\n").split("=")
                if state != "00000" and (found := _error.search(said)):
                    raise Failure(said, found[2], lost=found[1] != "ERROR")
                return answer
            said += line
        return self._lost(said)

    @staticmethod
    def _lost(said):
        found = _error.search(said)
        raise Failure(said or "psql ended", found and found[2], lost=True)
