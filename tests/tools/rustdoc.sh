#!/usr/bin/env bash
# Runs the examples of a crate's documentation, and first builds the documentation itself, with every warning as an error.
# As `RUSTDOC` of `cargo test --doc` it uses what the tests compiled, while `cargo doc` checks all dependencies for itself.
set -euo pipefail
examples=("$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
documentation=(-D warnings --out-dir "$folder")
tests=no
while (($#)); do
  case $1 in
    --test) tests=yes ;;
    --test-run-directory) shift ;;
    --test-*) ;;
    *) documentation+=("$1") ;;
  esac
  shift
done
if [ "$tests" = yes ]; then
  rustdoc "${documentation[@]}"
fi
rustdoc "${examples[@]}"
