#!/usr/bin/env bash
# The Python package beside redis-py 8 with hiredis: python.sh OUTDIR URL [SECONDS [RUNS]]
# Builds the package from this tree into a virtual environment of OUTDIR, unless it has the same one, then runs python.py there.
# HF_BENCH_PEERS: the program whose rows of the C library stand beside.
# Exit status 77: this machine cannot, and a line "SKIP python: reason" on standard error says why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    echo "usage: python.sh OUTDIR URL [SECONDS [RUNS]]" >&2
    exit 1
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)

skip() {
    echo "SKIP python: $1" >&2
    exit 77
}

command -v python3 >/dev/null || skip "python3 is not installed"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "python3 is older than 3.11"
# What the package is made of, committed or not.
tree() {
    (cd "$here/../.." && find CMakeLists.txt pyproject.toml cmake cli include python src -type f ! -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
}
built=$(tree)
if [ "$(cat "$out/venv/complete" 2>/dev/null)" != "$built" ]; then
    rm -rf "$out/venv"
    python3 -m venv "$out/venv" >"$out/install.log" 2>&1 || skip "python3 -m venv does not work"
    "$out/venv/bin/pip" install --quiet --disable-pip-version-check 'redis[hiredis]==8.1.0' "$here/../.." \
        >>"$out/install.log" 2>&1 || skip "pip cannot fetch or build a package (see $out/install.log)"
    echo "$built" >"$out/venv/complete"
fi
PYTHONDONTWRITEBYTECODE=1 exec "$out/venv/bin/python" "$here/python.py" "$2" "${3:-3}" "${4:-5}"
