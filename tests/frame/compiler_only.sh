#!/usr/bin/env bash
# The library alone needs a C compiler and CMake, nothing else: with HF_TLS=OFF it is built where pkg-config finds no library
# and no foreign header can be included. It locks, and says of a url with TLS that it was built without.
set -eu

root=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$root"' EXIT

# Whoever includes one of these fails.
for header in hiredis/hiredis.h openssl/ssl.h openssl/err.h openssl/x509v3.h uthash.h jansson.h; do
    mkdir -p "$root/traps/$(dirname "$header")"
    echo '#error "no foreign header is there"' >"$root/traps/$header"
done
PKG_CONFIG_LIBDIR=$root/none PKG_CONFIG_PATH='' cmake -S "$HF_SOURCE_DIR" -B "$root/build" -G Ninja -DHF_TESTS=OFF -DHF_CLI=OFF \
    -DHF_TLS=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="-O0 -isystem $root/traps" -DCMAKE_INSTALL_PREFIX="$root/installed" \
    >"$root/log" 2>&1 && cmake --build "$root/build" -j 2 >"$root/log" 2>&1 &&
    cmake --install "$root/build" >>"$root/log" 2>&1 || { tail -n 40 "$root/log"; exit 1; }
pc=$(find "$root/installed" -name holdfast.pc)
if ! grep -Eq '^Libs.private: *-pthread$' "$pc"; then
    echo "pkg-config asks for more: $(grep private "$pc")"
    exit 1
fi

cat >"$root/lock.c" <<'END'
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    const char *const secure[] = {"rediss://localhost", "valkeys://localhost", "rediss-sentinel://localhost/x", "zks://localhost"};
    hf_client *client = NULL;
    hf_lock *lock;
    for (int i = 0; i < 4; i++) {
        int err = hf_open(secure[i], NULL, &client);
        if (err != HF_ENOTSUP || strstr(hf_last_error()->text, "built without TLS") == NULL)
            return printf("%s: %d %s\n", secure[i], err, hf_last_error()->text);
    }
    if (argc < 2 || hf_open(argv[1], NULL, &client) != HF_OK || hf_lock_new(client, "alone", &lock) != HF_OK ||
        hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK)
        return printf("%s\n", hf_last_error()->text);
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}
END
"${CC:-cc}" -I"$HF_SOURCE_DIR/include" -o "$root/lock" "$root/lock.c" "$(find "$root/installed" -name libholdfast.a)" -pthread
"${HF_TEST_SERVER:-redis-server}" --port 0 --unixsocket "$root/socket" --save '' --dir "$root" >"$root/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do
    [ -S "$root/socket" ] && break
    sleep 0.1 # No event says that the socket is there.
done
"$root/lock" "unix://$root/socket"

needed=$(readelf -d "$(find "$root/installed" -name 'libholdfast.so.?.?.?')" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -Ev '^(libc|libpthread|libm|libgcc_s|ld-linux.*)\.so' || :)
[ -z "$needed" ] || { echo "it needs $needed"; exit 1; }
