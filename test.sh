#!/usr/bin/env bash
# All tests, with what they need. `./test.sh NAME` runs those whose name holds NAME.
set -euo pipefail
cd "$(dirname "$0")"

# The oniguruma and zstd bindings are built from C.
if ! command -v cc >/dev/null; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev
  else
    echo "a C compiler (cc) is needed; install gcc or clang" >&2
    exit 1
  fi
fi

# The queue's tests talk to a real nats-server: the distribution's, and a current one for comparison.
if ! command -v nats-server >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends nats-server iproute2 openssl procps >/dev/null ||
    echo "nats-server cannot be installed here; the tests that need one will say that they are skipped" >&2
fi
if [ -z "${LUMOS_NATS_SERVER_CURRENT:-}" ] && LUMOS_NATS_SERVER_CURRENT=$(tests/tools/current-nats-server.sh); then
  export LUMOS_NATS_SERVER_CURRENT
else
  unset LUMOS_NATS_SERVER_CURRENT
fi

# The browser's tests drive a real Chromium.
if ! command -v chromedriver >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver chromium-sandbox fonts-dejavu-core >/dev/null ||
    echo "chromium cannot be installed here; the tests that need it will say that they are skipped" >&2
fi
# Episodes' databases are tried on a real MariaDB, which the tests start on a port of their own.
if [ ! -x /usr/sbin/mariadbd ] && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends mariadb-server >/dev/null ||
    echo "mariadb-server cannot be installed here; the tests that need one will say that they are skipped" >&2
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
cargo test --workspace --locked --no-fail-fast -- "$@" 2>&1 | tee "$log" || status=$?
awk '/^test result:/ { for (i = 1; i < NF; i++) { if ($(i+1) == "passed;") passed += $i; if ($(i+1) == "failed;") failed += $i } }
     END { printf "%d passed, %d failed\n", passed, failed }' "$log"
exit "$status"
