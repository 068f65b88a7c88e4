#!/usr/bin/env bash
# `make soak` in parts: each test is in one of them; a part that is green is not run again at the same commit, one that
# failed or was interrupted is; and the table says so. The tests themselves are replaced by a script.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

command -v git >/dev/null || { echo "skipped: git is not installed"; exit 77; }
tree=$dir/tree
soak=$tree/scripts/soak
parts=$("$HF_SOURCE_DIR/scripts/soak" --list | wc -l)
make_tree() {
    mkdir -p "$tree/scripts"
    git init -q "$tree"
    cp "$HF_SOURCE_DIR/scripts/soak" "$soak"
    cat >"$tree/scripts/test" <<'FAKE'
#!/bin/sh
echo "$*" >>ran
mkdir -p build/soak/java build/soak/peers build/soak/history # The build's, and its tests'.
[ ! -e interrupt ] || kill -TERM $PPID
case "$*" in
*"$(cat fails 2>/dev/null || echo nothing)"*) echo "3 passed, 1 failed, 0 skipped"; exit 1 ;;
esac
echo "4 passed, 0 failed, 1 skipped"
FAKE
    chmod +x "$tree/scripts/test"
    printf 'ran\nfails\ninterrupt\nbuild\n' >"$tree/.gitignore"
    git -C "$tree" add -A
    next_commit
}
next_commit() {
    git -C "$tree" -c user.name=x -c user.email=x@holdfast.invalid commit -q --allow-empty -m x
    : >"$tree/ran"
}
runs() { wc -l <"$tree/ran"; }

test_each_test_is_in_one_part() {
    local part options missing
    ctest --test-dir "$HF_BUILD_DIR" -N | sed -n 's/^ *Test *#[0-9]*: //p' | sort >"$dir/tests"
    : >"$dir/parts"
    while read -r part options; do
        # The options are words.
        # shellcheck disable=SC2086
        ctest --test-dir "$HF_BUILD_DIR" -N $options | sed -n 's/^ *Test *#[0-9]*: //p' >"$dir/part"
        [ -s "$dir/part" ] || fail "$part has no tests"
        cat "$dir/part" >>"$dir/parts"
    done < <("$HF_SOURCE_DIR/scripts/soak" --list)
    [ "$parts" -ge 8 ] || fail "only $parts parts"
    missing=$(diff "$dir/tests" <(sort "$dir/parts")) || fail "in no part, or in two: $missing"
}

test_what_is_green_is_not_run_again() {
    local first
    make_tree
    expect 0 "$soak"
    same "$(runs)" "$parts"
    same "$(grep -cE '4 passed, 0 failed, 1 skipped \| 0 \| [0-9a-f]{10} \|$' "$dir/out")" "$parts"
    expect 0 "$soak"
    same "$(runs)" "$parts"
    expect 0 "$soak" zk lock
    same "$(runs)" $((parts + 2))
    expect 0 env PART='zk lock' "$soak"
    same "$(runs)" $((parts + 4))
    expect 2 "$soak" nonsense

    # Another commit is another soak, unless it is said that earlier ones count; so is what is not committed.
    first=$(git -C "$tree" rev-parse HEAD)
    next_commit
    expect 1 "$soak" --table
    expect 0 env HF_SOAK_SINCE="$first" "$soak" --table
    expect 0 "$soak"
    same "$(runs)" "$parts"
    echo change >>"$tree/.gitignore"
    expect 1 "$soak" --table
    git -C "$tree" checkout -q .gitignore
    expect 0 "$soak" --table
}

test_what_failed_is_run_again() {
    make_tree
    echo '(zk)' >"$tree/fails"
    expect 1 "$soak"
    same "$(runs)" "$parts"
    [[ $out == *'| zk | 3 passed, 1 failed, 0 skipped |'* ]] || fail "the table: $out"
    rm "$tree/fails"
    expect 0 "$soak"
    same "$(runs)" $((parts + 1))
}

test_an_interrupted_part_is_run_again() {
    make_tree
    touch "$tree/interrupt"
    "$soak" zk >"$dir/out" 2>&1 && fail "it was not interrupted"
    rm "$tree/interrupt"
    expect 1 "$soak" --table
    expect 0 "$soak"
    [ "$(grep -c '(zk)' "$tree/ran")" -ge 2 ] || fail "it counts as green"
}

run_tests
