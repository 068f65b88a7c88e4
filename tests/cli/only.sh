#!/usr/bin/env bash
# `holdfast run --only-command`: the lock covers the command and nothing that it leaves behind. While it
# runs, what still belongs to it is ended with it when the lock is lost, and a daemon of it is not.
. "$(dirname "$0")/lib.sh"
server_start

# A program that leaves a daemon behind, in the old way: two forks and a session of its own. Writes the
# daemon's pid to FILE; the daemon ends when FILE.end is there.
cat >"$dir/bin/daemonize" <<'END'
#!/bin/sh
setsid sh -c '
    sh -c "echo \$\$ >\"\$0.new\"; mv \"\$0.new\" \"\$0\"
        while [ ! -e \"\$0.end\" ] && [ -d \$test_proc ]; do tick; done" "$0" </dev/null >/dev/null 2>&1 &
' "$1"
END
# Goes on, as long as the test, and holds nothing open.
cat >"$dir/bin/linger" <<'END'
#!/bin/sh
exec </dev/null >/dev/null 2>&1
while [ -d "$test_proc" ]; do tick; done
END
chmod +x "$dir/bin/daemonize" "$dir/bin/linger"

# start_with_all NAME OPTION...: a command that lives, with a child in its group, one in a group of its own
# which still is its child, and a daemon, which is not any more.
start_with_all() {
    local file=$dir/$1 name=$1
    shift
    start hf run --ttl 6s --only-command "$@" "$name" bash -c 'daemonize "$0.daemon"
        linger & echo $! >"$0.child"
        setsid linger & echo $! >"$0.apart"
        echo $$ >"$0.new"; mv "$0.new" "$0"; wait' "$file"
    wait_until file_filled "$file"
    wait_until file_filled "$file.daemon"
    command=$(cat "$file")
    child=$(cat "$file.child")
    apart=$(cat "$file.apart")
    daemon=$(cat "$file.daemon")
    guard=$pid
    holder=$(holder_of "$guard")
}
all_but_the_daemon_ended() {
    ended "$command" && ended "$child" && ended "$apart" || fail "something of the command still runs"
    wait_until ended "$holder" # the last of `run`: nobody is left who could end the daemon
    alive "$daemon" || fail "the daemon has been ended"
}

test_daemon_lives_on() {
    expect 7 hf run --only-command left sh -c 'daemonize "$0"; exit 7' "$dir/left"
    free left || fail "still locked"
    wait_until file_filled "$dir/left"
    local daemon
    daemon=$(cat "$dir/left")
    alive "$daemon" || fail "the daemon has been ended"
    touch "$dir/left.end"
    wait_until ended "$daemon"
}

# Not only daemons: whatever is left when the command has ended, also in its group.
test_background_process_lives_on() {
    expect 0 env HOLDFAST_ONLY_COMMAND=yes hf run left sh -c \
        'sh -c "while [ ! -e \"\$0.end\" ] && [ -d \$test_proc ]; do tick; done" "$0" >/dev/null 2>&1 &
        echo $! >"$0"' "$dir/background"
    free left || fail "still locked"
    alive "$(cat "$dir/background")" || fail "it has been ended"
    touch "$dir/background.end"
    wait_until ended "$(cat "$dir/background")"
}

test_lost() {
    start_with_all lost
    redis del lost >/dev/null
    finish "$guard"
    same "$status" 79
    all_but_the_daemon_ended
}

test_lost_in_the_group_of_the_pipeline() {
    start_with_all lf --foreground
    redis del lf >/dev/null
    finish "$guard"
    same "$status" 79
    all_but_the_daemon_ended
}

test_signal_ends_the_command() {
    start_with_all term
    kill -TERM "$guard"
    finish "$guard"
    same "$status" 143
    ended "$command" || fail "it still runs"
    free term || fail "still locked"
    ended_in_time "$child" # it was signalled, too, and nobody waits for it
    alive "$daemon" || fail "the daemon has been ended"
}

test_timeout() {
    start_with_all late -t 5s # it has started everything by then
    finish "$guard"
    same "$status" 124
    ended "$command" || fail "it still runs"
    alive "$daemon" || fail "the daemon has been ended"
}

# The kernel takes the command along with the holder, and the guard takes its group.
test_holder_killed() {
    start_with_all hk
    kill -KILL "$holder"
    finish "$guard"
    same "$status" 79
    ended "$command" && ended "$child" || fail "something of the group still runs"
    alive "$daemon" || fail "the daemon has been ended"
}

test_guard_killed() {
    start_with_all gk
    kill -KILL "$guard"
    finish "$guard"
    wait_until ended "$holder"
    free gk || fail "still locked"
    all_but_the_daemon_ended
}

# The command is gone and its daemon is there: there is nothing to guard any more, while the lock is kept on.
test_holder_killed_after_the_command() {
    start hf run --only-command --hold-for 1000 kept daemonize "$dir/kept"
    wait_until file_filled "$dir/kept"
    local holder daemon
    holder=$(holder_of "$pid")
    daemon=$(cat "$dir/kept")
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    wait_until ended "$holder"
    alive "$daemon" || fail "the daemon has been ended"
    free kept || fail "still locked"
}

# --on-lost=signal: the command gets one signal, `run` waits for it, and does no more.
test_on_lost_signal() {
    start hf run --ttl 3s --only-command --on-lost=signal asked bash -c 'daemonize "$0.daemon"
        trap "exit 5" TERM; touch "$0"; while [ -d $test_proc ]; do tick; done' "$dir/asked"
    wait_until file_there "$dir/asked"
    wait_until file_filled "$dir/asked.daemon"
    redis del asked >/dev/null
    finish "$pid"
    same "$status" 79
    alive "$(cat "$dir/asked.daemon")" || fail "the daemon has been ended"
}

run_tests
