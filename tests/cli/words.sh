#!/usr/bin/env bash
# What is said: nothing that a terminal would obey, no matter who wrote it; and the library's warnings, once, unless
# -q is given.
. "$(dirname "$0")/lib.sh"
server_start

# The controls of ASCII, DEL, those of C1 as single bytes and in UTF-8, and what reorders a line.
wild=$'a\e[31m\a\x7f\x9b1m\xc2\x9b2J\xc2\x85\xe2\x80\xae\nb'
tame() {
    if LC_ALL=C grep -q -a -P '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|(?<![\xc2-\xf4\x80-\xbf])[\x80-\xbf]' \
        "$dir/out" "$dir/err"; then
        fail "it has controls in it: $(cat -v "$dir/out" "$dir/err")"
    fi
}

test_names_are_disarmed() {
    redis hset "$wild" "owner$wild" 1 >/dev/null
    expect 75 hf run -n "$wild" true
    tame
    same "$(wc -l <"$dir/err")" 1 "lines"
    expect 75 hf hold -n "$wild"
    tame
    expect 0 hf show "$wild"
    tame
    same "$(wc -l <"$dir/out")" 6 "lines"
    expect 0 hf show --json "$wild"
    tame
    redis del "$wild" >/dev/null
    redis set "$wild" text >/dev/null
    expect 65 hf run "$wild" true
    tame
    expect 65 hf --json run "$wild" true
    tame
    expect 65 hf sem "$wild" count
    tame
    redis del "$wild" >/dev/null
    expect 127 hf run a "$wild"
    tame
    expect 64 hf "run$wild"
    tame
    expect 64 hf run --wait="$wild" a true
    tame
}

# JSON is for programs: nothing is lost in it, and what is UTF-8 stays readable.
test_json_is_whole() {
    local name=$'\xc3\xa4\xe6\x97\xa5\xc2\x9b\x7f'
    expect 0 hf show --json "$name"
    tame
    case $out in '{"name":"ä日\u009b\u007f",'*) ;; *) fail "$out" ;; esac
    expect 0 hf show "$name"
    case $out in *"ä日??"*) ;; *) fail "$out" ;; esac
    # A long one is cut between two characters.
    name=$(printf 'x%.0s' {1..123})ä日
    expect 0 hf show "$name"
    case $out in *xxx...$'\n'*) ;; *) fail "$out" ;; esac
}

# What a server says.
test_words_of_the_server_are_disarmed() {
    start perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Listen => 5, Local => $ARGV[0]) or die;
        while ($c = $s->accept) { sysread $c, $x, 4096; print $c "-ERR \e[31m\xc2\x9b\x9b2J\x7f no\r\n" x 9; close $c }' \
        "$dir/wild.sock"
    wait_until file_there "$dir/wild.sock"
    expect 69 "$HOLDFAST" -vv -s "$dir/wild.sock" -t 300ms show a
    tame
    says "no"
    expect 69 "$HOLDFAST" -vv --json -s "$dir/wild.sock" -t 300ms show a
    tame
}

test_hold_without_input_says_so() {
    expect 0 hf hold h
    says "standard input is at its end, so the lock is released at once; use --no-stdin"
    case $out in '{"name":"h",'*) ;; *) fail "$out" ;; esac
    free h || fail "still locked"
    expect 0 hf hold -N 2 slots
    says "so the slot is released"
    same "$(echo word | hf hold h 2>&1 >/dev/null | wc -l)" 1 "lines"
    expect 0 hf -q hold h
    same "$err" ""
    # Who lets go by closing it after a while has meant it.
    mkfifo "$dir/input"
    exec 9<>"$dir/input"
    start sh -c 'exec hf hold h <"$0" 9>&-' "$dir/input" >"$dir/held" 2>"$dir/err"
    wait_until file_filled "$dir/held"
    exec 9>&-
    finish "$pid"
    same "$status" 0
    same "$(cat "$dir/err")" ""
}

