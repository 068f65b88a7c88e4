#!/usr/bin/env bash
# The build refuses includes in the wrong direction. Every room of a tree of probes asks for a header of
# every other room, with the project's own CMake files: it must be there exactly if a line hf_layer() of
# CMakeLists.txt says so. CONTRIBUTING.md must show the same lines. Then the two rules that an include path
# cannot express are broken, one by one. No room has more than thirty files, but that of the scripts.
set -eu

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp -r "$HF_SOURCE_DIR"/{CMakeLists.txt,cmake,include,man} "$root"
failures=0

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# The build's list: groups, and what each room sees, with groups as written and expanded.
declare -A group written sees
dirs=()
while read -r name rooms; do
    group[$name]=$rooms
done < <(sed -n '/^# ---- Layers/,/^hf_embed_lua/s/^set(\([a-z_]*\) \(.*\))$/\1 \2/p' "$HF_SOURCE_DIR/CMakeLists.txt")
while IFS='|' read -r dir list; do
    dirs+=("$dir")
    written[$dir]=$(echo "$list" | tr -d '${}' | xargs -n 1 2>/dev/null | paste -sd ' ')
    sees[$dir]=$dir
    for word in ${written[$dir]}; do
        sees[$dir]+=" ${group[$word]-$word}"
    done
done < <(sed -n 's/^hf_layer(\([a-z_/]*\)\(.*\))$/\1\2/p' "$HF_SOURCE_DIR/CMakeLists.txt" |
    sed -e 's/ MAY_USE.*//' -e 's/ SEES /|/' -e '/|/!s/$/|/')
[ "${#dirs[@]}" -ge 30 ] || { echo "FAILED: only ${#dirs[@]} rooms found in CMakeLists.txt"; exit 1; }

# The table of CONTRIBUTING.md, its last column without commas.
shown() { # FIRST COLUMN
    awk -F ' *[|] *' -v room="$1" '$2 == room { print $(NF - 1) }' "$HF_SOURCE_DIR/CONTRIBUTING.md" | tr -d ',' | paste -sd ' '
}
for dir in "${dirs[@]}"; do
    [ "$(shown "$dir")" = "${written[$dir]}" ] ||
        complain "CONTRIBUTING.md says that $dir sees '$(shown "$dir")', the build: '${written[$dir]}'"
done
for name in "${!group[@]}"; do
    [ "$(shown "$name")" = "${group[$name]}" ] || complain "CONTRIBUTING.md has another group $name"
done

while read -r dir; do
    files=$(find "$dir" -maxdepth 1 -type f | wc -l)
    [ "$files" -le 30 ] || [ "$dir" = "$HF_SOURCE_DIR/src/redis/scripts" ] ||
        complain "${dir#"$HF_SOURCE_DIR"/} has $files files; more than thirty are two rooms"
done < <(find "$HF_SOURCE_DIR"/{src,cli} -type d)

for dir in "${dirs[@]}"; do
    mkdir -p "$root/src/$dir"
    echo '#include <holdfast/holdfast.h>' >"$root/src/$dir/probe.h"
done
mkdir -p "$root"/cli/{common,fleet,hold,run,top,watch,doctor,serve,cmd}
echo 'int main(void) { return 0; }' >"$root/cli/main.c"
touch "$root/cli/serve/without_serve.c"

# probe ROOM WHAT-IT-SEES...: a file that compiles if exactly these rooms can be included. The angle brackets
# leave out the file's own directory, where "fleet/probe.h" is redis/fleet/probe.h for redis.
probe() {
    local room=$1 other
    shift
    for other in "${dirs[@]}"; do
        if [[ " $* " == *" $other "* ]]; then
            echo "#include <$other/probe.h>"
        else
            printf '#if __has_include(<%s/probe.h>)\n#error "%s can include %s"\n#endif\n' "$other" "$room" "$other"
        fi
    done
}
for dir in "${dirs[@]}"; do
    # shellcheck disable=SC2086
    probe "$dir" ${sees[$dir]} >"$root/src/$dir/probe.c"
done
for room in common fleet hold run top watch doctor serve cmd; do
    { echo '#include <holdfast/holdfast.h>'; probe "cli/$room"; } >"$root/cli/$room/probe.c"
done

log=$root/log
configure() {
    cmake -S "$root" -B "$root/build" -G Ninja -DHF_TESTS=OFF -DHF_SERVE=OFF >"$log" 2>&1 || { cat "$log"; exit 1; }
}
configure
targets=()
for dir in "${dirs[@]}"; do
    targets+=("hf_${dir//\//_}")
done
cmake --build "$root/build" -- -k 0 "${targets[@]}" hf_cli_{common,fleet,hold,run,top,watch,doctor,cmd} >"$log" 2>&1 ||
    { complain "the rooms do not see what CMakeLists.txt says:"; grep -E 'error' "$log"; }

# A room that includes what it must not see fails: the probes above can fail.
for pair in "core redis/wire" "redis/wire redis/ops" "net/url net/conn" "api redis" "redis redis/route/local"; do
    read -r dir other <<<"$pair"
    echo "#include \"$other/probe.h\"" >"$root/src/$dir/wrong.c"
    configure
    if cmake --build "$root/build" --target "hf_${dir//\//_}" >"$log" 2>&1; then
        complain "$dir can include $other"
    fi
    rm "$root/src/$dir/wrong.c"
done
configure

# expect_refused FILE TARGET INCLUDE WORDS: with that include in it, the check of FILE's room fails and says so.
expect_refused() {
    local file=$root/$1 target=$2 include=$3 words=$4
    cp "$file" "$root/saved"
    echo "#include $include" >>"$file"
    if cmake --build "$root/build" --target "$target" >"$log" 2>&1; then
        complain "$1 may include $include"
    elif ! grep -q -- "$words" "$log"; then
        complain "$1 with $include fails for another reason:"
        cat "$log"
    fi
    cp "$root/saved" "$file"
    cmake --build "$root/build" --target "$target" >"$log" 2>&1 || complain "$1 does not recover"
}

expect_refused src/redis/route/probe.h hf_redis_route_includes '"../probe.h"' 'without \.\.'
expect_refused src/net/conn/probe.c hf_net_conn_includes '"../core/probe.h"' 'without \.\.'
expect_refused src/core/probe.c hf_core_includes '<hiredis/hiredis.h>' 'may not use hiredis'
expect_refused src/net/conn/probe.c hf_net_conn_includes '<hiredis/hiredis.h>' 'may not use hiredis'
expect_refused src/net/probe.c hf_net_includes '<openssl/ssl.h>' 'not called tls.* may not use openssl'
expect_refused src/redis/ops/probe.c hf_redis_ops_includes '<openssl/ssl.h>' 'may not use openssl'
expect_refused src/api/probe.h hf_api_includes '<jansson.h>' 'may not use jansson'
expect_refused cli/main.c holdfast_cli_includes '<hiredis/hiredis.h>' 'may not use hiredis'
expect_refused cli/doctor/probe.c hf_cli_doctor_includes '<openssl/ssl.h>' 'not called tls.* may not use openssl'

# The check stands before the compiler: nothing of a room is compiled while it fails.
echo '#include "../probe.h"' >>"$root/src/base/probe.c"
if cmake --build "$root/build" --target hf_base >"$log" 2>&1; then
    complain "hf_base is built without its check"
fi

[ "$failures" -eq 0 ]
