#!/usr/bin/env bash
# Builds the Java half of the interop suite: build.sh OUTDIR [VERSION] leaves OUTDIR/interop.jar and
# OUTDIR/lib/*.jar. Does nothing when they are newer than the sources, so only the first run needs
# the network. With a VERSION of Redisson, also OUTDIR/redisson-VERSION/*.jar, to be run instead of
# lib/: the same program, compiled once, so what that version lacks shows when it is called. Exit status: 0 built; 77 this machine cannot (a line "SKIP interop: reason" says
# why); 1 a real error.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: build.sh OUTDIR [VERSION]" >&2
    exit 1
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
stamp=$out/built
log=$out/build.log

skip() {
    echo "SKIP interop: $1"
    exit 77
}

command -v java >/dev/null || skip "java is not installed"
command -v mvn >/dev/null || skip "mvn is not installed"

# Test runs side by side may share a build directory.
exec 9>"$out/lock"
flock 9

changed() {
    find "$here/java/pom.xml" "$here/java/src" -newer "$stamp" -print -quit
}

maven() {
    if mvn -B -f "$here/java/pom.xml" -Dout="$out" "$@" >"$log" 2>&1 9>&-; then
        return
    fi
    unreachable='Could not (resolve|transfer)|could not be resolved|Unresolve?able|UnknownHost'
    if grep -qE "$unreachable" "$log"; then
        skip "Maven cannot fetch the packages (see build.log in the build directory)"
    fi
    cat "$log" >&2
    exit 1
}

if ! [ -e "$stamp" ] || [ -n "$(changed)" ]; then
    rm -f "$stamp"
    maven package
    touch "$stamp"
fi

if [ $# -eq 2 ] && ! [ -e "$out/redisson-$2/fetched" ]; then
    maven -P '!unix' -Dredisson.version="$2" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$out/redisson-$2"
    touch "$out/redisson-$2/fetched"
fi
