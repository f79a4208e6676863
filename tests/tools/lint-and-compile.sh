#!/usr/bin/env bash
# Lints crates while they are compiled, with every warning as an error, so that they are not compiled twice: for cargo's
# `RUSTC_WORKSPACE_WRAPPER`, which adds the compiler and its arguments. `CLIPPY_ARGS` has clippy's. Clippy reads Rust's
# intermediate code without its optimisations and leaves them out of the result, too. Libraries are therefore compiled by the
# compiler alone, as in programs, and linted when their unit tests are compiled.
set -euo pipefail
case " $* " in
  *" --crate-type lib "*) exec "$@" -D warnings ;;
  # A profile sets the optimisation of a crate's library, its tests and its benches together. Tests themselves run for less time
  # than it takes to optimise them, but for those of the kernels, which may be slower than the kernels of a program. Benches are
  # not run.
  *" --crate-name lumos_kernels "*) exec clippy-driver "$@" -C codegen-units=4 ;;
  *" --test "* | *" benches/"* | *"/benches/"*) exec clippy-driver "$@" -C opt-level=0 -C codegen-units=4 ;;
  *) exec clippy-driver "$@" ;;
esac
