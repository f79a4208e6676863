#!/usr/bin/env bash
# Checks parity on an NVIDIA GPU, then measures lumos and transformers alternately with the same shape:
# `benches/peers/gpu.sh [folder for the figures]`. NOT RUN YET on a GPU.
#
# PYTHON: an interpreter with transformers and torch for CUDA [default: python3]. LUMOS_SHARED: folder with reference
# cases, if available. BATCH_SIZES, SHAPE, DTYPE, LUMOS_DEVICE: see the defaults below.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/gpu}
python=${PYTHON:-python3}
batch_sizes=${BATCH_SIZES:-1,16,64,256}
shape=${SHAPE:-llama2-7b}
dtype=${DTYPE:-f16}
device=${LUMOS_DEVICE:-cuda:0}
mkdir -p "$out"

deploy/cuda/build.sh
lumos=target/dist/lumos
nvidia-smi | tee "$out/nvidia-smi.txt"
$lumos doctor | tee "$out/doctor.txt"

echo "parity with the CPU and with reference cases from transformers"
LUMOS_DEVICE=$device cargo test --profile dist --locked --features cuda -p lumos-engine --test it cuda:: -- --nocapture \
  2>&1 | tee "$out/parity.txt"

echo "lumos and transformers with the same shape and prompt lengths, three rounds"
weights=$out/weights-$shape-$dtype
[ -e "$weights/config.json" ] || $lumos bench engine --random-weights "$shape" --dtype "$dtype" --save-weights "$weights"
for round in 1 2 3; do
  $lumos bench engine --random-weights "$shape" --dtype "$dtype" --device "$device" --batch-sizes "$batch_sizes" \
    --prompt-tokens 256 --new-tokens 64 --reuse off --output "$out/lumos-$round.json"
  "$python" benches/peers/measure_transformers.py --model "$weights" --dtype "$dtype" --device "$device" \
    --batch-sizes "$batch_sizes" --decode-prompt 256 --new-tokens 64 --prefill-prompt 256 --threads 1 \
    | tee "$out/transformers-$round.json"
done
