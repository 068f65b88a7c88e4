#!/usr/bin/env bash
# The Python package as distributions build it, with the installed libholdfast: it imports beside a library of the same
# major number and at least its minor one, and refuses others in one sentence.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"
python=$(command -v python3.11 || command -v python3 || :)
[ -n "$python" ] && "$python" -c 'import os, sys, sysconfig
sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    { echo "skipped: no Python 3.11 with its headers"; exit 77; }

quietly() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; fail "$*"; }; }

# imports NUMBER: the module's answer if the library says that this is its version.
imports() {
    echo "int hf_version_num(void) { return $1; }" >"$dir/other.c"
    quietly "$CC" -shared -fPIC -o "$dir/other.so" "$dir/other.c"
    LD_PRELOAD=$dir/other.so LD_LIBRARY_PATH=$libdir PYTHONPATH=$dir/build/python "$python" -c 'import holdfast._core'
}

test_versions_that_belong_together() {
    quietly env DESTDIR="$dir/root" cmake --install "$HF_BUILD_DIR"
    libdir=$(dirname "$(find "$dir/root" -name libholdfast.a)")
    sed -i "s#^\(prefix\|libdir\|includedir\)=/#\\1=$dir/root/#" "$libdir/pkgconfig/holdfast.pc"
    quietly env PKG_CONFIG_PATH="$libdir/pkgconfig" cmake -G Ninja -S "$HF_SOURCE_DIR" \
        -B "$dir/build" -DHF_PYTHON_SYSTEM=ON -DCMAKE_BUILD_TYPE=None -DPython_EXECUTABLE="$python"
    quietly cmake --build "$dir/build"
    local major number
    number=$("$HF_SOURCE_DIR/scripts/version" --number | awk -F. '{ print $1 * 10000 + $2 * 100 }')
    major=$((number / 10000))
    expect 0 imports "$number"
    expect 0 imports $((number + 500))
    for number in $((number - 1)) $(((major + 1) * 10000)) 201; do
        expect 1 imports "$number"
        says "ImportError: holdfast needs libholdfast $major."
    done
}

run_tests
