"""gRPC server or client of the end-to-end tests, controlled by standard input and output.

serve ZONE...       Starts one server per zone on a free port and prints the ports. A server responds
                    with its zone.
call TARGET RATE    Calls TARGET at RATE per second. Responds to each line on standard input with the
                    counts so far: JSON of responses by zone, failures under "".
"""

import collections
import concurrent.futures
import json
import sys
import threading
import time

import grpc

METHOD = "/plimsoll.test.Zones/Where"


class Zone(grpc.GenericRpcHandler):
    """Responds to every call with the name of a zone."""

    def __init__(self, zone):
        self.handler = grpc.unary_unary_rpc_method_handler(lambda request, context: zone.encode())

    def service(self, details):
        return self.handler


def serve(zones):
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=4)
    servers = []
    ports = []
    for zone in zones:
        server = grpc.server(pool, handlers=[Zone(zone)])
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        servers.append(server)
    print(json.dumps(ports), flush=True)
    sys.stdin.read()


def call(target, rate):
    counts = collections.Counter()
    lock = threading.Lock()

    def work():
        with grpc.insecure_channel(target) as channel:
            where = channel.unary_unary(METHOD)
            due = time.monotonic()
            while True:
                try:
                    zone = where(b"", timeout=20, wait_for_ready=True).decode()
                except grpc.RpcError as error:
                    print(error, file=sys.stderr, flush=True)
                    zone = ""
                with lock:
                    counts[zone] += 1
                due = max(due + 1 / rate, time.monotonic() - 1)
                time.sleep(max(0, due - time.monotonic()))

    threading.Thread(target=work, daemon=True).start()
    for _ in sys.stdin:
        with lock:
            print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2:])
    else:
        call(sys.argv[2], float(sys.argv[3]))
