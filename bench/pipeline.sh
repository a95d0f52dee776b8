#!/usr/bin/env bash
# The whole pipeline on one core, beside tools that do less or the same: from a capture of 64-byte
# packets in the page cache (Zipf 1.0 over a million flows) to the report of all default tasks.
# Usage: bench/pipeline.sh BINARY
#   FLOWGAUGE_BENCH_PACKETS  packets of the capture (20000000; 2000000 for a quick look)
#   FLOWGAUGE_BENCH_ROUNDS   rounds, in each of which every command runs once (5)
#   FLOWGAUGE_BENCH_DIR      where the capture is kept for another time (a directory removed at the end)
# Other load disturbs wall time more than CPU time (user + system): both are reported, and both
# must meet a target. Each other command runs right after flowgauge, the ratio compares these two
# runs, and all figures are medians.
set -euo pipefail

binary=${1:?usage: bench/pipeline.sh BINARY}
packets=${FLOWGAUGE_BENCH_PACKETS:-20000000}
rounds=${FLOWGAUGE_BENCH_ROUNDS:-5}
skewed_flows=1000000
record_bytes=80
mib_beside_table=64

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
dir=${FLOWGAUGE_BENCH_DIR:-$scratch}
mkdir -p "$dir"
capture=$dir/zipf-$packets.pcap
capture_bytes=$((24 + packets * record_bytes))

skip_all() {
  echo "skipped: $1"
  exit 0
}

# --- The capture ---------------------------------------------------------------------------------

if [[ $(stat -c %s "$capture" 2>/dev/null) != "$capture_bytes" ]]; then
  free_kib=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
  ((free_kib > capture_bytes / 1024 + (1 << 18))) ||
    skip_all "$dir has not the $((capture_bytes >> 20)) MiB free that the capture needs; set FLOWGAUGE_BENCH_DIR or a smaller FLOWGAUGE_BENCH_PACKETS"
  "$binary" generate --packets "$packets" --flows "$skewed_flows" --skew 1 --size 64 -o "$capture"
fi
available_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)
((${available_kib:-1 << 40} > capture_bytes / 1024 + (1 << 20))) ||
  skip_all "the page cache cannot hold a capture of $((capture_bytes >> 20)) MiB; set a smaller FLOWGAUGE_BENCH_PACKETS"

# --- The commands --------------------------------------------------------------------------------

core=$(($(nproc) - 1))
pin=()
if command -v taskset >/dev/null && taskset -c "$core" true 2>/dev/null; then
  pin=(taskset -c "$core")
fi
# As root, tcpdump would switch to a user without write access.
as_root=()
((EUID != 0)) || as_root=(-Z root)
walk=$(dirname "$binary")/examples/walk
if command -v cargo >/dev/null; then
  cargo build --quiet --release --locked -p flowgauge-capture --example walk
fi

flowgauge() { "${pin[@]}" "$binary" analyze --seed 1 -o "$scratch/report" "$capture"; }
read_only() { "${pin[@]}" cat "$capture" >/dev/null; }
walk_records() { "${pin[@]}" "$walk" "$capture"; }
tcpdump_copy() { "${pin[@]}" tcpdump "${as_root[@]}" -r "$capture" -w /dev/null; }
capinfos_count() { "${pin[@]}" capinfos -c "$capture"; }
nfpcapd_flows() {
  rm -rf "$scratch/flows"
  mkdir "$scratch/flows"
  "${pin[@]}" nfpcapd -r "$capture" -w "$scratch/flows"
}

# Name, text in the table, required program and its origin, and the target speed-up of flowgauge.
commands=(
  "flowgauge|flowgauge analyze|$binary|'make build'|"
  "read_only|cat > /dev/null|cat|coreutils|"
  "walk_records|bare walk of the records|$walk|a build with cargo|"
  "tcpdump_copy|tcpdump -w /dev/null|tcpdump|'apt-get install tcpdump'|2"
  "capinfos_count|capinfos -c|capinfos|'apt-get install wireshark-common'|3"
  "nfpcapd_flows|nfpcapd -w DIR|nfpcapd|'apt-get install nfdump'|20"
)

# Runs a command once and prints its wall and CPU seconds.
measure() {
  local TIMEFORMAT='%R %U %S'
  { time "$1" >/dev/null 2>"$scratch/err"; } 2>"$scratch/time" || return 1
  awk '{ print $1, $2 + $3 }' "$scratch/time"
}

