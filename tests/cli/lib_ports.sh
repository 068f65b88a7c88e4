# Servers at ports of their own, besides lib.sh, which the test has read before. They end with the test.

servers=()
end_servers() {
    # shellcheck disable=SC2031 # each test has its own
    [ "$BASHPID" = "$main" ] || return
    kill -KILL "${servers[@]}" 2>/dev/null
    clean_up
}
trap end_servers EXIT

# [ports=NUMBER] listen COMMAND...: a server at one of that many ports from 10000 on, which nobody else has; the port is
# in $port, its process in $pid.
listen() {
    local try
    for try in {1..50}; do
        port=$((10000 + (RANDOM * 32768 + RANDOM + try) % ${ports:-22000}))
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
