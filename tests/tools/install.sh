#!/usr/bin/env bash
# Installs what the tests need, if possible, and prints it as assignments for a shell: the paths of servers and compilers, and
# `LUMOS_REQUIRE`, the list of what was found or installed (tests/capabilities).
set -euo pipefail
cd "$(dirname "$0")/../.."
exec 3>&1 >&2

# install WHAT PACKAGE…: installs Debian packages.
install() {
  local what=$1
  shift
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null && return
  fi
  echo "failed to install $what: tests that need it are skipped, or take longer" >&2
  return 1
}

required=()
# The tests of the queue run against the distribution's nats-server and a current one.
if command -v nats-server >/dev/null || install nats-server nats-server iproute2 openssl procps; then
  required+=(nats)
fi
if [ -n "${LUMOS_NATS_SERVER_CURRENT:-}" ] || LUMOS_NATS_SERVER_CURRENT=$(tests/tools/current-nats-server.sh); then
  required+=(nats-current)
fi
# Tests set clocks with libfaketime.
if ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || install libfaketime faketime; then
  required+=(faketime)
fi
# Browser tests run in Chromium, most of them in its headless shell if the distribution has it: it takes half of the processor time.
if command -v chromedriver >/dev/null ||
  install chromium chromium chromium-driver chromium-sandbox fonts-dejavu-core; then
  required+=(browser)
  [ -x /usr/lib/chromium/chromium-headless-shell ] || command -v chrome-headless-shell >/dev/null ||
    install "Chromium's headless shell" chromium-headless-shell || true
fi
# Tests of the SQL tools start MariaDB on a free port.
if [ -x /usr/sbin/mariadbd ] || install mariadb-server mariadb-server; then
  required+=(mariadb)
fi
# Tests of tools use a reference server of the Model Context Protocol.
if command -v node >/dev/null && { [ -n "${LUMOS_MCP_SERVER:-}" ] || LUMOS_MCP_SERVER=$(tests/tools/mcp-server.sh); }; then
  required+=(mcp)
fi
# A test compiles the GPU kernels for real architectures and reads their machine code.
if [ -n "${LUMOS_NVRTC:-}" ] || LUMOS_NVRTC=$(tests/tools/nvrtc.sh); then
  required+=(nvrtc)
fi
# The emulator of GPU kernels, the fake driver of a GPU and the C++ peers of some tests are compiled by tests.
if command -v c++ >/dev/null || install g++ g++; then
  required+=(c++)
fi
if [ -n "${LUMOS_SHARED:-}" ]; then
  required+=(shared)
fi
LUMOS_REQUIRE=${LUMOS_REQUIRE-$(IFS=,; echo "${required[*]}")}
for name in LUMOS_NATS_SERVER_CURRENT LUMOS_MCP_SERVER LUMOS_NVRTC LUMOS_REQUIRE; do
  if [ -n "${!name:-}" ] || [ "$name" = LUMOS_REQUIRE ]; then
    printf 'export %s=%q\n' "$name" "${!name}" >&3
  fi
done
