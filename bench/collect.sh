#!/usr/bin/env bash
# Cost of a collector: fed from memory, and through a broker of Apache Kafka with the snapshots of 100 agents,
# 3 measurements of 256 KiB each: every 10 seconds, and every second. Needs java and mvn.
#
# Usage: collect.sh FLOWGAUGE COMMAND...; the command runs crates/agent/benches/collect.rs
set -euo pipefail
flowgauge=$(realpath "$1")
shift
bench=("$@")
cd "$(dirname "$0")/../tests"
folder=$(mktemp -d)
broker= collector=
trap 'kill -KILL $broker $collector 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
. kafka/broker.sh
"${bench[@]}"
have_broker
read -r port controller < <(free_ports 2)
(umask 077 && printf '\7%.0s' {1..64} >"$folder/seed")
plain_broker "$port" "$controller"
start_broker "$port"

# CPU time of a process in milliseconds.
used() { awk -v tick="$(getconf CLK_TCK)" '{ print int(($14 + $15) * 1000 / tick) }' "/proc/$1/stat"; }

for epoch in 10000 1000; do
  topic=every-$epoch
  cat >"$folder/$topic.yaml" <<END
collect: { data: $folder/$topic, seed: $folder/seed, agents: [$(seq -f 'edge-%04.0f' -s ', ' 0 99)] }
kafka: { brokers: ['127.0.0.1:$port'], topic: $topic }
measurements: { talkers: {}, hosts: {}, services: {} }
sinks: { files: { path: $folder/$topic.jsonl } }
END
  # A reader creates the topic.
  "${java[@]}" kafka/Reader.java "127.0.0.1:$port" "$topic" 2>>"$folder/reader.log"
  "$flowgauge" collect -C "$folder/$topic.yaml" 2>>"$folder/collect.log" &
  collector=$!
  sleep 3
  before=$(used "$collector") of_broker=$(used "$broker")
  "${bench[@]}" "127.0.0.1:$port" "$topic" "$folder/$topic.jsonl" 100 "$epoch" 30
  echo "the broker used $(($(used "$broker") - of_broker)) ms of a core, and $(du -sm "$folder/broker/$topic"-* | awk '{ all += $1 } END { print all }') MiB"
  echo "the collector used $(($(used "$collector") - before)) ms of a core, and $(awk '/VmHWM/ { print int($2 / 1024) " MiB" }' "/proc/$collector/status") of memory"
  kill -TERM "$collector"
  wait "$collector"
  tail -n 1 "$folder/collect.log"
  collector=
done
