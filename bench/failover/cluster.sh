# A cluster of three primaries with a replica each, for bench/failover/run, which see. The first serves all slots but two, so that
# whatever the libraries use is there.
# shellcheck shell=bash disable=SC2034,SC2154 # what both use

start_cluster() {
    local i port
    mapfile -t buses < <(shuf -i 30000-32000 -n 6)
    for i in 0 1 2 3 4 5; do
        mkdir -p "$dir/$i"
        cluster_map "$i" >"$dir/$i/nodes.conf"
        server "$i" --cluster-enabled yes --cluster-config-file nodes.conf --cluster-port "${buses[i]}" \
            --cluster-node-timeout 500 --cluster-replica-validity-factor 0 --enable-debug-command yes
    done
    url=redis-cluster://127.0.0.1:${ports[0]}
    for port in "${ports[@]:1}"; do url+=,127.0.0.1:$port; done
    asked=("${ports[@]}")
    copies=("${ports[3]}")
    sampled_by='readonly'
}

# As each of them would write it.
cluster_map() { # I
    local k flags primary slots=(0-16381 16382 16383)
    for k in 0 1 2 3 4 5; do
        flags=master
        primary=-
        if [ "$k" -gt 2 ]; then
            flags=slave
            primary=$(printf '%040x' $((0xabc0 + k - 3)))
        fi
        [ "$k" != "$1" ] || flags=myself,$flags
        printf '%040x 127.0.0.1:%d@%d %s %s 0 0 %d connected %s\n' $((0xabc0 + k)) "${ports[k]}" "${buses[k]}" "$flags" \
            "$primary" $((k % 3 + 1)) "${slots[k]:-}"
    done
    echo 'vars currentEpoch 6 lastVoteEpoch 0'
}

is_whole_cluster() {
    local i
    for i in 0 1 2 3 4 5; do
        says cluster_state:ok "${ports[i]}" cluster info && says cluster_known_nodes:6 "${ports[i]}" cluster info || return 1
    done
    for i in 0 1 2; do [ "$(ask "${ports[i]}" role | head -1)" = master ] || return 1; done
    for i in 3 4 5; do says connected "${ports[i]}" role || return 1; done
    [ "$(printf 'set whole 1\nwait 1 500\n' | redis-cli -h 127.0.0.1 -p "${ports[0]}")" = "$(printf 'OK\n1')" ]
}

hear_cluster() { # RESULT
    ln -s "$dir/3.log" "$1.said" # where the replica says it
}

# The command goes to the replica, not to the primary.
forget_cluster() { # KEY
    ask "${ports[0]}" debug replicate del "$1" >/dev/null
}

step_back_cluster() {
    ask "${ports[3]}" cluster failover >/dev/null
}

won='Failover election won'
has_changed_cluster() { # RESULT
    grep -q "$won" "$1.said"
}

# "PID:ROLE DAY MONTH YEAR TIME # WORDS", in microseconds of the epoch.
changed_at_cluster() { # RESULT
    local when
    when=$(grep "$won" "$1.said" | head -1 | cut -d' ' -f2-5)
    rm "$1.said"
    date -d "$when" +%s%6N
}
