#!/usr/bin/env bash
# musl: a C library without the GNU one's strerror_r, sigabbrev_np and close_range, and without the kernel's headers.
# shellcheck source=tests/frame/libportable.sh
. "$(dirname "$0")/libportable.sh"

compiler_runs musl-gcc -std=gnu11
everything_compiles musl-gcc -std=gnu11
base_works musl-gcc -std=gnu11 -static
