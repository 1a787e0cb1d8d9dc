#!/usr/bin/env bash
# Requests through a proxy for a long time while hosts come, go and crash, health flaps, files are
# edited and the control plane dies and returns: soak.sh [MINUTES, 10] [SEED]. Nothing may fail, and
# memory may not grow. `make test` runs the same for half a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=${1:-10}
export PLIMSOLL_SOAK_SECONDS=$((minutes * 60))
export PLIMSOLL_SOAK_SEED=${2:-$RANDOM}
echo "== $minutes min, seed $PLIMSOLL_SOAK_SEED"
cargo test --workspace --all-features --test e2e -- --nocapture real_peers::churn::
echo "make soak: OK, $minutes min"
