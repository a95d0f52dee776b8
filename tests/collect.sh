#!/usr/bin/env bash
# Three agents, Apache Kafka and a collector: the collector is killed again and again, the broker once, and
# an agent with another seed and one that sends garbage take part. The last report of each epoch must equal
# the answer of 'flowgauge query' from the journals of all three. With a Python that has PySpark and the package
# flowgauge, a job on Spark merges the same topic, is killed midway, and must report the same. Without Java,
# Maven or a network it says so and passes; as root on Debian it installs what is missing.
#
# Usage: collect.sh FLOWGAUGE [PYTHON]
set -euo pipefail
flowgauge=$(realpath "$1")
python=${2:+$(realpath -s "$2")}
cd "$(dirname "$0")"
folder=$(mktemp -d)
broker= collector= agents=
trap 'kill -KILL $broker $collector $agents 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
. kafka/broker.sh
have_broker
read -r port controller < <(free_ports 2)

# Starts the agent NAME on the capture NAME.pcap, with the seed file SEED.
start_agent() {
  cat >"$folder/$1.yaml" <<END
agent: { name: $1, data: $folder/$1/data, seed: $folder/$2 }
sources: [{ replay: $folder/$1.pcap }]
measurements:
  flows: { epoch: 1s, tasks: [top, entropy], memory: 8MiB, top: 20 }
  hosts: { key: source, epoch: 2s, algorithm: count-min, tasks: [top], memory: 256KiB }
sinks:
  kafka: { brokers: ['127.0.0.1:$port'], topic: network, what: [report, snapshot] }
END
  "$flowgauge" run -C "$folder/$1.yaml" 2>>"$folder/$1.log" &
  agents+=" $!"
}

start_collector() {
  "$flowgauge" collect -C "$folder/collect.yaml" 2>>"$folder/collect.log" &
  collector=$!
}

kill_collector() {
  kill -KILL "$collector"
  { wait "$collector" || true; } 2>/dev/null
  collector=
}

# Sends copies of all snapshots so far, and garbage.
disturb() { "${java[@]}" kafka/Garbage.java "127.0.0.1:$port" network 2>>"$folder/garbage.log" || fail "garbage is not sent"; }

number=0
for name in one two three; do
  number=$((number + 1))
  "$flowgauge" generate --packets 120000 --rate 6000 --flows 400 --seed "$number" -o "$folder/$name.pcap"
done
"$flowgauge" generate --packets 20000 --rate 1000 --flows 100 --seed 9 -o "$folder/odd.pcap"
for seed in seed other; do
  (umask 077 && head -c 64 /dev/urandom >"$folder/$seed")
done
cat >"$folder/collect.yaml" <<END
collect: { name: all, data: $folder/collect/data, seed: $folder/seed, agents: [one, two, three, odd], delay: 4s, keep: 20s }
kafka: { brokers: ['127.0.0.1:$port'], topic: network }
measurements:
  flows: { tasks: [top, entropy], top: 20 }
  hosts: { tasks: [top], top: 20 }
sinks:
  files: { path: $folder/collect/reports.jsonl }
END
"$flowgauge" check "$folder/collect.yaml" >/dev/null

plain_broker "$port" "$controller"
start_broker "$port"
start_collector
for name in one two three; do
  start_agent "$name" seed
done
start_agent odd other
sleep 4
disturb
for _ in 1 2 3; do
  sleep 2
  kill_collector
  start_collector
done
sleep 1
kill_broker
sleep 3
start_broker "$port"
sleep 3
kill_collector
disturb
start_collector
sleep 6
kill -TERM $agents
for agent in $agents; do
  wait "$agent" || fail "an agent ends with $?"
done
agents=
# Longer than the delay, and than killed collectors stay members of the group.
sleep 16 &
wait=$!
if [ -n "$python" ]; then
  spark_jars=$(maven_jars kafka/spark.xml) || fail "Maven cannot have Spark's source of Kafka"
  job=("$python" kafka/streaming.py "$folder" "127.0.0.1:$port" network "$spark_jars")
  { setsid "${job[@]}" 3 || true; } >>"$folder/spark.log" 2>&1
  grep -q . "$folder/spark/rows.jsonl" || fail "the job on Spark reports nothing before it is killed"
  setsid "${job[@]}" 2>>"$folder/spark.log" || fail "the job on Spark"
fi
wait "$wait"
kill -TERM "$collector"
wait "$collector" || fail "the collector ends with $?"
collector=
python3 kafka/network.py "$flowgauge" "$folder" || fail "the reports of the network"
