#!/usr/bin/env bash
# Runs our benches, then the comparison with other load balancers, which is a package outside the
# workspace because its dependencies take minutes to build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== plimsoll-core"
cargo bench -p plimsoll-core --bench '*'

echo "== plimsoll-orca"
cargo bench -p plimsoll-orca --bench '*'

if [[ -f bench/Cargo.toml ]]; then
  echo "== compared with other load balancers"
  cargo bench --manifest-path bench/Cargo.toml
fi
