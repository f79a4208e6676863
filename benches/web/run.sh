#!/bin/sh
# Compares the texts of a page's candidates, and the time to compute them, between lumos and Python with lxml.
# Usage: benches/web/run.sh STEP.json [ROUNDS]     PYTHON: an interpreter with lxml [default: python3]
set -eu
cd "$(dirname "$0")/../.."
step=$1
rounds=${2:-5}
cargo build --profile dist --quiet -p lumos-environments --example candidate_texts
python=$(mktemp)
ours=$(mktemp)
trap 'rm -f "$python" "$ours"' EXIT
"${PYTHON:-python3}" benches/web/pages.py "$step" "$rounds" >"$python"
target/dist/examples/candidate_texts "$step" "$rounds" >"$ours"
"${PYTHON:-python3}" - "$python" "$ours" <<'COMPARE'
import json
import sys

python, ours = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
assert python["texts"] == ours["texts"], "the texts differ"
print(f"{len(ours['texts'])} candidates, equal texts")
print(f"lxml {1e3 * python['seconds']:.1f} ms, lumos {1e3 * ours['seconds']:.3f} ms, {python['seconds'] / ours['seconds']:.0f} times")
COMPARE
