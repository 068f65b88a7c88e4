#!/usr/bin/env bash
# CMake 3.22, the one of the oldest systems that are supported is enough, and every file says so. The presets are of the
# version that it reads. Tried with it where it is: HF_TEST_CMAKE names one; else with the cmake of this machine.
set -eu

cd "$HF_SOURCE_DIR"
wanted=3.22
failures=0

while IFS= read -r line; do
    [[ $line == *"VERSION $wanted)"* ]] || { echo "FAILED: $line"; failures=$((failures + 1)); }
done < <(grep -rn '^ *cmake_minimum_required' CMakeLists.txt cmake tests/frame/*.sh)
grep -q '"version": 3,' CMakePresets.json || { echo "FAILED: presets of a later version"; failures=$((failures + 1)); }
grep -q '"major": 3, "minor": 22' CMakePresets.json || { echo "FAILED: the presets want another"; failures=$((failures + 1)); }

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake=${HF_TEST_CMAKE:-cmake}
"$cmake" --version | head -n 1
"$cmake" --preset test -B "$build" >"$build/log" 2>&1 || { cat "$build/log"; echo "FAILED: configuring"; exit 1; }
! grep -i 'deprecat' "$build/log" || { echo "FAILED: that is going to end"; failures=$((failures + 1)); }
[ "$failures" -eq 0 ]
