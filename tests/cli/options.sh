#!/usr/bin/env bash
# Every option that a subcommand takes is in its help, out of which shells complete, and in its section of the manual; and
# it takes every option that these list. The tables in the sources have all options.
. "$(dirname "$0")/lib.sh"
sources=$(cd "$(dirname "$0")/../../cli" && pwd)
manual=$(cd "$(dirname "$0")/../../man" && pwd)/holdfast.1
none=(-s "$dir/none" -t 100ms) # a line that is right after all does nothing

# tables: a line for each option that may follow a subcommand: "-w --wait", "-e", "--fair". Those of connect.c come before it.
tables() {
    find "$sources" -name '*.[ch]' ! -name connect.c -exec cat {} + | tr -s '\\\n ' ' ' |
        grep -oE "\bOPTION_(FLAG|VALUE), [^,]+, ('.'|0), (\"[a-z-]+\"|NULL)" |
        sed -E "s/.*, ('(.)'|0), (\"(.*)\"|NULL)/-\2 --\4/; s/^- //; s/ --\$//" | sort -u
}
# is_taken SUBCOMMAND WORD: the line goes wrong by something that comes later.
is_taken() {
    local said
    case $2 in
    --*) said=$("$HOLDFAST" "${none[@]}" "$1" "$2=x" --nonsense 2>&1 </dev/null) ;;
    *) said=$("$HOLDFAST" "${none[@]}" "$1" "$2" --nonsense 2>&1 </dev/null) ;;
    esac
    case $said in *"unknown option $2"* | *"$2 is a connection option"*) return 1 ;; esac
}
# What the manual's section of a subcommand has in its lists, and in lines that name several at once.
manual_of() {
    awk -v section=".Ss $1" '
        /^\.S[sh]/ { inside = ($0 == section) }
        inside && /^\.(It )?Fl / {
            flags = 0
            for (i = 1; i <= NF; i++) {
                if ($i ~ /^\.?Fl$/) flags = 1
                else if ($i ~ /^(Ar|Cm|Ns|No)$/) flags = 0
                else if (flags && $i ~ /^-?[A-Za-z][a-z-]*$/) print "-" $i
            }
        }' "$manual"
}
subcommands() { "$HOLDFAST" help | sed -n '/^Subcommands/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx -e completion -e version -e help; }

# Taken, and refused with words of their own: what has a handle is one lock, and only making a semaphore or a latch has a ttl.
is_refused() {
    case "$1 $2" in
    "acquire "*--multi | "extend "*--multi | "release "*--multi | "sem --ttl" | "latch --ttl") ;;
    *) return 1 ;;
    esac
}
# Every subcommand takes these, and the manual lists them once.
is_common() { case $1 in --help | --json | *--quiet | *--verbose) ;; *) return 1 ;; esac; }

# is_listed OPTION TEXT: the text has a word of the option.
is_listed() {
    local word
    for word in $1; do
        ! grep -qxe "$word" <<<"$2" || return 0
    done
    return 1
}

check_subcommand() {
    local help section option word
    help=$("$HOLDFAST" completion "$1")
    section=$(manual_of "$1")
    while read -r option; do
        if is_common "$option" || is_refused "$1" "$option" || ! is_taken "$1" "${option##* }"; then
            continue
        fi
        is_listed "$option" "$help" || fail "'$1' takes $option, and its help does not say so"
        is_listed "$option" "$section" || fail "'$1' takes $option, and the manual does not say so"
    done <"$dir/tables"
    for word in $(printf '%s\n' "$help" "$section" | sort -u); do
        is_taken "$1" "$word" || fail "'$1' does not take $word, which its help or the manual lists"
    done
}

test_every_option_is_documented() {
    tables >"$dir/tables"
    [ "$(wc -l <"$dir/tables")" -gt 50 ] || fail "the tables are not found: $(cat "$dir/tables")"
    local subcommand checks=() check
    for subcommand in $(subcommands); do
        check_subcommand "$subcommand" & # each is a hundred lines, of which most say no
        checks+=("$!")
    done
    for check in "${checks[@]}"; do
        wait "$check" || exit 1 # it has said why
    done
}

run_tests
