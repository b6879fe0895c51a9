// A headless Chromium that is driven by lines on the standard input:
//   goto URL      loads a page
//   until SCRIPT  evaluates a script until its value is true in the sense of JavaScript
// Each is answered by a line that begins with "done".
import { createInterface } from "node:readline";
import { Chromium } from "./chromium.mjs";

const browser = new Chromium();
await browser.attach();
await browser.send("Page.enable");
console.log("ready");

const commands = {
  goto: async (url) => {
    await browser.load(url);
    return "";
  },
  until: async (script) => {
    for (;;) {
      const value = await browser.evaluate(script);
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

await browser.close();
