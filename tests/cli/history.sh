#!/usr/bin/env bash
# What `serve` records of locks: in memory, in a file that it bounds and reads again, as JSON, and by `holdfast log`; and
# the command that it runs on losses, breaks, deadlocks and long waits.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_serve.sh"
server_start

other=5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d

file_has() { grep -Eq -- "$2" "$1" 2>/dev/null; }
# recorded NAME: the path of the history file of a test, and `serve` with it, which has taken its first survey.
recorded() {
    history=$dir/$1.jsonl
    shift
    serve --history "$history" "$@"
    wait_until file_filled "$history"
    redis hset probe $other:1 1 >/dev/null
    wait_until file_has "$history" '"(acquired|held)","name":"probe"'
    redis del probe >/dev/null
}
has() { wait_until file_has "$history" "$1"; }
stop_serving() {
    kill -TERM "$serving"
    finish "$serving"
    same "$status" 0
}
# Each line is an object with a time and an event.
all_valid() {
    /usr/bin/python3 -c 'import json, sys
for line in open(sys.argv[1], "rb"):
    one = json.loads(line)
    assert one["time"].endswith("Z") and one["event"], one' "$1" || fail "$(cat "$1")"
}
lose() { # lose NAME: a `run` whose lock is deleted by a stranger
    start hf run "$1" -- stay 2>/dev/null
    wait_until shows "/api/locks/$1" '"state":"alive"'
    redis del "$1" >/dev/null
}

test_who_held_it_yesterday() {
    local run
    recorded held
    start hf run --fair nightly -- stay
    run=$pid
    has '"event":"acquired","name":"nightly",("kind":"fair",)?"owner":"[^"]+","who":"[^"]+ stay"'
    start hf run --fair nightly -- stay
    wait_until shows /api/locks/nightly '"waiting":1'
    kill -TERM "$run"
    has '"event":"acquired","name":"nightly".*"from":\{"owner":"[^"]+","who":"[^"]+ stay"\}'
    has '"event":"released","name":"nightly"'
    start hf run elsewhere -- stay
    has '"event":"acquired","name":"elsewhere"'
    same "$(stat -c %a "$history")" 600 "the mode"
    stop_serving
    has '"event":"stopped"'
    all_valid "$history"

    expect 0 hf log --history "$history" nightly
    grep -Eq '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{12}  acquired   [^ ]+ [0-9]+ stay$' <<<"$out" || fail "$out"
    grep -Eq '  acquired   [^ ]+ [0-9]+ stay, from [^ ]+ [0-9]+ stay' <<<"$out" || fail "$out"
    grep -Eq '  stopped' <<<"$out" || fail "$out"
    ! grep -q elsewhere <<<"$out" || fail "$out"
    expect 0 env HOLDFAST_HISTORY="$history" "$TOOL" log # without a server
    grep -q '  acquired   elsewhere  ' <<<"$out" || fail "$out"
    expect 0 hf log --history "$history" --json nightly
    same "$(grep -c '"name":"nightly"' <<<"$out")" "$(grep -c '"name":"nightly"' "$history")"
    expect 0 hf log --history "$history" --since 1h nightly
    expect 1 hf log --history "$history" nobody
    sed -i 's/"time":"20../"time":"2001/' "$history"
    expect 1 hf log --history "$history" --since 1h nightly
    expect 0 hf log --history "$history" nightly
}

test_log_says_what_is_wrong() {
    expect 64 hf log nightly
    says 'HOLDFAST_HISTORY is needed'
    expect 64 hf log --history "$dir/none" --since yesterday nightly
    expect 64 hf log --history "$dir/none" a b
    expect 71 hf log --history "$dir/none" nightly
    says 'No such file'
    expect 71 hf log --history "$dir" nightly
    says 'directory'
    expect 64 hf serve --listen 127.0.0.1:0 --history /dev/full
    says 'not a regular file'
    expect 64 hf serve --listen 127.0.0.1:0 --history "$dir/x" --history-size 1k
    expect 64 hf serve --listen 127.0.0.1:0 --history "$dir/x" --history-size 5T
    expect 64 hf serve --listen 127.0.0.1:0 --long-wait 0
}

