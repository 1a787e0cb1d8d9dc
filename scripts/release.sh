#!/usr/bin/env bash
# Builds the release: what artifacts.sh makes, in target/dist/release; target/dist/plimsoll without symbols, and plimsoll.debug with them; and the module for
# Envoy, named by the newest version of Envoy's ABI that it was tested with.
#
# The binary names its symbol file (.gnu_debuglink) and has the same build id, by which gdb finds the file
# next to the binary or under /usr/lib/debug/.build-id.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${CARGO_TARGET_DIR:-target}/dist
cargo build --locked --profile dist
# Cargo hard-links its artifact: split a copy, so that the next build finds its output unchanged.
cp "$out/plimsoll" "$out/plimsoll.full"
objcopy --only-keep-debug --compress-debug-sections=zlib "$out/plimsoll.full" "$out/plimsoll.debug"
chmod -x "$out/plimsoll.debug"
rm -f "$out/plimsoll"
objcopy --strip-all --add-gnu-debuglink="$out/plimsoll.debug" "$out/plimsoll.full" "$out/plimsoll"
rm "$out/plimsoll.full"

abi=v0.2
cargo build --locked --profile dist -p plimsoll-envoy
objcopy --strip-unneeded "$out/libplimsoll_envoy.so" "$out/libplimsoll_envoy-$abi.so"
ls -l "$out/plimsoll" "$out/plimsoll.debug" "$out/libplimsoll_envoy-$abi.so"
scripts/artifacts.sh "$out/plimsoll" "$out/release"
ls -l "$out/release"
