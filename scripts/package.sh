#!/usr/bin/env bash
# Packs every crate as `cargo publish` would, and compiles the unpacked packages in a workspace of their
# own: a file that a package lacks, or a dependency without a version, fails here.
# `cargo package` would compile each package by itself, with dependencies compiled again and again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target
unpacked=$target/unpacked

rm -rf "$unpacked" "$target"/package/*.crate
mkdir -p "$unpacked"
# The suites are not published; packages lose their dev-dependency on `plimsoll-testing`, which has no version.
suites=()
for manifest in tests/*/Cargo.toml; do
  suites+=(--exclude "plimsoll-$(basename "$(dirname "$manifest")")")
done
cargo package --quiet --workspace "${suites[@]}" --no-verify --allow-dirty --target-dir "$target"
for crate in "$target"/package/*.crate; do
  # Without the packed times, which are older than any build.
  tar --extract --touch --gzip --directory "$unpacked" --file "$crate"
done

# Writes the manifest of the workspace: packages are found here instead of on crates.io. Lock file and
# profiles are ours, so that compiled dependencies are shared.
cp Cargo.lock "$unpacked/Cargo.lock"
{
  echo '[workspace]'
  echo 'resolver = "3"'
  echo 'members = ["*/"]'
  echo
  echo '[patch.crates-io]'
  for package in "$unpacked"/*/; do
    folder=$(basename "$package")
    echo "${folder%-[0-9]*} = { path = \"$folder\" }"
  done
  echo
  awk '/^\[/ { on = /^\[profile/ } on' Cargo.toml
} >"$unpacked/Cargo.toml"

for package in "$unpacked"/*/; do
  for file in LICENSE README.md; do
    if ! [[ -s $package/$file ]]; then
      echo "$(basename "$package") has no $file" >&2
      exit 1
    fi
  done
done
# Removes the suites from the copied lock file; what is left stays.
cargo metadata --quiet --offline --format-version 1 --manifest-path "$unpacked/Cargo.toml" >/dev/null
cargo check --quiet --locked --manifest-path "$unpacked/Cargo.toml" --workspace --all-features \
  --lib --bins --examples --target-dir "$target"
echo "   $(find "$target/package" -maxdepth 1 -name '*.crate' | wc -l) packages," \
  "$(du -ch "$target"/package/*.crate | tail -n 1 | cut -f 1) compressed"
