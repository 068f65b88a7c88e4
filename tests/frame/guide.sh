#!/usr/bin/env bash
# Every block of C and C++ in the documents compiles, and the guide knows every error, kind and option there is.
#
# A block with a function or a `static` at the first column is a piece of a file; any other is a piece of a function.
# What blocks use without saying it (client, lock, err, ...) is declared here. Not so in a README: there every block is
# a whole program, and compiles as it is printed.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$HF_SOURCE_DIR"
failures=0
blocks=0

cat >"$dir/prelude.c" <<'END'
#include <errno.h>
#include <holdfast/holdfast.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern hf_client *client;
extern hf_lock *lock;
extern int err;
extern pthread_mutex_t data_mutex;
struct record;
void write_record(const struct record *record);
void on_hold_event(hf_lock *lock, const hf_event *event, void *user);
void on_acquired(hf_op *op, const hf_result *result, void *user);
void on_notification(hf_listener *listener, const hf_notification *notification, void *user);
END
cat >"$dir/prelude.cpp" <<'END'
#include <holdfast/holdfast.hpp>
#include <iostream>
#include <mutex>
#include <shared_mutex>
extern holdfast::mutex mutex;
END

# split FILE: each block of C or C++ as $dir/<number>.c or .cpp, with the line it came from.
split() {
    rm -f "$dir"/[0-9]*
    awk -v dir="$dir" -v file="$1" '
        /^```(c|cpp)$/ { language = substr($0, 4); out = sprintf("%s/%03d.%s", dir, ++count, language)
                         printf "#line %d \"%s\"\n", NR + 1, file > out; next }
        /^```/ { out = "" }
        out != "" { print > out }' "$1"
}
is_piece_of_file() { grep -qE '^[a-z].*\) \{$' "$1" && ! grep -qE '^(if|for|while|switch) ' "$1"; }

# compile BLOCK FILE
compile() {
    local block=$1 language=${1##*.} whole=$dir/whole.${1##*.}
    if grep -q '\bmain(' "$block" || [[ $2 = README* ]]; then
        cp "$block" "$whole"
    elif is_piece_of_file "$block"; then
        # Its own functions may be those that other blocks assume.
        { grep -v 'void on_' "$dir/prelude.$language"; cat "$block"; } >"$whole"
    else
        {
            cat "$dir/prelude.$language"
            grep '^#include' "$block" || :
            echo 'void block(void); void block(void) {'
            grep -v '^#include' "$block"
            echo '}'
        } >"$whole"
    fi
    local with=("$CC" -std=gnu11 -D_GNU_SOURCE)
    [ "$language" = c ] || with=("${CXX:-c++}" -std=c++17)
    "${with[@]}" -Iinclude -Wall -Wextra -Werror -Wno-unused -fsyntax-only "$whole" >"$dir/log" 2>&1 || {
        cat "$dir/log"
        failures=$((failures + 1))
    }
}

for file in README*.md docs/*.md; do
    split "$file"
    for block in "$dir"/[0-9]*; do
        [ -e "$block" ] || continue
        [ "${block##*.}" = c ] || command -v "${CXX:-c++}" >/dev/null || continue
        blocks=$((blocks + 1))
        compile "$block" "$file"
    done
done
[ "$blocks" -ge 15 ] || { echo "FAILED: only $blocks blocks were found"; exit 1; }

# knows WHAT NAME...: the guide speaks of each.
knows() {
    local what=$1 name
    shift
    [ $# -gt 0 ] || { echo "FAILED: found no $what in the header"; failures=$((failures + 1)); }
    for name in "$@"; do
        grep -q "\`$name\`" docs/guide.md ||
            { echo "FAILED: docs/guide.md does not speak of the $what $name"; failures=$((failures + 1)); }
    done
}
header=include/holdfast/holdfast.h
# The lines of a struct or enum that begin with a member, without what is said about it.
members_of() { sed -n "/^typedef [a-z]* $1 /,/^}/s|^    \([a-zA-Z].*\)|\1|p" "$header" | sed 's|/\*.*||'; }
mapfile -t errors < <(grep -oE 'X\(HF_E[A-Z]+' "$header" | cut -c 3-)
mapfile -t kinds < <(members_of hf_kind | grep -oE '^HF_[A-Z_]+')
mapfile -t options < <(members_of hf_options | sed -n 's/.*[ *]\([a-z_]*\);.*/\1/p' | grep -vx size)
mapfile -t flags < <(sed -n '/^} hf_kind;/,/^typedef/s/^#define \(HF_[A-Z_]*\) 0x.*/\1/p' "$header")
mapfile -t sleeps < <(members_of hf_lock_options | grep -oE '(spin|cohort)_[a-z_]+')
knows error "${errors[@]}"
knows kind "${kinds[@]}"
knows flag "${flags[@]}"
knows option "${sleeps[@]}"
knows option "${options[@]}"

[ "$failures" -eq 0 ]
