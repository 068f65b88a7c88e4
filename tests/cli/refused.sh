#!/usr/bin/env bash
# A server that takes no commands: a waiter learns why, and does not wait for ever.
. "$(dirname "$0")/lib.sh"
server_start

test_a_replica_is_given_up_with_its_words() {
    redis replicaof 127.0.0.1 1 >/dev/null
    start hf -t 5s run refused touch "$dir/ran" 2>"$dir/said"
    finish "$pid"
    same "$status" 69
    grep -q "waiting for 'refused' is held up: .*refuses commands: .*READONLY" "$dir/said" ||
        fail "it does not say why it waits: $(cat "$dir/said")"
    grep -q "^holdfast: cannot .*READONLY" "$dir/said" || fail "no last words: $(cat "$dir/said")"
    [ ! -e "$dir/ran" ] || fail "the command ran"
}

test_quietly_it_says_only_how_it_ended() {
    redis replicaof 127.0.0.1 1 >/dev/null
    start hf -q -t 2s run refused touch "$dir/ran" 2>"$dir/said"
    finish "$pid"
    same "$status" 69
    ! grep -q "held up" "$dir/said" || fail "not quiet: $(cat "$dir/said")"
}

run_tests
