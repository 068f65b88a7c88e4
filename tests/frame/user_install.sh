#!/usr/bin/env bash
# `make install PREFIX=$HOME/.local` from the account of a user without rights, on a machine that has the packages: what
# docs/installing.md prints for the environment is enough to run the tool and to compile the README's program; and
# `make uninstall` leaves nothing. It builds everything anew, so only the soak runs it.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"
[ "$(id -u)" = 0 ] || { echo "skipped: needs root, to become another user"; exit 77; }
command -v setpriv >/dev/null || { echo "skipped: setpriv is not installed"; exit 77; }

home=$dir/home
mkdir -p "$home/tree"
tar -C "$HF_SOURCE_DIR" --exclude=./build --exclude=./.git -cf - . | tar -C "$home/tree" -xf -
chmod 755 "$dir" "$home"
chown -R 65533:65533 "$home"
# block LANGUAGE FILE PATTERN: the first block of that language that has the pattern.
block() {
    awk -v language="\`\`\`$1" -v pattern="$3" '$0 == language { on = 1; text = ""; next }
        /^```/ { if (on && text ~ pattern) { printf "%s", text; exit } on = 0 } on { text = text $0 "\n" }' "$2"
}
environment=$(block sh "$HF_SOURCE_DIR/docs/installing.md" 'export PKG_CONFIG_PATH')
as_user() { # SCRIPT
    setpriv --reuid 65533 --regid 65533 --clear-groups env -i HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin JOBS="${JOBS:-}" \
        HOLDFAST_URL="local:$home/server" nice sh -eu -c "cd ~/tree; $environment
$1"
}

test_install_use_uninstall() {
    [ -n "$environment" ] || fail "docs/installing.md prints no environment"
    local line
    line=$(block sh "$HF_SOURCE_DIR/docs/installing.md" 'make install')
    as_user "$line" >"$dir/log" 2>&1 || { cat "$dir/log"; fail "make install"; }
    expect 0 as_user 'command -v holdfast; holdfast run nightly -- echo held; man -w holdfast 2>/dev/null || :'
    [[ $out == "$home/.local/bin/holdfast"*held* ]] || fail "the tool: $out"
    block c "$HF_SOURCE_DIR/README.md" main >"$home/tree/report.c"
    line=$(grep -E '^cc report\.c' "$HF_SOURCE_DIR/README.md")
    expect 0 as_user "$line; ./report"
    same "$out" "only one process in the fleet is here"
    as_user 'make uninstall' >"$dir/log" 2>&1 || { cat "$dir/log"; fail "make uninstall"; }
    line=$(find "$home/.local" ! -type d 2>/dev/null) || : # it was not there before
    [ -z "$line" ] || fail "left behind: $line"
}

run_tests
