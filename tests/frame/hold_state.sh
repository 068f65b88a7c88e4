#!/usr/bin/env bash
# The state of a hold is written by src/core/hold/hold.c alone: what src/core/hold/hold.h lists under "State" is
# assigned to nowhere else. The names come from that header. Then the check itself is checked: it has to
# find each of some planted assignments, and no comparison.
set -eu

core=$HF_SOURCE_DIR/src/core
api=$HF_SOURCE_DIR/src/api

# The last word of each declarator between the heading and the end of the struct.
fields=$(sed -n '/---- State/,/^};/p' "$core/hold/hold.h" | sed -e 's,/\*.*,,' -e '/^ \*/d' | tr ',' ';' |
    grep -o '[a-z_]* *;' | tr -d ' ;' | sort -u | paste -sd '|')
count=$(tr '|' '\n' <<<"$fields" | wc -l)
[ "$count" -ge 25 ] || { echo "FAILED: only $count fields found in hold.h: $fields"; exit 1; }

# A hold is called hold, or is in an array of holds.
hold='(hold|holds?\[[^]]*\]|lost\[[^]]*\]|struct hfi_hold, [a-z_]*\))'
assigned="$hold->($fields)( *([-+|&^]|<<|>>)?=[^=]|\+\+|--)"
stepped="(\+\+|--)([a-z_]*->)*$hold->($fields)"
taken="&([a-z_]*->)*$hold->($fields)[^.a-z_]"

writes() {
    grep -nE -e "$assigned" -e "$stepped" "$@" || true
}

mapfile -t others < <(find "$core" "$api" -name '*.[ch]' ! -path "$core/hold/hold.c")
found=$(writes "${others[@]}")
# The queue of a hold may be looked at; no other address is given away.
found+=$(grep -nE "$taken" "${others[@]}" | grep -v '>queue' || true)
if [ -n "$found" ]; then
    echo "FAILED: the state of a hold is written outside of hold.c:"
    echo "$found"
    exit 1
fi
[ -n "$(writes "$core/hold/hold.c")" ] || { echo "FAILED: not even hold.c writes anything"; exit 1; }

planted=$(mktemp)
trap 'rm -f "$planted"' EXIT
planted_len=0
while read -r line; do
    echo "$line" >"$planted"
    planted_len=$((planted_len + 1))
    [ -n "$(writes "$planted")" ] || { echo "FAILED: not found: $line"; exit 1; }
done <<'END'
    hold->count = 1;
    op->hold->possession = HFI_HOLD_FREE;
    hold->generation++;
    ++op->hold->leaving;
    batch->holds[i]->renew_at_ms += 5;
    hold->orphaned |= true;
END
echo '    if (hold->count == 0 || op->hold->count >= 1)' >"$planted"
[ -z "$(writes "$planted")" ] || { echo "FAILED: a comparison is taken for an assignment"; exit 1; }
echo "$count fields, $planted_len planted assignments found"
