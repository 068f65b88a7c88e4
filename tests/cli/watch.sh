#!/usr/bin/env bash
# The subcommand `watch`: what happens to one name, in the order in which it happens.
. "$(dirname "$0")/lib.sh"
server_start
owner=5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17

# watch ARGUMENT...: in the background, into $log; its pid is in $watcher. It has looked when this returns.
watch() {
    log=$dir/log.$RANDOM
    start hf watch --every 20ms "$@" >"$log" 2>&1
    watcher=$pid
    wait_until file_filled "$log"
}
# seen TEXT: the log has a line that matches.
seen() { grep -Eq -- "$1" "$log"; }
ends_with() { tail -n 1 "$log" | grep -Eq -- "$1"; }
seen_twice() { [ "$(grep -Ec -- "$1" "$log")" = 2 ]; }
# in_order WORD...: the events of the log are these; the times and who it was aside, and that a client which a busy machine has
# kept from answering in time was silent for a moment.
in_order() { same "$(awk '$2 != "silent" && $2 != "alive" { print $2 }' "$log" | tr '\n' ' ')" "$* "; }
stop_watch() {
    kill -INT "$watcher"
    finish "$watcher"
    same "$status" 130
}

test_a_lock_changes_hands() {
    watch job
    seen '^[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\.[0-9]{3}  free$' || fail "$(cat "$log")"
    start hf run job -- stay_until "$dir/first"
    wait_until seen '  acquired  .* [0-9]+ stay_until, '
    start hf run job -- stay_until "$dir/second"
    wait_until seen '  waits     .* [0-9]+ stay_until, for '
    touch "$dir/first"
    # it may have been free for so long that this was seen
    wait_until seen_twice '  (handed|acquired)  .* [0-9]+ stay_until, '
    touch "$dir/second"
    wait_until ends_with '  released  .* [0-9]+ stay_until, for '
    stop_watch
    seen handed || in_order free acquired waits released acquired released
    ! seen handed || in_order free acquired waits handed released
}

# published COUNT: so many messages were, since the counters were reset.
published() {
    local calls
    calls=$(redis info commandstats | sed -n 's/^cmdstat_publish:calls=\([0-9]*\),.*/\1/p')
    [ "${calls:-0}" -ge "$1" ]
}
# A break is announced as one, of every kind of lock. The holder's client counts it as a loss, which is no second event.
test_a_break_is_no_release() {
    local kind
    for kind in --exclusive --fair --shared --write; do
        watch "broken$kind"
        start hf hold --no-stdin "$kind" "broken$kind" >"$dir/hold" 2>&1
        wait_until seen '  acquired  '
        surveys_pass
        hf unlock --force "broken$kind" >/dev/null
        wait_until seen '  broken    .* [0-9]+ bash, for '
        surveys_pass
        stop_watch
        in_order free acquired broken
    done
}
# The break of one hold says nothing of the next. Java's forceUnlock() publishes no more than a release does.
test_what_comes_after_a_break_is_released() {
    watch --json next
    redis hset next "$owner" 1 >/dev/null
    wait_until seen '"event":"acquired"'
    hf unlock --force next >/dev/null
    wait_until seen '"event":"broken","name":"next","owner":"'"$owner"'".*"heard":true'
    redis hset next "$owner" 1 >/dev/null
    wait_until seen_twice '"event":"acquired"'
    redis eval "redis.call('del', KEYS[1]) redis.call('publish', ARGV[1], '0')" 1 next 'redisson_lock__channel:{next}' >/dev/null
    wait_until seen '"event":"released","name":"next","owner":"'"$owner"'".*"heard":true'
    stop_watch
    same "$(grep -c '"event":"broken"' "$log")" 1
}

# Three surveys, each a question and an answer, which take two seconds.
surveys_pass() {
    redis config resetstat >/dev/null
    wait_until published 6
}

