#!/usr/bin/env bash
# Each fuzz target, or those named, for FUZZ_SECONDS; inputs that it finds are kept in fuzz/work.
set -euo pipefail
cd "$(dirname "$0")"
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
for target in "${@:-pcap pcapng headers filter summary snapshot records}"; do
  for target in $target; do
    mkdir -p "work/$target"
    options=(-max_total_time="${FUZZ_SECONDS:-600}" -timeout=1 -rss_limit_mb=512 -max_len=4096
      -print_final_stats=1)
    [ -f "$target.dict" ] && options+=(-dict="$target.dict")
    seeds=("corpus/$target")
    [ "$target" = summary ] && seeds+=(../crates/core/tests/golden)
    [ "$target" = snapshot ] && seeds+=(../crates/engine/tests/golden)
    cargo +nightly fuzz run --fuzz-dir . "$target" "work/$target" "${seeds[@]}" -- "${options[@]}"
  done
done
