"""gRPC server or client of the end-to-end tests, controlled by standard input and output.

serve ZONE...       Starts one server per zone on a free port and prints the ports. A server responds
                    with its zone; that of zone "hang" never responds.
serve_tls DIRECTORY ZONE
                    Starts one server with DIRECTORY/server.crt and server.key that wants certificates
                    of clients which DIRECTORY/ca.crt has signed, and prints the port in a list.
call TARGET RATE [DEADLINE]
                    Calls TARGET at RATE per second, each with a deadline in seconds (20). Responds to
                    each line on standard input with the counts so far: JSON of responses by zone,
                    failures under "".
call_tls TARGET RATE [DEADLINE]
                    The same with TLS as the management server says. A cluster without TLS would be
                    verified by the authorities of the system.
load TARGET RATE    Starts RATE calls per second, whether or not earlier ones are answered; each has 3 s.
                    "rate N" changes the rate. "next" begins a window of calls and responds with the last
                    one when its calls have ended: JSON of calls sent, succeeded and failed.
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
        def respond(_, context):
            while zone == "hang" and context.is_active():
                time.sleep(0.01)
            return zone.encode()

        self.handler = grpc.unary_unary_rpc_method_handler(respond)

    def service(self, details):
        return self.handler


def tls(directory):
    def read(name):
        with open(f"{directory}/{name}", "rb") as file:
            return file.read()

    return grpc.ssl_server_credentials(
        [(read("server.key"), read("server.crt"))], read("ca.crt"), require_client_auth=True
    )


def serve(zones, credentials=None):
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=4)
    servers = []
    ports = []
    for zone in zones:
        server = grpc.server(pool, handlers=[Zone(zone)])
        if credentials:
            ports.append(server.add_secure_port("127.0.0.1:0", credentials))
        else:
            ports.append(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        servers.append(server)
    print(json.dumps(ports), flush=True)
    sys.stdin.read()


def connect(target, is_secure):
    if is_secure:
        return grpc.secure_channel(target, grpc.xds_channel_credentials())
    return grpc.insecure_channel(target)


def call(target, rate, deadline, is_secure):
    counts = collections.Counter()
    lock = threading.Lock()

    def work():
        with connect(target, is_secure) as channel:
            where = channel.unary_unary(METHOD)
            due = time.monotonic()
            while True:
                try:
                    zone = where(b"", timeout=deadline, wait_for_ready=True).decode()
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


def load(target, rate):
    channel = grpc.insecure_channel(target)
    where = channel.unary_unary(METHOD)
    changed = threading.Condition()
    state = {"rate": rate, "window": collections.Counter()}

    def ended(window):
        def done(response):
            with changed:
                window["succeeded" if response.code() == grpc.StatusCode.OK else "failed"] += 1
                changed.notify_all()

        return done

    def work():
        due = time.monotonic()
        while True:
            with changed:
                rate = state["rate"]
                window = state["window"]
                if rate:
                    window["sent"] += 1
            if rate:
                where.future(b"", timeout=3).add_done_callback(ended(window))
            due = max(due + 1 / (rate or 20), time.monotonic() - 0.1)
            time.sleep(max(0, due - time.monotonic()))

    threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        with changed:
            if line.startswith("rate "):
                state["rate"] = float(line.split()[1])
                window = {}
            else:
                window = state["window"]
                state["window"] = collections.Counter()
                changed.wait_for(lambda: window["sent"] == window["succeeded"] + window["failed"])
        print(json.dumps(window), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2:])
    elif sys.argv[1] == "serve_tls":
        serve(sys.argv[3:], tls(sys.argv[2]))
    elif sys.argv[1] == "load":
        load(sys.argv[2], float(sys.argv[3]))
    else:
        deadline = float((sys.argv[4:] or ["20"])[0])
        call(sys.argv[2], float(sys.argv[3]), deadline, sys.argv[1] == "call_tls")
