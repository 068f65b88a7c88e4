#!/usr/bin/env bash
# The build refuses includes in the wrong direction. A tree of tiny sources, one for each pair of
# layers, is built by the project's own CMake files: a pair must compile exactly if the table of the
# design allows it. Then the two rules that an include path cannot express are broken, one by one.
set -eu

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp -r "$HF_SOURCE_DIR"/{CMakeLists.txt,cmake,include} "$root"

dirs="base engine net redis/route redis zk scheme survey core joint api"
declare -A sees=(
    [base]="base"
    [engine]="engine base"
    [net]="net engine base"
    [redis/route]="redis/route net engine base"
    [redis]="redis redis/route net engine base"
    [survey]="survey engine base"
    [core]="core survey engine base"
    [zk]="zk net engine base"
    [scheme]="scheme zk redis redis/route net engine base"
    [joint]="joint core survey engine base"
    [api]="api joint core survey scheme net engine base"
    [cli]=""
)
failures=0

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# The name of the probe in any layer that includes a header of the layer $1.
probe_name() {
    echo "probe_${1//\//_}"
}

for dir in $dirs; do
    mkdir -p "$root/src/$dir"
    echo '#include <holdfast/holdfast.h>' >"$root/src/$dir/probe.h"
done
mkdir "$root/cli"
echo 'int main(void) { return 0; }' >"$root/cli/main.c"
echo '#include <holdfast/holdfast.h>' >"$root/cli/public.c"
for dir in $dirs cli; do
    if [ "$dir" = cli ]; then at=$root/cli; else at=$root/src/$dir; fi
    for other in $dirs; do
        echo "#include \"$other/probe.h\"" >"$at/$(probe_name "$other").c"
    done
done

log=$root/log
cmake -S "$root" -B "$root/build" -G Ninja -DHF_TESTS=OFF >"$log" 2>&1 || { cat "$log"; exit 1; }
if cmake --build "$root/build" -- -k 0 >"$log" 2>&1; then
    complain "a tree full of wrong includes was built"
fi

compiled() {
    [ -n "$(find "$root/build" -path "*/$1.c.o")" ]
}

for dir in $dirs cli; do
    at=src/$dir
    [ "$dir" != cli ] || at=cli
    for other in $dirs; do
        object=$at/$(probe_name "$other")
        if [[ " ${sees[$dir]} " == *" $other "* ]]; then
            compiled "$object" || complain "$dir cannot include $other"
        elif compiled "$object"; then
            complain "$dir can include $other"
        fi
    done
done
compiled cli/public || complain "cli cannot include the public header"

# expect_refused FILE INCLUDE WORDS: with that include in it, the build of FILE's layer fails and says so.
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

expect_refused src/redis/route/probe.h hf_route_includes '"../probe.h"' 'without \.\.'
expect_refused src/net/probe_base.c hf_net_includes '"../core/probe.h"' 'without \.\.'
expect_refused src/core/probe_base.c hf_core_includes '<hiredis/hiredis.h>' 'may not use hiredis'
expect_refused src/net/probe_base.c hf_net_includes '<hiredis/hiredis.h>' 'not called resp.* may not use hiredis'
expect_refused src/net/probe_base.c hf_net_includes '<openssl/ssl.h>' 'not called tls.* may not use openssl'
expect_refused src/redis/probe_base.c hf_redis_includes '<openssl/ssl.h>' 'may not use openssl'
expect_refused src/api/probe.h hf_api_includes '<jansson.h>' 'may not use jansson'
expect_refused cli/main.c holdfast_cli_includes '<hiredis/hiredis.h>' 'may not use hiredis'
expect_refused cli/main.c holdfast_cli_includes '<openssl/ssl.h>' 'not called tls.* may not use openssl'

# In src/net the files of a protocol may know more than the connections that carry it.
echo '#include <hiredis/hiredis.h>' >"$root/src/net/resp_probe.c"
cmake --build "$root/build" --target hf_net_includes >"$log" 2>&1 ||
    complain "src/net/resp_probe.c may not include hiredis"

# The check stands before the compiler: nothing of a layer is compiled while it fails.
echo '#include "../probe.h"' >>"$root/src/base/probe_base.c"
if cmake --build "$root/build" --target hf_base >"$log" 2>&1; then
    complain "hf_base is built without its check"
fi

[ "$failures" -eq 0 ]
