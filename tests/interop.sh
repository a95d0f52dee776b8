#!/usr/bin/env bash
# Reads our formats in Python: the images of HyperLogLog and KLL with the datasketches package, and the tables
# of reports with pandas and DuckDB. Without Python's venv or without a network it says so and passes.
#
# Usage: interop.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" >/dev/null 2>&1 || { echo "skipped: python3 has no venv"; exit 0; }
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datasketches numpy duckdb pandas pyarrow pytz \
  2>"$folder/pip" || {
  echo "skipped: pip cannot install what reads: $(tail -n 1 "$folder/pip")"
  exit 0
}
mkdir "$folder/images"
cargo run --quiet --locked -p flowgauge-core --example images "$folder/images"
"$folder/venv/bin/python" tests/interop.py "$folder/images"
"$folder/venv/bin/python" tests/tables.py "$flowgauge"