# A hold that was seen late has lasted for as long as its client says, and not since then.
test_seen_late() {
    local began ended lasted
    watch --every 1h --json late
    start hf run late -- sh -c 'touch "$0.began"; stay_until "$0"' "$dir/late"
    wait_until test -e "$dir/late.began"
    began=$(date +%s%3N)
    surveys_pass
    redis publish 'redisson_sc:{late}' 1 >/dev/null # a reason to look
    wait_until seen '"event":"acquired"'
    surveys_pass
    ended=$(date +%s%3N)
    touch "$dir/late"
    wait_until seen '"event":"released"'
    stop_watch
    lasted=$(sed -n 's/.*"event":"released".*"for_ms":\([0-9]*\).*/\1/p' "$log")
    # within the time that an answer takes
    [ "$lasted" -ge $((ended - began - 1000)) ] || fail "$((ended - began)): $(cat "$log")"
}

# What takes no time is one event.
test_handed_on_at_once() {
    redis hset given "$owner" 1 >/dev/null
    watch given
    redis eval 'redis.call("del", KEYS[1]) return redis.call("hset", KEYS[1], ARGV[1], 1)' 1 given "${owner}8" >/dev/null
    wait_until seen "  handed    ${owner}8, from $owner"
    redis del given >/dev/null
    wait_until seen "  released  ${owner}8, for "
    stop_watch
    in_order held handed released
}

looks() { redis info commandstats | sed -n 's/^cmdstat_type:calls=\([0-9]*\),.*/\1/p'; }
looked() { [ "$(looks)" -ge "$1" ]; }
# looks_pass COUNT: so many have begun since.
looks_pass() { wait_until looked $(($(looks) + $1)); }

test_one_gives_up_and_a_lease_ends() {
    redis hset held "$owner" 1 >/dev/null
    watch held
    seen '  held      5c4dd3c1' || fail "$(cat "$log")"
    start hf run held -- true
    wait_until seen '  waits  '
    kill -TERM "$pid"
    finish "$pid"
    wait_until seen '  left   '
    redis hincrby held "$owner" 1 >/dev/null
    wait_until seen '  count     5c4dd3c1.*, 2 times'
    # a look has to see that it ends before it does: as long as this machine needs for some
    local began
    began=$(date +%s%3N)
    looks_pass 4
    redis pexpire held $((3000 + 10 * ($(date +%s%3N) - began))) >/dev/null
    wait_until seen '  expired   5c4dd3c1'
    stop_watch
    in_order held waits left count expired
}

# However brief, and however seldom it looks: what is published is heard.
released() { grep -c '  released' "$log"; }
released_times() { [ "$(released)" -ge "$1" ]; }
# watch_and_listen NAME ARGUMENT...: it hears the name when this returns.
watch_and_listen() {
    log=$dir/log.$RANDOM
    start hf watch --every 1h "${@:2}" "$1" >"$log" 2>&1
    watcher=$pid
    wait_until file_filled "$log"
    wait_until listened "$1"
}
listened() { [ "$(redis pubsub numsub "redisson_rwlock:{$1}" | tail -n 1)" = 1 ]; }

test_no_release_is_missed() {
    watch_and_listen brief
    for _ in $(seq 100); do
        expect 0 hf run brief -- true
    done
    wait_until released_times 100
    expect 0 hf run brief -- true # one message more: all messages before it have been printed by then
    wait_until released_times 101
    stop_watch
    same "$(released)" 101
}

