#!/usr/bin/env bash
# Captures the load reports of all data planes and prints the suite `demand_under_failure`; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

peers=$(realpath "${CARGO_TARGET_DIR:-../../target}/peers")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export PYTHONDONTWRITEBYTECODE=1 NODE_PATH="$peers/grpc-js/node_modules"
python=$peers/venv/bin/python
names=()
# add NAME ARGUMENT...: captures one data plane.
add() {
  local name=$1
  shift
  echo "== $name" >&2
  "$python" capture.py "$@" >"$out/$name.json"
  names+=("$name=$out/$name.json")
}

for version in 1.38.3 1.39.3; do
  add "envoy $version" --envoy "$peers/envoy-$version/envoy/_bin/envoy"
done
add "envoy 1.40.0" --envoy "$(echo "$peers"/venv/lib/python*/site-packages/envoy/_bin/envoy)"
add "grpcio $("$python" -c 'import grpc; print(grpc.__version__)')" --grpc "$python" client.py
add "grpc-js $(node -p "require('@grpc/grpc-js-xds/package.json').version")" --grpc node client.cjs
if [[ -n ${GRPC_GO_CLIENT:-} ]]; then
  add "grpc-go ${GRPC_GO_VERSION:?}" --grpc "$GRPC_GO_CLIENT"
else
  echo "GRPC_GO_CLIENT is not set: without grpc-go" >&2
fi
"$python" vectors.py "${names[@]}"
