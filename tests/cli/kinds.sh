#!/usr/bin/env bash
# The kinds of locks of `run` and `hold`: --fair, --shared and --write, --fenced, --spin; and what show and
# unlock make of each.
. "$(dirname "$0")/lib.sh"
server_start

queue_is() { [ "$(redis llen "redisson_lock_queue:{$1}")" = "$2" ]; }

# Waits until somebody tries again and again.
spins() { wait_until scripts_were $(($(scripts) + 5)); }
scripts() { redis info commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }
scripts_were() { [ "$(scripts)" -ge "$1" ]; }

# guarded NAME [run option...]: runs a command that says it is there and never ends. Its pid is in $command.
guarded() {
    local name=$1 file=$dir/$1.pid
    shift
    rm -f "$file"
    start hf run "$@" "$name" sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec stay' "$file"
    wait_until file_filled "$file"
    command=$(cat "$file")
}
# stop_run PID: ends a run and its command.
stop_run() {
    kill -TERM "$1"
    finish "$1"
    same "$status" 143
}

test_kind_in_the_environment_of_the_command() {
    local kind
    for kind in "--fair fair" "-s read" "--shared read" "-W write" "--write write" "--fenced fenced" \
        "--spin spin" "-x plain" "-e plain" "-x --fair fair" "-N1 permit"; do
        # shellcheck disable=SC2086
        expect 0 hf run ${kind% *} "of${kind##* }" sh -c 'echo "$HOLDFAST_KIND"'
        same "$out" "${kind##* }" "kind with ${kind% *}"
    done
}

test_fair_owner_is_the_servers() {
    expect 0 hf run --fair fo sh -c 'echo "$HOLDFAST_OWNER"; redis-cli -s "$0" hkeys fo' "$socket"
    same "${out%%$'\n'*}" "${out##*$'\n'}" "owner"
    free fo || fail "still locked"
}

# Three wait in line, and one more that is killed there, and one that loses patience.
test_fair_is_first_come_first_served() {
    local first=() killed hasty i
    start hf hold --no-stdin --fair line >"$dir/line.held"
    local holding=$pid
    wait_until file_filled "$dir/line.held"
    for i in 1 2 3; do
        start hf run --fair line sh -c 'echo "$1" >>"$0"' "$dir/order" "$i"
        first+=("$pid")
        wait_until queue_is line "$i"
    done
    start hf run --fair line touch "$dir/line.killed"
    killed=$pid
    wait_until queue_is line 4
    start hf run -w 2s --fair line touch "$dir/line.hasty"
    hasty=$pid
    finish "$hasty"
    same "$status" 75
    queue_is line 4 || fail "who gave up is still in line"
    start hf run --fair line sh -c 'echo last >>"$0"' "$dir/order"
    first+=("$pid")
    wait_until queue_is line 5
    kill -KILL "$killed"
    wait_until queue_is line 4 # its holder process leaves the line
    kill -TERM "$holding"
    for i in "${first[@]}"; do
        finish "$i"
        same "$status" 0
    done
    same "$(tr '\n' ' ' <"$dir/order")" "1 2 3 last " "order"
    [ ! -e "$dir/line.killed" ] && [ ! -e "$dir/line.hasty" ] || fail "one ran that had gone"
    wait_until free line
    queue_is line 0 || fail "somebody is left in line"
}

# The lock is handed over for a few seconds at first. A command must not start under that.
test_fair_lease_is_whole_when_the_command_starts() {
    start hf hold --no-stdin --fair whole >"$dir/whole.held"
    local holding=$pid left
    wait_until file_filled "$dir/whole.held"
    start hf run --fair --ttl 100s whole sh -c 'echo "$HOLDFAST_DEADLINE" >"$0"' "$dir/whole"
    wait_until queue_is whole 1
    kill -TERM "$holding"
    finish "$pid"
    same "$status" 0
    left=$(($(cat "$dir/whole") - $(now_ms)))
    [ "$left" -gt 50000 ] || fail "the lease was good for $left ms only"

    start hf hold --no-stdin --fair whole >"$dir/whole.held"
    holding=$pid
    wait_until file_filled "$dir/whole.held"
    start hf hold --no-stdin --fair --lease 100s whole >"$dir/whole.next"
    wait_until queue_is whole 1
    kill -TERM "$holding"
    wait_until file_filled "$dir/whole.next"
    left=$(sed 's/.*"remaining_ms":\([0-9]*\).*/\1/' "$dir/whole.next")
    [ "$left" -gt 50000 ] || fail "the lease was good for $left ms only"
    kill -TERM "$pid"
    finish "$pid"
}

test_readers_together_writers_alone() {
    local one two
    guarded rw -s
    one=$pid
    guarded rw -s
    two=$pid
    expect 75 hf run -n -W rw true
    says "another owner holds the lock"
    start hf run --write rw touch "$dir/rw.written"
    local writer=$pid
    wait_until awaited rw
    stop_run "$one"
    [ ! -e "$dir/rw.written" ] || fail "written while somebody reads"
    stop_run "$two"
    finish "$writer"
    same "$status" 0
    file_there "$dir/rw.written" || fail "never written"

    guarded rw -W
    expect 75 hf run -n -s rw true
    expect 75 hf run -n -W rw true
    stop_run "$pid"
    wait_until free rw
    same "$(redis keys '*rw*')" "" "keys that are left"
}

