// A headless Chromium that is driven by lines on the standard input:
//   goto URL      loads a page
//   until SCRIPT  evaluates a script until its value is true in the sense of JavaScript
// Each is answered by a line that begins with "done". It speaks the DevTools protocol over a pipe, so it
// needs nothing but node and chromium.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const profile = mkdtempSync(join(tmpdir(), "estafette-page-"));
const chromium = spawn(
  "chromium",
  ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
const [, , , toBrowser, fromBrowser] = chromium.stdio;

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

async function evaluate(expression) {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

const { targetInfos } = await send("Target.getTargets");
const { targetId } = targetInfos.find(({ type }) => type === "page");
({ sessionId: session } = await send("Target.attachToTarget", { targetId, flatten: true }));
await send("Page.enable");
console.log("ready");

const commands = {
  goto: async (url) => {
    const loaded = event("Page.loadEventFired");
    await send("Page.navigate", { url });
    await loaded;
    return "";
  },
  until: async (script) => {
    for (;;) {
      const value = await evaluate(script);
      if (value) return JSON.stringify(value);
      await new Promise((done) => setTimeout(done, 20));
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const at = line.indexOf(" ");
  try {
    console.log(`done ${await commands[line.slice(0, at)](line.slice(at + 1))}`);
  } catch (error) {
    console.log(`failed ${error.message.replaceAll("\n", " ")}`);
  }
}

const exited = new Promise((done) => chromium.on("exit", done));
// Its own processes end too, which a signal to the first one does not ensure.
await send("Browser.close");
await exited;
try {
  rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
} catch (error) {
  // A process of the browser may still write. The folder lies in that of the test, which removes it.
  console.error(`the browser's profile is not removed: ${error.message}`);
}
