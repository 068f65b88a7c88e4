#!/usr/bin/env bash
# Builds an actor of an older version from the repository's own history: build.sh VERSION COMMIT OUTDIR
# leaves OUTDIR/actor, compiled with ACTOR_OF_0_1 for version 0.1. Only the library of that version is
# built, without its tool and its tests; once, and after that only the actor when it has changed.
# Exit status: 0 built; 77 this machine cannot (a line "SKIP upgrade: reason" says why); 1 a real error.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ $# -ne 3 ]; then
    echo "usage: build.sh VERSION COMMIT OUTDIR" >&2
    exit 1
fi
version=$1
commit=$2
mkdir -p "$3"
out=$(cd "$3" && pwd)
log=$out/build.log

skip() {
    echo "SKIP upgrade: $1"
    exit 77
}

# The repository may belong to another user than the one that runs the tests.
history() {
    git -c safe.directory="$root" -C "$root" "$@"
}

# Test programs side by side share a build directory.
exec 9>"$out/lock"
flock 9

library=$out/build/lib/libholdfast.a
if ! [ -e "$out/built" ]; then
    command -v git >/dev/null || skip "git is not installed, so $version cannot be had from the history"
    history cat-file -e "$commit^{commit}" 2>/dev/null ||
        skip "this copy has no history with $version ($commit) in it"
    rm -rf "$out/source" "$out/build"
    mkdir "$out/source"
    history archive "$commit" CMakeLists.txt cmake include src | tar -x -C "$out/source"
    # As it is installed, asserts included, but unoptimised: that is built in less time.
    if ! { cmake -G Ninja -S "$out/source" -B "$out/build" -DHF_TESTS=OFF -DHF_CLI=OFF \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO=-O0 &&
        cmake --build "$out/build" -j "${JOBS:-$(nproc)}" --target holdfast_static; } \
        >"$log" 2>&1 9>&-; then
        cat "$log" >&2
        exit 1
    fi
    touch "$out/built"
fi

if [ -z "$(find "$here/actor" "$here/books.h" -newer "$out/actor" -print -quit 2>&1)" ]; then
    exit 0
fi
"${CC:-cc}" -std=gnu11 -D_GNU_SOURCE "-DACTOR_OF_${version//./_}" -O1 -Wall -Wextra -Werror \
    -I"$out/source/include" -I"$here/.." "$here"/actor/*.c "$library" -lhiredis -lssl -lcrypto -pthread \
    -o "$out/actor"
