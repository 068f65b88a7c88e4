#!/usr/bin/env bash
# A cluster of two nodes: by a url or in parts, wherever a name is, and in words what is wrong.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_ports.sh"

# node NAME [OPTION...]: one node alone; its port is in $port. It talks to others at a port that is 10000 higher.
node() {
    local name=$1
    shift
    mkdir -p "$dir/$name"
    ports=12000 listen setpriv --pdeathsig KILL redis-server --bind 127.0.0.1 --save '' --appendonly no \
        --dir "$dir/$name" --cluster-enabled yes --cluster-node-timeout 5000 "$@"
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

has_all_slots() { case $(redis-cli -p "$port" cluster info) in *cluster_state:ok*) ;; *) return 1 ;; esac; }

# Valkey 9. Elsewhere a cluster has one database, and the words say so.
test_a_database() {
    expect 64 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first/3" run bar true
    says "no database 3"
    [ -n "$(redis-cli -p "$first" config get cluster-databases)" ] ||
        { echo "skipped: a cluster of this server has one database"; return; }
    local first port
    node third --cluster-databases 16
    # shellcheck disable=SC2046 # one word each
    redis-cli -p "$port" cluster addslots $(seq 0 16383) >/dev/null
    wait_until has_all_slots || fail "the cluster is not whole"
    expect 0 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$port/3" run bar redis-cli -p "$port" -n 3 exists bar
    same "$out" 1
    expect 0 "$HOLDFAST" -h 127.0.0.1 -p "$port" --cluster --db 3 run bar redis-cli -p "$port" exists bar
    same "$out" 0
    "$HOLDFAST" -u "redis-cluster://127.0.0.1:$port/3" doctor --json --skip latency --skip waking --skip persistence \
        --skip replicas >"$dir/out" 2>"$dir/err" || fail "$(cat "$dir/out" "$dir/err")"
    redis-cli -p "$port" acl setuser third on '>x' '~*' '&*' +@all db=3 >/dev/null || return
    export HOLDFAST_PASSWORD=x
    expect 0 "$HOLDFAST" -h 127.0.0.1 -p "$port" --cluster --user third --db 3 run bar true
    expect 77 "$HOLDFAST" -h 127.0.0.1 -p "$port" --cluster --user third run bar true
    says "access database"
    expect 77 "$HOLDFAST" -h 127.0.0.1 -p "$port" --cluster --user third --db 2 run bar true
    says "access database"
}

test_words() {
    expect 64 "$HOLDFAST" -u redis://127.0.0.1 --cluster run a true
    says "give either a url"
    expect 64 "$HOLDFAST" -s /a --cluster run a true
    says "not a socket"
    expect 64 "$HOLDFAST" --sentinel guards --cluster run a true
    says "--cluster and --sentinel exclude each other"
    expect 64 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first?pubsub=on" run a true
    says "auto, sharded or classic"
    expect 64 "$HOLDFAST" -u "redis-cluster://127.0.0.1:$first redis-cluster://127.0.0.1:$second redis-cluster://h" run a true
    says "cannot be one server of a quorum"
}

run_tests
