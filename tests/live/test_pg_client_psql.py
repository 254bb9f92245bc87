"""PostgreSQL's own programs through the gate: psql, pgbench, pg_dump and pg_restore."""

import os
import signal
import subprocess

from live_test import LiveTest, main
from postgres import PgGate, PostgresServer, binary, skip_without_client_tools
from processes import LOOPBACK, PATIENCE, die_with_parent, eventually

MIB = 1024 * 1024


class ProgramTest(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PostgresServer())
        cls.server.install()
        cls.server.user("alice", "CREATEDB")
        cls.server.sql("CREATE DATABASE work OWNER alice")
        cls.server.install("work")
        cls.gate = cls.enterClassContext(PgGate(cls.server))
        cls.monitor = cls.enterClassContext(PgGate(cls.server, policy={"mode": "monitor"}))

    def setUp(self):
        self.resource = self.id().rsplit(".", 1)[1]

    def command(self, program, *arguments, gate=None, token=34):
        environment = {"PATH": os.environ["PATH"], "PGHOST": LOOPBACK, "PGPORT": str((gate or self.gate).port),
                       "PGUSER": "alice", "PGDATABASE": "work", "LC_ALL": "C.UTF-8"}
        if token is not None:
            environment["PGOPTIONS"] = f"-c fencing.tokens={self.resource}={token}"
        return {"args": [binary(program), *arguments], "env": environment, "text": True, "cwd": self.server.folder}

    def start_program(self, *command, **how):
        child = subprocess.Popen(**self.command(*command, **how), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(self._end_program, child)
        return child

    @staticmethod
    def _end_program(child):
        child.kill()
        child.communicate()

    def program(self, *command, text=None, status=0, **how):
        """What it says, on either output; it has to end with this status."""
        done = subprocess.run(**self.command(*command, **how), input=text, capture_output=True, timeout=200,
                              check=False)
        self.assertEqual(done.returncode, status, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout + done.stderr

    def psql(self, text, *arguments, **how):
        return self.program("psql", "-XqAt", *arguments, text=text, **how)

    def running(self, part):
        return self.server.sql("SELECT pid FROM pg_stat_activity WHERE usename = 'alice' AND state = 'active'"
                               " AND query LIKE %s", f"%{part}%")


class Psql(ProgramTest):
    def test_errors_in_the_middle_of_a_script(self):
        script = ("CREATE TABLE e (n int PRIMARY KEY);\nINSERT INTO e VALUES (1);\nINSERT INTO e VALUES (1);\n"
                  "\\echo on\nTABLE e;\n")
        self.assertRegex(self.psql(script), r"(?s)on\n1\n.*duplicate key")
        self.psql(script.replace(" e ", " f "), "-v", "ON_ERROR_STOP=1", status=3)
        self.psql("INSERT INTO e VALUES (2);\nSELECT 1/0;\n", "-1", "-v", "ON_ERROR_STOP=1", status=3)
        self.assertEqual(self.psql("TABLE e"), "1\n")

    def test_copy_in_and_out(self):
        data = "".join(f"{n}\tnäme {n}\n" for n in range(20_000))
        self.psql("CREATE TABLE c (n int, name text)")
        self.psql("\\copy c FROM STDIN\n" + data + "\\.\n")
        self.assertEqual(self.psql("\\copy c TO STDOUT"), data)
        self.assertIn("invalid input syntax", self.psql("\\copy c FROM STDIN\nbad\tx\n\\.\nSELECT 'alive'"))
        self.assertEqual(self.psql("SELECT count(*) FROM c"), "20000\n")

    def test_100_mb_through_copy_in_bounded_memory(self):
        gate = self.start(PgGate(self.server))
        path = os.path.join(self.server.folder, "big")
        with open(path, "w") as file:
            for _ in range(100):
                file.write(("x" * 1023 + "\n") * 1024)
        self.psql(f"CREATE UNLOGGED TABLE big (line text);\n\\copy big FROM '{path}'", gate=gate)
        counted = self.psql("SELECT count(*), sum(length(line)) FROM big", gate=gate)
        self.assertEqual(counted, f"{100 * 1024}|{100 * 1024 * 1023}\n")
        self.psql(f"\\copy big TO '{path}.out'", gate=gate)
        self.assertEqual(os.path.getsize(path + ".out"), 100 * MIB)
        if "FENCEGATE_SANITIZED" not in os.environ:  # a sanitizer keeps what was freed, and shadows what is used
            self.assertLess(gate.rss_bytes_max(), 64 * MIB)

    def test_reconnects_and_watches(self):
        said = self.psql("SELECT current_database();\n\\c postgres\nSELECT current_database();\n\\c work\nSELECT 7;\n")
        self.assertEqual(said, "work\npostgres\n7\n")
        self.psql("CREATE SEQUENCE seen")
        watching = self.start_program("psql", "-XqAt")
        watching.stdin.write("SELECT nextval('seen') \\watch 0.1\n")
        watching.stdin.flush()
        eventually(lambda: int(self.psql("SELECT last_value FROM seen")) > 3)

    def test_ctrl_c_cancels_the_statement_of_this_session(self):
        other = self.start_program("psql", "-XqAt", "-c", "SELECT pg_sleep(100) AS other")
        child = self.start_program("psql", "-XqAt")
        child.stdin.write("SELECT pg_sleep(100) AS mine;\n\\echo alive\nSELECT 'yes';\n")
        child.stdin.flush()
        eventually(lambda: self.running("AS mine") and self.running("AS other"))
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=PATIENCE)
        self.assertIn("canceling statement due to user request", said[1])
        self.assertTrue(self.running("AS other"))
        self.assertIsNone(other.poll())

    def test_listen_and_notify(self):
        self.assertRegex(self.psql("LISTEN c;\nNOTIFY c, 'text';\nSELECT 1;\n"), 'notification "c" with payload "text"')

    def test_large_objects(self):
        path = os.path.join(self.server.folder, "object")
        data = bytes(range(256)) * 4096
        with open(path, "wb") as file:
            file.write(data)
        number = self.psql(f"\\lo_import {path}\n\\echo :LASTOID").split()[-1]
        self.psql(f"\\lo_export {number} {path}.out")
        with open(path + ".out", "rb") as file:
            self.assertEqual(file.read(), data)

    def test_client_encodings(self):
        for encoding, text in (("LATIN1", "é"), ("UTF8", "é日"), ("SJIS", "日本ソ表")):
            codec = {"LATIN1": "latin-1", "UTF8": "utf-8", "SJIS": "shift_jis"}[encoding]
            how = self.command("psql", "-XqAt")
            how["env"]["PGCLIENTENCODING"] = encoding
            del how["text"]
            done = subprocess.run(**how, input=f"SELECT '{text}', length('{text}');".encode(codec), capture_output=True,
                                  timeout=PATIENCE, check=True)
            self.assertEqual(done.stdout.decode(codec), f"{text}|{len(text)}\n", done.stderr)

    def test_the_tag_in_application_name_and_refusals(self):
        self.psql("SELECT 1", f"application_name='job fence:{self.resource}=7' user=alice dbname=work", token=None)
        said = self.psql("SELECT 1", token=6, status=2)
        self.assertIn(f"FATAL:  token 6 of {self.resource} is below mark 7; not applied", said)
        said = self.psql("SELECT 1", token=None, status=2)
        self.assertIn("FATAL:  a connection through this gate needs a fencing token, and this connection brings none", said)
        self.assertIn("HINT:  Connect with PGOPTIONS='-c fencing.tokens=RESOURCE=TOKEN'", said)

    def test_superseded_in_the_middle_of_copy(self):
        self.psql("CREATE TABLE cut (line text)")
        child = self.start_program("psql", "-XqAt")
        child.stdin.write("\\copy cut FROM STDIN\n" + "stale\n" * 1000)
        child.stdin.flush()
        eventually(lambda: self.running("COPY"))
        self.psql("SELECT 1", token=35)
        said = child.communicate("\\.\n", timeout=PATIENCE)[1]
        self.assertIn(f"token 34 of {self.resource} is below mark 35", said)
        self.assertEqual(self.psql("SELECT count(*) FROM cut", token=35), "0\n")


class Programs(ProgramTest):
    def test_pgbench_keeps_its_sums_in_all_query_modes(self):
        self.program("pgbench", "-i", "-s", "1", "-q")
        for mode in ("simple", "extended", "prepared"):
            with self.subTest(mode):
                said = self.program("pgbench", "-n", "-c", "4", "-j", "2", "-t", "50", "-M", mode)
                self.assertIn("number of failed transactions: 0", said)
                sums = self.psql("SELECT (SELECT sum(abalance) FROM pgbench_accounts),"
                                 "(SELECT sum(tbalance) FROM pgbench_tellers),"
                                 "(SELECT sum(bbalance) FROM pgbench_branches),"
                                 "(SELECT sum(delta) FROM pgbench_history)")
                self.assertEqual(len(set(sums.strip().split("|"))), 1, sums)
        self.assertEqual(self.psql("SELECT count(*) FROM pgbench_history"), "600\n")

    def test_dump_and_restore(self):
        skip_without_client_tools()
        self.psql("CREATE TABLE d (n int PRIMARY KEY, name text);"
                  "INSERT INTO d SELECT n, 'name ' || n FROM generate_series(1, 5000) n;"
                  "CREATE VIEW v AS SELECT count(*) FROM d")
        for title, gate in (("enforce", self.gate), ("monitor", self.monitor)):
            with self.subTest(title):
                path = os.path.join(self.server.folder, title)
                self.program("pg_dump", "-Fc", "-t", "d", "-t", "v", "-f", path, gate=gate)
                self.psql("DROP TABLE d CASCADE")
                self.program("pg_restore", "-d", "work", "--single-transaction", path, gate=gate)
                self.assertEqual(self.psql("TABLE v"), "5000\n")


if __name__ == "__main__":
    main()
