#!/usr/bin/env bash
# Replicas with a real etcd under faults: chaos.sh [MINUTES, 10] [SEED] [PREVIOUS]. First the model checker, deeper
# than in `make test`, then random faults, a flood (10 minutes) and an outage (15 minutes) as in docs/replicas.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=${1:-10}
seed=${2:-$RANDOM}
target=${CARGO_TARGET_DIR:-target}
chaos=("$target/peers/venv/bin/python" scripts/chaos.py "$target/release/plimsoll")
echo "== model: three actions deep, 2,000 random histories"
PLIMSOLL_MODEL_DEPTH=3 PLIMSOLL_MODEL_SETTLED=1 PLIMSOLL_MODEL_WALKS=2000 \
  cargo test --release -p plimsoll-control --all-features --lib -- --nocapture replicas::tests::model
echo "== $minutes min of faults, seed $seed"
"${chaos[@]}" faults $((minutes * 60)) "$seed" ${3:+"$3"}
echo "== flood"
"${chaos[@]}" flood
echo "== outage"
"${chaos[@]}" outage
echo "make chaos: OK"
