#!/usr/bin/env bash
# Compares flows that an agent exports as IPFIX, read by Debian's nfcapd and pmacct's nfacctd, and over TCP by
# libfixbuf's ipfixDump, with the agent's own report: the same flows with the same packets and bytes. Missing
# collectors are skipped, with the reason.
#
# Usage: ipfix.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")"
source ./free_port.sh
folder=$(mktemp -d)
collector=
trap '[ -z "$collector" ] || kill "$collector" 2>/dev/null || true; rm -rf "$folder"' EXIT
"$flowgauge" generate --packets 20000 --rate 10000 --flows 500 --ipv6 0.4 --seed 1 \
  --plant scan:destinations=200,packets=400 -o "$folder/capture.pcap"

# Runs an agent that exports to ADDRESS, and then ends the collector.
export_to() {
  cat >"$folder/agent.yaml" <<END
agent: { data: $folder/data }
sources: [{ replay: $folder/capture.pcap, times: 1 }]
measurements:
  flows: { epoch: 1s, tasks: [top, heavy-hitters, cardinality, entropy], memory: 16MiB, top: 100000 }
  scanners: { key: pair, epoch: 1s, tasks: [superspreaders], memory: 16MiB, spread: 50 }
sinks:
  files: { path: $folder/reports.jsonl }
  ipfix: { to: '$1', domain: 1, enterprise: 65000 }
END
  sleep 1
  rm -f "$folder/reports.jsonl"
  "$flowgauge" run -C "$folder/agent.yaml" 2>"$folder/agent.log" || { cat "$folder/agent.log"; exit 1; }
  sleep 1
  kill -INT "$collector" 2>/dev/null || true
  wait "$collector" || true
  collector=
}

# Compares what the collector of this name wrote.
compare() {
  echo -n "$1: "
  python3 ipfix.py "$folder/reports.jsonl" "$folder/flows.csv" || { tail -n 20 "$folder/log"; exit 1; }
}

if command -v nfcapd >/dev/null || bash packages.sh nfdump >"$folder/log" 2>&1; then
  port=$(free_port)
  mkdir "$folder/nfcapd"
  nfcapd -b 127.0.0.1 -p "$port" -w "$folder/nfcapd" -t 3600 >"$folder/log" 2>&1 &
  collector=$!
  export_to "udp://127.0.0.1:$port"
  nfdump -R "$folder/nfcapd" -q -N -6 -o 'fmt:%pr,%sa,%da,%sp,%dp,%pkt,%byt' >"$folder/flows.csv"
  compare nfcapd
else
  echo "skipped nfcapd: $(tail -n 1 "$folder/log")"
fi

if command -v nfacctd >/dev/null || bash packages.sh pmacct >"$folder/log" 2>&1; then
  port=$(free_port)
  cat >"$folder/nfacctd.conf" <<END
nfacctd_ip: 127.0.0.1
nfacctd_port: $port
plugins: print
aggregate: proto,src_host,dst_host,src_port,dst_port
print_output: csv
print_output_file: $folder/flows.txt
print_refresh_time: 3600
END
  nfacctd -f "$folder/nfacctd.conf" >"$folder/log" 2>&1 &
  collector=$!
  export_to "udp://127.0.0.1:$port"
  # It names the columns, in its own order.
  python3 - "$folder/flows.txt" >"$folder/flows.csv" <<'END'
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    columns = "PROTOCOL SRC_IP DST_IP SRC_PORT DST_PORT PACKETS BYTES"
    print(*(row[column] for column in columns.split()), sep=",")
END
  compare nfacctd
else
  echo "skipped nfacctd: $(tail -n 1 "$folder/log")"
fi

if command -v ipfixDump >/dev/null || bash packages.sh libfixbuf-tools >"$folder/log" 2>&1; then
  # The bytes of a TCP stream form an IPFIX file.
  python3 - "$folder/stream" "$folder/port" >"$folder/log" 2>&1 <<'END' &
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as server, open(sys.argv[1], "wb") as stream:
    with open(sys.argv[2] + ".part", "w") as port:
        port.write(str(server.getsockname()[1]))
    os.rename(sys.argv[2] + ".part", sys.argv[2])
    connection, _ = server.accept()
    while data := connection.recv(65536):
        stream.write(data)
END
  collector=$!
  for _ in $(seq 50); do [ -e "$folder/port" ] || sleep 0.1; done
  export_to "tcp://127.0.0.1:$(cat "$folder/port")"
  ipfixDump --data --in "$folder/stream" >"$folder/dump"
  python3 - "$folder/dump" >"$folder/flows.csv" <<'END'
import re, sys
columns = "protocolIdentifier source destination sourceTransportPort destinationTransportPort packetDeltaCount octetDeltaCount".split()
for record in open(sys.argv[1]).read().split("--- data record ")[1:]:
    fields = dict(re.findall(r"^\s+\(\d+\)\s+(\S+) : (.*)$", record, re.M))
    for end in "source", "destination":
        fields[end] = fields.get(f"{end}IPv4Address") or fields.get(f"{end}IPv6Address")
    if all(fields.get(column) for column in columns):
        print(*(fields[column] for column in columns), sep=",")
END
  compare ipfixDump
else
  echo "skipped ipfixDump: $(tail -n 1 "$folder/log")"
fi
