#!/usr/bin/env bash
# Read the exports of a run with the programs that they are made for, and compare the figures with lumos's report.
#
#   tests/tools/readers.sh RUN [FOLDER]
#
# Needs network access once: installs the readers with pip into a virtual environment, $LUMOS_READERS (default
# target/readers). every-eval-ever needs Python 3.12; set PYTHON to such an interpreter. With an older one it is skipped
# with a message. LUMOS_PROGRAM is the program to test (default: builds target/release/lumos with Parquet).
set -euo pipefail

run=${1:?pass the folder of a run}
run=$(cd "$run" && pwd)
cd "$(dirname "$0")/../.."
root=$PWD
out=${2:-$(mktemp -d)}
mkdir -p "$out"
out=$(cd "$out" && pwd)
readers=${LUMOS_READERS:-$root/target/readers}
lumos=${LUMOS_PROGRAM:-}
if [ -z "$lumos" ]; then
  cargo build --release --locked --features parquet
  lumos=${CARGO_TARGET_DIR:-$root/target}/release/lumos
fi

if [ ! -e "$readers/installed" ]; then
  "${PYTHON:-python3}" -m venv "$readers"
  "$readers/bin/pip" install --quiet inspect_ai==0.3.285 lm_eval==0.4.13 pandas polars duckdb pyarrow datasets
  if "$readers/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
    "$readers/bin/pip" install --quiet every-eval-ever==0.3.0
  fi
  touch "$readers/installed"
fi
export PATH="$readers/bin:$PATH" HF_HUB_OFFLINE=1 HF_DATASETS_CACHE="$out/cache"

"$lumos" report "$run" --format json --output "$out/report.json" || [ $? = 5 ]
for format in inspect lm-eval every-eval-ever csv parquet latex; do
  if ! "$lumos" export "$run" --to "$format" --output "$out/$format" --force --quiet > "$out/$format.txt" 2>&1; then
    [ "$format" = parquet ] && grep -q 'built without' "$out/$format.txt" || { cat "$out/$format.txt"; exit 1; }
    echo "skipped parquet: $(head -n 1 "$out/$format.txt")"
  fi
done

step() { printf '\n== %s\n' "$1"; }

step inspect
log=$(find "$out/inspect" -name '*.eval' | sort | head -n 1)
inspect log dump "$log" --header-only > "$out/header.json"
inspect view bundle --log-dir "$out/inspect" --output-dir "$out/bundle" --overwrite
if command -v every_eval_ever > /dev/null; then
  step every_eval_ever
  (cd "$out/every-eval-ever" && every_eval_ever validate --format json data/*/*/*/* > "$out/validated.json") ||
    { cat "$out/validated.json"; exit 1; }
  every_eval_ever convert lm_eval --include-samples --log-path "$out"/lm-eval/*/ --output-dir "$out/converted"
else
  echo 'skipped every_eval_ever: it needs Python 3.12 or later (set PYTHON)'
fi
step figures
python "$root/tests/tools/readers.py" "$out"
step annotations
status=0
"$lumos" export "$run" --to annotations --output "$out/annotations" --allow-test --force --quiet || status=$?
if [ "$status" = 0 ]; then
  python "$root/tests/tools/load_annotations.py" "$out/annotations"
elif [ "$status" = 4 ]; then
  echo 'skipped annotations: the run has no correct trajectories'
else
  exit "$status"
fi
if command -v pdflatex > /dev/null; then
  step latex
  printf '%s\n' '\documentclass{article}\usepackage{booktabs}\begin{document}' > "$out/page.tex"
  cat "$out/latex/table.tex" >> "$out/page.tex"
  echo '\end{document}' >> "$out/page.tex"
  (cd "$out" && pdflatex -halt-on-error page.tex > /dev/null) && echo 'table.tex compiles'
fi
