#!/usr/bin/env bash
# Runs all checks, cheapest first: test.sh [STEP...]. Stops at the first step that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all_steps=(fmt deny deploy clippy tests e2e browser vectors benches docs api features package)
log=$(mktemp)
current=""
# What the last line has to say about what was left out.
unchecked=""
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

# Dependencies: licenses, one version of each, where they come from, and advisories. Their database is fetched: without
# network the step fails, unless PLIMSOLL_ADVISORIES=optional says that somebody else looks.
step_deny() {
  local deny="${CARGO_TARGET_DIR:-target}/tools/bin/cargo-deny"
  "$deny" --locked check --hide-inclusion-graph bans licenses sources
  if timeout 60 "$deny" fetch db 2>/dev/null; then
    "$deny" --locked check --disable-fetch --hide-inclusion-graph advisories
    return
  fi
  if [[ ${PLIMSOLL_ADVISORIES:-} != optional ]]; then
    echo "   advisories cannot be checked: their database cannot be fetched. PLIMSOLL_ADVISORIES=optional goes on without" >&2
    return 1
  fi
  unchecked=", but ADVISORIES WERE NOT CHECKED (PLIMSOLL_ADVISORIES=optional)"
  echo "   SKIPPED ADVISORIES: their database cannot be fetched, and PLIMSOLL_ADVISORIES=optional"
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
  "$checks/kubectl" kustomize deploy/kubernetes/admission >"$built/admission.yaml"
  "$checks/venv/bin/kubernetes-validate" --strict --quiet --no-warn "$built/admission.yaml"
  rm -rf "$built"
  # Packages of the stage that builds need no versions: nothing of them is in the image.
  "${CARGO_TARGET_DIR:-target}/release-tools/venv/bin/hadolint" --ignore DL3008 deploy/docker/Dockerfile
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

# Unit, integration, property, allocation and doc tests, fuzz interpreter, house rules. Two binaries at a time: most wait
# more than they compute.
step_tests() {
  scripts/run-tests.py --without e2e --doc -- --quiet --skip real_browser:: --skip rustdoc_json:: 2>&1 | tee "$log"
}

# Real Envoys and gRPC clients (installed by deps.sh), and the demo: the tests of all targets `e2e`. Six tests of a
# binary at a time: each runs a small fleet and mostly waits.
step_e2e() {
  scripts/run-tests.py --test e2e -- --test-threads=6 2>&1 | tee -a "$log"
  with_kubernetes 2>&1 | tee -a "$log"
}

# A part of `make test-kubernetes`, where its API server is built already, or another one is named.
with_kubernetes() {
  if [[ -z ${KUBEBUILDER_ASSETS:-} ]] && ! compgen -G "${CARGO_TARGET_DIR:-target}/kubernetes/.installed-*" >/dev/null; then
    echo "   SKIPPED the API machinery of Kubernetes: make test-kubernetes builds it"
    return
  fi
  scripts/run-tests.py --test e2e --only 'plimsoll-e2e e2e' -- --test-threads=2 --ignored \
    real_kubernetes::machinery:: real_kubernetes::discovery::
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

# Features are additive: every library is checked without features, and in combinations that separate them.
step_features() {
  scripts/features.sh
}

# Takes the binary that the tests were built with: any other command line would compile the workspace again, with
# other targets or features.
step_vectors() {
  cargo test --quiet --workspace --all-features --no-run
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

finish() {
  local status=$1 passed
  passed=$(awk '/^test result: ok/ { sum += $4 } END { if (sum) print ", " sum " tests passed" }' "$log")
  rm -f "$log"
  echo
  if ((status == 0)); then
    echo "make test: OK in $SECONDS s: ${done_steps[*]}$passed$unchecked"
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
