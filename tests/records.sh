#!/usr/bin/env bash
# Compares an agent with Debian's nfcapd, sfcapd, nfacctd and sfacctd, all reading the same flow records of other
# exporters: the same flows with the same packets and bytes. Missing tools are skipped, with the reason. An agent
# exports IPFIX too, and its own report is compared.
#
# Usage: records.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")"
source ./free_port.sh
folder=$(mktemp -d)
running=()
trap 'kill "${running[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT
failed=0
# Few enough flows that softflowd sends its templates once: it counts them wrong in later datagrams, and
# nfacctd goes by the count.
"$flowgauge" generate --packets 20000 --rate 10000 --flows 300 --ipv6 0.4 --seed 1 -o "$folder/capture.pcap"

there() {
  command -v "$1" >/dev/null || bash packages.sh "$2" >"$folder/log" 2>&1 \
    || { echo "skipped $1: $(tail -n 1 "$folder/log")"; return 1; }
}

# Keeps the datagrams that a command exports to a port: record FILE COMMAND..., with PORT in the command.
record() {
  local file=$1 port recorder
  shift
  port=$(free_port)
  python3 records.py record "$port" "$file" 3 &
  recorder=$!
  sleep 1
  "${@//PORT/$port}" >"$folder/log" 2>&1 || { tail -n 5 "$folder/log"; return 1; }
  wait "$recorder"
}

# Prints the columns of pmacct's CSV.
columns() {
  python3 - "$1" <<'END'
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    columns = "PROTOCOL SRC_IP DST_IP SRC_PORT DST_PORT PACKETS BYTES"
    print(*(row[column] for column in columns.split()), sep=",")
END
}

# Sends the datagrams of a file to an agent and to collectors: check NAME FILE nf|sf [OPTIONS of nfcapd].
check() {
  local name=$1 file=$2 kind=$3 capd_options=${4-} ours capd acctd
  ours=$(free_port) capd=$(free_port) acctd=$(free_port)
  rm -rf "$folder/data" "$folder/reports.jsonl" "$folder/capd" "$folder/flows.txt"
  mkdir "$folder/capd"
  cat >"$folder/agent.yaml" <<END
agent: { data: $folder/data }
sources: [{ records: 'udp://127.0.0.1:$ours' }]
measurements:
  flows: { epoch: 1h, tasks: [top], memory: 64MiB, top: 100000 }
sinks:
  files: { path: $folder/reports.jsonl }
END
  running=()
  "$flowgauge" run -C "$folder/agent.yaml" 2>"$folder/agent.log" & running+=($!)
  if there "${kind}capd" "$([ "$kind" = nf ] && echo nfdump || echo nfdump-sflow)"; then
    # nfcapd 1.7.1 reads the sampling rate in the options of NetFlow 9 and IPFIX, but does not apply it.
    "${kind}capd" $capd_options -b 127.0.0.1 -p "$capd" -w "$folder/capd" -t 3600 >"$folder/capd.log" 2>&1 & running+=($!)
  fi
  if there "${kind}acctd" pmacct; then
    cat >"$folder/acctd.conf" <<END
${kind}acctd_ip: 127.0.0.1
${kind}acctd_port: $acctd
${kind}acctd_renormalize: true
plugins: print
aggregate: proto,src_host,dst_host,src_port,dst_port
print_output: csv
print_output_file: $folder/flows.txt
print_refresh_time: 3600
print_cache_entries: 160001
END
    "${kind}acctd" -f "$folder/acctd.conf" >"$folder/acctd.log" 2>&1 & running+=($!)
  fi
  sleep 2
  python3 records.py send "$file" "$ours" "$capd" "$acctd"
  sleep 2
  kill -INT "${running[@]}"
  wait "${running[@]}" || true
  running=()
  grep -q "receiving flow records from 127.0.0.1" "$folder/agent.log" || cat "$folder/agent.log"
  if command -v "${kind}capd" >/dev/null; then
    nfdump -R "$folder/capd" -q -N -6 -o 'fmt:%pr,%sa,%da,%sp,%dp,%pkt,%byt' >"$folder/flows.csv"
    echo -n "$name, ${kind}capd: "
    python3 records.py compare "$folder/reports.jsonl" "$folder/flows.csv" || failed=1
  fi
  if command -v "${kind}acctd" >/dev/null; then
    columns "$folder/flows.txt" >"$folder/flows.csv"
    echo -n "$name, ${kind}acctd: "
    python3 records.py compare "$folder/reports.jsonl" "$folder/flows.csv" || failed=1
  fi
}

if there softflowd softflowd; then
  for version in 5 9 10; do
    for sampling in 1 10; do
      name="softflowd -v $version -s $sampling"
      record "$folder/datagrams" timeout 30 softflowd -d -6 -r "$folder/capture.pcap" -n 127.0.0.1:PORT \
        -v "$version" -s "$sampling" -p "$folder/pid" -c none || { failed=1; continue; }
      options=
      [ "$version" = 5 ] || [ "$sampling" = 1 ] || options="-s $sampling"
      check "$name" "$folder/datagrams" nf "$options"
    done
  done
fi

python3 records.py sflow "$folder/capture.pcap" "$folder/datagrams" 10
check "sFlow" "$folder/datagrams" sf

# An exporting agent, and its own report.
cat >"$folder/exporter.yaml" <<END
agent: { data: $folder/exporter }
sources: [{ replay: $folder/capture.pcap, times: 1 }]
measurements:
  flows: { epoch: 1s, tasks: [top], memory: 16MiB, top: 100000 }
sinks:
  files: { path: $folder/exported.jsonl }
  ipfix: { to: 'udp://127.0.0.1:PORT', domain: 1 }
END
export_ipfix() {
  sed "s/PORT/$1/" "$folder/exporter.yaml" >"$folder/exporter-port.yaml"
  "$flowgauge" run -C "$folder/exporter-port.yaml"
}
record "$folder/datagrams" export_ipfix PORT
check "IPFIX of an agent" "$folder/datagrams" nf
python3 - "$folder/exported.jsonl" >"$folder/flows.csv" <<'END'
import json, sys
for report in map(json.loads, open(sys.argv[1])):
    if report["type"] == "epoch":
        for flow in report["tasks"]["top"]["items"]:
            key = flow["key"]
            ends = (key[end] for end in ("protocol", "source", "destination", "source_port", "destination_port"))
            print(*ends, *(round(flow[size]["value"]) for size in ("packets", "bytes")), sep=",")
END
echo -n "IPFIX of an agent, itself: "
python3 records.py compare "$folder/reports.jsonl" "$folder/flows.csv" || failed=1
exit "$failed"
