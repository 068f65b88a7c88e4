#!/usr/bin/env bash
# The tool with a private server of its own: `local:`, in a directory of this test; and with nothing
# configured at all, in a namespace where /tmp and all processes are this test's.
. "$(dirname "$0")/lib.sh"

# The pid of the server in a directory; it is killed when the test ends.
server_of() { redis-cli -s "$1/redis.sock" info server 2>/dev/null | tr -d '\r' | sed -n 's/^process_id://p'; }
answers() { [ -n "$(server_of "$1")" ]; }
stop_server_of() {
    local server
    server=$(server_of "$1")
    [ -z "$server" ] || kill -KILL "$server"
}
# Each test has a directory of its own, in $home; its server goes with the test.
new_home() {
    home=$dir/$1.home
    mkdir -m 700 "$home"
    trap 'leave_test; stop_server_of "$home"' EXIT
}
lf() { "$HOLDFAST" -u "local:$home" "$@"; }

test_starts_and_is_shared() {
    new_home shared
    expect 0 lf run a echo hello
    same "$out" hello
    same "$err" "" "a server that was asked for is no news"
    local server
    server=$(server_of "$home")
    [ -n "$server" ] || fail "no server lives on"
    expect 0 lf run a true
    same "$(server_of "$home")" "$server" "the same server"
    expect 1 lf show --held a
}

# The server is neither the command nor what is left of it.
test_output_ends_with_the_command() {
    new_home output
    same "$(lf run a echo hello 2>&1)" hello
    answers "$home" || fail "the server has been killed"
}

test_many_start_it_at_once() {
    new_home many
    local i pids=()
    for i in 1 2 3 4 5 6; do
        start "$HOLDFAST" -u "local:$home" run a sh -c 'echo >>"$0"' "$dir/many.log"
        pids+=("$pid")
    done
    for i in "${pids[@]}"; do
        finish "$i"
        same "$status" 0
    done
    same "$(wc -l <"$dir/many.log")" 6
}

# The library starts a new server while the command still runs. That server becomes a child of ours, and
# must be left alone when the command is killed: others use it.
test_server_killed_while_running() {
    new_home killed
    start "$HOLDFAST" -u "local:$home" run --ttl 3s a sh -c 'echo $$ >"$0"; exec stay' "$dir/killed.pid"
    wait_until file_filled "$dir/killed.pid"
    kill -KILL "$(server_of "$home")"
    finish "$pid"
    same "$status" 79
    ended "$(cat "$dir/killed.pid")" || fail "the command still runs"
    wait_until new_server_serves
}
new_server_serves() {
    lf run b true 2>/dev/null
}

# The same, and the new server is there before the command is ended, for sure.
test_new_server_survives_the_loss() {
    new_home survives
    start "$HOLDFAST" -u "local:$home" run --ttl 6s --on-lost=ignore a bash -c 'trap "" TERM; echo $$ >"$0"
        while [ ! -e "$0.end" ] && [ -d $test_proc ]; do tick; done' "$dir/survives"
    wait_until file_filled "$dir/survives"
    local before server
    before=$(server_of "$home")
    kill -KILL "$before"
    wait_until another_server "$before"
    server=$(server_of "$home")
    touch "$dir/survives.end"
    finish "$pid" # It does not wait for the server, no matter who started it.
    same "$status" 79
    alive "$server" || fail "the new server has been killed"
}
another_server() {
    local server
    server=$(server_of "$home")
    [ -n "$server" ] && [ "$server" != "$1" ]
}

