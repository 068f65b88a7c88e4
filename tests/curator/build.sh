#!/usr/bin/env bash
# Builds what the tests with ZooKeeper need: build.sh OUTDIR leaves OUTDIR/curator.jar (the Java program)
# and OUTDIR/lib/*.jar (ZooKeeper's server and Curator), and OUTDIR/servers, which says where the servers'
# classes are. Does nothing when they are newer than the sources, so only the first run needs the network.
#   build.sh OUTDIR server     only the server is wanted: Debian's package will do where Maven does not
#   build.sh OUTDIR VERSION    also OUTDIR/curator-VERSION/*.jar, to be run instead of lib/: the same
#                              program, compiled once
# Exit status: 0 built; 77 this machine cannot (a line "SKIP zookeeper: reason" says why); 1 a real error.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: build.sh OUTDIR [server | VERSION]" >&2
    exit 1
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
wanted=${2:-}
stamp=$out/built
log=$out/build.log
debian=/usr/share/java

skip() {
    if [ "$wanted" = server ] && [ -e "$debian/zookeeper.jar" ] && command -v java >/dev/null; then
        echo "$debian/*" >"$out/servers"
        exit 0
    fi
    echo "SKIP zookeeper: $1"
    exit 77
}

command -v java >/dev/null || skip "java is not installed"

# Test runs side by side may share a build directory.
exec 9>"$out/lock"
flock 9

changed() {
    find "$here/java/pom.xml" "$here/java/src" -newer "$stamp" -print -quit
}

maven() {
    command -v mvn >/dev/null || skip "mvn is not installed"
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
    echo "$out/lib/*" >"$out/servers"
    touch "$stamp"
fi

if [ -n "$wanted" ] && [ "$wanted" != server ] && ! [ -e "$out/curator-$wanted/fetched" ]; then
    maven -Dcurator.version="$wanted" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$out/curator-$wanted"
    touch "$out/curator-$wanted/fetched"
fi
