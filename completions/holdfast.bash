# Completion of holdfast(1) for bash. Which words there are is asked of the tool itself.
# shellcheck shell=bash

# The names of locks at the server that the options lead to; asked for once in a second at most.
_holdfast_names() {
    if [ "$*" != "${_holdfast_names_of-}" ] || [ "$SECONDS" != "${_holdfast_names_at-}" ]; then
        _holdfast_names_all=$("$@" completion --names 2>/dev/null </dev/null)
        _holdfast_names_of=$*
        _holdfast_names_at=$SECONDS
    fi
}

_holdfast() {
    local tool=$1 current=$2 word words subcommand='' at=1
    words=$("$tool" completion 2>/dev/null) || return 0
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $'\n'$words in *$'\n'"$word"$'\t'*) subcommand=$word && break ;; esac
        at=$((at + 1))
    done
    case $subcommand in
    "") ;;
    help | completion) words=$(grep -v '^-' <<<"$words") ;;
    *) words=$("$tool" completion "$subcommand" 2>/dev/null) ;;
    esac
    case $subcommand,$current in
    *,-*) ;;
    run,* | elect,* | hold,* | acquire,* | extend,* | release,* | unlock,* | show,* | watch,*)
        _holdfast_names "$tool" "${COMP_WORDS[@]:1:at-1}"
        words=$_holdfast_names_all
        ;;
    esac
    while IFS=$'\t' read -r word _; do
        case $word in "$current"*) COMPREPLY+=("$word") ;; esac
    done <<<"$words"
}

complete -o default -F _holdfast holdfast
