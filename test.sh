#!/usr/bin/env bash
# Installs what the tests need and runs all of them. `./test.sh NAME` runs the tests whose name contains NAME.
#
# Prints the number of tests that passed, failed, and were skipped because something is missing on this machine. If a
# test needs something that this script found or installed, it fails without it instead of being skipped (LUMOS_REQUIRE,
# tests/capabilities).
set -euo pipefail
cd "$(dirname "$0")"

# install WHAT PACKAGE…: installs Debian packages.
install() {
  local what=$1
  shift
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null && return
  fi
  echo "failed to install $what: tests that need it are skipped" >&2
  return 1
}

# The oniguruma and zstd bindings are built from C.
if ! command -v cc >/dev/null && ! install "a C compiler" gcc libc6-dev; then
  echo "hint: install gcc or clang" >&2
  exit 1
fi

required=()
# The tests of the queue run against the distribution's nats-server and a current one.
if command -v nats-server >/dev/null || install nats-server nats-server iproute2 openssl procps; then
  required+=(nats)
fi
if [ -n "${LUMOS_NATS_SERVER_CURRENT:-}" ] || LUMOS_NATS_SERVER_CURRENT=$(tests/tools/current-nats-server.sh); then
  export LUMOS_NATS_SERVER_CURRENT
  required+=(nats-current)
else
  unset LUMOS_NATS_SERVER_CURRENT
fi
# Tests set clocks with libfaketime.
if ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || install libfaketime faketime; then
  required+=(faketime)
fi
# Browser tests run in Chromium.
if command -v chromedriver >/dev/null ||
  install chromium chromium chromium-driver chromium-sandbox fonts-dejavu-core; then
  required+=(browser)
fi
# Tests of the SQL tools start MariaDB on a free port.
if [ -x /usr/sbin/mariadbd ] || install mariadb-server mariadb-server; then
  required+=(mariadb)
fi
# Tests of tools use a reference server of the Model Context Protocol.
if command -v node >/dev/null && { [ -n "${LUMOS_MCP_SERVER:-}" ] || LUMOS_MCP_SERVER=$(tests/tools/mcp-server.sh); }; then
  export LUMOS_MCP_SERVER
  required+=(mcp)
else
  unset LUMOS_MCP_SERVER
fi
# A test compiles the GPU kernels for real architectures and reads their machine code.
if [ -n "${LUMOS_NVRTC:-}" ] || LUMOS_NVRTC=$(tests/tools/nvrtc.sh); then
  export LUMOS_NVRTC
  required+=(nvrtc)
else
  unset LUMOS_NVRTC
fi
# The emulator of GPU kernels, the fake driver of a GPU and the C++ peers of some tests are compiled by tests.
if command -v c++ >/dev/null || install g++ g++; then
  required+=(c++)
fi
if [ -n "${LUMOS_SHARED:-}" ]; then
  required+=(shared)
fi
LUMOS_REQUIRE=${LUMOS_REQUIRE-$(IFS=,; echo "${required[*]}")}
export LUMOS_REQUIRE

# Many tests wait for processes, servers and browsers most of the time.
RUST_TEST_THREADS=${RUST_TEST_THREADS-$((2 * $(nproc)))}
export RUST_TEST_THREADS

logs=$(mktemp -d)
LUMOS_SKIPPED=$logs/skipped
export LUMOS_SKIPPED
touch "$LUMOS_SKIPPED"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$logs"' EXIT

cargo test --workspace --locked --no-run
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
# These parts compute most of the time, and their browsers have time limits.
RUST_TEST_THREADS=$(nproc) run unit --workspace --lib --bins -- "$@" &
RUST_TEST_THREADS=$(nproc) run integration --workspace --test it -- "$@" &
(
  run campaign --workspace --test campaign -- "$@"
  run documentation --workspace --doc -- "$@"
  run own-crate --workspace --test stamps -- "$@"
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
  }' "$logs"/{program,unit,integration,campaign,documentation,own-crate}
exit "$status"
