#!/usr/bin/env bash
# Starts etcd with three members and three replicas of the control plane on loopback, to try (docs/replicas.md).
# Ctrl-C ends all of them. Arguments: the binary, by default the one in target/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

plimsoll="$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/plimsoll}")"
work="$(mktemp -d)"
pids=()
names=()

finish() {
  kill "${pids[@]}" 2>/dev/null || true
  wait || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 0' INT TERM

# start NAME COMMAND...: runs the command in the background, with its output in a log.
start() {
  local name="$1"
  shift
  "$@" >"$work/$name.log" 2>&1 &
  pids+=($!)
  names+=("$name")
}

# Whether the replica with this admin port has read the store.
is_ready() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET /readyz HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n' >&3
    grep -q 'store: connected' <&3
  ) 2>/dev/null
}

# fail NAME REASON: ends with the last lines of a log.
fail() {
  echo "$1 $2:" >&2
  tail -n 5 "$work/$1.log" >&2
  exit 1
}

# Waits until all replicas are ready. Ends with the log of a process that exits, for example because a port is in use.
wait_until_ready() {
  local deadline=$((SECONDS + 60))
  for n in 0 1 2; do
    until is_ready "1801$n"; do
      for index in "${!pids[@]}"; do
        if ! kill -0 "${pids[index]}" 2>/dev/null; then
          fail "${names[index]}" "has exited"
        fi
      done
      if ((SECONDS > deadline)); then
        fail "replica-$n" "is not ready after 60 s"
      fi
      sleep 0.2
    done
  done
}

members=""
endpoints=""
for n in 0 1 2; do
  members+="m$n=http://127.0.0.1:1238$n,"
  endpoints+="'127.0.0.1:1237$n', "
done
for n in 0 1 2; do
  start "etcd-$n" etcd --name "m$n" --data-dir "$work/etcd-$n" \
    --initial-cluster "${members%,}" --initial-cluster-token "$work" \
    --listen-client-urls "http://127.0.0.1:1237$n" --advertise-client-urls "http://127.0.0.1:1237$n" \
    --listen-peer-urls "http://127.0.0.1:1238$n" --initial-advertise-peer-urls "http://127.0.0.1:1238$n"
  echo "etcd-$n: 127.0.0.1:1237$n, process ${pids[-1]}"
done
{
  echo "store: {etcd: {endpoints: [${endpoints%, }], compaction_interval: 300s}}"
  echo "include: [$PWD/examples/control/services.d]"
  grep -vE '^(listen|admin|include):' examples/control/control.yaml
} >"$work/control.yaml"
for n in 0 1 2; do
  replica=("$plimsoll" control -c "$work/control.yaml" --replica-id "replica-$n"
    --listen "127.0.0.1:1800$((n * 2))" --admin "127.0.0.1:1801$n")
  start "replica-$n" "${replica[@]}"
  echo "replica-$n: ADS and LRS on 127.0.0.1:1800$((n * 2)), dashboard on http://127.0.0.1:1801$n/, process ${pids[-1]}"
done
wait_until_ready
echo "All replicas have read the store. Ctrl-C ends everything; logs are in $work."
echo "Kill one with kill -9, and start it again, for example: ${replica[*]}"
echo "An Envoy: $plimsoll bootstrap envoy --zone zone-a --control 127.0.0.1:18000 --control 127.0.0.1:18002 --control 127.0.0.1:18004"
wait
