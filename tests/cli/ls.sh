#!/usr/bin/env bash
# The subcommand `ls`: all locks, who holds them and who waits.
. "$(dirname "$0")/lib.sh"
server_start

# listed TEXT ARGUMENT...: ls shows a line that matches. A client that a busy machine keeps from answering
# in time is shown as silent, so tests wait for the answers of clients.
listed() {
    local text=$1
    shift
    hf ls "$@" 2>/dev/null | grep -Eq -- "$text"
}
# stuck STATUS ARGUMENT...: ls --stuck ends with that.
stuck() {
    local wanted=$1 status=0
    shift
    hf ls --stuck "$@" >/dev/null 2>&1 || status=$?
    [ "$status" = "$wanted" ]
}

# In a database that no other test uses.
test_nothing_is_an_empty_list() {
    expect 0 hf -n 3 ls
    same "$out$err" ""
    expect 0 hf -n 3 --json ls
    same "$out$err" ""
    expect 0 hf -n 3 ls --stuck
    expect 0 hf -n 3 ls 'no such *'
    same "$out$err" ""
}

test_holder_and_waiter() {
    start hf run busy -- stay
    wait_until listed '^busy +plain +alive +[^ ]+ [0-9]+ stay +[0-9.]+s +[0-9.]+s +0 ' busy
    start hf run busy -- true
    wait_until listed '^busy +plain +alive .* 1 +[0-9.]+s$' busy
    wait_until listed '^{"name":"busy","kind":"plain","disputed":false,"waiting":1,"holders":\[{"owner":".*"state":"alive".*"waiters":\[{"owner":"' \
        --json 'b[tu]s?'
    wait_until stuck 0 busy
    wait_until stuck 1 --over 0s busy
    expect 0 hf ls 'no such *'
    same "$out" ""
}

# `show` prints at least what `ls` prints of a lock, also of slots and of waiters outside a queue.
shown() { hf show "$2" 2>/dev/null | tr '\n' '|' | grep -Eq -- "$1"; }
shown_json() { hf show --json "$2" 2>/dev/null | grep -Eq -- "$1"; }
test_show_tells_as_much() {
    local held slot
    start hf hold --no-stdin '[odd]*' >/dev/null
    held=$pid
    wait_until locked '[odd]*'
    start hf run '[odd]*' -- true
    wait_until shown "^name +.odd..\\|kind +plain\\|ttl .*\\|state +alive\\|held +[0-9.]+s\\|waiting +1\\|longest +[0-9.]+s\\|holder +.*\\|  count +1\\|  who +[^ ]+ $held bash\\|  state +alive\\|  for +[0-9.]+s\\|waiter +.*\\|  who +[^ ]+ [0-9]+ true\\|  state +alive\\|  for +[0-9.]+s\\|$" '[odd]*'
    wait_until shown_json '"held":true,"holders":\[\{"owner":"[^"]*","count":1,"connection":"[^"]*","state":"alive",.*"for_ms":[0-9]+,.*"pid":'"$held"',.*"waiters":\[\{"owner":"[^}]*"state":"alive",[^}]*"for_ms":[0-9]+,.*"disputed":false,"waiting":1' '[odd]*'
    kill -STOP "$held"
    wait_until shown 'state +silent\|.*  state +silent' '[odd]*'
    kill -KILL "$held"
    redis del '[odd]*' >/dev/null
    start hf hold --no-stdin --slots 2 seats >/dev/null
    slot=$pid
    wait_until shown "kind +permits\\|ttl +[0-9.]+ s\\|state +alive\\|held +[0-9.]+s\\|waiting +0\\|holder +[0-9a-f]{32}\\|  count +1\\|  who +[^ ]+ $slot bash\\|  state +alive\\|  for +[0-9.]+s\\|free +1\\|" seats
    kill "$slot"
}

# Another name than "a", which nobody holds.
test_a_name_with_a_nul() {
    printf 'hset "nul\\x00b" 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1\n' | redis >/dev/null
    expect 0 hf ls 'nul*'
    [[ $out == *$'\n'nul?b\ * ]] || fail "$out"
    expect 0 hf --json ls 'nul*'
    [[ $out == '{"name":"nul\u0000b",'*'"name_hex":"6e756c0062"'* ]] || fail "$out"
    printf 'del "nul\\x00b"\n' | redis >/dev/null
    redis hset $'no\xfftext' 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    expect 0 hf --json ls 'no?text'
    [[ $out == *'"name_hex":"6e6fff74657874"'* ]] || fail "$out"
    redis del $'no\xfftext' >/dev/null
}

# Of a long list the server is asked for the first hundred only: the others are counted where they belong.
test_more_than_a_hundred_owners() {
    redis eval 'local owner = "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:"
        redis.call("hset", "line", owner .. 1, 1)
        for i = 2, 151 do redis.call("rpush", "redisson_lock_queue:{line}", owner .. i) end
        redis.call("hset", "readers", "mode", "read")
        for i = 1, 1000 do redis.call("hset", "readers", owner .. i, 1) end' 0 >/dev/null
    expect 0 hf ls line
    grep -Eq '^line +fair .*:1 .* 150 +-$' <<<"$out" || fail "$out"
    expect 0 hf --json ls line
    [[ $out == *'"waiting":150,'*'"left_out":50'* ]] || fail "$out"
    expect 0 hf --json ls readers
    [[ $out == *'"kind":"read"'*'"waiting":0,'*'"left_out":900'* ]] || fail "$out"
    expect 0 hf ls readers
    [[ $out == *' +999 '* ]] || fail "$out"
    expect 0 hf ls --metrics
    [[ $out == *'lock_holders{lock="line",kind="fair"} 1'$'\n'* ]] || fail "$out"
    [[ $out == *'lock_waiters{lock="line",kind="fair"} 150'$'\n'* ]] || fail "$out"
    [[ $out == *'lock_holders{lock="readers",kind="read"} 1000'$'\n'* ]] || fail "$out"
    [[ $out == *'lock_waiters{lock="readers",kind="read"} 0'$'\n'* ]] || fail "$out"
    redis del line 'redisson_lock_queue:{line}' readers >/dev/null
}

