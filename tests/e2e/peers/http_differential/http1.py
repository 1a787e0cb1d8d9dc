"""Sends the bytes of an HTTP/1.1 case and reads the responses."""

import asyncio

from backend import AFTER, expand

AFTER_REQUEST = f"GET {AFTER} HTTP/1.1\r\nHost: after\r\nConnection: close\r\n\r\n".encode()


async def connect(address):
    if isinstance(address, str):
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection(*address)


class Reading:
    """Collects what a connection receives until it is closed."""

    def __init__(self, reader):
        self.data = bytearray()
        self.closed = False
        self.task = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader):
        try:
            while data := await reader.read(65536):
                self.data += data
        except ConnectionError:
            pass
        self.closed = True


async def exchange(case, address, settle):
    """Runs a case. `settle(reading)` returns when nothing happens any more."""
    reader, writer = await connect(address)
    reading = Reading(reader)
    try:
        parts = [expand(part) for part in case["send"]]
        if case.get("after", True):
            parts[-1] += AFTER_REQUEST
        for index, part in enumerate(writes(case["send"], parts)):
            if index > 0:
                await settle(reading, 1)
            await _write(writer, part)
        await settle(reading)
    finally:
        reading.task.cancel()
        writer.transport.abort()
    return outcome(bytes(reading.data), reading.closed, case)


def writes(send, parts):
    """Joins repetitions with what is before and behind them."""
    joined = b""
    for index, part in enumerate(parts):
        joined += part
        around = send[index : index + 2]
        if not any(isinstance(element, list) for element in around) or len(around) == 1:
            yield joined
            joined = b""


async def _write(writer, data):
    try:
        writer.write(data)
        await asyncio.wait_for(writer.drain(), 5)
    except (ConnectionError, asyncio.TimeoutError):
        # The proxy has closed the connection, or does not read: its answer says why.
        pass


def outcome(data, closed, case):
    responses = list(parse(data, case.get("methods", [])))
    kept = any(response["body"] == AFTER for response in responses)
    answers = [response for response in responses if response["body"] != AFTER]
    if not answers:
        answers = [{"status": "closed" if closed else "waits", "body": "", "fields": []}]
    connection = "kept" if kept else "closed" if closed else "open"
    return {"answers": answers, "connection": connection}


def parse(data, methods):
    """Splits the received bytes into responses. The framing is known by the methods."""
    if data[3:4] == b"\x04":
        # SETTINGS of a proxy that has taken the bytes for HTTP/2.
        return
    methods = iter(methods)
    method = next(methods, "GET")
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if not end or not words[0].startswith("HTTP/1.") or len(words) < 2:
            yield {"status": "no response", "body": data[:40].decode("latin-1"), "fields": []}
            return
        fields = [line.partition(":")[::2] for line in lines[1:]]
        fields = [(name.lower(), value.strip()) for name, value in fields]
        status = words[1]
        body, data = b"", rest
        if status == "101":
            body, data = data, b""
        elif not (status.startswith("1") or status in ("204", "304") or method == "HEAD"):
            body, data, complete = parse_body(fields, rest)
            status = status if complete else f"{status} cut off"
        if not status.startswith("1"):
            method = next(methods, "GET")
        yield {"status": status, "body": body.decode("latin-1"), "fields": fields}


def parse_body(fields, data):
    """Returns body, rest, and whether the body is complete."""
    fields = dict(fields)
    if fields.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            size, end, data = data.partition(b"\r\n")
            try:
                size = int(size, 16)
            except ValueError:
                return body, b"", False
            if size == 0:
                # Trailers end with an empty line.
                while not data.startswith(b"\r\n") and b"\r\n" in data:
                    data = data.partition(b"\r\n")[2]
                return body, data[2:], data.startswith(b"\r\n")
            body += data[:size]
            if len(data) < size + 2:
                return body, b"", False
            data = data[size + 2 :]
    length = fields.get("content-length", "")
    if not length.isdigit():
        return data, b"", "content-length" not in fields
    length = int(length)
    return data[:length], data[length:], len(data) >= length
