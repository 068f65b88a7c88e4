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

test_names_of_locks() {
    server_start
    local handle
    handle=$(hf acquire --lease 1h orders:7)
    hf acquire --lease 1h "not typed" >/dev/null
    complete_in_bash -s "$socket" release or
    same "$out" orders:7
    complete_in_bash -s "$socket" release --ve
    same "$out" --verbose
    complete_in_bash -s "$socket" release n
    same "$out" ""
    if command -v fish >/dev/null; then
        out=$(HOME=$dir fish --no-config -c '. $argv[1]/holdfast.fish; complete -C "holdfast -s $argv[2] release or"' \
            "$completions" "$socket" | cut -f 1)
        has orders:7
    fi
    if command -v zsh >/dev/null; then
        out=$(zsh -f -c '_describe() { : } ; _default() { : } ; compadd() { shift; print -l -- "$@" }
            words=(holdfast -s "$1" release or) CURRENT=5 PREFIX=or
            . "$0/_holdfast"' "$completions" "$socket")
        has orders:7
    fi
    expect 0 hf release orders:7 "$handle"
    expect 1 "$HOLDFAST" completion --names # No server is started for that.
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
