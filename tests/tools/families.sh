#!/usr/bin/env bash
# Compares `lumos complete` with the reference folders of transformers, with both backends, one prompt at a time and 16:
# `LUMOS_SHARED=<folder> tests/tools/families.sh [path of lumos] [native|candle-transformers]`. Needs python3 only.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 tests/tools/families.py "$@"
