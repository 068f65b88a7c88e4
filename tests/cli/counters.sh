#!/usr/bin/env bash
# The subcommands `sem` and `latch`.
. "$(dirname "$0")/lib.sh"
server_start

scripts() { redis info commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }
scripts_were() { [ "$(scripts)" -ge "$1" ]; }

test_sem_set() {
    expect 0 hf sem s set 3
    same "$out$err" ""
    same "$(redis get s)" 3
    expect 1 hf sem s set 5
    says "'s' exists already"
    same "$(redis get s)" 3
    expect 1 hf --json sem s set 5
    same "$out" '{"name":"s","set":false}'
    expect 0 hf sem s2 set 0 --ttl 100s --json
    same "$out" '{"name":"s2","set":true}'
    local ttl
    ttl=$(redis pttl s2)
    [ "$ttl" -gt 0 ] && [ "$ttl" -le 100000 ] || fail "ttl $ttl"
}

test_sem_take_and_put_back() {
    expect 0 hf sem t set 3
    expect 0 hf sem t acquire
    same "$out$err" ""
    expect 0 hf sem t acquire 2
    expect 0 hf sem t count
    same "$out" 0
    expect 75 hf sem t try
    says "'t': there are too few permits"
    expect 75 hf sem t acquire -n
    expect 75 hf sem t acquire 1 -w 2s # by then the server has answered
    says "'t': the wait ended before enough permits were available"
    expect 6 hf sem -E 6 t acquire -n
    expect 0 hf sem t acquire -n -E 0
    same "$err" "" "with -E 0 it is silent"
    expect 0 hf sem t release
    expect 0 hf sem t release 4
    same "$(redis get t)" 5
    expect 0 hf sem t try 5
    expect 75 hf sem t try 1
    expect 0 hf sem t count --json
    same "$out" '{"name":"t","permits":0}'
}

test_sem_add_drain_delete() {
    expect 0 hf sem a add 5
    expect 0 hf sem a add -7
    expect 0 hf sem a count
    same "$out" -2
    expect 0 hf sem a add 4
    expect 0 hf sem a drain
    same "$out" 2
    expect 0 hf --json sem a drain
    same "$out" '{"name":"a","permits":0}'
    expect 0 hf sem a delete
    free a || fail "still there"
    expect 1 hf sem a delete
    says "'a' does not exist"
    expect 0 hf sem a count
    same "$out" 0
    free a || fail "counting has made it"
}

test_sem_waits_for_enough() {
    expect 0 hf sem w set 0
    start hf sem w acquire 3
    wait_until awaited w
    # The release is one script, and the attempt of the waiter that hears of it is another.
    local before
    before=$(scripts)
    expect 0 hf sem w release 2
    wait_until scripts_were $((before + 2))
    alive "$pid" || fail "two were enough for three"
    expect 0 hf sem w release
    finish "$pid"
    same "$status" 0
    same "$(redis get w)" 0
}

test_wait_takes_as_long_as_it_says() {
    local before after
    expect 0 hf latch long set 1
    before=$(now_ms)
    expect 75 hf sem nothing acquire -w 2.5
    expect 75 hf latch long wait -w 2.5
    after=$(now_ms)
    [ $((after - before)) -ge 4990 ] || fail "gave up after $((after - before)) ms"
}

test_interrupted_while_it_waits() {
    local signal number
    for signal in INT TERM HUP QUIT; do
        number=$(kill -l "$signal")
        start hf sem i acquire 2
        wait_until awaited i
        kill -"$signal" "$pid"
        finish "$pid"
        same "$status" $((128 + number)) "sem, status of $signal"
        expect 0 hf latch il set 1
        start hf latch il wait
        wait_until awaited il
        kill -"$signal" "$pid"
        finish "$pid"
        same "$status" $((128 + number)) "latch, status of $signal"
        ! awaited i && ! awaited il || fail "somebody still waits"
        redis del il >/dev/null
    done
    expect 0 hf sem i release 2
    same "$(redis get i)" 2 "nobody has taken any"
}

