#!/usr/bin/env bash
# Exit statuses of `run`, and what the command gets: environment, standard input, descriptors.
. "$(dirname "$0")/lib.sh"
server_start

test_status_of_the_command() {
    expect 0 hf run a true
    expect 7 hf run a -- sh -c 'exit 7'
    expect 255 hf run a sh -c 'exit 255'
    free a || fail "still locked"
}

test_killed_command_is_128_plus_signal() {
    expect 143 hf run a sh -c 'kill -TERM $$'
    expect 137 hf run a sh -c 'kill -KILL $$'
    expect 139 hf run a sh -c 'ulimit -c 0; kill -SEGV $$'
    free a || fail "still locked"
}

test_not_found_127_not_executable_126() {
    expect 127 hf run a no-such-command-here
    says "cannot run 'no-such-command-here'"
    expect 126 hf run a /etc/passwd
    expect 126 hf run a /
    expect 127 hf run a ./missing
    free a || fail "still locked"
}

test_locked_while_the_command_runs() {
    expect 0 hf run a -- sh -c '[ "$(redis-cli -s "$0" exists a)" = 1 ]' "$socket"
    free a || fail "still locked"
}

test_busy_75_and_E() {
    redis hset a somebody 1 >/dev/null
    expect 75 hf run -n a touch "$dir/ran"
    expect 75 hf run -w 0 a touch "$dir/ran"
    expect 75 hf run -w 2s a touch "$dir/ran"
    expect 3 hf run -n -E 3 a touch "$dir/ran"
    expect 0 hf run -n -E 0 a touch "$dir/ran"
    same "$err" "" "with -E 0 it is silent"
    expect 75 hf -q run -n a touch "$dir/ran"
    same "$err" "" "with -q it is silent"
    expect 75 env HOLDFAST_NONBLOCK=yes "$HOLDFAST" -s "$socket" run a touch "$dir/ran"
    [ ! -e "$dir/ran" ] || fail "it ran without the lock"
    redis del a >/dev/null
}

test_wait_takes_as_long_as_it_says() {
    redis hset a somebody 1 >/dev/null
    local before after
    before=$(now_ms)
    expect 75 hf run -w 2.7 a true
    after=$(now_ms)
    [ $((after - before)) -ge 2690 ] || fail "gave up after $((after - before)) ms"
    redis del a >/dev/null
}

test_wait_gets_it_when_it_is_free() {
    start hf hold --no-stdin a
    local holding=$pid
    wait_until locked a
    start hf run -w 60 a touch "$dir/got"
    wait_until awaited a
    [ ! -e "$dir/got" ] || fail "two holders"
    kill -TERM "$holding"
    finish "$pid"
    same "$status" 0
    file_there "$dir/got" || fail "it did not run"
}

test_wrong_type_65() {
    redis set a text >/dev/null
    expect 65 hf run a true
    expect 65 hf run -n a true
    redis del a >/dev/null
    redis hset a mode read >/dev/null
    expect 65 hf run -n a true
    redis del a >/dev/null
}

test_unreachable_69() {
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" run -n a true
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" -t 300ms run a true
    expect 69 "$HOLDFAST" -h 127.0.0.1 -p 1 run -n a true
    expect 69 "$HOLDFAST" -h 127.0.0.1 -p 1 show a
}

# Whatever listens there does not speak as Redis does.
test_no_redis_69() {
    start perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Listen => 5, Local => $ARGV[0]) or die;
        while ($c = $s->accept) { print $c "HTTP/1.1 400 Bad Request\r\n\r\n"; close $c }' "$dir/http.sock"
    wait_until file_there "$dir/http.sock"
    expect 69 "$HOLDFAST" -s "$dir/http.sock" -t 5 run a true
    says "invalid reply"
}

# -v says what it is waiting for, and -q nothing.
test_verbose() {
    start hf hold --no-stdin a >"$dir/held"
    local holding=$pid
    wait_until file_filled "$dir/held"
    start hf -v run a true 2>"$dir/said"
    wait_until grep -q "'a': waiting; held by .* $holding bash" "$dir/said"
    kill -TERM "$holding"
    finish "$pid"
    same "$status" 0
    grep -q "'a': acquired after [0-9.]* s" "$dir/said" && grep -q "'a': released" "$dir/said" ||
        fail "$(cat "$dir/said")"
    same "$(wc -l <"$dir/said")" 3 "lines"
    expect 0 hf run a true
    same "$err" ""

    start hf hold --no-stdin -N 1 slots >"$dir/held.slot"
    holding=$pid
    wait_until file_filled "$dir/held.slot"
    start hf hold --no-stdin -v -N 1 slots 2>"$dir/said" >/dev/null
    wait_until grep -q "'slots': waiting for a slot" "$dir/said"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    kill -TERM "$holding"
    finish "$holding"
}

test_environment_of_the_command() {
    expect 0 hf run --ttl 20s a sh -c 'echo "$HOLDFAST_NAME $HOLDFAST_KIND ${HOLDFAST_TOKEN-none}"
        echo "$HOLDFAST_OWNER"; redis-cli -s "$0" hkeys a; echo "$HOLDFAST_DEADLINE"' "$socket"
    { read -r first; read -r owner; read -r key; read -r deadline; } <<<"$out"
    same "$first" "a plain none"
    same "$owner" "$key" "owner"
    local left=$((deadline - $(now_ms)))
    [ "$left" -gt 0 ] && [ "$left" -le 20000 ] || fail "deadline in $left ms"

    # An outer lock's variables do not shine through.
    expect 0 env HOLDFAST_TOKEN=5 "$HOLDFAST" -s "$socket" run a sh -c '[ -z "${HOLDFAST_TOKEN+x}" ]'
    expect 0 hf run --env LOCK_ a sh -c '[ "$LOCK_NAME" = a ] && [ -z "${HOLDFAST_NAME+x}" ]'
    expect 0 hf run a sh -c '[ -z "${HOLDFAST_URL+x}" ]'
}

