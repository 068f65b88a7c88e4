#!/usr/bin/env bash
# tests/behaviours.md names the tests that there are: every row has one, every id in a test has a row.
# Then the check itself is checked: it has to find a row without a test, an id without a row, an id
# with two rows, and a case that the page does not name.
set -eu

"$HF_SOURCE_DIR/scripts/behaviours" --check

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/scripts" "$copy/tests/lock"
cp "$HF_SOURCE_DIR/scripts/behaviours" "$copy/scripts"
echo 'CASE(C002_first) {' >"$copy/tests/lock/test_one.c"
page=$copy/tests/behaviours.md

# finds WHAT ROW...: a page of these rows is refused, with these words.
finds() {
    local wanted=$1 said
    shift
    printf '%s\n' '| id | behaviour | tests |' '|---|---|---|' "$@" >"$page"
    if said=$("$copy/scripts/behaviours" --check) || ! grep -qF "$wanted" <<<"$said"; then
        echo "FAILED: expected [$wanted], got [$said]"
        exit 1
    fi
}
# shellcheck disable=SC2016 # backquotes of a page
first='| C002 | A client does it. | lock.one: `C002_first` |'
printf '%s\n' "$first" >"$page"
"$copy/scripts/behaviours" --check
finds 'C003 has no test' "$first" '| C003 | A client does more. |  |'
finds 'C002 has two rows' "$first" "$first"
finds 'does not name the present tests' '| C002 | A client does it. | lock.two: |'
finds 'C002 has no row' '| U01 | A client does it. |  |'
echo "$0: ok"
