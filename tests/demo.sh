#!/usr/bin/env bash
# Reports on a real capture, and on a generated one of a million packets.
# Usage: tests/demo.sh BINARY
set -euo pipefail

binary=$(realpath "${1:?usage: tests/demo.sh BINARY}")
captures=$(realpath "$(dirname "${BASH_SOURCE[0]}")/captures")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run() {
  printf '\n$ flowgauge'
  printf ' %s' "$@"
  printf '\n'
  "$binary" "$@"
}

cd "$captures"
run analyze var-services-std-ports.pcap
cd "$scratch"
run generate --packets 1000000 --profile backbone --rate 20000 --size imix --ipv6 0.04 \
  --plant scan:destinations=400 --plant flood:sources=5000,packets=200000,start=0.5,end=0.8 \
  -o million.pcap
run analyze million.pcap
