// Sends N messages of one size to output topic 0, then a last one.
//
// Arguments: the number of messages and the size of each in bytes, as ["1000000", "1000"].

import { send } from "estafette:flow/topics@0.1.0";

import { LAST_MARK, MARK, setMark } from "./message.js";

// The maximum per call, unless a single message is longer.
const BYTES_PER_CALL = 256 * 1024;
const MESSAGES_PER_CALL = 512;

export function start(args) {
  const [messages, size] = args.map(number);
  if (args.length !== 2 || !messages || !size) {
    throw "send: args must be two numbers from 1: the messages and the bytes of each";
  }
  const begin = performance.now();
  sendAll(messages, size);
  const ms = Math.floor(performance.now() - begin);
  console.log(`Sent ${messages + 1} messages in ${ms} ms`);
  const speed = Math.floor(((messages + 1) * size * 1000) / Math.max(ms, 1) / 1024 / 1024);
  console.log(`Message size ${size} speed ${speed} MiB/s`);
}

export function handle() {
  throw "send has no input";
}

function number(text) {
  return /^[0-9]+$/.test(text) ? Number(text) : 0;
}

function sendAll(messages, size) {
  const data = random(size);
  setMark(data, MARK);
  const perCall = Math.min(Math.max(Math.floor(BYTES_PER_CALL / size), 1), MESSAGES_PER_CALL);
  const list = new Array(perCall).fill({ topic: 0, data });
  for (let left = messages; left > 0; left -= perCall) {
    sendList(left < perCall ? list.slice(0, left) : list);
  }
  setMark(data, LAST_MARK);
  sendList([{ topic: 0, data }]);
}

function sendList(list) {
  try {
    send(list);
  } catch (error) {
    // `start` may only throw strings. The payload says which message was refused and why.
    throw `send: the host refused a message: ${error.payload.tag}`;
  }
}

function random(size) {
  return Uint8Array.from({ length: size }, () => Math.random() * 256);
}
