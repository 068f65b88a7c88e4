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
    complete_in_bash run nam
    same "$out" ""
}

test_zsh() {
    command -v zsh >/dev/null || { echo "zsh is not installed"; return; }
    zsh -n "$completions/_holdfast" || fail "no zsh"
    # Its completion works at a terminal only; what it would offer is what it gives to _describe.
    out=$(zsh -f -c '_describe() { print -l -- "${(@P)2}" } ; _default() { : }
        words=(holdfast elect --ba) CURRENT=3 PREFIX=--ba
        . "$0/_holdfast"' "$completions")
    has --backoff
    has_not "run:run a command while holding a lock"
    out=$(zsh -f -c '_describe() { print -l -- "${(@P)2}" } ; _default() { : }
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
