#!/usr/bin/env bash
# Builds the Java actor of the tests with one library: build.sh OUTDIR redisson|curator [VERSION] leaves, in OUTDIR/LIBRARY,
# actor.jar and lib/*.jar. Does nothing when they are newer than the sources, so only the first run needs the network. With a
# VERSION of the library also OUTDIR/LIBRARY/VERSION/*.jar, to be run instead of lib/: the same program, compiled once, so a
# call that the version lacks fails when it is made.
#   build.sh OUTDIR server    only ZooKeeper's server is wanted, whose classes are with Curator's: Debian's package will do
#                             where Maven does not. OUTDIR/servers says where they are.
# Exit status: 0 built; 77 this machine cannot (a line "SKIP LIBRARY: reason" says why); 1 a real error.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
usage() {
    echo "usage: build.sh OUTDIR redisson|curator|server [VERSION]" >&2
    exit 1
}
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    usage
fi
wanted=$2
version=${3:-}
case $wanted in
redisson) library=redisson profiles=redisson,unix ;;
curator | server) library=curator profiles=curator ;;
*) usage ;;
esac
mkdir -p "$1/$library"
servers=$(cd "$1" && pwd)/servers
out=$(cd "$1/$library" && pwd)
stamp=$out/built
log=$out/build.log
debian=/usr/share/java

skip() {
    if [ "$wanted" = server ] && [ -e "$debian/zookeeper.jar" ] && command -v java >/dev/null; then
        echo "$debian/*" >"$servers"
        exit 0
    fi
    echo "SKIP $wanted: $1"
    exit 77
}

command -v java >/dev/null || skip "java is not installed"

# Test runs side by side may share a build directory.
exec 9>"$out/lock"
flock 9

changed() {
    find "$here/pom.xml" "$here/src" -newer "$stamp" -print -quit
}

maven() {
    command -v mvn >/dev/null || skip "mvn is not installed"
    if mvn -B -f "$here/pom.xml" -Dout="$out" -Dlibrary="$library" "$@" >"$log" 2>&1 9>&-; then
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
    maven -P "$profiles" package
    [ "$library" != curator ] || echo "$out/lib/*" >"$servers"
    touch "$stamp"
fi

if [ -n "$version" ] && ! [ -e "$out/$version/fetched" ]; then
    maven -P "$library" "-D$library.version=$version" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$out/$version"
    touch "$out/$version/fetched"
fi
