# A primary, two replicas and three sentinels, for bench/failover/run, which see.
# shellcheck shell=bash disable=SC2034,SC2154 # what both use

start_sentinel() {
    local i
    server 0
    server 1 --replicaof 127.0.0.1 "${ports[0]}"
    server 2 --replicaof 127.0.0.1 "${ports[0]}"
    for i in 3 4 5; do one_sentinel "$i"; done
    url=redis-sentinel://127.0.0.1:${ports[3]},127.0.0.1:${ports[4]},127.0.0.1:${ports[5]}/guards
    asked=("${ports[@]:3}")
    copies=("${ports[@]:1:2}")
    sampled_by=ping
}

one_sentinel() { # I
    local i=$1 k
    mkdir -p "$dir/$i"
    {
        printf 'bind 127.0.0.1\nport %d\ndir %s\nsentinel myid %040x\n' "${ports[i]}" "$dir/$i" $((0xabc0 + i))
        printf 'sentinel monitor guards 127.0.0.1 %d 2\n' "${ports[0]}"
        printf 'sentinel down-after-milliseconds guards 500\nsentinel failover-timeout guards 2000\n'
        printf 'sentinel parallel-syncs guards 9\n'
        for k in 1 2; do printf 'sentinel known-replica guards 127.0.0.1 %d\n' "${ports[k]}"; done
        for k in 3 4 5; do
            [ "$k" = "$i" ] || printf 'sentinel known-sentinel guards 127.0.0.1 %d %040x\n' "${ports[k]}" $((0xabc0 + k))
        done
    } >"$dir/$i/conf"
    start "$i" redis-server "$dir/$i/conf" --sentinel
    until_true 20 says PONG "${ports[i]}" ping
    ask "${ports[i]}" sentinel debug ping-period 300 info-period 500 ask-period 100 publish-period 500 \
        min-link-reconnect-period 100 >/dev/null
}

is_whole_sentinel() {
    says OK "${ports[3]}" sentinel ckquorum guards && says OK "${ports[4]}" sentinel ckquorum guards &&
        says OK "${ports[5]}" sentinel ckquorum guards &&
        [ "$(ask "${ports[3]}" sentinel replicas guards | grep -c -A1 master-link-status)" = 2 ] &&
        [ "$(ask "${ports[0]}" set whole 1 && ask "${ports[0]}" wait 2 500)" = "$(printf 'OK\n2')" ]
}

# What sentinels say, each line with its time in microseconds of the epoch.
listen() { # PORT
    redis-cli -h 127.0.0.1 -p "$1" subscribe +switch-master +promoted-slave | while read -r line; do
        echo "${EPOCHREALTIME/[.,]/} $line"
    done
}

hear_sentinel() { # RESULT
    local i
    for i in 3 4 5; do
        listen "${ports[i]}" >"$1.said.$i" 2>/dev/null &
        pids+=($!)
    done
}

forget_sentinel() { # KEY
    local port
    for port in "${copies[@]}"; do
        ask "$port" config set replica-read-only no >/dev/null
        ask "$port" del "$1" >/dev/null
    done
}

has_changed_sentinel() { # RESULT
    grep -q '^[0-9]* \(slave\|guards\) ' "$1".said.*
}

changed_at_sentinel() { # RESULT
    grep -hE '^[0-9]+ (slave|guards) ' "$1".said.* | sort -n | head -1 | cut -d' ' -f1
}
