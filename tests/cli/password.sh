#!/usr/bin/env bash
# Passwords: every way to give one works, a wrong one is 77, and none shows up in the list of processes or
# in a message.
. "$(dirname "$0")/lib.sh"
secret='s3cret/with:odd@chars%41'
encoded='s3cret%2Fwith%3Aodd%40chars%2541'
server_start --requirepass "$secret"
redis() { REDISCLI_AUTH=$secret redis-cli -s "$socket" "$@"; }
redis acl setuser worker on ">$secret" '~*' '&*' +@all >/dev/null
printf '%s\n' "$secret" >"$dir/password"
unset -v HOLDFAST_PASSWORD

silent() {
    case $out$err in *s3cret*) fail "the password was shown: $out$err" ;; esac
}

test_ways_to_give_it() {
    expect 0 hf -a "$secret" run a true
    silent
    says "other users can see a password on the command line"
    expect 0 hf -q -a "$secret" run a true
    same "$err" ""
    expect 0 hf --password="$secret" run a true
    expect 0 hf "-a$secret" run a true
    expect 0 hf --password-file "$dir/password" run a true
    same "$err" ""
    expect 0 env HOLDFAST_PASSWORD="$secret" "$HOLDFAST" -s "$socket" run a true
    same "$err" ""
    expect 0 env HOLDFAST_PASSWORD_FILE="$dir/password" "$HOLDFAST" -s "$socket" run a true
    expect 0 env REDISCLI_AUTH="$secret" "$HOLDFAST" -s "$socket" run a true
    expect 0 env VALKEYCLI_AUTH="$secret" "$HOLDFAST" -s "$socket" run a true
    expect 0 hf --user worker --password-file "$dir/password" run a true
    expect 0 env VALKEYCLI_USER=worker REDISCLI_AUTH="$secret" "$HOLDFAST" -s "$socket" run a true
    for user in '' ':' 'worker:'; do
        expect 0 "$HOLDFAST" -u "unix://$user$encoded@$socket" run a true
        silent
        expect 0 env REDIS_URL="unix://$user$encoded@$socket" "$HOLDFAST" run a true
        same "$err" ""
    done
}

# What is meant for us is not for the command.
test_not_in_the_environment_of_the_command() {
    expect 0 env HOLDFAST_PASSWORD="$secret" "$HOLDFAST" -s "$socket" run a env
    silent
    expect 0 env HOLDFAST_PASSWORD="$secret" "$HOLDFAST" -s "$socket" run --env X_ a env
    silent
    expect 0 env HOLDFAST_PASS="$secret" "$HOLDFAST" -s "$socket" run a env
    silent
    expect 0 env HOLDFAST_PASSWORD_FILE="$dir/password" "$HOLDFAST" -s "$socket" run a "$HOLDFAST" -s "$socket" run b true
}

test_what_beats_what() {
    expect 0 env HOLDFAST_PASSWORD=wrong "$HOLDFAST" -s "$socket" -a "$secret" run a true
    expect 0 env HOLDFAST_PASSWORD=wrong "$HOLDFAST" -s "$socket" --password-file "$dir/password" run a true
    expect 0 env REDISCLI_AUTH=wrong HOLDFAST_PASSWORD="$secret" "$HOLDFAST" -s "$socket" run a true
    expect 0 env REDISCLI_AUTH=wrong REDIS_URL="unix://$encoded@$socket" "$HOLDFAST" run a true
    expect 77 env REDISCLI_AUTH="$secret" "$HOLDFAST" -s "$socket" -a wrong run a true
}

