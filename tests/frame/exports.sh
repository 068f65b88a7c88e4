#!/usr/bin/env bash
# The shared library exports what the header declares and nothing else; the static one leaks no name
# without our prefix; the soname and the never-unload flag are set.
set -eu

lib=$HF_BUILD_DIR/lib
failures=0

# expect_nothing WHAT TEXT: there must be no text.
expect_nothing() {
    [ -z "$2" ] || { printf 'FAILED: %s:\n%s\n' "$1" "$2"; failures=$((failures + 1)); }
}

exported=$(nm -D --defined-only "$lib/libholdfast.so" | awk '{print $3}' | sort)
declared=$("$CC" -E -P "$HF_SOURCE_DIR/include/holdfast/holdfast.h" |
    tr '\n' ' ' | tr ';' '\n' | grep 'visibility("default")' |
    grep -o 'hf_[a-z0-9_]* *(' | tr -d ' (' | sort)
[ -n "$declared" ]
expect_nothing "declared, but not exported" "$(comm -13 <(echo "$exported") <(echo "$declared"))"
expect_nothing "exported, but not declared" "$(comm -23 <(echo "$exported") <(echo "$declared"))"

leaked=$(nm -g --defined-only "$lib/libholdfast.a" | awk 'NF == 3 && $3 !~ /^hfi?_/ {print $3}')
expect_nothing "names without prefix in the archive" "$leaked"

dynamic=$(readelf -d "$lib/libholdfast.so")
grep -q 'SONAME.*\[libholdfast\.so\.0\]' <<<"$dynamic" || expect_nothing "wrong soname" "$dynamic"
grep -q 'NODELETE' <<<"$dynamic" || expect_nothing "not linked with -z nodelete" "$dynamic"

[ "$failures" -eq 0 ]
