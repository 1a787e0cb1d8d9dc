#!/usr/bin/env bash
# The best there is to see so far: the worked example, routed by host counts and by measured demand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "Building plimsoll ..."
cargo build --release -p plimsoll
plimsoll="${CARGO_TARGET_DIR:-target}/release/plimsoll"

echo
"$plimsoll" explain examples/explain/lrs-rate-before.yaml examples/explain/lrs-rate-after.yaml

cat <<'TEXT'

More:
  target/release/plimsoll explain examples/explain/off-upstream-too-small.yaml   why zone routing is off
  target/release/plimsoll explain examples/explain/lrs-rate-after.yaml --json    the same for programs
  ls examples/explain                                                            all scenarios
TEXT
