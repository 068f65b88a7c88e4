#!/usr/bin/env bash
# What docs/operating.md prints is what the tool says: each of its scenes is played here, on a real server with real
# processes, and compared with the block under its heading. Those with a Java service are in operating_java.sh.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_page.sh"

test_three_terminals() {
    server_start
    script report.sh <<<'exec stay'
    start hf run nightly -- "$dir/report.sh"
    wait_until is_listed '^nightly +plain +alive' nightly
    start hf run nightly -- "$dir/report.sh"
    wait_until is_listed ' 1 +[0-9.]+s$' nightly
    plays '### Three terminals' ls
}

# Both processes of `run` are stopped, as a frozen container is.
test_a_stopped_holder() {
    server_start
    script report.sh <<<'exec stay'
    start hf run --ttl 100s orders -- "$dir/report.sh"
    local holder
    wait_until is_listed '^orders +plain +alive' orders
    holder=$(holder_of "$pid")
    kill -STOP "$holder" "$pid"
    wait_until is_listed '^orders +plain +silent' orders
    expect 1 hf ls --stuck
    plays '### A holder that is stopped' ls --stuck
    kill -KILL "$holder" "$pid"
    wait_until is_listed '^orders +plain +gone' orders
}

test_a_deadlock_of_two_scripts() {
    server_start
    script count.sh <<<true
    script stock.sh <<<"stay_until '$dir/go'; exec hf run orders '$dir/count.sh'"
    script orders.sh <<<"stay_until '$dir/go'; exec hf run stock '$dir/count.sh'"
    start hf run stock "$dir/stock.sh" 2>/dev/null
    wait_until locked stock
    start hf run orders "$dir/orders.sh" 2>/dev/null
    wait_until locked orders
    touch "$dir/go"
    wait_until awaited stock
    wait_until awaited orders
    wait_until finds_a_deadlock
    plays_deadlock '### Two scripts that wait for each other'
}

# A fair lock, which is not free between two holders. How long a hold lasted, and that it was released, is known unless the
# holder ended during a survey. So is whose a loss is, which else is a line of its own. The first survey may last until the
# lock is held: then it was not seen being acquired.
test_who_held_it() {
    server_start
    if "$HOLDFAST" serve --listen nowhere:70000 2>&1 | grep -q 'left out'; then
        echo "        passed over: this holdfast was built without serve"
        return
    fi
    script report.sh <<<'exec stay'
    start hf serve --listen 127.0.0.1:0 --history "$dir/history.jsonl" 2>"$dir/serve.err"
    wait_until in_history started
    start hf run --fair nightly -- "$dir/report.sh"
    local first=$pid
    wait_until in_history nightly
    wait_until is_listed '^nightly +fair +alive' nightly
    start hf run --fair nightly -- "$dir/report.sh" 2>"$dir/broken.err"
    wait_until is_listed ' 1 +[0-9.]+s$' nightly
    kill -TERM "$first"
    wait_until in_history '"from"'
    expect 0 hf unlock --force nightly
    wait_until in_history broken
    compares '### Who held it yesterday' "$(printed '### Who held it yesterday' | without_times)" logged
}
in_history() { grep -q -- "$1" "$dir/history.jsonl" 2>/dev/null; }
without_times() { alike | sed -E -e 's/^[-0-9]{10} [0-9:.]{12} //' -e 's/, for TIME//' -e 's/^ended /released /' -e 's/^held /acquired /' -e '/ of a lock that no survey showed$/d'; }
logged() { { echo '$ holdfast log --history history.jsonl --since 1d nightly'; hf log --history "$dir/history.jsonl" --since 1d nightly; } | without_times; }

test_a_handle() {
    server_start
    local handle
    handle=$(hf acquire --lease 1m pipeline)
    plays '### A handle' ls
    expect 0 hf release pipeline "$handle"
}

test_a_server_that_evicts() {
    server_start --maxmemory 100mb --maxmemory-policy allkeys-lru --appendonly yes
    expect 2 hf doctor --skip latency --skip waking --skip deadlocks
    local wanted got
    wanted=$(printed '### A server that evicts' | alike)
    got=$({ echo '$ holdfast doctor'; grep -A1 '^bad' "$dir/out"; } | alike)
    [ "$got" = "$wanted" ] || fail "the page: $wanted; the tool: $got"
}

run_tests
