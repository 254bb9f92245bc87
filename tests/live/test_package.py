"""What is delivered beside the program: licences, manual pages, completion, what is installed, the Debian package.

Only of the release build: it is the one that is delivered.
"""

import contextlib
import functools
import gzip
import os
import re
import shutil
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

import documents
from documents import ROOT, command, run_shell
from live_test import LiveTest, main
from processes import PATIENCE, free_port
from redis_server import RedisServer
from resp import Resp

PAGE = "docs/install.md"
NOTICES = "THIRD_PARTY_NOTICES"
PROGRAMS = {"fencegate": "FENCEGATE", "fencegate-hold": "FENCEGATE_HOLD"}
# As CMake or the linker calls them, and as the notices do.
LIBRARIES = {"prometheus-cpp-core": "prometheus-cpp", "gcc_s": "libgcc", "stdc++": "libstdc++", "c": "GNU C library",
             "m": "GNU C library", "PostgreSQL": "libpq", "pq": "libpq", "ssl": "OpenSSL", "crypto": "OpenSSL", "GTest": "GoogleTest"}


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def program(name):
    return os.path.abspath(os.environ[PROGRAMS[name]])


class Licences(unittest.TestCase):
    def test_each_library_has_its_notice(self):
        used = set(re.findall(r"\(NEEDED\).*\[lib([^]]+?)\.so", run("readelf", "-d", program("fencegate"))))
        self.assertIn("yaml-cpp", used)
        build = documents.text("CMakeLists.txt")
        used |= set(re.findall(r"find_package\((\S+)", build)) - {"Threads"} | set(re.findall(r"find_library\(\w+ (\S+)", build))
        for source in (ROOT / "src").rglob("*.cpp"):
            used |= set(re.findall(r'shared_library::load\("lib([^".]+)', source.read_text()))
        self.assertLessEqual({"Boost", "pq", "ssl"}, used)
        notices = documents.text(NOTICES)
        for name in used:
            self.assertIn(LIBRARIES.get(name, name), notices)

    def test_each_notice_has_its_text(self):
        table, *texts = re.split(r"^-{79}\n(.+)\n-{79}$", documents.text(NOTICES), flags=re.M)
        named = {re.split(r"  |,", line)[0] for line in re.findall(r"^  (?=\S)(.+)$", table, re.M)} - {"library"}
        self.assertIn("Boost", named)
        self.assertEqual(named, {title.split(",")[0] for title in texts[::2]})


class Help:
    """What --help says of a word, and of those below it. `values`: options that take one."""

    def __init__(self, name, *path):
        self.path = " ".join((name, *path))
        text = run(program(name), *path, "--help")
        parts = dict(re.findall(r"^(Positionals|Options|Subcommands):\n((?:  .*\n?)*)", text, re.M))
        entries = [re.findall(r"^  (\S.*)", parts.get(part, ""), re.M) for part in ("Positionals", "Options", "Subcommands")]
        self.arguments = [line.split()[0] for line in entries[0]]
        self.options = [name for line in entries[1] for name in line.split()[0].split(",")]
        self.values = {line.split()[0].split(",")[-1] for line in entries[1] if re.match(r"\S+ [A-Z]+\b(?!:\s)", line)}
        self.below = [Help(name, *path, line.split()[0]) for line in entries[2]]
        self.lines = [self.described(line) for lines in entries for line in lines]
        self.lines += [line.strip() for line in parts.get("Options", "").splitlines() if line.startswith(" " * 20)]
        self.lines = [line for line in self.lines if line and not re.match("(Print this help|Display program)", line)]

    @staticmethod
    def described(line):
        return (re.split(r"\s{2,}", line, maxsplit=1) + [""])[1]

    def all(self):
        return [self] + [one for word in self.below for one in word.all()]


@functools.cache
def help_of(name):
    return Help(name).all()


