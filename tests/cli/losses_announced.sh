#!/usr/bin/env bash
# A loss under `run` reaches `/metrics` of `serve` as a total that does not fall, though its client ends with it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_serve.sh"
. "$(dirname "$0")/lib_metrics.sh"
server_start

total() { sed -n 's/^holdfast_fleet_losses_total //p' "$dir/body"; }
counts() { get /metrics && [ "$(total)" = "$1" ]; }
# The first request for totals begins to count.
serve_metrics() {
    serve
    wait_until counts 0
}
# lose NAME: a `run` whose lock is broken while its command runs.
lose() {
    start hf run --ttl 6s "$1" -- stay
    local run=$pid
    wait_until locked "$1"
    expect 0 hf unlock --force "$1"
    finish "$run"
    same "$status" 79
}

test_a_run_that_ends_with_its_loss_is_counted() {
    serve_metrics
    lint "$dir/body"
    lose one
    wait_until counts 1
    lose two
    wait_until counts 2
    expect 0 hf run fine -- true
    start hf run later -- stay # another client answers: it has lost nothing
    wait_until shows /metrics 'program="stay"'
    same "$(total)" 2 "the losses"
    get /metrics -H 'Accept: application/openmetrics-text; version=1.0.0'
    same "$(total)" 2 "the losses"
    grep -qx '# TYPE holdfast_fleet_losses counter' "$dir/body" || fail "$out"
}

test_it_is_counted_by_each_serve_from_its_begin() {
    serve_metrics
    local first=$url
    lose before
    wait_until counts 1
    serve_metrics
    lose after
    wait_until counts 1
    url=$first
    wait_until counts 2
}

test_the_build_is_named() {
    serve
    get /metrics
    grep -Eqx 'holdfast_build_info\{version="[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?"\} 1' "$dir/body" || fail "$out"
}

run_tests
