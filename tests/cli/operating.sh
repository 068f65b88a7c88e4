#!/usr/bin/env bash
# What docs/operating.md prints is what the tool says: each of its scenes is played here, on a real server with real
# processes, and compared with the block under its heading. Hosts, pids, owners and times differ, and are left out of it.
. "$(dirname "$0")/lib.sh"

page=$(dirname "$0")/../../docs/operating.md

# printed HEADING: what the page has in the first block under it.
printed() {
    awk -v heading="$1" '
        /^#/ { found = ($0 == heading) }
        found && /^```/ { if (inside) exit; inside = 1; next }
        found && inside { print }' "$page"
}
# Times, hosts with pids, owners, and how wide columns are.
alike() {
    sed -E -e 's/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9]+/OWNER/g' \
        -e 's/[^ ]+ [0-9]+ (holdfast)/HOST PID \1/g' \
        -e 's/\b[0-9]+(h[0-9]+m|m[0-9]+s|\.[0-9]s)\b/TIME/g' -e 's/ for [0-9]+ s\b/ for TIME/g' -e 's/ +/ /g' -e 's/ $//'
}
# plays HEADING COMMAND...: the block is "$ the command" and what it says.
plays() {
    local heading=$1 wanted got
    shift
    wanted=$(printed "$heading" | alike)
    got=$({ printf '$ holdfast %s\n' "$*"; hf "$@" 2>&1; } | alike)
    [ "$got" = "$wanted" ] || fail "$heading"$'\n--- the page:\n'"$wanted"$'\n--- the tool:\n'"$got"
}
is_listed() { hf ls "$2" 2>/dev/null | grep -Eq -- "$1"; }

test_three_terminals() {
    server_start
    start hf run nightly -- sleep 100
    wait_until is_listed '^nightly +plain +alive' nightly
    start hf run nightly -- sleep 100
    wait_until is_listed ' 1 +[0-9.]+s$' nightly
    plays '### Three terminals' ls
}

# Both processes of `run` are stopped, as a frozen container is.
test_a_stopped_holder() {
    server_start
    start hf run --ttl 100s orders -- sleep 100
    local holder
    wait_until is_listed '^orders +plain +alive' orders
    holder=$(holder_of "$pid")
    kill -STOP "$holder" "$pid"
    wait_until is_listed '^orders +plain +silent' orders
    expect 1 hf ls --stuck
    plays '### A holder that is stopped' ls --stuck
    kill -KILL "$holder" "$pid"
    wait_until is_listed '^orders +plain +gone' orders
}

test_a_deadlock_of_two_scripts() {
    server_start
    local inner='while ! [ -e "$0" ]; do sleep 0.01; done; exec hf run "$1" true'
    start hf run stock sh -c "$inner" "$dir/go" orders 2>/dev/null
    wait_until locked stock
    start hf run orders sh -c "$inner" "$dir/go" stock 2>/dev/null
    wait_until locked orders
    touch "$dir/go"
    wait_until awaited stock
    wait_until awaited orders
    wait_until finds_a_deadlock
    # Which of the two comes first is chance.
    local wanted got
    wanted=$(printed '### Two scripts that wait for each other' | alike | in_any_order)
    got=$({ echo '$ holdfast doctor'; hf doctor --skip latency --skip waking 2>&1 | grep -A1 '^bad .*deadlocks'; } | alike | in_any_order)
    [ "$got" = "$wanted" ] || fail "the page: $wanted; the tool: $got"
}
finds_a_deadlock() { hf doctor --skip latency --skip waking 2>/dev/null | grep -q '^bad .*deadlocks'; }
in_any_order() { tr ';' '\n' | sed -E -e 's/^(bad deadlocks)? ?(HOST PID)/\2/' | sort; }

# Redisson renews while its client lives, and nothing of it says so.
test_a_java_holder_that_has_died() {
    server_start
    redis hset invoice 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:57 1 >/dev/null
    redis pexpire invoice 29000 >/dev/null
    plays '### A Java client that has died' ls
    expect 0 hf ls --stuck
    same "$out" ""
}

test_a_handle() {
    server_start
    local handle
    handle=$(hf acquire --lease 1m pipeline)
    plays '### A handle' ls
    expect 0 hf release pipeline "$handle"
}

test_a_server_that_evicts() {
    server_start --maxmemory 100mb --maxmemory-policy allkeys-lru --appendonly yes
    expect 2 hf doctor --skip latency --skip waking --skip deadlocks
    local wanted got
    wanted=$(printed '### A server that evicts' | alike)
    got=$({ echo '$ holdfast doctor'; grep -A1 '^bad' "$dir/out"; } | alike)
    [ "$got" = "$wanted" ] || fail "the page: $wanted; the tool: $got"
}

run_tests
