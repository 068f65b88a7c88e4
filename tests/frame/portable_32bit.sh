#!/usr/bin/env bash
# 32 bits, with a time of 32 and of 64: system calls that bypass the C library must know which of them the kernel means.
# shellcheck source=tests/frame/libportable.sh
. "$(dirname "$0")/libportable.sh"

# Debian's compiler for 32 bits brings the C library's headers, but no way to the kernel's, which serve both widths.
kernel_headers=/usr/include/$("${CC:-cc}" -print-multiarch)
set -- "${CC:-cc}" -std=gnu11 -m32 -idirafter "$kernel_headers"
compiler_runs "$@"
for time in "" "-D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64"; do
    # shellcheck disable=SC2086 # Words.
    everything_compiles "$@" -Wno-psabi $time
    # shellcheck disable=SC2086
    base_works "$@" -Wno-psabi $time
done
