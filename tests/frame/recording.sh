#!/usr/bin/env bash
# The recording on the README's first screen shows what scripts/demo prints today, but for numbers and who was first; its
# commands run as they are printed; and nothing of the machine that made it is in it. scripts/record-demo makes it anew.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

cast=$HF_SOURCE_DIR/docs/demo.cast
python=$(command -v python3 || :)
[ -n "$python" ] || { echo "skipped: there is no python3"; exit 77; }
"$python" - "$cast" >"$dir/recorded" <<'PROGRAM'
import json, re, sys
head, *events = open(sys.argv[1], encoding="utf-8").read().splitlines()
head = json.loads(head)
assert (head["version"], head["width"], head["height"]) == (2, 100, 30) and "timestamp" not in head, head
text = "".join(json.loads(event)[2] for event in events)
print(re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", ""), end="")
PROGRAM

# alike FILE: what is another in each run is replaced.
alike() {
    sed -E '/^holdfast: .report.: the guard/d; s/^( *state +).*/\1X/; s/[0-9a-f]{8}-[0-9a-f-]{27}/ID/; s/process [A-D]:/process X:/; s/^( *who +)[^ ]+ /\1HOST /; s/^(Try it: )[^ ]*/\1holdfast/
        s/[0-9]+/0/g; s/0\.0 s/0 s/; s/ +/ /g' "$1"
}

test_the_demo_prints_what_was_recorded() {
    # A terminal shows both streams.
    # shellcheck disable=SC2016
    expect 0 env -u HOLDFAST_URL DEMO_LEASE=9 sh -c 'exec "$@" 2>&1' sh "$HF_SOURCE_DIR/scripts/demo" "$HOLDFAST"
    cp "$dir/out" "$dir/printed"
    diff <(alike "$dir/recorded") <(alike "$dir/printed") >"$dir/err" ||
        fail "the recording is old: scripts/record-demo makes it anew"
}

test_the_commands_of_the_recording_run_as_printed() {
    local line count=0
    server_start
    export HOLDFAST_URL=unix://$socket
    mkdir -p "$dir/shell/tools"
    ln -sf "$HOLDFAST" "$dir/shell/tools/holdfast"
    cd "$dir/shell" || fail "no directory"
    for line in add-one long-report deploy; do
        printf '#!/bin/sh\n' >"$line"
        chmod +x "$line"
    done
    while read -r line; do
        case $line in
        *unlock*) redis hset deploy other:1 1 >/dev/null ;;
        esac
        expect 0 env PATH="$dir/shell/tools:$PATH" sh -c "$line"
        count=$((count + 1))
    done < <(sed -n 's/^  \$ //p' "$dir/recorded")
    [ "$count" -ge 5 ] || fail "only $count commands were found"
    free deploy || fail "still locked"
}

test_the_picture_is_of_the_recording() {
    local title words # each word is an element
    words=$(sed 's/<[^>]*>/ /g' "$HF_SOURCE_DIR/docs/demo.svg" | tr -s ' ')
    while read -r title; do
        [[ $words == *"$title"* ]] || fail "the picture lacks: $title"
    done < <(sed -nE 's/^[0-9]\. //p' "$dir/recorded")
    [ "$(stat -c %s "$HF_SOURCE_DIR/docs/demo.svg")" -lt 60000 ] || fail "the picture is large"
    ! grep -E '/(tmp|home|root|work)/' "$cast" || fail "a path of the machine that made it"
}

run_tests
