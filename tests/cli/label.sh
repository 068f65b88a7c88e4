#!/usr/bin/env bash
# How a holder calls itself to the server: by what it runs, without what may be secret, or by --label.
. "$(dirname "$0")/lib.sh"
server_start

# label_of LOCK: the last word of what the holder's connection says of itself.
label_of() { hf show --json "$1" | sed -n 's/.*"connection":"[^ ]* [0-9]* \([^"]*\)".*/\1/p'; }
# holds OPTION... -- COMMAND...: runs it under a lock, and tells what it is called.
called() {
    start hf run "$@"
    wait_until labelled
    label=$(label_of called)
    kill -TERM "$pid"
    finish "$pid"
}
labelled() { [ -n "$(label_of called)" ]; }

# A program that waits, with the arguments that it is given.
printf '#!/bin/sh\nexec stay\n' >"$dir/backup.sh"
chmod +x "$dir/backup.sh"
touch "$dir/job.conf"
cd "$dir" || exit

test_the_program_and_its_files() {
    called called stay
    same "$label" stay
    called called "$dir/backup.sh"
    same "$label" backup.sh
    called called sh ./backup.sh job.conf
    same "$label" sh_./backup.sh_job.conf
    called called -c 'stay; true'
    same "$label" stay
}

# An argument may be a secret, in whatever form: none of these is shown.
test_no_argument_is_shown() {
    local argument
    for argument in hunter2 --password=hunter2 -phunter2 user:hunter2@host redis://:hunter2@host token=hunter2; do
        called called ./backup.sh "$argument"
        same "$label" backup.sh
        called called ./backup.sh job.conf "$argument" job.conf
        same "$label" backup.sh_job.conf
    done
    export SHELL=/bin/sh # bash knows its own even if nobody has exported one
    called called -c 'PASSWORD=hunter2 stay; true'
    same "$label" sh
    case $(redis client list; redis hgetall called) in *hunter2*) fail "the server knows" ;; esac
}

test_a_label() {
    called --label 'nightly backup' called ./backup.sh
    same "$label" nightly_backup
    start hf hold --no-stdin --label stock called
    wait_until labelled
    same "$(label_of called)" stock
    kill -TERM "$pid"
    finish "$pid"
    start env HOLDFAST_LABEL=leader "$dir/bin/hf" elect called stay
    wait_until labelled
    same "$(label_of called)" leader
    kill -TERM "$pid"
    finish "$pid"
    expect 64 hf run --label '' called true
    says "--label: the value is empty"
}

# A script that does what its arguments say: `hold` or `acquire` in the background, and one more argument.
cat >"$dir/nightly.sh" <<'END'
#!/bin/sh
setpriv --pdeathsig KILL "$TOOL" -s "$socket" "$@" >/dev/null &
echo $! >"$0.pid"
wait
END
chmod +x "$dir/nightly.sh"
# by_script ARGUMENT...: the script starts the tool so, whose pid is in $tool.
by_script() {
    rm -f "$dir/nightly.sh.pid"
    start "$dir/nightly.sh" "$@"
    wait_until file_filled "$dir/nightly.sh.pid"
    tool=$(cat "$dir/nightly.sh.pid")
}
waits_as() { hf ls --json called | grep -q '"waiters":\[{[^]]*"program":"'"$1"'"'; }

# Without --label, `hold` is called by what started it, without arguments; and so is a waiting `acquire`.
test_the_name_of_the_parent() {
    local holder
    by_script hold --no-stdin --lease 1h called
    holder=$tool
    wait_until labelled
    same "$(label_of called)" nightly.sh
    [[ $(hf ls called) == *" $holder nightly.sh "* ]] || fail "$(hf ls called)"
    by_script acquire --lease 1h -w 1h called
    wait_until waits_as nightly.sh
    kill -TERM "$tool"
    wait_until ended "$tool"
    case $(redis client list) in *1h* | *called*) fail "the server knows an argument" ;; esac
    kill -TERM "$holder"
    wait_until ended "$holder"
    by_script hold --no-stdin --label stock called
    wait_until labelled
    same "$(label_of called)" stock
    kill -TERM "$tool"
    wait_until ended "$tool"
}

# A long one is cut, and holds all the same.
test_a_long_label() {
    local long
    long=$(printf 'x%.0s' {1..300})
    called --label "$long" called stay
    same "$label" "${long:0:64}"
}

run_tests
