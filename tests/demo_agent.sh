#!/usr/bin/env bash
# Starts an agent over a generated stream that is replayed at its pace, with a flood in it.
set -euo pipefail
flowgauge=$(realpath "$1")
folder=${2:-$(mktemp -d "${TMPDIR:-/tmp}/flowgauge-agent.XXXXXX")}
mkdir -p "$folder"
cd "$folder"
# Twenty seconds at 50,000 packets a second; from the sixth to the twelfth, 5,000 sources send to one.
"$flowgauge" generate --profile backbone --packets 1000000 --rate 50000 \
  --plant flood:sources=5000,packets=150000,start=0.3,end=0.6 -o traffic.pcap
cat > flowgauge.yaml <<'YAML'
agent: { name: demo, data: ./data, journal: { keep: 1h, max-size: 1GiB } }
sources:
  - { replay: traffic.pcap }
measurements:
  talkers: { key: five-tuple, epoch: 2s, tasks: [top, heavy-hitters, entropy, cardinality, size-distribution], memory: 64MiB }
  victims: { key: pair, epoch: 1s, tasks: [victims, top], memory: 32MiB }
sinks:
  files: { format: json, path: "reports/%Y%m%d.jsonl", keep: 1d }
  prometheus: { listen: 127.0.0.1:9469 }
  console: { listen: 127.0.0.1:8469 }
alerts:
  flood: { when: "victims.victims.distinct.low > 1000", for: 2 epochs, clear-after: 5s }
YAML
cat <<TEXT

Console      http://127.0.0.1:8469
Prometheus   http://127.0.0.1:9469/metrics
Reports      $folder/reports
Epochs kept  $flowgauge query $folder/data --measurement victims --task victims --from 1m

Within ten seconds the alert 'flood' fires, here and in the console. Ctrl-C ends.

TEXT
exec "$flowgauge" run -C flowgauge.yaml
