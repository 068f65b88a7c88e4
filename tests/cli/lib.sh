# shellcheck shell=bash disable=SC2034
# What the tests of the tool share. Sourced by each tests/cli/*.sh, which then defines test_... functions
# and ends with `run_tests`.
#
# Each file has a private directory and, if it asks for one, a private redis-server on a Unix socket in it.
# The server dies with the test, whatever happens to the test; and everything that holds a lock of a dead
# server ends its command. Nothing here looks at, or signals, processes it did not start.

set -u
: "${HOLDFAST:?the tool under test}"
LIMIT=30 # seconds after which something that should happen counts as not happening
unset -v HOLDFAST_URL REDIS_URL REDISCLI_AUTH VALKEYCLI_AUTH VALKEYCLI_USER

dir=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-test.XXXXXX")
socket=$dir/redis.sock
server=
started=()  # pids of what `start` started
main=$BASHPID

clean_up() {
    [ "$BASHPID" = "$main" ] || return
    local pid
    for pid in "${started[@]:-}"; do
        [ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
    done
    server_kill
    wait
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# ---- Servers ------------------------------------------------------------------------------------------

# server_start [redis-server option...]
server_start() {
    rm -f "$socket"
    setpriv --pdeathsig KILL redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no \
        --dir "$dir" --logfile "$dir/server.log" --daemonize no "$@" </dev/null >/dev/null 2>&1 &
    server=$!
    wait_until server_answers
}
server_answers() {
    case $(redis-cli -s "$socket" ping 2>/dev/null) in PONG | *NOAUTH*) ;; *) return 1 ;; esac
}
server_kill() {
    [ -n "$server" ] || return 0
    kill -KILL "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    server=
}
redis() { redis-cli -s "$socket" "$@"; }

# hf: the tool, on the private server. A program, so that it can be run by others too.
mkdir "$dir/bin"
printf '#!/bin/sh\nexec "$TOOL" -s "$socket" "$@"\n' >"$dir/bin/hf"
chmod +x "$dir/bin/hf"
# Commands for a lock to cover. stay: goes on until a signal ends it; stay_until FILE: until the file is there; both no longer
# than this test. tick: the pause of a loop that looks for something, also where traps are to run.
# outlive_lease NAME...: returns when each key has been renewed four times, which takes longer than a lease.
printf '#!/bin/sh\nexec tail --pid="${test_proc#/proc/}" -f /dev/null\n' >"$dir/bin/stay"
printf '#!/bin/sh\nwhile [ ! -e "$1" ] && [ -d "$test_proc" ]; do tick; done\n' >"$dir/bin/stay_until"
printf '#!/bin/sh\nexec sleep 0.05\n' >"$dir/bin/tick" # for the same reason as in wait_until
cat >"$dir/bin/outlive_lease" <<'END'
#!/bin/bash
for name in "$@"; do
    seen=0 last=$(redis-cli -s "$socket" pttl "$name")
    while [ "$seen" -lt 4 ] && [ -d "$test_proc" ]; do
        tick
        left=$(redis-cli -s "$socket" pttl "$name")
        [ "$left" -gt 0 ] || exit 1
        seen=$((seen + (left > last))) last=$left
    done
