"""`./dev`, and what of the container image can be checked where no image can be built."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

from documents import ROOT, command

DEV = ROOT / "dev"
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
HEADING = re.findall(r"^ARG .*$", DOCKERFILE.split("\nFROM ")[0], re.M)
REVISION = subprocess.run(["git", "rev-parse", "--verify", "-q", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
COMMANDS = ("up", "test", "build", "image", "package", "bench", "soak", "fuzz", "model", "format", "lint", "setup")
TAG = "fencegate:0.1.0"
# Loaded when they are needed, so that the program does not name them as the others.
LOADED_LATER = r'shared_library::load\("([^"]+)"'
# In each Debian image.
ESSENTIAL = {"libc6", "libgcc-s1", "libstdc++6"}


def environment(**more):
    """As on a machine that has no cluster."""
    clusters = {"FENCEGATE_CLUSTER", "FENCEGATE_IMAGE_LOADER", "KUBECONFIG"}
    return {name: value for name, value in os.environ.items() if name not in clusters} | more


def run(*arguments, folder=ROOT, **more):
    done = subprocess.run([DEV, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env=environment(**more))
    return done.returncode, done.stdout, done.stderr


class Dev(unittest.TestCase):
    def test_names_its_commands(self):
        for arguments in ([], ["help"], ["-h"], ["--help"]):
            status, output, errors = run(*arguments)
            self.assertEqual((status, errors), (0, ""))
            self.assertEqual(set(re.findall(r"^  (\w+) {2,}\w", output, re.M)), set(COMMANDS))

    def test_explains_each_command(self):
        for command in COMMANDS:
            for switch in ("--help", "-h"):
                status, output, errors = run(command, switch)
                self.assertEqual((status, errors), (0, ""), command)
                self.assertIn(f"./dev {command}", output)

    def test_serves_from_any_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            link = Path(folder) / "dev"
            link.symlink_to(DEV)
            done = subprocess.run([link, "build", "--help"], cwd=folder, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), run("build", "--help")[:2])

    def test_has_the_commands_of_the_first_page(self):
        for start in ("./dev up", "./dev test", "./dev build"):
            status, output, errors = run(*command("README.md", start).split()[1:], "--help")
            self.assertEqual((status, errors), (0, ""))
            self.assertIn(f"{start} ", output)

    def test_says_why_it_skips_what_needs_a_cluster(self):
        status, _, errors = run("test", "--kubernetes")
        self.assertEqual(status, 77)
        self.assertIn("SKIPPED (kubernetes): KUBECONFIG names no cluster, and FENCEGATE_CLUSTER no script that starts one", errors)

    @unittest.skipUnless(shutil.which("kubectl"), "there is no kubectl")
    def test_leaves_alone_a_cluster_that_is_not_for_tests(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            context = {"name": "production", "context": {"cluster": "c", "user": "u"}}
            json.dump({"apiVersion": "v1", "kind": "Config", "contexts": [context], "current-context": "production"}, file)
            file.flush()
            for kubeconfig, why in ((file.name, "production, the context of KUBECONFIG, is none of kind's, and FENCEGATE_IMAGE_LOADER "),
                                    (file.name + ".gone", "KUBECONFIG: error: current-context is not set")):
                status, _, errors = run("test", "--kubernetes", KUBECONFIG=kubeconfig)
                self.assertEqual(status, 77)
                self.assertIn(f"SKIPPED (kubernetes): {why}", errors)

    def test_each_manifest_is_applied_by_a_command_of_the_documents(self):
        """And each of these is run on a cluster: see test_documents.py."""
        applied = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
        base = (ROOT / "docker/k8s/kustomization.yaml").read_text()
        self.assertRegex(applied, r"kubectl apply -k docker/k8s-overlay\b")
        for manifest in (ROOT / "docker/k8s").glob("*.yaml"):
            if manifest.name not in base and manifest.name != "kustomization.yaml":
                self.assertRegex(applied, f"kubectl apply [^\n]*{manifest.name}")

    def test_does_nothing_where_it_is_misunderstood(self):
        for arguments, why in {
            ("nonsense",): "unknown command nonsense",
            ("build", "--nonsense"): "unknown argument --nonsense",
            ("fuzz", "--nonsense"): "unknown argument --nonsense",
            ("fuzz", "nonsense"): "no fuzz target 'nonsense'; there are: ",
            ("fuzz", "--seconds", "soon"): "not 'soon'",
            ("fuzz", "tag", "rules"): "takes one target",
            ("fuzz", "tag", "redis_differential"): "takes one target",
            ("format", "src/main.cpp"): "takes no arguments",
            ("setup", "now"): "not 'now'",
            ("image", "now"): "unknown argument now",
            ("package", "now"): "takes no arguments",
            ("image", "--programs"): "DIR has fencegate and fencegate-hold; '' has not",
            ("image", "--programs", "docker"): "'docker' has not",
        }.items():
            status, _, errors = run(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(why, errors)


@unittest.skipUnless(shutil.which("kubectl"), "there is no kubectl")
class Kustomized(unittest.TestCase):
    """Whether a cluster takes them: see tests/kubernetes."""

    def rendered(self, folder):
        return subprocess.run(["kubectl", "kustomize", folder], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    def assert_configurations(self, text, count):
        found = re.findall(r"^  fencegate.yaml: \|\n((?:    .*\n|\n)+)", text, re.M)
        self.assertEqual(len(found), count)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "password").write_text("secret")
            for one in found:
                config = Path(folder) / "fencegate.yaml"
                config.write_text(re.sub(r"/run/secrets/fencegate/\w+", f"{folder}/password", textwrap.dedent(one)))
                done = subprocess.run([os.environ["FENCEGATE"], "check", "--no-secrets", "-c", config], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_base(self):
        text = self.rendered("docker/k8s")
        self.assertEqual(sorted(re.findall(r"^kind: (\w+)$", text, re.M)),
                         ["ConfigMap", "ConfigMap", "CronJob", "Deployment", "Job", "NetworkPolicy", "NetworkPolicy"])
        self.assert_configurations(text, 2)

    def test_the_overlay(self):
        text = self.rendered("docker/k8s-overlay")
        self.assert_configurations(text, 2)
        self.assertIn("@db.internal/app", text)
        self.assertEqual(set(re.findall(r"image: (\S*fencegate\S*)", text)), {"registry.example.com/fencegate:0.1.0"})
        self.assertEqual(set(re.findall(r"^  namespace: (\w+)$", text, re.M)), {"orders"})


def installed_in(stage):
    named = re.search(r"apt-get install -y --no-install-recommends (.*?) +&& ", stage.replace("\\\n", " "))[1]
    return set(shlex.split(named))


def package_of(library):
    """That a shared library is of, by its name."""
    owners = subprocess.run(["dpkg-query", "-S", f"*-linux-gnu/{library}"], capture_output=True, text=True, check=True).stdout
    return re.match(r"[^:]+", owners)[0]


class Releases(unittest.TestCase):
    """What is installed where; apt-get and dpkg-query are ours."""

    def install(self, offered, installed=(), what="--build"):
        with tempfile.TemporaryDirectory() as folder:
            for name, does in {
                "dpkg-query": f'for n in {" ".join(installed) or "-"}; do [ "$n" = "$3" ] && echo installed; done; true',
                "apt-cache": f'for n in {" ".join(offered)}; do [ "$n" = "$3" ] && exit 0; done; exit 1',
                "apt-get": "echo apt-get $*",
                "sudo": '"$@"',
            }.items():
                program = Path(folder) / name
                program.write_text(f"#!/bin/sh\n{does}\n")
                program.chmod(0o755)
            done = subprocess.run([DEV, "setup", what], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  env=environment(PATH=f"{folder}:{os.environ['PATH']}"))
        return done.returncode, done.stdout + done.stderr

    @staticmethod
    def always_of(packages):
        names = re.search(rf"^{packages}=\((.*?)\)", DEV.read_text(), re.M | re.S)[1]
        return [name for name in shlex.split(names) if "|" not in name]

    def setUp(self):
        self.always = self.always_of("build_packages")

    def test_a_release_with_a_new_boost_gives_its_own(self):
        status, said = self.install([*self.always, "libboost-url-dev", "libboost-url1.83-dev"])
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"apt-get install .* libboost-url-dev\b")
        self.assertNotIn("1.83", said)

    def test_a_release_with_an_old_boost_gives_the_newer_one(self):
        self.assertRegex(self.install([*self.always, "libboost-url1.81-dev"])[1], r"apt-get install .* libboost-url1.81-dev\b")

    def test_the_servers_are_those_of_the_release(self):
        always = [*self.always, *self.always_of("test_packages"), "libboost-url-dev"]
        for servers, jdk in ((("redis-server", "postgresql-15"), "openjdk-17-jdk-headless"),
                             (("redis-server", "postgresql-17"), "default-jdk-headless"),
                             (("valkey-redis-compat", "postgresql-18"), "default-jdk-headless")):
            status, said = self.install([*always, *servers, jdk], what="--test")
            self.assertEqual(status, 0, said)
            for name in (*servers, jdk):
                self.assertRegex(said, rf"apt-get install .*\b{name}\b")
        status, said = self.install([*always, "redis-server", "default-jdk-headless"], what="--test")
        self.assertEqual(status, 2)
        self.assertRegex(said, "has no package postgresql-15 or postgresql-16.*; known are")

    def test_what_is_there_is_taken(self):
        status, said = self.install([], [*self.always, "libboost-url1.83-dev"])
        self.assertEqual((status, said), (0, ""))

    def test_a_release_without_one_is_told_so(self):
        status, said = self.install(self.always)
        self.assertEqual(status, 2)
        self.assertRegex(said, r"has no package libboost-url-dev or libboost-url1.81-dev.*; known are Debian 12 and 13\n")


class Image(unittest.TestCase):
    def setUp(self):
        self.build, self.final = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.M)[1:]

    def test_is_built_and_started_as_the_first_page_says(self):
        build = shlex.split(command("README.md", "docker build"))
        self.assertEqual(build, ["docker", "build", "-f", "docker/Dockerfile", "-t", TAG, "."])
        start = shlex.split(command("README.md", "docker run"))
        self.assertEqual(start[-1], TAG)
        self.assertIn("--read-only", start)
        (mounted,) = [word for word in start if word.startswith("$PWD/")]
        config = re.search(r'^CMD \["serve", "-c", "(.*)"\]$', self.final, re.M)[1]
        self.assertEqual(mounted, f"$PWD/fencegate.yaml:{config}:ro")

    def test_has_one_tag_wherever_it_is_named(self):
        version = re.search(r"^project\(fencegate VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        self.assertEqual(TAG, f"fencegate:{version}")
        for path in [*(ROOT / "docker").rglob("*.yaml"), *(ROOT / "docker").glob("Dockerfile"), *(ROOT / "docs").glob("*.md")]:
            named = re.findall(r"(?:image: +|-t )((?:[\w./]+/)?fencegate\b\S*)", path.read_text())
            self.assertEqual(set(named) - {TAG}, set(), path)

    def test_runs_as_a_user_without_rights(self):
        users = re.findall(r"^USER (\d+):(\d+)$", self.final, re.M)
        self.assertEqual(len(users), 1)
        self.assertNotIn("0", users[0])
        self.assertNotIn("\nCOPY", self.final.split("USER")[1], "nothing comes in behind it")

    @unittest.skipIf("FENCEGATE_SANITIZED" in os.environ, "only the release build is what is shipped")
    def test_carries_what_the_program_loads_and_no_more(self):
        dynamic = subprocess.run(["readelf", "-d", os.environ["FENCEGATE"]], capture_output=True, text=True, check=True)
        libraries = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic.stdout)
        self.assertIn("libc.so.6", libraries)
        for source in (ROOT / "src").rglob("*.cpp"):
            libraries += re.findall(LOADED_LATER, source.read_text())
        self.assertIn("libpq.so.5", libraries)
        needed = {package_of(library) for library in libraries}
        # The names of some have a version of their own in each Debian.
        installed = {name: {one for one in needed | {"ca-certificates"} if re.fullmatch(name, one)} for name in installed_in(self.final)}
        self.assertEqual([name for name, found in installed.items() if len(found) != 1], [])
        self.assertEqual(set().union(*installed.values()), needed - ESSENTIAL | {"ca-certificates"})

    def test_is_of_one_debian(self):
        self.assertEqual(HEADING, ["ARG DEBIAN=12", "ARG BUILD_BASE=debian:${DEBIAN}", "ARG BASE=debian:${DEBIAN}-slim"])
        self.assertEqual(re.findall(r"^FROM (\S+)", DOCKERFILE, re.M), ["${BUILD_BASE}", "${BASE}"])

    def test_says_what_it_is(self):
        labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="(.*)"', self.final))
        build = (ROOT / "CMakeLists.txt").read_text()
        self.assertEqual(labels["description"], re.search(r'DESCRIPTION "(.*)"', build)[1])
        self.assertEqual(labels["licenses"], "Apache-2.0")
        self.assertEqual((labels["version"], labels["revision"]), ("${VERSION}", "${REVISION}"))
        self.assertEqual(re.findall(r"^ARG VERSION=(.*)$", self.final, re.M), re.findall(r"^project\(fencegate VERSION ([\d.]+)", build, re.M))

    def test_carries_its_licences(self):
        for name in ("LICENSE", "THIRD_PARTY_NOTICES"):
            self.assertIn(f"\nCOPY --from=build /src/{name} /usr/share/doc/fencegate/{name}\n", self.final)

    def test_says_how_it_is(self):
        (asks,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", self.final, re.M)
        self.assertEqual(json.loads(asks), ["/usr/local/bin/fencegate", "healthcheck"])

    def build_image(self, engine, *arguments):
        """What `./dev image` has the engine do: its arguments, and files of the context that it names."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("docker", "podman"):
                program = Path(folder) / name
                program.write_text("#!/bin/sh\n" + ("exit 1\n" if name != engine else f"""
                    [ "$1" = info ] && exit
                    echo "$@" > {folder}/said
                    for last; do :; done
                    cp "$last/Dockerfile" "$last"/build/release/* {folder} 2>/dev/null
                    exit 0"""))
                program.chmod(0o755)
            done = subprocess.run([DEV, "image", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT,
                                  env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "FENCEGATE_CONTAINER": "--first"})
            self.assertEqual(done.returncode, 0, done.stderr)
            read = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        return read["said"].decode().split(), read

    def test_is_built_by_dev(self):
        for engine, format in (("docker", []), ("podman", ["--format", "docker"])):
            said, _ = self.build_image(engine)
            self.assertEqual(said, ["--first", "build", *format, "--network", "host", "--build-arg", f"REVISION={REVISION}", "-t", TAG,
                                    "-f", "docker/Dockerfile", "."])

    def test_is_built_by_dev_around_programs_that_are_there(self):
        names = ("fencegate", "fencegate-hold")
        with tempfile.TemporaryDirectory() as programs:
            for name in names:
                program = Path(programs) / name
                program.write_text(f"this is {name}")
                program.chmod(0o755)
            said, read = self.build_image("podman", "--programs", programs)
        self.assertEqual(read["Dockerfile"].decode(), "\n".join([*HEADING, self.final.replace("COPY --from=build /src/", "COPY ")]))
        self.assertEqual([read[name].decode() for name in names], [f"this is {name}" for name in names])
        self.assertFalse(os.path.exists(said[-1]), "its folder is gone")

    def test_is_built_with_the_packages_of_dev(self):
        self.assertIn("\nRUN ./dev setup --build", self.build)
        self.assertNotIn("apt-get", self.build)


if __name__ == "__main__":
    unittest.main()