# A user without a password is that user, not the default one: whose password is none, or refused.
test_user_without_password() {
    redis acl setuser free on nopass '~*' '&*' +@all >/dev/null
    expect 0 hf --user free run a sh -c 'REDISCLI_AUTH=$0 redis-cli -s "$socket" client list' "$secret"
    case $out in *user=free*) ;; *) fail "not logged in as that user: $out" ;; esac
    expect 77 hf --user worker run a true
    expect 77 hf --user nobody run a true
    redis config set requirepass "" >/dev/null
    expect 77 hf --user worker run a true
    expect 77 "$HOLDFAST" -u "unix://$socket?user=worker" run a true
    expect 0 hf --user free run a true
    redis-cli -s "$socket" config set requirepass "$secret" >/dev/null
}

test_wrong_or_none_77() {
    expect 77 hf run a true
    expect 77 hf -a s3cret-wrong run a true
    silent
    expect 77 hf --user nobody -a s3cret-wrong run a true
    silent
    expect 77 hf -a s3cret-wrong show a
    silent
    expect 77 hf -a s3cret-wrong hold -n a
    silent
    expect 77 hf -a s3cret-wrong unlock --force a
    silent
    expect 77 "$HOLDFAST" -u "unix://:s3cret-wrong@$socket" -vv run a true
    silent
}

test_no_permission_77() {
    redis acl setuser limited on ">$secret" '~other' '&*' +@all >/dev/null
    expect 77 hf --user limited --password-file "$dir/password" run a true
}

test_bad_url_does_not_show_it() {
    for url in "redis://:s3cret@host:notaport" "redis://:s3cret%zz@host" "nonsense://:s3cret@host" \
        "redis://user:s3cret@host/x"; do
        expect 64 "$HOLDFAST" -u "$url" run a true
        silent
    done
    expect 64 hf --password-file "$dir/missing" run a true
    expect 64 hf -p s3cret run a true # -p is the password elsewhere
    silent
}

# A server that does not know AUTH repeats its arguments.
test_server_that_repeats_it() {
    local other=$dir/other.sock
    start redis-server --port 0 --unixsocket "$other" --save '' --rename-command AUTH "" --dir "$dir" >/dev/null
    wait_until file_there "$other"
    expect 77 "$HOLDFAST" -vv -s "$other" -a s3cret run a true
    silent
    expect 77 "$HOLDFAST" -vv -s "$other" --user worker -a s3cret show a
    silent
}

# It was on the command line, and is not any more: of none of the two processes, nor of the command's.
test_not_in_the_list_of_processes() {
    local arguments process
    for arguments in "-s $socket -a $secret" "-s $socket --password=$secret" "-s $socket -a$secret" \
        "-u unix://worker:$encoded@$socket" "-u unix://$socket?db=0&password=$encoded" \
        "-u unix://:s3cret/with%3Aodd%40chars%2541@$socket" "--url=unix://$socket?user=worker&password=$encoded"; do
        rm -f "$dir/up"
        # shellcheck disable=SC2086
        start "$HOLDFAST" $arguments run a sh -c 'touch "$0"; exec stay' "$dir/up" 2>"$dir/err"
        wait_until file_there "$dir/up"
        for process in "$pid" "$(holder_of "$pid")" "$(children_of "$(holder_of "$pid")")"; do
            if tr '\0' ' ' <"/proc/$process/cmdline" | grep -q s3cret; then
                fail "seen: $(tr '\0' ' ' <"/proc/$process/cmdline")"
            fi
        done
        if grep -q s3cret "$dir/err"; then fail "said"; fi
        kill -TERM "$pid"
        finish "$pid"
        same "$status" 143
    done
}

test_askpass() {
    type -P expect >/dev/null || {
        echo "[  SKIPPED ] askpass"
        return
    }
    cat >"$dir/askpass.exp" <<'END'
set timeout 30
spawn -noecho hf --askpass run a true
expect "Password: "
send "$env(secret)\r"
expect { "s3cret" { exit 3 } timeout { exit 4 } eof {} }
lassign [wait] _ _ _ status
exit $status
END
    secret=$secret setpriv --pdeathsig KILL expect "$dir/askpass.exp" >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
    expect 64 setsid -w "$HOLDFAST" -s "$socket" --askpass run a true
    says "--askpass needs a terminal"
}

