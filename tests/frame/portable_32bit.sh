#!/usr/bin/env bash
# 32 bits, with a time of 32 and of 64: system calls that bypass the C library must know which of them the kernel means.
# shellcheck source=tests/frame/libportable.sh
. "$(dirname "$0")/libportable.sh"

compiler_runs "${CC:-cc}" -std=gnu11 -m32
for time in "" "-D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64"; do
    # shellcheck disable=SC2086 # Words.
    everything_compiles "${CC:-cc}" -std=gnu11 -m32 -Wno-psabi $time
    # shellcheck disable=SC2086
    base_works "${CC:-cc}" -std=gnu11 -m32 -Wno-psabi $time
done
