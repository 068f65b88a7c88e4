# What the tests of docs/recipes.md share: taking a recipe out of the page, with this test's server and paths put in.
# shellcheck shell=bash
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

# Where the recipes have /usr/local/bin and /app.
mkdir -p "$dir/local/bin" "$dir/app" "$dir/home"
ln -s "$HOLDFAST" "$dir/local/bin/holdfast"

# recipe FILE: the block of the page whose first line names that file. Url and paths are replaced, nothing else.
recipe() {
    awk -v first="# $1" '
        /^```/ { inside = 0; opened = /^```[a-z]/; next }
        opened { opened = 0; inside = $0 == first; found += inside }
        inside
        END { exit found != 1 }' "$HF_SOURCE_DIR/docs/recipes.md" >"$dir/recipe" ||
        fail "docs/recipes.md has no block, or more than one, that begins with: # $1"
    sed "s|redis://db\.example|unix://$socket|g; s|/usr/local/bin|$dir/local/bin|g; s|/app/|$dir/app/|g" "$dir/recipe"
}

# script FILE: what comes on standard input is a script that can be run.
script() {
    { echo '#!/bin/bash'; cat; } >"$1"
    chmod +x "$1"
}
skipped() { echo "[  SKIPPED ] $1"; }
lines() { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }
