#!/usr/bin/env bash
# hold, show and unlock.
. "$(dirname "$0")/lib.sh"
server_start

# json KEY: a value of the JSON object in $out.
json() { redis-cli -s "$socket" --raw eval 'local v = cjson.decode(ARGV[1])[ARGV[2]]
    if v == nil then return "none" end
    return tostring(v)' 0 "$out" "$1"; }

test_hold_prints_one_line_and_holds() {
    start hf hold --no-stdin --ttl 20s h >"$dir/held"
    wait_until file_filled "$dir/held"
    out=$(cat "$dir/held")
    same "$(json name)" h
    same "$(json kind)" plain
    same "$(json owner)" "$(redis hkeys h)" "owner"
    same "$(json pid)" "$pid" "pid"
    same "$(json token)" none
    local left
    left=$(json remaining_ms)
    [ "${left%.*}" -gt 0 ] && [ "${left%.*}" -le 20000 ] || fail "remaining $left"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    free h || fail "still locked"
    same "$(wc -l <"$dir/held")" 1 "lines"
}

test_hold_ends_with_input() {
    mkfifo "$dir/in"
    exec 7<>"$dir/in" # so that opening it does not block
    hf hold i <"$dir/in" >"$dir/hold.out" 7<&- &
    pid=$!
    started+=("$pid")
    exec 6>"$dir/in" 7<&-
    wait_until file_filled "$dir/hold.out"
    echo "what is written does not matter" >&6
    locked i || fail "not locked"
    exec 6>&-
    finish "$pid"
    same "$status" 0
    free i || fail "still locked"
}

test_hold_without_input() {
    start sh -c 'exec hf hold c <&-' >"$dir/closed.out"
    wait_until file_filled "$dir/closed.out"
    locked c || fail "not locked"
    kill -INT "$pid"
    finish "$pid"
    same "$status" 0
}

test_hold_renews() {
    start hf hold --no-stdin --ttl 5s r >"$dir/renew.out"
    wait_until file_filled "$dir/renew.out"
    outlive_lease r || fail "not renewed"
    kill -HUP "$pid"
    finish "$pid"
    same "$status" 0
}

test_hold_lost_79() {
    start hf hold --no-stdin --ttl 4s l >"$dir/lost.out"
    wait_until file_filled "$dir/lost.out"
    redis del l >/dev/null
    finish "$pid"
    same "$status" 79
    start hf hold --no-stdin --lease 2s l >"$dir/lost.out"
    finish "$pid"
    same "$status" 79
}

test_hold_stopped_past_the_lease() {
    start hf hold --no-stdin --ttl 4s s >"$dir/stop.out"
    wait_until file_filled "$dir/stop.out"
    kill -STOP "$pid"
    wait_until free s
    redis hset s somebody 1 >/dev/null
    kill -CONT "$pid"
    finish "$pid"
    same "$status" 79
    same "$(redis hkeys s)" somebody
    redis del s >/dev/null
}

test_hold_busy() {
    redis hset b somebody 1 >/dev/null
    expect 75 hf hold -n b
    same "$out" ""
    expect 75 hf hold -w 2s b
    expect 4 hf hold -n -E 4 b
    start hf hold b
    wait_until awaited b
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
    redis del b >/dev/null
}

test_show() {
    expect 0 hf show x
    case $out in *"kind    free"*) ;; *) fail "$out" ;; esac
    expect 0 hf show --json x
    same "$out" '{"name":"x","kind":"free","held":false,"holders":[]}'

    start hf hold --no-stdin x >"$dir/show.out"
    wait_until file_filled "$dir/show.out"
    local owner holding=$pid
    owner=$(redis hkeys x)
    expect 0 hf show x
    case $out in *"kind    plain"*"ttl     "*"holder  $owner"*"count 1"*) ;; *) fail "$out" ;; esac
    case $out in *" who   unknown"*) fail "the connection was not found: $out" ;; *" who   "*) ;; esac
    expect 0 hf show --json x
    case $out in
    '{"name":"x","kind":"plain","held":true,"holders":[{"owner":"'"$owner"'","count":1,"connection":"'*) ;;
    *) fail "$out" ;;
    esac
    kill -TERM "$holding"
    finish "$holding"
}

