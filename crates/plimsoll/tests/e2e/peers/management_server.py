"""A management server of the end-to-end tests, for a relay to stand in front of.

management_server.py FILE [PORT]

Serves the resources of FILE, a JSON list of messages with "@type", over state-of-the-world ADS, and
prints its port. Each line on standard input is a path to another such file, which replaces the
resources of every stream and is answered with "ok". Refusals go to standard error.
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
from google.protobuf import any_pb2, json_format


class Resources:
    """All resources by type, and the streams that want to hear of others."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.version = 0
        self.streams = set()
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


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Answers what is new to a stream: a type it did not have, other names, other resources."""

    def __init__(self, resources):
        self.resources = resources

    def StreamAggregatedResources(self, requests, context):
        todo = queue.Queue()
        with self.resources.lock:
            self.resources.streams.add(todo)
        threading.Thread(target=read, args=(requests, todo), daemon=True).start()
        names = {}
        try:
            while (event := todo.get()) is not None:
                if event == "changed":
                    for type_url in names:
                        yield self.response(type_url, names[type_url])
                    continue
                if event.HasField("error_detail"):
                    print("refused:", event.type_url, event.error_detail.message, file=sys.stderr)
                wanted = set(event.resource_names)
                if names.get(event.type_url) != wanted:
                    names[event.type_url] = wanted
                    yield self.response(event.type_url, wanted)
        finally:
            with self.resources.lock:
                self.resources.streams.discard(todo)

    def response(self, type_url, names):
        with self.resources.lock:
            version = str(self.resources.version)
            resources = self.resources.by_type.get(type_url, [])
        chosen = [one for one in resources if not names or name_of(one) in names]
        return discovery_pb2.DiscoveryResponse(
            version_info=version, resources=chosen, type_url=type_url, nonce=version
        )


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
    port = sys.argv[2] if len(sys.argv) > 2 else "0"
    print(server.add_insecure_port(f"127.0.0.1:{port}"), flush=True)
    server.start()
    for line in sys.stdin:
        resources.load(line.strip())
        print("ok", flush=True)
    server.stop(0)


main()
