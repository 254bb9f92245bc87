"""The status page in a browser: what it shows, live; that it stays readable, usable by keyboard, and in its place."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))

import node_client  # noqa: E402
from live_test import main  # noqa: E402
from processes import LOOPBACK, PATIENCE, eventually  # noqa: E402
from test_status import ATTACK, StatusTest  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "browser")
SHIFT_MAX = 0.02  # of the window: https://web.dev/articles/cls calls 0.1 good
SCREENSHOTS = os.environ.get("FENCEGATE_SCREENSHOTS")  # a folder


def setUpModule():
    node_client.install_packages(FOLDER)


class Browser(node_client.NodeClient):
    def __init__(self, gate):
        program = shutil.which("chromium")
        assert program, "this test needs the package chromium"
        url = f"http://{LOOPBACK}:{gate.admin_port}/"
        self.command = ["node", os.path.join(FOLDER, "status_page.mjs"), url, program]


class PageTest(StatusTest):
    def browser(self, gate, **look):
        browser = self.start(Browser(gate))
        browser.do("open", look, deadline=PATIENCE)
        browser.do("wait", "#link-words", "Live")
        return browser

    def keep(self, browser, name):
        if SCREENSHOTS:
            browser.do("screenshot", os.path.join(SCREENSHOTS, f"{name}.png"))

    def assert_clean(self, browser):
        self.assertEqual(browser.do("complaints"), [])
        self.assertEqual(browser.do("refused"), [])


class Live(PageTest):
    def test_a_stopped_writer_appears_without_a_reload(self):
        gate = self.gate()
        browser = self.browser(gate)
        self.assertIn("No stale writer since", browser.do("text", "#verdict"))
        self.assertEqual(browser.do("text", "#state"), "✓ ready")
        self.supersede(gate)
        browser.do("wait", "#verdict", "A stale writer was stopped")
        words = browser.do("text", "#verdict")
        for word in ("Token 33 of orders is below mark 34", "gate cache", "nothing of it was applied"):
            self.assertIn(word, words)
        row = browser.do("text", "#rejections tr")
        for word in ("stale token", "FENCED", "orders", "33", "34", "cache", LOOPBACK):
            self.assertIn(word, row)
        self.assertIn("orders", browser.do("text", "#resources tr"))
        self.supersede(gate, "stock")
        browser.do("wait", "#spoken", "token 33 of stock, below mark 34")
        self.assertEqual(browser.do("count", "#rejections tr"), 2)
        self.assertLess(browser.do("shifted"), SHIFT_MAX)
        self.assert_clean(browser)

    def test_it_says_when_the_sidecar_is_gone_and_goes_on_when_it_is_back(self):
        gate = self.gate()
        self.supersede(gate)
        browser = self.browser(gate)
        gate.kill()
        browser.do("wait", "#link-words", "Connection to the sidecar lost at")
        self.assertIn("A stale writer was stopped", browser.do("text", "#verdict"), "what was known stays")
        self.assertEqual(browser.do("text", "#state"), "? was ready")
        self.keep(browser, "lost")
        self.assertEqual(browser.do("contrasts"), [])
        gate.start()
        browser.do("wait", "#link-words", "Live")
        browser.do("wait", "#verdict", "No stale writer since")

    def test_markup_from_clients_is_text(self):
        gate = self.attacked()
        browser = self.browser(gate)
        browser.do("wait", "#rejections", ATTACK)
        self.assertEqual(browser.do("count", "#rejections script"), 0)
        self.assert_clean(browser)

    def test_filter(self):
        gate = self.gate()
        self.supersede(gate)
        self.supersede(gate, "stock")
        browser = self.browser(gate)
        browser.do("fill", "#filter", "stock")
        eventually(lambda: browser.do("count", "#rejections tr") == 1)
        self.assertIn("stock", browser.do("text", "#rejections tr"))
        self.assertEqual(browser.do("text", "#rejections-count"), "1 of 2")
        browser.do("fill", "#filter", "nothing has this")
        browser.do("wait", "#no-rejections", "No rejection matches the filter.")


class Looks(PageTest):
    """In daylight and in the dark, on a desk and on a phone."""

    def look(self, name, **look):
        gate = self.gate()
        self.supersede(gate)
        self.supersede(gate, "a-resource:with/a.rather-long_name:" + "x" * 60)
        browser = self.browser(gate, **look)
        browser.do("wait", "#rejections", "orders")
        self.keep(browser, name)
        self.assertEqual(browser.do("contrasts"), [], "WCAG 2.2 AA")
        self.assertLessEqual(browser.do("overflow"), 0, "nothing to scroll sideways")
        self.assertLess(browser.do("shifted"), SHIFT_MAX)
        self.assert_clean(browser)
        return browser

    def test_light(self):
        self.look("light")

    def test_dark(self):
        self.look("dark", dark=True)

    def test_phone(self):
        self.look("phone", width=375, height=780)

    def test_phone_in_the_dark(self):
        self.look("phone-dark", width=375, height=780, dark=True)

    def test_by_keyboard(self):
        browser = self.browser(self.gate())
        wanted = ["Skip to what was rejected", "filter", "rejections-head", "resources-head", "leases-head"]
        self.assertEqual(browser.do("tabs", len(wanted)), wanted)

    def test_colour_is_never_alone(self):
        gate = self.gate(policy={"mode": "monitor"})
        browser = self.browser(gate)
        self.assertIn("◌ monitor: rejects nothing", browser.do("text", ".gate"))
        self.assertIn("✓ up", browser.do("text", ".gate"))
        self.proxy.refuse = True
        self.proxy.cut_all()
        browser.do("wait", ".gate", "✕ down")
        browser.do("wait", ".problem", "Server: ")
        self.assertLess(browser.do("shifted"), SHIFT_MAX)


if __name__ == "__main__":
    main()
