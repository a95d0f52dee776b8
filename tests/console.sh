#!/usr/bin/env bash
# Opens the console of an agent that replays a flood in Chromium, and compares it with the agent's report files.
# Without Node, Chromium or a network it says so and passes; as root on Debian it installs Chromium.
#
# Usage: console.sh FLOWGAUGE [FOLDER FOR SCREENSHOTS]
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")/.."
command -v npm >/dev/null || { echo "skipped: npm is missing (Debian, Ubuntu: apt-get install npm)"; exit 0; }
command -v chromium >/dev/null || bash tests/packages.sh chromium || { echo "skipped: chromium is missing"; exit 0; }
folder=$(mktemp -d)
agent=
trap '[ -z "$agent" ] || kill "$agent" 2>/dev/null || true; rm -rf "$folder"' EXIT
shots=${2:-$folder/shots}
mkdir -p "$shots"
npm ci --prefix tests/html --ignore-scripts --silent 2>"$folder/npm" || {
  echo "skipped: npm cannot install playwright-core: $(tail -n 1 "$folder/npm")"
  exit 0
}
bash tests/demo_agent.sh "$flowgauge" "$folder/demo" >"$folder/log" 2>&1 &
agent=$!
for _ in $(seq 100); do
  [ -n "$(find "$folder/demo/reports" -name '*.jsonl' -size +1k 2>/dev/null)" ] && break
  sleep 0.1
done
node tests/html/console.mjs http://127.0.0.1:8469/ "$folder/demo/reports" "$(command -v chromium)" "$shots" "$agent" ||
  { cat "$folder/log"; exit 1; }
agent=
