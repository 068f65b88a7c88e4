#!/usr/bin/env bash
# Several locks at once: run -m NAME... -- COMMAND, hold -m NAME...
. "$(dirname "$0")/lib.sh"
server_start

test_run_holds_all() {
    # shellcheck disable=SC2016
    expect 0 hf run -m stock orders bills -- sh -c 'redis-cli -s "$0" exists stock orders bills; echo "$HOLDFAST_NAME"' \
        "$socket"
    same "$out" "3
stock orders bills"
    same "$(redis exists stock orders bills)" 0 "what is left"
    expect 7 hf run -m stock orders -- sh -c 'exit 7'
}

test_words_up_to_the_command() {
    expect 0 hf run -m a -- true
    expect 0 hf run --multi a b -c 'exit 0'
    expect 3 hf run -m a b --command 'exit 3'
    expect 4 hf run -m -c 'exit 4' a b
    expect 0 hf run -nm a b -- echo -- x
    same "$out" "-- x"
    expect 0 hf run -m 'a name' b -- sh -c 'echo "$HOLDFAST_NAME"'
    same "$out" "a name b"
}

test_kinds() {
    expect 0 hf run -s -m r1 r2 -- hf run -n -s -m r2 r1 -- true
    expect 75 hf run -s -m r1 r2 -- hf run -n -W -m r2 r1 -- true
    expect 0 hf run --fair -m f1 f2 -- true
}

test_usage() {
    expect 64 hf run -m a b true
    says "'--'"
    expect 64 hf run -m
    expect 64 hf run -m -- true
    expect 64 hf run -m a b --
    expect 64 hf run -m a a -- true
    says "twice"
    expect 64 hf run -m a '' -- true
    expect 64 hf run -m a -n -- true
    says "before the NAMEs"
    expect 64 hf run -N 2 -m a b -- true
    says "exclude each other"
    expect 64 hf hold -N 2 -m a b
    expect 64 hf hold -m
    expect 64 hf hold a b
    # shellcheck disable=SC2046
    expect 64 hf run -m $(seq 65) -- true
    same "$(redis dbsize)" 0 "what is left"
}

test_busy() {
    redis hset b somebody 1 >/dev/null
    expect 75 hf run -n -m a b c -- true
    says "'b': another owner holds the lock"
    same "$(redis exists a c)" 0 "what is left"
    expect 75 hf run -w 2s -m a b c -- true # by then the server has answered
    expect 9 hf run -n -E 9 -m a b c -- true
    redis del b >/dev/null
}

test_waits_for_the_one_that_is_busy() {
    start hf hold --no-stdin b >"$dir/single"
    local holder=$pid
    wait_until file_filled "$dir/single"
    start hf run -m a b c -- touch "$dir/ran"
    local runner=$pid
    wait_until awaited b
    same "$(redis exists a c)" 0 "what it holds while it waits"
    kill -TERM "$holder"
    finish "$runner"
    same "$status" 0
    file_there "$dir/ran" || fail "it did not run"
}

test_hold_tells_the_names() {
    start hf hold --no-stdin -m a b >"$dir/held"
    wait_until file_filled "$dir/held"
    grep -q '"name":"a b"' "$dir/held" || fail "$(cat "$dir/held")"
    grep -q '"names":\["a","b"\]' "$dir/held" || fail "$(cat "$dir/held")"
    expect 75 hf run -n a true
    expect 75 hf run -n b true
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    same "$(redis exists a b)" 0 "what is left"
}

# The loss of one is the loss of all: the whole tree of the command ends, and the others are free.
test_one_is_lost() {
    # shellcheck disable=SC2016
    start hf run --ttl 6s -m a b c -- sh -c 'stay & echo $$ $! >"$0.new"; mv "$0.new" "$0"; wait' "$dir/pids"
    wait_until file_filled "$dir/pids"
    read -r command other <"$dir/pids"
    redis del b >/dev/null
    finish "$pid"
    same "$status" 79
    ended "$command" && ended "$other" || fail "the command still runs"
    wait_until free a
    wait_until free c
    start hf hold --ttl 6s --no-stdin -m a b >"$dir/lost"
    wait_until file_filled "$dir/lost"
    redis del a >/dev/null
    finish "$pid"
    same "$status" 79
    wait_until free b
}

test_not_a_lock() {
    redis set text x >/dev/null
    expect 65 hf run -m a text -- true
    says "'text'"
    same "$(redis exists a)" 0 "what is left"
    redis del text >/dev/null
}

test_verbose_tells_who_has_it() {
    start hf hold --no-stdin b >"$dir/verbose"
    local holding=$pid
    wait_until file_filled "$dir/verbose"
    start hf run -v -m a b -- true 2>"$dir/waits"
    wait_until grep -q "'b': waiting; held by" "$dir/waits"
    kill -TERM "$holding"
    finish "$pid"
    same "$status" 0
}

# The last, since the server stays away.
test_z_server_away() {
    server_kill
    expect 69 hf -t 1s run -m a b -- true
}

run_tests
