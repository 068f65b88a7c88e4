#!/usr/bin/env bash
# npm redlock's rows of the benchmark table: redlock.sh OUTDIR URL [SECONDS [RUNS [WARMUP_SECONDS]]]
# Installs the packages into OUTDIR on first use, then prints one JSON line a run on standard
# output.
# Exit status 77: this machine cannot, and a line "SKIP redlock: reason" on standard error says
# why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    echo "usage: redlock.sh OUTDIR URL [SECONDS [RUNS [WARMUP_SECONDS]]]" >&2
    exit 1
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)

skip() {
    echo "SKIP redlock: $1" >&2
    exit 77
}

command -v node >/dev/null || skip "node is not installed"
if [ ! -d "$out/node_modules/redlock" ] || [ ! -d "$out/node_modules/ioredis" ]; then
    command -v npm >/dev/null || skip "npm is not installed"
    npm install --prefix "$out" --no-audit --no-fund --no-save --ignore-scripts \
        redlock@4.2.0 ioredis@5 >"$out/install.log" 2>&1 ||
        skip "npm cannot fetch the packages (see $out/install.log)"
fi
NODE_PATH=$out/node_modules exec node "$here/redlock.js" "$2" "${3:-3}" "${4:-5}" "${5:-3}"
