"""The backend behind the proxies: records what arrives, byte for byte and as requests.

It parses strictly and notes every problem, because a lenient backend is what request smuggling
needs. Its answer names the request target, so that a client knows whose response it got.
"""

import asyncio

PROBE = "/probe-"
AFTER = "/after"
# A forwarded request head or body above this is a bug of the driver.
LIMIT = 8 << 20


class Recording:
    """What arrived during one case."""

    def __init__(self, case):
        self.case = case
        self.requests = []


class Backend:
    def __init__(self):
        self.recording = Recording({})
        # Received bytes, without those of probes: a case has settled when this no longer changes.
        self.progress = 0
        self.tasks = set()

    async def listen(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT)
        return server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader, writer):
        """Reads a request and answers it; returns whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        request = parse_head(head)
        recording = self.recording
        self.progress += 0 if request["target"].startswith(PROBE) else len(head)
        own = request["target"].startswith((PROBE, AFTER))
        if not own or request["problems"]:
            recording.requests.append(request)
        if ("expect", "100-continue") in request["headers"]:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await self._read_body(reader, request)
        request["complete"] = True
        respond = None if own else recording.case.get("respond")
        if respond is None:
            body = request["target"].encode("latin-1")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(b"" if request["method"] == "HEAD" else body)
            await writer.drain()
            return ("connection", "close") not in request["headers"]
        for part in respond:
            writer.write(expand(part))
            await writer.drain()
        if expand(respond[0]).startswith(b"HTTP/1.1 101"):
            await self._tunnel(reader, writer, request)
            return False
        return not recording.case.get("respond_close")

    async def _tunnel(self, reader, writer, request):
        while data := await reader.read(LIMIT):
            self.progress += len(data)
            request["tunnel"] = request.get("tunnel", "") + data.decode("latin-1")
            writer.write(b"tunneled:" + data)
            await writer.drain()

    async def _read_body(self, reader, request):
        headers = request["headers"]
        codings = [value for name, value in headers if name == "transfer-encoding"]
        lengths = [value for name, value in headers if name == "content-length"]
        if codings:
            await self._read_chunks(reader, request)
        elif lengths:
            length = int(lengths[0]) if lengths[0].isdigit() else 0
            self._append(request, await reader.readexactly(length))

    async def _read_chunks(self, reader, request):
        while True:
            line = await reader.readuntil(b"\r\n")
            self.progress += len(line)
            size = line[:-2]
            if not size or any(byte not in b"0123456789abcdefABCDEF" for byte in size):
                request["problems"].append(f"chunk size {size!r}")
                raise ConnectionError
            if int(size, 16) == 0:
                break
            self._append(request, await reader.readexactly(int(size, 16)))
            if await reader.readexactly(2) != b"\r\n":
                request["problems"].append("chunk without end")
                raise ConnectionError
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            request["trailers"].append(parse_field(line[:-2], request["problems"]))

    def _append(self, request, data):
        self.progress += len(data)
        request["body"] += data.decode("latin-1")


def parse_head(head):
    """Parses a request head; notes what a strict server would refuse."""
    problems = []
    if head.replace(b"\r\n", b"").translate(None, b"\r\n\0") != head.replace(b"\r\n", b""):
        problems.append("bare CR, LF or NUL")
    first, *lines = head[:-4].split(b"\r\n")
    words = first.decode("latin-1").split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        problems.append(f"request line {first!r}")
        words = (words + ["", ""])[:3]
    headers = [parse_field(line, problems) for line in lines]
    names = [name for name, _ in headers]
    for name in ("host", "content-length", "transfer-encoding"):
        if names.count(name) > 1:
            problems.append(f"{name} is repeated")
    if "host" not in names:
        problems.append("no host")
    if "content-length" in names and "transfer-encoding" in names:
        problems.append("two lengths")
    for name, value in headers:
        if name == "content-length" and not value.isdigit():
            problems.append(f"content-length {value!r}")
        if name == "transfer-encoding" and value != "chunked":
            problems.append(f"transfer-encoding {value!r}")
    return {
        "method": words[0],
        "target": words[1],
        "headers": headers,
        "trailers": [],
        "body": "",
        "problems": problems,
        "complete": False,
    }


def parse_field(line, problems):
    name, colon, value = line.decode("latin-1").partition(":")
    if not colon or not name or any(not 0x20 < ord(byte) < 0x7F for byte in name):
        problems.append(f"field {line!r}")
    return name.lower(), value.strip(" \t")


def expand(part):
    """Bytes of a part of a case: text in Latin-1, or a text with a number of repetitions."""
    if isinstance(part, list):
        text, count = part
        return text.encode("latin-1") * count
    return part.encode("latin-1")
