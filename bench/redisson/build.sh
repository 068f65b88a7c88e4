#!/usr/bin/env bash
# Builds Redisson's programs of the benchmark into OUTDIR, unless that is done: build.sh OUTDIR
# Exit status 77: this machine cannot, and a line "SKIP redisson: reason" on standard error says why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)

skip() {
    echo "SKIP redisson: $1" >&2
    exit 77
}

command -v java >/dev/null || skip "java is not installed"
changed() {
    find "$here/pom.xml" "$here/src" -newer "$out/built" -print -quit
}
if [ ! -e "$out/built" ] || [ -n "$(changed)" ]; then
    command -v mvn >/dev/null || skip "mvn is not installed"
    rm -f "$out/built"
    if ! mvn -B -f "$here/pom.xml" -Dout="$out" package >"$out/build.log" 2>&1; then
        unreachable='Could not (resolve|transfer)|could not be resolved|Unresolve?able|UnknownHost'
        if grep -qE "$unreachable" "$out/build.log"; then
            skip "Maven cannot fetch the packages (see $out/build.log)"
        fi
        cat "$out/build.log" >&2
        exit 1
    fi
    touch "$out/built"
fi
