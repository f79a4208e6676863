#!/usr/bin/env bash
# Builds what run.sh needs on a machine with a GPU, into `.gpu/` (ignored by git): `benches/peers/gpu/prepare.sh`.
#
# Needs cargo and a C compiler, but neither a GPU nor CUDA. Run it on a machine of the same architecture and with a C library
# that is not newer. LUMOS_SHARED: folder with the reference cases of transformers; without it run.sh fails in its first part.
set -euo pipefail
cd "$(dirname "$0")/../../.."
folder=.gpu
most=$((64 << 20))
rm -rf "$folder"
mkdir -p "$folder"

cargo build --profile dist --locked --bin lumos
cp target/dist/lumos "$folder/lumos"

# test_program PACKAGE ARGUMENTS…: builds a test program and prints its path.
test_program() {
  cargo test --profile dist --locked --no-run --message-format json -p lumos-engine "$@" |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] in ("it", "lumos_engine"):
        print(message["executable"])' | tail -n 1
}
cp "$(test_program --features cuda --test it)" "$folder/cuda-tests"
for program in lumos cuda-tests; do
  strip "$folder/$program"
  xz -T0 -1 "$folder/$program"
done
if [ -n "${LUMOS_SHARED:-}" ]; then
  mkdir -p "$folder/shared/golden"
  cp -r "$LUMOS_SHARED/golden/engine" "$folder/shared/golden/engine"
fi
cp benches/peers/gpu/run.sh benches/peers/measure_transformers.py "$folder"
git describe --always --dirty >"$folder/version"

bytes=$(du -sb "$folder" | cut -f1)
if [ "$bytes" -gt "$most" ]; then
  echo "$folder has $bytes bytes, more than $most" >&2
  exit 1
fi
echo "$folder has $bytes bytes; on the machine with a GPU: OUT=<FOLDER> .gpu/run.sh load, then bench, peers, check, runs"
