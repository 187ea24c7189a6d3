// Drives the pages of a service in Chromium, with the keyboard alone, and checks every page with
// axe-core: in light and dark, on a wide and on a narrow screen.
//
// usage: node drive.mjs MODULES CHROMIUM '{"link": ..., ...}'
//
// Ends with 0 if everything is as it should be; otherwise it says what isn't.

import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [modules, executablePath, settings] = process.argv.slice(2);
const { link, source, target, name, failed, listed, pictures } = JSON.parse(settings);
const require = createRequire(join(modules, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const origin = new URL(link).origin;

if (pictures) mkdirSync(pictures, { recursive: true });
const problems = [];
const check = (is, text) => {
  if (!is) problems.push(text);
};

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

/** A window whose errors are problems, such as those of the content security policy. */
async function open(state, width, colorScheme) {
  const context = await browser.newContext({
    storageState: state,
    viewport: { width, height: width > 600 ? 800 : 844 },
    colorScheme,
    reducedMotion: "reduce",
    locale: "en-GB",
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("console", (message) => {
    const isStatus = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !isStatus) problems.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
  return { context, page };
}

/** Moves the focus to an element that matches, with the key of tabulators. */
async function tabTo(page, selector) {
  for (let count = 0; count < 300; count += 1) {
    await page.keyboard.press("Tab");
    const is = await page.evaluate((text) => document.activeElement.matches(text), selector);
    if (is) return;
  }
  throw new Error(`${page.url()}: the keyboard doesn't reach ${selector}`);
}

/** What a person does who submits a transfer without a pointer, and watches it. */
async function submitByKeyboard(page) {
  await page.goto(`${origin}/`);
  await tabTo(page, "a.primary[href='/new']");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/new");
  for (const [side, place] of [["source", source], ["target", target]]) {
    await tabTo(page, `#${side}`);
    await page.keyboard.press("Control+A");
    await page.keyboard.type(place);
    await page.keyboard.press("Enter");
    await page.waitForFunction(
      ([side, place]) => document.getElementById(`${side}-at`)?.textContent.startsWith(place),
      [side, place],
    );
    const focused = await page.evaluate(() => document.activeElement.id);
    check(focused === `${side}-at`, `the focus is at ${focused} after ${side} was opened`);
    if (side === "source") {
      await tabTo(page, `input[type=checkbox][aria-label="${name}"]`);
      await page.keyboard.press("Space");
    }
  }
  await tabTo(page, "summary");
  await page.keyboard.press("Enter");
  await tabTo(page, "#rate");
  await page.keyboard.type("1M");
  await tabTo(page, "button.primary");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/new/review");
  check((await page.textContent("main")).includes(name), "the review doesn't name the file");
  await tabTo(page, "button.primary");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/jobs/*");
  const loads = [];
  page.on("load", () => loads.push(page.url()));
  // The focus stays on a button while what is around it changes.
  await tabTo(page, "#change-cancel");
  await page.waitForFunction(() => document.querySelector("#part-rate .curve"));
  const focused = await page.evaluate(() => document.activeElement.id);
  check(focused === "change-cancel", `the focus has gone to '${focused}'`);
  await page.waitForSelector("article[data-state=succeeded]");
  const announced = await page.textContent("[data-announce]");
  check(announced === "The job is succeeded.", `announced: '${announced}'`);
  check(loads.length === 0, "the page was loaded again");
  return page.url();
}

async function examine(page, title, width, scheme) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, help, nodes } of violations) {
    problems.push(`${title} ${width} ${scheme}: ${id}: ${help}: ${nodes.map((node) => node.html).join("\n")}`);
  }
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(overflow <= 0, `${title} ${width}: it is ${overflow} pixels too wide`);
  const hidden = await page.evaluate(() => {
    const pages = document.querySelector("header nav");
    return pages ? pages.scrollWidth - pages.clientWidth : 0;
  });
  check(hidden <= 0, `${title} ${width}: ${hidden} pixels of the pages' names can't be seen`);
  if (pictures) {
    await page.screenshot({ path: join(pictures, `${title}-${width}-${scheme}.png`) });
  }
}

try {
  const first = await open(undefined, 1280, "light");
  await first.page.goto(link);
  const job = await submitByKeyboard(first.page).catch(async (error) => {
    if (pictures) await first.page.screenshot({ path: join(pictures, "failure.png"), fullPage: true });
    throw error;
  });
  const state = await first.context.storageState();
  await first.context.close();

  const places = new URLSearchParams({ source, target });
  const pages = [
    ["jobs", "/"],
    ["jobs-filtered", "/?state=failed&label=none"],
    ["job", new URL(job).pathname],
    ["job-failed", `/jobs/${failed}`],
    ["failures", `/jobs/${failed}/failures`],
    ["transfers", `/jobs/${failed}/transfers`],
    ["new", `/new?${places}`],
    ["new-empty", "/new?kind=copy"],
    ["files", `/jobs/${listed}/files`],
    ["schedules", "/schedules"],
    ["servers", "/servers"],
    ["settings", "/settings"],
    ["unknown", "/unknown"],
  ];
  for (const width of [1280, 390]) {
    for (const scheme of ["light", "dark"]) {
      const { context, page } = await open(state, width, scheme);
      for (const [title, path] of pages) {
        await page.goto(origin + path, { waitUntil: "domcontentloaded" });
        await examine(page, title, width, scheme);
        if (title === "new") {
          await page.click("summary");
          await examine(page, "new-options", width, scheme);
          await page.click("button.primary");
          await page.waitForURL("**/new/review");
          await examine(page, "review", width, scheme);
          await page.goto(`${origin}/new?${places}`);
          await page.fill("#rate", "much", { force: true });
          await page.click("button.primary");
          await page.waitForURL("**/new/review");
          await examine(page, "new-wrong", width, scheme);
        }
      }
      await context.close();
    }
  }
  const stranger = await open(undefined, 390, "light");
  await stranger.page.goto(link);
  await examine(stranger.page, "log-in", 390, "light");
} catch (error) {
  problems.push(String(error.stack ?? error));
} finally {
  await browser.close();
}
for (const problem of problems) console.error(problem);
process.exitCode = problems.length ? 1 : 0;
