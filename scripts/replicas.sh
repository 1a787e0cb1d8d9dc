#!/usr/bin/env bash
# Starts etcd with three members and three replicas of the control plane on loopback, to try (docs/replicas.md).
# Ctrl-C ends all of them. Arguments: the binary, by default the one in target/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

plimsoll="${1:-${CARGO_TARGET_DIR:-target}/release/plimsoll}"
work="$(mktemp -d)"
pids=()

finish() {
  kill "${pids[@]}" 2>/dev/null || true
  wait || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 0' INT TERM

members=""
endpoints=""
for n in 0 1 2; do
  members+="m$n=http://127.0.0.1:1238$n,"
  endpoints+="'127.0.0.1:1237$n', "
done
for n in 0 1 2; do
  etcd --name "m$n" --data-dir "$work/etcd-$n" --initial-cluster "${members%,}" --initial-cluster-token "$work" \
    --listen-client-urls "http://127.0.0.1:1237$n" --advertise-client-urls "http://127.0.0.1:1237$n" \
    --listen-peer-urls "http://127.0.0.1:1238$n" --initial-advertise-peer-urls "http://127.0.0.1:1238$n" \
    >"$work/etcd-$n.log" 2>&1 &
  pids+=($!)
  echo "etcd member $n on 127.0.0.1:1237$n, process $!"
done
{
  echo "store: {etcd: {endpoints: [${endpoints%, }]}}"
  echo "include: [$PWD/examples/control/services.d]"
  grep -vE '^(listen|admin|include):' examples/control/control.yaml
} >"$work/control.yaml"
for n in 0 1 2; do
  "$plimsoll" control -c "$work/control.yaml" --replica-id "replica-$n" \
    --listen "127.0.0.1:1800$((n * 2))" --admin "127.0.0.1:1801$n" >"$work/replica-$n.out" 2>"$work/replica-$n.log" &
  pids+=($!)
  echo "replica-$n: ADS and LRS on 127.0.0.1:1800$((n * 2)), dashboard on http://127.0.0.1:1801$n/, process $!"
done
echo "An Envoy: plimsoll bootstrap envoy --zone zone-a --control 127.0.0.1:18000 --control 127.0.0.1:18002 --control 127.0.0.1:18004"
wait
