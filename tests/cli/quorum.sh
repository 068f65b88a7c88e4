#!/usr/bin/env bash
# Several servers: -u more than once, or HOLDFAST_URL with blanks in it.
. "$(dirname "$0")/lib.sh"

sockets=() servers=()
for i in 0 1 2; do
    sockets+=("$dir/server$i.sock")
    setpriv --pdeathsig KILL redis-server --port 0 --unixsocket "${sockets[i]}" --save '' --appendonly no \
        --dir "$dir" --daemonize no </dev/null >/dev/null 2>&1 &
    servers+=("$!")
done
end_servers() {
    # shellcheck disable=SC2031 # each test has its own
    [ "$BASHPID" = "$main" ] || return
    kill -KILL "${servers[@]}" 2>/dev/null
    clean_up
}
trap end_servers EXIT
answers() { [ "$(redis-cli -s "$1" ping 2>/dev/null)" = PONG ]; }
for i in 0 1 2; do wait_until answers "${sockets[i]}"; done
HOLDFAST_URL="unix://${sockets[0]}?restart_guard_ms=0 unix://${sockets[1]} unix://${sockets[2]}"
export HOLDFAST_URL

held_by() { # how many servers have the lock
    local count=0 i
    for i in 0 1 2; do
        [ "$(redis-cli -s "${sockets[i]}" exists "$1" 2>/dev/null)" != 1 ] || count=$((count + 1))
    done
    echo "$count"
}
held_everywhere() { [ "$(held_by "$1")" = 3 ]; }
held_nowhere() { [ "$(held_by "$1")" = 0 ]; }

test_run_holds_a_majority() {
    expect 0 "$HOLDFAST" run q -- sh -c "redis-cli -s '${sockets[0]}' exists q; redis-cli -s '${sockets[1]}' exists q;
        redis-cli -s '${sockets[2]}' exists q"
    [ "$(grep -c 1 <<<"$out")" -ge 2 ] || fail "not held: $out"
    wait_until held_nowhere q
}

# A quorum proves a lease for its restart guard at a time: that is no lease about to end.
test_a_lease_longer_than_the_guard() {
    local guarded=${HOLDFAST_URL/restart_guard_ms=0/restart_guard_ms=3000}
    wait_until old_enough 4
    expect 0 env HOLDFAST_URL="$guarded" "$HOLDFAST" run --lease 12m q -- sleep 4 # longer than the guard; that it is not warned of has no event
    same "$err" ""
}
old_enough() { [ "$(redis-cli -s "${sockets[2]}" info server | tr -d '\r' | sed -n 's/^uptime_in_seconds://p')" -ge "$1" ]; }

test_flags_are_a_quorum() {
    expect 0 env -u HOLDFAST_URL "$HOLDFAST" -u "unix://${sockets[0]}?restart_guard_ms=0" -u "unix://${sockets[1]}" \
        -u "unix://${sockets[2]}" run q true
}

test_hold_tells_votes_and_show_each_server() {
    start "$HOLDFAST" hold --no-stdin h >"$dir/held"
    wait_until file_filled "$dir/held"
    grep -q '"votes":[23],"servers":3' "$dir/held" || fail "$(cat "$dir/held")"
    wait_until held_everywhere h
    expect 75 "$HOLDFAST" run -n h true
    expect 0 "$HOLDFAST" show h
    grep -q "^server *${sockets[1]}$" <<<"$out" || fail "$out"
    [ "$(grep -c '^holder' <<<"$out")" = 3 ] || fail "$out"
    expect 0 "$HOLDFAST" show --held h
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    wait_until held_nowhere h
    expect 1 "$HOLDFAST" show --held h
}

test_verbose_tells_votes() {
    expect 0 "$HOLDFAST" -v run q true
    says "'q': acquired after"
    grep -qE ': [23] of 3 servers granted it$' <<<"$err" || fail "$err"
    start "$HOLDFAST" hold --no-stdin v >"$dir/verbose"
    wait_until file_filled "$dir/verbose"
    wait_until held_everywhere v
    expect 75 "$HOLDFAST" -v run -n v true
    says "'v': 0 of 3 granted, 2 needed"
    grep -q "; busy: .*/server[012].sock" <<<"$err" || fail "$err"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
}

test_several_locks() {
    # shellcheck disable=SC2016 # the command's own
    expect 7 "$HOLDFAST" run -m stock orders -- sh -c 'echo "$HOLDFAST_NAME"; exit 7'
    same "$out" "stock orders"
    wait_until held_nowhere stock
    wait_until held_nowhere orders
    start "$HOLDFAST" hold --no-stdin -m stock orders >"$dir/several"
    wait_until file_filled "$dir/several"
    wait_until held_everywhere stock
    wait_until held_everywhere orders
    expect 75 "$HOLDFAST" run -n -m bills orders -- true
    says "'orders': 0 of 3 granted, 2 needed"
    wait_until held_nowhere bills
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    wait_until held_nowhere stock
    wait_until held_nowhere orders
    expect 64 "$HOLDFAST" run --fair -m a b -- true
}