done
END
chmod +x "$dir"/bin/*
PATH=$PATH:$dir/bin
export TOOL=$HOLDFAST socket

# Another server than the installed one: also for what looks for one by itself, as local: does.
if [ -n "${HF_TEST_SERVER:-}" ]; then
    mkdir "$dir/other"
    ln -s "$(realpath -s "$(command -v "$HF_TEST_SERVER")")" "$dir/other/redis-server"
    PATH=$dir/other:$PATH
fi
locked() { [ "$(redis exists "$1")" = 1 ]; }
free() { [ "$(redis exists "$1")" = 0 ]; }
# Somebody waits for the lock: it listens for the release.
awaited() { [ -n "$(redis pubsub channels "*{$1}*")" ]; }

# For commands that run until a signal ends them: no longer than this test, so that one that fails leaves
# nothing running.
export test_proc=/proc/$main

# ---- Processes ----------------------------------------------------------------------------------------

# start COMMAND...: in the background; its pid is in $pid. It dies with the test. Signals are as a shell at a
# terminal starts it: bash would have INT and QUIT ignored.
start() {
    setpriv --pdeathsig KILL env --default-signal=INT,QUIT "$@" &
    pid=$!
    started+=("$pid")
    # While it still is a copy of this shell, bash may swallow a signal that is meant for the program.
    while [ "/proc/$pid/exe" -ef "/proc/$BASHPID/exe" ]; do :; done
}
# finish PID: waits for its end; the status is in $status.
finish() {
    ended_in_time "$1"
    wait "$1" 2>/dev/null
    status=$?
}
ended_in_time() {
    wait_until ended "$1"
}
# What the kernel says of a process: in $stat, its state and parent are the first two words. Fails if it is
# gone. Starts no process itself, since it is called for every one there is.
read_stat() { { read -r stat <"/proc/$1/stat"; } 2>/dev/null && stat=${stat##*) }; }
# No such process, or only its exit status is left of it.
ended() {
    local stat
    read_stat "$1" || return 0
    [ "${stat%% *}" = Z ]
}
alive() { ! ended "$1"; }
in_state() {
    local stat
    read_stat "$1" && [ "${stat%% *}" = "$2" ]
}
# The pids of a process's children.
children_of() {
    local process stat
    for process in /proc/[0-9]*; do
        process=${process#/proc/}
        read_stat "$process" || continue
        stat=${stat#* }
        [ "${stat%% *}" != "$1" ] || echo "$process"
    done
}
# The holder of the `run` whose first process is PID.
holder_of() { children_of "$1" | head -n 1; }

# wait_until COMMAND...: looks again until it succeeds; the test fails if it does not.
wait_until() {
    local end=$((SECONDS + LIMIT))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "in $LIMIT seconds it did not come to: $*"
        sleep 0.03 # every test's: a file, a key and a process have no event for a shell
    done
}
file_there() { [ -e "$1" ]; }
file_filled() { [ -s "$1" ]; }

now_ms() {
    local uptime
    read -r uptime _ </proc/uptime
    echo $((10#${uptime/./} * 10))
}

# ---- Verdicts -----------------------------------------------------------------------------------------

fail() {
    echo "    failed at line ${BASH_LINENO[0]}${BASH_LINENO[1]:+, called from ${BASH_LINENO[1]}}: $*" >&2
    [ ! -s "$dir/err" ] || sed 's/^/    stderr: /' "$dir/err" >&2
    exit 1
}
# same GOT WANTED [WHAT]
same() { [ "$1" = "$2" ] || fail "${3:-value}: got '$1', wanted '$2'"; }
# expect STATUS COMMAND...: runs it; its output is in $out and $err.
expect() {
    local wanted=$1
    shift
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
    out=$(cat "$dir/out")
    err=$(cat "$dir/err")
    [ "$status" = "$wanted" ] || fail "status $status instead of $wanted: $*"
}
# says PATTERN: the last `expect` said so on stderr.
says() {
    case $err in *$1*) ;; *) fail "stderr does not say '$1': $err" ;; esac
}

# check_lease_ends [OPTION...]: what `run` holds with these options and a fixed lease: TERM, then KILL before
# it ends. The lease is so long that bash has set its trap before the one, and gets to it before the other.
# `run` trusts 99 % of the lease (clock_drift_ppm) and kills a twentieth of the lease before that.
check_lease_ends() {
    local before after killed_ms=$((15000 * 99 / 100 - 15000 / 20))
    before=$(now_ms)
    start hf run --lease 15s "$@" lease bash -c 'trap "touch $0.term" TERM; echo $$ >"$0"
        while [ -d $test_proc ]; do tick; done' "$dir/lease"
    wait_until file_filled "$dir/lease"
    finish "$pid"
    after=$(now_ms)
    same "$status" 79
    file_there "$dir/lease.term" || fail "there was no warning"
    [ $((after - before)) -ge $((killed_ms - 10)) ] || fail "killed after $((after - before)) ms"
    ended "$(cat "$dir/lease")" || fail "the command still runs"
}

# Runs every test_... function, each in a shell of its own, and tells.
run_tests() {
    local name failed=0 count=0
    for name in $(compgen -A function test_); do
        # shellcheck disable=SC2254
        case $name in ${ONLY:-*}) ;; *) continue ;; esac # ONLY='test_prompt*' runs some
        count=$((count + 1))
        if (
            main=$BASHPID
            trap 'leave_test' EXIT
            "$name"
        ); then
            echo "ok      ${name#test_}"
        else
            echo "FAILED  ${name#test_}"
            failed=$((failed + 1))
        fi
    done
    echo "$count tests, $failed failed"
    [ "$failed" = 0 ] && [ "$count" -gt 0 ]
}
leave_test() {
    local pid
    for pid in "${started[@]:-}"; do
        [ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
    done
}
