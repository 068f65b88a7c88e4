#!/usr/bin/env bash
# The command line itself: what is refused with 64, what help says. No server is needed.
. "$(dirname "$0")/lib.sh"

test_help() {
    expect 0 "$HOLDFAST" help
    case $out in *Subcommands:*run*elect*hold*unlock*show*sem*latch*) ;; *) fail "no list of subcommands" ;; esac
    expect 0 "$HOLDFAST" --help
    for subcommand in run elect hold acquire extend release unlock show doctor bench sem latch completion version help; do
        expect 0 "$HOLDFAST" help "$subcommand"
        case $out in "Usage: holdfast [CONNECTION OPTIONS] $subcommand "*) ;; *) fail "$out" ;; esac
    done
    expect 0 "$HOLDFAST" run --help
    case $out in *--on-lost*) ;; *) fail "help of run" ;; esac
    expect 0 "$HOLDFAST" help --help
    case $out in "Usage: holdfast [CONNECTION OPTIONS] help "*) ;; *) fail "$out" ;; esac
    expect 64 "$HOLDFAST" help nonsense
}

# Whatever is printed: what cannot be written is an error with its cause.
test_output_that_cannot_be_written() {
    local line
    for line in help "help run" --help "run --help" "help --help" version "version --json" completion "completion run"; do
        # shellcheck disable=SC2086
        expect 71 eval '"$HOLDFAST" $line >/dev/full'
        says "cannot write to the standard output: No space left on device"
        same "$(wc -l <"$dir/err")" 1 "lines of $line"
    done
}

test_version() {
    expect 0 "$HOLDFAST" version
    case $out in "holdfast "[0-9]*.[0-9]*.[0-9]*) ;; *) fail "$out" ;; esac
    expect 0 "$HOLDFAST" --version
    expect 0 "$HOLDFAST" version --json
    case $out in '{"version":"'*) ;; *) fail "$out" ;; esac
}

test_no_or_wrong_subcommand() {
    expect 64 "$HOLDFAST"
    expect 64 "$HOLDFAST" nonsense
    says "unknown subcommand 'nonsense'"
    expect 64 "$HOLDFAST" --nonsense run x true
    says "unknown option --nonsense"
}

# A slip, or the word that another tool has for it.
test_a_subcommand_that_was_meant() {
    local typed
    for typed in runn:run rnu:run elcet:elect aquire:acquire list:ls lock:run locks:ls status:show break:unlock renew:extend; do
        expect 64 "$HOLDFAST" "${typed%:*}" x
        says "unknown subcommand '${typed%:*}': did you mean '${typed#*:}'?"
        expect 64 "$HOLDFAST" help "${typed%:*}"
        says "did you mean '${typed#*:}'?"
    done
    expect 64 "$HOLDFAST" nonsense
    case $err in *"did you mean"*) fail "$err" ;; esac
    expect 64 "$HOLDFAST" run --waitt 5 x true
    says "unknown option --waitt: did you mean --wait?"
    expect 64 "$HOLDFAST" --urll=local: run x true
    says "unknown option --urll: did you mean --url?"
    expect 64 "$HOLDFAST" run --nonsense x true
    case $err in *"did you mean"*) fail "$err" ;; esac
}

# Two options that contradict each other: neither wins in silence. One on the command line replaces one of the environment.
test_options_exclude_each_other() {
    local subcommand tail
    for subcommand in run hold; do
        tail=""
        [ "$subcommand" = hold ] || tail=true
        # shellcheck disable=SC2086
        expect 64 "$HOLDFAST" -u redis://127.0.0.1:1 -t 200ms "$subcommand" --ttl 5 --lease 9 x $tail
        says "--ttl and --lease exclude each other: a lease is either renewed (--ttl) or fixed (--lease); give one"
        # shellcheck disable=SC2086
        expect 64 "$HOLDFAST" -u redis://127.0.0.1:1 -t 200ms "$subcommand" -n -w 5 x $tail
        says "-n and -w exclude each other"
        # shellcheck disable=SC2086
        expect 69 env HOLDFAST_TTL=5 HOLDFAST_WAIT=5 "$HOLDFAST" -u redis://127.0.0.1:1 -t 200ms "$subcommand" -n --lease 9 x $tail
        # shellcheck disable=SC2086
        expect 69 "$HOLDFAST" -u redis://127.0.0.1:1 -t 200ms "$subcommand" -n -w 0 x $tail
    done
    expect 64 env HOLDFAST_TTL=5 HOLDFAST_LEASE=9 "$HOLDFAST" run x true
    says "HOLDFAST_LEASE and HOLDFAST_TTL exclude each other"
    expect 64 "$HOLDFAST" -u redis://127.0.0.1:1 acquire --lease 9 --wait 5 --nb x
    says "--wait and --nb exclude each other"
    expect 64 "$HOLDFAST" -u redis://127.0.0.1:1 sem x acquire -n -w 5
    says "-n and -w exclude each other"
    expect 64 "$HOLDFAST" -u redis://127.0.0.1:1 latch -w 5 -n x wait
    says "-w and -n exclude each other"
}

