#!/usr/bin/env bash
# The programs of examples/ do what their first lines say, against a real server: what was built with the tests.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

bin=$(dirname "$HOLDFAST")
server_start
url=unix://$socket

# holding: somebody else has the lock, until `release_lock`.
holding() {
    start "$HOLDFAST" -s "$socket" run example -- stay
    holder=$pid
    wait_until locked example
}
release_lock() {
    kill -TERM "$holder"
    wait_until free example
}
printed() { grep -q "$1" "$dir/$name.out"; }
run_example() { # NAME URL...
    name=$1
    shift
    start "$bin/example_$name" "$@" >"$dir/$name.out" 2>"$dir/err"
    example=$pid
}
needs() { # LIBRARY: known to the build
    [ -x "$bin/example_$1" ] || { echo "skipped $1: not there when this was built"; return 1; }
}

test_every_example_is_tested() {
    local source stem
    for source in "$HF_SOURCE_DIR"/examples/*.{c,cpp}; do
        stem=$(basename "${source%.*}")
        declare -F "test_$stem" >/dev/null || fail "$source has no test here"
    done
}

test_first_lock() {
    expect 0 "$bin/example_first_lock" "$url"
    same "$out" working
    free example || fail "still locked"
    expect 0 env HOLDFAST_URL="$url" "$bin/example_first_lock"
    holding
    expect 1 "$bin/example_first_lock" "$url"
    says "another process holds"
    release_lock
    expect 1 "$bin/example_first_lock" "unix://$dir/nothing?connect_timeout_ms=100"
}

test_raii() {
    needs raii || return 0
    expect 0 "$bin/example_raii" "$url"
    same "$out" working
    free example || fail "still locked"
    holding
    expect 1 "$bin/example_raii" "$url"
    says "another process holds"
    release_lock
    expect 1 "$bin/example_raii" "unix://$dir/nothing?connect_timeout_ms=100"
    says "HF_EUNREACH at $dir/nothing: the server cannot be reached"

    run_example raii "$url" 600
    wait_until printed working
    expect 0 hf unlock --force example
    finish "$example"
    same "$status" 3 "exit status"
}

test_loss() {
    run_example loss "$url?watchdog_ms=900"
    wait_until printed working
    redis del example >/dev/null
    finish "$example"
    same "$status" 3 "exit status"
    printed 'lost: ' || fail "did not say so"

    # And when the server does not answer any more: a warning first.
    run_example loss "$url?watchdog_ms=6000&cmd_timeout_ms=1500"
    wait_until printed working
    kill -STOP "$server"
    finish "$example"
    kill -CONT "$server"
    same "$status" 3 "exit status"
    grep -q '^in danger' "$dir/err" || fail "no warning"
    redis del example >/dev/null
}

# A loop goes on while it waits, gets the lock when the other ends, and gives it back.
goes_on_while_waiting() {
    holding
    run_example "$1" "$url"
    wait_until awaited example
    wait_until printed tick
    release_lock
    finish "$example"
    same "$status" 0 "exit status"
    printed 'acquired after [1-9]' || fail "$(cat "$dir/$name.out")"
    printed 'released: ok' || fail "$(cat "$dir/$name.out")"
    free example || fail "still locked"
    # And at once, when nobody has it.
    expect 0 "$bin/example_$1" "$url"
}
test_poll() { goes_on_while_waiting poll; }
test_libuv() { ! needs libuv || goes_on_while_waiting libuv; }
test_libevent() { ! needs libevent || goes_on_while_waiting libevent; }

run_tests
