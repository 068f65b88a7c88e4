#!/usr/bin/env bash
# redis-py's rows of the benchmark table: redis_py.sh OUTDIR URL [SECONDS [RUNS [WARMUP_SECONDS]]]
# Installs the package into OUTDIR on first use, then prints one JSON line a run on standard output.
# Exit status 77: this machine cannot, and a line "SKIP redis-py: reason" on standard error says
# why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    echo "usage: redis_py.sh OUTDIR URL [SECONDS [RUNS [WARMUP_SECONDS]]]" >&2
    exit 1
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)

skip() {
    echo "SKIP redis-py: $1" >&2
    exit 77
}

command -v python3 >/dev/null || skip "python3 is not installed"
if [ ! -d "$out/redis" ]; then
    python3 -m pip --version >/dev/null 2>&1 || skip "pip is not installed"
    python3 -m pip install --quiet --disable-pip-version-check --target "$out" redis \
        >"$out/install.log" 2>&1 || skip "pip cannot fetch the package (see $out/install.log)"
fi
PYTHONPATH=$out PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/redis_py.py" \
    "$2" "${3:-3}" "${4:-5}" "${5:-1}"