test_run_needs_name_and_command() {
    expect 64 "$HOLDFAST" run
    says "a NAME is needed"
    expect 64 "$HOLDFAST" run x
    says "a COMMAND is needed"
    expect 64 "$HOLDFAST" run x --
    expect 64 "$HOLDFAST" run '' true
    expect 64 "$HOLDFAST" run x -c
    expect 64 "$HOLDFAST" run -c true x true
    says "not both"
    expect 64 "$HOLDFAST" run x -n true
    says "options go before the NAME"
    expect 64 "$HOLDFAST" show
    expect 64 "$HOLDFAST" show a b
    expect 64 "$HOLDFAST" hold
    expect 64 "$HOLDFAST" unlock --force
}

test_values_are_checked() {
    for value in '' x 5x -1 nan inf 1e3 0x5 . 1.2.3 5ss '5 s' 99999999d; do
        expect 64 "$HOLDFAST" run --wait="$value" x true
    done
    says "--wait: '99999999d' is not a duration: give a number with ms, s, m, h or d, such as 90s; ten years at most"
    expect 64 "$HOLDFAST" hold --ttl 0 x
    says "--ttl: '0' is too short: give a duration above 0, such as 90s"
    expect 64 "$HOLDFAST" run -E 256 x true
    expect 64 "$HOLDFAST" run -E -1 x true
    expect 64 "$HOLDFAST" run --signal NONSENSE x true
    expect 64 "$HOLDFAST" run --on-lost=maybe x true
    expect 64 "$HOLDFAST" run --ttl 10ms x true
    says "too short"
    expect 64 "$HOLDFAST" run --ready-fd 87 x true
    expect 64 "$HOLDFAST" run --env A=B x true
    expect 64 "$HOLDFAST" run --nonblock=1 x true
    says "takes no value"
    expect 64 "$HOLDFAST" run --wait
    says "needs a value"
    expect 64 "$HOLDFAST" -p 0 run x true
    expect 64 "$HOLDFAST" -n x run x true
    expect 64 "$HOLDFAST" -t 0 run x true
}

test_connection_letters_after_the_subcommand_get_a_hint() {
    expect 64 "$HOLDFAST" run -u redis://localhost x true
    says "-u is a connection option: put it before 'run'"
    expect 64 "$HOLDFAST" show --host localhost x
    says "--host is a connection option: put it before 'show'"
    expect 64 "$HOLDFAST" run -h localhost x true
    says "connection option"
}

# Options of redis-cli and flock that are none here.
test_unknown_options() {
    for option in -c -4 --clusters=x; do
        expect 64 "$HOLDFAST" "$option" run x true
        says "unknown option ${option%=x}"
    done
    expect 64 "$HOLDFAST" run -F x true
    says "unknown option -F"
    expect 64 "$HOLDFAST" unlock --owner x y
    says "unknown option --owner"
}

# What can be given is in the help.
test_help_knows_every_letter() {
    for subcommand in run hold; do
        expect 0 "$HOLDFAST" help "$subcommand"
        for option in -x -e -s -W -N -n -w -E; do
            case $out in *" $option, "*) ;; *) fail "help $subcommand lacks $option" ;; esac
        done
    done
    expect 0 "$HOLDFAST" help show
    case $out in *"Exit status:"*65*) ;; *) fail "$out" ;; esac
}

