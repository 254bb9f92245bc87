"""The cluster under test: one that a script starts, or one that is there. Both have `host`, this machine's address as pods see it
and as the names in NAMES lead to it; a `namespace`; load(IMAGE…); and freeze() and thaw(), or `why_no_freeze`."""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import needed, run, timed

FOLDER = Path(__file__).resolve().parents[2] / "build/kubernetes"
NAMES = ("redis", "postgres", "catalog", "locks")


class Started:
    """By the script in FENCEGATE_CLUSTER (`up DIR NAME…`, `load`, `freeze`, `thaw`, `down`): this machine is its only node."""

    host, namespace, why_no_freeze = "10.244.0.1", "default", None

    def __init__(self, script):
        self.script = os.path.abspath(script)
        self.folder = FOLDER / "cluster"

    def __enter__(self):
        if (self.folder / "pid").exists():
            self.call("down")  # a run before was killed
        try:
            with needed("the cluster does not start"), timed("cluster up"):
                self.start()
                self.keep_bridge_address()
        except BaseException:
            self.__exit__()
            raise
        os.environ["KUBECONFIG"] = str(self.folder / "kubeconfig")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.call("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """A busy machine may need a second try."""
        try:
            self.call("up", *NAMES)
        except subprocess.CalledProcessError:
            self.call("down")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.call("up", *NAMES)

    def keep_bridge_address(self):
        """Else the bridge of the pods takes another one with each pod that comes or goes, and all connections stand still for
        seconds: until the others ask for it again."""
        (device,) = {one["ifname"] for one in json.loads(run("ip", "-json", "address", "show", "to", self.host))}
        run("ip", "link", "set", "dev", device, "address", Path(f"/sys/class/net/{device}/address").read_text().strip())

    def call(self, verb, *arguments):
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile("w+", dir=self.folder.parent) as said:  # a pipe would be held open by what it leaves running
            # Debian's python3 before any other: each start of a container runs it some times.
            done = subprocess.run([self.script, verb, str(self.folder), *arguments], stdin=subprocess.DEVNULL, stdout=said,
                                  stderr=said, env=os.environ | {"PATH": "/usr/sbin:/usr/bin:" + os.environ["PATH"]})
            if done.returncode != 0:
                said.seek(0)
                raise subprocess.CalledProcessError(done.returncode, f"cluster {verb}", stderr=said.read())

    def load(self, *images):
        self.call("load", *images)

    def await_reachable(self, image):
        pass

    def freeze(self, pod, container):
        """A runtime may give up where a container is busy."""
        for left in (2, 1, 0):
            try:
                return self.call("freeze", pod, container)
            except subprocess.CalledProcessError as error:
                print(f"kubernetes: {pod} {container} is not frozen: {error.stderr}", file=sys.stderr)
                if left == 0:
                    raise

    def thaw(self, pod, container):
        self.call("thaw", pod, container)


class Given:
    """By KUBECONFIG, with a namespace of the tests' own. Images come to its nodes by `loader`, a command to which the name of one is
    added, or else by kind. What takes the runtime of a node is not to be had."""

    namespace = "fencegate-test"
    why_no_freeze = "a container is frozen by the runtime of its node, which KUBECONFIG does not lead to"

    def __init__(self, engine, loader):
        self.engine, self.loader = engine, shlex.split(loader)
        self.kubeconfig = FOLDER / "kubeconfig"

    def __enter__(self):
        try:
            with needed("the cluster of KUBECONFIG does not answer"), timed("a namespace in the cluster of KUBECONFIG"):
                self._find()
                self._remove_namespace()  # a run before was killed
                run("kubectl", "create", "namespace", self.namespace)
                self.host = self._address()
                names = {"apiVersion": "v1", "kind": "List", "items": list(self._names())}
                run("kubectl", "create", "-f", "-", text=json.dumps(names))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.kubeconfig.exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                self._remove_namespace("--wait=false")
            self.kubeconfig.unlink()

    def _remove_namespace(self, *how):
        run("kubectl", "delete", "namespace", self.namespace, "--ignore-not-found", *how)

    def _find(self):
        """A copy of what KUBECONFIG says about its context, but for the namespace."""
        config = json.loads(run("kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        self.context = config["current-context"]
        config["contexts"][0]["context"]["namespace"] = self.namespace
        FOLDER.mkdir(parents=True, exist_ok=True)
        with open(os.open(self.kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(config, file)
        os.environ["KUBECONFIG"] = str(self.kubeconfig)

    @staticmethod
    def _address():
        """This machine's on the way to a node."""
        addresses = json.loads(run("kubectl", "get", "nodes", "-o", "json"))["items"][0]["status"]["addresses"]
        (node, *_) = [one["address"] for one in addresses if one["type"] == "InternalIP"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((node, 9))  # sends nothing
            return way.getsockname()[0]

    def _names(self):
        """As a service outside of a cluster has them: without a selector, one address each."""
        for name in NAMES:
            ports = [{"port": 80}]  # one is needed; a headless service has the address only
            yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": "None", "ports": ports}}
            yield {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": ports,
                   "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                   "endpoints": [{"addresses": [self.host]}]}

    def load(self, *images):
        with needed("the images do not come to the nodes"):
            for image in images:
                if self.loader:
                    run(*self.loader, image)
                else:
                    self._load_by_kind(image)

    def _load_by_kind(self, image):
        """As an archive: of podman's images kind knows nothing."""
        with tempfile.TemporaryDirectory() as folder:
            run(self.engine, "save", "-o", f"{folder}/image.tar", image)
            run("kind", "load", "image-archive", f"{folder}/image.tar", "--name", self.context.removeprefix("kind-"))

    def await_reachable(self, image):
        """Until a pod has the image, and has reached this machine's port 8500 by a name."""
        words = ["python3", "-c", "import socket; socket.create_connection(('locks', 8500), 10)"]
        with needed(f"a pod does not reach this machine at {self.host}"), timed("a pod reaches this machine"):
            run("kubectl", "run", "reach", f"--image={image}", "--image-pull-policy=Never", "--restart=Never", "--rm", "--attach",
                "--command", "--", *words)
