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
    expect 64 "$HOLDFAST" help nonsense
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
    says "'nonsense' is no subcommand"
    expect 64 "$HOLDFAST" --nonsense run x true
    says "unknown option --nonsense"
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
    says "is no duration"
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
        says "is no number of slots"
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
    says "'nonsense' is no VERB: use set, acquire,"
    expect 64 "$HOLDFAST" latch x acquire
    expect 64 "$HOLDFAST" sem x set
    says "a number is needed after 'set'"
    expect 64 "$HOLDFAST" sem x add
    expect 64 "$HOLDFAST" sem x count 3
    says "'count' takes no number"
    expect 64 "$HOLDFAST" sem x set 3 4
    says "'set' takes one number, so '4' is too much"
    expect 64 "$HOLDFAST" sem x -
    expect 64 "$HOLDFAST" sem -- -x -
    says "'-' is no VERB"
    expect 64 "$HOLDFAST" latch x down 1
    for words in "sem x set -1" "sem x acquire 0" "sem x release -3" "sem x try x" "sem x set 2147483648" \
        "sem x add 1.5" "sem x add -2147483648" "latch x set 0" "latch x set -1"; do
        # shellcheck disable=SC2086
        expect 64 "$HOLDFAST" $words
        says "is no number for"
    done
    expect 64 "$HOLDFAST" sem x release -w 5
    says "-w is not for 'release', which does not wait"
    expect 64 "$HOLDFAST" sem x try -w 5
    expect 64 "$HOLDFAST" latch -n x down
    expect 64 "$HOLDFAST" sem x acquire --ttl 5
    says "--ttl is not for 'acquire'"
    expect 64 "$HOLDFAST" latch x set 1 --ttl 5
    expect 64 "$HOLDFAST" sem x acquire -w soon
    says "is no duration"
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
    says "HOLDFAST_QUIET is neither yes nor no"
}

test_unlock_without_force_explains() {
    expect 1 "$HOLDFAST" -u redis://127.0.0.1:1 unlock x
    says "--force"
}

test_messages_as_json() {
    expect 64 "$HOLDFAST" --json run x
    says '{"program":"holdfast","level":"error","message":"'
}

run_tests
