#!/usr/bin/env bash
# Signals to `holdfast run` at every moment of its life: the right status, nothing left running, and the
# lock free afterwards.
. "$(dirname "$0")/lib.sh"
server_start

test_while_waiting() {
    redis hset a somebody 1 >/dev/null
    local signal number
    for signal in TERM:143 INT:130 HUP:129 QUIT:131 USR1:138 ALRM:142; do
        number=${signal#*:}
        start hf run a touch "$dir/ran"
        wait_until awaited a
        kill "-${signal%:*}" "$pid"
        finish "$pid"
        same "$status" "$number" "status after ${signal%:*}"
        wait_until not_awaited a
    done
    [ ! -e "$dir/ran" ] || fail "it ran"
    same "$(redis hkeys a)" somebody "holder"
    redis del a >/dev/null
}
not_awaited() { ! awaited "$1"; }

test_to_the_holder_while_waiting() {
    redis hset a somebody 1 >/dev/null
    start hf run a true
    wait_until awaited a
    kill -TERM "$(holder_of "$pid")"
    finish "$pid"
    same "$status" 143
    redis del a >/dev/null
}

# Sweeps over the first moments: starting, connecting, acquiring, acquired, starting the command. With a lease
# so long that a lock which was left behind does not free itself in the meantime.
test_in_the_first_moments() {
    local delay i=0
    for delay in 0 0.0005 0.001 0.0015 0.002 0.003 0.004 0.005 0.006 0.007 0.008 0.010 0.012 0.015 0.02 \
        0.03; do
        for _ in 1 2 3; do
            i=$((i + 1))
            start hf run --ttl 1h first sh -c 'echo $$ >"$0"; exec stay' "$dir/command.$i"
            sleep "$delay" # a moment of its first ones: which, is the test
            kill -TERM "$pid"
            finish "$pid"
            # 143 by holdfast, or by the signal itself if it came before holdfast could look.
            same "$status" 143 "after $delay s"
            wait_until free first
            if file_filled "$dir/command.$i"; then
                ended "$(cat "$dir/command.$i")" || fail "the command still runs"
            fi
        done
    done
}

test_just_acquired() {
    mkfifo "$dir/just"
    exec 9<>"$dir/just"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        start hf run --ready-fd 9 just stay
        read -r -t "$LIMIT" _ <&9 || fail "not ready"
        kill -TERM "$pid"
        finish "$pid"
        same "$status" 143
        free just || fail "still locked"
    done
}

test_while_running() {
    local signal
    for signal in TERM INT HUP QUIT USR1 USR2 ALRM; do
        rm -f "$dir/up"
        start hf run run bash -c 'trap "exit 11" '$signal'; touch "$0"; while [ -d $test_proc ]; do tick; done' \
            "$dir/up"
        wait_until file_there "$dir/up"
        kill "-$signal" "$pid"
        finish "$pid"
        same "$status" 11 "the command's answer to $signal"
        free run || fail "still locked"
    done
}

test_harmless_signals_are_passed_on() {
    start hf run run bash -c 'trap "touch $0.winch" WINCH; trap "touch $0.cont" CONT; touch $0.up
        while [ ! -e $0.winch ] || [ ! -e $0.cont ]; do tick; done' "$dir/harmless"
    wait_until file_there "$dir/harmless.up"
    kill -WINCH "$pid"
    kill -CONT "$pid"
    finish "$pid"
    same "$status" 0
}

test_uncaught_signal_kills_the_command() {
    start hf run run sh -c 'echo $$ >"$0"; exec stay' "$dir/uncaught"
    wait_until file_filled "$dir/uncaught"
    kill -HUP "$pid"
    finish "$pid"
    same "$status" 129
    ended "$(cat "$dir/uncaught")" || fail "the command still runs"
    free run || fail "still locked"
}

test_whole_group_gets_it() {
    start hf run run sh -c 'stay & echo $! >"$0"; wait' "$dir/group"
    wait_until file_filled "$dir/group"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    ended "$(cat "$dir/group")" || fail "the background process still runs"
}

test_ignored_signals_stay_ignored() {
    start sh -c 'trap "" HUP; exec "$0" run run sh -c "echo \$\$ >\"\$0\"; exec stay" "$1"' hf \
        "$dir/nohup"
    wait_until file_filled "$dir/nohup"
    kill -HUP "$pid"
    # Had it been passed on, it would have arrived before this one, which is.
    kill -USR1 "$pid"
    finish "$pid"
    same "$status" 138
}

# A stopped process hears nothing, so it is continued to hear that it is to end, as timeout(1) does it.
test_stopped_command_is_ended() {
    local signal
    for signal in TERM:143 INT:130 HUP:129 QUIT:131; do
        rm -f "$dir/stopped"
        start hf run run sh -c 'ulimit -c 0; echo $$ >"$0"; exec stay' "$dir/stopped"
        wait_until file_filled "$dir/stopped"
        kill -STOP "$(cat "$dir/stopped")"
        wait_until in_state "$(cat "$dir/stopped")" T
        kill "-${signal%:*}" "$pid"
        finish "$pid"
        same "$status" "${signal#*:}" "status after ${signal%:*}"
        free run || fail "still locked"
    done
    # Other signals are heard when somebody continues it.
    rm -f "$dir/stopped"
    start hf run run bash -c 'trap "exit 3" USR1; echo $$ >"$0"; while [ -d $test_proc ]; do tick; done' \
        "$dir/stopped"
    wait_until file_filled "$dir/stopped"
    kill -STOP "$(cat "$dir/stopped")"
    wait_until in_state "$(cat "$dir/stopped")" T
    kill -USR1 "$pid"
    kill -WINCH "$pid"
    sleep 0.2 # nothing must happen, and the stopped command can show nothing
    in_state "$(cat "$dir/stopped")" T || fail "it was continued"
    kill -CONT "$pid"
    finish "$pid"
    same "$status" 3
}

test_command_may_ignore_and_go_on() {
    start hf run run bash -c 'trap "" TERM; touch "$0"; while [ ! -e "$0.end" ] && [ -d $test_proc ]; do tick; done
        exit 3' "$dir/stubborn"
    wait_until file_there "$dir/stubborn"
    kill -TERM "$pid"
    touch "$dir/stubborn.end"
    finish "$pid"
    same "$status" 3
}

# The server does not answer the release, and then it does.
test_while_releasing() {
    start hf run rel sh -c 'kill -STOP "$0"; touch "$1"' "$server" "$dir/releasing"
    wait_until file_there "$dir/releasing"
    local holder
    holder=$(holder_of "$pid")
    wait_until no_children "$holder"
    kill -TERM "$pid"
    kill -INT "$pid"
    kill -CONT "$server"
    finish "$pid"
    same "$status" 0 "the command had ended well"
    wait_until free rel
}
no_children() { [ -z "$(children_of "$1")" ]; }

test_to_the_holder_while_running() {
    start hf run run sh -c 'echo $$ >"$0"; exec stay' "$dir/relay"
    wait_until file_filled "$dir/relay"
    kill -TERM "$(holder_of "$pid")"
    finish "$pid"
    same "$status" 143
    free run || fail "still locked"
}

# Waiting ends with a signal even though the server does not answer at all; and what it was sent before does
# not give us the lock when it goes on.
test_while_the_server_hangs() {
    kill -STOP "$server"
    start hf run --ttl 1h hang touch "$dir/hang"
    wait_until has_child "$pid"
    kill -TERM "$pid"
    finish "$pid"
    kill -CONT "$server"
    same "$status" 143
    [ ! -e "$dir/hang" ] || fail "it ran"
    wait_until free hang
}
has_child() { [ -n "$(children_of "$1")" ]; }

# How often it went to sleep by itself.
sleeps_of() { sed -n 's/^voluntary_ctxt_switches:[[:space:]]*//p' "/proc/$1/status"; }
has_slept_again() { [ "$(sleeps_of "$1")" -gt "$2" ]; }

# The attempt is on its way when the signal comes: the holder must not leave before it is undone.
test_while_an_attempt_is_on_its_way() {
    local holder before
    redis hset way somebody 1 >/dev/null
    redis pexpire way 5000 >/dev/null # it is waited for before that
    start hf run --ttl 1h way touch "$dir/way"
    wait_until awaited way
    kill -STOP "$server"
    sleep 5.1 # the lock would be free by now, and has been asked for again: of which the stopped server shows nothing
    holder=$(holder_of "$pid")
    before=$(sleeps_of "$holder")
    kill -TERM "$pid"
    wait_until has_slept_again "$holder" "$before" # it has noticed, and is still there
    kill -CONT "$server"
    finish "$pid"
    same "$status" 143
    [ ! -e "$dir/way" ] || fail "it ran"
    free way || fail "it has left the lock behind"
}

run_tests