# Nobody has to look at it, and without a file or a command nothing is asked.
test_it_looks_while_nobody_does() {
    recorded alone
    redis hset unseen $other:1 1 >/dev/null
    has '"event":"acquired","name":"unseen","owner":"'$other':1"'
    redis del unseen >/dev/null
    has '"event":"ended","name":"unseen"'
}

# What was written is read again; a last line without an end is passed over, and what follows is whole.
test_it_reads_what_it_has_written() {
    recorded again
    redis hset first $other:1 1 >/dev/null
    has '"event":"acquired","name":"first"'
    kill -KILL "$serving"
    finish "$serving"
    printf '{"time":"2026-01-01T00:00:00.000Z","event":"acqu' >>"$history"
    recorded again
    wait_until file_has "$history" '"event":"held","name":"first"'
    answers 200 /api/history/first
    [[ $out == '{"history":['*'"event":"acquired","name":"first"'*'"event":"held","name":"first"'*']}' ]] || fail "$out"
    same "$(grep -vc '^{.*}$' "$history")" 1 "torn lines"
    expect 0 hf log --history "$history" first
    redis del first >/dev/null
}

test_one_serve_for_a_file() {
    recorded shared
    expect 71 timeout 60 hf serve --listen 127.0.0.1:0 --history "$history"
    says 'another holdfast serve writes to it'
}

test_the_file_is_bounded() {
    local i
    recorded bounded --history-size 4k
    for i in {1..40}; do redis hset "lock:$i:$RANDOM" "$other:$i" 1 >/dev/null; done
    wait_until file_there "$history.1"
    redis hset last $other:99 1 >/dev/null
    has '"event":"acquired","name":"last"'
    for i in "$history" "$history.1"; do
        [ "$(stat -c %s "$i")" -le 4096 ] || fail "$i has $(stat -c %s "$i") bytes"
        same "$(stat -c %a "$i")" 600 "the mode"
        all_valid "$i"
    done
    expect 0 hf log --history "$history"
    grep -q 'acquired   last' <<<"$out" || fail "$out"
    [ "$(wc -l <<<"$out")" -gt "$(wc -l <"$history")" ] || fail "FILE.1 is not read"
    redis flushall >/dev/null
}

test_breaks_and_losses_are_exact() {
    local broken
    recorded exact
    start hf run torn -- stay 2>/dev/null
    broken=$pid
    wait_until shows /api/locks/torn '"state":"alive"'
    expect 0 hf unlock --force torn
    has '"event":"broken","name":"torn","owner":"[^"]+","who":"[^"]+ stay","heard":true'
    finish "$broken"
    lose gone
    has '"event":"lost","name":"gone".*"who":"[^"]+ stay"'
    redis hset after $other:1 1 >/dev/null
    has '"event":"acquired","name":"after"'
    same "$(grep -c '"event":"lost"' "$history")" 1 "losses"
    same "$(grep -c '"event":"broken"' "$history")" 1 "breaks"
    ! grep -Eq '"event":"(released|ended|expired)","name":"torn"' "$history" || fail "$(cat "$history")"
    redis del after >/dev/null
}

# A hold between two surveys is not seen; its loss is announced all the same.
test_a_loss_that_no_survey_showed() {
    recorded blind
    for _ in {1..50}; do
        hf run short -- redis-cli -s "$socket" del short >/dev/null 2>&1
        ! file_has "$history" '"event":"lost"' || break
        tick
    done
    has '"event":"lost"'
}

