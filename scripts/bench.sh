#!/usr/bin/env bash
# Our own benches, then the comparison with other balancers. The latter is a package of its own,
# outside the workspace, because its dependencies take minutes to build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== plimsoll-core"
cargo bench -p plimsoll-core --bench '*'

echo "== plimsoll-orca"
cargo bench -p plimsoll-orca --bench '*'

if [[ -f bench/Cargo.toml ]]; then
  echo "== beside other balancers"
  cargo bench --manifest-path bench/Cargo.toml
fi