test_standard_input_is_passed_through() {
    same "$(printf 'one\ntwo\n' | hf run a cat)" $'one\ntwo'
    same "$(printf 'one\n' | hf run --no-stdin a cat)" ""
    # Nobody else reads from it: what the command leaves is there for the next one.
    same "$(printf 'one\ntwo\n' >"$dir/in"; { hf run a head -c 4 >/dev/null; cat; } <"$dir/in")" two
}

test_descriptors() {
    # The command has what it would have without us.
    expect 0 sh -c 'exec ls /proc/self/fd'
    local without=$out
    expect 0 hf run a ls /proc/self/fd
    same "$out" "$without" "descriptors"
    expect 0 eval 'hf run a sh -c "true >&7" 7>/dev/null'
    expect 0 eval 'hf run --close-fds a sh -c "! { true >&7; } 2>/dev/null" 7>/dev/null'
}

test_ready_fd() {
    mkfifo "$dir/ready"
    exec 9<>"$dir/ready"
    start hf run --ready-fd 9 a sh -c '! { true >&9; } 2>/dev/null && stay'
    read -r -t "$LIMIT" line <&9 || fail "no newline came"
    same "$line" ""
    locked a || fail "ready without the lock"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
}

test_shell_command() {
    expect 5 hf run a -c 'exit 5'
    expect 5 hf run -c 'exit 5' a
    expect 0 env SHELL=/bin/echo "$HOLDFAST" -s "$socket" run a -c 'a string'
    same "$out" "-c a string"
}

test_options_of_the_command_are_its_own() {
    expect 0 hf run a echo -n -w --json
    same "$out" "-w --json"
    expect 0 hf run a -- echo -- x
    same "$out" "-- x"
}

test_timeout_124() {
    expect 124 hf run -t 200ms a stay
    expect 0 hf run -t 0 a true
    expect 124 hf run -t 200ms --signal INT a bash -c 'trap "exit 9" INT; while [ -d $test_proc ]; do tick; done'
    free a || fail "still locked"
}

# As timeout(1): 124 when the signal was enough, 137 when KILL was needed, or was the signal.
test_timeout_with_kill_137() {
    # Only a bash that has got to its trap needs more than the signal.
    expect 137 hf run -t 2s -k 200ms a bash -c 'trap "" TERM; while [ -d $test_proc ]; do tick; done'
    expect 137 hf run -t 200ms --signal KILL a stay
    # The command has ended by the signal; that what it left behind needed KILL is not its status.
    expect 124 hf run -t 500ms -k 3s a bash -c '(trap "" TERM; while [ -d $test_proc ]; do tick; done) & wait'
    free a || fail "still locked"
}

test_timeout_and_preserved_status() {
    # What the status tells depends on the trap, so there is time enough for bash to get to it.
    expect 9 hf run -t 2s --signal INT --preserve-status a \
        bash -c 'trap "exit 9" INT; while [ -d $test_proc ]; do tick; done'
    expect 137 hf run -t 2s -k 200ms --preserve-status a \
        bash -c 'trap "" TERM; while [ -d $test_proc ]; do tick; done'
    free a || fail "still locked"
}

test_hold_for() {
    local before after
    before=$(now_ms)
    expect 4 hf run --hold-for 600ms a sh -c 'exit 4'
    after=$(now_ms)
    [ $((after - before)) -ge 590 ] || fail "held for $((after - before)) ms only"
    free a || fail "still locked"
    start hf run --hold-for 1000 a touch "$dir/ended"
    wait_until file_there "$dir/ended"
    locked a || fail "not held on"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0 "the command had ended well"
    free a || fail "still locked"
}

test_like_cron() {
    # No variables, no terminal, no standard input, output to a pipe, a session of its own.
    same "$(env -i setsid -w "$HOLDFAST" -s "$socket" run -n a /bin/echo said </dev/null 2>&1 | cat)" said
    expect 0 env -i "$HOLDFAST" -s "$socket" run a -c 'true'
    expect 3 eval 'env -i "$HOLDFAST" -s "$socket" run a /bin/sh -c "exit 3" <&- >&- 2>&-'
    free a || fail "still locked"
}

test_parent_that_ignores_children() {
    expect 6 perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' "$HOLDFAST" -s "$socket" run a sh -c 'exit 6'
}

test_connection_from_the_environment() {
    expect 0 env HOLDFAST_SOCKET="$socket" "$HOLDFAST" run a true
    expect 0 env HOLDFAST_URL="unix://$socket" "$HOLDFAST" run a true
    expect 0 env REDIS_URL="unix://$socket" "$HOLDFAST" run a true
    expect 0 env HOLDFAST_URL="unix://$socket" REDIS_URL=redis://127.0.0.1:1 "$HOLDFAST" run a true
    expect 0 env HOLDFAST_URL=redis://127.0.0.1:1 "$HOLDFAST" -s "$socket" run a true
    expect 0 "$HOLDFAST" -s "$socket" -n 3 run a sh -c '[ "$(redis-cli -s "$0" -n 3 exists a)" = 1 ]' \
        "$socket"
}

run_tests
