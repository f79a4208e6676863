#!/usr/bin/env bash
# Builds lumos with the feature `cuda`, on a machine with or without a GPU: `deploy/cuda/build.sh [cargo's arguments]`.
#
# The build needs Rust and a C compiler, and nothing of CUDA. The program looks for three libraries when it first needs
# them: libcuda (the driver's), libcublas and libnvrtc (CUDA 12 or 13). Without a toolkit the last two come from PyPI:
#
#   deploy/cuda/build.sh && eval "$(deploy/cuda/build.sh --libraries ~/.cache/lumos-cuda)" && target/release/lumos doctor
set -euo pipefail

# Installs the libraries below a folder and prints the line that lets the program find them.
libraries() {
  local folder=$1
  python3 -m pip install --quiet --no-deps --upgrade --target "$folder" \
    "nvidia-cublas>=13,<14" "nvidia-cuda-nvrtc>=13,<14" 1>&2
  local places
  places=$(find "$folder/nvidia" \( -name 'libcublas.so.*' -o -name 'libnvrtc.so.*' \) -printf '%h\n' | sort -u | paste -sd:)
  if [ -z "$places" ]; then
    echo "no libraries below $folder/nvidia: the packages lie elsewhere now" >&2
    exit 1
  fi
  printf 'export LD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n' "$places"
}

if [ "${1:-}" = --libraries ]; then
  libraries "${2:?the folder to install them in}"
  exit
fi
cd "$(dirname "$0")/../.."
exec cargo build --release --locked --features cuda --bin lumos "$@"
