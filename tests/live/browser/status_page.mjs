// Looks at the status page with Debian's Chromium. Arguments: URL, program. Actions: see ../clients/lines.mjs.
import { chromium } from "playwright-core";
import { serve } from "../clients/lines.mjs";

const [url, program] = process.argv.slice(2);
// As root, as in a container, Chromium has no sandbox of its own.
const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
let page;
const complaints = []; // of the console, and requests for anything that is not this process's own

// What moved without anybody asking for it, since the page was opened; and what its policy has refused.
function observe() {
  globalThis.shifted = 0;
  globalThis.refused = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) globalThis.shifted += one.value;
  }).observe({ type: "layout-shift", buffered: true });
  addEventListener("securitypolicyviolation", (event) => globalThis.refused.push(event.violatedDirective));
}

// The relation of brightness of each text to what is behind it: WCAG 2, success criterion 1.4.3.
function contrasts() {
  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
  const light = (c) => c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    if (node === null) return [255, 255, 255];
    const own = rgb(getComputedStyle(node).backgroundColor);
    return own.length === 4 && own[3] === 0 ? behind(node.parentElement) : over(own, behind(node.parentElement));
  };
  const low = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim()).map((n) => n.data.trim()).join(" ");
    if (!text || node.closest("script, style, noscript, .unseen") || node.getClientRects().length === 0) continue;
    const [a, b] = [light(over(rgb(getComputedStyle(node).color), behind(node))), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return low;
}

await serve({
  open: async ({ dark = false, width = 1280, height = 900 } = {}) => {
    await page?.context().close();
    const context = await browser.newContext({ colorScheme: dark ? "dark" : "light", viewport: { width, height } });
    page = await context.newPage();
    page.on("console", (message) => complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("request", (request) => {
      if (!request.url().startsWith(url) && !request.url().startsWith("data:")) complaints.push(request.url());
    });
    await page.addInitScript(observe);
    await page.goto(url, { waitUntil: "domcontentloaded" });
  },
  text: (selector) => page.locator(selector).first().innerText(),
  texts: (selector) => page.locator(selector).allInnerTexts(),
  wait: (selector, text) => page.locator(selector).filter({ hasText: text }).first().waitFor({ timeout: 20_000 }),
  fill: (selector, text) => page.fill(selector, text),
  count: (selector) => page.locator(selector).count(),
  shifted: () => page.evaluate("shifted"),
  refused: () => page.evaluate("refused"),
  complaints: () => complaints,
  contrasts: () => page.evaluate(contrasts),
  // Wider than the window: a phone would scroll sideways.
  overflow: () => page.evaluate("document.documentElement.scrollWidth - innerWidth"),
  // What has the focus after each press of Tab.
  tabs: async (presses) => {
    const names = [];
    for (let i = 0; i < presses; ++i) {
      await page.keyboard.press("Tab");
      names.push(await page.evaluate(`(() => {
        const one = document.activeElement;
        return one.id || one.getAttribute("aria-labelledby") || one.textContent;
      })()`));
    }
    return names;
  },
  screenshot: async (path) => void (await page.screenshot({ path, fullPage: true })),
});
