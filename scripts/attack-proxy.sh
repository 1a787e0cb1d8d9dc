#!/usr/bin/env bash
# Attacks the proxy of the release build and Envoy: attack-proxy.sh [SECONDS, 10]. See attack-proxy.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
"$target/peers/venv/bin/python" scripts/attack-proxy.py \
  "$target/release/plimsoll" "$target/peers/venv/bin/envoy" "${1:-10}"
