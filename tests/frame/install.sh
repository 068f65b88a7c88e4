#!/usr/bin/env bash
# An installed holdfast can be used through pkg-config and through find_package, shared and static, and
# uninstalling takes everything away again.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$dir/root

cat >"$dir/main.c" <<'EOF'
#include <holdfast/holdfast.h>
#include <string.h>
int main(void) {
    return hf_version_num() == HF_VERSION_NUM && strcmp(hf_strerror(HF_EBUSY), "") != 0 ? 0 : 1;
}
EOF
cat >"$dir/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(holdfast 0.1 REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared PRIVATE holdfast::holdfast)
add_executable(static main.c)
target_link_libraries(static PRIVATE holdfast::holdfast_static)
EOF

quietly() {
    "$@" >"$dir/log" 2>&1 || { echo "FAILED: $*"; cat "$dir/log"; exit 1; }
}

quietly env DESTDIR="$root" cmake --install "$HF_BUILD_DIR"
header=$(find "$root" -path '*/include/holdfast/holdfast.h')
prefix=${header%/include/holdfast/holdfast.h}
libdir=$(dirname "$(find "$root" -name libholdfast.a)")
[ -n "$prefix" ] && [ -n "$libdir" ]

# pkg-config, as a distribution's build would read it from a staging directory.
pc() { # Only ours is staged: what it needs itself comes from the system.
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" holdfast
}
read -ra flags <<<"$(pc --cflags --libs)"
quietly "$CC" -o "$dir/by_pc" "$dir/main.c" "${flags[@]}"
quietly env LD_LIBRARY_PATH="$libdir" "$dir/by_pc"
read -ra flags <<<"$(pc --cflags --libs --static)"
quietly "$CC" -o "$dir/by_pc_static" "$dir/main.c" "${flags[@]/#-lholdfast/-l:libholdfast.a}"
quietly "$dir/by_pc_static"

# A header for C++ as well, where there is a compiler for it.
if command -v c++ >/dev/null; then
    quietly c++ -x c++ -fsyntax-only -Wall -Wextra -Werror "$dir/main.c" -I"$prefix/include"
fi

quietly cmake -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$dir/build"
quietly "$dir/build/shared"
quietly "$dir/build/static"

if [ -x "$HOLDFAST" ]; then
    quietly "$prefix/bin/holdfast" version
fi

manifest=$HF_BUILD_DIR/install_manifest.txt
quietly cmake -DMANIFEST="$manifest" -DDESTDIR="$root" -P "$HF_SOURCE_DIR/cmake/uninstall.cmake"
left=$(find "$root" ! -type d -o -name holdfast)
[ -z "$left" ] || { printf 'FAILED: left after uninstall:\n%s\n' "$left"; exit 1; }
