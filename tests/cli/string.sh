#!/usr/bin/env bash
# String locks in the tool: --string of run, hold, acquire, extend, release, unlock and show, and tokens that
# another library left.
. "$(dirname "$0")/lib.sh"
server_start

test_run_and_its_token() {
    expect 0 hf run --string job sh -c 'echo "$HOLDFAST_KIND $HOLDFAST_OWNER"; redis-cli -s "$0" get job' "$socket"
    same "${out%%$'\n'*}" "string ${out##*$'\n'}"
    free job || fail "still locked"
}

test_busy_behind_another_library() {
    redis set theirs 5f3a nx px 60000 >/dev/null
    expect 75 hf run -n --string theirs true
    expect 75 hf run -w 1s --string theirs true
    expect 0 hf show --string theirs
    case $out in *5f3a*) ;; *) fail "no token: $out" ;; esac
    expect 0 hf show --held --string theirs
    expect 65 hf show theirs
    redis del theirs >/dev/null
    expect 1 hf show --held --string theirs
}

test_a_waiter_follows_another_library() {
    redis set next 5f3a nx px 60000 >/dev/null
    start hf run --string next true
    wait_until waits_for_set
    redis del next >/dev/null
    finish "$pid"
    same "$status" 0
}
waits_for_set() { [ "$(redis info commandstats | sed -n 's/^cmdstat_set:calls=\([0-9]*\),.*/\1/p')" -ge 3 ]; }

test_handles() {
    expect 0 hf acquire --string --lease 30s handled
    local token=$out
    same "$(redis get handled)" "$token"
    expect 0 hf extend --string handled "$token" 90s
    [ "$(redis pttl handled)" -gt 60000 ] || fail "not extended"
    same "$(redis get handled)" "$token"
    expect 79 hf release --string handled "${token%?????}00000"
    expect 0 hf release --string handled "$token"
    free handled || fail "still locked"
    expect 79 hf release --string handled "$token"
}

# As redis-py leaves it: 32 digits, and no lease.
test_a_foreign_token_is_released() {
    redis set left 0123456789abcdef0123456789abcdef >/dev/null
    expect 79 hf release --string left 0123456789abcdef0123456789abcde0
    expect 0 hf release --string left 0123456789abcdef0123456789abcdef
    free left || fail "still locked"
}

test_unlock() {
    redis set left 5f3a px 60000 >/dev/null
    expect 65 hf unlock --force left
    expect 0 hf unlock --force --string left
    free left || fail "still locked"
    expect 1 hf unlock --force --string left
    expect 0 hf acquire --string --lease 30s ours
    expect 0 hf unlock --force ours
    free ours || fail "still locked"
}

# It outlives what took it: only a release ends it, by its handle or whatever it is.
test_without_a_lease() {
    expect 0 hf acquire --string --lease none lasting
    local token=$out
    same "$(redis get lasting)" "$token"
    same "$(redis pttl lasting)" -1
    expect 75 hf run -n --string lasting true
    expect 0 hf extend --string lasting "$token" 90s
    same "$(redis pttl lasting)" -1
    expect 0 hf release --string lasting "$token"
    free lasting || fail "still locked"
    expect 0 hf acquire --json --string --lease none lasting
    [[ $out == *'"lease_ms":null'* ]] || fail "$out"
    expect 0 hf unlock --force --string lasting
    free lasting || fail "still locked"
}

test_run_and_hold_without_a_lease() {
    # shellcheck disable=SC2016
    expect 0 hf run --string --lease none lasting sh -c 'redis-cli -s "$0" pttl lasting' "$socket"
    same "$out" -1
    free lasting || fail "still locked"
    start hf hold --no-stdin --string --lease none lasting >"$dir/lasting.held"
    wait_until file_filled "$dir/lasting.held"
    [[ $(<"$dir/lasting.held") == *'"remaining_ms":null,"deadline_ms":null'* ]] || fail "$(<"$dir/lasting.held")"
    kill -KILL "$pid"
    finish "$pid"
    same "$(redis pttl lasting)" -1
    expect 0 hf unlock --force --string lasting
    start hf run --string --lease none lasting sh -c 'touch "$0"; while :; do sleep 0.1; done' "$dir/lasting.runs"
    wait_until test -e "$dir/lasting.runs"
    redis del lasting >/dev/null
    finish "$pid"
    same "$status" 79
}

test_no_lease_is_for_strings() {
    for command in "run --lease none other true" "hold --lease none other" "acquire --lease none other"; do
        # shellcheck disable=SC2086
        expect 64 hf $command
        says "--lease none is only for --string"
    done
    expect 64 hf run --string -m --lease none one two -- true
    says "-m and --lease none exclude each other"
    expect 64 hf run --string --ttl none other true
    expect 64 "$HOLDFAST" -u "unix://$dir/1" -u "unix://$dir/2" -u "unix://$dir/3" run --string --lease none q true
    says "--lease none"
}

test_other_kinds_say_so() {
    expect 0 hf acquire --string --lease 30s kinds
    expect 65 hf run -n kinds true
    says "--string"
    redis del kinds >/dev/null
}

# What its client reports is not disputed: the server's strings are not searched.
test_listed_by_its_client() {
    start hf hold --no-stdin --string listed >"$dir/listed.held"
    wait_until file_filled "$dir/listed.held"
    wait_until is_listed
    expect 0 hf ls --json
    case $out in *'"disputed":true'*) fail "disputed: $out" ;; esac
    expect 0 hf show listed
    same "$(grep -c '^holder' <<<"$out")" 1 "holders"
    kill -TERM "$pid"
    finish "$pid"
    free listed || fail "still locked"
}
is_listed() { [[ $(hf ls --json) == *'"kind":"string"'* ]]; }

run_tests
