#!/usr/bin/env bash
# Where libmicrohttpd is missing the tool is built without `serve`, and says so by name: when it is configured, and
# when it is asked to serve. All else is there.
set -eu

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

cmake -S "$HF_SOURCE_DIR" -B "$root/build" -G Ninja -DHF_TESTS=OFF -DHF_SERVE=OFF >"$root/log" 2>&1 ||
    { cat "$root/log"; exit 1; }
grep -q 'holdfast serve. is left out' "$root/log" || { echo "the configuration does not say so"; exit 1; }
if grep -Eq 'serve/(http|loop|stream)\.c\.o|lmicrohttpd|page/page' "$root/build/build.ninja"; then
    echo "it is not left out"
    exit 1
fi

# The tool itself, on the library that is built already.
mapfile -t sources < <(find "$HF_SOURCE_DIR/cli" -name '*.c' ! -path '*/serve/*')
sources+=("$HF_SOURCE_DIR/cli/serve/without_serve.c")
# shellcheck disable=SC2046
${CC:-cc} -std=gnu11 -D_GNU_SOURCE= -I"$HF_SOURCE_DIR/cli" -I"$HF_SOURCE_DIR/include" -o "$root/holdfast" "${sources[@]}" \
    "$HF_BUILD_DIR/lib/libholdfast.a" $(pkg-config --libs jansson openssl) -lpthread
status=0
"$root/holdfast" --no-local -s "$root/none" serve >"$root/log" 2>&1 || status=$?
if [ "$status" != 69 ] || ! grep -q "this holdfast was built without 'serve', since libmicrohttpd was missing" "$root/log"; then
    echo "status $status: $(cat "$root/log")"
    exit 1
fi
"$root/holdfast" help serve | grep -q 'holdfast .* serve'
"$root/holdfast" version >/dev/null
