#!/usr/bin/env python3
"""Mutants: the program with a fence that does not hold, by which tests show that they can fail. NAME.patch says what is changed.

  mutant.py copy PATCH FOLDER   FOLDER/src/… becomes the files that the patch names, with the patch applied (the build does it)
  mutant.py save PATCH FOLDER   the patch becomes what FOLDER/src/… differs in from src/…, to mend one that does not apply

What stands in front of the first file's name in a patch says what the mutant is, and is kept."""

import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def named_in(patch):
    """The files, of the mutant, that a patch names; those of the program that it starts from."""
    pairs = re.findall(r"^--- (\S+).*\n\+\+\+ b/(\S+)", patch.read_text(), re.M)
    return [new for _, new in pairs], [new for old, new in pairs if old != "/dev/null"]


def copy(patch, folder):
    """The exit status. What does not differ keeps its time, so that nothing is compiled anew because of another file."""
    files, originals = named_in(patch)
    if gone := [name for name in originals if not (ROOT / name).exists()]:
        print(f"{patch.relative_to(ROOT)} changes {', '.join(gone)}, which is not there: name in it the file that it is now", file=sys.stderr)
        return 1
    fresh = folder / "new"
    shutil.rmtree(fresh, ignore_errors=True)
    for name in originals:
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, fresh / name)
    done = subprocess.run(["patch", "-p1", "--fuzz=0", "--batch", "--forward", "--no-backup-if-mismatch", "-d", fresh, "-i", patch.resolve()],
                          capture_output=True, text=True)
    if done.returncode != 0:
        rejected = ", ".join(str(one.relative_to(fresh)).removesuffix(".rej") for one in sorted(fresh.rglob("*.rej")))
        here = Path(__file__).relative_to(ROOT)
        print(f"{patch.relative_to(ROOT)} no longer applies to {rejected or done.stdout + done.stderr}: make the changes of each .rej "
              f"by hand in {fresh}, then run {here} save {patch.relative_to(ROOT)} {fresh}", file=sys.stderr)
        return 1
    for name in files:
        new, at = fresh / name, folder / name
        if not at.exists() or at.read_bytes() != new.read_bytes():
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(new, at)
    shutil.rmtree(fresh)
    return 0


def save(patch, folder):
    files, originals = named_in(patch)
    text = patch.read_text()
    parts = [text[: re.search(r"^--- ", text, re.M).start()]]
    for name in files:
        old = (ROOT / name).read_text().splitlines(keepends=True) if name in originals else []
        new = (folder / name).read_text().splitlines(keepends=True)
        parts += difflib.unified_diff(old, new, f"a/{name}" if name in originals else "/dev/null", f"b/{name}")
    patch.write_text("".join(parts))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("copy", "save"):
        sys.exit(__doc__)
    sys.exit({"copy": copy, "save": save}[sys.argv[1]](Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()))
