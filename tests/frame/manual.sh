#!/usr/bin/env bash
# The manual pages of section 3: each exported function has one, which names it and has words of its own; the overview has
# the rules for all of them; and mandoc finds no fault with any.
set -eu
fail() { echo "FAILED: $*"; exit 1; }
pages=$HF_BUILD_DIR/man3
[ -d "$pages" ] || { echo "skipped: this build was made without Python"; exit 77; }

exported=$(grep -o '^hf_[a-z0-9_]*' "$HF_SOURCE_DIR/tests/frame/exports.txt" | LC_ALL=C sort)
described=$(find "$pages" -name 'hf_*.3' -printf '%f\n' | sed 's/\.3$//' | LC_ALL=C sort)
[ -n "$exported" ] || fail "no exports"
difference=$(diff <(echo "$exported") <(echo "$described")) || fail "functions and pages differ: $difference"
for name in $exported; do
    page=$pages/$name.3
    grep -q "^\.Nm $name\( ,\)\?$" "$page" && grep -q "^\.Fo $name$" "$page" || fail "$name.3 does not show $name"
    [ "$(sed -n '/^\.Sh DESCRIPTION/,/^\.Sh SEE ALSO/p' "$page" | wc -w)" -gt 15 ] || fail "$name.3 says nothing"
done
version=$("$HF_SOURCE_DIR/scripts/version")
wrong=$(find "$pages" -name 'hf_*.3' -type f -exec grep -Lx ".Os holdfast $version" {} + || true)
[ -z "$wrong" ] || fail "not of version $version: $wrong"
for rule in Result Ownership Errors Blocking Times Owners Threads Callbacks fork; do
    sed -n '/^\.Sh RULES/,/^\.Sh RETURN/p' "$pages/holdfast.3" | grep -A 1 '^\.It' | grep -q "^$rule\b" ||
        fail "holdfast.3 lacks the rule about $rule"
done
grep -q '^Several locks\|^Many locks as one' "$pages/hf_lock_new_multi.3" || fail "a comment before a define is lost"
if command -v mandoc >/dev/null; then
    faults=$(find "$pages" "$HF_SOURCE_DIR/man" -name '*.3' -type f -exec mandoc -T lint -W warning {} +) || fail "$faults"
fi