# The first run of each loads the capture into the page cache, and shows whether it works at all.
runnable=()
skipped=()
for command in "${commands[@]}"; do
  IFS='|' read -r name shown program origin _ <<<"$command"
  if ! command -v "$program" >/dev/null; then
    skipped+=("$shown: $program is missing; $origin brings it")
  elif ! measure "$name" >/dev/null; then
    skipped+=("$shown: it failed: $(tail -n 1 "$scratch/err")")
  else
    runnable+=("$command")
  fi
done
[[ ${runnable[0]-} == flowgauge* ]] || { echo "${skipped[0]}" >&2; exit 1; }

for ((round = 1; round <= rounds; round++)); do
  for command in "${runnable[@]:1}"; do
    ours=$(measure flowgauge)
    echo "$ours" >>"$scratch/flowgauge.times"
    echo "$(measure "${command%%|*}") $ours" >>"$scratch/${command%%|*}.times"
  done
done

# --- The table -----------------------------------------------------------------------------------

median() {
  sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
# The median of column $2 (1 wall, 2 CPU) of a command.
seconds() { awk -v column="$2" '{ print $column }' "$scratch/$1.times" | median; }
# How many times faster flowgauge is than command $1, by column $2.
faster() {
  awk -v column="$2" '{ print $column / ($(column + 2) > 0 ? $(column + 2) : 0.001) }' \
    "$scratch/$1.times" | median
}
mpps() { awk -v packets="$packets" -v seconds="$1" 'BEGIN { printf "%.1f", packets / seconds / 1e6 }'; }
# Whether wall and CPU figures $1 and $2 reach target $3.
verdict() {
  awk -v wall="$1" -v cpu="$2" -v target="$3" \
    'BEGIN { print (cpu < target ? "MISS" : wall < target ? "MISS (CPU PASS)" : "PASS") }'
}

echo "machine   $(awk -F ': ' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores${pin[0]:+, pinned to core $core}"
echo "program   $("$binary" --version)"
echo "capture   $packets packets of 64 bytes, Zipf 1.0 over $skewed_flows flows, in the page cache"
echo "rounds    $rounds, interleaved; medians; CPU is user + system; load at the end $(cut -d ' ' -f 1 /proc/loadavg)"
echo
row() { printf '%-25s %8s %8s %10s %9s   %-19s %s\n' "$@"; }
row command 'wall s' 'CPU s' 'wall Mpps' 'CPU Mpps' 'flowgauge is' target
for command in "${runnable[@]}"; do
  IFS='|' read -r name shown _ _ target <<<"$command"
  wall=$(seconds "$name" 1) cpu=$(seconds "$name" 2)
  if [[ $name == flowgauge ]]; then
    ratios=''
    judged=">= 20 Mpps $(verdict "$(mpps "$wall")" "$(mpps "$cpu")" 20), aim 40 $(verdict "$(mpps "$wall")" "$(mpps "$cpu")" 40)"
  else
    by_wall=$(faster "$name" 1) by_cpu=$(faster "$name" 2)
    ratios=$(printf '%.2fx (CPU %.2fx)' "$by_wall" "$by_cpu")
    judged=${target:+">= ${target}x $(verdict "$by_wall" "$by_cpu" "$target")"}
  fi
  row "$shown" "$wall" "$cpu" "$(mpps "$wall")" "$(mpps "$cpu")" "$ratios" "$judged"
done
for reason in "${skipped[@]}"; do
  echo "skipped   $reason"
done

# The peak of all resident memory, the program's own pages included, bounds the anonymous part.
if [[ -x /usr/bin/time ]]; then
  /usr/bin/time -f %M -o "$scratch/rss" "$binary" analyze --seed 1 --format json -o "$scratch/report" "$capture"
  table_bytes=$(grep -m 1 -o '"memory_bytes":[0-9]*' "$scratch/report" | cut -d : -f 2)
  awk -v table="$((table_bytes >> 20))" -v beside="$mib_beside_table" '{
    peak = $1 / 1024
    printf "\npeak resident memory %.0f MiB; target: <= table of %d MiB + %d MiB %s\n", peak, table, beside, peak <= table + beside ? "PASS" : "MISS"
  }' "$scratch/rss"
else
  printf "\nskipped   peak resident memory: /usr/bin/time is missing; 'apt-get install time' brings it\n"
fi
