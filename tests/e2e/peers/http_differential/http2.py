"""Sends the frames of an HTTP/2 case and reads the answers, without a library: a library would
refuse to send most of the cases.

Headers are encoded as literals without indexing. The dynamic table is disabled, so that the first
field of a response, `:status`, can be read alone.
"""

import struct

from backend import AFTER, expand
from http1 import Reading, _write, connect

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *range(2),
    *range(3, 10),
)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HEADER_TABLE_SIZE, ENABLE_PUSH = 1, 2
AFTER_STREAM = 101


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream
    ) + payload


def integer(value, prefix, first):
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes([first | value])
    encoded = bytearray([first | limit])
    value -= limit
    while value >= 128:
        encoded.append(value % 128 | 128)
        value //= 128
    encoded.append(value)
    return bytes(encoded)


def literal(name, value, count=1):
    name, value = expand(name), expand(value)
    field = b"\0" + integer(len(name), 7, 0) + name + integer(len(value), 7, 0) + value
    return field * count


def encode(part):
    """Encodes one element of `frames`."""
    stream = part.get("stream", 1)
    flags = part.get("flags")
    if "headers" in part:
        block = b"".join(literal(*field) for field in part["headers"])
        end = END_STREAM if part.get("end") else 0
        return _header_frames(block, stream, end, part.get("split"))
    if "data" in part:
        end = END_STREAM if part.get("end") else 0
        return frame(DATA, end if flags is None else flags, stream, expand(part["data"]))
    if "reset" in part:
        return frame(RST_STREAM, 0, stream, struct.pack(">I", part["reset"]))
    return frame(part["type"], flags or 0, stream, expand(part.get("payload", "")))


def _header_frames(block, stream, end, split):
    size = split or 16000
    blocks = [block[at : at + size] for at in range(0, len(block), size)] or [b""]
    frames = b""
    for index, part in enumerate(blocks):
        kind = HEADERS if index == 0 else CONTINUATION
        last = END_HEADERS if index + 1 == len(blocks) else 0
        frames += frame(kind, last | (end if index == 0 else 0), stream, part)
    return frames


async def exchange(case, address, settle):
    reader, writer = await connect(address)
    reading = Reading(reader)
    settings = struct.pack(">HIHI", HEADER_TABLE_SIZE, 0, ENABLE_PUSH, 0)
    frames = b"".join(encode(part) for part in case["frames"])
    after = [(":method", "GET"), (":scheme", "http"), (":path", AFTER), (":authority", "after")]
    try:
        await _write(writer, PREFACE + frame(SETTINGS, 0, 0, settings))
        # The acknowledgment of the proxy's settings; every proxy here sends them at once.
        await _write(writer, frame(SETTINGS, ACK, 0))
        await _write(writer, frames)
        await settle(reading, 3)
        await _write(writer, encode({"headers": after, "stream": AFTER_STREAM, "end": True}))
        await settle(reading, done=lambda: AFTER_STREAM in Answers(reading.data).ended)
    finally:
        reading.task.cancel()
        writer.transport.abort()
    return outcome(Answers(reading.data), reading.closed, case)


class Answers:
    """What a connection received, by stream."""

    def __init__(self, data):
        self.status, self.body, self.ended = {}, {}, set()
        self.goaway = False
        data = bytes(data)
        while len(data) >= 9:
            length = int.from_bytes(data[:3], "big")
            kind, flags, stream = data[3], data[4], int.from_bytes(data[5:9], "big")
            self._frame(kind, flags, stream, data[9 : 9 + length])
            data = data[9 + length :]

    def _frame(self, kind, flags, stream, payload):
        if kind == HEADERS:
            # A second block is a final response after an interim one, or trailers.
            status = read_status(payload)
            if status is not None:
                self.status[stream] = status
        elif kind == DATA:
            self.body[stream] = self.body.get(stream, b"") + payload
        elif kind == RST_STREAM:
            code = int.from_bytes(payload, "big")
            # NO_ERROR after a response asks the client to stop sending (RFC 9113, 8.1).
            if not (code == 0 and stream in self.status):
                self.status[stream] = "reset"
            self.ended.add(stream)
        elif kind == GOAWAY:
            self.goaway |= int.from_bytes(payload[4:8], "big") != 0
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended.add(stream)


def read_status(block):
    """Reads `:status` if it is the first field of a header block."""
    while block and block[0] & 0xE0 == 0x20:
        # An update of the size of the dynamic table.
        block = block[1:]
    if not block:
        return None
    indexed = {0x88: "200", 0x89: "204", 0x8A: "206", 0x8B: "304", 0x8C: "400", 0x8D: "404"}
    indexed[0x8E] = "500"
    if block[0] in indexed:
        return indexed[block[0]]
    if block[0] & 0x0F in range(8, 15) and block[0] & 0xF0 in (0, 0x10, 0x40):
        text = block[2 : 2 + (block[1] & 0x7F)]
        return digits(text) if block[1] & 0x80 else text.decode()
    return None


def digits(text):
    """Decodes three digits that are Huffman-coded (RFC 7541, appendix B)."""
    bits = "".join(f"{byte:08b}" for byte in text)
    decoded = ""
    while len(decoded) < 3:
        if bits[:5] in ("00000", "00001", "00010"):
            decoded, bits = decoded + str(int(bits[:5], 2)), bits[5:]
        else:
            decoded, bits = decoded + str(int(bits[:6], 2) - 0b011001 + 3), bits[6:]
    return decoded


def outcome(answers, closed, case):
    streams = {part.get("stream", 1) for part in case["frames"] if "headers" in part}
    closed = closed or answers.goaway
    kept = answers.body.get(AFTER_STREAM) == AFTER.encode()
    found = []
    for stream in sorted(streams):
        status = answers.status.get(stream, "closed" if closed else "waits")
        if status.isdigit() and stream not in answers.ended:
            status += " cut off"
        body = answers.body.get(stream, b"").decode("latin-1")
        found.append({"status": status, "body": body, "fields": []})
    connection = "kept" if kept else "closed" if closed else "open"
    return {"answers": found, "connection": connection}
