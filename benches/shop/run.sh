#!/usr/bin/env bash
# Compares visits to the shop with the original's text environment:
# `benches/shop/run.sh CHECKOUT [DATA] [options of original.py measure]`.
# CHECKOUT: a clone of the original's repository; the catalogue and its index are written to its folders data/ and
# search_engine/. Needs Java (tested with 17). FOLDER: folder for Python packages. OURS: path of shop_steps, if built.
set -euo pipefail
checkout=$(realpath "$1")
shift
data=data
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  data=$1
  shift
fi
data=$(realpath "$data")
cd "$(dirname "$0")/../.."
folder=${FOLDER:-target/shop}
if [ ! -e "$folder/installed" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -r benches/shop/requirements.txt
  "$folder/venv/bin/pip" install --no-deps pyserini==0.17.0
  touch "$folder/installed"
fi
python=$folder/venv/bin/python
if [ -z "${OURS:-}" ]; then
  cargo build --profile dist --locked --example shop_steps
  OURS=target/dist/examples/shop_steps
fi
if [ ! -e "$checkout/search_engine/indexes_1k/prepared" ]; then
  "$python" benches/shop/original.py prepare "$checkout" "$data" >"$folder/prepared.log" 2>&1
  touch "$checkout/search_engine/indexes_1k/prepared"
fi
exec "$python" -W ignore benches/shop/original.py measure "$checkout" "$data" "$OURS" "$@"
