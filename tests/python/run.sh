#!/usr/bin/env bash
# run.sh NAME...: the tests of the Python package in test_NAME.py, in a virtual environment in the build directory. With
# `others`: some of them with every other interpreter from 3.11 on; with `asan`: most of them with a module built with
# AddressSanitizer. Exit status 77: this machine cannot, and a line says why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
: "${HF_BUILD_DIR:?}" "${HF_SOURCE_DIR:?}"
place=$HF_BUILD_DIR/python-venv
package=$HF_BUILD_DIR/python
mkdir -p "$place"

skip() {
    echo "SKIP python: $1"
    exit 77
}

[ -e "$HF_BUILD_DIR/python/holdfast/_core.abi3.so" ] || skip "the package was not built: Python 3.11 or its headers are missing"
command -v setpriv >/dev/null || skip "setpriv is not installed"

# Every interpreter from 3.11 on, one of each version: PATH first.
interpreters() {
    local version candidate
    for version in 3.11 3.12 3.13 3.14; do
        for candidate in "$(command -v "python$version" || :)" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
            if [ -x "$candidate" ] && "$candidate" -c "import sys, ssl, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
                echo "$version $candidate"
                break
            fi
        done
    done
}

# venv VERSION INTERPRETER: made once; the packages come from the registry. If it did not answer while this test waited for
# its turn, it is not asked again.
venv() {
    local dir=$place/$1 begun
    begun=$(date +%s)
    exec 9>"$place/$1.lock"
    flock 9
    [ "$(stat -c %Y "$dir.failed" 2>/dev/null || echo 0)" -lt "$begun" ] || skip "$(cat "$dir.failed")"
    if ! [ "$dir/complete" -nt "$here/requirements.txt" ]; then
        rm -rf "$dir"
        "$2" -m venv "$dir" >"$place/$1.log" 2>&1 || skip "python3 -m venv does not work: python3-venv is not installed"
        timeout 300 "$dir/bin/pip" install --no-input --disable-pip-version-check --retries 2 -r "$here/requirements.txt" \
            >>"$place/$1.log" 2>&1 9>&- || {
            echo "no package index answers, or it lacks a package (see $place/$1.log)" >"$dir.failed"
            skip "$(cat "$dir.failed")"
        }
        touch "$dir/complete"
    fi
    exec 9>&-
}

# pytest VERSION ARGUMENT...
pytest() {
    local version=$1
    shift
    PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1 "$place/$version/bin/python" -m pytest -q -rs --timeout 400 \
        -p no:cacheprovider -p no:asyncio -c "$HF_SOURCE_DIR/pyproject.toml" --rootdir "$HF_SOURCE_DIR" "$@"
}

mapfile -t found < <(interpreters)
[ ${#found[@]} -gt 0 ] || skip "there is no Python from 3.11 on"

if [ "$1" = others ]; then
    [ ${#found[@]} -gt 1 ] || skip "there is one interpreter only: ${found[0]}"
    for line in "${found[@]:1}"; do
        echo "with $line"
        venv "${line%% *}" "${line#* }"
        pytest "${line%% *}" "$here"/test_{kinds,asyncio,loss,signals,processes}.py \
            -k 'plain or interpreters or end_of or lost or loss or reentrant or forgotten or collected or own_client or gevent'
    done
    exit
fi
venv "${found[0]%% *}" "${found[0]#* }"

# The interpreter is not instrumented: it takes libasan from LD_PRELOAD, and leaves its own leaks. gevent is C++, and
# libasan looks for libstdc++ when it starts: libubsan brings it. A child may hang in libasan's malloc if it was forked
# while another thread was there.
if [ "$1" = asan ]; then
    dir=$HF_BUILD_DIR/python-asan
    libasan=$(gcc -print-file-name=libasan.so 2>/dev/null || :)
    [ -e "$libasan" ] || skip "gcc's libasan is not installed"
    mkdir -p "$dir"
    { cmake -S "$HF_SOURCE_DIR" -B "$dir" -G Ninja -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DCMAKE_C_FLAGS_RELWITHDEBINFO='-O1 -g1' -DHF_TESTS=OFF -DHF_CLI=OFF -DHF_PYTHON=ON -DHF_SANITIZE=address,undefined &&
        cmake --build "$dir" --target hf_python; } >"$dir/build.log" 2>&1 || {
        tail -n 50 "$dir/build.log"
        exit 1
    }
    package=$dir/python
    libubsan=$(gcc -print-file-name=libubsan.so)
    export LD_PRELOAD="$libasan $libubsan" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 PYTHONMALLOC=malloc HF_SOAK=0
    pytest "${found[0]%% *}" "$here"/test_{kinds,asyncio,loss,signals,processes}.py -k 'not zookeeper and not grows and not fork'
    exit
fi
for name in "$@"; do
    set -- "$@" "$here/test_$name.py"
    shift
done
pytest "${found[0]%% *}" "$@"
