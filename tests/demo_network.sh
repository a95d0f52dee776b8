#!/usr/bin/env bash
# A network of three agents over replayed captures, Apache Kafka and a collector, which reports on all of them.
# One agent goes away midway. Without Java, Maven or a network it says so and passes.
#
# Usage: demo_network.sh FLOWGAUGE [CAPTURE...]; without captures it generates some.
set -euo pipefail
flowgauge=$(realpath "$1")
shift
captures=()
for capture in "$@"; do captures+=("$(realpath "$capture")"); done
cd "$(dirname "$0")"
folder=$(mktemp -d "${TMPDIR:-/tmp}/flowgauge-network.XXXXXX")
broker= processes=
trap 'kill -KILL $broker $processes 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
. kafka/broker.sh
have_broker
read -r port controller < <(free_ports 2)

if [ ${#captures[@]} = 0 ]; then
  for agent in 1 2 3; do
    "$flowgauge" generate --profile backbone --packets 400000 --rate 20000 --seed "$agent" \
      --plant flood:sources=3000,packets=60000,start=0.1,end=0.9 -o "$folder/$agent.pcap"
    captures+=("$folder/$agent.pcap")
  done
fi
# All agents and the collector use the same seed: otherwise their snapshots do not merge.
(umask 077 && head -c 64 /dev/urandom >"$folder/seed")
cat >"$folder/collect.yaml" <<END
collect: { name: network, data: $folder/collector, seed: $folder/seed, agents: [edge-1, edge-2, edge-3], delay: 5s, keep: 1m }
kafka: { brokers: ['127.0.0.1:$port'], topic: flowgauge }
measurements:
  talkers: { tasks: [top, cardinality, entropy], top: 5 }
  victims: { tasks: [victims], top: 5 }
sinks:
  files: { path: $folder/reports.jsonl }
END
echo "Starting a broker of Apache Kafka, three agents and a collector ..."
plain_broker "$port" "$controller"
start_broker "$port"
for number in 1 2 3; do
  cat >"$folder/edge-$number.yaml" <<END
agent: { name: edge-$number, data: $folder/edge-$number, seed: $folder/seed }
sources: [{ replay: ${captures[$(((number - 1) % ${#captures[@]}))]} }]
measurements:
  talkers: { key: five-tuple, epoch: 5s, tasks: [top, cardinality, entropy], memory: 16MiB }
  victims: { key: pair, epoch: 5s, tasks: [victims], memory: 8MiB }
sinks:
  kafka: { brokers: ['127.0.0.1:$port'], topic: flowgauge, what: [snapshot] }
END
  "$flowgauge" run -C "$folder/edge-$number.yaml" 2>"$folder/edge-$number.log" &
  processes+=" $!"
  last=$!
done
"$flowgauge" collect -C "$folder/collect.yaml" 2>"$folder/collector.log" &
collector=$!
processes+=" $collector"

# Prints the last reports of the network.
show() {
  before=$(wc -l <"$folder/collector.log")
  kill -USR1 "$collector"
  sleep 1
  tail -n "+$((before + 1))" "$folder/collector.log"
}

# Whether there is a report of this many of the three agents.
reported() { grep -q "\"reported\":$1," "$folder/reports.jsonl"; }

wait_for "no report of all agents" reported 3
show
echo
echo "Now agent edge-3 goes away, and the reports say so ..."
kill -KILL "$last"
wait_for "no report without an agent" reported 2
sleep 1
show
echo
python3 - "$folder/reports.jsonl" <<'END'
import json, sys
print("epoch                     measurement  agents  revision  missing")
for line in open(sys.argv[1]):
    report = json.loads(line)
    network = report["network"]
    agents = f"{network['reported']} of {network['agents']}"
    print(f"{report['start'][:19]}       {report['measurement']:11}  {agents:6}  {network['revision']:8}  {', '.join(network['missing'])}")
END
