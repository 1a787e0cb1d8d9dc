"""Situations of a gRPC client: one client process for each."""

import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

import hosts
from envoys import TYPES, address, case

OK = "grpc:OK"
RETRY = {
    "retry_on": "unavailable", "num_retries": 2,
    "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
}

CASES = {
    "answered": case("answered", [OK]),
    "answered_5xx": case("answered with status UNAVAILABLE", ["grpc:UNAVAILABLE"]),
    "refused": case("every connection is refused", ["refuse"]),
    "refused_wait_for_ready": case(
        "every connection is refused, calls wait for a connection, deadline 1 s", ["refuse"],
        deadline=1, wait=True),
    "half_refused": case("one of two hosts refuses connections", [OK, "refuse"], 40),
    "black_hole": case("no connection, deadline 1 s", ["black_hole"], deadline=1),
    "deadline": case("no answer within the deadline of 0.3 s", ["grpc:OK,2"], deadline=0.3),
    "disconnect": case(
        "the connection is closed with calls in flight", ["forward:OK,2"], cut=0.3),
    "in_flight": case("answered after 1.6 s, in a later report", ["grpc:OK,1.6"]),
    "in_flight_5xx": case(
        "status UNAVAILABLE after 1.6 s, in a later report", ["grpc:UNAVAILABLE,1.6"]),
    "max_requests": case(
        "breaker max_requests 5, answered after 0.4 s", ["grpc:OK,0.4"], max_requests=5),
    "drop_overload": case(
        "drop_overloads of 25 %", [OK], 40,
        policy={"drop_overloads": [{
            "category": "shed", "drop_percentage": {"numerator": 25, "denominator": "HUNDRED"}}]}),
    "no_host": case("the cluster has no host", []),
    "retry_5xx": case(
        "status UNAVAILABLE, retried twice", ["grpc:UNAVAILABLE"], retry=RETRY),
}


def resources(one):
    action = {"cluster": "orders"}
    if "retry" in one:
        action["retry_policy"] = one["retry"]
    routes = {
        "name": "routes",
        "virtual_hosts": [{
            "name": "any", "domains": ["*"],
            "routes": [{"match": {"prefix": ""}, "route": action}]}],
    }
    manager = {
        "@type": TYPES + "extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "route_config": routes,
        "http_filters": [{
            "name": "router",
            "typed_config": {"@type": TYPES + "extensions.filters.http.router.v3.Router"}}],
    }
    cluster = {
        "@type": TYPES + "config.cluster.v3.Cluster",
        "name": "orders", "type": "EDS", "lb_policy": "ROUND_ROBIN",
        "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
        "lrs_server": {"self": {}},
    }
    if "max_requests" in one:
        cluster["circuit_breakers"] = {"thresholds": [{"max_requests": one["max_requests"]}]}
    endpoints = [
        {"endpoint": {"address": address(hosts.start(kind))}, "health_status": "HEALTHY"}
        for kind in one["hosts"]
    ]
    places = [{
        "locality": {"region": "r1", "zone": "zone-b"}, "load_balancing_weight": 1,
        "lb_endpoints": endpoints}]
    return [
        {"@type": TYPES + "config.listener.v3.Listener", "name": "orders",
         "api_listener": {"api_listener": manager}},
        cluster,
        {"@type": TYPES + "config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "orders",
         "policy": one.get("policy", {}), "endpoints": places if endpoints else []},
    ]


def bootstrap(port):
    return {
        "xds_servers": [{
            "server_uri": f"127.0.0.1:{port}",
            "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
        "node": {
            "id": "checkout-b", "cluster": "checkout",
            "locality": {"region": "r1", "zone": "zone-b"}},
    }


class Client:
    """A gRPC client process. It is killed when the `with` block ends."""

    def __init__(self, command, server):
        self.directory = tempfile.TemporaryDirectory()
        file = pathlib.Path(self.directory.name) / "bootstrap.json"
        file.write_text(json.dumps(bootstrap(server.port)))
        self.process = subprocess.Popen(
            [*command, "xds:///orders"],
            env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(file)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def send(self, one):
        """Makes the calls of a case at once; returns how many had which status."""
        if "cut" in one:
            threading.Timer(one["cut"], hosts.cut).start()
        wait = int(one.get("wait", False))
        self.process.stdin.write(f"{one['requests']} {one.get('deadline', 10)} {wait}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def wait_for_stream(server):
    """Waits until a client is ready to report, and until just after a report is due."""
    for _ in range(100):
        if server.started:
            break
        time.sleep(0.1)
    else:
        raise TimeoutError(f"no LRS stream; NACKs: {server.nacks}")
    time.sleep(max(0, server.started + 2.1 - time.monotonic()))
