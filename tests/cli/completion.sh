#!/usr/bin/env bash
# What shells complete: the words that the tool knows, in those of the three shells that are installed.
. "$(dirname "$0")/lib.sh"
completions=$(cd "$(dirname "$0")/../../completions" && pwd)
mkdir "$dir/tool"
ln -s "$HOLDFAST" "$dir/tool/holdfast"
PATH=$dir/tool:$PATH

has() { grep -qx -- "$1" <<<"$out" || fail "'$1' is not among: $out"; }
has_not() { ! grep -qx -- "$1" <<<"$out" || fail "'$1' is among: $out"; }

test_the_words_are_those_of_the_help() {
    local subcommand option
    expect 0 holdfast completion
    has --url
    has --help
    for subcommand in $(holdfast help | sed -n '/^Subcommands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        expect 0 holdfast completion
        grep -q "^$subcommand"$'\t' <<<"$out" || fail "no $subcommand"
        expect 0 holdfast completion "$subcommand"
        for option in $(holdfast help "$subcommand" | sed -n 's/^  *\(-., \)*\(--[a-z-]*\).*/\2/p'); do
            has "$option"
        done
    done
    expect 0 holdfast completion run
    has --on-lost
    has -w
    expect 64 holdfast completion nothing
}

# complete_in_bash WORD...: the last one is completed.
complete_in_bash() {
    out=$(bash --norc -c '. "$0/holdfast.bash"
        COMP_WORDS=(holdfast "$@") COMP_CWORD=$#
        _holdfast holdfast "${!#}" ""
        printf "%s\n" "${COMPREPLY[@]}"' "$completions" "$@")
}

# completes OUTPUT WORD...: names are offered only if the server answers within a second, which a busy machine may miss.
completes() {
    complete_in_bash "${@:2}"
    [ "$out" = "$1" ]
}

test_bash() {
    complete_in_bash ""
    has run
    has doctor
    has --url
    complete_in_bash "do"
    same "$out" doctor
    complete_in_bash -u redis://run --verbose el
    same "$out" elect
    complete_in_bash -q elect --ba
    same "$out" --backoff
    complete_in_bash acquire --l
    same "$out" --lease
    complete_in_bash help be
    same "$out" bench
    complete_in_bash -s "$dir/none" run nam
    same "$out" ""
}

# Behind an option that takes a value comes the value, and no lock's name.
test_values_of_options() {
    server_start
    hf acquire --lease 1h kilo >/dev/null
    expect 0 holdfast completion run --on-lost
    same "$out" "kill
signal
ignore"
    expect 0 holdfast completion elect --on-start-leading
    same "$out" ""
    expect 0 holdfast completion run -w
    expect 1 holdfast completion run --fair
    expect 1 holdfast completion run -n
    expect 1 holdfast completion run name
    complete_in_bash -s "$socket" run --on-lost k
    same "$out" kill
    complete_in_bash -s "$socket" elect --on-start-leading k
    same "$out" "" # and so the shell offers its files
    wait_until completes kilo -s "$socket" run --fair k
    if command -v fish >/dev/null; then
        out=$(HOME=$dir fish --no-config -c '. $argv[1]/holdfast.fish; complete -C "holdfast -s $argv[2] run --on-lost k"' \
            "$completions" "$socket" | cut -f 1)
        has kill
        has_not kilo
    fi
    if command -v zsh >/dev/null; then
        out=$(zsh -f -c '_describe() { print -l -- "${(@P)2}" } ; _default() { : } ; compadd() { shift; print -l -- "$@" }
            words=(holdfast -s "$1" run --on-lost k) CURRENT=6 PREFIX=k
            . "$0/_holdfast"' "$completions" "$socket")
        has kill
        has_not kilo
    fi
}

test_names_of_locks() {
    server_start
    local handle
    handle=$(hf acquire --lease 1h orders:7)
    hf acquire --lease 1h "not typed" >/dev/null
    wait_until completes orders:7 -s "$socket" release or
    complete_in_bash -s "$socket" release --ve
    same "$out" --verbose
    complete_in_bash -s "$socket" release n
    same "$out" ""
    ! command -v fish >/dev/null || wait_until fish_completes
    ! command -v zsh >/dev/null || wait_until zsh_completes
    expect 0 hf release orders:7 "$handle"
    expect 1 "$HOLDFAST" completion --names # No server is started for that.
}

fish_completes() {
    HOME=$dir fish --no-config -c '. $argv[1]/holdfast.fish; complete -C "holdfast -s $argv[2] release or"' \
        "$completions" "$socket" | cut -f 1 | grep -qx orders:7
}
zsh_completes() {
    zsh -f -c '_describe() { : } ; _default() { : } ; compadd() { shift; print -l -- "$@" }
        words=(holdfast -s "$1" release or) CURRENT=5 PREFIX=or
        . "$0/_holdfast"' "$completions" "$socket" | grep -qx orders:7
}

test_zsh() {
    command -v zsh >/dev/null || { echo "zsh is not installed"; return; }
    zsh -n "$completions/_holdfast" || fail "no zsh"
    # Its completion works at a terminal only; what it would offer is what it gives to _describe.
    out=$(zsh -f -c '_describe() { print -l -- "${(@P)2}" } ; _default() { : } ; compadd() { : }
        words=(holdfast elect --ba) CURRENT=3 PREFIX=--ba
        . "$0/_holdfast"' "$completions")
    has --backoff
    has_not "run:run a command while holding a lock"
    out=$(zsh -f -c '_describe() { print -l -- "${(@P)2}" } ; _default() { : } ; compadd() { : }
        words=(holdfast "") CURRENT=2 PREFIX=
        . "$0/_holdfast"' "$completions")
    has "run:run a command while holding a lock"
    has --url
}

test_fish() {
    command -v fish >/dev/null || { echo "fish is not installed"; return; }
    out=$(HOME=$dir fish --no-config -c '. $argv[1]/holdfast.fish; complete -C "holdfast do"' "$completions" | cut -f 1)
    has doctor
    out=$(HOME=$dir fish --no-config -c '. $argv[1]/holdfast.fish; complete -C "holdfast -q elect --ba"' "$completions" | cut -f 1)
    same "$out" --backoff
}

run_tests
