"""The judge of what a sidecar says of itself at the end of a soak (`./dev soak`): each kind of complaint can be made."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "soak"))

from at_rest import Rest, growth, left_open, open_gauges, unexplained

SCRAPE = """# HELP fencegate_connections client connections that are open
# TYPE fencegate_connections gauge
fencegate_connections{gate="cache"} 0
# TYPE fencegate_backend_up gauge
fencegate_backend_up{gate="cache"} 1
# TYPE fencegate_store_connections gauge
fencegate_store_connections{gate="api",store="ledger",state="idle"} 4
fencegate_store_connections{gate="api",store="ledger",state="busy"} 0
# TYPE fencegate_config_generation gauge
fencegate_config_generation 12
# TYPE fencegate_connections_total counter
fencegate_connections_total{gate="cache"} 99
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 20971520
"""
MIB = 1 << 20


class AtRest(unittest.TestCase):
    def growth(self, rss=20 * MIB, descriptors=40, **more):
        return growth(Rest(20 * MIB, 40), Rest(rss, descriptors), 4, **more)

    def test_accepts_what_is_as_it_was(self):
        self.assertEqual(self.growth(), [])
        self.assertEqual(self.growth(rss=22 * MIB, descriptors=44), [])
        self.assertEqual(left_open(SCRAPE), [])

    def test_sees_memory_that_has_grown(self):
        self.assertEqual(self.growth(rss=22 * MIB + 1024), ["memory: 22529 KiB, and 20480 KiB after the warm-up"])
        self.assertEqual(self.growth(rss=200 * MIB, memory_counts=False), [])

    def test_sees_descriptors_that_are_left(self):
        self.assertEqual(self.growth(descriptors=45), ["descriptors: 45, and 40 after the warm-up"])

    def test_sees_what_is_open(self):
        self.assertEqual(left_open(SCRAPE.replace('connections{gate="cache"} 0', 'connections{gate="cache"} 2')),
                         ['gauge: fencegate_connections{gate="cache"} is 2'])
        self.assertEqual(len(left_open(SCRAPE.replace('state="busy"} 0', 'state="busy"} 1'))), 1)
        # Whatever it is, until it is known to say something else.
        new = "# TYPE fencegate_something_new gauge\nfencegate_something_new 3\n"
        self.assertEqual(open_gauges(SCRAPE + new), {"fencegate_something_new": 3})

    def test_sees_errors_that_nothing_explains(self):
        lines = [{"level": "info", "msg": "marks lost"}, {"level": "error", "msg": "backend connection closed"}]
        self.assertEqual(unexplained(lines), [])
        lines += [{"level": "error", "msg": "marks lost"}] * 2
        self.assertEqual(unexplained(lines), ["log: 2 times {'level': 'error', 'msg': 'marks lost'}"])


if __name__ == "__main__":
    unittest.main()