test_show_held() {
    expect 1 hf show --held v
    same "$out" ""
    redis hset v somebody 1 >/dev/null
    expect 0 hf show --held v
    same "$out" ""
    redis del v >/dev/null
    redis set v text >/dev/null
    expect 65 hf show --held v
    expect 65 hf show v
    redis del v >/dev/null
}

test_show_of_a_lock_that_never_ends() {
    redis hset n somebody 2 >/dev/null
    expect 0 hf show n
    case $out in *"no expiry"*"holder  somebody"*"count 2"*) ;; *) fail "$out" ;; esac
    expect 0 hf show --json n
    case $out in *ttl_ms*) fail "$out" ;; esac
    redis del n >/dev/null
}

test_what_others_wrote_does_not_reach_the_terminal() {
    redis hset t $'evil\e[2Jowner' 1 >/dev/null
    expect 0 hf show t
    case $out in *$'\e'*) fail "escape sequence" ;; esac
    redis del t >/dev/null
    redis hset $'\xff\xfe' o 1 >/dev/null
    expect 0 hf show --json $'\xff\xfe'
    case $out in *'"name":"��"'*) ;; *) fail "$out" ;; esac
    redis del $'\xff\xfe' >/dev/null
}

test_unlock() {
    redis hset u somebody 1 >/dev/null
    expect 1 hf unlock u
    locked u || fail "it did not need --force"
    expect 64 hf unlock --owner x u
    expect 0 hf unlock --force u
    free u || fail "still locked"
    expect 1 hf unlock --force u
    says "nobody holds 'u'"
    expect 1 hf unlock --force --json u
    same "$out" '{"name":"u","broken":false}'
    redis hset u somebody 1 >/dev/null
    expect 0 hf unlock --force --json u
    same "$out" '{"name":"u","broken":true}'
    redis set u text >/dev/null
    expect 65 hf unlock --force u
    same "$(redis get u)" text "it is not a lock, and untouched"
    redis del u >/dev/null
}

test_unlock_force_wakes_a_waiter() {
    redis hset k somebody 1 >/dev/null
    start hf run k true
    wait_until awaited k
    expect 0 hf unlock --force k
    finish "$pid"
    same "$status" 0
}

test_output_that_cannot_be_written() {
    expect 71 eval 'hf show x >/dev/full'
    says "cannot write to the standard output: No space left on device"
    expect 71 eval 'hf show --json x >/dev/full'
    expect 71 eval 'hf hold --no-stdin x >/dev/full'
    free x || fail "still locked"
}

# A standard stream that is closed stays closed: no socket, and nothing else of ours, takes its number.
test_closed_standard_streams() {
    start sh -c 'exec hf -v hold closed <&-' >"$dir/out" 2>"$dir/err"
    wait_until locked closed
    wait_until file_filled "$dir/out"
    same "$(readlink "/proc/$pid/fd/0")" /dev/null "descriptor 0"
    grep -q "standard input is closed: the lock is held until a signal" "$dir/err" || fail "$(cat "$dir/err")"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    free closed || fail "still locked"
    start sh -c 'exec hf -vv hold --no-stdin closed 2>&-' >"$dir/out"
    wait_until file_filled "$dir/out"
    same "$(readlink "/proc/$pid/fd/2")" /dev/null "descriptor 2"
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 0
    expect 71 eval 'hf show closed >&-'
    # The command has what it would have without us.
    expect 0 sh -c 'hf run closed sh -c "[ ! -e /proc/\$\$/fd/0 ]" <&-'
    free closed || fail "still locked"
}

run_tests