test_what_others_publish_is_heard() {
    watch_and_listen java --json
    # somebody had it before; in one step, lest a look in between sees who has it now, and takes the message for its release
    redis eval 'redis.call("hset", KEYS[1], ARGV[1], 1)
        return redis.call("publish", "redisson_lock__channel:{java}", "0")' 1 java "$owner" >/dev/null
    wait_until seen '"event":"released","name":"java","heard":true'
    wait_until seen "\"event\":\"acquired\",\"name\":\"java\",\"owner\":\"$owner\""
    redis eval 'redis.call("del", KEYS[1])
        return redis.call("publish", "redisson_lock__channel:{java}", "0")' 1 java >/dev/null
    wait_until seen "\"event\":\"released\",\"name\":\"java\",\"owner\":\"$owner\""
    stop_watch
    same "$(grep -c '"event":"released"' "$log")" 2
    same "$(grep -c '"event":"acquired"' "$log")" 1
}

# A message comes when the last reader has gone.
test_readers_and_latches_are_heard() {
    redis hset books mode read "$owner" 1 "${owner}8" 1 >/dev/null
    watch_and_listen books
    redis eval 'redis.call("del", KEYS[1]) return redis.call("publish", "redisson_rwlock:{books}", "0")' 1 books >/dev/null
    wait_until seen_twice '  released  5c4dd3c1'
    stop_watch
    same "$(released)" 2
    watch_and_listen gate
    expect 0 hf latch gate set 1
    wait_until seen '  closed$'
    wait_until seen '  numbers   value 1$'
    expect 0 hf latch gate down
    wait_until seen '  opened$'
    wait_until seen '  deleted$'
    stop_watch
}

# Nobody publishes that a lease ends: it is looked at then.
test_the_end_of_a_lease_is_aimed_at() {
    redis hset leased "$owner" 1 >/dev/null
    redis pexpire leased 5000 >/dev/null # it is watched before that
    watch_and_listen leased
    wait_until seen '  expired   5c4dd3c1'
    stop_watch
    in_order held expired
}

# Without the right to listen it looks as often as it can, and says so.
test_without_the_right_to_listen() {
    redis acl setuser deaf on '>secret' '~*' +@all resetchannels >/dev/null
    log=$dir/log.$RANDOM
    start hf --user deaf -a secret watch refused >"$log" 2>&1
    watcher=$pid
    wait_until seen 'the server sends no messages'
    redis hset refused "$owner" 1 >/dev/null
    wait_until seen '  acquired  5c4dd3c1'
    redis del refused >/dev/null
    wait_until seen '  released  5c4dd3c1'
    stop_watch
}

# A fair line is the server's to tell, and so are readers and writers.
test_lines_and_modes() {
    start hf run --fair line -- stay
    wait_until locked line
    watch line
    start hf run --fair line -- true
    wait_until seen '  waits     .*, place 1'
    stop_watch
    start hf run --shared shared -- stay
    wait_until locked shared
    watch shared
    start hf run --shared shared -- stay_until "$dir/reader"
    wait_until seen '  acquired  '
    touch "$dir/reader"
    wait_until seen '  released  '
    stop_watch
    in_order held acquired released
}

test_a_dead_holder_is_gone() {
    redis hset dead "${owner%17}4294967297" 1 >/dev/null
    watch dead
    wait_until seen '  gone      5c4dd3c1'
    stop_watch
}

# Who it was is remembered from when it was alive, also of a slot.
test_a_dead_holder_is_known_by_name() {
    local held slots
    for slots in '' '--slots=2'; do
        # shellcheck disable=SC2086
        start hf hold --no-stdin $slots "known$slots" >/dev/null
        held=$pid
        wait_until is_alive "known$slots"
        watch "known$slots"
        wait_until seen "  (held|acquired)  .* $held bash"
        kill -KILL "$held"
        [ -n "$slots" ] || wait_until seen "  gone      [^ ]+ $held bash"
        redis del "known$slots" "{known$slots}:timeout" >/dev/null
        wait_until seen "  released  [^ ]+ $held bash"
        stop_watch
    done
}
is_alive() { hf ls "$1" 2>/dev/null | grep -Eq "^$1 .* alive "; }

