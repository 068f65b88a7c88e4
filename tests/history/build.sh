#!/usr/bin/env bash
# Builds the checker of histories: build.sh OUTDIR leaves OUTDIR/checker and OUTDIR/checker.test. Only
# the first run needs the network, for one Go module. Exit status: 0 built; 77 this machine cannot (a
# line "SKIP history: reason" says why); 1 a real error.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
    echo "usage: build.sh OUTDIR" >&2
    exit 1
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
log=$out/build.log

skip() {
    echo "SKIP history: $1"
    exit 77
}

# Where a distribution keeps a newer one than its default.
PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || skip "go is not installed"
if ! go version | awk '{ split(substr($3, 3), v, "."); exit v[1] == 1 && v[2] < 19 }'; then
    skip "$(go version) is too old: 1.19 is needed"
fi
export GOFLAGS=-buildvcs=false GOTOOLCHAIN=local

# Test runs side by side may share a build directory.
exec 9>"$out/lock"
flock 9

if [ -e "$out/built" ] && [ -z "$(find "$here/checker" -newer "$out/built" -print -quit)" ]; then
    exit 0
fi
cd "$here/checker"
rm -f "$out/built"
if ! GOFLAGS="$GOFLAGS -mod=mod" GOPROXY=off go list -deps . >/dev/null 2>&1; then
    echo "history: fetching the Go modules of go.mod"
    if ! timeout 120 go mod download -x >"$log" 2>&1 9>&-; then
        tail -n 3 "$log"
        skip "the Go modules cannot be fetched (see build.log in the build directory)"
    fi
fi
echo "history: building the checker"
if ! { go build -o "$out/checker" . && go test -c -o "$out/checker.test" .; } >"$log" 2>&1 9>&-; then
    cat "$log" >&2
    exit 1
fi
touch "$out/built"
