"""Situations of a stock Envoy: one static cluster and one route for each."""

import concurrent.futures
import http.client
import json
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

import hosts

TYPES = "type.googleapis.com/envoy."
ROUTER = TYPES + "extensions.filters.http.router.v3.Router"
MANAGER = TYPES + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

OK = "http:200"
SLOW_OK = "http:200,0.6"
NEVER = "http:200,30"
FAILS = "http:503"
ON_5XX = {"retry_on": "5xx", "num_retries": 2}
NO_WAIT = {"retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"}}


def case(about, upstream, requests=20, **other):
    return dict(about=about, hosts=upstream, requests=requests, **other)


def breakers(**thresholds):
    return {"thresholds": [thresholds]}


CASES = {
    "answered": case("200", [OK]),
    "answered_5xx": case("503", [FAILS]),
    "refused": case("every connection is refused", ["refuse"]),
    "half_refused": case("one of two hosts refuses connections", [OK, "refuse"], 40),
    "black_hole": case("connect timeout 0.3 s, below the route timeout", ["black_hole"]),
    "black_hole_route_timeout": case(
        "route timeout 0.3 s, below the connect timeout of 5 s",
        ["black_hole"], connect="5s", route={"timeout": "0.3s"},
    ),
    "black_hole_client_leaves": case(
        "clients leave after 0.3 s, before the connect timeout of 5 s",
        ["black_hole"], connect="5s", patience=0.3,
    ),
    "route_timeout": case("no answer within 0.3 s", [NEVER], route={"timeout": "0.3s"}),
    "per_try_timeout": case(
        "no answer within 0.3 s, one retry", [NEVER],
        route={"retry_policy": {
            "retry_on": "reset", "num_retries": 1, "per_try_timeout": "0.3s", **NO_WAIT}},
    ),
    "client_leaves": case("clients leave after 0.3 s", [NEVER], patience=0.3),
    "reset": case("the host closes the connection instead of answering", ["http:reset"]),
    "in_flight": case("answered after 1.6 s, in a later report", ["http:200,1.6"]),
    "in_flight_long": case("answered after 2.6 s, two reports later", ["http:200,2.6"]),
    "in_flight_5xx": case("503 after 1.6 s, in a later report", ["http:503,1.6"]),
    "in_flight_half_refused": case(
        "503 after 1.6 s by one host, connections refused by the other", ["http:503,1.6", "refuse"],
        40),
    "in_flight_long_5xx": case("503 after 2.6 s, two reports later", ["http:503,2.6"]),
    "max_requests": case(
        "breaker max_requests 5, HTTP/1.1, answered after 0.6 s", [SLOW_OK],
        breakers=breakers(max_requests=5)),
    "max_requests_http2": case(
        "breaker max_requests 5, HTTP/2, answered after 0.6 s", ["grpc:OK,0.6"],
        http2=True, breakers=breakers(max_requests=5), warm=True),
    "max_connections": case(
        "breakers max_connections 5 and max_pending_requests 2, answered after 0.6 s", [SLOW_OK],
        breakers=breakers(max_connections=5, max_pending_requests=2)),
    "max_pending_requests": case(
        "breaker max_pending_requests 2, one connection, answered after 0.6 s", [SLOW_OK],
        breakers=breakers(max_connections=1, max_pending_requests=2)),
    "max_pending_requests_refused": case(
        "breaker max_pending_requests 2, connect timeout 0.3 s", ["black_hole"],
        breakers=breakers(max_pending_requests=2)),
    "max_retries": case(
        "503, retried twice, breaker max_retries 1", ["http:503,0.2"],
        route={"retry_policy": ON_5XX | NO_WAIT}, breakers=breakers(max_retries=1)),
    "drop_overload": case(
        "drop_overloads of 25 %", [OK], 40,
        policy={"drop_overloads": [{
            "category": "shed", "drop_percentage": {"numerator": 25, "denominator": "HUNDRED"}}]}),
    "no_host": case("the cluster has no host", []),
    "no_healthy_host": case(
        "the only host is unhealthy, panic threshold 0", [OK], health="UNHEALTHY", panic=0),
    "panic_refused": case(
        "the only host is unhealthy and refuses connections, panic threshold 50 %", ["refuse"],
        health="UNHEALTHY"),
    "retry_refused": case(
        "refused, retried twice", ["refuse"],
        route={"retry_policy": {"retry_on": "connect-failure", "num_retries": 2, **NO_WAIT}}),
    "retry_5xx": case("503, retried twice", [FAILS], route={"retry_policy": ON_5XX | NO_WAIT}),
    "mirror": case("answered, each request mirrored to the cluster `shadow`", [OK], mirror=True),
    "hedged": case(
        "answered after 0.6 s, hedged after 0.2 s without answer, two retries", [SLOW_OK],
        route={
            "hedge_policy": {"hedge_on_per_try_timeout": True},
            "retry_policy": {
                "retry_on": "5xx", "num_retries": 2, "per_try_timeout": "0.2s", **NO_WAIT}}),
    "grpc_unavailable": case(
        "gRPC status UNAVAILABLE in an HTTP answer of 200", ["grpc:UNAVAILABLE"],
        http2=True),
}


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name, one):
    endpoints = []
    for kind in one["hosts"]:
        endpoint = {"endpoint": {"address": address(hosts.start(kind))}}
        if "health" in one:
            endpoint["health_status"] = one["health"]
        endpoints.append(endpoint)
    message = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": one.get("connect", "0.3s"),
        "circuit_breakers": one.get("breakers", {}),
        "load_assignment": {
            "cluster_name": name,
            "policy": one.get("policy", {}),
            "endpoints": [{
                "locality": {"region": "r1", "zone": "zone-b"}, "lb_endpoints": endpoints}],
        },
    }
    if "panic" in one:
        message["common_lb_config"] = {"healthy_panic_threshold": {"value": one["panic"]}}
    if one.get("http2"):
        message["typed_extension_protocol_options"] = http2()
    return message


