#!/usr/bin/env bash
# Checks pages with axe-core in Chromium, and takes screenshots of them for a person to look at:
# `tests/tools/pages.sh PAGE.html …`. Screenshots are written to target/pages.
# PYTHON: an interpreter with selenium; AXE: a local axe.min.js. By default both are installed in target/tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
selenium=4.38.0
axe=4.14.0
folder=target/tools/pages-$selenium-$axe
if [ ! -e "$folder/installed" ]; then
  mkdir -p "$folder"
  if [ -z "${PYTHON:-}" ]; then
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "selenium==$selenium"
  fi
  if [ -z "${AXE:-}" ]; then
    (cd "$folder" && npm pack --silent "axe-core@$axe" >npm.log && tar -xzf "axe-core-$axe.tgz")
  fi
  [ -n "${PYTHON:-}${AXE:-}" ] || touch "$folder/installed"
fi
exec "${PYTHON:-$folder/bin/python}" tests/tools/pages.py \
  --axe "${AXE:-$folder/package/axe.min.js}" --output target/pages "$@"
