#!/bin/sh
# Builds every fuzz target and runs each for a while: ./smoke.sh [SECONDS] [TARGET]...
# Needs a nightly toolchain and nothing else. Fails if a target does.
set -eu
cd "$(dirname "$0")"
seconds=${1:-30}
[ $# -gt 0 ] && shift
triple=$(rustc +nightly -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-target}

# What libFuzzer asks of the compiler: edge counters, the table of program counters, traced
# comparisons; and the address sanitizer for the code of dependencies that isn't safe Rust.
RUSTFLAGS="-Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares \
--cfg fuzzing -Zsanitizer=address -Cdebuginfo=${XDFS_FUZZ_DEBUGINFO:-1}" \
    cargo +nightly build --release --target "$triple"

if [ $# -eq 0 ]; then
    set -- $(sed -n '/^\[\[bin\]\]/,/^path/s/^name = "\(.*\)"/\1/p' Cargo.toml)
fi
for target in "$@"; do
    mkdir -p "corpus/$target" "artifacts/$target"
done
# One for each processor at a time; what a target prints follows as a whole.
export seconds programs="$target_dir/$triple/release"
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh -c '
    seeds=""
    [ -d "seeds/$1" ] && seeds="seeds/$1"
    log="artifacts/$1/log"
    status=0
    "$programs/$1" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="artifacts/$1/" "corpus/$1" $seeds >"$log" 2>&1 || status=$?
    { echo "fuzz: $1 for $seconds s"; cat "$log"; } >&2
    rm -f "$log"
    exit "$status"
' -
