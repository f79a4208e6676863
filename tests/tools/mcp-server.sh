#!/usr/bin/env bash
# Prints the path of an MCP server for tests, the reference server `everything`, and installs it from npm on first use.
# Its version is pinned; versions of the packages that it needs are not.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=2026.8.31
folder=target/tools/mcp-server-$version
program=$folder/node_modules/@modelcontextprotocol/server-everything/dist/index.js
if [ ! -e "$folder/installed" ]; then
  command -v npm >/dev/null || { echo "failed to install an MCP server: npm not found" >&2; exit 1; }
  mkdir -p "$folder"
  # Without limits npm tries again for a quarter of an hour if it cannot reach the registry.
  if ! timeout 120 npm install --loglevel error --no-fund --no-audit --ignore-scripts --fetch-retries 1 --fetch-timeout 60000 \
    --prefix "$folder" "@modelcontextprotocol/server-everything@$version" >&2; then
    echo "failed to install @modelcontextprotocol/server-everything $version from npm within 120 s" >&2
    exit 1
  fi
  touch "$folder/installed"
fi
echo "$PWD/$program"
