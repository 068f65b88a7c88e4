# shellcheck shell=bash
# Read by portable_*.sh: the sources in another dialect, with another compiler or another C library.
#
# Every file of the library and the tool is looked at (-fsyntax-only, with our warnings as errors), and what needs nothing but
# the C library is built and run: tests/frame/portable.c over src/base. The headers of the other libraries are
# those of this machine; their functions are not needed for that.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The headers of other libraries alone, without the C library's beside them.
foreign_headers() {
    local path
    for path in $(printf '#include <%s>\n' openssl/ssl.h openssl/err.h openssl/x509v3.h jansson.h \
        ${serve:+microhttpd.h} | "${CC:-cc}" -M -xc - | tr -s '\134\n' ' '); do
        case $path in
        */openssl/*) path_in "$path" openssl ;;
        */jansson*.h | */microhttpd.h) ln -sf "$path" "$dir/foreign/" ;;
        esac
    done
}
path_in() { # PATH FOLDER
    mkdir -p "$dir/foreign/$2"
    ln -sf "$1" "$dir/foreign/$2/"
}

warnings=(-Wall -Wextra -Wshadow -Wpointer-arith -Wcast-qual -Wvla -Wstrict-prototypes -Wmissing-prototypes -Werror)

# Skips the test when this compiler cannot make a program that runs.
compiler_runs() { # COMPILER OPTION...
    command -v "$1" >/dev/null || { echo "there is no $1"; exit 77; }
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$dir/empty.c"
    "$@" -o "$dir/empty" "$dir/empty.c" && "$dir/empty" >/dev/null || { echo "$* makes no programs"; exit 77; }
}

# Fails with what the compiler says.
everything_compiles() { # COMPILER OPTION...
    local count serve=
    # `holdfast serve` is left out where its library is missing.
    if echo '#include <microhttpd.h>' | "${CC:-cc}" -E -xc - >/dev/null 2>&1; then serve=yes; fi
    mkdir -p "$dir/foreign"
    foreign_headers
    count=$(find "$HF_SOURCE_DIR/src" "$HF_SOURCE_DIR/cli" -name '*.c' |
        if [ -n "$serve" ]; then cat; else grep -Ev '/cli/serve/|/cli/cmd/cmd_serve'; fi | tee "$dir/files" | wc -l)
    xargs -P 2 -n 12 "$@" -D_GNU_SOURCE= -fsyntax-only "${warnings[@]}" -I"$HF_SOURCE_DIR/src" \
        -I"$HF_SOURCE_DIR/cli" -I"$HF_SOURCE_DIR/include" -isystem "$dir/foreign" <"$dir/files"
    [ "$count" -ge 60 ]
    echo "$count files: $*"
}

# The same for a program that runs.
base_works() { # COMPILER OPTION...
    "$@" -D_GNU_SOURCE= "${warnings[@]}" -O1 -pthread -I"$HF_SOURCE_DIR/src" -I"$HF_SOURCE_DIR/include" \
        -isystem "$dir/foreign" -o "$dir/base" "$HF_SOURCE_DIR"/tests/frame/portable.c "$HF_SOURCE_DIR"/src/{base,task}/*.c
    "$dir/base"
}
