"""A pod's processes, as the node sees them."""

from pathlib import Path


def process_of(pod):
    """The fencegate of a pod, which is a process of this machine."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"HOSTNAME={pod}".encode() in (path / "environ").read_bytes().split(b"\0")
            if is_ours and (path / "cmdline").read_bytes().split(b"\0")[1] == b"serve":
                return int(path.name)
        except (OSError, IndexError):
            continue  # it has ended
    raise LookupError(f"no process of this machine is the fencegate of {pod}")
