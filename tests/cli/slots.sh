#!/usr/bin/env bash
# `run --slots` and `hold --slots`: at most so many at once.
. "$(dirname "$0")/lib.sh"
server_start

free_slots() { redis get "$1"; }
taken_are() { [ "$(redis zcard "{$1}:timeout")" = "$2" ]; }

# A command that counts who is inside, itself included, and stays until the test ends it.
cat >"$dir/inside" <<'END'
#!/usr/bin/env bash
inside=$(redis-cli -s "$socket" incr "inside.$1")
[ "$inside" -le "$2" ] || touch "$0.exceeded"
stay_until "$0.go"
tick # it has to be inside for a while, lest one too many be overlooked
redis-cli -s "$socket" decr "inside.$1" >/dev/null
END
chmod +x "$dir/inside"
inside_are() { [ "$(redis get "inside.$1")" = "$2" ]; }

test_never_more_than_there_are() {
    local runs=() i
    for i in 1 2 3 4 5; do
        start hf run -N 2 crowd "$dir/inside" crowd 2
        runs+=("$pid")
    done
    wait_until inside_are crowd 2
    wait_until awaited crowd
    expect 75 hf run -n -N 2 crowd true
    says "'crowd': all slots are taken"
    expect 75 hf run -w 2s -N 2 crowd true
    says "the wait ended before a slot was free"
    expect 9 hf run -n -E 9 -N 2 crowd true
    touch "$dir/inside.go"
    for i in "${runs[@]}"; do
        finish "$i"
        same "$status" 0
    done
    [ ! -e "$dir/inside.exceeded" ] || fail "there were more than two inside"
    same "$(free_slots crowd)" 2 "slots"
    taken_are crowd 0 || fail "some are still taken"
}

test_what_the_command_sees() {
    expect 0 hf run --ttl 20s -N 3 seen sh -c 'echo "$HOLDFAST_NAME $HOLDFAST_KIND ${HOLDFAST_TOKEN-none} $HOLDFAST_OWNER"
        redis-cli -s "$0" --no-raw zrange "{seen}:timeout" 0 -1; echo "$HOLDFAST_DEADLINE"' "$socket"
    local first member deadline id
    { read -r first; read -r member; read -r deadline; } <<<"$out"
    id=${first##* }
    same "$first" "seen permit none $id"
    [[ $id =~ ^[0-9a-f]{32}$ ]] || fail "the owner is '$id'"
    [ -n "$member" ] || fail "no permit was taken"
    local left=$((deadline - $(now_ms)))
    [ "$left" -gt 0 ] && [ "$left" -le 20000 ] || fail "deadline in $left ms"
}

test_the_first_user_sets_the_number() {
    expect 0 hf run -N 2 number true
    same "$err" ""
    expect 0 hf run -N 2 number true
    same "$err" "" "the same number again"
    expect 0 hf run -N 5 number true
    same "$err" "holdfast: 'number' has 2 slots, not 5: the first client decided"
    same "$(free_slots number)" 2 "slots"
    expect 0 hf -q run -N 5 number true
    same "$err" ""
}

test_hold() {
    start hf hold --no-stdin -N 2 held --ttl 20s >"$dir/held.no" 2>/dev/null
    finish "$pid"
    same "$status" 64 # options go before the name
    start hf hold --no-stdin --ttl 20s -N 2 held >"$dir/held"
    wait_until file_filled "$dir/held"
    case $(cat "$dir/held") in '{"name":"held","kind":"permit","owner":"'*'","remaining_ms":'*'"pid":'"$pid}") ;;
    *) fail "$(cat "$dir/held")" ;; esac
    same "$(free_slots held)" 1 "free"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    same "$(free_slots held)" 2 "free"
}

test_hold_lost_79() {
    start hf hold --no-stdin --ttl 4s -N 2 hl >"$dir/hl"
    wait_until file_filled "$dir/hl"
    redis del '{hl}:timeout' >/dev/null
    finish "$pid"
    same "$status" 79
    start hf hold --no-stdin --lease 2s -N 2 hl2 >"$dir/hl2"
    finish "$pid"
    same "$status" 79
}

test_slot_taken_away() {
    start hf run --ttl 6s -N 2 away sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec stay' "$dir/away" \
        2>"$dir/away.err"
    wait_until file_filled "$dir/away"
    redis del '{away}:timeout' >/dev/null
    finish "$pid"
    same "$status" 79
    ended "$(cat "$dir/away")" || fail "the command still runs"
    grep -q "'away': the slot is lost: it is gone from the server .*; the command is killed" "$dir/away.err" ||
        fail "$(cat "$dir/away.err")"
}

test_lease_ends() { check_lease_ends -N 1; }

# Somebody who waits gets the slot of one who died, when its lease is over.
test_slot_of_the_dead_passes_on() {
    start hf run --ttl 6s -N 1 dead sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec stay' "$dir/dead"
    local victim=$pid
    wait_until file_filled "$dir/dead"
    start hf run -N 1 dead touch "$dir/dead.heir"
    wait_until awaited dead
    kill -KILL "$(holder_of "$victim")" "$victim" 2>/dev/null # the second may be gone already
    finish "$pid"
    same "$status" 0
    file_there "$dir/dead.heir" || fail "it did not run"
    same "$(free_slots dead)" 1 "free"
}

test_show() {
    start hf hold --no-stdin -N 3 shown >"$dir/shown"
    wait_until file_filled "$dir/shown"
    expect 0 hf show shown
    case $out in *"kind    permits"*"free    2"*"total   3"*"taken   1"*) ;; *) fail "$out" ;; esac
    expect 0 hf show --held shown
    expect 0 hf show --json shown
    [[ $out == '{"name":"shown","kind":"permits","held":true,"holders":[{"owner":"'*'"free":2,"total":3,"taken":1,'* ]] || fail "$out"
    kill -TERM "$pid"
    finish "$pid"
    expect 0 hf show shown
    case $out in *"kind    counter"*"value   3"*) ;; *) fail "$out" ;; esac
    expect 65 hf show --held shown
}

test_unlock_force_forgets_the_number() {
    start hf hold --no-stdin --ttl 6s -N 3 forget >"$dir/forget"
    wait_until file_filled "$dir/forget"
    expect 0 hf unlock --force forget
    same "$(redis keys '*forget*')" "" "keys"
    finish "$pid"
    same "$status" 79
    expect 0 hf run -N 4 forget true
    same "$(free_slots forget)" 4 "slots"
    expect 1 hf unlock --force forget # nobody holds any, and it could be a semaphore
    says "nobody holds a slot of 'forget'; 'holdfast sem forget delete' deletes its number"
    same "$(free_slots forget)" 4 "slots"
    expect 0 hf sem forget delete
    expect 0 hf run -N 5 forget true
    same "$err" ""
}

test_interrupted_while_it_waits() {
    start hf hold --no-stdin -N 1 int >"$dir/int"
    local holding=$pid
    wait_until file_filled "$dir/int"
    start hf run -N 1 int touch "$dir/int.ran"
    wait_until awaited int
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    kill -TERM "$holding"
    finish "$holding"
    same "$(free_slots int)" 1 "free"
    [ ! -e "$dir/int.ran" ] || fail "it ran"
}

test_server_gone() {
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" -t 300ms run -N 2 gone true
}

run_tests
