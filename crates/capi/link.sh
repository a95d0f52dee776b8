#!/bin/sh
# Links the shared library from the static one. Rust gives a cdylib a version script of its own, which
# cannot be combined with ours. It stays loaded, since closed handles must stay errors.
# usage: link.sh ARCHIVE LIBRARY
set -eu
map=$(dirname "$0")/flowgauge.map
wanted=$(sed -n 's/^ *\(fg_[a-z_]*\);$/-Wl,-u,\1/p' "$map")
# shellcheck disable=SC2086
exec ${CC:-cc} -shared -o "$2" -Wl,-soname,libflowgauge.so.1 -Wl,--version-script="$map" \
  -Wl,--gc-sections -Wl,-z,relro,-z,now,-z,nodelete $wanted "$1" -lgcc_s -lpthread -lm -ldl
