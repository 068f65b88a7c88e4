#!/usr/bin/env bash
# A server that a sentinel names: by a url or in parts, with a password of the sentinel's own, and in words what is wrong.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_ports.sh"

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
    start "$HOLDFAST" -u "$url" --sentinel-password-file "$dir/password" run fleet -- stay
    wait_until is_alive_at "$url" fleet
}
is_alive_at() { "$HOLDFAST" -u "$1" --sentinel-password-file "$dir/password" ls 2>/dev/null | grep -Eq "^$2 +plain +alive +[^ ]+ [0-9]+ stay "; }

# It is the server that sentinels name which is looked at.
test_the_doctor_looks_at_the_primary() {
    redis-cli -p "$server_port" config set maxmemory 100mb >/dev/null
    redis-cli -p "$server_port" config set maxmemory-policy volatile-ttl >/dev/null
    expect 2 "$HOLDFAST" -u "redis-sentinel://127.0.0.1:$port/guards" --sentinel-password-file "$dir/password" doctor \
        --skip latency --skip waking
    redis-cli -p "$server_port" config set maxmemory-policy noeviction >/dev/null
    grep -q '^bad .*volatile-ttl evicts held locks' <<<"$out" || fail "$out"
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
    expect 0 "$HOLDFAST" -p "$port" --sentinel guards --sentinel-confirm --sentinel-password-file "$dir/password" run a true
    # It names a server, at the usual address, and so nothing else has to.
    expect 69 env -u HOLDFAST_URL REDIS_URL= HOLDFAST_SENTINEL=guards "$HOLDFAST" -t 500ms run a true
    says 127.0.0.1:26379
}

# The primary changes while somebody waits: an error of the old primary is printed under its name.
test_a_primary_that_changes() {
    local dead sentinel=(redis-cli -a watchword --no-auth-warning -p "$port")
    start perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Proto => "tcp", LocalAddr => "127.0.0.1") or die;
        open F, ">", $ARGV[0]; print F $s->sockport; close F; sleep 100' "$dir/dead" # taken, and nobody listens
    wait_until file_filled "$dir/dead"
    dead=$(cat "$dir/dead")
    same "$("${sentinel[@]}" sentinel monitor changes 127.0.0.1 "$dead" 1)" OK
    start "$HOLDFAST" -p "$port" --sentinel changes --sentinel-password-file "$dir/password" run a echo held \
        >"$dir/changes" 2>"$dir/changes.err"
    wait_until grep -q "the primary should be 127.0.0.1:$dead: cannot connect" "$dir/changes.err"
    sleep 1.2 # a wait is held up after a second, which is said when there is a server again
    # in one piece: between the two, no sentinel would know the name
    exec 8<>"/dev/tcp/127.0.0.1/$port"
    printf 'auth watchword\r\nsentinel remove changes\r\nsentinel monitor changes 127.0.0.1 %s 1\r\n' "$server_port" >&8
    finish "$pid"
    "${sentinel[@]}" sentinel remove changes >/dev/null
    same "$status" 0
    same "$(cat "$dir/changes")" held
    grep -q "held up: 127.0.0.1:$dead does not answer: the primary should be 127.0.0.1:$dead: cannot connect" "$dir/changes.err" ||
        fail "$(cat "$dir/changes.err")"
    ! grep -q "127.0.0.1:$server_port does not answer" "$dir/changes.err" || fail "$(cat "$dir/changes.err")"
}

test_words() {
    expect 64 "$HOLDFAST" -u redis://127.0.0.1 --sentinel guards run a true
    says "give either a url"
    expect 64 "$HOLDFAST" -u redis://127.0.0.1 --sentinel-confirm run a true
    says "sentinel_confirm needs Sentinel"
    expect 64 "$HOLDFAST" -s /a --sentinel guards run a true
    says "not a socket"
    expect 64 "$HOLDFAST" -u redis-sentinel://127.0.0.1/0 run a true
    says "the database or the name"
    expect 77 "$HOLDFAST" -p "$port" --sentinel guards run a true
    says sentinel_password
    expect 64 "$HOLDFAST" -p "$port" --sentinel nobody --sentinel-password-file "$dir/password" run a true
    says "no sentinel knows 'nobody'; they know guards"
}

run_tests
