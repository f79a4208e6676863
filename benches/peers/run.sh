#!/usr/bin/env bash
# Installs the other engines and measures: `benches/peers/run.sh [options of compare.py]`.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=target/peers
if [ ! -e "$folder/installed" ]; then
  python3 -m venv "$folder/venv"
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" "$folder/venv/bin/pip" install -r benches/peers/requirements.txt
  touch "$folder/installed"
fi
cargo build --profile dist --locked
exec "$folder/venv/bin/python" benches/peers/compare.py --lumos target/dist/lumos --folder "$folder" "$@"
