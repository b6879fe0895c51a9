"""A client of `tcp+msg`, written from docs/framing.md: `framing.py PORT talk|truncate|exceed`."""

import socket
import struct
import sys

LIMIT = 16 << 20


class Client:
    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *messages):
        self.stream.sendall(b"".join(struct.pack(">I", len(message)) + message for message in messages))

    def read(self, length):
        """Exactly `length` bytes, or fewer at the end of the stream."""
        parts = bytearray()
        while len(parts) < length and (part := self.stream.recv(min(length - len(parts), 1 << 16))):
            parts += part
        return bytes(parts)

    def receive(self):
        """The next message, or None at the orderly end."""
        header = self.read(4)
        if not header:
            return None
        if len(header) < 4 or (length := struct.unpack(">I", header)[0]) > LIMIT:
            raise ValueError(f"a header that is cut off or too long: {header.hex()}")
        if len(payload := self.read(length)) < length:
            raise ValueError("a message that is cut off")
        return payload


client, what = Client(int(sys.argv[1])), sys.argv[2]
if what == "talk":
    messages = [bytes(range(251)) * 1000, b"", b"hello", b"\0\0\0\x05"] + [b"x"] * 1000
    client.send(*messages[:3])
    for part in [b"\0\0", b"\0", b"\x04\0\0", b"\0\x05"]:  # The fourth message, in pieces.
        client.stream.sendall(part)
    client.send(*messages[4:])
    assert [client.receive() for _ in messages] == messages
    client.stream.shutdown(socket.SHUT_WR)
elif what == "truncate":
    client.stream.sendall(b"\0\0\0\x05hell")
    client.stream.shutdown(socket.SHUT_WR)
else:
    client.stream.sendall(struct.pack(">I", LIMIT + 1))
assert client.receive() is None