test_warning_of_eviction() {
    local pattern="may evict locks when its memory is full (maxmemory-policy allkeys-lru): set it to noeviction"
    redis config set maxmemory-policy allkeys-lru >/dev/null
    expect 0 hf run a true
    same "$err" "" "without a limit nothing is evicted"
    redis config set maxmemory 100mb >/dev/null
    expect 0 hf run a true
    says "$pattern"
    same "$(wc -l <"$dir/err")" 1 "lines"
    expect 0 hf -t 1 run a true # no error quotes it
    says "$pattern"
    same "$(wc -l <"$dir/err")" 1 "lines"
    expect 0 hf show a
    says "$pattern"
    expect 0 hf --json hold a
    says "$pattern"
    expect 0 hf -q run a true
    same "$err" ""
    # A user who may not read the setting gets no warning, and no refusal.
    redis acl setuser shy on nopass '~*' '&*' +@all -info >/dev/null
    expect 0 hf --user shy run a true
    same "$err" ""
    redis config set maxmemory-policy noeviction >/dev/null
    expect 0 hf run a true
    same "$err" ""
    redis config set maxmemory 0 >/dev/null
}

# Somebody who waits learns what for: said once though it is tried again and again, and before it has an end.
test_waiting_says_why() {
    start "$HOLDFAST" -s "$dir/nothing.sock" -t 60 run a true 2>"$dir/said"
    wait_until file_filled "$dir/said"
    grep -q "nothing.sock" "$dir/said" || fail "$(cat "$dir/said")"
    wait_until grep -q "^holdfast: waiting for 'a' is held up" "$dir/said"
    sleep 0.5 # neither must be said again, and there is no server that could show that it was tried again
    same "$(wc -l <"$dir/said")" 2 "lines"
    kill -TERM "$pid"
    finish "$pid"
    start "$HOLDFAST" -s "$dir/nothing.sock" -t 60 latch a wait 2>"$dir/latch"
    wait_until file_filled "$dir/latch"
    kill -TERM "$pid"
    finish "$pid"
}

# An error says why by itself.
test_not_said_twice() {
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" run -n a true
    same "$(wc -l <"$dir/err")" 1 "lines"
    expect 69 "$HOLDFAST" -s "$dir/nothing.sock" show a
    same "$(wc -l <"$dir/err")" 1 "lines"
    # also when it takes longer than a warning is kept otherwise
    expect 69 "$HOLDFAST" -u redis://127.0.0.1:1 -t 1 run a -- true
    same "$err" "holdfast: cannot acquire 'a': the server cannot be reached (127.0.0.1:1: cannot connect: Connection refused)"
}

# The code, the lock and the server of what the library says, not only of the errors that end a command.
test_json_warnings_have_the_codes_of_the_library() {
    redis acl setuser mute on nopass '~*' +@all resetchannels >/dev/null
    expect 0 env HOLDFAST_USER=mute HOLDFAST_PASSWORD= "$HOLDFAST" --json -s "$socket" run -m left right -- true
    [[ $err == *'"message":"a lock was released, but this user may not publish on its channel: '*'","code":"HF_EPERM","lock":"'*'","server":"'"$socket"'"}'* ]] ||
        fail "$err"
    # Of a quorum the one server that it is about.
    expect 69 "$HOLDFAST" --json -u "redis://127.0.0.1:1 redis://127.0.0.1:2 unix://$socket" run facts true
    for port in 1 2; do
        [[ $err == *'"message":"127.0.0.1:'$port': cannot connect'*'","code":"HF_EUNREACH","lock":"facts","server":"127.0.0.1:'$port'"}'* ]] || fail "$err"
    done
}

# What a program would look for is in fields of its own.
test_json_has_code_lock_and_server() {
    redis hset facts 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    expect 75 hf --json run -n facts true
    same "$err" '{"program":"holdfast","level":"notice","message":"'"'facts': another owner holds the lock"'","code":"HF_EBUSY","lock":"facts","server":"'"$socket"'"}'
    redis del facts >/dev/null
    redis set facts text >/dev/null
    expect 65 hf --json run facts true
    case $err in *'"code":"HF_EWRONGTYPE","lock":"facts","server":"'"$socket"'"}'*) ;; *) fail "$err" ;; esac
    redis del facts >/dev/null
    expect 69 "$HOLDFAST" --json -t 300ms -u redis://user:s3cret@127.0.0.1:1 run facts true
    case $err in *'"code":"HF_EUNREACH","lock":"facts","server":"127.0.0.1:1"}'*) ;; *) fail "$err" ;; esac
    case $err in *s3cret*) fail "$err" ;; esac
    expect 64 "$HOLDFAST" --json -u 'redis://:s3?cret@127.0.0.1' run facts true
    case $err in *s3* | *'"server"'*) fail "$err" ;; esac
    expect 79 hf --json release facts 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17
    case $err in *'"code":"HF_ELOST","lock":"facts","server":"'"$socket"'"}'*) ;; *) fail "$err" ;; esac
    expect 64 "$HOLDFAST" --json run facts
    case $err in *'"lock"'*) fail "$err" ;; esac
}

