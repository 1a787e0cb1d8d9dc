"""Runs odd HTTP requests through several reverse proxies and prints what each of them did.

Usage: python3 http_differential CASES_DIRECTORY NAME=BINARY...; the working directory is for files
and logs. Prints JSON: for every case and proxy the answers, the state of the connection and the
requests that reached the backend. It judges nothing: see `http_differential.rs`.
"""

import asyncio
import glob
import itertools
import json
import os
import socket
import sys
import time

import http1
import http2
import proxies
from backend import PROBE, Backend, Recording

LANES = 4
# Round trips of probes without any other byte, after which a case has settled. A probe passes the
# same proxy and backend, so that it cannot overtake by far what was sent before it.
QUIET = 8
TIMEOUT = 30


class Failed(Exception):
    """The comparison could not be made."""


class Lane:
    """One listener of a proxy with its own backend. Cases run one after the other."""

    def __init__(self, name, addresses, number, backend):
        self.name = name
        self.addresses = addresses
        self.number = number
        self.backend = backend
        self.probes = itertools.count()
        self.wrong_probes = 0

    async def run(self, case):
        recording = self.backend.recording = Recording(case)
        kind, is_http2 = case.get("listener", "plain"), "frames" in case
        address = self.addresses[kind, is_http2, self.number]
        exchange = http2.exchange if is_http2 else http1.exchange
        self.wrong_probes = 0
        result = await exchange(case, address, self.settle)
        # Requests that the closed connection has left behind are aborted.
        for _ in range(2):
            await self.probe()
        result["requests"] = recording.requests
        result["wrong_probes"] = self.wrong_probes
        return result

    async def settle(self, reading, quiet=QUIET, done=lambda: False):
        """Waits until the connection is closed or nothing has happened for `quiet` probes."""
        seen, unchanged = None, 0
        while unchanged < quiet and not reading.closed and not done():
            await self.probe()
            now = (len(reading.data), self.backend.progress)
            unchanged = unchanged + 1 if now == seen else 0
            seen = now

    async def probe(self):
        """Sends a request on a new connection, which must get its own response."""
        target = f"{PROBE}{next(self.probes)}"
        try:
            status, body = await asyncio.wait_for(self._get(target), 10)
        except (ConnectionError, asyncio.TimeoutError):
            return
        # An error is no wrong response: the backend may just have closed the connection.
        self.wrong_probes += status == "200" and body != target

    async def _get(self, target):
        reader, writer = await http1.connect(self.addresses["plain", False, self.number])
        try:
            writer.write(f"GET {target} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n".encode())
            data = await reader.read()
        finally:
            writer.close()
        for response in http1.parse(data, []):
            return response["status"], response["body"]
        return "closed", ""


def wait_for_listeners(name, process, addresses):
    deadline = time.monotonic() + TIMEOUT
    for address in addresses.values():
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        while True:
            with socket.socket(family) as attempt:
                if attempt.connect_ex(address) == 0:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{name} does not listen on {address}: {open(name + '.log').read()}")
            time.sleep(0.02)


async def run_proxy(lanes, cases):
    queue = iter(cases)
    outcomes = {}

    async def work(lane):
        for case in queue:
            try:
                outcomes[case["name"]] = await asyncio.wait_for(lane.run(case), TIMEOUT)
            except (ConnectionError, asyncio.TimeoutError) as error:
                raise Failed(f"{lane.name}: {case['name']}: {error!r}") from error

    await asyncio.gather(*(work(lane) for lane in lanes))
    return outcomes


async def main(directory, binaries):
    cases = []
    for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
        with open(path) as file:
            cases += json.load(file).get("cases", [])
    started, processes = {}, []
    try:
        for name, binary in binaries.items():
            backends = [Backend() for _ in range(LANES)]
            ports = [await backend.listen() for backend in backends]
            process, addresses = proxies.STARTERS[name](binary, ports)
            processes.append(process)
            started[name] = (process, addresses, backends)
        for name, (process, addresses, _) in started.items():
            wait_for_listeners(name, process, addresses)
        outcomes = await asyncio.gather(
            *(
                run_proxy(
                    [
                        Lane(name, addresses, number, backend)
                        for number, backend in enumerate(backends)
                    ],
                    cases,
                )
                for name, (_, addresses, backends) in started.items()
            )
        )
    finally:
        for process in processes:
            if process.poll() is not None:
                print(f"{process.args[0]} exited with {process.returncode}", file=sys.stderr)
            process.kill()
            process.wait()
        # Connections of the proxies end with these.
        for _, _, backends in started.values():
            await asyncio.gather(*(task for backend in backends for task in backend.tasks))
    json.dump(dict(zip(started, outcomes)), sys.stdout)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:])))
    except Failed as failure:
        sys.exit(str(failure))
