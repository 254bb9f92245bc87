"""README.md and docs/*.md, as tests read them: their blocks, their commands, their links.

Each line of an `sh` block is taken from the page by some test, by `command(PAGE, START)`, which runs it; test_documents.py
finds those that no test takes. Those that need a cluster run in tests/kubernetes only; those that need docker are compared
with the Dockerfile.
"""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "src/README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))


def text(page):
    return (ROOT / page).read_text()


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text(page), re.M | re.S)


def block(page, language):
    """The only one."""
    (found,) = blocks(page, language)
    return found


def commands(page):
    """The lines of its `sh` blocks, without the words behind them."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return [re.split(r"\s{2,}# ", line)[0] for line in lines if line and not line.startswith("#")]


def command(page, start):
    """The only command of the page that starts so."""
    (found,) = [line for line in commands(page) if line.startswith(start)]
    return found


def shell_environment(**more):
    """For the commands of the pages: the fencegate under test, and Debian's own programs before any other."""
    programs = (os.path.dirname(os.path.abspath(os.environ["FENCEGATE"])), "/usr/bin", os.environ["PATH"])
    return os.environ | {"PATH": ":".join(programs)} | more


def run_shell(line, folder, **environment):
    """Runs a command of a page in the folder; what it wrote. AssertionError when it fails."""
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=shell_environment(**environment), text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{line}\nstatus {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def gates_user(redis, *more):
    """Makes the gate's user in a Redis, with the rights that the page gives it and `more`."""
    (words,) = [line.split() for line in block("docs/redis.md", "acl").splitlines() if "SETUSER fencegate" in line]
    return redis.cli.call(*words, *more)


def anchors(page):
    """Where a link to a heading of the page may lead."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text(page), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page):
    """(page or file, anchor or None) of those that lead to this project; the first is a path from its root."""
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", text(page)):
        path = (ROOT / page).parent / target if target else ROOT / page
        yield path.resolve(), anchor
