#!/usr/bin/env bash
# Replicas that confirm: how many have, what becomes of a lock without them, and what is no number of replicas.
. "$(dirname "$0")/lib.sh"

servers=()
end_servers() {
    # shellcheck disable=SC2031 # each test has its own
    [ "$BASHPID" = "$main" ] || return
    kill -KILL "${servers[@]}" 2>/dev/null
    clean_up
}
trap end_servers EXIT

# listen COMMAND...: a server at a port that nobody else has; it is in $port, its process in $pid.
listen() {
    local try
    for try in {1..50}; do
        port=$((10000 + (RANDOM * 32768 + RANDOM + try) % 22000))
        "$@" --port "$port" --daemonize no </dev/null >>"$dir/listen.log" 2>&1 &
        pid=$!
        servers+=("$pid")
        wait_until answers_or_ended "$pid" && kill -0 "$pid" 2>/dev/null && return
    done
    fail "no port is free"
}
answers_or_ended() {
    [ "$(redis-cli -p "$port" ping 2>/dev/null)" = PONG ] || ! kill -0 "$1" 2>/dev/null
}

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
    "$HOLDFAST" -h 127.0.0.1 -p "$primary" --ack-timeout 3s "$@"
}

test_confirmed() {
    expect 0 hold --acks 1 -v run confirmed redis-cli -p "$primary" exists confirmed
    same "$out" 1
    says 'confirmed by 1 replica'
    expect 0 env HOLDFAST_ACKS=report "$HOLDFAST" -u "redis://127.0.0.1:$primary" run told true
    expect 0 "$HOLDFAST" -v -u "redis://127.0.0.1:$primary?acks=1&ack_timeout_ms=3000&cmd_timeout_ms=9000" run url true
    says 'confirmed by 1 replica'
}

test_off() {
    expect 0 hold -v run off true
    case $err in *confirmed*) fail "$err" ;; esac
}

test_too_few() {
    expect 69 hold --acks 2 run -n few true # it takes the whole time, in which the one that is there confirms
    says '1 of 2 replicas'
    same "$(redis-cli -p "$primary" exists few)" 0
}

test_none() {
    kill -STOP "$replica"
    wait_until in_state "$replica" T
    expect 69 "$HOLDFAST" -h 127.0.0.1 -p "$primary" --acks 1 --ack-timeout 200ms run -n none true
    expect 0 "$HOLDFAST" -h 127.0.0.1 -p "$primary" --acks report --ack-timeout 200ms -v run none true
    says 'no replica has confirmed it'
    kill -CONT "$replica"
}

test_no_number() {
    expect 64 hold --acks 0 run a true
    expect 64 hold --acks some run a true
    says "neither off, report, all, nor a number"
    expect 64 hold --acks all run a true
    says "write a number"
    expect 64 "$HOLDFAST" --ack-timeout never run a true
}

run_tests
