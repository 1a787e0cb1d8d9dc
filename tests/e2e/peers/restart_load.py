"""Clients that must not notice restarts of a proxy: HTTP/1.1 with keep-alive, and WebSocket.

restart_load.py PORT KEEP_ALIVE WEBSOCKETS: sends requests to 127.0.0.1:PORT until standard input
ends, then prints a JSON object with the number of requests and messages that were answered, and the
failures. Prints "started" when every client has had its first answer. With `serve` instead of a port it
is the WebSocket backend, and prints its port.
"""

import asyncio
import contextlib
import json
import random
import sys

import websockets

SIZES = (10, 3_000, 200_000)
# Every wait is bounded, so that a response that never ends is a failure and not a test that hangs.
TIMEOUT = 20

answered = {"http1": 0, "websocket": 0}
connections = {"http1": 0, "websocket": 0}
failures = []
stopping = asyncio.Event()


def think():
    return asyncio.sleep(random.uniform(0, 0.2))


async def read_response(reader):
    """Reads one response; returns whether the server closes the connection after it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    if not status.startswith("http/1.1 200"):
        raise ValueError(status)
    await reader.readexactly(int(headers["content-length"]))
    return headers.get("connection") == "close"


async def http1(port, first):
    while not stopping.is_set():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connections["http1"] += 1
        closes = False
        try:
            while not (closes or stopping.is_set()):
                path = f"/bytes/{random.choice(SIZES)}"
                writer.write(f"GET {path} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
                closes = await read_response(reader)
                answered["http1"] += 1
                first.set()
                await think()
        finally:
            writer.close()


async def websocket(port, first):
    while not stopping.is_set():
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as socket:
            connections["websocket"] += 1
            for number in range(random.randint(3, 15)):
                text = f"{number}:" + "x" * random.choice(SIZES)
                await socket.send(text)
                if await socket.recv() != text:
                    raise ValueError("another message came back")
                answered["websocket"] += 1
                first.set()
                await think()


async def run(kind, client, port, first):
    while not stopping.is_set():
        try:
            await client(port, first)
        except Exception as error:
            failures.append(f"{kind}: {type(error).__name__}: {error}")
            await asyncio.sleep(0.05)


async def load(port, counts):
    clients = {"http1": http1, "websocket": websocket}
    tasks, started = [], []
    for (kind, client), count in zip(clients.items(), counts):
        for _ in range(count):
            first = asyncio.Event()
            started.append(first.wait())
            tasks.append(asyncio.create_task(run(kind, client, port, first)))
    await asyncio.wait_for(asyncio.gather(*started), 3 * TIMEOUT)
    print("started", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    stopping.set()
    _, pending = await asyncio.wait(tasks, timeout=TIMEOUT)
    if pending:
        failures.append(f"{len(pending)} clients still wait for an answer")
    print(json.dumps({"answered": answered, "connections": connections, "failures": failures}))


async def echo(socket):
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in socket:
            await socket.send(message)


async def serve():
    async with websockets.serve(echo, "127.0.0.1", 0) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if sys.argv[1] == "serve":
    asyncio.run(serve())
else:
    asyncio.run(load(int(sys.argv[1]), map(int, sys.argv[2:])))
