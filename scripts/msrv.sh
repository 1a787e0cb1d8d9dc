#!/usr/bin/env bash
# Compiles the libraries with the oldest Rust that we support (rust-version in Cargo.toml). Needs rustup,
# which installs that toolchain if it is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(awk -F '"' '/^rust-version = / { print $2; exit }' Cargo.toml)
if ! command -v rustup >/dev/null; then
  echo "make msrv needs rustup, to install Rust $version" >&2
  exit 1
fi
rustup toolchain install "$version" --profile minimal
for library in core orca client; do
  # In a folder of its own: the libraries of the two toolchains do not mix.
  cargo "+$version" check --locked -p "plimsoll-$library" --lib --all-features \
    --target-dir "${CARGO_TARGET_DIR:-target}/msrv"
done
echo "the libraries compile with Rust $version"
