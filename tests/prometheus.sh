#!/usr/bin/env bash
# Has Debian's Prometheus scrape an agent, asks it for what the agent reported, and has promtool check the
# metrics. Skips with a reason where Prometheus is missing; as root on Debian it installs the package.
#
# Usage: prometheus.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")/.."
command -v prometheus >/dev/null || bash tests/packages.sh prometheus || { echo "skipped: prometheus is missing"; exit 0; }
folder=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
bash tests/demo_agent.sh "$flowgauge" "$folder/demo" >"$folder/log" 2>&1 &
pids+=($!)
cat >"$folder/prometheus.yml" <<'YAML'
global: { scrape_interval: 1s }
scrape_configs:
  - job_name: flowgauge
    static_configs: [{ targets: ["127.0.0.1:9469"] }]
rule_files: [rules.yml]
YAML
cp packaging/prometheus/rules.yml "$folder/rules.yml"
promtool check config "$folder/prometheus.yml" >/dev/null
echo "ok: promtool accepts the alert rules"
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/tsdb" \
  --web.listen-address=127.0.0.1:9470 >"$folder/prometheus.log" 2>&1 &
pids+=($!)
ask() { curl -sG --max-time 5 http://127.0.0.1:9470/api/v1/query --data-urlencode "query=$1"; }
for _ in $(seq 150); do
  ask 'flowgauge_alert_firing{alert="flood"} == 1' 2>/dev/null | grep -q '"value"' && break
  sleep 0.2
done
ask 'flowgauge_alert_firing{alert="flood"} == 1' | grep -q '"value"' || { echo "failed: the flood is not in Prometheus"; tail "$folder/log" "$folder/prometheus.log"; exit 1; }
echo "ok: the flood fires in Prometheus"
curl -s http://127.0.0.1:9469/metrics >"$folder/metrics"
# promtool also criticizes names; only text it cannot parse is an error.
promtool check metrics <"$folder/metrics" >"$folder/check" 2>&1 || [ $? -eq 3 ] || { cat "$folder/check"; exit 1; }
if grep -i error "$folder/check"; then exit 1; fi
echo "ok: promtool reads the metrics ($(wc -l <"$folder/check") remarks on style)"
# A counter in Prometheus equals the number in the agent's files at the end of some epoch.
python3 - "$folder/demo/reports" <<'PY'
import glob, json, sys, time, urllib.parse, urllib.request
def ask(query):
    url = 'http://127.0.0.1:9470/api/v1/query?' + urllib.parse.urlencode({'query': query})
    return json.load(urllib.request.urlopen(url, timeout=5))['data']['result']
def reports():
    lines = [line for name in glob.glob(sys.argv[1] + '/*.jsonl') for line in open(name) if line.endswith('\n')]
    return [one for one in map(json.loads, lines) if one['type'] == 'epoch']
for measurement in ['talkers', 'victims']:
    value = int(ask(f'flowgauge_packets_total{{measurement="{measurement}"}}')[0]['value'][1])
    time.sleep(0.5)
    sums, total = {0}, 0
    for report in reports():
        if report['measurement'] == measurement:
            total += report['account']['keyed']
            sums.add(total)
    assert value in sums and value > 0, (measurement, value, sorted(sums))
victim = ask('flowgauge_ranked_distinct_low{task="victims",rank="1"}')
assert victim, 'no victim'
count = int(ask('count({job="flowgauge"})')[0]['value'][1])
assert count < 1000, count
print(f'ok: totals are those of the report files; {count} series')
PY
for panel in $(python3 -c '
import json
for panel in json.load(open("packaging/grafana/flowgauge.json"))["panels"]:
    for target in panel.get("targets", []): print(target["expr"].replace(" ", "%20"))'); do
  expression=${panel//%20/ }
  expression=${expression//\$measurement/.*}
  ask "$expression" | grep -q '"status":"success"' || { echo "failed: the panel query $expression"; exit 1; }
done
echo "ok: Prometheus answers the queries of the dashboard"
