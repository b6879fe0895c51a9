// Loads a page in headless Chromium and checks it at three widths, in light and dark:
//   node check.mjs report.html axe.min.js [FOLDER for screenshots]
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Chromium } from "../../../net/tests/page/chromium.mjs";

const [, , page, axe, screenshots] = process.argv;
const PATIENCE_MS = 300_000;
// A page is drawn within some 0.1 s, which is printed. On a busy machine it may take longer; only a page that hangs fails.
const MAX_LOAD_MS = 20_000;

const problems = [];
const expect = (holds, what) => holds || problems.push(what);

async function atWidth(width, scheme) {
  const at = `at ${width} px, ${scheme}`;
  await browser.send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 });
  await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  await browser.load(pathToFileURL(resolve(page)).href);
  const [scroll, client] = await browser.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]");
  expect(scroll <= client, `${at}: the page is ${scroll} px wide`);
  const charts = await browser.evaluate(`Array.from(document.querySelectorAll("svg.chart"), (svg) => {
    const box = svg.getBoundingClientRect();
    return [box.width, box.height, svg.querySelectorAll("path, rect").length];
  })`);
  expect(charts.length > 0, `${at}: no chart`);
  expect(charts.every(([w, h, shapes]) => w > 200 && h > 50 && shapes > 2), `${at}: an empty chart`);
  if (screenshots) {
    const { data } = await browser.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(join(screenshots, `${width}-${scheme}.png`), Buffer.from(data, "base64"));
  }
  await browser.evaluate(readFileSync(axe, "utf8"));
  const found = await browser.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => id + ": " + help + ": " + nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(" | ")))`);
  found.forEach((violation) => problems.push(`${at}: axe: ${violation}`));
}

// The first column of numbers, by a click on its header: down, then up.
async function sorting() {
  const column = await browser.evaluate(`(() => {
    const table = Array.from(document.querySelectorAll(".cell table")).find((table) => table.tBodies[0].rows.length > 2);
    const at = Array.from(table.tHead.rows[0].cells).findIndex((cell, at) =>
      at > 1 && Array.from(table.tBodies[0].rows).every((row) => row.cells[at]?.dataset.value));
    const button = table.tHead.rows[0].cells[at].querySelector("button");
    const values = () => Array.from(table.tBodies[0].rows, (row) => Number(row.cells[at].dataset.value));
    const before = values();
    button.click();
    const up = [values(), button.parentElement.getAttribute("aria-sort")];
    button.click();
    const down = [values(), button.parentElement.getAttribute("aria-sort")];
    return { before, up, down };
  })()`);
  const ascending = [...column.before].sort((a, b) => a - b);
  expect(column.up[0].join() === ascending.join() && column.up[1] === "ascending", `sorts upwards: ${column.up}`);
  expect(column.down[0].join() === ascending.reverse().join() && column.down[1] === "descending", `sorts downwards: ${column.down}`);
}

async function filtering() {
  const [before, after, status, none] = await browser.evaluate(`(() => {
    const rows = () => Array.from(document.querySelectorAll(".cell tbody tr")).filter((row) => row.checkVisibility()).length;
    const input = document.querySelector("#filter");
    const type = (text) => { input.value = text; input.dispatchEvent(new Event("input")); return rows(); };
    const before = rows();
    const after = type(document.querySelector(".cell tbody th").textContent);
    const status = document.querySelector(".filter [role=status]").textContent;
    const none = type("no mechanism has this name");
    type("");
    return [before, after, status, none];
  })()`);
  expect(after > 0 && after < before && none === 0, `filters: ${before}, ${after}, ${none} rows`);
  expect(status.startsWith(`${after} of `), `says how many rows are left: ${status}`);
}

async function run() {
  await browser.attach();
  browser.listen(({ method, params }) => {
    if (method === "Runtime.exceptionThrown") problems.push(`exception: ${params.exceptionDetails.exception?.description}`);
    if (method === "Log.entryAdded" && params.entry.level === "error") problems.push(`console: ${params.entry.text}`);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") problems.push("console.error was called");
    if (method === "Network.requestWillBeSent" && !params.request.url.startsWith("file:")) problems.push(`loads ${params.request.url}`);
  });
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.send(`${domain}.enable`);
  for (const width of [360, 800, 1440]) {
    for (const scheme of ["light", "dark"]) await atWidth(width, scheme);
  }
  const timing = await browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd");
  expect(timing < MAX_LOAD_MS, `drawn after ${timing.toFixed()} ms`);
  console.log(`drawn after ${timing.toFixed()} ms`);
  await sorting();
  await filtering();
}

const browser = new Chromium();
const late = setTimeout(() => {
  console.error("the browser does not answer");
  browser.kill();
  process.exit(1);
}, PATIENCE_MS);
try {
  await run();
} catch (error) {
  problems.push(String(error.stack));
}
await browser.close();
clearTimeout(late);
problems.forEach((problem) => console.error(problem));
process.exit(problems.length === 0 ? 0 : 1);
