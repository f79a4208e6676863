#!/usr/bin/env bash
# Installs what the tests need and runs all of them. `./test.sh NAME` runs the tests whose name contains NAME.
#
# Prints the number of tests that passed, failed, and were skipped because something is missing on this machine. If a
# test needs something that tests/tools/install.sh found or installed, it fails without it instead of being skipped
# (LUMOS_REQUIRE, tests/capabilities).
set -euo pipefail
cd "$(dirname "$0")"

# The oniguruma and zstd bindings are built from C.
if ! command -v cc >/dev/null &&
  ! { [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev; } >/dev/null; then
  echo "hint: install gcc or clang" >&2
  exit 1
fi

# Many tests wait for processes, servers and browsers most of the time.
RUST_TEST_THREADS=${RUST_TEST_THREADS-$((2 * $(nproc)))}
export RUST_TEST_THREADS

logs=$(mktemp -d)
LUMOS_SKIPPED=$logs/skipped
export LUMOS_SKIPPED
touch "$LUMOS_SKIPPED"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$logs"' EXIT

# What the tests need is installed while they are compiled. Ctrl-C also ends it: a simple command with `&` would ignore SIGINT.
{ exec tests/tools/install.sh >"$logs/installed"; } &
installing=$!
cargo test --workspace --locked --no-run
wait "$installing"
# shellcheck source=/dev/null
source "$logs/installed"
# Parts run at the same time; each is printed when it is complete. The program's own tests take longest and mostly wait
# for processes, so they are a part of their own. All parts select the whole workspace: with fewer packages, dependencies
# have fewer features and are compiled again.
run() {
  local name=$1
  shift
  cargo test --locked --no-fail-fast "$@" >"$logs/$name" 2>&1 || touch "$logs/failed"
  cat "$logs/$name"
}
run program --workspace --test program -- "$@" &
# These parts compute most of the time, and their browsers have time limits. Tests of GPUs are behind the short parts, because the
# unit tests take longest.
unit=("$@")
[ $# -gt 0 ] || unit=(--skip cuda::)
RUST_TEST_THREADS=$(nproc) run unit --workspace --lib --bins -- "${unit[@]}" &
RUST_TEST_THREADS=$(nproc) run integration --workspace --test it -- "$@" &
(
  run campaign --workspace --test campaign -- "$@"
  run documentation --workspace --doc -- "$@"
  run own-crate --workspace --test stamps -- "$@"
  [ $# -gt 0 ] || RUST_TEST_THREADS=$(nproc) run gpu --workspace --lib -- cuda::
) &
wait
status=0
[ ! -e "$logs/failed" ] || status=1
echo
sort -u "$LUMOS_SKIPPED" | awk -F'\t' '{ printf "%s: %s (%s: %s)\n", $1, $2, $3, $4 }'
awk -v skipped="$(awk -F'\t' '$1 == "skipped" { print $2 }' "$LUMOS_SKIPPED" | sort -u | wc -l)" '
  /^test result:/ { for (i = 1; i < NF; i++) { if ($(i+1) == "passed;") passed += $i; if ($(i+1) == "failed;") failed += $i; if ($(i+1) == "ignored;") ignored += $i } }
  END {
    printf "%d passed, %d failed, %d skipped", passed - skipped, failed, skipped
    if (ignored) printf " (and %d ignored: measurements, and helpers that other tests run)", ignored
    print ""
  }' "$logs"/*
exit "$status"
