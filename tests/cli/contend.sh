#!/usr/bin/env bash
# Twenty at once: each adds one to a number in a file, by reading and writing it. Without the lock, most of
# that would be lost.
. "$(dirname "$0")/lib.sh"
server_start

cat >"$dir/bin/add_one" <<'END'
#!/bin/bash
# Fails if somebody else is at it at the same time.
mkdir "$1.busy" || exit 99
read -r number <"$1"
echo $((number + 1)) >"$1"
rmdir "$1.busy"
END
chmod +x "$dir/bin/add_one"

contend() { # PROCESSES ROUNDS
    local i process pids=()
    echo 0 >"$dir/number"
    for ((i = 0; i < $1; i++)); do
        start sh -c 'i=0; while [ $i -lt "$0" ]; do hf run number add_one "$1" || exit; i=$((i + 1)); done' "$2" \
            "$dir/number"
        pids+=("$pid")
    done
    for process in "${pids[@]}"; do
        finish "$process"
        same "$status" 0
    done
    same "$(cat "$dir/number")" $(($1 * $2)) "the number"
    free number || fail "still locked"
}

test_twenty_at_once() { contend 20 3; }

# One of two gets it, whatever the moment; with -n the other does not run at all.
test_only_one_with_nonblock() {
    local i process ran statuses
    for i in 1 2 3 4 5; do
        mkfifo "$dir/go.$i"
        pids=()
        for process in 1 2 3 4; do
            start hf run -n one sh -c 'echo >>"$0"; read -r _ <"$1"' "$dir/ran.$i" "$dir/go.$i"
            pids+=("$pid")
        done
        wait_until file_filled "$dir/ran.$i"
        # Three have left with 75 before the winner is let go.
        wait_until three_ended
        echo >"$dir/go.$i"
        statuses=
        for process in "${pids[@]}"; do
            finish "$process"
            statuses+=" $status"
        done
        ran=$(wc -l <"$dir/ran.$i")
        same "$ran" 1 "how many ran"
        same "$(tr ' ' '\n' <<<"$statuses" | grep -c 75)" 3 "how many were refused ($statuses)"
    done
}
three_ended() {
    local process count=0
    for process in "${pids[@]}"; do
        if ended "$process"; then count=$((count + 1)); fi
    done
    [ "$count" = 3 ]
}

# A holder that is killed with everything that came of it, guard and all, leaves a lock that ends by itself.
test_killed_holder_passes_on() {
    start setsid hf run --ttl 6s pass sh -c 'touch "$0"; exec stay' "$dir/up"
    wait_until file_there "$dir/up"
    local holder command
    holder=$(holder_of "$pid")
    command=$(children_of "$holder")
    kill -KILL "$pid" "$holder" "$command"
    expect 0 hf run -w 60 pass true
}

run_tests
