#!/usr/bin/env bash
# Builds Open vSwitch with flowgauge in a cache folder outside the checkout, and prints its path.
# Builds nothing if the sources are unchanged.
#
# usage: build.sh [VERSION SOURCE]   (SOURCE: a folder or an archive; Debian's 3.1 by default)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=${1:-3.1}
source=${2:-/usr/src/openvswitch/openvswitch.tar.gz}
packages="autoconf automake gcc libdpdk-dev libtool make patch pkg-config python3"
[ $# -gt 0 ] || packages="openvswitch-source $packages"

missing=()
for package in $packages; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
[ ${#missing[@]} = 0 ] || bash "$here/../tests/packages.sh" "${missing[@]}" >&2

case $version in 3.*) dpdk=22.11 ;; *) dpdk=25.11 ;; esac
if pkg-config --atleast-version="$dpdk" libdpdk; then
  with=--with-dpdk=shared
else
  with=--without-dpdk
  echo "building without DPDK: Open vSwitch $version needs $dpdk, found $(pkg-config --modversion libdpdk)" >&2
fi

patch=$here/flowgauge-$version.patch
ours=("$here"/dpif-netdev-flowgauge*.[ch] "$here/../crates/capi/flowgauge.h")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flowgauge/ovs-$version
prefix=$cache/switch
if [ -d "$source" ]; then unpack="tar -C $source -c ."; else unpack="gzip -dc $source"; fi
stamp=$({ $unpack; cat "$patch" "${ours[@]}" "$0"; } | sha256sum)
mkdir -p "$cache/build"
if [ "$(cat "$cache/stamp" 2>/dev/null)" != "$stamp" ]; then
  log=$cache/build.log
  echo "building Open vSwitch $version (3 minutes the first time); log: $log" >&2
  # '|| tail' after the steps would let them go on after a failed one.
  trap 'tail -n 20 "$log" >&2' ERR
  rm -rf "$cache/stamp" "$cache/source"
  mkdir "$cache/source"
  (
    set -x
    $unpack | tar -x -C "$cache/source" --strip-components=1
    cd "$cache/source"
    patch -p1 < "$patch"
    cp "${ours[@]}" lib/
    ./boot.sh
    cd "$cache/build"
    # The library's path is fixed here: write access to the database must not allow loading code.
    "$cache/source/configure" $with --prefix="$prefix" CFLAGS="-O2 -g -march=native" \
      CPPFLAGS="-DFLOWGAUGE_LIBRARY='\"$prefix/lib/libflowgauge.so.1\"'"
    make -j"$(nproc)"
    make install
  ) >"$log" 2>&1
  echo "$stamp" > "$cache/stamp"
fi
echo "$prefix"
