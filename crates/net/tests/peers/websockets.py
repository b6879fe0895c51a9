"""A peer by PyPI's websockets: `websockets.py serve` answers, `websockets.py drive URL` asks, and fails if an answer is not
what it should be. Where a folder is named last, it is by TLS, with the certificate that lies there. What the words mean that are answered otherwise than by an echo is said in peers.rs."""

import asyncio
import inspect
import ssl
import sys

# The folder of this file comes first, and this file has the library's name.
del sys.path[0]
import websockets

SIZES = [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 16 << 20]
TEXT = "grün 漢字 🦀\n" * 5000


def pattern(length):
    return (bytes(range(251)) * (length // 251 + 1))[:length]


def parts(message, size):
    return [message[at : at + size] for at in range(0, len(message), size)]


def print_extensions(socket):
    extensions = getattr(socket, "protocol", socket).extensions
    print("extensions", *(extension.name for extension in extensions), flush=True)


async def talk(socket):
    headers = socket.request.headers if hasattr(socket, "request") else socket.request_headers
    print(f"opened {socket.subprotocol} {headers.get('Authorization')}", flush=True)
    print_extensions(socket)
    try:
        async for message in socket:
            match message.split(" ") if isinstance(message, str) else []:
                case ["parts", length, size]:
                    await socket.send(parts(pattern(int(length)), int(size)))
                case ["ping", payload]:
                    await (await socket.ping(payload))
                    await socket.send(f"pong {payload}")
                case ["close", code, reason]:
                    await socket.close(int(code), reason)
                case _:
                    await socket.send(message)
    except websockets.ConnectionClosedError:
        pass  # So it calls every code but 1000 and 1001.
    print(f"closed {socket.close_code} {socket.close_reason}", flush=True)


def serving(folder):
    if folder is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/certificate.pem", f"{folder}/key.pem")
    return context


def trusting(folder):
    return folder and ssl.create_default_context(cafile=f"{folder}/certificate.pem")


async def serve(folder=None):
    async with websockets.serve(talk, "127.0.0.1", 0, max_size=None, ssl=serving(folder), subprotocols=["chat.v1"]) as server:
        print(f"port {list(server.sockets)[0].getsockname()[1]}", flush=True)
        # Until whoever started it is gone.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def drive(url, folder=None):
    async with websockets.connect(url, max_size=None, ssl=trusting(folder)) as socket:
        print_extensions(socket)
        for message in [*map(pattern, SIZES), "", TEXT]:
            await socket.send(message)
            assert await socket.recv() == message
        many = [f"message {i}" for i in range(1000)]
        for message in many:
            await socket.send(message)
        for message in many:
            assert await socket.recv() == message

        async def with_ping(message):
            *before, last = parts(message, 997)
            for part in before:
                yield part
            await (await socket.ping("between two parts"))
            yield last

        for message in [TEXT, pattern(100_000)]:
            await socket.send(with_ping(message))
            assert await socket.recv() == message
        await socket.close(4001, "grüße")
        assert socket.close_code == 4001

    async with websockets.connect(url, ssl=trusting(folder)) as socket:
        await socket.send("close 3001 grüße")
        await socket.wait_closed()
        assert (socket.close_code, socket.close_reason) == (3001, "grüße")


async def negotiate(url):
    """Offers two subprotocols, expects the second one, and closes after an echo."""
    async with websockets.connect(url, subprotocols=["chat.v2", "chat.v1"]) as socket:
        assert socket.subprotocol == "chat.v1", socket.subprotocol
        await socket.send("hello")
        assert await socket.recv() == "hello"


async def upgrade(url):
    """Is refused without a token, and accepted with one."""
    try:
        async with websockets.connect(f"{url}/chat"):
            raise AssertionError("it is not refused")
    except websockets.InvalidHandshake as error:
        # The name depends on the version of the library.
        response = getattr(error, "response", error)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"

    headers = {"Authorization": "Bearer secret", "Cookie": "user=Zo"}
    new = "additional_headers" in inspect.signature(websockets.connect).parameters
    options = {"additional_headers" if new else "extra_headers": headers}
    options |= {"subprotocols": ["chat.v2", "chat.v1"], "origin": "https://example.org"}
    async with websockets.connect(f"{url}/chat?room=1", **options) as socket:
        answer = socket.response.headers if hasattr(socket, "response") else socket.response_headers
        assert answer["Set-Cookie"] == "seen=1"
        assert socket.subprotocol == "chat.v1"


COMMANDS = {"serve": serve, "drive": drive, "negotiate": negotiate, "upgrade": upgrade}
asyncio.run(COMMANDS[sys.argv[1]](*sys.argv[2:]))
