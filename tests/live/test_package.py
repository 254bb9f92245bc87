"""What is delivered beside the program: licences, notices."""

import os
import re
import subprocess
import unittest

import documents
from documents import ROOT

NOTICES = "THIRD_PARTY_NOTICES"
# As CMake or the linker calls them, and as the notices do.
LIBRARIES = {"prometheus-cpp-core": "prometheus-cpp", "gcc_s": "libgcc", "stdc++": "libstdc++", "c": "GNU C library",
             "m": "GNU C library", "PostgreSQL": "libpq", "pq": "libpq", "ssl": "OpenSSL", "crypto": "OpenSSL", "GTest": "GoogleTest"}


class Licences(unittest.TestCase):
    def test_each_library_has_its_notice(self):
        said = subprocess.run(["readelf", "-d", os.environ["FENCEGATE"]], capture_output=True, text=True, check=True).stdout
        used = {name for name in re.findall(r"\(NEEDED\).*\[lib([^]]+?)\.so", said) if not re.fullmatch("asan|ubsan", name)}
        self.assertIn("yaml-cpp", used)
        build = documents.text("CMakeLists.txt")
        used |= set(re.findall(r"find_package\((\S+)", build)) - {"Threads"} | set(re.findall(r"find_library\(\w+ (\S+)", build))
        for source in (ROOT / "src").rglob("*.cpp"):
            used |= set(re.findall(r'shared_library::load\("lib([^".]+)', source.read_text()))
        self.assertLessEqual({"Boost", "pq", "ssl"}, used)
        notices = documents.text(NOTICES)
        for name in used:
            self.assertIn(LIBRARIES.get(name, name), notices)

    def test_each_notice_has_its_text(self):
        table, *texts = re.split(r"^-{79}\n(.+)\n-{79}$", documents.text(NOTICES), flags=re.M)
        named = {re.split(r"  |,", line)[0] for line in re.findall(r"^  (?=\S)(.+)$", table, re.M)} - {"library"}
        self.assertIn("Boost", named)
        self.assertEqual(named, {title.split(",")[0] for title in texts[::2]})


if __name__ == "__main__":
    unittest.main()
