#!/usr/bin/env bash
# Everything that comes of a command is guarded, wherever it went; and each of the two processes of
# `holdfast run` does the other's duty when that is killed or stopped.
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
chmod +x "$dir/bin/daemonize"

# start_with_daemon NAME [TTL]: `run` with a command that lives, and a daemon of it.
start_with_daemon() {
    local file=$dir/$1
    start hf run --ttl "${2:-6s}" "$1" sh -c 'daemonize "$0.daemon"; echo $$ >"$0.new"; mv "$0.new" "$0"
        exec stay' "$file"
    wait_until file_filled "$file"
    wait_until file_filled "$file.daemon"
    command=$(cat "$file")
    daemon=$(cat "$file.daemon")
    guard=$pid
    holder=$(holder_of "$guard")
    alive "$command" && alive "$daemon" || fail "not running"
}
both_die() {
    wait_until ended "$command"
    wait_until ended "$daemon"
}

test_daemon_is_waited_for() {
    start hf run --ttl 4s wait daemonize "$dir/wait"
    wait_until file_filled "$dir/wait"
    local daemon
    daemon=$(cat "$dir/wait")
    wait_until no_child_but "$(holder_of "$pid")" "$daemon" # the command has ended
    outlive_lease wait || fail "it does not renew any more"
    alive "$pid" || fail "it did not wait"
    alive "$daemon" || fail "it has killed the daemon"
    locked wait || fail "it has released"
    touch "$dir/wait.end"
    finish "$pid"
    same "$status" 0 "the command's"
    free wait || fail "still locked"
}

test_signals_reach_a_daemon_that_is_left() {
    start hf run left daemonize "$dir/left"
    wait_until file_filled "$dir/left"
    wait_until no_child_but "$(holder_of "$pid")" "$(cat "$dir/left")"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0 "the command had ended well"
    ended "$(cat "$dir/left")" || fail "the daemon still runs"
}
no_child_but() { [ "$(children_of "$1")" = "$2" ]; }

test_daemon_is_killed_when_the_lock_is_lost() {
    start_with_daemon lost
    redis del lost >/dev/null
    finish "$guard"
    same "$status" 79
    ended "$command" && ended "$daemon" || fail "something still runs"
}

test_many_layers() {
    start hf run --ttl 6s layers sh -c 'for i in 1 2 3 4 5 6; do
            setsid sh -c "stay & echo \$! >>\"\$0.pids\"; stay & echo \$! >>\"\$0.pids\"; wait" "$0" &
        done; wait' "$dir/layers"
    wait_until lines_in "$dir/layers.pids" 12
    redis del layers >/dev/null
    finish "$pid"
    same "$status" 79
    while read -r process; do
        ended "$process" || fail "$process still runs"
    done <"$dir/layers.pids"
}
lines_in() { [ -e "$1" ] && [ "$(wc -l <"$1")" = "$2" ]; }

# Runs away: each process leaves a child in a session of its own, and exits. Writes FILE when it starts and
# FILE.end when it has run for so many SECONDS.
cat >"$dir/runaway.pl" <<'END'
use POSIX ();
my ($path, $seconds) = @ARGV;
sub note { open(my $file, '>', $_[0]) or die; close($file); }
$SIG{TERM} = 'IGNORE';
note($path);
my $end = time + $seconds;
while (time < $end) {
    my $pid = fork();
    POSIX::_exit(0) if $pid;
    POSIX::setsid() if defined $pid;
}
note("$path.end");
END

# There is one at every moment, though no look at /proc may ever show it.
test_runaway_is_waited_for() {
    start hf run ra perl "$dir/runaway.pl" "$dir/ra" 2
    finish "$pid"
    same "$status" 0
    file_there "$dir/ra.end" || fail "it still runs, and the lock is free"
}

test_runaway_is_killed() {
    start hf run --ttl 6s rk perl "$dir/runaway.pl" "$dir/rk" 60
    wait_until file_there "$dir/rk"
    redis del rk >/dev/null
    finish "$pid"
    same "$status" 79
    [ ! -e "$dir/rk.end" ] || fail "it has got to its end"
}

test_holder_killed() {
    start_with_daemon hk
    kill -KILL "$holder"
    finish "$guard"
    same "$status" 79
    ended "$command" && ended "$daemon" || fail "something still runs"
}

test_guard_killed() {
    start_with_daemon gk
    kill -KILL "$guard"
    finish "$guard"
    both_die
    wait_until free gk
    wait_until ended "$holder"
}

# Stopped for good: past the lease the lock may be another's, and nothing of the command may live then.
test_holder_stopped() {
    start_with_daemon hs 20s # so it is killed a whole second before the lease ends
    kill -STOP "$holder"
    finish "$guard"
    same "$status" 79
    ended "$command" && ended "$daemon" || fail "something still runs"
    ended "$holder" || fail "the holder still exists"
    # The lease runs out by itself; had it done so before, the command would have died too late.
    locked hs || fail "the lock was free before the command was dead"
    wait_until free hs
}

