#!/usr/bin/env bash
# Compares adapters merged by lumos with peft: `tests/tools/adapters.sh [path of lumos] [folders of Llamas …]`.
# PYTHON: an interpreter with peft, transformers and torch; by default they are installed in target/tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
lumos=${1:-target/debug/lumos}
shift || true
peft=0.21.2
transformers=5.23.0
folder=target/tools/adapters-$peft-$transformers
if [ -z "${PYTHON:-}" ] && [ ! -e "$folder/installed" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check torch --index-url https://download.pytorch.org/whl/cpu
  "$folder/bin/pip" install --quiet --disable-pip-version-check "peft==$peft" "transformers==$transformers"
  touch "$folder/installed"
fi
exec "${PYTHON:-$folder/bin/python}" tests/tools/adapters.py "$lumos" "$@"
