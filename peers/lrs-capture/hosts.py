"""Backends that answer, fail, hang or refuse: each on a loopback port of its own."""

import concurrent.futures
import socket
import struct
import threading
import time

import grpc

# Sockets that must stay open, or the port would change its behavior.
kept = []
# Both ends of forwarded connections.
forwarded = []


def start(kind):
    """Starts a backend and returns its port. `slow` answers after `seconds` of its kind."""
    name, _, argument = kind.partition(":")
    return KINDS[name](argument)


def refuse(_):
    """Bound but not listening: the kernel resets every connection attempt."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    kept.append(sock)
    return sock.getsockname()[1]


def black_hole(_):
    """Listens with a full backlog: the kernel drops every SYN."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(0)
    kept.append(sock)
    port = sock.getsockname()[1]
    for _ in range(3):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        kept.append(filler)
    return port


def http1(argument):
    """HTTP/1.1: `status` or `status,seconds`; status `reset` closes instead of answering."""
    status, _, seconds = argument.partition(",")

    def serve(sock):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                part = sock.recv(65536)
                if not part:
                    return
                data += part
            head, _, data = data.partition(b"\r\n\r\n")
            time.sleep(float(seconds or 0))
            if status == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
                return
            sock.sendall(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n".encode())

    return accept(serve)


def accept(serve):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    kept.append(listener)

    def guarded(sock):
        try:
            serve(sock)
        except OSError:
            pass

    def loop():
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=guarded, args=(sock,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    return listener.getsockname()[1]


def forward(argument):
    """Forwards connections to a gRPC server, until `cut` closes them."""
    target = grpc_server(argument)

    def serve(sock):
        other = socket.create_connection(("127.0.0.1", target))
        forwarded.extend([sock, other])
        threading.Thread(target=pump, args=(other, sock), daemon=True).start()
        pump(sock, other)

    return accept(serve)


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass


def cut():
    """Closes all forwarded connections."""
    for sock in forwarded:
        sock.shutdown(socket.SHUT_RDWR)
    forwarded.clear()


def grpc_server(argument):
    """gRPC over HTTP/2: `code` or `code,seconds`."""
    code, _, seconds = argument.partition(",")

    def call(request, context):
        time.sleep(float(seconds or 0))
        if code != "OK":
            context.abort(grpc.StatusCode[code], "as told")
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(call)

    pool = concurrent.futures.ThreadPoolExecutor(max_workers=64)
    server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    kept.append(server)
    return port


KINDS = {
    "refuse": refuse,
    "black_hole": black_hole,
    "http": http1,
    "grpc": grpc_server,
    "forward": forward,
}
