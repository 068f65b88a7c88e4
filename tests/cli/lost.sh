#!/usr/bin/env bash
# The lock is lost while the command runs: status 79, and nothing of the command lives on past the deadline.
. "$(dirname "$0")/lib.sh"
server_start

# start_guarded NAME [run option...]: runs a command that says it is there and never ends. Its pid is in
# $command, and that of a background process of it in $other. The lease is long enough that it ends for no
# other reason than the test's.
start_guarded() {
    local name=$1 file=$dir/$1.pids
    shift
    rm -f "$file"
    start hf run --ttl 6s "$@" "$name" sh -c 'stay & echo $$ $! >"$0.new"; mv "$0.new" "$0"; wait' \
        "$file"
    wait_until file_filled "$file"
    read -r command other <"$file"
}
all_dead() { ended "$command" && ended "$other" || fail "the command still runs"; }

test_key_deleted() {
    start_guarded del 2>"$dir/messages"
    redis del del >/dev/null
    finish "$pid"
    same "$status" 79
    all_dead
    said_loss "the command is killed"
}

test_taken_over_by_another() {
    start_guarded taken
    redis del taken >/dev/null
    redis hset taken thief 1 >/dev/null
    finish "$pid"
    same "$status" 79
    all_dead
    same "$(redis hkeys taken)" thief "the new holder"
    redis del taken >/dev/null
}

test_broken_with_unlock_force() {
    start_guarded broken
    expect 0 hf unlock --force broken
    finish "$pid"
    same "$status" 79
    all_dead
    expect 1 hf unlock --force broken
}

# Nobody reports the deletion here: the release finds it, even on a machine on which the command starts a second late.
test_exit_0_of_the_command_does_not_hide_it() {
    expect 79 "$HOLDFAST" -u "unix://$socket?track=off" run --ttl 20s hide sh -c 'redis-cli -s "$0" del hide >/dev/null; exit 0' "$socket"
    says "'hide': the lock was lost while the command ran ("
}

# said_loss OUTCOME: the last `run` named the cause of the loss, and what happened to its command.
said_loss() {
    grep -q "the lock is lost: it is gone from the server (broken, .*); $1\$" "$dir/messages" ||
        fail "$(cat "$dir/messages")"
}

test_preserve_status() {
    start_guarded keep --preserve-status
    redis del keep >/dev/null
    finish "$pid"
    same "$status" 137
    all_dead
}

test_on_lost_signal() {
    start hf run --ttl 6s --on-lost=signal sig bash -c 'trap "touch $0.term; exit 0" TERM; touch "$0"
        while [ -d $test_proc ]; do tick; done' "$dir/sig" 2>"$dir/messages"
    wait_until file_there "$dir/sig"
    redis del sig >/dev/null
    finish "$pid"
    same "$status" 79
    file_there "$dir/sig.term" || fail "no TERM came"
    said_loss "the command was asked to end"
}

test_on_lost_ignore() {
    start hf run --ttl 6s --on-lost=ignore ign bash -c 'trap "touch $0.term" TERM; touch "$0"
        while [ ! -e "$0.end" ] && [ -d $test_proc ]; do tick; done' "$dir/ign" 2>"$dir/messages"
    wait_until file_there "$dir/ign"
    redis del ign >/dev/null
    sleep 7 # longer than the lease was: nothing must happen, and nothing is renewed any more that could be counted
    alive "$pid" || fail "it has ended"
    touch "$dir/ign.end"
    finish "$pid"
    same "$status" 79
    [ ! -e "$dir/ign.term" ] || fail "it got a TERM"
    said_loss "the command goes on"
}

test_lease_ends() { check_lease_ends; }

test_command_that_heeds_the_warning() {
    start hf run --lease 3s heed bash -c 'trap "exit 5" TERM; touch "$0"; while [ -d $test_proc ]; do tick; done' \
        "$dir/heed"
    finish "$pid"
    same "$status" 79
    start hf run --lease 6s --preserve-status heed bash -c 'trap "exit 5" TERM
        while [ -d $test_proc ]; do tick; done'
    finish "$pid"
    same "$status" 5
    wait_until free heed
}

# The server stops answering. When the lease ends on the server, the command has been dead for a while:
# nobody else can have got the lock before.
test_server_frozen() {
    start_guarded frozen
    local before after
    see_renewal frozen
    kill -STOP "$server"
    finish "$pid"
    after=$(now_ms)
    kill -CONT "$server"
    same "$status" 79
    all_dead
    # 99 % of the lease (clock_drift_ppm), less the margins of 300 and 2000 ms, is 3640 ms after the renewal was begun. A busy
    # machine may have taken a while to send that.
    [ $((after - before)) -ge 2000 ] || fail "killed after $((after - before)) ms"
}
# see_renewal NAME: returns when its lease has been renewed. At $before it had not been yet.
see_renewal() {
    local last left looked
    before=$(now_ms)
    left=$(redis pttl "$1")
    while last=$left looked=$(now_ms) left=$(redis pttl "$1") && [ "$left" -le "$last" ]; do
        [ "$left" -gt 0 ] || fail "$1 is gone"
        before=$looked
        tick
    done
}

test_server_frozen_only_shortly() {
    start_guarded short --ttl 12s
    kill -STOP "$server"
    sleep 1 # less than anything that matters; a stopped server shows nothing
    kill -CONT "$server"
    see_renewal short
    see_renewal short
    alive "$command" || fail "it was killed"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    free short || fail "still locked"
}

test_server_killed() {
    socket=$dir/second.sock
    server_start
    start_guarded killed
    server_kill
    finish "$pid"
    same "$status" 79
    all_dead
}

run_tests
