#!/usr/bin/env bash
# A server that a sentinel names: by a url or in parts, with a password of the sentinel's own, and in words what is wrong.
. "$(dirname "$0")/lib.sh"

servers=()
end_servers() {
    # shellcheck disable=SC2031 # each test has its own
    [ "$BASHPID" = "$main" ] || return
    kill -KILL "${servers[@]}" 2>/dev/null
    clean_up
}
trap end_servers EXIT

# listen COMMAND...: a server at a port that nobody else has; it is in $port.
listen() {
    local pid try
    for try in {1..50}; do
        port=$((10000 + (RANDOM * 32768 + RANDOM + try) % 22000))
        "$@" --port "$port" --daemonize no </dev/null >>"$dir/listen.log" 2>&1 &
        pid=$!
        servers+=("$pid")
        wait_until answers_or_ended "$pid" && kill -0 "$pid" 2>/dev/null && return
    done
    fail "no port is free"
}
answers_or_ended() {
    case $(redis-cli -p "$port" ping 2>/dev/null) in PONG | *NOAUTH*) return ;; esac
    ! kill -0 "$1" 2>/dev/null
}

listen setpriv --pdeathsig KILL redis-server --bind 127.0.0.1 --save '' --appendonly no --dir "$dir"
server_port=$port
mkdir "$dir/sentinel"
cat >"$dir/sentinel/conf" <<CONF
bind 127.0.0.1
dir $dir/sentinel
requirepass watchword
sentinel monitor guards 127.0.0.1 $server_port 1
CONF
listen setpriv --pdeathsig KILL redis-server "$dir/sentinel/conf" --sentinel
printf 'watchword\n' >"$dir/password"

test_by_url() {
    expect 0 "$HOLDFAST" -u "redis-sentinel://127.0.0.1:$port/guards?sentinel_password=watchword" run a echo held
    same "$out" held
    expect 0 env HOLDFAST_URL="redis+sentinel://127.0.0.1:$port/guards/3" "$HOLDFAST" \
        --sentinel-password-file "$dir/password" run a redis-cli -p "$server_port" -n 3 exists a
    same "$out" 1
}

# Who holds what, and whether it is there, is asked at the primary.
test_the_fleet_is_asked_there() {
    local url="redis-sentinel://127.0.0.1:$port/guards"
    start "$HOLDFAST" -u "$url" --sentinel-password-file "$dir/password" run fleet -- sleep 100
    wait_until is_alive_at "$url" fleet
}
is_alive_at() { "$HOLDFAST" -u "$1" --sentinel-password-file "$dir/password" ls 2>/dev/null | grep -Eq "^$2 +plain +alive +[^ ]+ [0-9]+ holdfast "; }

# It is the server that sentinels name which is looked at.
test_the_doctor_looks_at_the_primary() {
    redis-cli -p "$server_port" config set maxmemory 100mb >/dev/null
    redis-cli -p "$server_port" config set maxmemory-policy volatile-ttl >/dev/null
    expect 2 "$HOLDFAST" -u "redis-sentinel://127.0.0.1:$port/guards" --sentinel-password-file "$dir/password" doctor \
        --skip latency --skip waking
    redis-cli -p "$server_port" config set maxmemory-policy noeviction >/dev/null
    grep -q '^bad .*volatile-ttl evicts locks' <<<"$out" || fail "$out"
    grep -q '^ok .*deadlocks' <<<"$out" || fail "$out"
}

test_in_parts() {
    expect 0 "$HOLDFAST" -h 127.0.0.1 -p "$port" --sentinel guards --sentinel-password-file "$dir/password" run a \
        redis-cli -p "$server_port" exists a
    same "$out" 1
    expect 0 "$HOLDFAST" -h 127.0.0.1,localhost -p "$port" -n 2 --sentinel guards \
        --sentinel-password-file "$dir/password" run a redis-cli -p "$server_port" -n 2 exists a
    same "$out" 1
    expect 0 env HOLDFAST_SENTINEL=guards HOLDFAST_PORT="$port" HOLDFAST_SENTINEL_PASSWORD_FILE="$dir/password" \
        "$HOLDFAST" run a true
    # It names a server, at the usual address, and so nothing else has to.
    expect 69 env -u HOLDFAST_URL REDIS_URL= HOLDFAST_SENTINEL=guards "$HOLDFAST" -t 500ms run a true
    says 127.0.0.1:26379
}

test_words() {
    expect 64 "$HOLDFAST" -u redis://127.0.0.1 --sentinel guards run a true
    says "not both"
    expect 64 "$HOLDFAST" -s /a --sentinel guards run a true
    says "no socket"
    expect 64 "$HOLDFAST" -u redis-sentinel://127.0.0.1/0 run a true
    says "the database or the name"
    expect 77 "$HOLDFAST" -p "$port" --sentinel guards run a true
    says sentinel_password
    expect 64 "$HOLDFAST" -p "$port" --sentinel nobody --sentinel-password-file "$dir/password" run a true
    says "no sentinel knows 'nobody'; they know guards"
}

run_tests
