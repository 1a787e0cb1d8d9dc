#!/usr/bin/env bash
# Mutation testing: mutants.sh SAMPLE SEED KILL CRATE... Draws SAMPLE mutants of the crates with SEED (random
# if empty), runs the tests of the mutated crate on each, and fails if less than KILL percent are killed.
# Tests that need a program of `make test`, such as the solver that plans are compared with, take it from there.
# cargo-mutants lists the mutants, .cargo/mutants.toml has the exclusions, mutants.py runs them.
#
# Mutates a copy of the working tree under target/mutants, never the tree itself. The copy and its build
# output stay there: the next run compiles only what has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sample=$1
seed=${2:-$RANDOM}
kill=$3
shift 3
root=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tree=$root/mutants/tree
mkdir -p "$tree"

# Another run would mutate the same files.
exec {lock}>"$root/mutants/lock"
flock --nonblock "$lock" || {
  echo "mutants: another run uses $root/mutants" >&2
  exit 2
}

python3 scripts/mutants.py copy "$tree"
packages=()
for crate in "$@"; do
  packages+=(--package "$crate")
done
"$root/tools/bin/cargo-mutants" mutants --dir "$tree" --list --json "${packages[@]}" >"$root/mutants/list.json"

# Lines of backtraces are of no use here, and cost compile time. Build output has a place of its own, because
# paths of the copy would replace those of the working tree.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$root/mutants/build
mkdir -p "$CARGO_TARGET_DIR"
ln -sfn "$root/checks" "$CARGO_TARGET_DIR/checks"
exec python3 scripts/mutants.py run "$root/mutants" "$sample" "$seed" "$kill"