test_deadlocks_and_long_waits() {
    recorded stuck --long-wait 2s
    start hf run left -- sh -c 'stay_until "$0"; exec hf run right true' "$dir/both"
    start hf run right -- sh -c 'stay_until "$0"; exec hf run left true' "$dir/both"
    wait_until locked left
    wait_until locked right
    touch "$dir/both"
    has '"event":"deadlock","name":"left".*"text":"[^"]+ waits for '
    has '"event":"deadlock","name":"right"'
    has '"event":"long_wait","name":"left","owner":"[^"]+","who":"[^"]+ true","from":\{[^}]*\},"for_ms":[0-9]'
    has '"event":"long_wait","name":"right"'
    redis hset later $other:1 1 >/dev/null
    has '"event":"acquired","name":"later"' # another survey has seen them
    same "$(grep -c '"event":"deadlock"' "$history")" 2 "deadlocks"
    same "$(grep -c '"event":"long_wait"' "$history")" 2 "long waits"
    redis del later >/dev/null
}

test_json() {
    recorded json
    redis hset $'odd \xff name' $other:1 1 >/dev/null
    redis hset 'a/b?c&since=1' $other:2 1 >/dev/null
    has '"name":"a/b\?c&since=1"'
    has '"name_hex":"6f646420ff206e616d65"'
    answers 200 /api/history
    has_header 'content-type: application/json'
    [[ $out == '{"history":['*']}' ]] || fail "$out"
    answers 200 '/api/history/odd%20%ff%20name'
    [[ $out == *'"name_hex":"6f646420ff206e616d65"'* ]] || fail "$out"
    answers 200 '/api/history/a%2Fb%3Fc%26since%3D1?since=1h&limit=1'
    [[ $out == '{"history":[{"time":'*'"name":"a/b?c&since=1"'* && $out != *'},{'* ]] || fail "$out"
    answers 200 /api/history/nobody
    [[ $out == '{"history":['*'"event":"started"'*']}' ]] || fail "$out" # events of the server are of all locks
    answers 200 '/api/history/nobody?since=0' -I
    for i in /api/history/%zz /api/history/ /api/history/a%00b '/api/history?since=x' '/api/history?limit=0' '/api/history?limit=10001' \
        '/api/history?since='; do
        answers 400 "$i"
    done
    answers 405 /api/history -X DELETE
    answers 405 /api/history/x -X POST
    answers 403 /api/history -H 'Sec-Fetch-Site: cross-site'
    answers 421 /api/history -H 'Host: evil.example'
    redis del $'odd \xff name' 'a/b?c&since=1' >/dev/null
}

# ---- The command ----

# A program that writes its input and its environment, each event on a line of its own.
hook() {
    cat >"$dir/bin/hook" <<'END'
#!/bin/sh
read -r event
printf '%s %s %s\n' "$HOLDFAST_EVENT" "$HOLDFAST_NAME" "$event" >>"$1"
env >"$1.env"
END
    chmod +x "$dir/bin/hook"
}
# breaks NAME: somebody's lock is broken.
breaks() {
    redis hset "$1" $other:1 1 >/dev/null
    expect 0 hf unlock --force "$1"
}

test_the_command_gets_the_event_and_no_secrets() {
    local name="\$(touch $dir/injected); \`touch $dir/injected\` '; touch $dir/injected; \" touch $dir/injected #"
    hook
    redis acl setuser guarded on '>secret-1' '~*' '&*' +@all >/dev/null
    export HOLDFAST_PASSWORD=secret-1 HOLDFAST_USER=guarded REDIS_URL=redis://:secret-2@127.0.0.1:1 WEBHOOK=mine
    serve --on-event "hook '$dir/events'"
    unset HOLDFAST_PASSWORD HOLDFAST_USER REDIS_URL
    wait_until hears_breaks
    breaks "$name"
    wait_until file_filled "$dir/events.env"
    [[ $(head -n 1 "$dir/events") == "broken $name {\"time\":"*'"event":"broken"'* ]] || fail "$(cat "$dir/events")"
    cut -d'{' -f2- "$dir/events" | sed 's/^/{/' >"$dir/event"
    ! file_there "$dir/injected" || fail "it was run"
    file_has "$dir/events.env" '^WEBHOOK=mine$' || fail "$(cat "$dir/events.env")"
    ! grep -Eq 'secret|^(HOLDFAST_(URL|PASS|USER)|REDIS)' "$dir/events.env" || fail "$(cat "$dir/events.env")"
    breaks $'\xff\xfe new\nline'
    wait_until file_has "$dir/events" '"name_hex":"fffe206e65770a6c696e65"'
}
hears_breaks() { [ "$(redis pubsub numsub holdfast_ask | tail -n 1)" != 0 ]; }

