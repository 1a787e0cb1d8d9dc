#!/usr/bin/env bash
# Compares the public API of the libraries with crates/*/public-api.txt: api.sh [accept].
# `accept` writes the files instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Crates with a snapshot; CONTRIBUTING.md says why these.
export PLIMSOLL_API_CRATES="plimsoll_core plimsoll_xds plimsoll_orca plimsoll_client"
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target

# Documents the workspace like the step `docs`, so that dependencies are compiled once for both.
RUSTDOC="$PWD/scripts/rustdoc-json.sh" RUSTDOCFLAGS="-Z unstable-options --output-format json" \
  cargo doc --quiet --workspace --no-deps --all-features
if [[ ${1-} == accept ]]; then
  export PLIMSOLL_API_ACCEPT=1
fi
PLIMSOLL_API_JSON="$target/doc" \
  cargo test --quiet --workspace --all-features --test api -- --nocapture rustdoc_json::