# The server has been asked to report the key by both clients, the holder's and the watch.
tracked_by_both() { [ "$(redis info stats | tr -d '\r' | sed -n 's/^tracking_total_items://p')" = 2 ]; }
# Nobody publishes what is done to a key behind its holder's back, nor an acquire. The server reports both to a watch that would
# not look by itself.
test_what_nobody_publishes_is_reported() {
    local kind way
    for kind in --exclusive --string; do
        for way in del flushall 'set over'; do
            redis flushall >/dev/null # with it, what the server remembers of others
            if [ "$kind" = --string ]; then watch_and_listen over --string; else watch_and_listen over; fi
            start hf run --ttl 1800s "$kind" over -- stay 2>/dev/null
            holder=$pid
            wait_until seen '  acquired  '
            wait_until tracked_by_both
            case $way in
                del) redis del over ;;
                flushall) redis flushall ;;
                *) redis set over text ;;
            esac >/dev/null
            wait_until seen '  (released|handed)  '
            finish "$holder"
            same "$status" 79 "$kind $way"
            stop_watch
        done
    done
}
# The same of another library's lock, that no client of ours holds.
test_another_librarys_lock() {
    watch_and_listen foreign --string --json
    redis set foreign a-token px 1800000 >/dev/null
    wait_until seen '"event":"acquired","name":"foreign","owner":"a-token"'
    redis del foreign >/dev/null
    wait_until seen '"event":"released","name":"foreign","owner":"a-token"'
    stop_watch
}
# A string lock's release is published as that of any.
test_the_release_of_a_string_lock_is_heard() {
    watch_and_listen string --string
    for _ in $(seq 10); do
        expect 0 hf run --string string -- true
    done
    wait_until released_times 10
    stop_watch
}

test_numbers() {
    expect 0 hf sem tickets set 3
    watch tickets
    seen '  numbers   value 3$' || fail "$(cat "$log")"
    expect 0 hf sem tickets acquire
    wait_until seen '  numbers   value 2$'
    expect 0 hf sem tickets delete
    wait_until seen '  deleted$'
    redis set tickets text >/dev/null
    wait_until seen '  other     string'
    redis del tickets >/dev/null
    stop_watch
}

test_json() {
    redis hset 'odd "name"' "$owner" 1 >/dev/null
    expect 0 hf watch --json -n 1 'odd "name"'
    [[ $out =~ ^\{\"time\":\"20[0-9-]+T[0-9:.]+Z\",\"event\":\"held\",\"name\":\"odd\ \\\"name\\\"\",\"owner\":\"$owner\",\"count\":1\}$ ]] ||
        fail "$out"
}

# Of a name that is a pattern only that name is watched.
test_a_name_is_no_pattern() {
    start hf run starry -- stay
    wait_until locked starry
    start hf run starry -- true
    watch 'star*'
    wait_until awaited starry
    surveys_pass
    stop_watch
    in_order free
}

test_it_ends() {
    local from
    from=$(now_ms)
    expect 0 hf watch --for 300ms quiet
    [ $(($(now_ms) - from)) -ge 300 ] || fail "it ended early"
    expect 0 hf watch -n 1 quiet
    [[ $out == *free ]] || fail "$out"
    # nobody reads any more: it ends, although nothing happens
    hf watch quiet | head -n 1 >/dev/null
    same "${PIPESTATUS[0]}" 141
    expect 64 hf watch
    expect 64 hf watch --every 1ms quiet
    expect 64 hf watch -n 0 quiet
    expect 69 "$TOOL" -s "$dir/nowhere" -t 0.2s watch quiet
}

# On a server of its own: the other tests' is not to go away.
test_the_server_goes_and_comes_back() {
    socket=$dir/other.sock
    server=
    server_start
    watch job
    server_kill
    wait_until seen '  away  '
    server_start
    wait_until seen '  back$'
    redis hset job "$owner" 1 >/dev/null
    wait_until seen '  acquired  5c4dd3c1'
    stop_watch
    server_kill
}

run_tests
