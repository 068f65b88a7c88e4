#!/usr/bin/env bash
# How long things took by name, at `/metrics` of `serve`: summed up over clients that come and go, read by Prometheus's own
# parsers where they are installed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_serve.sh"
. "$(dirname "$0")/lib_metrics.sh"
[ -x /usr/bin/python3 ] || { echo "skipped: there is no python3"; exit 77; }
server_start
here=$(dirname "$0")

# scrape: what /metrics says of the times by name is in $times.
scrape() {
    answers 200 /metrics
    lint "$dir/body"
    answers 200 /metrics -H 'Accept: application/openmetrics-text; version=1.0.0'
    times=$(grep -E '^holdfast_fleet_lock_(wait|hold|hand_over|times)_' "$dir/body")
}
# All of what came last.
is_well_formed() {
    local status=0
    /usr/bin/python3 "$here/../support/openmetrics.py" <"$dir/body" >/dev/null 2>"$dir/err" || status=$?
    case $status in 0 | 77 | 127) ;; *) fail "the parser: $(cat "$dir/err")" ;; esac
    if command -v promtool >/dev/null; then
        rm -rf "$dir/tsdb"
        sed '/^#/!s/$/ 1700000000/' "$dir/body" >"$dir/timed"
        promtool tsdb create-blocks-from openmetrics "$dir/timed" "$dir/tsdb" >"$dir/err" 2>&1 ||
            fail "promtool: $(cat "$dir/err")"
    fi
}
# says SAMPLE...: each is a line of it, with what stands between name and number as it is.
says() {
    local sample
    for sample; do
        grep -Fqx -- "$sample" <<<"$times" || return 1
    done
}
will_say() { scrape && says "$@"; }
# A survey is a second old before there is another.
next_scrape() {
    local before
    before=$(asked)
    wait_until asks_again
    scrape
}
asks_again() { get /metrics && [ "$(asked)" -gt "$before" ]; }
asked() { redis info commandstats | sed -n 's/^cmdstat_publish:calls=\([0-9]*\),.*/\1/p'; }

# ---- Real clients ----

test_the_sum_of_two_clients_of_which_one_ends() {
    start hf run busy -- stay
    local first=$pid
    wait_until locked busy
    start hf run busy -- stay
    local second=$pid
    wait_until awaited busy
    serve
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="busy"} 1'
    kill "$first"
    # the second has it now, and what the first has counted is not forgotten
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="busy"} 2' \
        'holdfast_fleet_lock_wait_seconds_bucket{lock="busy",le="+Inf"} 2'
    kill "$second"
    wait_until free busy
    next_scrape
    says 'holdfast_fleet_lock_wait_seconds_count{lock="busy"} 2' || fail "$times"
    is_well_formed
}

# ---- Clients that say what a test wants ----

A=aaaaaaaa-0000-4000-8000-00000000000a
B=bbbbbbbb-0000-4000-8000-00000000000b

# counts SUM_US COUNT...: a histogram
counts() {
    local sum=$1
    shift
    printf '{"sum_us":%d,"max_us":%d,"buckets":[%s]}' "$sum" "$sum" "$(IFS=,; echo "$*")"
}
# named NAME BEGUN WAIT [HOLD]: what a client has counted of one name
named() { printf '{"name":"%s","begun":%d,"wait":%s%s}' "$1" "$2" "$3" "${4:+,\"hold\":$4}"; }
# reports UUID NAMED...: from now on that client answers with these.
reports() {
    local id=$1
    shift
    (IFS=,; printf '{"v":1,"id":"%s","name":"holdfast:%s:host:1:worker","names":[%s]}' "$id" "$id" "$*") >"$dir/$id.new"
    mv "$dir/$id.new" "$dir/$id"
}
# Both clients, until the test is over.
start_clients() {
    local id
    for id in $A $B; do
        reports "$id"
        start /usr/bin/python3 "$here/survey_client.py" "$socket" "$id" "$dir/$id" >"$dir/client"
        wait_until grep -q ready "$dir/client"
    done
}