# The permit comes just when the signal does: it is taken, or given back, and never lost.
test_interrupted_while_it_acquires() {
    local i giver left
    for i in 1 2 3 4 5 6 7 8; do
        redis set race 0 >/dev/null
        start hf sem race acquire
        wait_until awaited race
        redis eval 'redis.call("incr", KEYS[1]); redis.call("publish", "redisson_sc:{race}", 1)' 1 race >/dev/null &
        giver=$!
        sleep "0.00$i" # at any moment of the race: the longer, the later
        kill -INT "$pid" 2>/dev/null # it may be gone already
        wait "$giver"
        finish "$pid"
        case $status in 0) left=0 ;; 130) left=1 ;; *) fail "status $status" ;; esac
        same "$(redis get race)" "$left" "permits that are left with status $status"
    done
}

test_latch() {
    expect 0 hf latch l count
    same "$out" 0
    expect 0 hf latch l wait
    expect 0 hf latch l set 2
    same "$out$err" ""
    expect 1 hf latch l set 7
    says "'l' is closed already"
    expect 0 hf latch l count
    same "$out" 2
    expect 75 hf latch l wait -n
    says "'l': the latch is closed"
    expect 75 hf latch l wait -w 2s
    says "the wait ended before the latch opened"
    start hf latch l wait
    wait_until awaited l
    expect 0 hf latch l down
    same "$out$err" ""
    expect 0 hf latch --json l count
    same "$out" '{"name":"l","count":1}'
    alive "$pid" || fail "it opened too early"
    expect 0 hf latch l down
    finish "$pid"
    same "$status" 0
    free l || fail "something is left of it"
    expect 0 hf latch l down
    free l || fail "an open latch was counted below zero"
}

test_latch_deleted() {
    expect 0 hf latch d set 5
    start hf latch d wait -w 60
    wait_until awaited d
    expect 0 hf latch d delete --json
    same "$out" '{"name":"d","deleted":true}'
    finish "$pid"
    same "$status" 0
    expect 1 hf latch d delete
    says "'d' does not exist"
}

test_show() {
    expect 0 hf sem sh set 4 --ttl 50s
    expect 0 hf show sh
    case $out in *"kind    counter"*"ttl     "*"value   4"*) ;; *) fail "$out" ;; esac
    expect 0 hf latch shl set 3
    expect 0 hf show --json shl
    same "$out" '{"name":"shl","kind":"counter","held":false,"holders":[],"value":3}'
    expect 65 hf show --held shl
    says "'shl' is not a lock, but a number"
    expect 1 hf unlock --force shl
    same "$(redis get shl)" 3 "it is no lock, and untouched"
}

test_wrong_type_65() {
    redis hset h somebody 1 >/dev/null
    for verb in "set 1" acquire try release "add 1" drain count; do
        # shellcheck disable=SC2086
        expect 65 hf sem h $verb
        says "'h' is a lock: see 'holdfast show'"
    done
    for verb in "set 1" down "wait -n" count; do
        # shellcheck disable=SC2086
        expect 65 hf latch h $verb
    done
    same "$(redis hget h somebody)" 1 "untouched"
    redis set slots 3 >/dev/null
    redis zadd '{slots}:timeout' 922337203685477 id >/dev/null
    for verb in "sem slots acquire" "latch slots down"; do
        # shellcheck disable=SC2086
        expect 65 hf $verb
        says "'slots' is a set of slots: see 'holdfast show'"
    done
    same "$(redis get slots)" 3 "untouched"
    redis del slots >/dev/null
    expect 65 hf sem slots set 1
    says "'slots' is missing, but a key of its slots may be left over: delete '{NAME}:timeout' then"
    expect 65 hf -v sem slots set 1
    says "permits with leases are left over under this name: delete them first ({name}:timeout)"
    redis set text text >/dev/null
    expect 65 hf sem text count
    says "'text' is not a semaphore, but a string that is not a number"
    redis rpush list text >/dev/null
    expect 65 hf latch list down
    says "'list' is not a latch, but a list"
}

test_unreachable_69() {
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" -t 300ms sem x count
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" -t 300ms sem x acquire
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" -t 300ms latch x wait
}

test_output_that_cannot_be_written() {
    expect 71 eval 'hf sem x count >/dev/full'
    expect 71 eval 'hf latch x count --json >/dev/full'
}

# Other users' settings for `run` are no errors here.
test_environment() {
    expect 0 env HOLDFAST_TTL=10s HOLDFAST_WAIT=1s hf sem e count
    expect 75 env HOLDFAST_NONBLOCK=yes hf sem e acquire
    expect 0 env HOLDFAST_SLOTS=3 HOLDFAST_FAIR=yes hf sem e set 1
    same "$(redis pttl e)" -1 "ttl"
}

run_tests
