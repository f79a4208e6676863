#!/usr/bin/env bash
# All tests, with what they need. `./test.sh NAME` runs those whose name contains NAME.
#
# Prints the number of tests that passed, failed and were skipped for lack of something on this machine. A test that
# needs what this script installed fails without it: see LUMOS_REQUIRE in tests/capabilities.
set -euo pipefail
cd "$(dirname "$0")"

# Installs Debian packages: install WHAT PACKAGE…
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
# The queue's tests run against nats-server: the distribution's version and a current one.
if command -v nats-server >/dev/null || install nats-server nats-server iproute2 openssl procps; then
  required+=(nats)
fi
if [ -n "${LUMOS_NATS_SERVER_CURRENT:-}" ] || LUMOS_NATS_SERVER_CURRENT=$(tests/tools/current-nats-server.sh); then
  export LUMOS_NATS_SERVER_CURRENT
  required+=(nats-current)
else
  unset LUMOS_NATS_SERVER_CURRENT
fi
# Clocks are set by libfaketime.
if ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || install libfaketime faketime; then
  required+=(faketime)
fi
# The browser's tests run in Chromium.
if command -v chromedriver >/dev/null ||
  install chromium chromium chromium-driver chromium-sandbox fonts-dejavu-core; then
  required+=(browser)
fi
# The SQL tools are tested on MariaDB, which the tests start on a port of their own.
if [ -x /usr/sbin/mariadbd ] || install mariadb-server mariadb-server; then
  required+=(mariadb)
fi
if [ -n "${LUMOS_SHARED:-}" ]; then
  required+=(shared)
fi
LUMOS_REQUIRE=${LUMOS_REQUIRE-$(IFS=,; echo "${required[*]}")}
export LUMOS_REQUIRE

log=$(mktemp)
LUMOS_SKIPPED=$(mktemp)
export LUMOS_SKIPPED
trap 'rm -f "$log" "$LUMOS_SKIPPED"' EXIT
status=0
cargo test --workspace --locked --no-fail-fast -- "$@" 2>&1 | tee "$log" || status=$?
echo
sort -u "$LUMOS_SKIPPED" | awk -F'\t' '{ printf "%s: %s (%s: %s)\n", $1, $2, $3, $4 }'
awk -v skipped="$(awk -F'\t' '$1 == "skipped" { print $2 }' "$LUMOS_SKIPPED" | sort -u | wc -l)" '
  /^test result:/ { for (i = 1; i < NF; i++) { if ($(i+1) == "passed;") passed += $i; if ($(i+1) == "failed;") failed += $i; if ($(i+1) == "ignored;") ignored += $i } }
  END {
    printf "%d passed, %d failed, %d skipped", passed - skipped, failed, skipped
    if (ignored) printf " (and %d measurements and helpers of other tests, which run on their own)", ignored
    print ""
  }' "$log"
exit "$status"
