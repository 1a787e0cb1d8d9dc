"""A management server of the end-to-end tests, for relays and proxies.

management_server.py FILE [PORT]

Serves the resources of FILE, a JSON list of messages with "@type", over ADS in both variants, state
of the world and incremental, and prints its port. Each line on standard input is a path to another
such file, which replaces the resources of every stream and is answered with "ok"; the line
"refusals" is answered with a JSON list of what was refused so far, each as type and message, the
line "reports" with a JSON list of all ClusterStats that were reported, endpoints one by one.
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
    """All resources by type, and the streams that want to hear of others."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.version = 0
        self.streams = set()
        self.refusals = []
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
        """A queue of the requests of a stream, of "changed", and None at its end."""
        todo = queue.Queue()
        with self.lock:
            self.streams.add(todo)
        threading.Thread(target=read, args=(requests, todo), daemon=True).start()
        return todo

    def close(self, todo):
        with self.lock:
            self.streams.discard(todo)

    def note(self, request):
        """Remembers it if it is a refusal."""
        if request.HasField("error_detail"):
            with self.lock:
                self.refusals.append((request.type_url, request.error_detail.message))


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Answers what is new to a stream: a type it did not have, other names, other resources."""

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
                self.resources.note(event)
                wanted = set(event.resource_names)
                if names.get(event.type_url) != wanted:
                    names[event.type_url] = wanted
                    yield self.response(event.type_url, wanted)
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
                    self.resources.note(event)
                    known = types.setdefault(event.type_url, Subscribed(event))
                    changed = [known] if known.change(event) else []
                for known in changed:
                    response = known.response(self.resources)
                    if response is not None:
                        yield response
        finally:
            self.resources.close(todo)


class Subscribed:
    """What a client of the incremental variant wants of one type, and what it has of it."""

    def __init__(self, first):
        self.type_url = first.type_url
        self.names = set()
        # No names in the first request are all names.
        self.all = not first.resource_names_subscribe
        self.has = dict(first.initial_resource_versions)
        self.nonce = 0

    def change(self, request):
        """Takes a request; whether there may be something to say."""
        self.names |= set(request.resource_names_subscribe)
        self.names -= set(request.resource_names_unsubscribe)
        for name in request.resource_names_unsubscribe:
            self.has.pop(name, None)
        for name in request.resource_names_subscribe:
            # Who subscribes is answered, even if it had the resource before.
            self.has.pop(name, None)
        return not request.response_nonce or bool(request.resource_names_subscribe)

    def response(self, resources):
        with resources.lock:
            found = {name_of(one): one for one in resources.by_type.get(self.type_url, [])}
        every = self.all or "*" in self.names
        wanted = {name: one for name, one in found.items() if every or name in self.names}
        versions = {name: str(hash(one.SerializeToString())) for name, one in wanted.items()}
        fresh = [name for name in wanted if self.has.get(name) != versions[name]]
        gone = [name for name in self.has if name not in wanted]
        if not fresh and not gone and self.nonce:
            return None
        self.nonce += 1
        self.has = versions
        return discovery_pb2.DeltaDiscoveryResponse(
            type_url=self.type_url,
            nonce=str(self.nonce),
            removed_resources=gone,
            resources=[
                discovery_pb2.Resource(name=name, version=versions[name], resource=wanted[name])
                for name in fresh
            ],
        )


class Lrs(lrs_pb2_grpc.LoadReportingServiceServicer):
    """Asks for everything there is to report, and keeps it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reports = []

    def StreamLoadStats(self, requests, context):
        asked = lrs_pb2.LoadStatsResponse(send_all_clusters=True, report_endpoint_granularity=True)
        asked.load_reporting_interval.nanos = 200_000_000
        for index, request in enumerate(requests):
            with self.lock:
                self.reports += [
                    json_format.MessageToDict(stats, preserving_proto_field_name=True)
                    for stats in request.cluster_stats
                ]
            if index == 0:
                yield asked


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
        if line.strip() == "refusals":
            print(json.dumps(resources.refusals), flush=True)
            continue
        if line.strip() == "reports":
            with lrs.lock:
                print(json.dumps(lrs.reports), flush=True)
            continue
        resources.load(line.strip())
        print("ok", flush=True)
    server.stop(0)


main()
