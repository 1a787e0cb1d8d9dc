#!/usr/bin/env bash
# Soak test: soak.sh [MINUTES, 10] [SEED]. Sends requests through a proxy while hosts are added, removed
# and crash, health flaps, files are edited and the control plane restarts. No request may fail, and
# memory must not grow. `make test` runs the same test for half a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=${1:-10}
export PLIMSOLL_SOAK_SECONDS=$((minutes * 60))
export PLIMSOLL_SOAK_SEED=${2:-$RANDOM}
echo "== $minutes min, seed $PLIMSOLL_SOAK_SEED"
cargo test --workspace --all-features --test e2e -- --nocapture real_peers::churn::
echo "make soak: OK, $minutes min"
