"""Whether each #include in src/ names a folder, or a library of others, that its own folder may know: what fencegate_library()
links in CMakeLists.txt. The linker notices what is called, but not a header that needs no library. And whether a folder includes
something of each library of others that it is linked to."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of others: what their headers' names begin with, and what CMakeLists.txt calls them. The longest counts.
OTHERS = {"boost/asio": "fencegate_asio", "boost/beast": "fencegate_asio", "boost/json": "fencegate_json", "boost/url": "Boost::url",
          "boost/": "Boost::headers", "CLI/": "CLI11::CLI11", "hiredis/": "HIREDIS_LIBRARY", "libpq": "PostgreSQL_INCLUDE_DIRS",
          "openssl/": "OPENSSL_INCLUDE_DIR", "prometheus/": "prometheus-cpp::core", "spdlog/": "spdlog::spdlog",
          "yaml-cpp/": "yaml-cpp"}
# Where Asio and Boost.JSON are compiled.
COMPILED_HERE = ("backend/asio", "base/json")


class Library:
    """A folder of src/: what it is linked to, by its CMake name."""

    def __init__(self):
        self.public, self.private = set(), set()

    def link(self, words):
        to = self.public
        for word in words.split():
            if word in ("PUBLIC", "PRIVATE"):
                to = self.private if word == "PRIVATE" else self.public
            else:
                to.add(word.strip("${}"))


def libraries(cmake):
    """Each folder that is a library."""
    found = {}
    for name, words in re.findall(r"^fencegate_library\((\S+) ?(.*?)\)", cmake, re.M):
        found.setdefault(name, Library()).link(words)
    of_target = {f"fencegate_{name.replace('/', '_')}": library for name, library in found.items()}
    for target, words in re.findall(r"^target_(?:link_libraries|include_directories)\((\w+) (?:SYSTEM )?(.*?)\)", cmake, re.M):
        if target in of_target:
            of_target[target].link(words)
    return found


def known(libraries):
    """What each folder may include: other folders, and libraries by their CMake names."""
    folder_of = {f"fencegate_{name.replace('/', '_')}": name for name in libraries}
    gates = {f"fencegate_{name.replace('/', '_')}" for name in libraries if name.startswith("gate/")}

    def public(name):
        out = set()
        for word in libraries[name].public | (gates if "fencegate_gate" in libraries[name].public else set()):
            out |= {word} | (public(folder_of[word]) if word in folder_of else set())
        return out

    return {name: {folder_of.get(word, word) for word in public(name) | library.private} for name, library in libraries.items()}


def folder_of(path, folders):
    """Of a file in src/: the longest folder that is a library; None: it is none of ours."""
    parts = Path(path).parent.parts
    for length in range(len(parts), 0, -1):
        if (name := "/".join(parts[:length])) in folders:
            return name
    return None


def other_of(included):
    """The library of others that has the header; None: the system has it."""
    begins = [one for one in OTHERS if included.startswith(one)]
    return OTHERS[max(begins, key=len)] if begins else None


def includes(files, folders):
    """Of texts by their paths in src/: (place, its folder, what is included, the folder or library that has it)."""
    for path, text in files:
        if path.startswith(COMPILED_HERE):
            continue
        for match in re.finditer(r'^#include (?:"([^"]+)"|<([^>]+)>)', text, re.M):
            there = folder_of(match[1], folders) if match[1] else other_of(match[2])
            here = folder_of(path, folders)
            if here is not None and there is not None:
                yield f"src/{path}:{text.count(chr(10), 0, match.start()) + 1}", here, match[1] or match[2], there


def forbidden(files, allowed):
    """What includes what it may not."""
    return [f"{place}: {here} may not include {included}" for place, here, included, there in includes(files, allowed)
            if there != here and there not in allowed[here]]


def unused(files, linked):
    """Libraries of others that a folder is linked to, and includes nothing of."""
    used = {(here, there) for _, here, _, there in includes(files, linked)}
    return [f"CMakeLists.txt: {name} includes nothing of {one}" for name, library in linked.items()
            for one in sorted((library.public | library.private) & set(OTHERS.values())) if (name, one) not in used]


def main():
    linked = libraries((ROOT / "CMakeLists.txt").read_text())
    allowed = known(linked)
    sources = [(str(path.relative_to(ROOT / "src")), path.read_text()) for path in sorted((ROOT / "src").rglob("*.[ch]pp"))]
    found = forbidden(sources, allowed) + unused(sources, linked)
    # What would be found, were it there.
    example = [("fence/token.hpp", '#include "base/result.hpp"\n#include "wire/resp_reply.hpp"\n#include <boost/json/value.hpp>\n'),
               ("gate/redis/claims.hpp", '#include "gate/relay/peer.hpp"\n#include "gate/http/http_plan.hpp"\n'
                                         '#include <boost/asio/post.hpp>\n#include <spdlog/logger.h>\n'),
               ("cli/serve.cpp", "#include <yaml-cpp/yaml.h>\n#include <libpq-fe.h>\n#include <hiredis/hiredis.h>\n"),
               ("hold/guard.cpp", "#include <boost/asio/post.hpp>\n")]
    assert [one.split(":")[1] for one in forbidden(example, allowed)] == ["2", "3", "2", "4", "2", "3", "1"], forbidden(example, allowed)
    assert "CMakeLists.txt: admin includes nothing of spdlog::spdlog" in unused(example, linked), unused(example, linked)
    assert len(allowed) > 10 and len(sources) > 100, (allowed, len(sources))
    print("\n".join(found) or f"{len(sources)} sources include what they may")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