# A server that the command has started, wherever: it is not waited for, and lives on when the lock is lost.
test_a_server_of_the_command_is_not_the_command() {
    new_home others
    server_start
    trap 'leave_test; stop_server_of "$home"; server_kill' EXIT
    start hf run --ttl 6s outer sh -c '"$TOOL" -u "local:$0" run inner true; echo $$ >"$0.pid"; exec stay' "$home"
    wait_until file_filled "$home.pid"
    local server
    server=$(server_of "$home")
    redis del outer >/dev/null
    finish "$pid"
    same "$status" 79
    ended "$(cat "$home.pid")" || fail "the command still runs"
    alive "$server" || fail "it has killed the server"
    kill -KILL "$server"
    wait_until ended "$server"
    start hf run outer "$HOLDFAST" -u "local:$home" run inner true
    finish "$pid"
    same "$status" 0
    answers "$home" || fail "it has waited for the server"
}

# Nor is one that has not come up yet.
test_a_server_that_still_starts_is_not_the_command() {
    new_home slow
    server_start
    trap 'leave_test; stop_server_of "$home"; server_kill' EXIT
    mkdir "$home.bin"
    cat >"$home.bin/redis-server" <<END
#!/bin/sh
echo \$\$ >"$home.new" && mv "$home.new" "$home.pid"
while [ ! -e "$home.go" ] && [ -d "$test_proc" ]; do "$dir/bin/tick"; done
exec "$(command -v redis-server)" "\$@"
END
    chmod +x "$home.bin/redis-server"
    start hf run --ttl 6s outer sh -c 'PATH=$0.bin:$PATH "$TOOL" -u "local:$0" run inner true; exec stay' "$home"
    wait_until file_filled "$home.pid"
    redis del outer >/dev/null
    finish "$pid"
    same "$status" 79
    alive "$(cat "$home.pid")" || fail "it has killed the server"
    touch "$home.go"
    wait_until answers "$home"
}

# And when the other process takes over: the command gets a TERM, the new server does not.
test_new_server_survives_a_killed_holder() {
    new_home orphan
    start "$HOLDFAST" -u "local:$home" run --ttl 6s --on-lost=signal a bash -c '
        trap "echo >>\"$0.term\"" TERM; touch "$0"; while [ ! -e "$0.end" ] && [ -d $test_proc ]; do tick; done' "$dir/orphan"
    wait_until file_there "$dir/orphan"
    local before server
    before=$(server_of "$home")
    kill -KILL "$before"
    wait_until another_server "$before"
    server=$(server_of "$home")
    wait_until file_there "$dir/orphan.term"
    rm "$dir/orphan.term"
    kill -KILL "$(holder_of "$pid")"
    wait_until file_there "$dir/orphan.term"
    touch "$dir/orphan.end"
    finish "$pid"
    same "$status" 79
    same "$(server_of "$home")" "$server" "the server that serves"
}

notice="holdfast: no server is configured: using local:, a private server of this user on this machine; other users and\
 machines do not share its locks (name a shared server with -u or HOLDFAST_URL)"

# isolated SCRIPT: runs it with a /tmp and processes of its own, where the tool is /tmp/holdfast. Fails if that
# cannot be done here.
isolated() {
    # shellcheck disable=SC2206
    local isolate=(unshare ${isolated_user---user --map-root-user} --mount --pid --fork --kill-child --mount-proc)
    if ! "${isolate[@]}" mount -t tmpfs tmpfs /tmp 2>/dev/null; then
        echo "[  SKIPPED ] no namespaces here"
        return 1
    fi
    # The tool is under /tmp perhaps: keep a way to it.
    expect 0 env -i PATH="$PATH" "${isolate[@]}" bash -c '
        exec 8<"$0"
        mount -t tmpfs tmpfs /tmp && cp /proc/self/fd/8 /tmp/holdfast && chmod +x /tmp/holdfast
        exec 8<&-
        eval "$1"' "$HOLDFAST" "$1"
}

test_nothing_configured() {
    isolated '
        /tmp/holdfast run a sh -c "echo \$HOLDFAST_NAME" && [ -S /tmp/holdfast-0/redis.sock ] || exit 9
        /tmp/holdfast -q run a true 2>/tmp/quiet && [ ! -s /tmp/quiet ] || exit 10
        /tmp/holdfast run -q a true 2>/tmp/quiet && [ ! -s /tmp/quiet ] || exit 11
    ' || return 0
    same "$out" a
    same "$err" "$notice" "without a terminal"
}

