"""Attacks `plimsoll proxy` and Envoy, both configured as edge proxies, and measures honest clients beside.

attack-proxy.py PLIMSOLL ENVOY [SECONDS, 10]: prints p50 and p99 of honest requests and the resident memory,
before and during all attacks at once, for each proxy. Exits with 1 if Plimsoll fails a request, its p99 more
than doubles, or it needs 200 MiB. Everything listens on loopback; every attack is bounded in number and time.
"""

import asyncio
import contextlib
import json
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import websockets

PLIMSOLL, ENVOY = sys.argv[1:3]
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else 10
HONEST_CLIENTS, HONEST_RATE = 20, 500
MEMORY_LIMIT_MIB = 200
# A route's timeout of 15 s ends attacks that hold a request: measure before that.
SETTLE = 2
WORK = pathlib.Path(tempfile.mkdtemp())
# Workers of nginx run as another user.
WORK.chmod(0o755)
FILTERS = "type.googleapis.com/envoy.extensions.filters"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def address(port):
    return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}


def edge(port, admin, backend, tunnels):
    """A bootstrap that follows Envoy's guide for edge proxies."""

    def cluster(name, to):
        endpoint = {"endpoint": address(to)}
        assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}
        return {"name": name, "type": "STATIC", "load_assignment": assignment}

    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "request_headers_timeout": "10s",
        "stream_idle_timeout": "300s",
        "common_http_protocol_options": {"idle_timeout": "3600s"},
        "http2_protocol_options": {
            "max_concurrent_streams": 100,
            "initial_stream_window_size": 65536,
            "initial_connection_window_size": 1048576,
        },
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/ws"}, "route": {"cluster": "tunnels"}},
                        {"match": {"prefix": "/"}, "route": {"cluster": "backend"}},
                    ],
                }
            ]
        },
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"}}
        ],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {
        "admin": address(admin),
        "static_resources": {
            "listeners": [{"name": "edge", **address(port), "filter_chains": [chain]}],
            "clusters": [cluster("backend", backend), cluster("tunnels", tunnels)],
        },
    }


def start(name, *command):
    log = open(WORK / f"{name}.log", "w")
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def wait_for(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on {port}; logs are in {WORK}")


def start_backend(port):
    (WORK / "html").mkdir()
    (WORK / "html/big").write_bytes(b"x" * (10 << 20))
    (WORK / "html/small").write_bytes(b"x" * 1024)
    (WORK / "nginx.conf").write_text(
        f"worker_processes 1; daemon off; pid {WORK}/pid; error_log {WORK}/error.log;"
        "worker_rlimit_nofile 20000; events { worker_connections 8192; }"
        "http { access_log off; keepalive_requests 1000000000; client_max_body_size 0;"
        f"server {{ listen 127.0.0.1:{port}; root {WORK}/html;"
        f" location /upload {{ proxy_pass http://127.0.0.1:{port}/small;"
        " proxy_request_buffering off; proxy_method GET; } } }"
    )
    return start("nginx", "nginx", "-c", str(WORK / "nginx.conf"))


def resident_mib(process):
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def honest(port):
    """Sends honest requests at a fixed rate; returns p50, p99 in milliseconds and the failed ones."""
    log = WORK / "latencies"
    log.unlink(missing_ok=True)
    rate = HONEST_RATE // HONEST_CLIENTS
    command = f"h2load --h1 -t1 -c{HONEST_CLIENTS} -D{SECONDS} --rps={rate} --log-file={log}"
    command += f" http://127.0.0.1:{port}/small"
    text = subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout
    times, failed = [], 0
    for line in log.read_text().splitlines():
        _, status, micros = line.split()
        times.append(int(micros) / 1000)
        failed += status != "200"
    failed += sum(map(int, re.findall(r"(\d+) (?:failed|errored|timeout)", text)))
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)], failed


async def dial(port):
    return await asyncio.open_connection("127.0.0.1", port)


async def trickle(port, head, byte):
    """Sends `head`, then one byte a second."""
    with contextlib.suppress(OSError):
        _, writer = await dial(port)
        writer.write(head)
        while not writer.is_closing():
            await asyncio.sleep(1)
            writer.write(byte)
            await writer.drain()


async def half_open(port, first):
    """Sends nothing or the first byte of a preface, and stays."""
    with contextlib.suppress(OSError):
        reader, writer = await dial(port)
        writer.write(first)
        await reader.read()


