#!/usr/bin/env bash
# Opens pages of reports in Chromium and compares every number in them with the JSON of the same run. Without
# Node, Chromium or a network it says so and passes; as root on Debian it installs Chromium.
#
# Usage: html.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")/.."
command -v npm >/dev/null || { echo "skipped: npm is missing (Debian, Ubuntu: apt-get install npm)"; exit 0; }
command -v chromium >/dev/null || bash tests/packages.sh chromium || { echo "skipped: chromium is missing"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm ci --prefix tests/html --ignore-scripts --silent 2>"$folder/npm" || {
  echo "skipped: npm cannot install playwright-core: $(tail -n 1 "$folder/npm")"
  exit 0
}
node tests/html/test.mjs "$flowgauge" "$(command -v chromium)" "$folder"
