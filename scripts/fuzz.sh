#!/usr/bin/env bash
# Fuzzes each target: fuzz.sh MINUTES [TARGET...]. Uses cargo-fuzz if it is installed (which adds the
# address sanitizer), otherwise the compiler's coverage instrumentation. Memory is limited: a target that
# uses more than 1 GB, or allocates 64 MB at once, has failed. Targets also check their memory themselves.
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

# Sanitizers are unstable; RUSTC_BOOTSTRAP allows them with the stable toolchain.
run_with_cargo_fuzz() {
  RUSTC_BOOTSTRAP=1 cargo fuzz run "$1" -- "${@:2}"
}

# The flags enable the coverage instrumentation of libFuzzer.
run_without_cargo_fuzz() {
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

# Writes each line of the seeds of a target as a file: bytes, or hexadecimal if the file says so.
write_seeds() {
  local target=$1
  mkdir -p "fuzz/corpus/$target"
  python3 - "$target" <<'PYTHON'
import sys
from pathlib import Path

target = sys.argv[1]
for path in Path("fuzz/seeds").glob(f"{target}.*"):
    # A sequence of objects is one input.
    whole = target == "kubernetes_objects"
    lines = [path.read_text()] if whole else path.read_text().splitlines()
    for index, line in enumerate(lines):
        data = bytes.fromhex(line) if path.suffix == ".hex" else line.encode()
        Path(f"fuzz/corpus/{target}/seed-{index}").write_bytes(data)
PYTHON
}

run=run_without_cargo_fuzz
if cargo fuzz --version >/dev/null 2>&1; then
  run=run_with_cargo_fuzz
fi
for target in "${targets[@]}"; do
  echo "== $target, $minutes min"
  write_seeds "$target"
  $run "$target" -max_total_time=$((minutes * 60)) -print_final_stats=1 \
    -rss_limit_mb=1024 -malloc_limit_mb=64
done
echo "make fuzz: OK, ${#targets[@]} target(s), $minutes min each"
