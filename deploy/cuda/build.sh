#!/usr/bin/env bash
# Builds lumos for GPUs, on a machine with or without one: `deploy/cuda/build.sh [arguments of cargo]`.
#
# The build needs Rust and a C compiler, but not CUDA. The program loads three libraries on first use: libcuda (of the
# driver), libcublas and libnvrtc (CUDA 12 or 13). If the CUDA toolkit is not installed, get the last two from PyPI:
#
#   deploy/cuda/build.sh && eval "$(deploy/cuda/build.sh --libraries ~/.cache/lumos-cuda)" && target/dist/lumos doctor
set -euo pipefail

# Installs the libraries in a folder and prints the command that sets LD_LIBRARY_PATH. CUDA 13 needs a driver of version 580 or
# later; older drivers get the last libraries of CUDA 12, which also support GPUs of compute capability 7.0 and 7.2.
libraries() {
  local folder=$1 driver packages
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | cut -d. -f1) || driver=
  if [ -n "$driver" ] && [ "$driver" -lt 580 ]; then
    packages=("nvidia-cublas-cu12>=12.8,<13" "nvidia-cuda-nvrtc-cu12>=12.8,<13")
  else
    packages=("nvidia-cublas>=13,<14" "nvidia-cuda-nvrtc>=13,<14")
  fi
  python3 -m pip install --quiet --no-deps --upgrade --target "$folder" "${packages[@]}" 1>&2
  local places
  places=$(find "$folder/nvidia" \( -name 'libcublas.so.*' -o -name 'libnvrtc.so.*' \) -printf '%h\n' | sort -u | paste -sd:)
  if [ -z "$places" ]; then
    echo "libraries not found in $folder/nvidia: the layout of the packages has changed" >&2
    exit 1
  fi
  # shellcheck disable=SC2016  # The caller's shell expands the variable.
  printf 'export LD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n' "$places"
}

if [ "${1:-}" = --libraries ]; then
  libraries "${2:?missing the folder to install into}"
  exit
fi
cd "$(dirname "$0")/../.."
exec cargo build --profile dist --locked --bin lumos "$@"
