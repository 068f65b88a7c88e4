# Completion of holdfast(1) for bash. The tool itself lists the words.
# shellcheck shell=bash

# The names of locks on the server that the options name; queried at most once a second.
_holdfast_names() {
    if [ "$*" != "${_holdfast_names_of-}" ] || [ "$SECONDS" != "${_holdfast_names_at-}" ]; then
        _holdfast_names_all=$("$@" completion --names 2>/dev/null </dev/null)
        _holdfast_names_of=$*
        _holdfast_names_at=$SECONDS
    fi
}

_holdfast() {
    local tool=$1 current=$2 word words values subcommand='' at=1
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
    if [ -n "$subcommand" ] && [ "$COMP_CWORD" -gt $((at + 1)) ] &&
        values=$("$tool" completion "$subcommand" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null); then
        words=$values subcommand='' # the values of the preceding option; none: files
    fi
    case $subcommand,$current in
    *,-*) ;;
    run,* | elect,* | hold,* | acquire,* | extend,* | release,* | unlock,* | show,* | watch,* | log,*)
        _holdfast_names "$tool" "${COMP_WORDS[@]:1:at-1}"
        words=$_holdfast_names_all
        ;;
    esac
    while IFS=$'\t' read -r word _; do
        case $word in "") ;; "$current"*) COMPREPLY+=("$word") ;; esac
    done <<<"$words"
}

complete -o default -F _holdfast holdfast
