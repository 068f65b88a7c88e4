#!/usr/bin/env bash
# The server reports a deleted lock to the tool at once: the lease is so long that no renewal notices meanwhile.
. "$(dirname "$0")/lib.sh"
server_start

# tracked COUNT: the server remembers so many keys.
tracked() { [ "$(redis info stats | tr -d '\r' | sed -n 's/^tracking_total_keys://p')" = "$1" ]; }
# gone NAME WAY...: the command of a lock that somebody has done this to ends, with 79.
gone() {
    local name=$1
    shift
    wait_until tracked 1
    redis "$@" >/dev/null
    finish "$pid"
    same "$status" 79 "$name $*"
    redis flushall >/dev/null
    wait_until tracked 0
}

test_a_deleted_lock_ends_its_command() {
    local option
    for option in --exclusive --fair --shared --write --fenced --string; do
        start hf run --ttl 1800s "$option" "run$option" stay 2>/dev/null
        gone "run$option" del "run$option"
    done
}

test_so_does_a_flush_and_what_is_written_over_it() {
    start hf run --ttl 1800s flushed stay 2>/dev/null
    gone flushed flushall
    start hf run --ttl 1800s --string over stay 2>/dev/null
    gone over set over text
}

test_hold_ends() {
    start hf hold --no-stdin --ttl 1800s held >/dev/null 2>&1
    gone held del held
}

# Without it nothing is remembered.
test_it_can_be_switched_off() {
    redis config resetstat >/dev/null
    # It would be asked for after a second: that nothing is has no event.
    expect 0 env HOLDFAST_URL="unix://$socket?track=off" "$HOLDFAST" run --ttl 1800s off sleep 2
    same "$(redis info commandstats | grep -c 'client|id\|tracking\|caching')" 0
    mkfifo "$dir/enough"
    start hf run --ttl 1800s off cat "$dir/enough"
    wait_until eval '[ "$(redis info commandstats | grep -c "client|id\|tracking\|caching")" = 3 ]'
    : >"$dir/enough"
    finish "$pid"
    same "$status" 0
}

# What redis-py holds: the waiter of the tool is woken by its end.
test_a_waiter_behind_another_library() {
    redis set foreign a-token px 1800000 >/dev/null
    start hf run --string foreign true
    wait_until tracked 1
    redis del foreign >/dev/null
    finish "$pid"
    same "$status" 0
}

run_tests
