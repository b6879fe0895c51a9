// Converts each message to upper case, and sends it to output topic 0.

export function start() {}

export function handle(messages) {
  return messages.map((message) => ({ topic: 0, data: message.map(upperCase) }));
}

function upperCase(letter) {
  return letter >= 0x61 && letter <= 0x7a ? letter - 0x20 : letter;
}
