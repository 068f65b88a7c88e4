#!/usr/bin/env bash
# The shared library exports what tests/frame/exports.txt lists and the header declares, and nothing else; the
# static one leaks no name without our prefix; the soname and the never-unload flag are set.
#
#   tests/frame/exports.sh --declared    prints what the header declares, for who adds a function
set -eu

export LC_ALL=C
list=tests/frame/exports.txt
source=${HF_SOURCE_DIR:-$(dirname "${BASH_SOURCE[0]}")/../..}
failures=0

# expect_nothing WHAT TEXT: there must be no text.
expect_nothing() {
    [ -z "$2" ] || { printf 'FAILED: %s:\n%s\n' "$1" "$2"; failures=$((failures + 1)); }
}

declared=$("${CC:-cc}" -E -P "$source/include/holdfast/holdfast.h" |
    tr '\n' ' ' | tr ';' '\n' | grep 'visibility("default")' |
    grep -o 'hf_[a-z0-9_]* *(' | tr -d ' (' | sort)
[ -n "$declared" ]
if [ "${1:-}" = --declared ]; then
    echo "$declared"
    exit 0
fi

# An entry that goes, or changes what it means, breaks programs that are installed already.
lib=$HF_BUILD_DIR/lib
exported=$(nm -D --defined-only "$lib/libholdfast.so" | awk '{print $3}' | sort)
listed=$(cat "$source/$list")
expect_nothing "not sorted: $list" "$(sort -cu "$source/$list" 2>&1)"
expect_nothing "in the header, but not in $list: add them there" \
    "$(comm -23 <(echo "$declared") <(echo "$listed"))"
expect_nothing "in $list, but not in the header: take them out there, or declare them" \
    "$(comm -13 <(echo "$declared") <(echo "$listed"))"
expect_nothing "in $list, but not exported: they are not implemented, or lack HF_API" \
    "$(comm -13 <(echo "$exported") <(echo "$listed"))"
expect_nothing "exported, but not in $list: hide them, or add them there and to the header" \
    "$(comm -23 <(echo "$exported") <(echo "$listed"))"

leaked=$(nm -g --defined-only "$lib/libholdfast.a" | awk 'NF == 3 && $3 !~ /^hfi?_/ {print $3}')
expect_nothing "names without prefix in the archive" "$leaked"

dynamic=$(readelf -d "$lib/libholdfast.so")
version=$("$source/scripts/version" --number)
grep -qF "[libholdfast.so.${version%%.*}]" <<<"$dynamic" || expect_nothing "wrong soname" "$dynamic"
grep -q 'NODELETE' <<<"$dynamic" || expect_nothing "not linked with -z nodelete" "$dynamic"

[ "$failures" -eq 0 ]
