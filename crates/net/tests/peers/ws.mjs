// A peer by npm's ws: `ws.mjs serve` answers, `ws.mjs drive URL` asks, and fails if an answer is not what it should be. Where a
// folder is named last, it is by TLS, with the certificate that lies there.
// What the words mean that are answered otherwise than by an echo is said in peers.rs.

import assert from 'node:assert/strict';
import { on, once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createRequire } from 'node:module';
import { join } from 'node:path';

// Unlike `import`, it looks where NODE_PATH says.
const WebSocket = createRequire(import.meta.url)('ws');

const SIZES = [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 16 << 20];
const TEXT = 'grün 漢字 🦀\n'.repeat(5000);
const ALL = Buffer.from([...Array(251).keys()]);
const pattern = (len) => Buffer.alloc(len, ALL);

/** Sends all of a message but its last part, which is returned. Characters are cut wherever it happens. */
function sendParts(socket, message, size, binary) {
  let at = 0;
  for (; at + size < message.length; at += size) {
    socket.send(message.subarray(at, at + size), { binary, fin: false });
  }
  return message.subarray(at);
}

const file = (folder, name) => readFileSync(join(folder, name));

function serve(folder) {
  const http = folder
    ? createTlsServer({ cert: file(folder, 'certificate.pem'), key: file(folder, 'key.pem') })
    : createServer();
  const server = new WebSocket.WebSocketServer({ server: http, perMessageDeflate: true });
  const commands = {
    parts: (socket, len, size) => socket.send(sendParts(socket, pattern(+len), +size, true), { binary: true }),
    ping: (socket, payload) => socket.once('pong', (back) => socket.send(`pong ${back}`)).ping(payload),
    close: (socket, code, reason) => socket.close(+code, reason),
  };
  server.on('connection', (socket, request) => {
    console.log(`opened ${socket.protocol} ${request.headers.authorization}`);
    console.log(`extensions ${socket.extensions}`);
    socket.on('close', (code, reason) => console.log(`closed ${code} ${reason}`));
    socket.on('message', (data, binary) => {
      const [word, ...rest] = binary ? [] : data.toString().split(' ');
      if (word in commands) commands[word](socket, ...rest);
      else socket.send(data, { binary });
    });
  });
  http.listen(0, '127.0.0.1', () => console.log(`port ${http.address().port}`));
  // Whoever started it is gone.
  process.stdin.resume().on('end', () => process.exit());
}

/** A connection, a function that returns the next message, and a promise of the end. */
async function connect(url, folder) {
  const socket = new WebSocket(url, folder ? { ca: file(folder, 'certificate.pem') } : {});
  const messages = on(socket, 'message');
  const closed = once(socket, 'close');
  await once(socket, 'open');
  const next = async () => {
    const [data, binary] = (await messages.next()).value;
    return binary ? data : data.toString();
  };
  return { socket, next, closed };
}

async function drive(url, folder) {
  const { socket, next, closed } = await connect(url, folder);
  console.log(`extensions ${socket.extensions}`);
  for (const message of [...SIZES.map(pattern), '', TEXT]) {
    socket.send(message);
    assert.deepEqual(await next(), message);
  }
  const many = [...Array(1000).keys()].map((i) => `message ${i}`);
  for (const message of many) socket.send(message);
  for (const message of many) assert.equal(await next(), message);
  for (const message of [TEXT, pattern(100_000)]) {
    const binary = typeof message !== 'string';
    const last = sendParts(socket, Buffer.from(message), 997, binary);
    const pong = once(socket, 'pong');
    socket.ping('between two parts');
    assert.equal((await pong)[0].toString(), 'between two parts');
    socket.send(last, { binary });
    assert.deepEqual(await next(), message);
  }
  socket.close(4001, 'grüße');
  assert.equal((await closed)[0], 4001);

  const another = await connect(url, folder);
  another.socket.send('close 3001 grüße');
  const [code, reason] = await another.closed;
  assert.deepEqual([code, reason.toString()], [3001, 'grüße']);
}

/** Offers two subprotocols with a header of its own, expects the second one, and closes after an echo. */
async function negotiate(url) {
  const socket = new WebSocket(url, ['chat.v2', 'chat.v1'], { headers: { Authorization: 'Bearer secret' } });
  const [message, closed] = [once(socket, 'message'), once(socket, 'close')];
  await once(socket, 'open');
  assert.equal(socket.protocol, 'chat.v1');
  socket.send('hello');
  assert.equal((await message)[0].toString(), 'hello');
  socket.close(1000);
  await closed;
}

/** Is refused without a token, and accepted with one. */
async function upgrade(url) {
  const refused = new WebSocket(`${url}/chat`);
  const [, response] = await once(refused, 'unexpected-response');
  assert.equal(response.statusCode, 401);
  assert.equal(response.headers['www-authenticate'], 'Bearer');
  assert.equal((await response.toArray()).join(''), 'a token is needed\n');

  const headers = { Authorization: 'Bearer secret', Cookie: 'user=Zoë' };
  const socket = new WebSocket(`${url}/chat?room=1`, ['chat.v2', 'chat.v1'], { headers, origin: 'https://example.org' });
  const [answer, closed] = [once(socket, 'upgrade'), once(socket, 'close')];
  await once(socket, 'open');
  assert.equal((await answer)[0].headers['set-cookie'][0], 'seen=1');
  assert.equal(socket.protocol, 'chat.v1');
  socket.close(1000);
  await closed;
}

const [what, ...rest] = process.argv.slice(2);
await { serve, drive, negotiate, upgrade }[what](...rest);
