"""Management server of the end-to-end tests, for relays and proxies.

management_server.py FILE [PORT]

Serves the resources of FILE, a JSON list of messages with "@type", over ADS in both variants, state
of the world and incremental, and prints its port. Each line on standard input is a command: the path
of another such file, which replaces the resources of every stream ("ok"), "nacks" for a JSON list of
type and message of all NACKs, or "reports" for a JSON list of all ClusterStats received, with
per-endpoint statistics.
"""

import concurrent.futures
import json
import queue
import sys
import threading

import grpc
from envoy.config.cluster.v3 import cluster_pb2  # noqa: F401, known to Any by being imported
from envoy.config.endpoint.v3 import endpoint_pb2  # noqa: F401
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from envoy.service.load_stats.v3 import lrs_pb2, lrs_pb2_grpc
from google.protobuf import any_pb2, json_format


class Resources:
    """All resources by type, and the streams to notify of changes."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.version = 0
        self.streams = set()
        self.nacks = []
        self.load(path)

    def load(self, path):
        by_type = {}
        with open(path, encoding="utf-8") as file:
            for message in json.load(file):
                resource = json_format.ParseDict(message, any_pb2.Any())
                by_type.setdefault(resource.type_url, []).append(resource)
        with self.lock:
            self.version += 1
            self.by_type = by_type
            for stream in self.streams:
                stream.put("changed")

    def open(self, requests):
        """Returns a queue of the stream's requests and of "changed"; None marks its end."""
        todo = queue.Queue()
        with self.lock:
            self.streams.add(todo)
        threading.Thread(target=read, args=(requests, todo), daemon=True).start()
        return todo

    def close(self, todo):
        with self.lock:
            self.streams.discard(todo)

    def record_nack(self, request):
        """Stores the error of a request if it is a NACK."""
        if request.HasField("error_detail"):
            with self.lock:
                self.nacks.append((request.type_url, request.error_detail.message))


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Responds to new types and names of a stream, and pushes changed resources."""

    def __init__(self, resources):
        self.resources = resources

    def StreamAggregatedResources(self, requests, context):
        todo = self.resources.open(requests)
        names = {}
        try:
            while (event := todo.get()) is not None:
                if event == "changed":
                    for type_url in names:
                        yield self.response(type_url, names[type_url])
                    continue
                self.resources.record_nack(event)
                selected = set(event.resource_names)
                if names.get(event.type_url) != selected:
                    names[event.type_url] = selected
                    yield self.response(event.type_url, selected)
        finally:
            self.resources.close(todo)

    def response(self, type_url, names):
        with self.resources.lock:
            version = str(self.resources.version)
            resources = self.resources.by_type.get(type_url, [])
        chosen = [one for one in resources if not names or name_of(one) in names]
        return discovery_pb2.DiscoveryResponse(
            version_info=version, resources=chosen, type_url=type_url, nonce=version
        )

    def DeltaAggregatedResources(self, requests, context):
        todo = self.resources.open(requests)
        types = {}
        try:
            while (event := todo.get()) is not None:
                if event == "changed":
                    changed = list(types.values())
                else:
                    self.resources.record_nack(event)
                    known = types.setdefault(event.type_url, Subscribed(event))
                    changed = [known] if known.change(event) else []
                for known in changed:
                    response = known.response(self.resources)
                    if response is not None:
                        yield response
        finally:
            self.resources.close(todo)


class Subscribed:
    """State of one type on an incremental stream: subscriptions and versions sent."""

    def __init__(self, first):
        self.type_url = first.type_url
        self.names = set()
        # No names in the first request mean a wildcard subscription.
        self.all = not first.resource_names_subscribe
        self.has = dict(first.initial_resource_versions)
        self.nonce = 0

    def change(self, request):
        """Applies a request; returns whether a response may be needed."""
        self.names |= set(request.resource_names_subscribe)
        self.names -= set(request.resource_names_unsubscribe)
        for name in request.resource_names_unsubscribe:
            self.has.pop(name, None)
        for name in request.resource_names_subscribe:
            # A new subscription gets a response, even if the resource was sent before.
            self.has.pop(name, None)
        return not request.response_nonce or bool(request.resource_names_subscribe)

    def response(self, resources):
        with resources.lock:
            found = {name_of(one): one for one in resources.by_type.get(self.type_url, [])}
        every = self.all or "*" in self.names
        selected = {name: one for name, one in found.items() if every or name in self.names}
        versions = {name: str(hash(one.SerializeToString())) for name, one in selected.items()}
        fresh = [name for name in selected if self.has.get(name) != versions[name]]
        gone = [name for name in self.has if name not in selected]
        if not fresh and not gone and self.nonce:
            return None
        self.nonce += 1
        self.has = versions
        return discovery_pb2.DeltaDiscoveryResponse(
            type_url=self.type_url,
            nonce=str(self.nonce),
            removed_resources=gone,
            resources=[
                discovery_pb2.Resource(name=name, version=versions[name], resource=selected[name])
                for name in fresh
            ],
        )


class Lrs(lrs_pb2_grpc.LoadReportingServiceServicer):
    """Requests reports of all clusters and endpoints, and stores them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reports = []

    def StreamLoadStats(self, requests, context):
        settings = lrs_pb2.LoadStatsResponse(send_all_clusters=True)
        settings.report_endpoint_granularity = True
        settings.load_reporting_interval.nanos = 200_000_000
        for index, request in enumerate(requests):
            with self.lock:
                self.reports += [
                    json_format.MessageToDict(stats, preserving_proto_field_name=True)
                    for stats in request.cluster_stats
                ]
            if index == 0:
                yield settings


def read(requests, todo):
    try:
        for request in requests:
            todo.put(request)
    except grpc.RpcError:
        pass
    todo.put(None)


def name_of(resource):
    message = json_format.MessageToDict(resource, preserving_proto_field_name=True)
    return message.get("cluster_name") or message.get("name")


def main():
    resources = Resources(sys.argv[1])
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=32))
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(Ads(resources), server)
    lrs = Lrs()
    lrs_pb2_grpc.add_LoadReportingServiceServicer_to_server(lrs, server)
    port = sys.argv[2] if len(sys.argv) > 2 else "0"
    print(server.add_insecure_port(f"127.0.0.1:{port}"), flush=True)
    server.start()
    for line in sys.stdin:
        if line.strip() == "nacks":
            print(json.dumps(resources.nacks), flush=True)
            continue
        if line.strip() == "reports":
            with lrs.lock:
                print(json.dumps(lrs.reports), flush=True)
            continue
        resources.load(line.strip())
        print("ok", flush=True)
    server.stop(0)


main()
