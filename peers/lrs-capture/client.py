"""gRPC client (C-core): TARGET. For each line `COUNT DEADLINE WAIT`, makes calls and prints outcomes."""

import collections
import concurrent.futures
import json
import sys

import grpc


def main():
    channel = grpc.insecure_channel(sys.argv[1])
    # Connects without a call.
    channel.subscribe(lambda _: None, try_to_connect=True)
    method = channel.unary_unary("/plimsoll.test.Peer/Call")

    def call(deadline, wait):
        try:
            method(b"", timeout=deadline, wait_for_ready=wait)
            return "OK"
        except grpc.RpcError as error:
            print(error.details(), file=sys.stderr)
            return error.code().name

    for line in sys.stdin:
        count, deadline, wait = line.split()
        with concurrent.futures.ThreadPoolExecutor(int(count)) as pool:
            calls = [pool.submit(call, float(deadline), wait == "1") for _ in range(int(count))]
            print(json.dumps(collections.Counter(one.result() for one in calls)), flush=True)


main()
