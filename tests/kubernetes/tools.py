"""What the rig, its images and its cluster are made with."""

import contextlib
import subprocess
import sys
import time


class Unavailable(Exception):
    """This machine cannot have the cluster or its images: no failure of what is tested."""


def run(*command, text=""):
    """What it wrote; its errors, too, in the CalledProcessError when it fails."""
    return subprocess.run(command, check=True, text=True, input=text, capture_output=True).stdout


@contextlib.contextmanager
def needed(what):
    try:
        yield
    except (subprocess.CalledProcessError, OSError) as error:
        raise Unavailable(f"{what}: {(getattr(error, 'stderr', None) or str(error)).strip()[-1500:]}") from error


@contextlib.contextmanager
def timed(what):
    started = time.monotonic()
    yield
    print(f"kubernetes: {what} in {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
