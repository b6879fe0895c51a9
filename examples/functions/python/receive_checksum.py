"""Checks and counts messages. A wrong checksum ends the function with an error.

Prints the count every 100,000 messages, and the count and the time at the last message.
"""

import time

from componentize_py_types import Err
from wit_world import WitWorld as Function
from wit_world.imports.topics import Outgoing

from message import LAST_MARK, has_checksum


class WitWorld(Function):
    count = 0
    begin = 0.0

    def start(self, args: list[str]) -> None:
        pass

    def handle(self, messages: list[bytes]) -> list[Outgoing]:
        for message in messages:
            self.receive(message)
        return []

    def receive(self, message: bytes) -> None:
        if self.count == 0:
            self.begin = time.monotonic()
        self.count += 1
        if not has_checksum(message):
            raise Err(f"Message {self.count} has a wrong checksum")
        if message.startswith(LAST_MARK):
            ms = int((time.monotonic() - self.begin) * 1000)
            print(f"Processed {self.count} messages in {ms} ms", flush=True)
        elif self.count % 100_000 == 0:
            print(f"Processed {self.count} messages", flush=True)