test_kinds_exclude_each_other() {
    local one other
    for one in -s --write --fair --fenced --spin '-N 2'; do
        for other in --shared -W --fair --fenced --spin --slots=2; do
            case "$one $other" in
            "-s --shared" | "--write -W" | "--fair --fair" | "--fenced --fenced" | "--spin --spin" | "-N 2 --slots=2")
                continue # the same twice
                ;;
            esac
            # shellcheck disable=SC2086
            expect 64 "$HOLDFAST" run $one $other x true
            says "${one% 2} and ${other%=2} exclude each other"
        done
    done
    expect 64 "$HOLDFAST" hold -s --fair x
    says "-s and --fair exclude each other"
    expect 64 "$HOLDFAST" run -x -s x true
    says "-x and -s exclude each other"
    expect 64 "$HOLDFAST" run -N 2 -e x true
    says "-x and -N exclude each other"
    for value in 0 -1 x '' 1.5 2147483648; do
        expect 64 "$HOLDFAST" run --slots="$value" x true
        says "is not a number of slots"
    done
}

test_sem_and_latch() {
    expect 64 "$HOLDFAST" sem
    says "a NAME is needed"
    expect 64 "$HOLDFAST" sem x
    says "a VERB is needed: set, acquire, try, release, add, drain, count or delete"
    expect 64 "$HOLDFAST" latch x
    says "a VERB is needed: set, down, wait, count or delete"
    expect 64 "$HOLDFAST" sem '' count
    expect 64 "$HOLDFAST" sem x nonsense
    says "unknown VERB 'nonsense': use set, acquire,"
    expect 64 "$HOLDFAST" latch x acquire
    expect 64 "$HOLDFAST" sem x set
    says "a number is needed after 'set'"
    expect 64 "$HOLDFAST" sem x add
    expect 64 "$HOLDFAST" sem x count 3
    says "'count' takes no number"
    expect 64 "$HOLDFAST" sem x set 3 4
    says "'set' takes one number: unexpected argument '4'"
    expect 64 "$HOLDFAST" sem x -
    expect 64 "$HOLDFAST" sem -- -x -
    says "unknown VERB '-'"
    expect 64 "$HOLDFAST" latch x down 1
    for words in "sem x set -1" "sem x acquire 0" "sem x release -3" "sem x try x" "sem x set 2147483648" \
        "sem x add 1.5" "sem x add -2147483648" "latch x set 0" "latch x set -1"; do
        # shellcheck disable=SC2086
        expect 64 "$HOLDFAST" $words
        says "is not a number for"
    done
    expect 64 "$HOLDFAST" sem x release -w 5
    says "-w cannot be used with 'release', which does not wait"
    expect 64 "$HOLDFAST" sem x try -w 5
    expect 64 "$HOLDFAST" latch -n x down
    expect 64 "$HOLDFAST" sem x acquire --ttl 5
    says "--ttl cannot be used with 'acquire'"
    expect 64 "$HOLDFAST" latch x set 1 --ttl 5
    expect 64 "$HOLDFAST" sem x acquire -w soon
    says "is not a duration"
    expect 64 "$HOLDFAST" sem x acquire -E 256
    expect 64 "$HOLDFAST" sem x set 3 --ttl 0
    expect 64 "$HOLDFAST" sem x acquire --nonsense
    says "unknown option --nonsense"
    expect 64 "$HOLDFAST" sem x count -u redis://localhost
    says "-u is a connection option: put it before 'sem'"
    expect 0 "$HOLDFAST" sem x acquire --help
    case $out in "Usage: holdfast [CONNECTION OPTIONS] sem NAME VERB"*) ;; *) fail "$out" ;; esac
    expect 0 "$HOLDFAST" latch --help
    case $out in *"latch NAME VERB"*) ;; *) fail "$out" ;; esac
}

test_url_or_parts() {
    expect 64 "$HOLDFAST" -u redis://localhost -h localhost run x true
    expect 64 env HOLDFAST_URL=redis://localhost HOLDFAST_HOST=localhost "$HOLDFAST" run x true
    expect 64 "$HOLDFAST" -u redis://localhost -n 3 run x true
    expect 64 "$HOLDFAST" -u nonsense://x run x true
    expect 64 "$HOLDFAST" -u 'redis://localhost/notanumber' run x true
    expect 64 env HOLDFAST_QUIET=perhaps "$HOLDFAST" run x true
    says "HOLDFAST_QUIET must be yes or no"
}