test_fenced() {
    local last=0 i
    for i in 1 2 3; do
        # shellcheck disable=SC2016 # the command's own
        expect 0 "$HOLDFAST" run --fenced ledger -- sh -c 'echo "$HOLDFAST_TOKEN"'
        [ "$out" -gt "$last" ] || fail "run $i: $out after $last"
        last=$out
    done
}

test_names_that_do_not_exist() {
    export HOLDFAST_URL="redis://a.invalid?restart_guard_ms=0 redis://b.invalid unix://${sockets[0]}"
    expect 69 timeout -k 5 "$LIMIT" "$HOLDFAST" -t 10m run q true
    same "$err" "holdfast: cannot acquire 'q': too few of the servers answered (1 of 3 granted, 2 needed; no such host:\
 a.invalid:6379 b.invalid:6379)"
    expect 69 timeout -k 5 "$LIMIT" "$HOLDFAST" -u zk://a.invalid -t 10m run q true
    says "holdfast: cannot acquire 'q': the server cannot be reached (a.invalid:2181: looking up host 'a.invalid': "
    same "$(wc -l <<<"$err")" 1
}

test_usage() {
    expect 64 env -u HOLDFAST_URL "$HOLDFAST" -u redis://a -u redis://b run x true
    says "two urls"
    expect 64 "$HOLDFAST" run --fair x true
    expect 64 "$HOLDFAST" run -s x true
    expect 64 "$HOLDFAST" run -N 3 x true
    expect 64 "$HOLDFAST" sem x count
    expect 64 env HOLDFAST_URL="unix://${sockets[0]} unix://${sockets[1]} unix://${sockets[0]}" "$HOLDFAST" run x true
}

# The last, since servers stay away.
test_z_servers_away() {
    kill -KILL "${servers[0]}"
    wait_until ended "${servers[0]}"
    expect 0 "$HOLDFAST" run q true
    expect 0 "$HOLDFAST" show q
    kill -KILL "${servers[1]}"
    wait_until ended "${servers[1]}"
    expect 69 "$HOLDFAST" -t 5s run q true # the one that is left has answered by then
    says "1 of 3 granted, 2 needed"
    says "${sockets[1]}"
    case $err in *"${sockets[2]}"*) fail "the server that lives is named: $err" ;; esac
}

# An event is printed once, not once for each server.
test_watch_sees_a_break() {
    start "$HOLDFAST" watch --every 20ms b >"$dir/broken"
    wait_until file_filled "$dir/broken"
    start "$HOLDFAST" hold --no-stdin b >/dev/null 2>&1
    wait_until grep -q acquired "$dir/broken"
    expect 0 "$HOLDFAST" unlock --force b
    wait_until grep -Eq '  broken    .* [0-9]+ bash, for ' "$dir/broken"
    ! grep -q released "$dir/broken" || fail "$(cat "$dir/broken")"
}

test_watch_sees_one_lock() {
    start "$HOLDFAST" watch --every 20ms w >"$dir/watched"
    wait_until file_filled "$dir/watched"
    expect 0 "$HOLDFAST" run w -- sh -c 'until grep -q acquired "$0"; do tick; done' "$dir/watched"
    wait_until grep -q released "$dir/watched"
    kill -TERM "$pid"
    finish "$pid"
    # a client that answers late is silent for a moment
    same "$(awk '$2 != "silent" && $2 != "alive" { print $2 }' "$dir/watched" | tr '\n' ' ')" 'free acquired released '
}

# What redsync and others have is one value at all of them; ours is a token of each server's own.
test_string_locks() {
    local i
    expect 0 "$HOLDFAST" run --string s -- sh -c "redis-cli -s '${sockets[0]}' get s; redis-cli -s '${sockets[1]}' get s;
        redis-cli -s '${sockets[2]}' get s"
    [ "$(grep -cE '^[0-9a-f-]{36}:[0-9]+:[0-9a-f]{16}$' <<<"$out")" -ge 2 ] || fail "not held: $out"
    wait_until held_nowhere s
    for i in 0 1 2; do redis-cli -s "${sockets[i]}" set s 5f3a px 60000 >/dev/null; done
    expect 75 "$HOLDFAST" run -n --string s true
    expect 0 "$HOLDFAST" show --string s
    [ "$(grep -c '5f3a' <<<"$out")" = 3 ] || fail "$out"
    expect 64 "$HOLDFAST" release s 5f3a
    expect 79 "$HOLDFAST" release --string s another
    redis-cli -s "${sockets[2]}" set s another px 60000 >/dev/null
    expect 0 "$HOLDFAST" extend --string s 5f3a 90s
    [ "$(redis-cli -s "${sockets[0]}" pttl s)" -gt 60000 ] || fail "not extended"
    expect 79 "$HOLDFAST" release --string s another # a minority had it, and has it no more
    expect 0 "$HOLDFAST" release --string s 5f3a
    held_nowhere s || fail "$(held_by s)"
    for i in 0 1; do redis-cli -s "${sockets[i]}" set s 5f3a px 60000 >/dev/null; done
    expect 0 "$HOLDFAST" unlock --force --string s
    held_nowhere s || fail "$(held_by s)"
    expect 0 "$HOLDFAST" run -n --string s true
}

run_tests
