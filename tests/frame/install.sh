#!/usr/bin/env bash
# An installed holdfast can be used from C and from C++, through pkg-config and through find_package, shared and
# static: eight programs, built outside the tree, each of which takes a lock on a real server. Uninstalling takes
# everything away again, and nothing else.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

root=$dir/root
user=$dir/user
mkdir "$user"

cat >"$user/main.c" <<'END'
#include <holdfast/holdfast.h>
#include <stdio.h>
int main(int argc, char **argv) {
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    bool mine = false;
    int err = hf_version_num() == HF_VERSION_NUM ? HF_OK : HF_ENOTSUP;
    if (err == HF_OK)
        err = hf_open(argc > 1 ? argv[1] : NULL, NULL, &client);
    if (err == HF_OK)
        err = hf_lock_new(client, "installed", &lock);
    if (err == HF_OK)
        err = hf_lock_acquire(lock);
    if (err == HF_OK)
        err = hf_lock_is_mine(lock, &mine);
    if (err == HF_OK)
        err = hf_lock_release(lock);
    if (err != HF_OK)
        fprintf(stderr, "%s: %s\n", hf_strerror(err), hf_last_error()->text);
    hf_lock_free(lock);
    hf_close(client);
    return err == HF_OK && mine ? 0 : 1;
}
END
cat >"$user/main.cpp" <<'END'
#include <holdfast/holdfast.hpp>
#include <iostream>
#include <mutex>
int main(int argc, char **argv) {
    try {
        holdfast::client client(argc > 1 ? argv[1] : nullptr);
        holdfast::mutex mutex(client, "installed");
        std::lock_guard<holdfast::mutex> guard(mutex);
        return mutex.is_mine() ? 0 : 1;
    } catch (const holdfast::error &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
END
cat >"$user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(holdfast 1.0 REQUIRED)
foreach(language c cpp)
  add_executable(${language}_shared main.${language})
  target_link_libraries(${language}_shared PRIVATE holdfast::holdfast)
  add_executable(${language}_static main.${language})
  target_link_libraries(${language}_static PRIVATE holdfast::holdfast_static)
endforeach()
END

quietly() {
    "$@" >"$dir/log" 2>&1 || { echo "FAILED: $*"; cat "$dir/log"; exit 1; }
}
# takes_lock PROGRAM: it acquires and releases on the server, once. A count, since it leaves nothing behind.
takes_lock() {
    redis config resetstat >/dev/null
    quietly "$1" "unix://$socket"
    [ "$(redis info commandstats | grep -c '^cmdstat_hset:')" = 1 ] || fail "$1 locked nothing"
}
needs_library() { readelf -d "$1" | grep -q 'NEEDED.*libholdfast\.so\.1'; }

server_start
# Somebody else's directories are there before, one with a file in it.
prefix=$root$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$HF_BUILD_DIR/CMakeCache.txt")
mkdir -p "$prefix/lib/cmake" "$prefix/include"
touch "$prefix/include/theirs.h"
before=$(find "$root" | sort)
quietly env DESTDIR="$root" cmake --install "$HF_BUILD_DIR"
quietly env DESTDIR="$root" cmake --install "$HF_BUILD_DIR" # again: it still knows what it has made
header=$prefix/include/holdfast/holdfast.h
libdir=$(dirname "$(find "$root" -name libholdfast.a)")
[ -f "$header" ] || fail "no header"
[ -f "$libdir/libholdfast.a" ] || fail "no static library"

# pkg-config, as a distribution's build would read it from a staging directory.
pc() { # Only ours is staged: what it needs itself comes from the system.
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" holdfast
}
# What it needs itself is found where that says it is.
mkdir "$dir/pc"
sed 's|^libdir=.*|libdir=/elsewhere/lib|' "$(pkg-config --variable=pcfiledir libcrypto)/libcrypto.pc" >"$dir/pc/libcrypto.pc"
moved=$(PKG_CONFIG_PATH=$dir/pc:$libdir/pkgconfig pkg-config --static --libs holdfast)
[[ " $moved " == *" -L/elsewhere/lib "* ]] || fail "OpenSSL is not looked for where it is: $moved"

# static_flags: as pkg-config says. On Debian 13 a static OpenSSL wants libraries that its package does not bring: there
# only holdfast is static, as it is in these programs anyway.
static_flags() {
    # The flags are words.
    # shellcheck disable=SC2046
    if echo 'int main(void) { return 0; }' | "$CC" -xc - -o "$dir/nothing" $(pkg-config --static --libs openssl) 2>/dev/null; then
        pc --cflags --libs --static
    else
        echo "$(pc --cflags --libs) $(pkg-config --libs openssl)"
    fi
}

cxx=${CXX:-c++}
languages=(c)
! command -v "$cxx" >/dev/null || languages+=(cpp)
for language in "${languages[@]}"; do
    compile=("$CC" -Wall -Wextra -Werror)
    [ "$language" = c ] || compile=("$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror)

    read -ra flags <<<"$(pc --cflags --libs)"
    quietly "${compile[@]}" -o "$dir/shared" "$user/main.$language" "${flags[@]}"
    needs_library "$dir/shared" || fail "the shared program does not use the shared library"
    LD_LIBRARY_PATH=$libdir takes_lock "$dir/shared"

    read -ra flags <<<"$(static_flags)"
    quietly "${compile[@]}" -o "$dir/static" "$user/main.$language" \
        "${flags[@]/#-lholdfast/-l:libholdfast.a}"
    ! needs_library "$dir/static" || fail "the static program needs the shared library"
    takes_lock "$dir/static"
done

if [ "${#languages[@]}" -eq 2 ]; then
    quietly env CXX="$cxx" cmake -G Ninja -S "$user" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix"
    quietly cmake --build "$dir/build"
    for language in "${languages[@]}"; do
        needs_library "$dir/build/${language}_shared" || fail "not shared"
        ! needs_library "$dir/build/${language}_static" || fail "not static"
        takes_lock "$dir/build/${language}_shared"
        takes_lock "$dir/build/${language}_static"
    done
fi

page=$(find "$root" -path '*/man3/holdfast.3')
[ -s "$page" ] || fail "no manual page of the library"
if [ -x "$HOLDFAST" ]; then
    quietly "$prefix/bin/holdfast" version
    [ -s "$(find "$root" -path '*/man1/holdfast.1')" ] || fail "no manual page of the tool"
fi
if [ -d "$HF_BUILD_DIR/man3" ]; then
    [ -s "$(find "$root" -path '*/man3/hf_lock_try.3')" ] || fail "no manual pages of the functions"
    grep -q '^\.Sh RULES' "$page" || fail "the library's manual page lacks the rules"
fi

manifest=$HF_BUILD_DIR/install_manifest.txt
quietly cmake -DMANIFEST="$manifest" -DDESTDIR="$root" -P "$HF_SOURCE_DIR/cmake/uninstall.cmake"
left=$(diff <(echo "$before") <(find "$root" | sort)) || fail "uninstall left more or less: $left"
