#!/usr/bin/env bash
# `holdfast elect`: one leads, the others stand by; what ends a term and what ends it for good.
. "$(dirname "$0")/lib.sh"
server_start

# A command that says who it is, and goes on until a signal ends it.
leading='echo $$ >>"$0"; while [ -d $test_proc ]; do tick; done'
last_of() { tail -n 1 "$1"; }
lines_of() { grep -c "" "$1" 2>/dev/null || :; }
has_lines() { local lines; lines=$(lines_of "$1"); [ "${lines:-0}" -ge "$2" ]; }

test_a_standby_takes_over() {
    start hf elect a sh -c "$leading" "$dir/one"
    local first=$pid
    wait_until file_filled "$dir/one"
    start hf elect a sh -c "$leading" "$dir/two"
    wait_until awaited a
    [ ! -e "$dir/two" ] || fail "two lead"
    kill -TERM "$first"
    finish "$first"
    same "$status" 143
    ended "$(last_of "$dir/one")" || fail "its command still runs"
    wait_until file_filled "$dir/two"
    kill -INT "$pid"
    finish "$pid"
    same "$status" 130
    free a || fail "still locked"
}

test_it_stands_by_again_when_the_command_ends() {
    start hf elect --backoff 10ms b sh -c 'echo x >>"$0"; exit 3' "$dir/terms"
    wait_until has_lines "$dir/terms" 3
    kill -TERM "$pid"
    finish "$pid" # with 143, or with the 3 of a command that has just ended
    free b || fail "still locked"
}

test_others_get_their_turn() {
    start hf elect --backoff 10ms c sh -c 'echo x >>"$0"' "$dir/left"
    local left=$pid
    start hf elect --backoff 10ms c sh -c 'echo x >>"$0"' "$dir/right"
    wait_until has_lines "$dir/left" 2
    wait_until has_lines "$dir/right" 2
    kill -TERM "$left" "$pid"
    finish "$left"
    finish "$pid"
}

test_it_stands_by_again_when_the_lock_is_lost() {
    start hf elect --ttl 4500ms --backoff 10ms d sh -c "$leading" "$dir/lost"
    wait_until file_filled "$dir/lost"
    local command
    command=$(last_of "$dir/lost")
    expect 0 hf unlock --force d
    wait_until has_lines "$dir/lost" 2
    ended "$command" || fail "the first command still runs"
    kill -TERM "$pid"
    finish "$pid"
    free d || fail "still locked"
}

test_once_has_the_status_of_the_command() {
    expect 0 hf elect --once e true
    expect 5 hf elect --once e sh -c 'exit 5'
    expect 137 hf elect --once e sh -c 'kill -KILL $$'
    free e || fail "still locked"
}

test_what_would_go_wrong_again_ends_it() {
    expect 127 hf elect f no-such-command-here
    expect 126 hf elect f /etc/passwd
    expect 64 hf elect f
    expect 64 hf elect --backoff soon f true
    redis set string 1 >/dev/null
    expect 65 hf elect string true
    redis del string >/dev/null
}

test_short_terms_have_longer_and_longer_pauses() {
    start hf elect --backoff 200ms g sh -c 'cut -d" " -f1 /proc/uptime >>"$0"' "$dir/short"
    wait_until has_lines "$dir/short" 4
    # 200, 400 and 800 ms, and this clock ticks in tens.
    awk 'NR == 1 { first = $1 } NR == 4 { exit $1 - first < 1.38 }' "$dir/short" ||
        fail "three pauses took too little: $(cat "$dir/short")"
    kill -TERM "$pid"
    finish "$pid"
    free g || fail "still locked"
}

test_a_signal_ends_a_pause() {
    start hf elect --backoff 1h k true 2>"$dir/err"
    wait_until file_filled "$dir/err"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    same "$(cat "$dir/err")" "holdfast: the command ended early; standing by again in 60 s"
    free k || fail "still locked"
}

test_hooks_come_in_turn() {
    start hf elect --backoff 10ms --on-start-leading "echo gain \$HOLDFAST_NAME >>$dir/hooks" \
        --on-stop-leading "echo lose >>$dir/hooks" h true
    wait_until has_lines "$dir/hooks" 6
    kill -TERM "$pid"
    finish "$pid"
    same "$(head -n 6 "$dir/hooks" | tr '\n' ' ')" "gain h lose gain h lose gain h lose "
}

test_a_server_that_is_away_is_waited_for() {
    socket=$dir/late.sock # one of its own
    start hf -t 300ms elect --backoff 10ms i sh -c "$leading" "$dir/late" 2>"$dir/late.err"
    sleep 0.5 # It is refused several times meanwhile; none of that ends it. There is no server that could show the attempts.
    alive "$pid" || fail "it gave up"
    wait_until grep -q "the lock was not acquired; trying again in 0.0" "$dir/late.err"
    ! grep -q "the command" "$dir/late.err" || fail "no command was started: $(cat "$dir/late.err")"
    server_start
    wait_until file_filled "$dir/late"
    kill -TERM "$pid"
    finish "$pid"
    free i || fail "still locked"
}

test_its_term_ends_with_it() {
    start hf elect --ttl 1h j sh -c "$leading" "$dir/orphan"
    wait_until file_filled "$dir/orphan"
    kill -KILL "$pid"
    finish "$pid"
    wait_until ended "$(last_of "$dir/orphan")"
    wait_until free j
}

# A hook is a child like the command: what is secret is not for it.
test_hooks_get_no_password() {
    start env HOLDFAST_PASSWORD=s3cret HOLDFAST_PASS=s3cret "$HOLDFAST" -s "$socket" --user default elect --once \
        --on-start-leading "env >$dir/gain.env" --on-stop-leading "env >$dir/lose.env" l sh -c "env >$dir/command.env"
    finish "$pid"
    same "$status" 0
    local file
    for file in gain lose command; do
        grep -q '^HOLDFAST_NAME=l$' "$dir/$file.env" || fail "no environment of $file"
        ! grep -q s3cret "$dir/$file.env" || fail "$file has the password"
    done
}

# Told to end, it ends its hook as well: all of it, also one that does not want to.
test_a_signal_ends_the_hook() {
    start hf elect --on-start-leading "echo \$\$ >$dir/gain.pid; stay; true" m sh -c "$leading" "$dir/hooked"
    wait_until file_filled "$dir/gain.pid"
    wait_until file_filled "$dir/hooked"
    local hook
    hook=$(cat "$dir/gain.pid")
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    ended "$hook" || fail "the hook still runs"
    free m || fail "still locked"
    start hf elect -k 200ms --on-start-leading "trap '' TERM; echo \$\$ >$dir/deaf.pid; while [ -d $test_proc ]; do tick; done" \
        m sh -c "$leading" "$dir/deaf"
    wait_until file_filled "$dir/deaf.pid"
    wait_until file_filled "$dir/deaf"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    wait_until ended "$(cat "$dir/deaf.pid")"
}

# The command has ended by itself; what is waited for is the hook, and the signal is what ends it all.
test_a_signal_while_it_waits_for_a_hook() {
    start hf elect --on-stop-leading "trap 'touch $dir/lose.term; exit' TERM; echo \$\$ >$dir/lose.pid
        while [ -d $test_proc ]; do tick; done" n true
    wait_until file_filled "$dir/lose.pid"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    ended "$(cat "$dir/lose.pid")" || fail "the hook still runs"
    file_there "$dir/lose.term" || fail "the hook got no TERM"
    free n || fail "still locked"
}

run_tests
