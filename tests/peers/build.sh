#!/usr/bin/env bash
# Builds the peers of one language: build.sh OUTDIR python|node|go|java|rust|text. Each library comes from its own registry, by the
# language's ordinary client, into OUTDIR/LANGUAGE. Does nothing when that is newer than the sources, so only the first run
# needs the network. Exit status: 0 built; 77 this machine cannot (a line "SKIP LANGUAGE: reason" says why); 1 a real error.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 2 ] || ! [ -d "$here/$2" ]; then
    echo "usage: build.sh OUTDIR python|node|go|java|rust|text" >&2
    exit 1
fi
language=$2
sources=$here/$language
mkdir -p "$1/$language"
out=$(cd "$1/$language" && pwd)
stamp=$out/built
log=$out/build.log

skip() {
    echo "SKIP $language: $1"
    exit 77
}

needs() { # COMMAND
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

# What comes from a registry may fail to come.
fetch() {
    echo "peers: fetching the libraries of $language"
    if ! timeout 300 "$@" >"$log" 2>&1 9>&-; then
        tail -n 3 "$log"
        skip "its libraries cannot be fetched (see build.log in the build directory)"
    fi
}

build() {
    if ! "$@" >"$log" 2>&1 9>&-; then
        cat "$log" >&2
        exit 1
    fi
}

build_python() {
    needs python3
    rm -rf "$out/venv"
    python3 -m venv "$out/venv" >"$log" 2>&1 || skip "python3 -m venv does not work: python3-venv is not installed"
    fetch "$out/venv/bin/pip" install --no-input --disable-pip-version-check --retries 2 -r "$sources/requirements.txt"
}

# Nothing is fetched: it needs no library.
build_text() {
    needs python3
}

build_node() {
    needs node
    needs npm
    cp "$sources/package.json" "$sources/package-lock.json" "$out"
    fetch npm ci --prefix "$out" --no-audit --no-fund --ignore-scripts
}

build_go() {
    needs go
    if ! go version | awk '{ split(substr($3, 3), v, "."); exit v[1] == 1 && v[2] < 21 }'; then
        skip "$(go version) is too old: 1.21 is needed, to fetch the one that go.mod names"
    fi
    cd "$sources"
    export GOFLAGS='-buildvcs=false -mod=mod'
    if ! GOPROXY=off go list -deps . >/dev/null 2>&1; then
        fetch go mod download
    fi
    build go build -o "$out/actor" .
}

build_java() {
    needs java
    needs mvn
    if ! mvn -B -f "$sources/pom.xml" -Dout="$out" package >"$log" 2>&1 9>&-; then
        if grep -qE 'Could not (resolve|transfer)|could not be resolved|Unresolve?able|UnknownHost' "$log"; then
            skip "Maven cannot fetch the packages (see build.log in the build directory)"
        fi
        cat "$log" >&2
        exit 1
    fi
}

build_rust() {
    needs cargo
    cd "$sources"
    export CARGO_TARGET_DIR=$out
    if ! cargo fetch --offline >"$log" 2>&1; then
        fetch cargo fetch
    fi
    if ! cargo build --offline >"$log" 2>&1 9>&-; then
        if grep -qE 'requires rustc|is not supported by the following|edition' "$log"; then
            skip "$(rustc --version) is too old for rslock"
        fi
        cat "$log" >&2
        exit 1
    fi
}

# Where a distribution keeps a newer one than its default, or rustup its own.
PATH=$PATH:/usr/local/go/bin:${HOME:-/root}/.cargo/bin

# Test runs side by side may share a build directory.
exec 9>"$out/lock"
flock 9
if [ -e "$stamp" ] && [ -z "$(find "$sources" -newer "$stamp" -print -quit)" ]; then
    exit 0
fi
rm -f "$stamp"
"build_$language"
touch "$stamp"
