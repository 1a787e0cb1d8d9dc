#!/usr/bin/env bash
# Fuzzes each target for some minutes: fuzz.sh MINUTES [TARGET...]. With cargo-fuzz if it is installed
# (adds the address sanitizer), else with the compiler's own coverage counters.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=$1
shift
targets=("$@")
if ((${#targets[@]} == 0)); then
  for file in fuzz/fuzz_targets/*.rs; do
    targets+=("$(basename "$file" .rs)")
  done
fi

# Sanitizers are an unstable option; this allows them with the stable toolchain of the project.
run_with_cargo_fuzz() {
  RUSTC_BOOTSTRAP=1 cargo fuzz run "$1" -- "${@:2}"
}

# The flags make libFuzzer see which branches a string reached.
run_plainly() {
  local target=$1 host
  host=$(rustc -vV | sed -n 's/^host: //p')
  local flags=(
    --cfg fuzzing
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Ccodegen-units=1
  )
  mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
  RUSTFLAGS="${flags[*]}" cargo build --release --manifest-path fuzz/Cargo.toml --target-dir fuzz/target \
    --target "$host" --bin "$target"
  "fuzz/target/$host/release/$target" "fuzz/corpus/$target" \
    -artifact_prefix="fuzz/artifacts/$target/" "${@:2}"
}

run=run_plainly
if cargo fuzz --version >/dev/null 2>&1; then
  run=run_with_cargo_fuzz
fi
for target in "${targets[@]}"; do
  echo "== $target, $minutes min"
  $run "$target" -max_total_time=$((minutes * 60)) -print_final_stats=1
done
echo "make fuzz: OK, ${#targets[@]} target(s), $minutes min each"
