#!/usr/bin/env bash
# A cluster of two nodes: by a url or in parts, wherever a name is, and in words what is wrong.
. "$(dirname "$0")/lib.sh"

servers=()
end_servers() {
    # shellcheck disable=SC2031 # each test has its own
    [ "$BASHPID" = "$main" ] || return
    kill -KILL "${servers[@]}" 2>/dev/null
    clean_up
}
trap end_servers EXIT

# node NAME: one node alone, at a port that nobody else has; it is in $port. It talks to others at a port that is 10000 higher.
node() {
    local pid try
    for try in {1..50}; do
        port=$((10000 + (RANDOM * 32768 + RANDOM + try) % 12000))
        mkdir -p "$dir/$1"
        setpriv --pdeathsig KILL redis-server --bind 127.0.0.1 --save '' --appendonly no --dir "$dir/$1" --port "$port" \
            --cluster-enabled yes --cluster-node-timeout 5000 --daemonize no </dev/null >>"$dir/listen.log" 2>&1 &
        pid=$!
        servers+=("$pid")
        wait_until answers_or_ended "$pid" && kill -0 "$pid" 2>/dev/null && return
    done
    fail "no port is free"
}
answers_or_ended() {
    [ "$(redis-cli -p "$port" ping 2>/dev/null)" = PONG ] || ! kill -0 "$1" 2>/dev/null
}
is_whole() {
    local each
    for each in "$first" "$second"; do
        case $(redis-cli -p "$each" cluster info) in *cluster_state:ok*cluster_known_nodes:2*) ;; *) return 1 ;; esac
    done
}

node first
first=$port
node second
second=$port
# shellcheck disable=SC2046 # one word each
redis-cli -p "$first" cluster addslots $(seq 0 8191) >/dev/null
# shellcheck disable=SC2046
redis-cli -p "$second" cluster addslots $(seq 8192 16383) >/dev/null
redis-cli -p "$second" cluster meet 127.0.0.1 "$first" >/dev/null
wait_until is_whole || fail "the cluster is not whole"

# bar is the first's (5061), foo the second's (12182).
test_by_url() {
    expect 0 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first" run bar redis-cli -p "$first" exists bar
    same "$out" 1
    expect 0 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first" run foo redis-cli -p "$second" exists foo
    same "$out" 1
    expect 0 env HOLDFAST_URL="valkey+cluster://127.0.0.1:1,127.0.0.1:$second?pubsub=sharded" "$HOLDFAST" run bar \
        redis-cli -p "$first" exists bar
    same "$out" 1
}

# One of the two evicts, and the other does not.
test_the_doctor_looks_at_each_server() {
    redis-cli -p "$second" config set maxmemory 100mb >/dev/null
    redis-cli -p "$second" config set maxmemory-policy allkeys-lru >/dev/null
    expect 2 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first" doctor --json --skip latency --skip waking --skip persistence
    redis-cli -p "$second" config set maxmemory-policy noeviction >/dev/null
    verdict_of() { jq -r ".servers[] | select(.server == \"$1\") | .checks[] | select(.check == \"$2\") | .verdict" <<<"$out"; }
    same "$(verdict_of "127.0.0.1:$first" eviction)" ok
    same "$(verdict_of "127.0.0.1:$second" eviction)" bad
    same "$(verdict_of "all servers" clocks)" ok
    same "$(verdict_of "all servers" deadlocks)" ok
    same "$(redis-cli -p "$first" dbsize) $(redis-cli -p "$second" dbsize)" "0 0" "what the doctor left"
}

test_in_parts() {
    expect 0 "$HOLDFAST" -h 127.0.0.1 -p "$second" --cluster run bar redis-cli -p "$first" exists bar
    same "$out" 1
    expect 0 "$HOLDFAST" -h localhost,127.0.0.1 -p "$second" --cluster run bar redis-cli -p "$first" exists bar
    same "$out" 1
    expect 0 env HOLDFAST_CLUSTER=yes HOLDFAST_PORT="$first" "$HOLDFAST" run foo redis-cli -p "$second" exists foo
    same "$out" 1
}

test_words() {
    expect 64 "$HOLDFAST" -u redis://127.0.0.1 --cluster run a true
    says "not both"
    expect 64 "$HOLDFAST" -s /a --cluster run a true
    says "no socket"
    expect 64 "$HOLDFAST" --sentinel guards --cluster run a true
    says "no sentinels"
    expect 64 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first?pubsub=on" run a true
    says "auto, sharded or classic"
    expect 64 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first redis-cluster://127.0.0.1:$second redis-cluster://h" run a true
    says "cannot be one server of a quorum"
}

run_tests
