#!/usr/bin/env bash
# Checks and measures lumos on a machine with an NVIDIA GPU: `OUT=<FOLDER> .gpu/run.sh PART`.
#
# Needs what prepare.sh has put beside it, and no network, cargo or CUDA toolkit. PART, each at most as long as stated:
#
#   load    8 minutes  finds the libraries, loads and compiles, measures a small model in each type, checks parity
#   bench   7 minutes  tokens per second of the engine
#   peers   5 minutes  the same with transformers
#   check   9 minutes  compute-sanitizer and Nsight Compute, if they are installed
#   runs    8 minutes  whole runs: against the CPU, two models in a small memory, killed and resumed
#
# Every step has a time limit of its own, which LIMIT_FACTOR multiplies. A step that fails does not end the part; the last lines list all steps, and the
# exit code is 1 if one failed. Logs and figures are in $OUT. SHAPE, DTYPE, LUMOS_DEVICE, PYTHON: see the defaults below.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:?set OUT to the folder for logs and figures}
part=${1:?expected load, bench, peers, check or runs}
shape=${SHAPE:-llama2-7b}
dtype=${DTYPE:-f16}
device=${LUMOS_DEVICE:-cuda:0}
python=${PYTHON:-python3}
factor=${LIMIT_FACTOR:-1}
unset LUMOS_DEVICE
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
summary=$out/$part.txt
: >"$summary"
failed=0

# step NAME SECONDS COMMAND…: runs a command with a time limit and records how it ended.
step() {
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  timeout --kill-after=5 "$((limit * factor))" "$@" >"$out/$part-$name.log" 2>&1
  status=$?
  if [ "$status" = 0 ]; then
    echo "ok      $name ($((SECONDS - start)) s)" >>"$summary"
  else
    failed=1
    echo "FAILED  $name ($((SECONDS - start)) s, exit code $status)" >>"$summary"
    tail -n 5 "$out/$part-$name.log" | sed 's/^/        /' >>"$summary"
  fi
}

# Unpacks a program; `unpack NAME`. One that is not packed is used as it is.
unpack() {
  if [ -x "$here/$1" ]; then
    ln -s "$here/$1" "$work/$1"
  else
    xz -dc "$here/$1.xz" >"$work/$1" && chmod +x "$work/$1"
  fi
}

# cuBLAS and NVRTC are in the folders of torch's packages; LUMOS_CUDA_LIBRARIES names other folders.
libraries() {
  "$python" - <<'PYTHON'
import pathlib, site, sys
roots = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
found = {}
for root in dict.fromkeys(roots):
    for name in ("libcublas.so.*", "libnvrtc.so.*", "libnvrtc-builtins.so.*"):
        for file in pathlib.Path(root or ".").glob(f"nvidia/**/{name}"):
            found[str(file.parent)] = None
print(":".join(found))
PYTHON
}
LD_LIBRARY_PATH=${LUMOS_CUDA_LIBRARIES:-$(libraries)}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
unpack lumos || exit 1
lumos=$work/lumos

# bench NAME SECONDS SHAPE DTYPE BATCHES PROMPT NEW
bench() {
  step "$1" "$2" "$lumos" bench engine --random-weights "$3" --dtype "$4" --device "$device" --reuse off \
    --batch-sizes "$5" --prompt-tokens "$6" --new-tokens "$7" --output "$out/$part-$1.json"
}

case $part in
load)
  {
    cat "$here/version" 2>/dev/null
    echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
  } >>"$summary"
  step nvidia-smi 20 nvidia-smi
  step doctor 30 "$lumos" doctor
  step usable 30 sh -c "'$lumos' doctor --json | '$python' -c 'import json, sys; gpus = json.load(sys.stdin)[\"gpus\"]; print(gpus); sys.exit(not gpus)'"
  for type in f32 bf16 f16; do bench "small-$type" 60 1m "$type" 1,2 16 4; done
  # The reference cases of transformers must be there: a parity test that is skipped proves nothing.
  if [ -d "$here/shared/golden/engine" ] && unpack cuda-tests; then
    step parity 200 env LUMOS_SHARED="$here/shared" LUMOS_DEVICE="$device" LUMOS_REQUIRE=gpu,shared \
      "$work/cuda-tests" cuda:: --nocapture --test-threads 1
  else
    failed=1
    echo "FAILED  parity: $here/shared/golden/engine not found; run prepare.sh with LUMOS_SHARED" >>"$summary"
  fi
  ;;
