#!/usr/bin/env bash
# The scenes of docs/operating.md in which a Java service takes part, with the released Redisson: a holder that dies, seen by
# every command while it lives and afterwards, and deadlocks that go through a Java thread.
#
# Its watchdog is set to nine seconds instead of thirty, so it renews every three.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_page.sh"
. "$(dirname "$0")/lib_java.sh"
server_start --appendonly yes

service() { java_start billing watchdog="${1:-9000}"; }

ttl_of() { hf ls --json "$1" | sed -nE 's/.*"ttl_ms":([0-9]+).*/\1/p'; }
# The TTL is more than it was at the last look: somebody renews it.
goes_up() {
    local before=$ttl
    ttl=$(ttl_of "$1")
    [ -n "$ttl" ] && [ -n "$before" ] && [ "$ttl" -gt "$before" ]
}
is_renewed() {
    ttl=$(ttl_of "$1")
    wait_until goes_up "$1"
}
not_listed() { ! is_listed "^$1 " "$1"; }
not_deadlocked() { look_for_deadlocks 2>/dev/null | grep -q '^ok .*deadlocks'; }
seen() { grep -Eq -- "$1" "$dir/watched"; }

test_a_holder_that_dies() {
    service
    java_does open billing plain invoice L
    java_does lock L thread=1
    java_owner 1
    local owner=$java_answer
    wait_until is_listed "^invoice +plain +unknown +$owner +- +[0-9.]+s +0 +-$" invoice
    is_renewed invoice
    is_renewed invoice

    # A second thread of it waits: it listens at the server, as each that waits does.
    java_begins lock L thread=2
    wait_until is_listed "^invoice .* 1 +-$" invoice
    expect 0 hf ls --stuck

    start hf watch --for 60s invoice >"$dir/watched"
    local watcher=$pid
    wait_until seen "  held +$owner, "

    java_kill
    wait_until is_listed "^invoice .* 0 +-$" invoice # the server has closed its connections
    plays '### A Java client that has died' ls
    expect 0 hf ls --stuck
    same "$out" ""
    expect 0 hf ls --json
    [[ $out == *"\"owner\":\"$owner\",\"state\":\"unknown\""*'"seen_by_server":true,"seen_by_client":false'* ]] || fail "$out"
    expect 0 hf top -b -n 1
    grep -Eq "^invoice +plain +unknown +$owner +- +[0-9.]+s +0 +- +0$" <<<"$out" || fail "$out"
    expect 0 hf doctor --skip latency --skip waking
    grep -Eq '^ok +deadlocks ' <<<"$out" || fail "$out"

    wait_until not_listed invoice # when its TTL is over
    free invoice || fail "it is still there"
    wait_until seen "  expired +$owner"
    kill -INT "$watcher"
    finish "$watcher"
    expect 0 hf run --wait 0 invoice true
}

test_a_dead_holder_that_is_waited_for() {
    service
    java_does open billing plain refund L
    java_does lock L thread=1
    start hf run refund -- touch "$dir/had"
    wait_until is_listed '^refund +plain +unknown .* 1 +[0-9.]+s$' refund
    java_kill
    wait_until file_there "$dir/had" # when its TTL is over
}

# The page has it, and who may break it by force does: who waits has it at once.
test_a_dead_holder_on_the_page() {
    command -v curl >/dev/null || { echo "skipped: there is no curl"; return; }
    ! "$HOLDFAST" serve --listen nowhere:70000 2>&1 | grep -q 'left out' || { echo "skipped: built without serve"; return; }
    service 100000 # it would last for as long
    java_does open billing plain export L
    java_does lock L thread=1
    java_owner 1
    local owner=$java_answer url
    java_kill
    start hf serve --listen 127.0.0.1:0 2>"$dir/serve.err"
    wait_until grep -q 'the page is at' "$dir/serve.err"
    url=$(sed -n 's/.*the page is at //p' "$dir/serve.err")
    expect 0 curl -sS -m 30 "${url}api/locks"
    [[ $out == *"\"name\":\"export\",\"kind\":\"plain\""*"\"owner\":\"$owner\",\"state\":\"unknown\""* ]] || fail "$out"
    expect 0 hf show export
    [[ $out == *"$owner"* ]] || fail "$out"
    expect 0 hf unlock --force export
    expect 0 hf run --wait 0 export true
}

top_finds_it() { hf top -b -n 3 -d 500ms 2>/dev/null | grep -q '^1 deadlock: '; }
# Java's waits are seen in the line of a fair lock. `orders` is the service's, `stock` the script's.
test_a_deadlock_with_java() {
    service 9000
    java_does open billing fair orders L
    java_does open billing fair stock M
    java_does lock L thread=1
    script count.sh <<<true
    script stock.sh <<<"exec hf run --fair orders '$dir/count.sh'"
    start hf run --fair stock -- "$dir/stock.sh" 2>/dev/null
    wait_until awaited orders
    java_begins lock M thread=1
    wait_until is_listed '^stock +fair +alive .* 1 +-$' stock
    wait_until finds_a_deadlock
    plays_deadlock '### A script and a Java service that wait for each other'
    wait_until top_finds_it

    # The service ends, and its lease: the script goes on. Its place in the other line is nobody's by then.
    java_kill
    wait_until not_listed orders
    wait_until not_deadlocked
}

run_tests