def http2():
    return {HTTP_OPTIONS: {
        "@type": TYPES + "extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }}


def route(name, one):
    action = {"cluster": name, **one.get("route", {})}
    if one.get("mirror"):
        action["request_mirror_policies"] = [{"cluster": "shadow"}]
    return {"match": {"prefix": f"/{name}/"}, "route": action}


def bootstrap(server):
    routes = [route(name, one) for name, one in CASES.items()]
    filters = [{"name": "router", "typed_config": {"@type": ROUTER}}]
    manager = {
        "@type": MANAGER, "stat_prefix": "ingress", "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "any", "domains": ["*"], "routes": routes}]},
    }
    clusters = [cluster(name, one) for name, one in CASES.items()]
    clusters.append(cluster("shadow", {"hosts": [OK]}))
    clusters.append({
        "name": "reports", "type": "STATIC", "typed_extension_protocol_options": http2(),
        "load_assignment": {"cluster_name": "reports", "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": address(server.port)}}]}]},
    })
    return {
        "node": {
            "id": "gateway-b", "cluster": "gateway",
            "locality": {"region": "r1", "zone": "zone-b"}},
        "admin": {"address": address(0)},
        "cluster_manager": {"load_stats_config": {
            "api_type": "GRPC", "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "reports"}}]}},
        "static_resources": {
            "clusters": clusters,
            "listeners": [{
                "name": "ingress", "address": address(0),
                "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}],
        },
    }


class Envoy:
    """A running Envoy. It is killed when the `with` block ends."""

    def __init__(self, binary, server):
        self.directory = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.directory.name)
        (path / "envoy.json").write_text(json.dumps(bootstrap(server)))
        self.admin_file = path / "admin"
        with open(path / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([
                binary, "-c", path / "envoy.json", "--admin-address-path", self.admin_file,
                "--concurrency", "1", "--disable-hot-restart", "-l", "warning",
            ], stdout=log, stderr=log)
        try:
            self.port = self.listener()
        except Exception:
            print((path / "log").read_text())
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def listener(self):
        for _ in range(200):
            time.sleep(0.1)
            if self.process.poll() is not None:
                break
            try:
                admin = self.admin_file.read_text().strip()
                url = f"http://{admin}/listeners?format=json"
                page = json.load(urllib.request.urlopen(url))
                found = page["listener_statuses"][0]["local_address"]["socket_address"]
                return found["port_value"]
            except (OSError, KeyError, ValueError):
                continue
        raise RuntimeError("Envoy has no listener")

    def send(self, name):
        """Sends the requests of a case at once; returns how many had which outcome."""
        one = CASES[name]
        with concurrent.futures.ThreadPoolExecutor(one["requests"]) as pool:
            calls = [pool.submit(self.request, name, one) for _ in range(one["requests"])]
            outcomes = {}
            for call in calls:
                outcome = call.result()
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return outcomes

    def request(self, name, one):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.timeout = one.get("patience", 20)
        headers = {"content-type": "application/grpc", "te": "trailers"} if "http2" in one else {}
        try:
            connection.request("POST", f"/{name}/Call", b"\0" * 5, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (socket.timeout, TimeoutError):
            return "left"
        except OSError as error:
            return type(error).__name__
        finally:
            connection.close()