class Texts(unittest.TestCase):
    """They say what --help says."""

    def manual(self, name):
        return run(program(name), "manual").replace("\\-", "-").replace("\\e", "\\")

    def test_the_manual_page_has_each_word_and_option(self):
        for name in PROGRAMS:
            text = self.manual(name)
            sections = dict(zip(*[iter(re.split(r"^\.SS (.*)\n", text, flags=re.M)[1:])] * 2))
            self.assertGreater(sum(len(one.lines) for one in help_of(name)), 30)
            for one in help_of(name):
                if one.below:
                    continue
                for option in {*one.options} - {"-h", "--help"}:
                    self.assertRegex(sections[one.path], rf"(?m)^[^.\n]*\\fB{option}\\fR", one.path)
                for line in one.lines:
                    self.assertIn(line, sections[one.path].replace("\\&", ""), one.path)

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_the_manual_pages_are_well_formed(self):
        pages = [run(program(name), "manual") for name in PROGRAMS]
        pages.append(gzip.decompress((build_folder() / "packaging/fencegate.yaml.5.gz").read_bytes()).decode())
        for page in pages:
            done = subprocess.run(["groff", "-man", "-Kutf8", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")
        # That of the configuration is the file itself.
        printed = re.sub("\x1b\\[[0-9;]*m|.\b", "", done.stdout)
        for line in documents.text("config/fencegate.yaml").splitlines():
            self.assertIn(line, printed)

    def complete(self, name, *words):
        """What bash offers for the last one."""
        script = ('source /dev/stdin <<<"$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  f'_{name.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"')
        return run("bash", "-c", script, "bash", run(program(name), "completion", "bash"), name, *words).split()

    def test_bash_completes_each_word_and_option(self):
        for name in PROGRAMS:
            for one in help_of(name):
                path = one.path.split()[1:]
                self.assertEqual(self.complete(name, *path, ""), [word.path.split()[-1] for word in one.below])
                self.assertEqual(set(self.complete(name, *path, "-")), set(one.options))

    def test_bash_completes_no_word_where_a_value_or_a_command_stands(self):
        self.assertEqual(self.complete("fencegate", "lease", "show", "--conf"), ["--config"])
        (hold,) = [one for one in help_of("fencegate") if one.path == "fencegate hold"]
        self.assertIn("--ttl", hold.values)
        for option in hold.values:
            self.assertEqual(self.complete("fencegate", "hold", option, ""), [])
        self.assertIn("true", self.complete("fencegate", "hold", "orders", "--", "tru"))
        self.assertEqual(self.complete("fencegate", "hold", "orders", "--", "true", "--"), [])

    @unittest.skipUnless(shutil.which("man"), "there is no man")
    def test_they_are_printed_where_nothing_is_installed(self):
        self.assertIn("fencegate hold", run_shell(command(PAGE, "fencegate manual"), ROOT, MANPAGER="cat"))
        self.assertIn("_fencegate", run_shell(command(PAGE, "source <(fencegate completion bash") + "; complete -p fencegate", ROOT))

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_is_told_of_each_word_and_option(self):
        """By what it calls: _arguments for options and arguments, _describe for words."""
        for name in PROGRAMS:
            text = run(program(name), "completion", "zsh").rsplit("\n", 2)[0]
            for one in help_of(name):
                function = "_" + re.sub("[ -]", "_", one.path)
                stub = '_arguments() { print -l -- "$@"; state=word }; _describe() { print -l -- "${(@P)2}" }'
                said = run("zsh", "-fc", f"{stub}\n{text}\n{function}").splitlines()
                told = {re.match(r"(--?[\w-]+)\[.*\](:[A-Z]*:_files)?$", line) for line in said if re.match("--?[a-z]+.*\\[", line)}
                self.assertEqual({line[1] for line in told}, set(one.options), one.path)
                self.assertLessEqual(one.values, {line[1] for line in told if line[2]})
                self.assertEqual([line.split(":")[0] for line in said if re.match(r"[a-z][\w-]*:", line)],
                                 [word.path.split()[-1] for word in one.below])


def build_folder():
    return Path(program("fencegate")).parent


class Installed(unittest.TestCase):
    """By `cmake --install`."""

    @classmethod
    def setUpClass(cls):
        cls.prefix = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.install()

    @classmethod
    def install(cls):
        """As the page says."""
        line = command(PAGE, "cmake --install build/release").replace("build/release", str(build_folder()))
        return run(*line.replace("/usr/local", str(cls.prefix)).split())

    def test_the_service_is_started_from_there(self):
        unit = (self.prefix / "lib/systemd/system/fencegate.service").read_text()
        (started,) = re.findall("^ExecStart=(.*)$", unit, re.M)
        self.assertEqual(started, f"{self.prefix}/bin/fencegate serve -c {self.prefix}/etc/fencegate/fencegate.yaml")
        self.assertIn("\nType=notify\n", unit)

    def test_the_programs_find_each_other(self):
        for name in PROGRAMS:
            self.assertTrue(run(self.prefix / "bin" / name, "--version").startswith(name + " "))
        run(self.prefix / "bin/fencegate", "copy-self", self.prefix / "copied")
        self.assertTrue((self.prefix / "copied/fencegate-hold").exists())

    def test_its_configuration_is_valid(self):
        said = run(self.prefix / "bin/fencegate", "check", "-c", self.prefix / "etc/fencegate/fencegate.yaml")
        self.assertIn("OK, 1 gate", said)

    def test_a_configuration_of_somebody_is_kept(self):
        path = self.prefix / "etc/fencegate/fencegate.yaml"
        before = path.read_text()
        path.write_text("# mine\n")
        self.addCleanup(path.write_text, before)
        self.install()
        self.assertEqual(path.read_text(), "# mine\n")

    def test_pages_lead_to_each_other(self):
        doc = self.prefix / "share/doc/fencegate"
        for page in ("README.md", "docs/operations.md"):
            for path, _ in documents.links(page):
                if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "src"):
                    self.assertTrue((doc / path.relative_to(ROOT)).exists() or path.name == "CONTRIBUTING.md", f"{page}: {path}")

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")
    def test_the_unit_is_understood_and_has_few_rights(self):
        unit = self.prefix / "lib/systemd/system/fencegate.service"
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
        self.assertEqual([line for line in done.stderr.splitlines() if "fencegate" in line], [])
        said = run("systemd-analyze", "security", "--offline=true", unit)
        self.assertLess(float(re.search(r"exposure level for \S+: ([\d.]+)", said)[1]), 2.0)


class Copy:
    """This machine, but what is written there is forgotten. REQUIRES: root."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="copy-")
        script = (f"mount -t tmpfs none {self.folder} && cd {self.folder} && mkdir upper work root && "
                  "mount -t overlay overlay -o lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work root && "
                  "mount --rbind /proc root/proc && mount --rbind /dev root/dev && echo up && exec cat")
        self.keeper = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "up\n":
            why = self.keeper.stderr.read()
            self.__exit__()
            raise unittest.SkipTest(f"this machine cannot be copied: {why}")
        return self

    def __exit__(self, *_):
        with self.keeper:
            self.keeper.stdin.close()
            self.keeper.wait(PATIENCE)
        os.rmdir(self.folder)

    def command(self, *words):
        return ["nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "chroot", f"{self.folder}/root", *map(str, words)]

    def run(self, *words, **more):
        return run(*self.command(*words), **more)

    def written(self):
        """Files and folders that were not there, or are others now."""
        return run("nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "find", f"{self.folder}/upper", "-mindepth", "1",
                   "-printf", "%P\n").splitlines()


class Package(LiveTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="package-")))
        run("cpack", "-G", "DEB", "-B", cls.folder, cwd=build_folder())
        (cls.path,) = cls.folder.glob("fencegate_*.deb")

    def test_is_made_and_started_as_the_page_says(self):
        self.assertIn("./dev package", run(*command(PAGE, "./dev package").split(), "--help", cwd=ROOT))
        self.assertIn("./dev build", run(*command(PAGE, "./dev build").split(), "--help", cwd=ROOT))
        self.assertEqual(command(PAGE, "apt install ./build/release/").split("/")[-1].replace("_amd64", ""),
                         re.sub("_[a-z0-9]+(?=[.]deb$)", "", self.path.name))
        for start in ("systemctl enable --now fencegate", "fencegate check -c /etc/fencegate/fencegate.yaml"):
            self.assertIn(f"#   {command(PAGE, start)} ", documents.text("packaging/fencegate.yaml"))

    def test_says_what_it_needs(self):
        needed = run("dpkg-deb", "--field", self.path, "Depends")
        for library in ("libc6", "libpq5", "libssl3", "libyaml-cpp", "libspdlog", "libprometheus-cpp-core"):
            self.assertRegex(needed, rf"\b{library}")

    def test_holds_files_of_root_in_their_places(self):
        listed = run("dpkg-deb", "--contents", self.path)
        self.assertEqual({line.split()[1] for line in listed.splitlines()}, {"root/root"})
        paths = {line.split()[5] for line in listed.splitlines()}
        for path in ("etc/fencegate/fencegate.yaml", "usr/bin/fencegate", "usr/bin/fencegate-hold",
                     "usr/lib/systemd/system/fencegate.service", "usr/share/doc/fencegate/copyright",
                     "usr/share/doc/fencegate/LICENSE", "usr/share/man/man1/fencegate.1.gz", "usr/share/man/man1/fencegate-hold.1.gz",
                     "usr/share/man/man5/fencegate.yaml.5.gz", "usr/share/bash-completion/completions/fencegate",
                     "usr/share/zsh/vendor-completions/_fencegate"):
            self.assertIn("./" + path, paths)
        self.assertEqual({path for path in paths if re.match(r"\./(usr/local|tmp|work|root|home)/", path)}, set())

    def test_runs_where_it_is_unpacked(self):
        run("dpkg-deb", "--extract", self.path, self.folder / "unpacked")
        there = self.folder / "unpacked"
        self.assertIn("fencegate ", run(there / "usr/bin/fencegate", "--version"))
        self.assertIn("OK, 1 gate", run(there / "usr/bin/fencegate", "check", "-c", there / "etc/fencegate/fencegate.yaml"))

    @unittest.skipUnless(os.getuid() == 0, "only root may install")
    def test_is_installed_serves_is_installed_again_and_leaves_nothing(self):
        redis = self.start(RedisServer())
        machine = self.start(Copy())
        with self.path.open("rb") as package:
            machine.run("sh", "-c", "cat >/package.deb", stdin=package)
        install = ("dpkg", "--install", "--no-triggers", "/package.deb")
        machine.run(*install)
        config = "/etc/fencegate/fencegate.yaml"
        self.assertIn("OK, 1 gate", machine.run(*command(PAGE, "fencegate check -c").split()))
        text, ports = machine.run("cat", config), {"9180": free_port(), "6380": free_port(), "6379": redis.port}
        for old, new in ports.items():
            text = text.replace(f":{old}\"", f":{new}\"")
        machine.run("sh", "-c", f"cat >{config}", input=text)
        self.serve(machine, config, ports)
        # Of the same version again, as an upgrade: what somebody has written stays.
        machine.run(*install)
        self.assertEqual(machine.run("cat", config), text)
        machine.run("dpkg", "--remove", "--no-triggers", "fencegate")
        self.assertEqual(machine.run("cat", config), text)
        self.assertNotEqual(subprocess.run(machine.command("which", "fencegate"), capture_output=True, check=False).returncode, 0)
        machine.run("dpkg", "--purge", "--no-triggers", "fencegate")
        self.assertEqual([path for path in machine.written() if "fencegate" in path], [])

    def serve(self, machine, config, ports):
        """As the unit does; fencegate tells when it is ready, and that it stops."""
        name = f"fencegate-package-{os.getpid()}"
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
            manager.bind(f"\0{name}")
            manager.settimeout(PATIENCE)
            (started,) = re.findall("^ExecStart=(.*)$", machine.run("cat", "/usr/lib/systemd/system/fencegate.service"), re.M)
            self.assertEqual(started, f"/usr/bin/fencegate serve -c {config}")
            with subprocess.Popen(machine.command("env", f"NOTIFY_SOCKET=@{name}", *started.split()), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as service:
                self.addCleanup(service.kill)
                self.assertIn("READY=1", manager.recv(4096).decode().splitlines())
                with Resp(ports["6380"], name="fence:orders=34") as client:
                    self.assertEqual(client.call("SET", "k", "v"), b"OK")
                service.terminate()
                self.assertIn("STOPPING=1", manager.recv(4096).decode().splitlines())
                self.assertEqual(service.wait(PATIENCE), 0)


if __name__ == "__main__":
    main()
