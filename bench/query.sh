#!/usr/bin/env bash
# The time that one core needs for a query over a day: 8,640 epochs of 10 seconds of a Count-Min of 1 MiB, whose
# counters are stored in 4 bytes, since 71,000 of the 100,000 packets of an epoch are TCP. Needs 10 GB of temporary
# space, and as much free memory for the files to stay in.
#
# Usage: query.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$flowgauge" generate --profile backbone --packets 864000000 --rate 10000 --seed 1 -o - |
  "$flowgauge" analyze --key protocol --algorithm count-min:rows=4,columns=65536 --epoch 10s --seed 1 --save day - >reports
echo "$(find day -name '*.fgs' | wc -l) files, $(du -sm day | cut -f 1) MiB"
TIMEFORMAT='%R s'
for _ in 1 2 3; do
  time taskset -c 0 "$flowgauge" query --task top day >reports
done
grep 'packets,' reports