# The field that says what kind of lock it is takes nobody's place, wherever a scan comes across it. A
# packed hash is scanned whole.
test_the_mode_field_takes_no_place() {
    local readers
    redis config set hash-max-ziplist-entries 8 >/dev/null
    for readers in 101 102 103 104 105 106 107 108; do
        redis eval 'redis.call("hset", KEYS[1], "mode", "read")
            for i = 1, ARGV[1] do
                redis.call("hset", KEYS[1], "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:" .. i, 1)
            end' 1 hundred "$readers" >/dev/null
        expect 0 hf --json ls hundred
        [[ $out == *'"kind":"read"'*"\"left_out\":$((readers - 100))"[,\}]* ]] || fail "$readers: $out"
        redis del hundred >/dev/null
    done
    redis config set hash-max-ziplist-entries 512 >/dev/null
}

test_gone_is_stuck() {
    redis hset dead 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:4294967297 1 >/dev/null
    redis hset java 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    expect 1 hf ls --stuck
    [[ $out == *dead*gone* ]] || fail "$out"
    [[ $out != *java* ]] || fail "$out"
    expect 0 hf ls java
    [[ $out == *java*unknown* ]] || fail "$out"
    redis del dead java >/dev/null
}

# Two scripts, each of which runs the other's lock inside its own: that is seen long before they have waited for a minute.
test_a_deadlock_is_stuck() {
    start hf run one -- sh -c 'until hf show --held two; do tick; done; hf run two -- true'
    start hf run two -- sh -c 'until hf show --held one; do tick; done; hf run one -- true'
    wait_until listed '^one +plain +deadlock ' --stuck
    wait_until listed '^two +plain +deadlock ' --stuck
    wait_until listed '"name":"one",.*"deadlock":true' --stuck --json
    wait_until stuck 1
    expect 0 hf ls --stuck 'no such *'
}

# Many surveys at once: a client that cannot answer each of them is not shown as silent.
test_many_at_once() {
    start hf hold --no-stdin crowded >/dev/null
    wait_until listed '^crowded +plain +alive' crowded
    wait_until all_show_it_alive
}
# A busy machine may keep it from answering in time: then all are asked again.
all_show_it_alive() {
    local i pids=()
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        start hf ls crowded >"$dir/crowd$i"
        pids+=("$pid")
    done
    for pid in "${pids[@]}"; do finish "$pid"; done
    [ "$(cat "$dir"/crowd* | grep -Ec '^crowded +plain +(alive|connected) ')" = 12 ]
}

# Who has acquired it has ended as it should: the lock is whose that has the handle.
test_a_handle_is_not_stuck() {
    local handle
    handle=$(hf acquire --lease 1m pipeline) || fail "not acquired"
    expect 0 hf ls --stuck pipeline
    same "$out" ""
    expect 0 hf ls pipeline
    [[ $out == *pipeline*unknown*"$handle"* ]] || fail "$out"
    expect 0 hf release pipeline "$handle"
}

# Nobody tells of a slot whose process has ended or is stopped; the server has it all the same.
test_slots() {
    local handle
    handle=$(hf acquire --slots 3 --lease 1m slots) || fail "not acquired"
    expect 0 hf ls slots
    grep -Eq "^slots +permits +unknown +$handle, 2 free +- +[0-9.]+s +0 " <<<"$out" || fail "$out"
    expect 0 hf --json ls slots
    [[ $out == '{"name":"slots","kind":"permits","disputed":false,"waiting":0,"holders":[{"owner":"'"$handle"'",'*'"available":2'* ]] ||
        fail "$out"
    start hf run --slots 3 slots -- stay
    wait_until listed '^slots +permits +alive .* stay \+1, 1 free ' slots
    expect 0 hf ls --metrics
    [[ $out == *'lock_holders{lock="slots",kind="permits"} 2'$'\n'* ]] || fail "$out"
    expect 0 hf release slots "$handle"
}

test_sorted() {
    redis hset s1 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    redis hset s2 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    redis pexpire s1 100000 >/dev/null
    redis pexpire s2 900000 >/dev/null
    expect 0 hf ls 's?'
    [[ $out == *s1*s2* ]] || fail "$out"
    expect 0 hf ls --sort ttl 's?'
    [[ $out == *s2*s1* ]] || fail "$out"
    redis del s1 s2 >/dev/null
}

# What others named is shown, and does nothing to a terminal.
test_names_are_disarmed() {
    redis hset $'evil\e[31m' 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    expect 0 hf ls 'evil*'
    [[ $out == *'evil?[31m'* ]] || fail "$out"
    redis del $'evil\e[31m' >/dev/null
}

test_what_is_missing_is_said() {
    redis acl setuser mute on '>pw' '~*' +@all resetchannels '&redisson*' >/dev/null
    redis hset seen 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    expect 0 hf --user mute -a pw ls seen
    [[ $out == *seen* ]] || fail "$out"
    says "incomplete: the clients were not asked"
    redis del seen >/dev/null
}

test_usage() {
    expect 64 hf ls --sort size
    expect 64 hf ls a b
    expect 64 hf ls --over soon
}

run_tests
