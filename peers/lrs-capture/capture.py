"""Captures the load reports of stock data planes while requests fail; see README.md."""

import argparse
import base64
import functools
import json
import sys
import time

from envoy.service.load_stats.v3 import lrs_pb2

import envoys
import grpcs
from server import Server

NODE, CLUSTER_STATS = 1, 2
# Of a node: id, cluster, locality, user agent name and version. The other fields are 60 KB.
NODE_FIELDS = {1, 2, 4, 6, 7}


def fields(data):
    """Yields number and bytes (with tag) of each field of a message, without decoding it."""
    at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        if tag & 7 == 0:
            _, at = varint(data, at)
        elif tag & 7 == 2:
            size, at = varint(data, at)
            at += size
        else:
            at += {1: 8, 5: 4}[tag & 7]
        yield tag >> 3, data[start:at]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def payload(field):
    _, at = varint(field, 0)
    _, at = varint(field, at)
    return field[at:]


def trimmed(data, names, keep=lambda stats: True):
    """Keeps the node's identity, and the bytes of the clusters with these names."""
    out = b""
    for number, field in fields(data):
        if number == NODE:
            node = b"".join(part for key, part in fields(payload(field)) if key in NODE_FIELDS)
            out += b"\x0a" + encoded(len(node)) + node
        elif number == CLUSTER_STATS:
            stats = lrs_pb2.LoadStatsRequest.FromString(field).cluster_stats[0]
            if stats.cluster_name in names and keep(stats):
                out += field
    return out


def encoded(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def has_counts(stats):
    """C-core also reports zeros."""
    return bool(stats.total_dropped_requests) or any(
        one.total_issued_requests or one.total_successful_requests or one.total_error_requests
        or one.total_requests_in_progress
        for one in stats.upstream_locality_stats
    )


def summary(data):
    """Returns the counters of a report by cluster, to read."""
    lines = []
    for stats in lrs_pb2.LoadStatsRequest.FromString(data).cluster_stats:
        for one in stats.upstream_locality_stats:
            lines.append(
                f"{stats.cluster_name}>{one.locality.zone} issued={one.total_issued_requests}"
                f" ok={one.total_successful_requests} error={one.total_error_requests}"
                f" in_progress={one.total_requests_in_progress}"
            )
        if stats.total_dropped_requests:
            by = {one.category: one.dropped_count for one in stats.dropped_requests}
            lines.append(f"{stats.cluster_name} dropped={stats.total_dropped_requests} {by}")
    return "; ".join(lines)


def capture(server, name, one, send, first=0):
    """Runs one case right after a report; returns it with the reports that have counts."""
    outcomes = send()
    # Calls that are answered late are reported late.
    time.sleep(2.2 * server.interval)
    # The mirrored copies are of the cluster `shadow`; gRPC clients have one cluster.
    clusters = {name, "shadow", "orders"}
    reports = [trimmed(data, clusters, has_counts) for _, data in server.reports[first:]]
    reports = [data for data in reports if lrs_pb2.LoadStatsRequest.FromString(data).cluster_stats]
    if first > 0:
        # The idle report before says that nothing was in progress.
        _, data = server.reports[first - 1]
        reports.insert(0, trimmed(data, {name, "orders"}))
    print(f"{name}: {outcomes}", file=sys.stderr)
    for data in reports:
        print("   ", summary(data), file=sys.stderr)
    return {
        "situation": name,
        "about": one["about"],
        "offered": one["requests"],
        "outcomes": {str(key): count for key, count in outcomes.items()},
        "reports": [base64.b64encode(data).decode() for data in reports],
    }


def capture_envoy(binary, only):
    server = Server()
    with envoys.Envoy(binary, server) as envoy:
        for name, one in selected(envoys.CASES, only):
            if one.get("warm"):
                envoy.request(name, one)
                server.wait_for_report(2)
            first = server.wait_for_report()
            yield capture(server, name, one, functools.partial(envoy.send, name), first)


def capture_grpc(command, only):
    for name, one in selected(grpcs.CASES, only):
        server = Server()
        server.set(grpcs.resources(one))
        with grpcs.Client(command, server) as client:
            grpcs.wait_for_stream(server)
            case = capture(server, name, one, functools.partial(client.send, one))
            # Only the first message of the stream has the node.
            node = trimmed(server.first, set())
            case["reports"].insert(0, base64.b64encode(node).decode())
            yield case


def selected(cases, only):
    return [(name, one) for name, one in cases.items() if not only or name in only]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envoy", help="path of an Envoy")
    parser.add_argument("--grpc", nargs="+", help="command of a gRPC client")
    parser.add_argument("--cases", nargs="*", help="only these situations")
    args = parser.parse_args()
    if args.envoy:
        cases = capture_envoy(args.envoy, args.cases)
    else:
        cases = capture_grpc(args.grpc, args.cases)
    json.dump(list(cases), sys.stdout, indent=1)


main()