test_guard_stopped() {
    start_with_daemon gs
    kill -STOP "$guard"
    both_die
    finish "$guard"
    same "$status" 137
    wait_until free gs
    wait_until ended "$holder"
}

# Its main thread hangs, while the lease goes on being renewed: the guard learns of no new deadline, and acts
# on the old one. (As a debugger would do it; a hang of that kind cannot be made from outside otherwise.)
test_holder_hangs() {
    local number seized=$dir/seized
    case $(uname -m) in x86_64) number=101 ;; aarch64) number=117 ;; *) number=0 ;; esac
    start_with_daemon hh
    cat >"$dir/seize.pl" <<'END'
my ($number, $pid, $seized) = @ARGV;
syscall($number, 0x4206, 0 + $pid, 0, 0) == 0 or exit 1; # PTRACE_SEIZE
syscall($number, 0x4207, 0 + $pid, 0, 0) == 0 or exit 1; # PTRACE_INTERRUPT
open(my $file, '>', $seized);
close($file);
sleep(100); # for as long as it is to hang; it is killed before
END
    start perl "$dir/seize.pl" "$number" "$holder" "$seized"
    wait_until seized_or_not
    if [ ! -e "$seized" ]; then
        echo "[  SKIPPED ] holder_hangs" # We may not trace here.
        return
    fi
    finish "$guard"
    same "$status" 79
    ended "$command" && ended "$daemon" || fail "something still runs"
}
seized_or_not() { [ -e "$seized" ] || ended "$pid"; }

# stop_shortly PID: fails if a busy machine has made more than a moment of it. Each may be stopped for 600 ms.
stop_shortly() {
    local before
    before=$(now_ms)
    kill -STOP "$1"
    wait_until in_state "$1" T
    kill -CONT "$1"
    [ $(($(now_ms) - before)) -lt 500 ]
}
both_stop_shortly() {
    start_with_daemon moment
    stop_shortly "$guard" && stop_shortly "$holder" && return
    touch "$dir/moment.daemon.end"
    kill -TERM "$guard"
    finish "$guard"
    rm -f "$dir"/moment*
    return 1
}
test_stopped_for_a_moment_only() {
    wait_until both_stop_shortly
    outlive_lease moment || fail "it was lost"
    alive "$command" && alive "$daemon" || fail "it was killed"
    locked moment || fail "it was lost"
    kill -TERM "$guard"
    touch "$dir/moment.daemon.end"
    finish "$guard"
    same "$status" 143
}

test_killed_while_waiting() {
    redis hset kw somebody 1 >/dev/null
    start hf run kw touch "$dir/kw"
    wait_until awaited kw
    holder=$(holder_of "$pid")
    kill -KILL "$pid"
    wait_until ended "$holder"
    start hf run kw touch "$dir/kw"
    wait_until awaited kw
    kill -KILL "$(holder_of "$pid")"
    finish "$pid"
    same "$status" 70
    redis del kw >/dev/null
    [ ! -e "$dir/kw" ] || fail "it ran"
}

# Policies other than kill are kept also when one of the two dies.
test_ignore_survives_the_holder() {
    start hf run --ttl 6s --on-lost=ignore ih bash -c 'trap "touch $0.term" TERM; touch "$0"
        while [ ! -e "$0.end" ] && [ -d $test_proc ]; do tick; done; exit 3' "$dir/ih"
    wait_until file_there "$dir/ih"
    kill -KILL "$(holder_of "$pid")"
    sleep 0.5 # nothing must happen, and a holder that is dead renews nothing that could be counted
    alive "$pid" || fail "it did not wait"
    touch "$dir/ih.end"
    finish "$pid"
    same "$status" 79
    [ ! -e "$dir/ih.term" ] || fail "it got a TERM"
}

test_no_zombies_while_running() {
    start hf run zombies sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do setsid sh -c "true & :" & done; wait
        touch "$0"; exec stay' "$dir/zombies"
    wait_until file_there "$dir/zombies"
    wait_until one_child "$(holder_of "$pid")"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
}
one_child() { [ "$(children_of "$1" | wc -l)" = 1 ]; }

# Only a server that the library has started is left alone, not whatever has its mark in the environment.
test_a_mark_in_the_environment_saves_nobody() {
    HOLDFAST_LOCAL_SERVER=1 HOLDFAST_LOCAL_DIR=/tmp/holdfast-$UID start_with_daemon marked
    grep -qz '^HOLDFAST_LOCAL_SERVER=1$' "/proc/$daemon/environ" || fail "it has no mark"
    redis del marked >/dev/null
    finish "$guard"
    same "$status" 79
    ended "$command" && ended "$daemon" || fail "something still runs"
}