# A client that answers late is missing in a survey, so what is new is waited for; sums never fall.
test_what_is_more_is_added() {
    start_clients
    reports $A "$(named x 1 "$(counts 5000 0 0 3 0 0 0 0 0 0 0 0 0 2)" "$(counts 900 1)")"
    reports $B "$(named x 7 "$(counts 1000000 4)")" "$(named y 8 "$(counts 1 1)")"
    serve
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 9' 'holdfast_fleet_lock_wait_seconds_sum{lock="x"} 1.005000' \
        'holdfast_fleet_lock_wait_seconds_bucket{lock="x",le="0.000064"} 7' \
        'holdfast_fleet_lock_wait_seconds_bucket{lock="x",le="0.001024"} 7' \
        'holdfast_fleet_lock_wait_seconds_bucket{lock="x",le="0.004096"} 9' \
        'holdfast_fleet_lock_hold_seconds_count{lock="x"} 1' 'holdfast_fleet_lock_wait_seconds_count{lock="y"} 1'
    [[ $times != *'hold_seconds_count{lock="y"}'* ]] || fail "nothing was held: $times"
    next_scrape # nothing new
    says 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 9' || fail "$times"
    reports $A "$(named x 1 "$(counts 6000 0 0 4 0 0 0 0 0 0 0 0 0 2)" "$(counts 900 1)")"
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 10' 'holdfast_fleet_lock_wait_seconds_sum{lock="x"} 1.006000'
    # one is not there for a while
    reports $B
    next_scrape
    says 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 10' 'holdfast_fleet_lock_wait_seconds_count{lock="y"} 1' || fail "$times"
    reports $B "$(named x 7 "$(counts 1000000 5)")"
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 11'
    # one has begun anew
    reports $B "$(named x 9 "$(counts 30 2)")"
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 13' 'holdfast_fleet_lock_wait_seconds_sum{lock="x"} 1.006030'
    # one says less than before, which it cannot
    reports $A "$(named x 1 "$(counts 1 1)")"
    next_scrape
    says 'holdfast_fleet_lock_wait_seconds_count{lock="x"} 13' 'holdfast_fleet_lock_wait_seconds_sum{lock="x"} 1.006030' ||
        fail "$times"
    is_well_formed
}

# Its first survey has both clients: names are chosen then.
serve_two_names() {
    serve --metrics-locks 2
    scrape
    says 'holdfast_fleet_lock_wait_seconds_count{lock="worst"} 2' 'holdfast_fleet_lock_wait_seconds_count{lock="q\"\n"} 1' \
        'holdfast_fleet_lock_times_left_out 2' && return
    kill "$serving"
    finish "$serving"
    return 1
}
test_names_that_were_waited_for_come_first_and_stay() {
    start_clients
    reports $A "$(named idle 1 "$(counts 10 1)")" "$(named slow 2 "$(counts 9000 1)")" "$(named worst 3 "$(counts 5000 1)")"
    reports $B "$(named worst 1 "$(counts 5000 1)")" "$(named 'q\"\n' 2 "$(counts 9500 1)")"
    expect 64 hf serve --metrics-locks many
    expect 64 hf serve --metrics-locks 10001
    wait_until serve_two_names
    reports $A "$(named idle 1 "$(counts 100000 100)")" "$(named worst 3 "$(counts 5000 1)")"
    wait_until will_say 'holdfast_fleet_lock_wait_seconds_count{lock="worst"} 2' \
        'holdfast_fleet_lock_wait_seconds_count{lock="q\"\n"} 1' 'holdfast_fleet_lock_times_left_out 1'
    is_well_formed
}

# However many ask, there is one answer for all; and who reads JSON has nobody asked for times.
test_asked_for_when_wanted() {
    start_clients
    serve
    redis config resetstat >/dev/null
    start redis-cli -s "$socket" subscribe holdfast_ask >"$dir/questions"
    wait_until grep -q subscribe "$dir/questions"
    get /api/locks
    wait_until grep -q ' 262144 hwn ' "$dir/questions"
    ! grep -q ' hwnt ' "$dir/questions" || fail "$(cat "$dir/questions")"
    get /metrics # the survey is fresh, but has not asked for them
    wait_until grep -q ' 262144 hwnt ' "$dir/questions"
}

run_tests
