#!/usr/bin/env bash
# Redisson's rows of the benchmark table: run.sh OUTDIR URL [SECONDS [RUNS [WARMUP_SECONDS]]]
# Builds into OUTDIR on first use, then prints one JSON line a run on standard output.
# Exit status 77: this machine cannot, and a line "SKIP redisson: reason" on standard error says
# why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    echo "usage: run.sh OUTDIR URL [SECONDS [RUNS [WARMUP_SECONDS]]]" >&2
    exit 1
fi
"$here/build.sh" "$1"
out=$(cd "$1" && pwd)
exec java -Dorg.slf4j.simpleLogger.defaultLogLevel=off -cp "$out/bench.jar:$out/lib/*" \
    holdfast.bench.Main "$2" "${3:-3}" "${4:-5}" "${5:-5}"