# Whatever ends or stops it while it asks: the terminal has its echo again, and a stopped one goes on asking.
test_askpass_gives_the_echo_back() {
    type -P expect >/dev/null || {
        echo "[  SKIPPED ] askpass_gives_the_echo_back"
        return
    }
    cat >"$dir/echo.exp" <<'END'
set timeout 30
proc give_up {why} { puts "\n$why"; exit 1 }
proc must {text} {
    expect {
        -ex $text {}
        timeout { give_up "did not see: $text" }
        eof { give_up "ended before: $text" }
    }
}
# The shell's own line editor would hide what the terminal is left with.
proc echoes {status} {
    send "stty -a | tr ' ;' '\\n\\n' | grep -x -e echo -e -echo | sed s/^/is:/\r"
    expect {
        "is:-echo" { give_up "no echo after status $status" }
        "is:echo" {}
        timeout { give_up "nothing" }
    }
    must "ready>"
}
spawn -noecho bash --norc --noprofile --noediting -i
send "PS1=ready\\>\r"
must "ready>"
foreach {key status} {"\003" 130 "\034" 131} {
    send "hf --askpass run a true\r"
    must "Password: "
    send $key
    must "ready>"
    send "echo s\"\"t=\$?\r"
    must "st=$status"
    must "ready>"
    echoes $status
}
foreach {signal status} {TERM 143 HUP 129} {
    send "hf --askpass run a true & until grep -q stopped /proc/\$!/status; do :; done; kill -$signal \$!; fg; echo s\"\"t=\$?\r"
    must "st=$status"
    must "ready>"
    echoes $signal
}
send "bash -c 'echo pid=\$\$; exec hf --askpass run a true'\r"
expect -re {pid=([0-9]+)}
set pid $expect_out(1,string)
must "Password: "
exec kill -TERM $pid
must "ready>"
send "echo s\"\"t=\$?\r"
must "st=143"
must "ready>"
echoes 143
send "hf --askpass run a echo do\"\"ne\r"
must "Password: "
send "\032"
must "Stopped"
must "ready>"
echoes stopped
send "fg\r"
must "Password: "
send "$env(secret)\r"
expect {
    "s3cret" { give_up "shown" }
    "done" {}
    timeout { give_up "did not go on" }
}
must "ready>"
echoes done
send "exit\r"
expect {
    eof {}
    timeout { give_up "did not end" }
}
END
    secret=$secret TERM=dumb setpriv --pdeathsig KILL expect "$dir/echo.exp" >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
}

# Other signals end it, too. Not under an interactive shell: that one mends the terminal itself.
test_askpass_gives_the_echo_back_whatever_ends_it() {
    type -P expect >/dev/null || {
        echo "[  SKIPPED ] askpass_gives_the_echo_back_whatever_ends_it"
        return
    }
    cat >"$dir/ended.exp" <<'END'
set timeout 30
foreach {signal status} {TERM 143 USR1 138 USR2 140 VTALRM 154 PROF 155 XCPU 152 IO 157 RTMIN 162} {
    spawn -noecho sh -c {
        sh -c 'echo pid=$$; exec hf --askpass run a true'
        echo st=$?; stty -a | tr ' ;' '\n\n' | grep -x -e echo -e -echo | sed s/^/is:/
    }
    expect -re {pid=([0-9]+)}
    set pid $expect_out(1,string)
    expect "Password: "
    exec kill -$signal $pid
    expect {
        "st=$status\r" {}
        eof { puts "$signal: another status than $status"; exit 1 }
        timeout { puts "$signal did not end it"; exit 1 }
    }
    expect {
        "is:echo" {}
        "is:-echo" { puts "no echo after $signal"; exit 1 }
    }
    expect eof
    wait
}
END
    setpriv --pdeathsig KILL expect "$dir/ended.exp" >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
}

run_tests
