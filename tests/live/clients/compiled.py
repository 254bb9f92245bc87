"""Drives clients in Java and Go, which are compiled here: one line per action."""

import os
import shutil
import signal
import subprocess
import tempfile

from processes import die_with_parent

FOLDER = os.path.dirname(os.path.abspath(__file__))
JARS = [f"/usr/share/java/{name}.jar" for name in ("postgresql", "HikariCP", "slf4j-api", "slf4j-nop")]
GO_SOURCES = "/usr/share/gocode"
HAS_JDBC = shutil.which("javac") and all(map(os.path.exists, JARS))
HAS_PGX = shutil.which("go") and os.path.exists(f"{GO_SOURCES}/src/github.com/jackc/pgx/v4")


class LineClient:
    def __enter__(self):
        self.child = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      preexec_fn=die_with_parent)
        return self

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def start(self, action, argument):
        """Sends an action without waiting for its end."""
        self.child.stdin.write(f"{action} {argument}\n")
        self.child.stdin.flush()

    def finish(self):
        """What the action gave: "ok", or SQLSTATE and text."""
        answer = self.child.stdout.readline()
        assert answer, "the client process has ended"
        return answer.rstrip("\n")

    def do(self, action, argument):
        self.start(action, argument)
        return self.finish()


class Jdbc(LineClient):
    @staticmethod
    def command():
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(JARS), os.path.join(FOLDER, "Jdbc.java")]


class PgxPool(LineClient):
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        modules_off = {"GO111MODULE": "off", "GOPATH": GO_SOURCES, "GOCACHE": f"{self.folder.name}/cache", "GOFLAGS": ""}
        subprocess.run(["go", "build", "-o", f"{self.folder.name}/", os.path.join(FOLDER, "pgxpool.go")], check=True, timeout=300,
                       env=os.environ | modules_off)
        return super().__enter__()

    def __exit__(self, *details):
        super().__exit__(*details)
        self.folder.cleanup()

    def command(self):
        return [f"{self.folder.name}/pgxpool"]
