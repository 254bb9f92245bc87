"""The Lua of the fence as it stands in the sources, for tests that run it by themselves or take parts of it away."""

import pathlib
import re

_SOURCES = (pathlib.Path(__file__).resolve().parents[2] / "src/backend").glob("redis*_scripts.hpp")
_TEXT = "".join(path.read_text() for path in sorted(_SOURCES))


def script_of(*names):
    """The texts of these, one behind the other."""
    return "".join(re.search(rf'{name} = [^;]*?R"lua\((.*?)\)lua"', _TEXT, re.DOTALL)[1] for name in names)
