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
        while [ ! -e \"\$0.end\" ] && [ -d \$test_proc ]; do sleep 0.01; done" "$0" </dev/null >/dev/null 2>&1 &
' "$1"
END
chmod +x "$dir/bin/daemonize"

# start_with_daemon NAME [TTL]: `run` with a command that lives, and a daemon of it.
start_with_daemon() {
    local file=$dir/$1
    start hf run --ttl "${2:-6s}" "$1" sh -c 'daemonize "$0.daemon"; echo $$ >"$0.new"; mv "$0.new" "$0"
        exec sleep 100' "$file"
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
    start hf run wait daemonize "$dir/wait"
    wait_until file_filled "$dir/wait"
    local daemon
    daemon=$(cat "$dir/wait")
    sleep 0.5 # the command has long ended; nothing more must happen, which no event can tell
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
            setsid sh -c "sleep 100 & echo \$! >>\"\$0.pids\"; sleep 100 & echo \$! >>\"\$0.pids\"; wait" "$0" &
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
    start hf run --ttl 2s rk perl "$dir/runaway.pl" "$dir/rk" 60
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
sleep(100);
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

test_stopped_for_a_moment_only() {
    start_with_daemon moment
    kill -STOP "$guard"
    wait_until in_state "$guard" T
    kill -CONT "$guard"
    kill -STOP "$holder"
    wait_until in_state "$holder" T
    kill -CONT "$holder"
    sleep 7 # longer than the lease: nothing must happen, which no event can tell
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
    start hf run --ttl 2s --on-lost=ignore ih bash -c 'trap "touch $0.term" TERM; touch "$0"
        while [ ! -e "$0.end" ] && [ -d $test_proc ]; do sleep 0.01; done; exit 3' "$dir/ih"
    wait_until file_there "$dir/ih"
    kill -KILL "$(holder_of "$pid")"
    sleep 0.5 # nothing must happen
    alive "$pid" || fail "it did not wait"
    touch "$dir/ih.end"
    finish "$pid"
    same "$status" 79
    [ ! -e "$dir/ih.term" ] || fail "it got a TERM"
}

test_no_zombies_while_running() {
    start hf run zombies sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do setsid sh -c "true & :" & done; wait
        touch "$0"; exec sleep 100' "$dir/zombies"
    wait_until file_there "$dir/zombies"
    wait_until one_child "$(holder_of "$pid")"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
}
one_child() { [ "$(children_of "$1" | wc -l)" = 1 ]; }

run_tests
