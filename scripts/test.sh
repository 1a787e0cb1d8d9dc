#!/usr/bin/env bash
# Runs all checks, cheapest first: test.sh [STEP...]. Stops at the first step that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# `package` is last: cargo compiles the workspace again after it.
all_steps=(fmt deny deploy clippy tests e2e browser vectors benches docs api features package)
log=$(mktemp)
current=""
done_steps=()
# Incremental compilation helps those who edit. A run on a clean machine only pays for it: half of the disk, and
# time to write.
if [[ -n ${CI:-} ]]; then
  export CARGO_INCREMENTAL=0
fi

step_fmt() {
  cargo fmt --all --check
  local manifest
  for manifest in bench/Cargo.toml fuzz/Cargo.toml peers/xds-server/Cargo.toml; do
    if [[ -f $manifest ]]; then
      cargo fmt --manifest-path "$manifest" --check
    fi
  done
}

# Dependencies: licenses, one version of each, where they come from. Advisories are checked if their database
# can be fetched; a machine without network access to it checks the rest.
step_deny() {
  local deny="${CARGO_TARGET_DIR:-target}/tools/bin/cargo-deny"
  "$deny" --locked check --hide-inclusion-graph bans licenses sources
  if timeout 60 "$deny" fetch db 2>/dev/null; then
    "$deny" --locked check --disable-fetch --hide-inclusion-graph advisories
  else
    echo "   SKIPPED advisories: their database cannot be fetched"
  fi
}

# Validates deploy/: alerts with their tests, what kubectl builds from every overlay for Kubernetes, and systemd units
# if systemd is installed. The tests validate configurations, commands and names in these files.
step_deploy() {
  local checks="${CARGO_TARGET_DIR:-target}/checks" promtool=promtool overlay built
  command -v promtool >/dev/null || promtool="$checks/usr/bin/promtool"
  "$promtool" check rules deploy/prometheus/plimsoll.rules.yaml
  "$promtool" test rules deploy/prometheus/plimsoll.rules.test.yaml
  built=$(mktemp -d)
  # Kinds of cert-manager have no schema here: their fields are checked by the tests.
  for overlay in deploy/kubernetes/overlays/*; do
    "$checks/kubectl" kustomize "$overlay" >"$built/$(basename "$overlay").yaml"
    "$checks/venv/bin/kubernetes-validate" --strict --quiet --no-warn "$built/$(basename "$overlay").yaml"
  done
  rm -rf "$built"
  if command -v systemd-analyze >/dev/null; then
    check_units
  fi
}

# Replaces the binary in the units, because it need not be installed here.
check_units() {
  local copies file output
  copies=$(mktemp -d)
  for file in deploy/systemd/*.service; do
    sed 's|=/usr/local/bin/plimsoll|=/bin/true|' "$file" >"$copies/$(basename "$file")"
  done
  # Unknown keys are only warnings, and units of other packages may have errors: grep the output for ours.
  output=$(systemd-analyze verify --man=no "$copies"/*.service 2>&1 || true)
  rm -rf "$copies"
  if grep -F -e "$copies" -e plimsoll <<<"$output"; then
    return 1
  fi
  echo "   units are valid"
}

step_clippy() {
  cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
}

# Unit, integration, property, allocation and doc tests, fuzz interpreter, house rules.
step_tests() {
  cargo test --workspace --all-features -- --quiet --skip real_peers:: --skip real_browser:: --skip rustdoc_json:: 2>&1 | tee "$log"
}

# Real Envoys and gRPC clients (installed by deps.sh). Two tests at a time: each runs a small fleet.
step_e2e() {
  cargo test --workspace --all-features --test e2e -- --test-threads=2 real_peers:: 2>&1 | tee -a "$log"
}

# The dashboard in a real browser. Two tests at a time: each runs Chromium and usually a control plane.
step_browser() {
  cargo test --workspace --all-features --test dashboard -- --test-threads=2 real_browser:: 2>&1 | tee -a "$log"
}

step_docs() {
  RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --all-features
}

# The public API of the libraries equals crates/*/public-api.txt (make api accepts changes), and the
# client exports all types that its API names.
step_api() {
  scripts/api.sh
}

# Packs every crate as `cargo publish` would and compiles the unpacked packages outside the workspace.
step_package() {
  scripts/package.sh
}

# Features are additive: every library builds without features, with each one alone, and in pairs that
# meet in the code. What the client does without features is also run.
step_features() {
  local library crate feature
  for library in crates/*/src/lib.rs; do
    crate=$(basename "$(dirname "$(dirname "$library")")")
    for feature in "" $(features_of "crates/$crate/Cargo.toml") $(pairs_of "$crate"); do
      echo "   $crate with ${feature:-no feature}"
      cargo clippy --quiet -p "$crate" --lib --no-default-features --features "$feature" -- -D warnings
    done
  done
  for feature in "" tls; do
    echo "   tests of plimsoll-client with ${feature:-no feature}"
    cargo test --quiet -p plimsoll-client --no-default-features --features "$feature" --lib --test bare
  done
}

# Features that meet in the code of a crate, beyond those that one of them enables.
pairs_of() {
  case $1 in
    plimsoll-client) echo tonic,xds tls,xds tls,tonic ;;
  esac
}

# Builds the whole workspace like the tests: building the binary alone would rebuild its dependencies
# with other features.
step_vectors() {
  cargo build --quiet --workspace --all-targets --all-features
  "${CARGO_TARGET_DIR:-target}/debug/plimsoll" vectors vectors
}

# Compiles benches and runs them once without measuring. Timings: make bench.
step_benches() {
  local output
  if ! output=$(cargo test --quiet --workspace --all-features --bench '*' -- --quiet 2>&1); then
    echo "$output"
    return 1
  fi
  echo "   $(grep -c '^Success' <<<"$output") benches ran"
}

# Prints the names under [features] of a manifest.
features_of() {
  awk '/^\[/ { on = ($0 == "[features]"); next } on && /^[a-z_]/ { print $1 }' "$1"
}

finish() {
  local status=$1 passed
  passed=$(awk '/^test result: ok/ { sum += $4 } END { if (sum) print ", " sum " tests passed" }' "$log")
  rm -f "$log"
  echo
  if ((status == 0)); then
    echo "make test: OK in $SECONDS s: ${done_steps[*]}$passed"
  else
    echo "make test: FAILED in step '$current' after $SECONDS s (repeat it: make test STEPS=$current)" >&2
  fi
}

main() {
  local steps=("$@") step started
  if ((${#steps[@]} == 0)); then
    steps=("${all_steps[@]}")
  fi
  for step in "${steps[@]}"; do
    current=$step
    if ! declare -F "step_$step" >/dev/null; then
      echo "unknown step '$step'; known steps: ${all_steps[*]}" >&2
      exit 2
    fi
    started=$SECONDS
    echo "== $step"
    "step_$step"
    done_steps+=("$step")
    echo "   $step: ok, $((SECONDS - started)) s"
  done
}

trap 'finish $?' EXIT
main "$@"
