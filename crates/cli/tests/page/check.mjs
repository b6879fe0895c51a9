// Loads a page in headless Chromium and checks it at three widths, in light and dark:
//   node check.mjs report.html axe.min.js [FOLDER for screenshots]
// It speaks the DevTools protocol over a pipe, so it needs nothing but node and chromium.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [, , page, axe, screenshots] = process.argv;
const PATIENCE_MS = 60_000;
// A page is drawn within some 0.1 s, which is printed. On a busy machine it may take longer; only a page that hangs fails.
const MAX_LOAD_MS = 20_000;

const profile = mkdtempSync(join(tmpdir(), "estafette-page-"));
const chromium = spawn(
  "chromium",
  ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
const [, , , toBrowser, fromBrowser] = chromium.stdio;

// Requests in flight, and what wants events.
const pending = new Map();
const listeners = [];
let lastId = 0;
let buffered = "";
fromBrowser.setEncoding("utf8");
fromBrowser.on("data", (data) => {
  const parts = (buffered + data).split("\0");
  buffered = parts.pop();
  for (const part of parts) {
    const message = JSON.parse(part);
    if (message.id === undefined) listeners.forEach((listener) => listener(message));
    else {
      const { done, fail } = pending.get(message.id);
      pending.delete(message.id);
      if (message.error) fail(new Error(message.error.message));
      else done(message.result);
    }
  }
});

let session;
const send = (method, params = {}) =>
  new Promise((done, fail) => {
    const id = ++lastId;
    pending.set(id, { done, fail });
    toBrowser.write(`${JSON.stringify({ id, method, params, sessionId: session })}\0`);
  });
const event = (method) =>
  new Promise((done) => {
    listeners.push((message) => message.method === method && done(message.params));
  });

const evaluate = async (expression) => {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
};

const problems = [];
const expect = (holds, what) => holds || problems.push(what);

async function atWidth(width, scheme) {
  const at = `at ${width} px, ${scheme}`;
  await send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 });
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  const loaded = event("Page.loadEventFired");
  await send("Page.navigate", { url: pathToFileURL(resolve(page)).href });
  await loaded;
  const [scroll, client] = await evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]");
  expect(scroll <= client, `${at}: the page is ${scroll} px wide`);
  const charts = await evaluate(`Array.from(document.querySelectorAll("svg.chart"), (svg) => {
    const box = svg.getBoundingClientRect();
    return [box.width, box.height, svg.querySelectorAll("path, rect").length];
  })`);
  expect(charts.length > 0, `${at}: no chart`);
  expect(charts.every(([w, h, shapes]) => w > 200 && h > 50 && shapes > 2), `${at}: an empty chart`);
  if (screenshots) {
    const { data } = await send("Page.captureScreenshot", { format: "png" });
    writeFileSync(join(screenshots, `${width}-${scheme}.png`), Buffer.from(data, "base64"));
  }
  await evaluate(readFileSync(axe, "utf8"));
  const found = await evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => id + ": " + help + ": " + nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(" | ")))`);
  found.forEach((violation) => problems.push(`${at}: axe: ${violation}`));
}

// The first column of numbers, by a click on its header: down, then up.
async function sorting() {
  const column = await evaluate(`(() => {
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
  const [before, after, status, none] = await evaluate(`(() => {
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
  const { targetInfos } = await send("Target.getTargets");
  const { targetId } = targetInfos.find(({ type }) => type === "page");
  ({ sessionId: session } = await send("Target.attachToTarget", { targetId, flatten: true }));
  listeners.push(({ method, params }) => {
    if (method === "Runtime.exceptionThrown") problems.push(`exception: ${params.exceptionDetails.exception?.description}`);
    if (method === "Log.entryAdded" && params.entry.level === "error") problems.push(`console: ${params.entry.text}`);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") problems.push("console.error was called");
    if (method === "Network.requestWillBeSent" && !params.request.url.startsWith("file:")) problems.push(`loads ${params.request.url}`);
  });
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`);
  for (const width of [360, 800, 1440]) {
    for (const scheme of ["light", "dark"]) await atWidth(width, scheme);
  }
  const timing = await evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd");
  expect(timing < MAX_LOAD_MS, `drawn after ${timing.toFixed()} ms`);
  console.log(`drawn after ${timing.toFixed()} ms`);
  await sorting();
  await filtering();
}

const late = setTimeout(() => {
  console.error("the browser does not answer");
  chromium.kill("SIGKILL");
  process.exit(1);
}, PATIENCE_MS);
try {
  await run();
} catch (error) {
  problems.push(String(error.stack));
}
clearTimeout(late);
const ended = new Promise((done) => chromium.once("exit", done));
chromium.kill();
await ended;
rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
problems.forEach((problem) => console.error(problem));
process.exit(problems.length === 0 ? 0 : 1);
