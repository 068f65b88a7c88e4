# Completion of holdfast(1) for bash. Which words there are is asked of the tool itself.
# shellcheck shell=bash

_holdfast() {
    local tool=$1 current=$2 word words subcommand=
    words=$("$tool" completion 2>/dev/null) || return 0
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $'\n'$words in *$'\n'"$word"$'\t'*) subcommand=$word && break ;; esac
    done
    case $subcommand in
    "") ;;
    help | completion) words=$(grep -v '^-' <<<"$words") ;;
    *) words=$("$tool" completion "$subcommand" 2>/dev/null) ;;
    esac
    while IFS=$'\t' read -r word _; do
        case $word in "$current"*) COMPREPLY+=("$word") ;; esac
    done <<<"$words"
}

complete -o default -F _holdfast holdfast
