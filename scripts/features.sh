#!/usr/bin/env bash
# Checks libraries with fewer than all features, which the step clippy has. Nothing is generated: what runs is the same
# with all features.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# combinations_of CRATE: prints the combinations of its features to check. Crates that are not here have at most one
# feature and are compiled as parts of the program: they are checked without features, all in one call.
#
# Every feature is on in a combination in which another one is off, for each other one that it does not enable, so that
# it cannot use what it does not declare. Features that meet in one `cfg` are also on together without a third one: xds,
# tonic and tls in pairs. The two providers of cryptography meet nothing but tls. Features that no `cfg` names only
# choose dependencies. Neighbors in the list share dependencies with the same features, which compile once.
combinations_of() {
  case $1 in
    # Others embed these: alone, so that they do not get features of dependencies from the rest of the workspace.
    plimsoll-core) echo none serde schemars ;;
    plimsoll-orca) echo none ;;
    plimsoll-xds) echo none clock,oob messages driver tls ;;
    plimsoll-client)
      echo none reqwest,metrics,prometheus,unstable-proxy reqwest-middleware tonic,xds,metrics,opentelemetry \
        tls,xds,unstable-proxy tls-aws-lc-rs,tonic,opentelemetry,prometheus tls-ring,yaml,opentelemetry default
      ;;
    # `plimsoll` without features. `etcd` without `schema` is in no build.
    plimsoll-control) echo schema ;;
  esac
}

# Prints the names under [features] of a manifest.
features_of() {
  awk '/^\[/ { on = ($0 == "[features]"); next } on && /^[a-z_]/ { print $1 }' "$1"
}

# all_are_listed CRATE: fails if code depends on a feature that is in no combination. A crate with a single feature needs
# none: it is on in the step clippy, and off here.
all_are_listed() {
  local crate=$1 features feature listed
  features=$(features_of "crates/$crate/Cargo.toml" | grep -vx default || true)
  (($(wc -w <<<"$features") > 1)) || return 0
  listed=" $(combinations_of "$crate" | tr ',' ' ') "
  for feature in $features; do
    if [[ $listed != *" $feature "* && $crate/$feature != plimsoll-control/etcd ]] &&
      grep -rqF "feature = \"$feature\"" "crates/$crate/src"; then
      echo "scripts/features.sh has no combination of $crate with its feature '$feature'" >&2
      return 1
    fi
  done
}

# check WHAT ARGUMENT...: the libraries that the arguments choose.
check() {
  echo "   $1"
  shift
  cargo clippy --quiet --lib --no-default-features "$@" -- -D warnings
}

parts=()
for library in crates/*/src/lib.rs; do
  crate=$(basename "$(dirname "$(dirname "$library")")")
  all_are_listed "$crate"
  combinations=$(combinations_of "$crate")
  if [[ $combinations != none* ]]; then
    parts+=(-p "$crate")
  fi
  for combination in $combinations; do
    check "$crate with $combination" -p "$crate" --features "${combination/none/}"
  done
done
check "parts of the program without features" "${parts[@]}"
