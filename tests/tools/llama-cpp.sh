#!/usr/bin/env bash
# Compares `lumos complete` with llama.cpp on the same GGUF files: `tests/tools/llama-cpp.sh [path of lumos]`. Builds
# llama.cpp, which needs a C++ compiler and CMake, unless PYTHON is set to an interpreter with the packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
lumos=${1:-target/debug/lumos}
version=0.3.36
folder=target/tools/llama-cpp-$version
if [ -z "${PYTHON:-}" ]; then
  PYTHON=$folder/bin/python
  if [ ! -e "$folder/installed" ]; then
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "llama-cpp-python==$version" "gguf==0.19.0" "numpy==2.4.6"
    touch "$folder/installed"
  fi
fi
exec "$PYTHON" tests/tools/against_llama_cpp.py "$lumos"
