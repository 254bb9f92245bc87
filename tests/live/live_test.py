"""Live tests: against private servers, which are there for the time of a test.

    class Marks(LiveTest):
        def test_a_claim(self):
            redis = self.start(RedisServer())
            gate = self.start(Gate(redis, policy={"max_step": 10}))
            client = self.start(Resp(gate.port, name="fence:orders=34"))
            self.assertEqual(client.call("SET", "k", "v"), b"OK")
"""

import functools
import multiprocessing
import os
import signal
import sys
import unittest

from processes import Process, die_with_parent
from resp import RespError


class LiveTest(unittest.TestCase):
    """`start` enters a context manager for the time of the test; servers print their logs when the test failed."""

    def run(self, result=None):
        self._result = result
        return super().run(result)

    def start(self, context):
        value = context.__enter__()
        self.addCleanup(self._end, context)
        return value

    def _end(self, context):
        if isinstance(context, Process):
            context.show_log = any(test is self for test, _ in self._result.failures + self._result.errors)
        context.__exit__(None, None, None)

    def assert_error(self, reply, code):
        self.assertIsInstance(reply, RespError)
        self.assertEqual(reply.code, code, str(reply))


def clean_up_on_sigterm():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main(at_once=1):
    """Runs the tests of the calling file. `at_once`: so many at a time, each in one of as many processes, in a file whose
    tests wait rather than work. Those that are named on the command line run one after the other. Where each of them was
    skipped, the exit status is 77: nothing passed."""
    clean_up_on_sigterm()
    if at_once > 1 and len(sys.argv) == 1:
        sys.exit(_run_side_by_side(at_once))
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    if result.wasSuccessful() and len(result.skipped) == result.testsRun:
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


class _Share(unittest.TestSuite):
    """Always the next of the tests that no other process has taken."""

    def __init__(self, tests, taken):
        super().__init__(tests)
        self.taken = taken
        self._cleanup = False

    def __iter__(self):
        while True:
            with self.taken.get_lock():
                at = self.taken.value
                self.taken.value += 1
            if at >= len(self._tests):
                return
            yield self._tests[at]


class _WholeLines(unittest.TextTestResult):
    """A test is named when it is known how it ended: others end meanwhile."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)


def _each(suite):
    for one in suite:
        yield from _each(one) if isinstance(one, unittest.TestSuite) else (one,)


def _take_no_more(taken, count, *_):
    """The test at hand is broken off, which cleans up behind it, and is the last."""
    taken.value = count
    sys.exit(143)


def _run_side_by_side(count):
    """The exit status: 0 when each process has passed all that it took."""
    tests = list(_each(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    taken = multiprocessing.Value("i", 0)
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, functools.partial(_take_no_more, taken, len(tests)))
            die_with_parent(signal.SIGTERM)
            result = unittest.TextTestRunner(verbosity=2, resultclass=_WholeLines).run(_Share(tests, taken))
            sys.exit(not result.wasSuccessful())
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return 1 if any(ended) else 0
