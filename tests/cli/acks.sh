#!/usr/bin/env bash
# Replicas that confirm: how many have, what becomes of a lock without them, and what is no number of replicas.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_ports.sh"

server=(setpriv --pdeathsig KILL redis-server --bind 127.0.0.1 --save '' --appendonly no
    --repl-diskless-sync yes --repl-diskless-sync-delay 0)
mkdir "$dir/primary" "$dir/replica"
listen "${server[@]}" --dir "$dir/primary"
primary=$port
listen "${server[@]}" --dir "$dir/replica" --replicaof 127.0.0.1 "$primary"
replica=$pid
confirms() {
    [ "$(printf 'SET caught-up 1\nWAIT 1 1000\n' | redis-cli -p "$primary" | tail -n 1)" = 1 ]
}
wait_until confirms || fail "the replica does not catch up"

hold() {
    "$HOLDFAST" -h 127.0.0.1 -p "$primary" --ack-timeout "${ack_timeout:-30s}" "$@"
}

test_confirmed() {
    expect 0 hold --acks 1 -v run confirmed redis-cli -p "$primary" exists confirmed
    same "$out" 1
    says 'confirmed by 1 replica'
    expect 0 env HOLDFAST_ACKS=report "$HOLDFAST" -u "redis://127.0.0.1:$primary" run reported true
    expect 0 "$HOLDFAST" -v -u "redis://127.0.0.1:$primary?acks=1&ack_timeout_ms=30000&cmd_timeout_ms=60000" run url true
    says 'confirmed by 1 replica'
}

test_off() {
    expect 0 hold -v run off true
    case $err in *confirmed*) fail "$err" ;; esac
}

# It takes the whole time, in which the one that is there confirms, unless a busy machine keeps it from that.
test_too_few() {
    wait_until one_of_two_confirms
}
one_of_two_confirms() {
    ack_timeout=3s expect 69 hold --acks 2 run -n few true
    same "$(redis-cli -p "$primary" exists few)" 0
    case $err in *'0 of 2 replicas'*) return 1 ;; esac
    says '1 of 2 replicas'
}

test_none() {
    kill -STOP "$replica"
    wait_until in_state "$replica" T
    expect 69 "$HOLDFAST" -h 127.0.0.1 -p "$primary" --acks 1 --ack-timeout 200ms run -n none true
    expect 0 "$HOLDFAST" -h 127.0.0.1 -p "$primary" --acks report --ack-timeout 200ms -v run none true
    says 'no replica confirmed it'
    kill -CONT "$replica"
}

test_no_number() {
    expect 64 hold --acks 0 run a true
    expect 64 hold --acks some run a true
    says "is not off, report, all, or a number"
    expect 64 hold --acks all run a true
    says "give a number instead"
    expect 64 "$HOLDFAST" --ack-timeout never run a true
}

run_tests