# A url that is wrong is not repeated, since it may have a password in it: so where it came from is said.
test_where_a_wrong_url_came_from() {
    expect 64 "$HOLDFAST" -u nonsense://x run x true
    says "holdfast: -u: 'nonsense' is not a known scheme; use redis, "
    expect 64 env HOLDFAST_URL=localhost REDIS_URL=redis://127.0.0.1:1 "$HOLDFAST" run x true
    says "holdfast: HOLDFAST_URL: the scheme is missing"
    expect 64 env REDIS_URL=redis://host:notaport "$HOLDFAST" run x true
    says "holdfast: REDIS_URL: the port is not a number"
    expect 64 "$HOLDFAST" -h "a b" run x true
    case $err in *REDIS_URL* | *"-u"*) fail "$err" ;; esac
}

# The scheme is all that is printed of a wrong url: behind it may be a password, and a password may stand in its place.
test_a_wrong_scheme() {
    expect 64 "$HOLDFAST" -u 'foo://hunter2' run x true
    says "-u: 'foo' is not a known scheme; use redis, rediss, "
    case $err in *hunter2*) fail "$err" ;; esac
    expect 64 env HOLDFAST_URL=$'fo\eo://me:hunter2@host/hunter2' "$HOLDFAST" run x true
    says "HOLDFAST_URL: 'fo\\\\x1bo' is not a known scheme"
    case $err in *hunter2*) fail "$err" ;; esac
    expect 64 "$HOLDFAST" -u "$(printf 'x%.0s' {1..300})://hunter2" run x true
    says "-u: '$(printf 'x%.0s' {1..32})...' is not a known scheme"
    local url
    for url in hunter2://host me:hunter2@redis://host 'redis?password=hunter2://host'; do
        expect 64 "$HOLDFAST" -u "$url" run x true
        says "-u: the scheme is unknown; use redis, "
        case $err in *hunter2*) fail "$err" ;; esac
    done
    expect 64 "$HOLDFAST" -u ://host run x true
    says "-u: the scheme is missing"
}

# What was typed, why it is wrong, and what would be right.
test_words_that_are_not_known() {
    expect 64 "$HOLDFAST" run --signal TREM x true
    says "--signal: 'TREM' is not a signal: give a name such as TERM, or a number"
    expect 64 "$HOLDFAST" run -N 0 x true
    says "-N: '0' is not a number of slots: give 1 or more"
    expect 64 "$HOLDFAST" ls --sort nme
    says "--sort: 'nme' is not one of name, age, ttl, wait or waiters"
    expect 64 "$HOLDFAST" top --sort nme
    says "--sort: 'nme' is not one of name, age"
    expect 64 "$HOLDFAST" doctor --skip evction
    says "--skip: unknown check 'evction': give a name from the output of 'holdfast doctor'"
    expect 64 "$HOLDFAST"
    says "a SUBCOMMAND is needed, such as run or ls"
}

test_unlock_without_force_explains() {
    expect 1 "$HOLDFAST" -u redis://127.0.0.1:1 unlock x
    says "'x': only its holder can release it: end that process, or break the lock with --force"
}

# json_usage HELP ARGUMENT...: one object, with the code, and with the hint that is a line of its own in text.
json_usage() {
    local hint="see '$1'"
    shift
    expect 64 "$@"
    case $err in
    '{"program":"holdfast","level":"error","message":"'*'","code":"HF_EINVAL","hint":"'"$hint"'"'*'}') ;;
    *) fail "$err" ;;
    esac
    same "$(wc -l <"$dir/err")" 1 "lines"
}
test_usage_errors_as_json() {
    json_usage "holdfast help run" "$HOLDFAST" --json run x
    json_usage "holdfast help" "$HOLDFAST" --json
    json_usage "holdfast help" "$HOLDFAST" --json nonsense
    json_usage "holdfast help" "$HOLDFAST" --json -u foo://x run x true
    # Also when the subcommand or the environment says --json, and when the mistake is among the connection options.
    json_usage "holdfast help hold" "$HOLDFAST" hold --json --nonsense x
    json_usage "holdfast help hold" env HOLDFAST_JSON=1 "$HOLDFAST" hold --nonsense x
    json_usage "holdfast help" "$HOLDFAST" --json --nonsense
    expect 64 "$HOLDFAST" run x
    same "$err" "holdfast: a COMMAND is needed"$'\n'"holdfast: see 'holdfast help run'"
}

run_tests
