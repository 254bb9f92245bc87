"""Processes under tests/live/probe/hold_probe.cpp: hold's keeper and guard, without a lease.

    held = self.start(Held("sleep", "300", grace=200))
    held.wait_for_job(1)
    held.stop_now()
    self.assertEqual(held.wait(), 79)
    self.assertEqual(held.left(), [])

What belongs to a test is known by a variable in its environment, whatever its parents, groups and sessions are. That
looks at one process after the other, and may miss what is born and ends meanwhile. Whether anything is left, a pipe says
that all inherit: its end.
"""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import uuid

from processes import PATIENCE, die_with_parent, eventually

PROBE = os.environ.get("HOLD_PROBE", "hold_probe")
NOBODY = 65534


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def state(pid):
    """The letter of ps, "" when there is no such process."""
    text = _read(f"/proc/{pid}/stat")
    return text.rpartition(b") ")[2][:1].decode()


def parent(pid):
    return int(_read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()[1])


def name(pid):
    return _read(f"/proc/{pid}/comm").decode().strip()


def status(pid, field):
    for line in _read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith(f"{field}:"):
            return line.split(":", 1)[1].strip()
    return None


def children(pid):
    return [int(one) for one in _read(f"/proc/{pid}/task/{pid}/children").split()]


class Held:
    """A keeper with its job. Words in front of the probe (`under`), options of the probe by name: ttl=500 is --ttl 500."""

    def __init__(self, *command, under=(), folder=None, environment=None, prepare=None, inherit=(), stdin=subprocess.DEVNULL, **options):
        self.own_folder = None if folder else tempfile.TemporaryDirectory(prefix="held-")
        self.folder = folder or self.own_folder.name
        self.mark = f"HOLD_TEST={uuid.uuid4()}"
        self.said_path = os.path.join(self.folder, f"said-{self.mark[-8:]}")
        self.under = under
        self.command = [str(one) for one in command]
        self.environment = {**os.environ, **(environment or {}), "F": self.folder, "HOLD_TEST": self.mark.split("=")[1]}
        self.prepare = prepare
        self.inherit = inherit
        self.stdin = stdin
        self.options = options
        self.child = None
        self.life = None  # to be read; its other end is `inherited`, a number that they all have
        self.inherited = None

    def words(self):
        """The probe's command line."""
        out = [PROBE, "run", "--said", self.said_path]
        for key, value in self.options.items():
            out += [f"--{key.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return out + ["--", *self.command]

    def __enter__(self):
        os.chmod(self.folder, 0o777)
        with open(self.said_path, "w", encoding="utf-8"):
            os.chmod(self.said_path, 0o666)

        self.life, self.inherited = os.pipe()

        def prepare():
            die_with_parent()
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # who runs the tests may ignore some
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if self.prepare:
                self.prepare()

        with open(os.path.join(self.folder, "output"), "ab") as output:
            self.child = subprocess.Popen([*self.under, *self.words()], stdin=self.stdin, stdout=output, stderr=output,
                                          env=self.environment, process_group=0, preexec_fn=prepare, restore_signals=False,
                                          pass_fds=(self.inherited, *self.inherit))
        os.close(self.inherited)
        return self

    def __exit__(self, *_):
        def gone():
            for pid in self.everything():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not self.everything()

        if self.child.poll() is None:
            self.child.kill()  # first of all: its guard ends what forks faster than we look
        eventually(gone, every=0.001)
        os.close(self.life)
        if self.child.stdin:
            self.child.stdin.close()
        self.child.wait()
        if self.own_folder:
            self.own_folder.cleanup()

    # ------------------------------------------------------------------------------------------------ what it says

    def said(self, word=None):
        """The lines that were said; or the last that begins with `word`, without it, as a list of words."""
        lines = [line.split() for line in _read(self.said_path).decode().splitlines()]
        if word is None:
            return lines
        found = [line[1:] for line in lines if line[0] == word]
        return found[-1] if found else None

    def end(self):
        """KIND, STATUS, LEFT_BEHIND, LATE_US, and the list of those that could not be ended."""
        kind, code, left_behind, late, *rest = self.said("ended")
        return kind, int(code), int(left_behind), int(late), [int(one) for one in rest]

    def path(self, file):
        return os.path.join(self.folder, file)

    def has(self, file):
        return os.path.exists(self.path(file))

    def read(self, file):
        return _read(self.path(file)).decode()

    # ------------------------------------------------------------------------------------------------ its processes

    def everything(self):
        """Of this test, alive or stopped, keeper and guard, too."""
        mark = self.mark.encode()
        own = (int(one) for one in os.listdir("/proc") if one.isdigit())
        return [pid for pid in own if mark in _read(f"/proc/{pid}/environ").split(b"\0")]

    def job(self):
        """Those of CMD."""
        return [pid for pid in self.everything() if not self._is_hold(pid)]

    @staticmethod
    def _is_hold(pid):
        words = _read(f"/proc/{pid}/cmdline").split(b"\0")
        return name(pid) in ("hold_probe", "hold-guard") and words[1:2] == [b"run"]

    def gone(self):
        """Nothing of keeper, guard and job is there any more."""
        poll = select.poll()
        poll.register(self.life, select.POLLIN)
        return any(what & select.POLLHUP for _, what in poll.poll(0))

    def left(self):
        """Of job and guard."""
        return [pid for pid in self.everything() if pid != self.keeper]

    def wait_for_job(self, count):
        def there():
            if self.child.poll() is not None:
                raise AssertionError(f"it ended: {self.child.returncode}, {self.said()}, {self.read('output')}")
            return self.said("runs") is not None and len(self.job()) >= count

        eventually(there)

    @property
    def keeper(self):
        return self.child.pid

    @property
    def guard(self):
        (found,) = [pid for pid in self.everything() if name(pid) == "hold-guard"]
        return found

    def stop_now(self):
        os.kill(self.keeper, signal.SIGALRM)
        eventually(lambda: self.said("stopping") is not None)

    def freeze(self, pid):
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: state(pid) == "T")

    def wait(self, deadline=PATIENCE):
        return self.child.wait(deadline)
