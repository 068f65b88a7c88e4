#!/usr/bin/env bash
# RLIMIT_NOFILE of a running tool falls below what it polls: poll() fails then. The tool goes on with what it has, and does not
# spin.
. "$(dirname "$0")/lib.sh"
server_start

# limit PID...: one descriptor at most from now on. Those that are open stay open.
limit() {
    local process
    for process in "$@"; do
        prlimit --pid "$process" --nofile=1: || fail "cannot limit $process"
    done
}
# ticks_of PID: the processor time it has used, in hundredths of a second.
ticks_of() {
    local stat fields
    read_stat "$1" || fail "no process $1"
    read -ra fields <<<"$stat"
    echo $((fields[11] + fields[12]))
}
# is_renewed NAME: waits for a renewal of its lease. All connections are open after the first.
is_renewed() {
    left=$(redis pttl "$1")
    wait_until grows "$1"
}
grows() {
    local before=$left
    left=$(redis pttl "$1")
    [ "$left" -gt "$before" ]
}

test_run() {
    local guard holder before name=run
    start hf run --ttl 3s $name sh -c 'touch "$0"; exec sleep 100' "$dir/began"
    wait_until file_there "$dir/began"
    guard=$pid
    holder=$(holder_of "$guard")
    is_renewed $name
    limit "$guard" "$holder"
    before=$(($(ticks_of "$guard") + $(ticks_of "$holder")))
    is_renewed $name
    is_renewed $name
    [ $(($(ticks_of "$guard") + $(ticks_of "$holder") - before)) -lt 100 ] || fail "it spins"
    kill -TERM "$guard"
    finish "$guard"
    same "$status" 143
    free $name || fail "it still has the lock"
}

test_run_that_loses_its_lock() {
    local guard
    start hf run --ttl 3s lost sh -c 'touch "$0"; exec sleep 100' "$dir/began.lost" 2>"$dir/err"
    wait_until file_there "$dir/began.lost"
    guard=$pid
    limit "$guard" "$(holder_of "$guard")"
    redis del lost >/dev/null
    finish "$guard"
    same "$status" 79
}

test_hold() {
    start hf hold --no-stdin --ttl 3s held >"$dir/output"
    wait_until file_filled "$dir/output"
    is_renewed held
    limit "$pid"
    is_renewed held
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    free held || fail "it still has the lock"
}

test_watch_goes_on() {
    start hf watch watched >"$dir/watched"
    wait_until file_filled "$dir/watched"
    limit "$pid"
    expect 0 hf run watched true
    wait_until grep -q released "$dir/watched"
    kill -INT "$pid"
    finish "$pid"
    same "$status" 130
}

run_tests
