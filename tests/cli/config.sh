#!/usr/bin/env bash
# Which server it is, when the environment says it badly: a lock on the wrong server keeps nobody out, so
# nothing that was meant to name one is ignored in silence. No server is needed but a private one.
. "$(dirname "$0")/lib.sh"
server_start
unset -v HOLDFAST_REQUIRE_URL HOLDFAST_NO_LOCAL HOLDFAST_PORT HOLDFAST_HOST HOLDFAST_SOCKET HOLDFAST_DB HOLDFAST_SENTINEL

# Every subcommand that needs a server, one at a time: in $words.
subcommands=("run x touch $dir/ran" "hold x" "show x" "show --held x" "unlock --force x" "sem x count" "latch x wait")

# refuses PATTERN VARIABLE=VALUE...: with these variables every subcommand is refused with 64, and says so.
refuses() {
    local pattern=$1 subcommand
    shift
    for subcommand in "${subcommands[@]}"; do
        # shellcheck disable=SC2086
        expect 64 env "$@" "$HOLDFAST" $subcommand
        says "$pattern"
        case $err in *HOLDFAST_URL*) ;; *) fail "it does not say what to write: $err" ;; esac
    done
    [ ! -e "$dir/ran" ] || fail "it ran"
}

test_empty_is_an_error() {
    local variable
    for variable in HOLDFAST_URL HOLDFAST_HOST HOLDFAST_PORT HOLDFAST_SOCKET HOLDFAST_DB HOLDFAST_SENTINEL REDIS_URL; do
        refuses "$variable is empty" "$variable="
    done
    refuses "HOLDFAST_URL is empty" HOLDFAST_URL= "REDIS_URL=unix://$socket"
    expect 64 "$HOLDFAST" -u "" run x true
}

test_command_line_beats_an_empty_variable() {
    expect 0 env HOLDFAST_URL= HOLDFAST_HOST= REDIS_URL= "$HOLDFAST" -s "$socket" run x true
    same "$err" ""
    expect 0 env HOLDFAST_URL= "$HOLDFAST" -u "unix://$socket" run x true
    expect 0 env REDIS_URL= HOLDFAST_SOCKET="$socket" "$HOLDFAST" run x true
    expect 0 env HOLDFAST_URL= "$HOLDFAST" version
}

test_default_can_be_forbidden() {
    refuses "no server is configured" HOLDFAST_REQUIRE_URL=1
    refuses "no server is configured" HOLDFAST_NO_LOCAL=yes
    refuses "no server is configured" HOLDFAST_REQUIRE_URL=1 HOLDFAST_DB=3
    expect 64 "$HOLDFAST" --no-local run x touch "$dir/ran"
    says "no server is configured"
    expect 64 env HOLDFAST_REQUIRE_URL=perhaps "$HOLDFAST" run x true
    says "HOLDFAST_REQUIRE_URL must be yes or no"
    expect 0 env HOLDFAST_REQUIRE_URL=1 REDIS_URL="unix://$socket" "$HOLDFAST" run x true
    expect 0 env HOLDFAST_REQUIRE_URL=1 HOLDFAST_SOCKET="$socket" "$HOLDFAST" run x true
    expect 0 "$HOLDFAST" --no-local -s "$socket" run x true
    same "$err" ""
    [ ! -e "$dir/ran" ] || fail "it ran"
}

test_mistyped_name() {
    local variable
    for variable in HOLDFAST_URI HOLDFAST_ULR HOLDFAST_UR HOLDFAST_URLS HOLDFSAT_URL HOLDFASTURL HOLD_FAST_URL \
        holdfast_url; do
        refuses "$variable has no meaning" "$variable=redis://db1"
    done
    refuses "HOLDFAST_URI has no meaning" HOLDFAST_URI=db1 "REDIS_URL=unix://$socket"
    refuses "HOLDFAST_SERVER has no meaning" HOLDFAST_SERVER=redis://db1
    refuses "HOLDFAST_REDIS_URL has no meaning" HOLDFAST_REDIS_URL=rediss://db1
    refuses "HOLDFAST_ADDR has no meaning" HOLDFAST_ADDR=zk://db1
    refuses "HOLDFAST_ADDR has no meaning" HOLDFAST_ADDR=redis-sentinel://db1/primary
}

# It is nobody's business when the server is named, and other variables are other people's.
test_other_names_are_left_alone() {
    expect 0 env HOLDFAST_URI=redis://db1 "$HOLDFAST" -s "$socket" run x true
    expect 0 env HOLDFAST_URI=redis://db1 HOLDFAST_URL="unix://$socket" "$HOLDFAST" run x true
    expect 0 env HOLDFAST_STAGING_URL=redis://db1 REDIS_URL="unix://$socket" "$HOLDFAST" run x true
    expect 0 env HOLDFAST_NAME=redis://db1 REDIS_URL="unix://$socket" "$HOLDFAST" run x true
    same "$err" ""
}

# What Kubernetes puts into every container for a service called `holdfast`.
test_kubernetes_service_called_holdfast() {
    local links=(HOLDFAST_SERVICE_HOST=10.0.0.1 HOLDFAST_SERVICE_PORT=6379 HOLDFAST_PORT=tcp://10.0.0.1:6379
        HOLDFAST_PORT_6379_TCP=tcp://10.0.0.1:6379 HOLDFAST_PORT_6379_TCP_PROTO=tcp
        HOLDFAST_PORT_6379_TCP_PORT=6379 HOLDFAST_PORT_6379_TCP_ADDR=10.0.0.1)
    expect 0 env "${links[@]}" HOLDFAST_URL="unix://$socket" "$HOLDFAST" run x true
    says "HOLDFAST_PORT is ignored: Kubernetes"
    same "$(wc -l <"$dir/err")" 1 "lines"
    expect 0 env "${links[@]}" REDIS_URL="unix://$socket" "$HOLDFAST" show x
    says "is ignored"
    expect 0 env "${links[@]}" "$HOLDFAST" -q -s "$socket" run x true
    same "$err" ""
    expect 0 env "${links[@]}" "$HOLDFAST" version
    expect 0 env "${links[@]}" "$HOLDFAST" help
    refuses "no server is configured" "${links[@]}" HOLDFAST_REQUIRE_URL=1
    # It is no port on the command line.
    expect 64 "$HOLDFAST" -p tcp://10.0.0.1:6379 run x true
    expect 64 env HOLDFAST_PORT=nonsense "$HOLDFAST" run x true
}

run_tests
