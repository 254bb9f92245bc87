"""`./dev test --kubernetes`: docker/k8s as shipped, on a real cluster. Needs FENCEGATE_CLUSTER, a script that starts one, or
KUBECONFIG, and FENCEGATE_ENGINE: podman or docker, with what goes in front of `build`. Status 77: this machine cannot, and why is
said. Arguments: names of tests; or --images, which makes the images only, and leaves them for a run to come.
"""

import concurrent.futures
import contextlib
import io
import os
import sys
import threading
import time
import unittest

import cluster
from clusters import Given, Started
from images import FENCEGATE, NEXT, WRITER, Images
from locks import Locks
from tools import Unavailable, timed

# What does not touch what the others look at runs side by side: pods need more time than processors.
SIDE_BY_SIDE = [("test_deployment", "test_sidecar.Trouble"), ("test_manifests", "test_cronjob"), ("test_standby", "test_two_containers")]
AFTER_ALL = ["test_sidecar.Rotation"]  # of what all of them use


class Timed(unittest.TextTestResult):
    """Says how long each test took."""

    started = time.monotonic()

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._show(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._show(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self._show(subtest, err)

    def _show(self, test, err):
        """At once, with the pods as they are."""
        self.stream.writeln(f"    {time.monotonic() - self.started:.1f} s\n{self._exc_info_to_string(err, test)}")
        if cluster.rig:
            self.stream.writeln(cluster.rig.described())

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.stream.writeln(f"    {time.monotonic() - self.started:.1f} s")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.stream.writeln(f"    {time.monotonic() - self.started:.1f} s")


def run_tests(names):
    if names == ["--images"]:
        Images(os.environ["FENCEGATE_ENGINE"]).make()
        return 0
    with contextlib.ExitStack() as stack:
        images = Images(os.environ["FENCEGATE_ENGINE"])
        script = os.environ.get("FENCEGATE_CLUSTER")
        nodes = Started(script) if script else Given(images.engine, os.environ.get("FENCEGATE_IMAGE_LOADER", ""))
        with contextlib.ExitStack() as started, concurrent.futures.ThreadPoolExecutor() as two:
            for one in [two.submit(started.enter_context, each) for each in (nodes, images)]:
                one.result()
            stack.push(started.pop_all())
        with timed("images loaded"):
            nodes.load(FENCEGATE, NEXT, WRITER)
        cluster.rig = cluster.Rig(nodes, stack.enter_context(Locks(nodes.host, 8500)))
        nodes.await_reachable(WRITER)
        cluster.rig.start_servers(stack)
        if names:
            return 0 if passes(names, sys.stderr) else 1
        assert cluster.rig.billing  # and with it all that several of them need
        return 0 if pass_side_by_side() and passes(AFTER_ALL, sys.stderr) else 1


def passes(names, stream):
    tests = unittest.defaultTestLoader.loadTestsFromNames(names)
    return unittest.TextTestRunner(stream, verbosity=2, resultclass=Timed).run(tests).wasSuccessful()


def pass_side_by_side():
    passed = []

    def run_one(names):
        with io.StringIO() as said:
            if passes(names, said):
                passed.append(names)
            sys.stderr.write(said.getvalue())

    # Daemons, since nobody waits for them when this process is told to end.
    threads = [threading.Thread(target=run_one, args=(names,), daemon=True) for names in SIDE_BY_SIDE]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(passed) == len(SIDE_BY_SIDE)


def main():
    cluster.clean_up_on_sigterm()
    try:
        with timed("all"):
            sys.exit(run_tests(sys.argv[1:]))
    except Unavailable as error:
        print(f"kubernetes: SKIPPED: {error}", file=sys.stderr)
        sys.exit(77)


if __name__ == "__main__":
    main()