test_one_name_one_kind() {
    guarded mix
    expect 65 hf run -n -s mix true
    says "'mix' is a plain or fair lock: leave out --shared, --write and --slots"
    case $err in *script*) fail "the innards are shown: $err" ;; esac
    expect 65 hf hold -n -W mix
    says "leave out --shared, --write"
    expect 65 hf run -n -N 2 mix true
    expect 75 hf run -n --spin mix true
    expect 75 hf run -n --fenced mix true
    stop_run "$pid"
    guarded mix -s
    for option in -x --fair --spin --fenced; do
        expect 65 hf run -n "$option" mix true
        says "'mix' is a read/write lock: use -s (--shared) or -W (--write)"
    done
    expect 65 hf run -n -N 2 mix true
    stop_run "$pid"
    expect 0 hf sem mix set 3
    expect 65 hf run -n mix true
    says "'mix' is a semaphore, a latch or a set of slots, not a lock"
    redis del mix >/dev/null
    redis rpush mix text >/dev/null
    expect 65 hf run -n mix true
    says "'mix' is not a lock of any kind, but a list"
    redis del mix >/dev/null
}

test_token_grows() {
    local first second third
    expect 0 hf run --fenced t sh -c 'echo "$HOLDFAST_TOKEN"'
    first=$out
    expect 0 hf run --fenced t sh -c 'echo "$HOLDFAST_TOKEN"'
    second=$out
    [ "$first" -gt 0 ] && [ "$second" -gt "$first" ] || fail "tokens $first, $second"
    expect 0 env -u HOLDFAST_TOKEN hf run t sh -c '[ -z "${HOLDFAST_TOKEN+x}" ]'
    start hf hold --no-stdin --fenced t >"$dir/t"
    wait_until file_filled "$dir/t"
    third=$(sed 's/.*"token":\([0-9]*\).*/\1/' "$dir/t")
    [ "$third" -gt "$second" ] || fail "token $third after $second"
    case $(cat "$dir/t") in *'"kind":"fenced"'*) ;; *) fail "$(cat "$dir/t")" ;; esac
    kill -TERM "$pid"
    finish "$pid"
}

test_spin_waits_without_a_channel() {
    redis hset sp somebody 1 >/dev/null
    start hf run --spin sp touch "$dir/sp"
    spins
    ! awaited sp || fail "it listens for a message"
    redis del sp >/dev/null # without one
    finish "$pid"
    same "$status" 0
    file_there "$dir/sp" || fail "it did not run"
}

# The same dangers for every kind: no_other is what cannot be had meanwhile.
kinds=("--fair" "-s" "-W" "--fenced" "--spin" "-N1")
no_other() {
    case $1 in -s) echo -W ;; *) echo "$1" ;; esac
}
had() { hf -q run -n "$(no_other "$1")" "$2" true; }

test_every_kind_lost_79() {
    local option
    for option in "${kinds[@]}"; do
        guarded "lost$option" --ttl 6s "$option"
        expect 75 hf run -n "$(no_other "$option")" "lost$option" true
        expect 0 hf unlock --force "lost$option"
        finish "$pid"
        same "$status" 79 "status with $option"
        ended "$command" || fail "the command with $option still runs"
        had "$option" "lost$option" || fail "it is not free"
    done
}

test_every_kind_without_its_holder() {
    local option
    for option in "${kinds[@]}"; do
        guarded "holder$option" --ttl 3s "$option"
        kill -KILL "$(holder_of "$pid")"
        finish "$pid"
        same "$status" 79 "status with $option"
        ended "$command" || fail "the command with $option still runs"
    done
    for option in "${kinds[@]}"; do
        wait_until had "$option" "holder$option"
    done
}

test_every_kind_without_its_guard() {
    local option
    for option in "${kinds[@]}"; do
        guarded "guard$option" --ttl 6s "$option"
        kill -KILL "$pid"
        finish "$pid"
        wait_until ended "$command"
        wait_until had "$option" "guard$option"
    done
}

# As in a power cut: nobody is left who could give anything back.
test_every_kind_without_both() {
    local option holder
    for option in "${kinds[@]}"; do
        guarded "both$option" --ttl 8s "$option"
        holder=$(holder_of "$pid")
        kill -KILL "$holder" "$pid" 2>/dev/null # the second may be gone already
        wait_until ended "$holder"
        wait_until ended "$command"
        ! had "$option" "both$option" || fail "free before the lease was over, with $option"
    done
    for option in "${kinds[@]}"; do
        wait_until had "$option" "both$option"
    done
}

