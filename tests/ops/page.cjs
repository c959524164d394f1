// The pages of a running exporter in a real browser.
//
//   node page.cjs check FACTS      runs every check and prints {name: null or what was wrong}
//   node page.cjs pictures FACTS FOLDER [NAME...]   takes pictures of known situations
//
// FACTS is a JSON file: where the exporter is, and what its targets are called (test_page.py). The
// modules come from the folder that NODE_PATH names; the browser is Debian's chromium.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { chromium } = require("playwright-core");

const [, , task, factsFile, folder, ...wanted] = process.argv;
const facts = JSON.parse(fs.readFileSync(factsFile, "utf8"));
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const DESK = { width: 1200, height: 800 };
const PHONE = { width: 360, height: 740 };
// Long enough for a machine that compiles at the same time; nothing waits this long in a good run.
const PATIENCE = 60000;

const SWITCHES = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--host-resolver-rules=MAP exporter.example 127.0.0.1", "--disable-component-update", "--disable-sync",
];

let browser;
const complaints = [];

// A page of its own context; what its console says is a complaint.
const open = async (address, options = {}) => {
  const context = await browser.newContext({ viewport: DESK, ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.on("console", (message) => complaints.push(`${address}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`${address}: ${error}`));
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
      window.violations.push(event.violatedDirective + " " + event.blockedURI));
  });
  await page.goto(facts.url + address);
  return page;
};
const close = (page) => page.context().close();
// The page renews itself when it is looked at again; waiting for its clock would take longer.
const renew = (page) => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
const names = (page) => page.locator(".target h2").allTextContents();
const until = async (what, look) => {
  const ends = Date.now() + PATIENCE;
  while (!(await look())) {
    assert.ok(Date.now() < ends, `still waiting for ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
};
const overflow = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

const PAGES = () => ["/", "/targets?state=fine&page=2", "/?q=nothing-is-called-so", facts.stuck,
  facts.failing, facts.hostile, facts.shared, facts.gone, facts.sealed, facts.flock, facts.pid];

const checks = {
  async "the worst is first and the counts add up"() {
    const page = await open("/");
    const first = await page.locator(".target").first().innerText();
    assert.match(first, /stuck|unreadable/);
    const counts = await page.locator(".counts").innerText();
    const numbers = counts.match(/[\d,]+/g).map((number) => Number(number.replace(/,/g, "")));
    assert.equal(numbers.reduce((a, b) => a + b), facts.total, counts);
    assert.match(counts, /failing/);
    await page.locator(".counts a", { hasText: "stuck" }).click();
    await page.waitForURL(/state=stuck/);
    assert.ok((await names(page)).length >= 1);
    for (const row of await page.locator(".target .badge").allInnerTexts()) assert.equal(row, "stuck");
    await close(page);
  },

  async "an owner that is gone is not called stuck"() {
    const page = await open("/");
    await page.locator(".counts a", { hasText: "owner gone" }).click();
    await page.waitForURL(/state=owner_gone/);
    assert.ok((await names(page)).includes(facts.names.gone));
    for (const row of await page.locator(".target").all()) {
      assert.equal(await row.locator(".badge").innerText(), "owner gone");
      assert.match(await row.innerText(), /owner gone: /);
    }
    await page.goto(facts.url + facts.gone);
    const colours = await page.evaluate(() =>
      [".badge", ".bar .fill"].map((of) => getComputedStyle(document.querySelector(of)))
        .map((style, index) => (index === 0 ? style.backgroundColor : style.fill)));
    assert.equal(colours[0], colours[1], "badge and bar have the colour of their own");
    await close(page);
  },

  async "the pages of lock files speak no restic"() {
    for (const address of [facts.flock, facts.pid]) {
      const page = await open(address);
      for (const summary of await page.locator("summary").all()) await summary.click();
      const text = await page.locator("main").innerText();
      assert.ok(!/refresh|Stored|22\.5|unlock/.test(text), text);
      assert.equal(await page.locator(".bar").count(), 0);
      await close(page);
    }
  },

  async "words and states filter"() {
    const page = await open("/");
    await page.fill("#q", "FLEET-0012 fleet");
    await page.press("#q", "Enter");
    await page.waitForURL(/q=FLEET-0012/);
    const found = await names(page);
    assert.ok(found.length >= 1 && found.every((name) => name.includes("fleet-0012")), found.join());
    assert.equal(await page.inputValue("#q"), "FLEET-0012 fleet");
    await page.fill("#q", "");
    await page.selectOption("#state", "failing");
    await page.click("text=Show");
    await page.waitForURL(/state=failing/);
    assert.deepEqual(await names(page), [facts.names.failing]);
    await page.fill("#q", facts.holder);
    await page.selectOption("#state", "");
    await page.press("#q", "Enter");
    await page.waitForURL((url) => url.search.includes(facts.holder));
    assert.deepEqual(await names(page), [facts.names.stuck], "found by its holder's host");
    await close(page);
  },

  async "two thousand targets come in pages"() {
    const page = await open("/targets?q=fleet");
    assert.equal((await names(page)).length, 50);
    await page.locator(".pager a[rel=next]").click();
    await page.waitForURL(/page=2/);
    assert.equal((await names(page)).length, 50);
    await page.locator(".pager a[rel=prev]").click();
    await page.waitForURL((url) => !url.search.includes("page=2"));
    // The rest by their addresses, without drawing each.
    const seen = new Set();
    const pages = Math.ceil(facts.fleet / 50);
    for (let number = 1; number <= pages; number += 1) {
      const answer = await page.request.get(`${facts.url}/targets?q=fleet&page=${number}`);
      for (const [, name] of (await answer.text()).matchAll(/data-key="(fleet-\d+)"/g)) seen.add(name);
    }
    assert.equal(seen.size, facts.fleet);
    await page.goto(`${facts.url}/targets?q=fleet&page=${pages}`);
    assert.equal(await page.locator(".pager a[rel=next]").count(), 0);
    await close(page);
  },

  async "it renews itself and keeps what the reader has"() {
    const page = await open(`/?q=${facts.names.job}`);
    const row = page.locator(".target");
    assert.match(await row.innerText(), /free/);
    await page.evaluate(() => { window.mark = "same page"; });
    await page.locator("#events summary").click();
    await page.fill("#q", "half typed");
    await page.locator(".target h2 a").focus();
    fs.writeFileSync(facts.jobFile, `${process.pid}\n`);
    await until("the lock to show", async () => {
      await renew(page);
      return /exclusive/.test(await row.innerText());
    });
    assert.equal(await page.evaluate(() => window.mark), "same page");
    assert.equal(await page.inputValue("#q"), "half typed");
    assert.ok(await page.evaluate(() => document.querySelector("#events").open));
    assert.ok(await page.evaluate(() => document.activeElement.matches(".target h2 a")));
    fs.unlinkSync(facts.jobFile);
    await until("it to be free", async () => {
      await renew(page);
      return /free/.test(await row.innerText());
    });
    await close(page);
  },

  async "scrolling stays where it is"() {
    const page = await open("/targets?q=fleet");
    await page.evaluate(() => scrollTo(0, 1500));
    const before = await page.evaluate(() => scrollY);
    const asof = await page.locator("#asof").innerText();
    await until("a renewal", async () => {
      await renew(page);
      return (await page.locator("#asof").innerText()) !== asof;
    });
    assert.equal(await page.evaluate(() => scrollY), before);
    await close(page);
  },

  async "an exporter that does not answer is said"() {
    const page = await open("/");
    await page.route("**/*", (route) => route.fulfill({ status: 503, body: "no" }));
    await until("the words", async () => {
      await renew(page);
      return /Not current/.test(await page.locator("#trouble").innerText());
    });
    await page.unroute("**/*");
    await until("them to go", async () => {
      await renew(page);
      return (await page.locator("#trouble").textContent()) === "";
    });
    // The browser itself reports the refusals that were asked for here.
    complaints.splice(0, complaints.length, ...complaints.filter((text) => !text.includes("503")));
    await close(page);
  },

  async "a command is copied as it is"() {
    const page = await open(facts.stuck, { permissions: ["clipboard-read", "clipboard-write"] });
    const block = page.locator(".cmd").first();
    const command = await block.locator("code").textContent();
    assert.match(command, /^restic -r \S+ unlock$/);
    await block.locator(".copy").click();
    await until("the word", async () => /Copied/.test(await block.locator(".copy").innerText()));
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);
    await close(page);
  },

  async "a command is copied without TLS too"() {
    const page = await open("/");
    // To a browser only this machine itself is trustworthy without TLS.
    await page.goto(facts.url.replace("127.0.0.1", "exporter.example"));
    assert.equal(await page.evaluate(() => window.isSecureContext), false);
    const block = page.locator(".cmd").first();
    await block.locator(".copy").click();
    await until("the word", async () => /Copied/.test(await block.locator(".copy").innerText()));
    await page.focus("#q");
    await page.keyboard.press("Control+V");
    assert.equal(await page.inputValue("#q"), await block.locator("code").textContent());
    await close(page);
  },

  async "the keyboard reaches everything"() {
    const page = await open("/");
    await page.keyboard.press("Tab");
    const skip = page.locator(":focus");
    assert.match(await skip.innerText(), /targets/);
    assert.ok((await skip.boundingBox()).x >= 0, "the first stop can be seen");
    const reached = [];
    for (let n = 0; n < 40; n += 1) {
      await page.keyboard.press("Tab");
      const here = await page.evaluate(() => {
        const at = document.activeElement;
        const outline = getComputedStyle(at).outlineStyle;
        return [at.id || at.textContent.trim(), at.matches("body") || outline !== "none"];
      });
      assert.ok(here[1], `nothing shows that ${here[0]} has the focus`);
      reached.push(here[0]);
    }
    for (const stop of ["lock_exporter", "q", "state", "Show", "Copy"]) {
      assert.ok(reached.includes(stop), `${stop} is not among ${reached}`);
    }
    await page.locator(".target h2 a").first().focus();
    await page.keyboard.press("Enter");
    await page.waitForURL(/targets\//);
    await page.locator("summary").focus();
    await page.keyboard.press("Enter");
    assert.ok(await page.evaluate(() => document.querySelector("#files").open));
    await close(page);
  },

  async "no text from a lock becomes markup"() {
    for (const address of [facts.hostile, `/?q=${encodeURIComponent("<script>")}`, "/"]) {
      const page = await open(address);
      await renew(page);
      assert.equal(await page.evaluate(() => window.pwned), undefined);
      assert.equal(await page.locator("script").count(), 1);
      assert.equal(await page.locator("main img, main iframe, main b[onclick]").count(), 0);
      await close(page);
    }
    const page = await open(facts.hostile);
    const text = await page.locator("main").innerText();
    assert.ok(text.includes("<script>window.pwned=1</script>"), text);
    assert.ok(!/[\u200b\u202e\u2066]/.test(await page.content()), "what turns or hides text is shown");
    await close(page);
  },

  async "every name has a page"() {
    for (const [name, address] of Object.entries(facts.odd)) {
      const page = await open("/?q=" + encodeURIComponent(name.slice(0, 60)));
      const link = page.locator(".target h2 a", { hasText: name });
      await link.first().click();
      assert.equal(decodeURIComponent(new URL(page.url()).pathname), decodeURIComponent(address));
      assert.equal(await page.locator("h1").innerText(), name);
      await page.locator(".up a").click();
      await page.waitForURL(/\/targets$/);
      await close(page);
    }
  },

  async "it works below a path"() {
    const proxy = http.createServer((request, response) => {
      const inner = request.url.replace(/^\/locks/, "");
      assert.notEqual(inner, request.url, "every address is below the path");
      http.get(facts.url + inner, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
    });
    await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
    const base = `http://127.0.0.1:${proxy.address().port}/locks`;
    const page = await open("/");
    await page.goto(`${base}${facts.odd[facts.names.deep]}`);
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).maxWidth), "none");
    await page.locator(".home a").click();
    await page.waitForURL(`${base}/`);
    await page.locator(".target h2 a").first().click();
    await page.waitForURL(/\/locks\/targets\//);
    await close(page);
    proxy.closeAllConnections();
    proxy.close();
  },

  async "it works without scripts"() {
    const page = await open("/", { javaScriptEnabled: false });
    await page.fill("#q", facts.holder);
    await page.click("text=Show");
    await page.waitForURL(/q=/);
    assert.deepEqual(await names(page), [facts.names.stuck]);
    assert.equal(await page.locator(".copy").first().isVisible(), false);
    await page.click("text=Make it anew every minute");
    await page.waitForURL(/refresh=60/);
    assert.match(await page.content(), /http-equiv="refresh" content="60"/);
    await page.locator(".target h2 a").first().click();
    await page.locator("#files summary").click();
    assert.ok(await page.locator("#files table").isVisible());
    await close(page);
  },

  async "nothing scrolls sideways on a phone"() {
    for (const address of PAGES()) {
      const page = await open(address, { viewport: PHONE });
      for (const summary of await page.locator("summary").all()) await summary.click();
      assert.equal(await overflow(page), 0, address);
      await close(page);
    }
  },

  async "axe finds nothing, in light and dark"() {
    for (const colorScheme of ["light", "dark"]) {
      // What differs in the dark is the colours, which these have all of.
      const all = colorScheme === "light" ? PAGES() : ["/", facts.stuck, facts.failing];
      for (const address of all) {
        const page = await open(address, { colorScheme, bypassCSP: true });
        for (const summary of await page.locator("summary").all()) await summary.click();
        await page.evaluate(axe);
        const found = await page.evaluate(() => window.axe.run());
        const told = found.violations.map((violation) =>
          `${violation.id}: ${violation.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
        assert.deepEqual(told, [], `${address} in ${colorScheme}`);
        await close(page);
      }
    }
  },

  async "the policy is never violated and the console is silent"() {
    for (const address of PAGES()) {
      const page = await open(address);
      await renew(page);
      assert.deepEqual(await page.evaluate(() => window.violations), [], address);
      await close(page);
    }
    assert.deepEqual(complaints, []);
  },
};

const pictures = () => ({
  targets: ["/", DESK, "light"],
  dark: ["/", DESK, "dark"],
  phone: ["/", PHONE, "light"],
  free: [facts.free, DESK, "light"],
  shared: [facts.shared, DESK, "light"],
  exclusive: [facts.exclusive, DESK, "light"],
  stale: [facts.stuck, DESK, "light"],
  gone: [facts.gone, DESK, "light"],
  sealed: [facts.sealed, DESK, "dark"],
  flock: [facts.flock, DESK, "light"],
  pid: [facts.pid, DESK, "light"],
  failing: [facts.failing, DESK, "light"],
  hostile: [facts.hostile, DESK, "light"],
  "phone-stale": [facts.stuck, PHONE, "dark"],
  fleet: ["/targets?q=fleet&page=2", DESK, "light"],
});

const main = async () => {
  browser = await chromium.launch({ executablePath: facts.browser, args: SWITCHES });
  try {
    if (task === "check") {
      const results = {};
      for (const [name, check] of Object.entries(checks)) {
        results[name] = await check().then(() => null, (error) => String(error.stack));
      }
      console.log(JSON.stringify(results));
    } else {
      for (const [name, [address, viewport, colorScheme]] of Object.entries(pictures())) {
        if (wanted.length > 0 && !wanted.includes(name)) continue;
        const page = await open(address, { viewport, colorScheme });
        await page.screenshot({ path: path.join(folder, `${name}.png`) });
        await close(page);
      }
    }
  } finally {
    await browser.close();
  }
};
main();
