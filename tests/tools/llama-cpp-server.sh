#!/usr/bin/env bash
# Compares runs on llama.cpp's server with in-process runs, with the built-in weights:
# `tests/tools/llama-cpp-server.sh [path of lumos] [items per benchmark]`.
# PYTHON: an interpreter with llama-cpp-python[server], gguf, torch and safetensors; by default they are installed in
# target/tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
lumos=${1:-target/debug/lumos}
llama=0.3.36
folder=target/tools/llama-cpp-server-$llama
if [ -z "${PYTHON:-}" ] && [ ! -e "$folder/installed" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check torch --index-url https://download.pytorch.org/whl/cpu
  "$folder/bin/pip" install --quiet --disable-pip-version-check "llama-cpp-python[server]==$llama" gguf==0.19.0 safetensors
  touch "$folder/installed"
fi
exec "${PYTHON:-$folder/bin/python}" tests/tools/llama_cpp_server.py "$lumos" "${2:-30}"