test_every_kind_renewed() {
    local option pids=()
    for option in "${kinds[@]}"; do
        guarded "renew$option" --ttl 5s "$option"
        pids+=("$pid")
    done
    guarded renewlast --ttl 5s # the same lease, and younger than all of them
    pids+=("$pid")
    outlive_lease renewlast || fail "not renewed"
    for option in "${kinds[@]}"; do
        ! had "$option" "renew$option" || fail "not renewed: $option"
    done
    for option in "${pids[@]}"; do
        stop_run "$option"
    done
}

test_every_kind_interrupted_while_it_waits() {
    local option
    for option in "${kinds[@]}"; do
        guarded "int$option" "$(no_other "$option")"
        local holding=$pid
        start hf run "$option" "int$option" touch "$dir/int.ran" 2>"$dir/err"
        if [ "$option" = --spin ]; then spins; else wait_until awaited "int$option"; fi
        kill -INT "$pid"
        finish "$pid"
        same "$status" 130 "status with $option"
        same "$(cat "$dir/err")" "" "what it said with $option" # as it would of a holder that does not give up
        ! awaited "int$option" || fail "it is still waited for, with $option"
        stop_run "$holding"
        [ ! -e "$dir/int.ran" ] || fail "it ran, with $option"
        had "$option" "int$option" || fail "something is left behind with $option"
    done
    queue_is int--fair 0 || fail "somebody is left in line"
}

test_show_of_fair_with_those_in_line() {
    start hf hold --no-stdin --fair sf >"$dir/sf.held"
    local holding=$pid first second waiters
    wait_until file_filled "$dir/sf.held"
    start hf run --fair sf true
    first=$pid
    wait_until queue_is sf 1
    start hf run --fair sf true
    second=$pid
    wait_until queue_is sf 2
    waiters=$(redis lrange 'redisson_lock_queue:{sf}' 0 -1)
    expect 0 hf show sf
    case $out in *"kind    fair"*"holder  $(redis hkeys sf)"*"count 1"*"waiter  ${waiters%%$'\n'*}"*"who   "*"waiter  ${waiters##*$'\n'}"*) ;;
    *) fail "$out" ;; esac
    expect 0 hf show --json sf
    case $out in '{"name":"sf","kind":"fair","held":true,"holders":[{"owner":"'*'"waiters":[{"owner":"'"${waiters%%$'\n'*}"'","connection":"'*'{"owner":"'"${waiters##*$'\n'}"'"'*'"ttl_ms":'*) ;;
    *) fail "$out" ;; esac
    kill -TERM "$holding"
    finish "$first"
    finish "$second"
    same "$status" 0
}

test_show_of_readers_and_writers() {
    local one
    guarded sr -s
    one=$pid
    guarded sr -s
    expect 0 hf show sr
    case $out in *"kind    read"*"ttl  "*"holder  "*"count 1"*"holder  "*"count 1"*) ;; *) fail "$out" ;; esac
    expect 0 hf show --held sr
    stop_run "$one"
    stop_run "$pid"
    guarded sr -W
    expect 0 hf show sr
    case $out in *"kind    write"*"holder  "*) ;; *) fail "$out" ;; esac
    expect 0 hf show --json sr
    case $out in '{"name":"sr","kind":"write","held":true,'*) ;; *) fail "$out" ;; esac
    stop_run "$pid"
    expect 1 hf show --held sr
}

test_show_of_what_is_no_lock() {
    redis rpush so text >/dev/null
    expect 65 hf show so
    case $out in *"kind    other"*"type    list"*) ;; *) fail "$out" ;; esac
    says "'so' is not a lock, but a list"
    expect 65 hf show --json so
    same "$out" '{"name":"so","kind":"other","held":false,"holders":[],"type":"list"}'
    redis del so >/dev/null
    redis set so text >/dev/null
    expect 65 hf show so
    case $out in *"kind    other"*"type    string"*) ;; *) fail "$out" ;; esac
    redis del so >/dev/null
}

test_unlock_force_hands_a_fair_lock_on() {
    guarded uf --ttl 6s --fair
    local victim=$pid
    start hf run --fair uf touch "$dir/uf"
    wait_until queue_is uf 1
    expect 0 hf unlock --force uf
    finish "$pid"
    same "$status" 0
    file_there "$dir/uf" || fail "it did not run"
    finish "$victim"
    same "$status" 79
}

test_kinds_from_the_environment() {
    expect 0 env HOLDFAST_FAIR=yes hf run en sh -c '[ "$HOLDFAST_KIND" = fair ]'
    expect 0 env HOLDFAST_SLOTS=2 hf run en2 sh -c '[ "$HOLDFAST_KIND" = permit ]'
    expect 0 env HOLDFAST_FAIR=yes hf run -s en sh -c '[ "$HOLDFAST_KIND" = read ]'
    expect 0 env HOLDFAST_SHARED=yes hf run -x en sh -c '[ "$HOLDFAST_KIND" = plain ]'
    expect 0 env HOLDFAST_SHARED=no hf run en sh -c '[ "$HOLDFAST_KIND" = plain ]'
    expect 64 env HOLDFAST_SHARED=yes HOLDFAST_FAIR=yes hf run en true
    says "HOLDFAST_SHARED and HOLDFAST_FAIR exclude each other"
}

run_tests
