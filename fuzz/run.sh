#!/usr/bin/env bash
# Builds the fuzz targets and runs them one after the other: fuzz/run.sh [SECONDS] [TARGET…]
#
# SECONDS is processor time for each target, 600 by default. Prints one line for each target. Exits with 1 if there were
# findings. Needs Linux, the stable toolchain that builds lumos, and a C++ compiler for libFuzzer. Environment:
# LUMOS_FUZZ_FEATURES (some of engine, fleet and worker; all by default) and CARGO_TARGET_DIR.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"
seconds=${1:-600}
[ $# -eq 0 ] || shift
if [ $# -gt 0 ]; then
    targets=("$@")
elif [ -n "${LUMOS_FUZZ_FEATURES+set}" ]; then
    echo "error: missing targets: with LUMOS_FUZZ_FEATURES, list the targets that the features build" >&2
    exit 2
else
    targets=(fuzz_targets/*.rs)
    targets=("${targets[@]##*/}")
    targets=("${targets[@]%.rs}")
fi

# Coverage for libFuzzer, and AddressSanitizer. A stable compiler needs RUSTC_BOOTSTRAP for them. `--target` excludes
# build scripts and macros.
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} CARGO_INCREMENTAL=0 RUSTC_BOOTSTRAP=1
export RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Ccodegen-units=4 \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions"
features=()
[ -z "${LUMOS_FUZZ_FEATURES+set}" ] || features=(--no-default-features --features "$LUMOS_FUZZ_FEATURES")
cargo build --release --target "$host" "${features[@]}" $(printf -- '--bin %s ' "${targets[@]}")

# Temporary folders of the targets.
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_odr_violation=0}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/suppressions.txt:print_suppressions=0}

# Runs a target until it has used its processor time. libFuzzer's limit is wall-clock time, which ends earlier on a busy
# machine.
fuzz() {
    local target=$1 log=logs/$1.log spent=0.00 round=0 status=0 used stamp runs coverage findings
    local options=(-timeout=30 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 "-artifact_prefix=artifacts/$target/")
    # Recovery does not close a damaged database (`Database::abandon`), so each input leaves memory behind.
    local ASAN_OPTIONS=$ASAN_OPTIONS
    if [ "$target" = journal ]; then
        ASAN_OPTIONS+=:detect_leaks=0
        options+=(-runs=3000)
    fi
    mkdir -p "corpus/$target" "artifacts/$target" logs
    stamp=$(mktemp)
    : >"$log"
    TIMEFORMAT='%U %S'
    while [ "${spent%.*}" -lt "$seconds" ] && [ "$round" -lt 30 ] && [ "$status" -eq 0 ]; do
        round=$((round + 1))
        # libFuzzer writes new inputs to the first folder.
        used=$({ time "$CARGO_TARGET_DIR/$host/release/$target" "corpus/$target" "seeds/$target" \
            "-max_total_time=$((seconds - ${spent%.*}))" "${options[@]}" >>"$log" 2>&1; } 2>&1) || status=$?
        spent=$(awk -v spent="$spent" '{ printf "%.2f", spent + $1 + $2 }' <<<"$used")
    done
    findings=$(find "artifacts/$target" -type f -newer "$stamp" ! -name 'slow-unit-*' | wc -l)
    rm "$stamp"
    runs=$(awk '/^stat::number_of_executed_units/ { sum += $2 } END { print sum + 0 }' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    printf '%-14s %10s runs %5s s %6s edges %3s findings\n' "$target" "$runs" "${spent%.*}" "${coverage:-0}" "$findings"
    [ "$status" -eq 0 ] && [ "$findings" -eq 0 ]
}

failed=()
for target in "${targets[@]}"; do
    fuzz "$target" || failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "error: failed targets: ${failed[*]}" >&2
    echo "hint: the inputs are in fuzz/artifacts; see tail -n 50 fuzz/logs/${failed[0]}.log" >&2
    exit 1
fi
