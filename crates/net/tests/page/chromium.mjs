// A headless Chromium with one empty page. It speaks the DevTools protocol over a pipe, so it needs
// nothing but node and chromium.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export class Chromium {
  #process;
  #profile;
  #session;
  #lastId = 0;
  // Requests in flight, and what wants events.
  #pending = new Map();
  #listeners = [];

  constructor() {
    this.#profile = mkdtempSync(join(tmpdir(), "estafette-page-"));
    this.#process = spawn(
      "chromium",
      ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        `--user-data-dir=${this.#profile}`, "--remote-debugging-pipe", "about:blank"],
      { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
    );
    const fromBrowser = this.#process.stdio[4];
    let buffered = "";
    fromBrowser.setEncoding("utf8");
    fromBrowser.on("data", (data) => {
      const parts = (buffered + data).split("\0");
      buffered = parts.pop();
      parts.forEach((part) => this.#receive(JSON.parse(part)));
    });
  }

  // Attaches to its page, to which all requests go from now on.
  async attach() {
    const { targetInfos } = await this.send("Target.getTargets");
    const { targetId } = targetInfos.find(({ type }) => type === "page");
    ({ sessionId: this.#session } = await this.send("Target.attachToTarget", { targetId, flatten: true }));
  }

  #receive(message) {
    if (message.id === undefined) {
      this.#listeners.forEach((listener) => listener(message));
      return;
    }
    const { done, fail } = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (message.error) fail(new Error(message.error.message));
    else done(message.result);
  }

  // Calls a method of the protocol, and returns its result.
  send(method, params = {}) {
    return new Promise((done, fail) => {
      const id = ++this.#lastId;
      this.#pending.set(id, { done, fail });
      this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.#session })}\0`);
    });
  }

  // Calls a function with each event.
  listen(listener) {
    this.#listeners.push(listener);
  }

  // Loads a page. The domain "Page" has to be enabled.
  async load(url) {
    const loaded = new Promise((done) => this.listen(({ method }) => method === "Page.loadEventFired" && done()));
    await this.send("Page.navigate", { url });
    await loaded;
  }

  // Evaluates an expression in the page, and returns its value. A promise is awaited.
  async evaluate(expression) {
    const { result, exceptionDetails } =
      await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Ends it at once, for a browser that does not answer.
  kill() {
    this.#process.kill("SIGKILL");
  }

  // Ends it in order: its own processes end too, which a signal to the first one does not ensure.
  async close() {
    const exited = new Promise((done) => this.#process.once("exit", done));
    await this.send("Browser.close");
    await exited;
    try {
      rmSync(this.#profile, { recursive: true, force: true, maxRetries: 10 });
    } catch (error) {
      // A process of the browser may still write.
      console.error(`the browser's profile is not removed: ${error.message}`);
    }
  }
}
