#!/usr/bin/env bash
# `holdfast acquire`, `extend` and `release`: a lock that outlives the process that acquired it.
. "$(dirname "$0")/lib.sh"
server_start

ttl_of() { redis pttl "$1"; }

test_from_process_to_process() {
    local handle
    handle=$(hf acquire --lease 1m a) || fail "not acquired"
    [[ $handle =~ ^[0-9a-f-]{36}:[0-9]+$ ]] || fail "no handle: $handle"
    same "$(redis hget a "$handle")" 1
    expect 75 hf acquire -n --lease 1m a
    expect 0 hf extend a "$handle" 1h
    same "$out$err" ""
    [ "$(ttl_of a)" -gt 60000 ] || fail "not extended"
    expect 0 hf extend a "$handle" 1s
    [ "$(ttl_of a)" -gt 60000 ] || fail "made shorter"
    expect 0 hf release a "$handle"
    same "$out$err" ""
    free a || fail "still locked"
}

test_what_was_lost_meanwhile_is_79() {
    local handle
    handle=$(hf acquire --lease 1m b)
    expect 0 hf unlock --force b
    expect 79 hf extend b "$handle" 1m
    says "was lost"
    expect 79 hf release b "$handle"
    expect 0 hf acquire --lease 1m b # another has it since
    expect 79 hf release b "$handle"
    locked b || fail "another's lock was released"
    handle=$(hf acquire --lease 1m brief)
    redis pexpire brief 1 >/dev/null
    wait_until free brief
    expect 79 hf release brief "$handle"
}

test_a_release_wakes_who_waits() {
    local handle
    handle=$(hf acquire --lease 1h c)
    start hf run -w 30s c true
    wait_until awaited c
    expect 0 hf release c "$handle"
    finish "$pid"
    same "$status" 0
}

test_every_kind() {
    local option handle
    for option in -x -s -W --fair --fenced --spin; do
        handle=$(hf acquire "$option" --lease 1m d) || fail "$option: not acquired"
        expect 0 hf extend "$option" d "$handle" 1h
        [ "$(ttl_of d)" -gt 60000 ] || fail "$option: not extended"
        expect 0 hf release "$option" d "$handle"
        free d || fail "$option: still locked"
        expect 79 hf release "$option" d "$handle"
    done
}

test_of_another_kind() {
    local handle
    handle=$(hf acquire -s --lease 1m e)
    expect 65 hf release e "$handle"
    says "read/write lock: use -s"
    expect 0 hf release -s e "$handle"
    expect 64 hf acquire --lease 1m -m e f
    redis set text words >/dev/null
    expect 65 hf acquire --lease 1m text
}

test_slots() {
    local one two
    one=$(hf acquire -N 2 --lease 1m f)
    two=$(hf acquire -N 2 --lease 1m f)
    [[ $one =~ ^[0-9a-f]{32}$ ]] || fail "no handle: $one"
    expect 75 hf acquire -n -N 2 --lease 1m f
    expect 0 hf extend f "$one" 1h
    expect 0 hf extend f "$one" 1s
    expect 0 hf release f "$one"
    expect 79 hf release f "$one"
    expect 0 hf release f "$two"
}

test_more_than_once_is_given_back_at_once() {
    local handle
    handle=$(hf acquire --lease 1m g)
    redis hset g "$handle" 3 >/dev/null
    expect 0 hf release g "$handle"
    free g || fail "still locked"
}

test_json() {
    expect 0 hf acquire --json --fenced --lease 2m h
    local handle
    handle=$(jq -r .handle <<<"$out")
    same "$(jq -c '[.name, .kind, .lease_ms, .token > 0]' <<<"$out")" '["h","fenced",120000,true]'
    expect 0 hf release --json --fenced h "$handle"
    same "$out" '{"name":"h","lost":false}'
    expect 79 hf release --json h "$handle"
    same "$out" '{"name":"h","lost":true}'
}

test_mistakes() {
    local uuid=0123abcd-0123-0123-0123-0123456789ab
    expect 64 hf acquire i
    says "--lease is required"
    expect 64 hf acquire --lease 0 i
    expect 64 hf acquire --lease 1m
    expect 64 hf release i
    expect 64 hf extend i "$uuid:1"
    expect 64 hf extend i "$uuid:1" soon
    for handle in "" x "$uuid" "$uuid:" "$uuid:0" "$uuid:x" "$uuid:1:write" "$uuid:99999999999999999999"; do
        expect 64 hf release i "$handle"
        expect 64 hf extend i "$handle" 1s
    done
    expect 79 hf release i "$uuid:1"
    expect 64 "$HOLDFAST" -u zk://127.0.0.1:1 acquire --lease 1m i
    says "ZooKeeper"
    expect 64 "$HOLDFAST" -u "unix://$dir/1" -u "unix://$dir/2" -u "unix://$dir/3" acquire --lease 1m i
}

# A handle that could not be printed holds nothing.
test_a_handle_that_cannot_be_printed() {
    local status
    hf acquire --lease 1h j >/dev/full 2>"$dir/err"
    status=$?
    same "$status" 71
    free j || fail "held by nobody"
    expect 0 hf acquire --lease 1h k
    start hf acquire --lease 1h k
    wait_until awaited k
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
}

run_tests
