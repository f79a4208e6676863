#!/usr/bin/env bash
# Checks `lumos serve-model` with OpenAI's Python package from PyPI: `tests/tools/openai-client.sh [path of lumos]`.
set -euo pipefail
cd "$(dirname "$0")/../.."
lumos=${1:-target/debug/lumos}
version=3.54.0
folder=target/tools/openai-client-$version
if [ ! -e "$folder/installed" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "openai==$version"
  touch "$folder/installed"
fi
exec "$folder/bin/python" tests/tools/openai_client.py "$lumos"
