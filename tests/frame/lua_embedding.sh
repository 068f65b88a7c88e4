#!/usr/bin/env bash
# What is embedded is, byte for byte, the script with its prelude in front, and carries the SHA-1 that
# the server would answer to SCRIPT LOAD. Shown with a script full of what quoting could spoil.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/redis/wire"
cat >"$dir/redis/wire/script.h" <<'EOF'
#include <stddef.h>
struct hfi_script {
    const char *name;
    const char *body;
    size_t len;
    const char *sha1;
};
EOF
cat >"$dir/print.c" <<'EOF'
#include <stdio.h>
#include "redis/wire/script.h"
extern const struct hfi_script hfi_script_awkward;
int main(int argc, char **argv) {
    const struct hfi_script *s = &hfi_script_awkward;
    (void)argv;
    if (s->body[s->len] != '\0')
        return 1;
    if (argc > 1)
        return printf("%s %s\n", s->name, s->sha1) < 0;
    return fwrite(s->body, 1, s->len, stdout) != s->len;
}
EOF

# check EXPECTED INCLUDED [DEEPER]: embeds awkward.lua with that prelude, and that one's own, and compares
# with the expected text.
check() {
    cmake -DIN="$dir/awkward.lua" -DINCLUDED="$2" -DDEEPER="${3-}" -DNAME=awkward -DOUT="$dir/whole.lua" \
        -P "$HF_SOURCE_DIR/cmake/lua2c.cmake"
    "$CC" -Wall -Wextra -Werror -I"$dir" -o "$dir/print" "$dir/print.c" "$dir/whole.lua.c"
    cmp "$1" "$dir/whole.lua"
    "$dir/print" | cmp "$1" -
    [ "$("$dir/print" sha1)" = "awkward $(sha1sum <"$1" | cut -d' ' -f1)" ]
}

# shellcheck disable=SC2016 # Nothing in it may be expanded, by anybody.
awkward='local s = "a;b\\n\"]]" .. [[x;[y]] -- ${HOME} @AT@ $<1:x> \ é ;; [
return #s'
printf '%s' "$awkward" >"$dir/awkward.lua" # no newline at its end
check "$dir/awkward.lua" ""

printf -- '-- include: guard.lua\n%s\n' "$awkward" >"$dir/awkward.lua"
printf 'local now = 1 -- guard; [no newline' >"$dir/guard.lua"
printf '%s\n%s\n' "$(cat "$dir/guard.lua")" "$awkward" >"$dir/expected"
check "$dir/expected" "$dir/guard.lua"

printf -- '-- include: guard.lua\n%s' "$awkward" >"$dir/common.lua"
printf '%s\n%s\n%s\n' "$(cat "$dir/guard.lua")" "$awkward" "$awkward" >"$dir/expected"
check "$dir/expected" "$dir/common.lua" "$dir/guard.lua"

# The real ones: every script of the source tree but the preludes is there, prelude and all.
whole() {
    local first
    first=$(head -n 1 "$1")
    if [[ $first == "-- include: "* ]]; then
        whole "$HF_SOURCE_DIR/src/redis/scripts/${first#-- include: }"
        tail -n +2 "$1"
    else
        cat "$1"
    fi
}
count=0
for lua in "$HF_SOURCE_DIR"/src/redis/scripts/*.lua; do
    name=$(basename "$lua")
    ! grep -qx -- "-- include: $name" "$HF_SOURCE_DIR"/src/redis/scripts/*.lua || continue
    whole "$lua" >"$dir/expected"
    cmp "$dir/expected" "$HF_LUA_DIR/$name"
    count=$((count + 1))
done
[ "$count" -gt 0 ]
