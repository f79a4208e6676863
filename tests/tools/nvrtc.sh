#!/usr/bin/env bash
# Prints a folder with NVIDIA's runtime compiler, `libnvrtc.so`, and disassembler, `nvdisasm`, for tests of the GPU kernels, and
# downloads both from PyPI on first use (52 MB). They are pinned by hash. Neither needs a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=13.2.51
folder=target/tools/nvrtc-$version
if [ ! -e "$folder/installed" ]; then
  command -v python3 >/dev/null || { echo "failed to download NVRTC: python3 not found" >&2; exit 1; }
  case $(uname -s)-$(uname -m) in
    Linux-x86_64)
      nvrtc=c88076f32cbbd26e7ebd2107d4b093dd8667e2a90b23b3273d028f3daf574d2e
      nvdisasm=5a7acf77c55d6d2911ed6155d4d5bc156ffadf9df7a68a89b0c1155f4b13688c
      ;;
    *) echo "failed to download NVRTC: no hash is pinned for $(uname -s) on $(uname -m)" >&2; exit 1 ;;
  esac
  rm -rf "$folder"
  mkdir -p "$folder"
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$folder" "nvidia-cuda-nvrtc==$version" "nvidia-cuda-nvdisasm==$version" >&2; then
    echo "failed to download NVRTC $version from PyPI" >&2
    exit 1
  fi
  for package in "$nvrtc $folder/nvidia_cuda_nvrtc" "$nvdisasm $folder/nvidia_cuda_nvdisasm"; do
    echo "${package%% *}  $(ls "${package#* }"-*.whl)" | sha256sum --check --quiet >&2
    python3 -m zipfile -e "${package#* }"-*.whl "$folder/unpacked"
  done
  mv "$folder"/unpacked/nvidia/cu13/lib/*.so* "$folder"/unpacked/nvidia/cu13/bin/nvdisasm "$folder"
  chmod 755 "$folder/nvdisasm"
  rm -r "$folder/unpacked" "$folder"/*.whl
  touch "$folder/installed"
fi
echo "$PWD/$folder"
