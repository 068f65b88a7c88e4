#!/usr/bin/env bash
# The other compilers that are here, and ours in the newest language it knows. C23 has new keywords, and a macro
# `unreachable` in <stddef.h>; a compiler that has the language but not yet the macro is given it.
# shellcheck source=tests/frame/libportable.sh
. "$(dirname "$0")/libportable.sh"

c23_of() { # COMPILER
    local standard
    for standard in gnu23 gnu2x; do
        ! "$1" -std=$standard -fsyntax-only -xc /dev/null 2>/dev/null || { echo "-std=$standard"; return; }
    done
}

ours=${CC:-cc}
for name in gcc clang; do
    command -v "$name" >/dev/null || continue
    [ "$(readlink -f "$(command -v "$ours")")" != "$(readlink -f "$(command -v "$name")")" ] || continue
    compiler_runs "$name" -std=gnu11
    everything_compiles "$name" -std=gnu11
    base_works "$name" -std=gnu11
done

c23=$(c23_of "$ours")
[ -n "$c23" ] || { echo "$ours has no C23"; exit 77; }
compiler=("$ours" "$c23")
printf '#include <stddef.h>\n#ifndef unreachable\n#error none\n#endif\n' |
    "${compiler[@]}" -fsyntax-only -xc - 2>/dev/null || compiler+=('-Dunreachable()=__builtin_unreachable()')
everything_compiles "${compiler[@]}"
base_works "${compiler[@]}"
