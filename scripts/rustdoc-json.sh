#!/usr/bin/env bash
# rustdoc for scripts/api.sh: allows unstable options, and skips crates without a snapshot. Only rustdoc
# gets RUSTC_BOOTSTRAP: with it in the environment of cargo, build scripts would run again.
set -euo pipefail

name=""
previous=""
for word in "$@"; do
  [[ $previous == --crate-name ]] && name=$word
  previous=$word
done
if [[ -n $name && " $PLIMSOLL_API_CRATES " != *" $name "* ]]; then
  exit 0
fi
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