test_the_command_is_run_for_each_kind() {
    hook
    serve --on-event "hook '$dir/kinds'" --long-wait 1500ms
    wait_until hears_breaks
    lose gone
    wait_until file_has "$dir/kinds" '^lost gone '
    start hf run one -- sh -c 'stay_until "$0"; exec hf run two true' "$dir/each"
    start hf run two -- sh -c 'stay_until "$0"; exec hf run one true' "$dir/each"
    wait_until locked one
    wait_until locked two
    touch "$dir/each"
    wait_until file_has "$dir/kinds" '^long_wait (one|two) '
    wait_until file_has "$dir/kinds" '^deadlock (one|two) .*"count":2'
    ! grep -Eq '^(acquired|released|ended|started)' "$dir/kinds" || fail "$(cat "$dir/kinds")"
    same "$(grep -c '^deadlock' "$dir/kinds")" 1 "deadlocks"
}

test_a_command_that_fails_or_hangs_is_said() {
    serve --on-event 'read -r event; case $HOLDFAST_NAME in slow) sleep 1000 & wait;; killed) kill -KILL $$;; *) exit 7;; esac' \
        --on-event-limit 200ms
    wait_until hears_breaks
    breaks failing
    wait_until serve_logged 'on-event, event broken: exit status 7'
    breaks killed
    wait_until serve_logged 'on-event, event broken: ended by signal 9'
    breaks slow
    wait_until serve_logged 'on-event, event broken: killed, as it took too long'
    answers 200 /api/history/slow
}

test_few_run_at_once() {
    serve --on-event "echo \$HOLDFAST_NAME >>'$dir/running'; stay_until '$dir/go'"
    wait_until hears_breaks
    for i in 1 2 3 4 5 6; do breaks "many:$i"; done
    wait_until shows /api/history/many:6 '"event":"broken"'
    wait_until lines "$dir/running" 4
    answers 200 /api/locks # it goes on to serve
    lines "$dir/running" 4 || fail "$(cat "$dir/running")"
    touch "$dir/go"
    wait_until lines "$dir/running" 6
}
lines() { [ "$(wc -l 2>/dev/null <"$1")" = "$2" ]; }

# The recipe of the manual.
test_a_webhook() {
    cat >"$dir/receiver.py" <<'END'
import http.server, sys
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        with open(sys.argv[1], 'ab') as file:
            file.write(self.headers['Content-Type'].encode() + b' ' + body)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Receiver)
print(server.server_address[1], flush=True)
server.serve_forever()
END
    start /usr/bin/python3 "$dir/receiver.py" "$dir/posted" >"$dir/receiver"
    wait_until file_filled "$dir/receiver"
    serve --on-event "curl -sS -m 10 -H 'Content-Type: application/json' --data-binary @- http://127.0.0.1:$(cat "$dir/receiver")/"
    wait_until hears_breaks
    breaks hooked
    wait_until file_has "$dir/posted" '^application/json \{"time":.*"event":"broken","name":"hooked"'
}

test_commands_end_with_it() {
    serve --on-event "echo \$\$ >'$dir/child'; stay"
    wait_until hears_breaks
    breaks ending
    wait_until file_filled "$dir/child"
    stop_serving
    wait_until ended "$(cat "$dir/child")"
}

run_tests