async def never_reads(port):
    """Asks for a large response and does not read it."""
    with contextlib.suppress(OSError):
        _, writer = await dial(port)
        writer.transport.pause_reading()
        writer.write(b"GET /big HTTP/1.1\r\nhost: h\r\n\r\n")
        await asyncio.sleep(3600)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header as HPACK's literal without indexing."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


async def window_zero(port, streams):
    """HTTP/2 with a window of 0 and a PING every second: no response can be sent."""
    headers = b"".join(
        literal(*one)
        for one in (
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b":authority", b"h"),
            (b":path", b"/big"),
        )
    )
    with contextlib.suppress(OSError):
        reader, writer = await dial(port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
        for stream in range(streams):
            writer.write(frame(1, 5, 2 * stream + 1, headers))
        drain = asyncio.create_task(reader.read(-1))
        while not (writer.is_closing() or drain.done()):
            writer.write(frame(6, 0, 0, bytes(8)))
            await asyncio.sleep(1)


async def idle_tunnel(port):
    with contextlib.suppress(OSError, websockets.WebSocketException):
        where = f"ws://127.0.0.1:{port}/ws"
        async with websockets.connect(where, proxy=None, ping_interval=None) as tunnel:
            await tunnel.recv()


def attackers(port):
    head = b"GET / HTTP/1.1\r\nhost: h\r\nx: "
    upload = b"POST /upload HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n"
    return [
        *(trickle(port, head, b"y") for _ in range(500)),
        *(trickle(port, upload, b"z") for _ in range(200)),
        *(half_open(port, b"P" if number % 2 else b"") for number in range(5000)),
        *(never_reads(port) for _ in range(100)),
        *(window_zero(port, 100) for _ in range(4)),
        *(idle_tunnel(port) for _ in range(200)),
    ]


async def under_attack(port, measure):
    tasks = [asyncio.create_task(one) for one in attackers(port)]
    await asyncio.sleep(SETTLE)
    try:
        return await asyncio.to_thread(measure)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(name, command, tunnels, backend):
    port, admin = free_port(), free_port()
    file = WORK / f"{name}.json"
    file.write_text(json.dumps(edge(port, admin, backend, tunnels)))
    process = start(name, *command, "-c", str(file))
    try:
        await asyncio.to_thread(wait_for, port)
        await asyncio.to_thread(honest, port)
        quiet, before = await asyncio.to_thread(honest, port), resident_mib(process)
        attacked, during = await under_attack(
            port, lambda: (honest(port), resident_mib(process))
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    print(
        f"{name:10}{quiet[0]:8.2f} ms{quiet[1]:8.2f} ms{before:8.0f} MiB"
        f"{attacked[0]:10.2f} ms{attacked[1]:8.2f} ms{during:8.0f} MiB{attacked[2]:9}"
    )
    return quiet[1], attacked[1], during, attacked[2]


async def main():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 65536), limit))
    backend = free_port()
    nginx = start_backend(backend)

    async def stay_open(tunnel):
        await tunnel.wait_closed()

    try:
        await asyncio.to_thread(wait_for, backend)
        async with websockets.serve(stay_open, "127.0.0.1", 0, ping_interval=None) as server:
            tunnels = server.sockets[0].getsockname()[1]
            print(f"{'':10}{'p50':>11}{'p99':>11}{'memory':>12}   under attack: p50, p99, memory, failed")
            envoy = [ENVOY, "--concurrency", "1", "-l", "off", "--use-dynamic-base-id"]
            await measure("envoy", envoy, tunnels, backend)
            ours = [PLIMSOLL, "proxy", "--workers", "1"]
            quiet, attacked, memory, failed = await measure("plimsoll", ours, tunnels, backend)
    finally:
        nginx.terminate()
        nginx.wait()
    bad = []
    if failed:
        bad.append(f"{failed} honest requests failed")
    # Below half a millisecond, the scheduler of a busy machine decides.
    if attacked > max(2 * quiet, 0.5):
        bad.append(f"p99 is {attacked / quiet:.1f} times that of a quiet proxy")
    if memory >= MEMORY_LIMIT_MIB:
        bad.append(f"{memory:.0f} MiB of memory, {MEMORY_LIMIT_MIB} are allowed")
    if bad:
        sys.exit("attack-proxy: " + "; ".join(bad))
    print("attack-proxy: OK")


asyncio.run(main())
