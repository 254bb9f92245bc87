"""Whether each #include in src/ names a folder that its own may know: what fencegate_library() links in CMakeLists.txt. The
linker notices what is called, but not a header that needs no library."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def libraries(cmake):
    """Each folder that is a library, and those that it is linked to, however far below."""
    direct = {name: {word.removeprefix("fencegate_") for word in words.split() if word.startswith("fencegate_")}
              for name, words in re.findall(r"^fencegate_library\((\S+) ?(.*)\)", cmake, re.M)}
    folder_of = {name.replace("/", "_"): name for name in direct}
    direct = {name: {folder_of[word] for word in words if word in folder_of} for name, words in direct.items()}
    direct["cli"] |= {name for name in direct if name.startswith("gate/")}  # fencegate_gate is all of them

    def below(name):
        return direct[name].union(*map(below, direct[name]))

    return {name: below(name) for name in direct}


def folder_of(path, folders):
    """Of a file in src/: the longest folder that is a library; None: it is none of ours."""
    parts = Path(path).parent.parts
    for length in range(len(parts), 0, -1):
        if (name := "/".join(parts[:length])) in folders:
            return name
    return None


def forbidden(files, allowed):
    """Of texts by their paths in src/: what includes what it may not."""
    for path, text in files:
        here = folder_of(path, allowed)
        for line, included in ((text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r'^#include "([^"]+)"', text, re.M)):
            there = folder_of(included, allowed)
            if here is not None and there is not None and there != here and there not in allowed[here]:
                yield f"src/{path}:{line}: {here} may not include {included}"


def main():
    allowed = libraries((ROOT / "CMakeLists.txt").read_text())
    sources = [(str(path.relative_to(ROOT / "src")), path.read_text()) for path in sorted((ROOT / "src").rglob("*.[ch]pp"))]
    found = list(forbidden(sources, allowed))
    # What would be found, were it there.
    example = [("fence/token.hpp", '#include "base/result.hpp"\n#include "wire/resp_reply.hpp"\n'),
               ("gate/redis/claims.hpp", '#include "gate/relay/peer.hpp"\n#include "gate/http/http_plan.hpp"\n')]
    assert [one.split(":")[1] for one in forbidden(example, allowed)] == ["2", "2"], list(forbidden(example, allowed))
    assert len(allowed) > 10 and len(sources) > 100, (allowed, len(sources))
    print("\n".join(found) or f"{len(sources)} sources include what they may")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