# Without a terminal it is said once a day, too, and with -v always; never with -q. A terminal has its own day.
test_notice_without_a_terminal() {
    # shellcheck disable=SC2016
    isolated '
        {
            echo 1; /tmp/holdfast -q run a true
            echo 2; /tmp/holdfast run a true
            echo 3; /tmp/holdfast run a true
            echo 4; /tmp/holdfast show -v --held a
            touch -d "25 hours ago" /tmp/holdfast-0/logged
            echo 5; /tmp/holdfast --json run a true
        } 2>&1
    ' || return 0
    same "$out" "1
2
$notice
3
4
$notice
5
{\"program\":\"holdfast\",\"level\":\"notice\",\"message\":\"${notice#holdfast: }\",\"lock\":\"a\"}"
}

# Without a program to start, waiting does not help: it is said once, and at once.
test_no_program_to_start() {
    # shellcheck disable=SC2016
    isolated '
        for program in $(type -ap redis-server valkey-server) /usr/{,local/}{,s}bin/{redis,valkey}-server; do
            [ ! -x "$program" ] || mount --bind /dev/null "$program"
        done
        timeout 60 /tmp/holdfast -u local: -t 10m run a true 2>&1
        echo $?
    ' || return 0
    same "$(wc -l <<<"$out")" 2 "lines: $out"
    case $out in "holdfast: cannot acquire 'a': "*"local: needs redis-server, which is not in PATH"*$'\n'69) ;; *) fail "$out" ;; esac
}

# Another user has another server: the same name is another lock.
test_users_do_not_share_it() {
    [ "$(id -u)" = 0 ] || {
        echo "[  SKIPPED ] users_do_not_share_it: only root can be two users"
        return
    }
    # shellcheck disable=SC2016
    isolated_user='' isolated '
        chmod 755 /tmp/holdfast; chmod 1777 /tmp
        coproc /tmp/holdfast -q hold a
        read -r line <&"${COPROC[0]}"
        /tmp/holdfast -q run -n a echo same; echo $?
        setpriv --reuid 1 --regid 1 --clear-groups /tmp/holdfast run -n a echo other 2>&1; echo $?
    ' || return 0
    same "$out" "75
$notice
other
0"
}

# That nothing is configured is said on a terminal, once a day, and not with -q.
test_notice_once_a_day() {
    type -P script >/dev/null || {
        echo "[  SKIPPED ] notice_once_a_day"
        return
    }
    # shellcheck disable=SC2016
    isolated '
        on_terminal() { script -qec "$*" /dev/null </dev/null | tr -d "\r"; }
        echo 1; on_terminal /tmp/holdfast -q run a true
        echo 2; on_terminal /tmp/holdfast run -q a true
        echo 3; on_terminal /tmp/holdfast run a true
        echo 4; on_terminal /tmp/holdfast run a true; on_terminal /tmp/holdfast show --held a
        touch -d "25 hours ago" /tmp/holdfast-0/noticed
        echo 5; on_terminal /tmp/holdfast show --held a
        echo 6; on_terminal /tmp/holdfast -u local: run a true
        rm /tmp/holdfast-0/noticed; chmod 755 /tmp/holdfast-0
        echo 7; on_terminal /tmp/holdfast run a true
    ' || return 0
    same "${out%%7*}" "1
2
3
$notice
4
5
$notice
6
"
    case $out in *"$notice"*"$notice"*"$notice"*) fail "said though it cannot be remembered" ;; esac
}

test_hostile_directory() {
    mkdir -m 777 "$dir/open"
    expect 77 "$HOLDFAST" -u "local:$dir/open" run a true
    ln -s "$dir" "$dir/link"
    expect 77 "$HOLDFAST" -u "local:$dir/link" run a true
}

run_tests
