#!/usr/bin/env bash
# The command line itself: what is refused with 64, what help says. No server is needed.
. "$(dirname "$0")/lib.sh"

test_help() {
    expect 0 "$HOLDFAST" help
    case $out in *Subcommands:*run*hold*unlock*show*) ;; *) fail "no list of subcommands" ;; esac
    expect 0 "$HOLDFAST" --help
    for subcommand in run hold unlock show version help; do
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

test_later_options_are_refused() {
    for option in --tls -c -4 -6 --cacert=x '--sentinel=x'; do
        expect 64 "$HOLDFAST" "$option" run x true
        says "not supported by this version"
    done
    for option in -s --shared --fair --spin --fenced --redlock -m '--slots=3' '--sync-replicas=all'; do
        expect 64 "$HOLDFAST" run "$option" x true
        says "not supported by this version"
    done
    # Also from the environment: nobody must believe to be encrypted who is not.
    expect 64 env HOLDFAST_TLS=1 "$HOLDFAST" run x true
    says "HOLDFAST_TLS is not supported by this version"
    for page in '' run hold; do
        expect 0 "$HOLDFAST" help $page
        case $out in *--tls* | *--fair* | *--shared*) fail "help lists what is not there" ;; esac
    done
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
