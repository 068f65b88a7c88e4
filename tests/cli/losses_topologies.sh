#!/usr/bin/env bash
# A loss under `run` reaches `serve` on a quorum, whose servers each get the announcement, and with Sentinel: it is counted once,
# and in the history once. losses_announced.sh has one server.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_ports.sh"
. "$(dirname "$0")/lib_serve.sh"

printf '#!/bin/sh\nexec "$TOOL" "$@"\n' >"$dir/bin/hf" # HOLDFAST_URL names the servers
other=5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d
history=$dir/history.jsonl

counts() { get /metrics && grep -qx "holdfast_fleet_losses_total $1" "$dir/body"; }
has() { wait_until grep -Eq -- "$1" "$history"; }
# each PORT... -- COMMAND...: redis-cli at each of these servers.
each() {
    local at=()
    while [ "$1" != -- ]; do at+=("$1") && shift; done
    shift
    for one in "${at[@]}"; do redis-cli -p "$one" "$@" >/dev/null; done
}

# loses PORT...: one hold is broken by a client, another is deleted by a stranger at all these servers.
loses() {
    local broken deleted
    rm -f "$history"
    serve --history "$history"
    wait_until counts 0
    start hf run broken -- stay 2>/dev/null
    broken=$pid
    wait_until shows /api/locks/broken '"state":"alive"'
    expect 0 hf unlock --force broken
    finish "$broken"
    same "$status" 79
    wait_until counts 1
    start hf run deleted -- stay 2>/dev/null
    deleted=$pid
    wait_until shows /api/locks/deleted '"state":"alive"'
    each "$@" -- del deleted
    finish "$deleted"
    same "$status" 79
    wait_until counts 2
    has '"event":"lost","name":"deleted"'
    has '"event":"broken","name":"broken".*"heard":true'
    each "$@" -- hset after $other:1 1
    has '"event":"(acquired|held)","name":"after"' # more surveys have followed, perhaps far apart
    same "$(grep -c '"event":"lost"' "$history")" 1 "losses"
    same "$(grep -c '"event":"broken"' "$history")" 1 "breaks"
    get /metrics
    counts 2 || fail "$out"
}

test_a_quorum() {
    local ports=()
    for _ in 1 2 3; do
        listen setpriv --pdeathsig KILL redis-server --bind 127.0.0.1 --save '' --appendonly no --dir "$dir"
        ports+=("$port")
    done
    export HOLDFAST_URL="redis://127.0.0.1:${ports[0]}?restart_guard_ms=0 redis://127.0.0.1:${ports[1]} redis://127.0.0.1:${ports[2]}"
    loses "${ports[@]}"
}

test_sentinel() {
    local server_port
    listen setpriv --pdeathsig KILL redis-server --bind 127.0.0.1 --save '' --appendonly no --dir "$dir"
    server_port=$port
    mkdir "$dir/sentinel"
    printf 'bind 127.0.0.1\ndir %s\nsentinel monitor guards 127.0.0.1 %s 1\n' "$dir/sentinel" "$server_port" >"$dir/sentinel/conf"
    listen setpriv --pdeathsig KILL redis-server "$dir/sentinel/conf" --sentinel
    export HOLDFAST_URL="redis-sentinel://127.0.0.1:$port/guards"
    loses "$server_port"
}

run_tests
