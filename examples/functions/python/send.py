"""Sends N messages of one size to output topic 0, then a last one.

Arguments: the number of messages and the size of each in bytes, as ["1000000", "1000"].
"""

import random
import time

from componentize_py_types import Err
from wit_world import WitWorld as Function
from wit_world.imports import topics
from wit_world.imports.topics import Outgoing

from message import LAST_MARK, MARK, marked

# The maximum per call, unless a single message is longer.
BYTES_PER_CALL = 256 * 1024
MESSAGES_PER_CALL = 512


class WitWorld(Function):
    def start(self, args: list[str]) -> None:
        if len(args) != 2 or not all(arg.isdecimal() and int(arg) > 0 for arg in args):
            raise Err("send: args must be two numbers from 1: the messages and the bytes of each")
        messages, size = map(int, args)
        begin = time.monotonic()
        send_all(messages, size)
        ms = int((time.monotonic() - begin) * 1000)
        print(f"Sent {messages + 1} messages in {ms} ms", flush=True)
        print(f"Message size {size} speed {(messages + 1) * size * 1000 // max(ms, 1) >> 20} MiB/s", flush=True)

    def handle(self, messages: list[bytes]) -> list[Outgoing]:
        raise Err("send has no input")


def send_all(messages: int, size: int) -> None:
    data = random.randbytes(size)
    per_call = min(max(BYTES_PER_CALL // size, 1), MESSAGES_PER_CALL)
    batch = [Outgoing(topic=0, data=marked(MARK, data))] * per_call
    for _ in range(messages // per_call):
        send_list(batch)
    send_list(batch[: messages % per_call] + [Outgoing(topic=0, data=marked(LAST_MARK, data))])


def send_list(messages: list[Outgoing]) -> None:
    try:
        topics.send(messages)
    except Err as error:
        # `start` may only raise an `Err` of a string.
        raise Err(f"send: the host refused a message: {error.value}")
