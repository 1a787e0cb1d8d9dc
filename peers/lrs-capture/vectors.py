"""Makes the suite `demand_under_failure` of captures: vectors.py NAME=FILE... > FILE.

NAME is data plane and version, FILE what capture.py printed. What is expected follows from what the
client did and saw, and from the tables below of what a data plane does not report; of the reports
only drops and attempts are read.
"""

import base64
import json
import sys

from envoy.service.load_stats.v3 import lrs_pb2

ABOUT = {
    "about": "Demand under failure: load reports that stock data planes sent while requests failed",
    "origin": "captured: peers/lrs-capture sent `offered` requests to the data plane in the"
    " situation of `source_test`, and recorded the reports",
    "note.offered": "requests that the client sent, at once; `note.outcomes` what it saw",
    "note.lost": "requests that the data plane reports nowhere",
    "inputs.reports": "LoadStatsRequests of one stream in order, base64: the bytes as received,"
    " without the extensions of the node and without clusters and reports that have no counts;"
    " Envoy's first is the idle one before the requests",
    "expected.zone": "zone of the reporting node, where the demand is",
    "expected.clusters": "of each upstream cluster, over all reports: demand, which counts each"
    " attempt once (issued, not issued or dropped); and by upstream zone the requests that arrived"
    " for it and those that failed, without drops and without refusals of circuit breakers",
}

# Situations whose retries and hedged copies count as well.
ATTEMPTS = {"per_try_timeout", "max_retries", "retry_refused", "retry_5xx", "hedged"}
# Situations that are reported nowhere.
UNREPORTED = {
    "envoy": {
        "black_hole_route_timeout", "black_hole_client_leaves", "no_host", "no_healthy_host"},
    "grpc": {"refused", "refused_wait_for_ready", "black_hole", "no_host"},
}
# Envoy 1.38 omits an upstream locality without issued requests and requests in progress.
OMITTED_BY_1_38 = {"refused", "black_hole", "panic_refused", "retry_refused"}
ENDED_UNSEEN_BY_1_38 = {
    "in_flight_5xx": 0, "in_flight_long_5xx": 0, "in_flight_half_refused": 20,
}
# What fails although the answer is 200, and what the client gave up without an error.
FAILED = {"grpc_unavailable": 20, "client_leaves": 0}


def stats_of(case, cluster):
    for report in case["reports"]:
        message = lrs_pb2.LoadStatsRequest.FromString(base64.b64decode(report))
        yield from (stats for stats in message.cluster_stats if stats.cluster_name == cluster)


def expected(data_plane, case):
    situation = case["situation"]
    is_envoy = data_plane.startswith("envoy")
    is_1_38 = data_plane.startswith("envoy 1.38")
    cluster = situation if is_envoy else "orders"
    stats = list(stats_of(case, cluster))
    if not stats:
        return {"zone": "zone-b", "clusters": {}}, case["offered"]
    drops = sum(one.total_dropped_requests for one in stats)
    demand = case["offered"]
    if situation in UNREPORTED["envoy" if is_envoy else "grpc"]:
        demand = 0
    elif is_1_38 and situation in OMITTED_BY_1_38:
        demand = 0
    elif is_1_38 and situation == "max_pending_requests_refused":
        demand = drops
    lost = case["offered"] - demand
    fine = case["outcomes"].get("200", 0) + case["outcomes"].get("OK", 0)
    failed = FAILED.get(situation, demand - fine - drops)
    if situation in ATTEMPTS and demand > 0:
        places = [place for one in stats for place in one.upstream_locality_stats]
        issued = sum(place.total_issued_requests for place in places)
        failed = sum(place.total_error_requests for place in places)
        demand = max(issued, failed)
    elif situation == "max_requests_http2":
        # The answer to an HTTP/1.1 client is 200 with a gRPC status.
        failed = 0
    if is_1_38:
        failed = ENDED_UNSEEN_BY_1_38.get(situation, failed)
    zones = {"zone-b": {"arrived": demand - drops, "failed": failed}}
    has_zone = any(one.upstream_locality_stats for one in stats)
    clusters = {cluster: {"demand": demand, "upstream": zones if has_zone else {}}}
    if situation == "mirror":
        copy = {"zone-b": {"arrived": case["offered"], "failed": 0}}
        clusters["shadow"] = {"demand": case["offered"], "upstream": copy}
    return {"zone": "zone-b", "clusters": clusters}, lost


def main():
    cases = []
    for argument in sys.argv[1:]:
        data_plane, _, path = argument.partition("=")
        with open(path, encoding="utf-8") as file:
            for case in json.load(file):
                outcome, lost = expected(data_plane, case)
                note = {key: case[key] for key in ["about", "offered", "outcomes"]}
                if lost:
                    note["lost"] = lost
                cases.append({
                    "id": f"df-{len(cases) + 1:03}",
                    "kind": "demand_under_failure",
                    "source_test": f"{data_plane}, {case['situation']}",
                    "origin": "captured",
                    "note": note,
                    "inputs": {"reports": case["reports"]},
                    "expected": outcome,
                })
    lines = ",\n".join(json.dumps(case) for case in cases)
    about = ",\n".join(f" {json.dumps(key)}: {json.dumps(text)}" for key, text in ABOUT.items())
    print(f'{{\n"schema": {{\n{about}\n}},\n"count": {len(cases)},\n"cases": [\n{lines}\n]\n}}')


main()
