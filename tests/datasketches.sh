#!/usr/bin/env bash
# The images of HyperLogLog and KLL, read by the datasketches package for Python. Without Python's
# venv or without a network it says so and passes.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" >/dev/null 2>&1 || { echo "skipped: python3 has no venv"; exit 0; }
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datasketches numpy 2>"$folder/pip" || {
  echo "skipped: pip cannot install datasketches: $(tail -n 1 "$folder/pip")"
  exit 0
}
mkdir "$folder/images"
cargo run --quiet --locked -p flowgauge-core --example images "$folder/images"
"$folder/venv/bin/python" tests/datasketches.py "$folder/images"
