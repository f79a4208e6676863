#!/usr/bin/env bash
# Runs the tests of the vector kernels on emulated 64-bit ARM processors: tests/tools/arm.sh [PROCESSOR…]
#
# By default one processor with NEON alone, one with dot products of bytes and one with everything that qemu emulates. Needs
# qemu-user and gcc-aarch64-linux-gnu (packages of Debian), and Rust's library: `rustup target add aarch64-unknown-linux-gnu`.
# Where only its source is installed (component rust-src), it is compiled first.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=aarch64-unknown-linux-gnu
for program in qemu-aarch64 aarch64-linux-gnu-gcc; do
  command -v $program >/dev/null || { echo "$program is missing: apt-get install qemu-user gcc-aarch64-linux-gnu" >&2; exit 1; }
done
library=()
if ! ls "$(rustc --print sysroot)/lib/rustlib/$target/lib" >/dev/null 2>&1; then
  if ! ls "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" >/dev/null 2>&1; then
    echo "Rust's library for $target is missing: rustup target add $target" >&2
    exit 1
  fi
  export RUSTC_BOOTSTRAP=1
  library=(-Zbuild-std)
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
[ $# -gt 0 ] || set -- cortex-a72 neoverse-n1 max
for processor; do
  echo "== $processor"
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu $processor -L /usr/aarch64-linux-gnu" \
    cargo test "${library[@]}" -p lumos-kernels --lib --locked --target $target
done
