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
    says "can be seen by others"
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
    expect 0 env HOLDFAST_PASSWORD_FILE="$dir/password" "$HOLDFAST" -s "$socket" run a "$HOLDFAST" -s "$socket" run b true
}

test_what_beats_what() {
    expect 0 env HOLDFAST_PASSWORD=wrong "$HOLDFAST" -s "$socket" -a "$secret" run a true
    expect 0 env HOLDFAST_PASSWORD=wrong "$HOLDFAST" -s "$socket" --password-file "$dir/password" run a true
    expect 0 env REDISCLI_AUTH=wrong HOLDFAST_PASSWORD="$secret" "$HOLDFAST" -s "$socket" run a true
    expect 0 env REDISCLI_AUTH=wrong REDIS_URL="unix://$encoded@$socket" "$HOLDFAST" run a true
    expect 77 env REDISCLI_AUTH="$secret" "$HOLDFAST" -s "$socket" -a wrong run a true
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
}

# It was on the command line, and is not any more: of none of the two processes, nor of the command's.
test_not_in_the_list_of_processes() {
    local arguments process
    for arguments in "-s $socket -a $secret" "-s $socket --password=$secret" "-s $socket -a$secret" \
        "-u unix://worker:$encoded@$socket"; do
        rm -f "$dir/up"
        # shellcheck disable=SC2086
        start "$HOLDFAST" $arguments run a sh -c 'touch "$0"; exec sleep 100' "$dir/up" 2>"$dir/err"
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
    says "there is no terminal"
}

run_tests
