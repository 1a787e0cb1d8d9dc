"""gRPC server and client (C-core) of the end-to-end tests, for calls through a proxy.

serve               Starts a server on a free port and prints the port.
call TARGET [CA]    Makes calls of every kind to TARGET and prints the results as JSON by kind.
                    Uses TLS if the file CA is given.
fail TARGET         Makes one call and prints its error.
"""

import concurrent.futures
import json
import sys
import threading

import grpc

SERVICE = "/plimsoll.test.Interop/"
LARGE = 8 * 1024 * 1024
# Methods of Calls that are not a kind of call.
HELPERS = ("method", "failed")
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Interop(grpc.GenericRpcHandler):
    """Implements every kind of method. Messages are plain bytes."""

    def __init__(self):
        self.ended = threading.Semaphore(0)
        self.methods = {
            "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Length": grpc.stream_unary_rpc_method_handler(self.length),
            "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "FailLate": grpc.unary_stream_rpc_method_handler(self.fail_late),
            "Hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "SawTheEnd": grpc.unary_unary_rpc_method_handler(self.saw_the_end),
        }

    def service(self, details):
        return self.methods.get(details.method.removeprefix(SERVICE))

    def echo(self, request, context):
        """Returns metadata of the call as initial and trailing metadata."""
        asked = dict(context.invocation_metadata())
        context.send_initial_metadata((("x-seen", asked.get("x-ask", "")),))
        context.set_trailing_metadata((("x-ask-bin", asked.get("x-ask-bin", b"")),))
        return request

    def count(self, request, context):
        for number in range(int(request)):
            yield str(number).encode()

    def length(self, requests, context):
        return str(sum(len(request) for request in requests)).encode()

    def chat(self, requests, context):
        for request in requests:
            yield request.upper()

    def fail(self, request, context):
        context.set_trailing_metadata((("x-why", "because"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today, señor: 100 %")

    def fail_late(self, request, context):
        yield b"one"
        context.abort(grpc.StatusCode.DATA_LOSS, "the rest is lost")

    def hang(self, request, context):
        """Does not respond until the call is over; counts calls with the request `deadline`."""
        over = threading.Event()
        context.add_callback(over.set)
        if over.wait(timeout=30) and request == b"deadline":
            self.ended.release()
        return b""

    def saw_the_end(self, request, context):
        return b"yes" if self.ended.acquire(timeout=20) else b"no"


def serve():
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=16)
    server = grpc.server(pool, handlers=[Interop()], options=OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()


class Calls:
    """One method per kind of call; each returns the result."""

    def __init__(self, channel):
        self.channel = channel

    def method(self, kind, name):
        return getattr(self.channel, kind)(SERVICE + name)

    def unary(self):
        metadata = (("x-ask", "where, to?"), ("x-ask-bin", b"\x00\xff\x10"))
        reply, call = self.method("unary_unary", "Echo").with_call(b"hello", metadata=metadata)
        return {
            "reply": reply.decode(),
            "initial": dict(call.initial_metadata()).get("x-seen"),
            "trailing": list(dict(call.trailing_metadata()).get("x-ask-bin")),
            "code": call.code().name,
        }

    def empty_message(self):
        return self.method("unary_unary", "Echo")(b"").decode()

    def large_message(self):
        message = bytes(range(256)) * (LARGE // 256)
        return self.method("unary_unary", "Echo")(message) == message

    def server_stream(self):
        return [int(number) for number in self.method("unary_stream", "Count")(b"1000")]

    def client_stream(self):
        parts = (bytes(length) for length in range(1000))
        return int(self.method("stream_unary", "Length")(parts))

    def both_streams(self):
        """Sends each message after the response to the previous one: the proxy must not buffer."""
        answered = threading.Semaphore(1)

        def ask():
            for number in range(100):
                answered.acquire()
                yield f"word-{number}".encode()

        replies = []
        for reply in self.method("stream_stream", "Chat")(ask(), timeout=20):
            replies.append(reply.decode())
            answered.release()
        return replies

    def failure(self):
        return self.failed(lambda: self.method("unary_unary", "Fail")(b""))

    def failure_after_a_message(self):
        replies = []

        def call():
            for reply in self.method("unary_stream", "FailLate")(b""):
                replies.append(reply.decode())

        return {"replies": replies} | self.failed(call)

    def unknown_method(self):
        return self.failed(lambda: self.method("unary_unary", "Nothing")(b""))

    def no_route(self):
        return self.failed(lambda: self.channel.unary_unary("/no.such.Service/Method")(b""))

    def deadline(self):
        hang = self.method("unary_unary", "Hang")
        outcome = self.failed(lambda: hang(b"deadline", timeout=2))
        seen = self.method("unary_unary", "SawTheEnd")(b"").decode()
        return {"code": outcome["code"], "server_saw_it": seen}

    def cancelled(self):
        call = self.method("unary_unary", "Hang").future(b"")
        call.cancel()
        return self.failed(call.result)["code"] if not call.cancelled() else "CANCELLED"

    def many_at_once(self):
        echo = self.method("unary_unary", "Echo")
        calls = [echo.future(str(number).encode()) for number in range(200)]
        return sum(int(call.result()) for call in calls)

    @staticmethod
    def failed(call):
        try:
            call()
        except grpc.RpcError as error:
            why = dict(error.trailing_metadata() or ()).get("x-why")
            return {"code": error.code().name, "details": error.details(), "why": why}
        return {"code": "OK", "details": "", "why": None}


def call(target, authority):
    if authority:
        with open(authority, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        channel = grpc.secure_channel(target, credentials, options=OPTIONS)
    else:
        channel = grpc.insecure_channel(target, options=OPTIONS)
    with channel:
        calls = Calls(channel)
        kinds = [name for name in vars(Calls) if name not in HELPERS and name[0] != "_"]
        outcomes = {kind: getattr(calls, kind)() for kind in kinds}
    print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "fail":
        with grpc.insecure_channel(sys.argv[2]) as channel:
            print(json.dumps(Calls(channel).failure()), flush=True)
    else:
        call(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