# Nor one that looks at the server's directory, nor one that is called like the server's shell.
test_a_likeness_of_a_server_saves_nobody() {
    mkdir -m 700 "$dir/likeness"
    start env HOLDFAST_LOCAL_SERVER=1 HOLDFAST_LOCAL_DIR="$dir/likeness" "$HOLDFAST" -s "$socket" run --ttl 6s alike sh -c '
        setsid sh -c "exec 9<\"\$1\"; echo \$\$ >\"\$1.one\"; while [ -d \$test_proc ]; do tick; done" holdfast-local "$0" &
        setsid sh -c "cd \"\$1\"; echo \$\$ >\"\$1.two\"; while [ -d \$test_proc ]; do tick; done" holdfast-local "$0" &
        exec stay' "$dir/likeness"
    wait_until file_filled "$dir/likeness.one"
    wait_until file_filled "$dir/likeness.two"
    redis del alike >/dev/null
    finish "$pid"
    same "$status" 79
    ended "$(cat "$dir/likeness.one")" || fail "an open directory has saved it"
    ended "$(cat "$dir/likeness.two")" || fail "its name has saved it"
}

# Nor one that locks the server's directory, also if it looks like a server in everything but the socket.
test_a_lock_on_the_directory_saves_nobody() {
    mkdir -m 700 "$dir/lock1" "$dir/lock2"
    : >"$dir/lock2/redis.sock"
    start env HOLDFAST_LOCAL_DIR="$dir/lock1" "$HOLDFAST" -s "$socket" run --ttl 6s locks sh -c '
        setsid flock "$0/lock1" sh -c "echo \$\$ >\"\$0.1.new\"; mv \"\$0.1.new\" \"\$0.1\"; exec stay" "$0/locks" &
        HOLDFAST_LOCAL_DIR=$0/lock2 setsid sh -c "cd \"\$0/lock2\"; exec 9<.; flock 9
            echo \$\$ >../locks.2.new; mv ../locks.2.new ../locks.2; exec tail --pid=\${test_proc#/proc/} -f /dev/null" "$0" &
        exec stay' "$dir"
    wait_until file_filled "$dir/locks.1"
    wait_until file_filled "$dir/locks.2"
    redis del locks >/dev/null
    finish "$pid"
    same "$status" 79
    ended "$(cat "$dir/locks.1")" || fail "flock(1) has saved it"
    ended "$(cat "$dir/locks.2")" || fail "a lock in descriptor 9 has saved it"
}

# Nobody can look for what has left the command; so that is said, and the command itself is ended all the same.
test_without_proc() {
    local isolate=(unshare --user --map-root-user --mount)
    if ! "${isolate[@]}" mount -t tmpfs none /proc 2>/dev/null; then
        echo "[  SKIPPED ] no namespaces here"
        return
    fi
    # shellcheck disable=SC2016
    start "${isolate[@]}" sh -c 'mount -t tmpfs none /proc && exec hf run --ttl 6s np sh -c "touch \"\$0\"; exec stay" "$0"' \
        "$dir/np" 2>"$dir/np.err"
    wait_until file_there "$dir/np"
    grep -q "/proc cannot be read: .* mount /proc" "$dir/np.err" || fail "no warning: $(cat "$dir/np.err")"
    redis del np >/dev/null
    finish "$pid"
    same "$status" 79
    start "${isolate[@]}" sh -c 'mount -t tmpfs none /proc && exec hf run --on-lost=ignore np true' 2>"$dir/np.err"
    finish "$pid"
    same "$status" 0
    same "$(cat "$dir/np.err")" "" "nothing to end, nothing to say"
}

# time_faults: a library that changes the holder's time at defined points, in $faults.
time_faults() {
    faults=$dir/slept.so
    "$CC" -shared -fPIC -o "$faults" "$HF_SOURCE_DIR/tests/support/clock/slept.c" || fail "no clock"
}

# The machine sleeps when the guard has agreed and the command is not started yet.
test_a_sleep_before_the_start() {
    time_faults
    start env HF_TEST_SLEEPS=1 LD_PRELOAD="$faults" "$HOLDFAST" -s "$socket" run sleepy touch "$dir/ran" 2>"$dir/err"
    finish "$pid"
    same "$status" 79
    [ ! -e "$dir/ran" ] || fail "it ran without the lock"
    grep -q "the command is not started" "$dir/err" || fail "says $(cat "$dir/err")"
}

# A holder that stalls while it computes the deadline computes an earlier one, never a later one: the command never sees
# that the lock is free. It dies 720 ms before that, a twentieth and a hundredth of the lease; a late one would be 1.5 s later.
test_a_stall_does_not_move_the_deadline() {
    time_faults
    # The command polls: a key has no event for a shell.
    # shellcheck disable=SC2016
    start env HF_TEST_STALLS="$dir/stalls" LD_PRELOAD="$faults" "$HOLDFAST" -s "$socket" run --lease 12s stalled sh -c '
        trap "" TERM; unset LD_PRELOAD; touch "$0/began"
        while :; do [ "$(redis-cli -s "$1" exists stalled)" != 0 ] || touch "$0/free"; sleep 0.01; done' "$dir" "$socket" \
        2>"$dir/err"
    wait_until file_there "$dir/began"
    touch "$dir/stalls"
    finish "$pid"
    same "$status" 79
    [ ! -e "$dir/free" ] || fail "it ran without the lock"
}

run_tests
