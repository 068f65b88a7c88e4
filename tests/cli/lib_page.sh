# docs/operating.md, for the tests that play its scenes: what it prints under a heading, and whether the tool says the same.
# Sourced after lib.sh.
# shellcheck shell=bash disable=SC2154

page=$(dirname "${BASH_SOURCE[0]}")/../../docs/operating.md

# printed HEADING: what the page has in the first block under it.
printed() {
    awk -v heading="$1" '
        /^#/ { found = ($0 == heading) }
        found && /^```/ { if (inside) exit; inside = 1; next }
        found && inside { print }' "$page"
}
# Hosts, pids, owners and times differ, and how wide columns are.
alike() {
    sed -E -e 's/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9]+/OWNER/g' \
        -e 's/[^ ]+ [0-9]+ ([a-z]+\.sh)/HOST PID \1/g' \
        -e 's/\b[0-9]+(h[0-9]+m|m[0-9]+s|\.[0-9]s)\b/TIME/g' -e 's/ for [0-9]+ s\b/ for TIME/g' -e 's/ +/ /g' -e 's/ $//'
}
# compares HEADING WANTED COMMAND...: it comes to say so. A client that a busy machine keeps from answering in time is shown as
# silent, or not at all, so it is asked again.
compares() {
    local heading=$1 wanted=$2 got end=$((SECONDS + LIMIT))
    shift 2
    until got=$("$@") && [ "$got" = "$wanted" ]; do
        [ "$SECONDS" -lt "$end" ] || fail "$heading"$'\n--- the page:\n'"$wanted"$'\n--- the tool:\n'"$got"
    done
}
# plays HEADING COMMAND...: the block is "$ the command" and what it says.
plays() {
    local heading=$1
    shift
    compares "$heading" "$(printed "$heading" | alike)" played "$@"
}
played() { { printf '$ holdfast %s\n' "$*"; hf "$@" 2>&1; } | alike; }

# plays_deadlock HEADING: the block is the doctor's line about one. Which of its members comes first is chance.
plays_deadlock() {
    compares "$1" "$(printed "$1" | alike | in_any_order)" played_deadlock
}
played_deadlock() {
    { echo '$ holdfast doctor'; look_for_deadlocks 2>&1 | grep -A1 '^bad .*deadlocks'; } | alike | in_any_order
}
look_for_deadlocks() { hf doctor --skip latency --skip waking; }
finds_a_deadlock() { look_for_deadlocks 2>/dev/null | grep -q '^bad .*deadlocks'; }
in_any_order() { sed -E -e 's/^bad deadlocks //' | tr ';' '\n' | sed -e 's/^ //' | sort; }

# script NAME: one that is called so, with this as its text on standard input; a holder is shown by its name.
script() {
    { echo '#!/bin/sh'; cat; } >"$dir/$1"
    chmod +x "$dir/$1"
}

# is_listed PATTERN NAME: it is what `ls` says of that name.
is_listed() { hf ls "$2" 2>/dev/null | grep -Eq -- "$1"; }