bench)
  # A process for each batch size: what one of them takes or breaks does not change the others.
  for batch in 1 16 64 256; do bench "short-$batch" 60 "$shape" "$dtype" "$batch" 256 128; done
  for batch in 1 64; do bench "long-$batch" 60 "$shape" "$dtype" "$batch" 2048 128; done
  bench tinyllama 60 tinyllama "$dtype" 1,64 256 128
  ;;
peers)
  for case in "1,16,64,256 256 48" "1,64 2048 24"; do
    read -r batches prompt new <<<"$case"
    step "$prompt" 150 "$python" "$here/measure_transformers.py" --shape "$shape" --dtype "$dtype" \
      --device "$device" --batch-sizes "$batches" --decode-prompt "$prompt" --new-tokens "$new" \
      --prefill-prompt "$prompt" --threads 1
    grep '^{' "$out/peers-$prompt.log" >"$out/peers-$prompt.json"
  done
  ;;
check)
  echo '{"prompt": "A pond has 4 ducks and 3 swans. How many birds are there?"}' >"$work/prompt.jsonl"
  for tool in memcheck:30:12 racecheck:90:2 synccheck:30:12 initcheck:30:12; do
    IFS=: read -r tool limit tokens <<<"$tool"
    for type in f32 f16; do
      step "$tool-$type" "$limit" sh -c 'compute-sanitizer --tool "$1" --error-exitcode 9 "$2" complete --jsonl --model builtin:tiny \
        --device "$3" --dtype "$4" --max-new-tokens "$6" --temperature 0.8 <"$5"' \
        sh "$tool" "$lumos" "$device" "$type" "$work/prompt.jsonl" "$tokens"
    done
  done
  for batch in 1 64; do
    step "profile-b$batch" 90 ncu --clock-control none --launch-skip 2000 --launch-count 40 --csv \
      --section SpeedOfLight --section MemoryWorkloadAnalysis --section Occupancy \
      "$lumos" bench engine --random-weights "$shape" --dtype "$dtype" --device "$device" --reuse off \
      --batch-sizes "$batch" --prompt-tokens 256 --new-tokens 8
  done
  ;;
runs)
  run() {
    # Planner and grounder are two models in this formulation.
    step "$1" 60 "$lumos" run --tasks gsm8k --formulation onetime --model builtin:tiny --limit 8 -q --output-path "$work" --name "$1" \
      "${@:2}"
  }
  run cpu
  run gpu --device "$device"
  run half --device "$device" --dtype f16
  run limited --device "$device" --memory 2GB
  run turns --device "$device" --swap always
  # The same greedy replies as on the CPU, apart from near ties.
  step same 20 "$lumos" compare "$work/cpu" "$work/gpu"
  step verify 60 "$lumos" verify "$work/gpu" --sample 8
  # Killed as soon as the first items are recorded.
  "$lumos" run --tasks gsm8k,svamp --formulation iterative,onetime --model builtin:tiny --concurrency 1 --batch-size 1 \
    --device "$device" --output-path "$work" --name killed >"$out/runs-killed.log" 2>&1 &
  process=$!
  settled=:0
  for _ in $(seq 300); do
    sleep 0.1
    settled=$("$lumos" ls runs --output-path "$work" --json 2>/dev/null | grep '"name":"killed"' | grep -o '"settled":[0-9]*')
    case $settled in *:[1-9]*) break ;; esac
  done
  kill -KILL "$process" 2>/dev/null
  wait "$process" 2>/dev/null
  # A run that had ended before proves nothing.
  step killed 5 sh -c 'test "$1" -gt 0 && test "$1" -lt 120' sh "${settled#*:}"
  step resumed 90 "$lumos" resume "$work/killed"
  ;;
*)
  echo "unknown part \`$part\`: expected load, bench, peers, check or runs" >&2
  exit 2
  ;;
esac
cat "$summary"
exit "$failed"