# tells_of WORDS [CODE]: a message of those words was printed; and each message names the lock and the server.
tells_of() {
    local line code=${2:+'"code":"'$2'",'} found=
    while read -r line; do
        case $line in *'"lock":"facts","server":"'"$socket"'"}') ;; *) fail "no lock or no server: $line" ;; esac
        case $line in *"$1"*"$code"'"lock"'*) found=1 ;; esac
    done <<<"$err"
    [ "$found" ] || fail "'$1' ${2:-} is not said: $err"
}
# So do messages that are not about an error of the library.
test_json_always_has_lock_and_server() {
    redis del facts >/dev/null
    expect 127 hf --json run facts "$dir/not/there"
    tells_of "cannot run '"
    expect 124 hf --json -v run -t 100ms facts stay
    tells_of "has taken too long"
    tells_of "': acquired"
    expect 79 hf --json run --lease 3s facts stay
    tells_of "the lease ends in" HF_ELOST
    expect 0 hf --json hold facts
    tells_of "standard input is at its end"
    expect 0 hf --json -v elect --once facts true
    tells_of '"leads"'
    tells_of "no longer the leader"
    expect 79 hf --json -v elect --once facts sh -c 'redis-cli -s "$socket" del facts >/dev/null; exec stay'
    tells_of "no longer the leader: the lock was lost" HF_ELOST
}
# So do the library's warnings.
test_json_warnings_have_lock_and_server() {
    socket=$dir/mortal.sock
    server_start
    redis hset facts 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
    start hf --json -t 10m run facts true 2>"$dir/warnings"
    local waiter=$pid
    wait_until awaited facts
    server_kill
    wait_until grep -q 'cannot connect.*"code":"HF_EUNREACH"' "$dir/warnings"
    wait_until grep -q 'is held up.*"code":"HF_EUNREACH"' "$dir/warnings"
    kill -TERM "$waiter"
    finish "$waiter"
    err=$(cat "$dir/warnings")
    tells_of "waiting for 'facts' is held up"
}

# -v names the holders, also of a lock that is not waited for.
test_busy_tells_the_holder() {
    start hf run --label "nightly backup" taken stay
    wait_until locked taken
    expect 75 hf -v run -n taken true
    says "'taken': held by $(hostname) $(holder_of "$pid") nightly_backup"
    expect 75 hf hold -n -v taken
    says "'taken': held by "
    expect 75 hf acquire -n -v --lease 5 taken
    says "'taken': held by "
    expect 75 hf run -n taken true
    case $err in *"held by"*) fail "$err" ;; esac
    kill -TERM "$pid"
    finish "$pid"
}
# busy_tells LABELS OPTION...: several hold it with these options; -n -v names them all.
busy_tells() {
    local labels=$1 label holders=()
    shift
    for label in $labels; do
        start hf run --label "$label" "$@" sh -c 'touch "$0"; exec stay' "$dir/busy.$label"
        holders+=("$pid")
        wait_until file_there "$dir/busy.$label"
    done
    case " $* " in *" -s "*) set -- -W busy ;; esac
    wait_until busy_names_all "$labels" "$@"
    kill -TERM "${holders[@]}"
    for pid in "${holders[@]}"; do finish "$pid"; done
}
# Who has a slot only its client can say, which it does when it has had it for a second.
busy_names_all() {
    local label labels=$1
    shift
    expect 75 hf -v run -n "$@" true
    says "'busy': held by "
    for label in $labels; do
        grep -q "held by .*$(hostname) [0-9]* $label\>" <<<"$err" || return 1
    done
}
test_busy_tells_the_holder_of_each_kind() {
    busy_tells "one-writer" -W busy
    busy_tells "reader-a reader-b" -s busy
    busy_tells "fair-one" --fair busy
    busy_tells "slot-a slot-b slot-c" -N 3 busy
}

run_tests
