#!/usr/bin/env bash
# The public headers with every compiler that is here, in every language they are for, and with more warnings than
# our own code is compiled with: what a user's project is set to must not fail in our header. Each by itself, and in two
# files of one program. Each initialiser, also one that was added yesterday, can be written in C++.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
include=$HF_SOURCE_DIR/include
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wundef -Werror)
failures=0
count=0

compiles() { # COMPILER OPTION...
    count=$((count + 1))
    "$@" "${warnings[@]}" -I"$include" >"$dir/log" 2>&1 || {
        echo "FAILED: $*"
        cat "$dir/log"
        failures=$((failures + 1))
    }
}
there() { command -v "$1" >/dev/null; }

# struct and macro of each initialiser: "hf_options HF_OPTIONS_INIT".
initialisers=$(sed -n 's/^#define \(HF_[A-Z_]*_INIT\) HF_INIT(\(hf_[a-z_]*\),.*/\2 \1/p' \
    "$include/holdfast/holdfast.h")
[ "$(wc -l <<<"$initialisers")" -ge 8 ]
{
    echo '#include <holdfast/holdfast.h>'
    awk '{ printf "%s use_%s(void); %s use_%s(void) { %s made = %s; return made; }\n", $1, $1, $1, $1, $1, $2 }' \
        <<<"$initialisers"
    echo 'hf_fence use_hf_fence(void); hf_fence use_hf_fence(void) { hf_fence made = HF_FENCE_INIT; return made; }'
} >"$dir/initialisers.c"
{
    echo '#include <holdfast/holdfast.hpp>'
    cat "$dir/initialisers.c"
} >"$dir/other.cpp"
printf '#include <holdfast/holdfast.hpp>\nint main() { return HF_OK; }\n' >"$dir/main.cpp"

for compiler in gcc clang; do
    there "$compiler" || continue
    compiles "$compiler" -std=c11 -Wstrict-prototypes -c -o "$dir/o" "$dir/initialisers.c"
done
for compiler in g++ clang++; do
    there "$compiler" || continue
    for standard in c++17 c++20; do
        compiles "$compiler" -std="$standard" -Wold-style-cast -o "$dir/main" "$dir/main.cpp" "$dir/other.cpp"
    done
done

[ "$count" -gt 0 ] || { echo "no compiler of a name we know"; exit 77; }
[ "$failures" -eq 0 ]
