"""Management server that keeps the bytes of every load report: ADS (state of the world) and LRS."""

import concurrent.futures
import queue
import threading
import time

import grpc
from envoy.config.cluster.v3 import cluster_pb2  # noqa: F401, known to Any by being imported
from envoy.config.endpoint.v3 import endpoint_pb2  # noqa: F401
from envoy.config.listener.v3 import listener_pb2  # noqa: F401
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401
from envoy.extensions.filters.network.http_connection_manager.v3 import (  # noqa: F401
    http_connection_manager_pb2,
)
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.load_stats.v3 import lrs_pb2
from google.protobuf import any_pb2, json_format


class Server:
    """Serves `resources` (lists of Any by type URL) and stores load reports in `reports`."""

    def __init__(self):
        self.interval = 1.0
        self.resources = {}
        self.version = 0
        self.streams = []
        self.condition = threading.Condition()
        self.reports = []
        self.nacks = []
        # First message of the LRS stream, the only one in which gRPC sends its node, and its time.
        self.first = None
        self.started = None
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=32)
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((Handlers(self),))
        self.port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.server = server

    def set(self, messages):
        """Replaces all resources by messages in protobuf's JSON."""
        by_type = {}
        for message in messages:
            resource = json_format.ParseDict(message, any_pb2.Any())
            name = message.get("name") or message.get("cluster_name")
            by_type.setdefault(resource.type_url, {})[name] = resource
        self.resources = by_type
        self.version += 1
        for stream in list(self.streams):
            stream.put("changed")

    def wait_for_report(self, count=1):
        """Waits until `count` more reports arrive; returns how many there are."""
        with self.condition:
            until = len(self.reports) + count
            if not self.condition.wait_for(lambda: len(self.reports) >= until, timeout=20):
                raise TimeoutError(f"no load report arrived; NACKs: {self.nacks}")
            return len(self.reports)

    def ads(self, requests, _):
        todo = queue.Queue()
        self.streams.append(todo)
        threading.Thread(target=read, args=(requests, todo), daemon=True).start()
        names = {}
        while (event := todo.get()) is not None:
            if event == "changed":
                for kind in names:
                    yield self.response(kind, names[kind])
                continue
            if event.HasField("error_detail"):
                self.nacks.append(event.error_detail.message)
            wanted = set(event.resource_names)
            if names.get(event.type_url) != wanted:
                names[event.type_url] = wanted
                yield self.response(event.type_url, wanted)
        self.streams.remove(todo)

    def response(self, kind, names):
        resources = self.resources.get(kind, {})
        return discovery_pb2.DiscoveryResponse(
            version_info=str(self.version),
            type_url=kind,
            nonce=str(self.version),
            resources=[one for name, one in resources.items() if not names or name in names],
        )

    def lrs(self, requests, _):
        settings = lrs_pb2.LoadStatsResponse(send_all_clusters=True)
        settings.load_reporting_interval.FromNanoseconds(int(self.interval * 1e9))
        self.first = next(requests)
        self.started = time.monotonic()
        yield settings
        for request in requests:
            with self.condition:
                self.reports.append((time.monotonic(), request))
                self.condition.notify_all()

class Handlers(grpc.GenericRpcHandler):
    """Load reports stay bytes."""

    def __init__(self, server):
        self.methods = {
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources": (
                grpc.stream_stream_rpc_method_handler(
                    server.ads,
                    discovery_pb2.DiscoveryRequest.FromString,
                    discovery_pb2.DiscoveryResponse.SerializeToString,
                )
            ),
            "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats": (
                grpc.stream_stream_rpc_method_handler(
                    server.lrs, None, lrs_pb2.LoadStatsResponse.SerializeToString
                )
            ),
        }

    def service(self, details):
        return self.methods.get(details.method)

def read(requests, todo):
    try:
        for request in requests:
            todo.put(request)
    except grpc.RpcError:
        pass
    todo.put(None)
