"""Converts each message to upper case, and sends it to output topic 0."""

from wit_world import WitWorld as Function
from wit_world.imports.topics import Outgoing


class WitWorld(Function):
    def start(self, args: list[str]) -> None:
        pass

    def handle(self, messages: list[bytes]) -> list[Outgoing]:
        return [Outgoing(topic=0, data=message.upper()) for message in messages]
