#!/usr/bin/env bash
# `ls --metrics`: the fleet in Prometheus's text format, read by Prometheus's own parsers where they are installed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_metrics.sh"
server_start
parser=$(dirname "$0")/../support/openmetrics.py

# parsed ARGUMENT...: what ls --metrics prints, as the parser has understood it, is in $samples. Without a parser
# the text itself.
parsed() {
    local status=0
    expect 0 hf ls --metrics "$@"
    same "$(tail -n 1 "$dir/out")" '# EOF'
    samples=$(/usr/bin/python3 "$parser" text <"$dir/out" 2>"$dir/err") || status=$?
    case $status in
        0) ;;
        77 | 127) samples=$(sed "s/\"/'/g" "$dir/out") ;;
        *) fail "the parser: $(cat "$dir/err")" ;;
    esac
    lint "$dir/out"
}
# has_sample PATTERN ARGUMENT...: `ls --metrics` with these arguments prints such a sample.
has_sample() {
    local text=$1
    shift
    parsed "$@"
    grep -Eq -- "$text" <<<"$samples"
}

test_an_empty_fleet() {
    parsed
    grep -Eq "^holdfast_fleet_locks\{state='alive'\} 0" <<<"$samples" || fail "$samples"
    grep -Eq "^holdfast_fleet_waiters(\{\})? 0" <<<"$samples" || fail "$samples"
}

test_holder_and_waiter() {
    local holder waiter
    start hf run busy -- stay
    holder=$pid
    wait_until locked busy
    start hf run busy -- true
    waiter=$pid
    wait_until has_sample "^holdfast_fleet_lock_waiters\{.*lock='busy'.*\} 1"
    wait_until has_sample "^holdfast_fleet_client_holds\{.*program='stay'.*\} 1"
    wait_until has_sample "^holdfast_fleet_client_waits\{.*program='true'.*\} 1"
    wait_until has_sample "^holdfast_fleet_client_acquired_total\{.*\} 1"
    wait_until has_sample "^holdfast_fleet_client_wait_seconds_bucket\{.*le='\+Inf'.*\} 1"
    wait_until has_sample "^holdfast_fleet_client_wait_seconds_count\{.*\} 1"
    has_sample "^holdfast_fleet_client_hold_seconds_count" && fail "nothing was released: $samples"
    wait_until has_sample "^holdfast_fleet_lock_held_seconds\{.*lock='busy'.*\} [1-9.]"
    kill -TERM "$waiter" "$holder"
    finish "$waiter"
    finish "$holder"
    free busy || fail "still locked"
}

# Whatever a name is made of, the text stays well formed, and no two are the same.
test_names_are_escaped() {
    local owner=5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 name
    for name in 'quote"d' 'back\slash' $'new\nline' 'sp ace{},=#' $'\xff\xfe' $'\xff\xfd' $'esc\e[31m' 'ü'; do
        redis hset "$name" "$owner" 1 >/dev/null
    done
    printf 'hset "nul\\x00%s" %s 1\n' a "$owner" b "$owner" | redis >/dev/null
    parsed
    [ "$(grep -c '^holdfast_fleet_lock_holders{' "$dir/out")" = 10 ] || fail "$(cat "$dir/out")"
    grep -q '^holdfast_fleet_lock_holders{lock="quote\\"d",' "$dir/out" || fail "$out"
    grep -q '^holdfast_fleet_lock_holders{lock="back\\\\slash",' "$dir/out" || fail "$out"
    grep -q '^holdfast_fleet_lock_holders{lock="new\\nline",' "$dir/out" || fail "$out"
    grep -q 'lock_hex="fffe"' "$dir/out" || fail "$out"
    grep -Fq 'lock="nul\\u0000a",lock_hex="6e756c0061"' "$dir/out" || fail "$out"
    grep -Fq 'lock="nul\\u0000b",lock_hex="6e756c0062"' "$dir/out" || fail "$out"
    redis flushall >/dev/null
}

test_some_are_left_out() {
    redis eval 'for i = 1, 1005 do redis.call("hset", "many" .. i, "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17", 1) end' \
        0 >/dev/null
    redis hset "$(printf '%01100d' 0)" 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    parsed
    grep -Eq '^holdfast_fleet_locks_left_out(\{\})? 6$' <<<"$samples" || fail "$samples"
    redis flushall >/dev/null
}

test_usage() {
    expect 64 hf ls --metrics --json
    expect 64 hf ls --metrics --stuck
}

run_tests
