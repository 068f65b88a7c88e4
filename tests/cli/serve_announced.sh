#!/usr/bin/env bash
# What clients announce is on the page of `serve` without waiting for its next survey, which in these tests is an hour away;
# and announcements cannot make it survey without end.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_serve.sh"
server_start

listeners() { [ "$(redis pubsub numsub holdfast_ask | tail -n 1)" = "$1" ]; }
frame() { grep -Eq -- "^data: .*$1" "$dir/page"; }
frames() { grep -c '^data: ' "$dir/page"; }
# watched NAME: somebody holds it, and a page shows that.
watched() {
    start hf run "$1" -- stay 2>/dev/null
    holder=$pid
    wait_until listeners 1 # the holder: it hears of breaks, as it is old enough
    serve --every 1h
    start curl -sSN "$url/api/events" >"$dir/page"
    wait_until frame "\"name\":\"$1\""
    wait_until listeners 2
    same "$(frames)" 1 "surveys"
}

test_a_deleted_lock() {
    watched deleted
    redis del deleted >/dev/null
    wait_until frame '"gone":\["deleted"\]'
    wait_until frame '"event":"lost","name":"deleted"'
    finish "$holder"
    same "$status" 79
}

test_an_overwritten_lock() {
    watched overwritten
    redis set overwritten other >/dev/null
    wait_until frame '"gone":\["overwritten"\]'
    finish "$holder"
    same "$status" 79
    redis del overwritten >/dev/null
}

test_a_flushed_server() {
    watched flushed
    redis flushall >/dev/null
    wait_until frame '"gone":\["flushed"\]'
    finish "$holder"
    same "$status" 79
}

test_a_broken_lock() {
    watched torn
    expect 0 hf unlock --force torn
    wait_until frame '"event":"broken","name":"torn"'
    wait_until frame '"gone":\["torn"\]'
    finish "$holder"
    same "$status" 79
}

# Without a page there is no subscription, so nothing says that a survey is outdated: a request asks for a new one.
lists() { get /api/locks && [[ $out == *"\"$1\""* ]]; }
lists_no() { get /api/locks && [[ $out != *"\"$1\""* ]]; }
test_requests_without_a_page() {
    start hf run unseen -- stay 2>/dev/null
    holder=$pid
    wait_until listeners 1
    serve --every 1h
    wait_until lists unseen
    answers 200 /metrics # with times, which that survey has not
    redis del unseen >/dev/null
    finish "$holder"
    same "$status" 79
    wait_until lists_no unseen
    answers 200 /metrics
    wait_until shows /metrics 'holdfast_fleet_losses_total 1'
}

# The last by its name: the new server ends with this test.
test_the_server_comes_back() {
    serve --every 1h
    wait_until shows /metrics 'holdfast_up 1'
    server_kill
    wait_until shows /metrics 'holdfast_up 0'
    server_start
    wait_until shows /metrics 'holdfast_up 1'
}

# A hold that no survey showed: nothing but the announcement tells of its loss, and no later survey would add anything.
test_a_loss_of_an_unseen_hold() {
    serve --every 1h
    start curl -sSN "$url/api/events" >"$dir/page"
    wait_until listeners 1
    wait_until frame '"full":true'
    start hf run unseen -- stay 2>/dev/null
    holder=$pid
    wait_until locked unseen
    redis del unseen >/dev/null
    finish "$holder"
    same "$status" 79
    wait_until frame '"event":"lost"'
}

# Surveys that announcements cause are close together: what one shows is no rate of its own. A break hands it to the next.
highest_rate() {
    grep -o '"seen":[0-9.]*' "$dir/page" | sed 's/.*://' | sort -n | tail -n 1
}
handed() { [ "$(grep -c '"event":"acquired","name":"rates"' "$dir/page")" -ge "$1" ]; }
test_rates_of_hurried_surveys() {
    local i holders=()
    watched rates
    holders=("$holder")
    for i in 1 2 3; do
        start hf run rates -- stay 2>/dev/null
        holders+=("$pid")
        wait_until listeners $((i + 2))
    done
    for i in 1 2 3; do
        expect 0 hf unlock --force rates
        wait_until handed "$i"
    done
    [ "$(highest_rate | cut -d. -f1)" = "" ] || fail "$(highest_rate) hand-overs a second, of 3 in an hour"
    for i in "${holders[@]}"; do kill "$i" 2>/dev/null; done
    redis del rates >/dev/null
}

scans() { redis info commandstats | sed -n 's/^cmdstat_scan:calls=\([0-9]*\),.*/\1/p'; }
flood() {
    redis publish holdfast_tell:losses:0 'anybody can say so' >/dev/null
    [ "$(scans)" -ge "$1" ]
}
test_a_flood_of_announcements_is_bounded() {
    local each begun took surveys
    redis config resetstat >/dev/null
    watched flooded
    each=$(scans) begun=$(now_ms) # of one survey
    wait_until flood $((9 * each))
    surveys=$(($(scans) / each - 1)) took=$(($(now_ms) - begun + 20))
    [ $surveys -le $((took / 250 + 1)) ] || fail "$surveys surveys in $took ms"
    kill "$holder"
    finish "$holder"
}

test_how_often() {
    for every in 0.9s 61m never ''; do
        expect 64 hf serve --every "$every"
        says 'is not a duration from 1s to 1h'
    done
}

run_tests
