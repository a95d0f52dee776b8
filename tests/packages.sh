#!/usr/bin/env bash
# Installs Debian packages, or says which are missing: packages.sh PACKAGE...
set -euo pipefail
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
else
  echo "packages are missing; install them as root first (Debian, Ubuntu): apt-get install $*" >&2
  exit 1
fi
