"""Measures the proxies that bench-proxy.sh has started and prints the tables.

bench-proxy.py DIRECTORY SECONDS RUNS: DIRECTORY has a NAME.pid for each proxy. CPU times are read from
/proc for the process group, so that master and helper processes count too.
"""

import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import time

DIRECTORY, SECONDS, RUNS = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
HTTP1 = {"plimsoll": 9501, "envoy": 9201, "haproxy": 9301, "nginx": 9401}
HTTP2 = {"plimsoll": 9502, "envoy": 9202, "haproxy": 9302}
if (DIRECTORY / "before.pid").exists():
    HTTP1["before"], HTTP2["before"] = 9601, 9602
CONNECTIONS = 64
TICKS = os.sysconf("SC_CLK_TCK")


def group(name):
    """Yields the processes of a proxy."""
    leader = int((DIRECTORY / f"{name}.pid").read_text())
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == leader:
            yield entry, fields


def cpu_seconds(name):
    return sum(int(fields[11]) + int(fields[12]) for _, fields in group(name)) / TICKS


def rss_mib(name):
    total = 0
    for entry, _ in group(name):
        match = re.search(r"VmRSS:\s+(\d+)", (entry / "status").read_text())
        total += int(match[1]) if match else 0
    return total / 1024


def pinned(*command):
    done = subprocess.run(
        ["taskset", "-c", "1", *command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


def h2load(port, http1, *more):
    command = ["h2load", f"-c{CONNECTIONS}", "-t1", *more]
    if http1:
        command += ["--h1", f"http://127.0.0.1:{port}/"]
    else:
        command += [
            "-m8",
            f"--data={DIRECTORY / 'message'}",
            "-Hcontent-type: application/grpc",
            "-Hte: trailers",
            f"http://127.0.0.1:{port}/service/Method",
        ]
    return pinned(*command)


def succeeded(text):
    """Returns the number of 2xx responses; exits on any other status."""
    match = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    good, *bad = map(int, match.groups())
    if any(bad):
        sys.exit(f"not every response was 2xx:\n{text}")
    return good


def full_speed(name, port, http1):
    before = cpu_seconds(name)
    if http1:
        text = pinned("wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", f"http://127.0.0.1:{port}/")
        requests = int(re.search(r"(\d+) requests in", text)[1])
        if "Non-2xx" in text:
            sys.exit(f"not every response was 2xx:\n{text}")
        elapsed = SECONDS
    else:
        began = time.monotonic()
        requests = succeeded(h2load(port, http1, f"-D{SECONDS}", "--warm-up-time=0"))
        elapsed = time.monotonic() - began
    micros = (cpu_seconds(name) - before) * 1e6 / requests
    return requests / elapsed, micros


def at_rate(port, http1, rate):
    """Returns p50 and p99 in milliseconds."""
    log = DIRECTORY / "latencies"
    log.unlink(missing_ok=True)
    per_client = max(1, round(rate / CONNECTIONS))
    h2load(port, http1, f"-D{SECONDS}", f"--rps={per_client}", f"--log-file={log}")
    times = sorted(int(line.split()[2]) for line in log.read_text().splitlines())
    pick = lambda share: times[min(len(times) - 1, int(len(times) * share))] / 1000
    return pick(0.5), pick(0.99)


def idle_memory(name, port):
    """Returns resident memory before and with 1,000 connections that have sent one request each."""
    before = rss_mib(name)
    kept = []
    for _ in range(1000):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        got = b""
        while len(got) < 1024:
            got += one.recv(65536)
        kept.append(one)
    after = rss_mib(name)
    for one in kept:
        one.close()
    return before, after


def compare(title, ports, http1):
    found = {name: [] for name in ports}
    for _ in range(RUNS):
        for name, port in ports.items():
            found[name].append(full_speed(name, port, http1))
    median = lambda values: statistics.median(values)
    rate = 0.7 * median([run[0] for run in found["envoy"]])
    latency = {name: [] for name in ports}
    for _ in range(RUNS):
        for name, port in ports.items():
            latency[name].append(at_rate(port, http1, rate))
    envoy_cpu = median([run[1] for run in found["envoy"]])
    print(f"\n{title}; latencies at {rate:,.0f} requests/s")
    print(f"{'':10}{'requests/s':>12}{'CPU/request':>14}{'of Envoy':>10}{'p50':>10}{'p99':>10}")
    for name in ports:
        rps = median([run[0] for run in found[name]])
        cpu = median([run[1] for run in found[name]])
        p50 = median([run[0] for run in latency[name]])
        p99 = median([run[1] for run in latency[name]])
        print(
            f"{name:10}{rps:12,.0f}{cpu:11.1f} us{cpu / envoy_cpu:10.2f}"
            f"{p50:7.2f} ms{p99:7.2f} ms"
        )


def main():
    for ports, http1 in ((HTTP1, True), (HTTP2, False)):
        for name, port in ports.items():
            # Warm up, and check that the proxy works.
            succeeded(h2load(port, http1, "-n2000"))
    compare(f"HTTP/1.1, {CONNECTIONS} connections, 1 KiB", HTTP1, True)
    compare(f"HTTP/2, {CONNECTIONS} connections of 8 streams, 32 B up, 1 KiB down", HTTP2, False)
    print("\nResident memory: before, and with 1,000 more idle connections")
    for name, port in HTTP1.items():
        before, after = idle_memory(name, port)
        print(f"{name:10}{before:8.1f} MiB{after:8.1f} MiB{(after - before) * 1.024:8.1f} KiB each")


main()
