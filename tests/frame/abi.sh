#!/usr/bin/env bash
# What programs that are compiled already rely on: each function with its arguments, each struct with its size and the
# offsets of its members, each constant. It is as tests/frame/abi.txt says, for machines with 64 bits, and has all that
# tests/frame/abi-1.0.txt froze: that list only ever stays. Where abidiff is installed, the library is compatible with the
# header of the commit that last changed abi.txt.
#
#   bash tests/frame/abi.sh --print     prints the list
#   bash tests/frame/abi.sh --accept    writes it to abi.txt: for something new
#   bash tests/frame/abi.sh --freeze    writes it to both; refused once 1.0.0 is released (HF_VERSION_SUFFIX is empty)
set -eu

export LC_ALL=C
source=${HF_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
list=tests/frame/abi.txt
frozen=tests/frame/abi-1.0.txt
include=$source/include
header=$include/holdfast/holdfast.h
compiler=${CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# prototypes HEADER: each exported function in a line.
prototypes() {
    "$compiler" -E -P "$1" | tr '\n' ' ' | sed 's/;/;\n/g' | grep 'visibility("default")' |
        sed 's/.*visibility("default"))) *//; s/  */ /g; s/ *; *$//'
}

# structs: "struct.member" for each that programs can see into. In the preprocessed header a member is a line or more, up
# to a semicolon, and its name is the last word, or that in (*name).
structs() {
    "$compiler" -E -P "$header" | awk '
        /^typedef struct hf_[a-z_]+ \{/ { inside = $3; text = ""; next }
        inside == "" { next }
        /^}/ { inside = ""; next }
        { text = text " " $0
          if (text !~ /;/) next
          if (match(text, /\(\*[a-z_]+\)/)) name = substr(text, RSTART + 2, RLENGTH - 3)
          else { sub(/(\[[^]]*\])?;.*/, "", text); match(text, /[a-z_0-9]+$/); name = substr(text, RSTART) }
          print inside "." name; text = "" }'
}

# constants: enumerators, and macros that are numbers.
constants() {
    "$compiler" -E -P "$header" | tr '\n' ' ' | grep -oE 'enum( hf_[a-z_]+)? \{[^}]*\}' | grep -oE 'HF_[A-Z0-9_]+' || :
    "$compiler" -E -dM "$header" | grep -vE ' HF_VERSION_' |
        sed -nE 's/^#define (HF_[A-Z0-9_]+) ([-(0-9]|INT64_C).*/\1/p'
}

print_list() {
    structs >"$dir/structs"
    constants | sort -u >"$dir/constants"
    [ "$(wc -l <"$dir/structs")" -gt 60 ] && [ "$(wc -l <"$dir/constants")" -gt 50 ]
    {
        echo '#include <holdfast/holdfast.h>'
        echo '#include <stdio.h>'
        echo 'int main(void) {'
        echo '    if (sizeof(void *) != 8) return 77;'
        cut -d. -f1 "$dir/structs" | uniq | sed 's/.*/    printf("struct & %zu\\n", sizeof(&));/'
        sed -E 's/(.*)\.(.*)/    printf("member \1.\2 at %zu, %zu bytes\\n", offsetof(\1, \2), sizeof(((\1 *)0)->\2));/' \
            "$dir/structs"
        sed 's/.*/    printf("constant & %lld\\n", (long long)(&));/' "$dir/constants"
        echo '}'
    } >"$dir/print.c"
    "$compiler" -I"$include" -o "$dir/print" "$dir/print.c"
    "$dir/print" || return $?
    prototypes "$header" | sed 's/^/function /' | sort
}

status=0
print_list >"$dir/now" || status=$?
[ "$status" -ne 77 ] || { echo "SKIP abi: the list is for machines with 64 bits"; exit 77; }
[ "$status" -eq 0 ]
# Structs that programs make, or find in arrays or in other structs, without a size that they could say: these never grow.
fixed="hf_error hf_allocator hf_bytes hf_fence hf_permit_id hf_histogram hf_deadlock_step hf_deadlock"

# missing FROZEN NOW: what programs rely on by the first list, and no longer find in the second.
missing() {
    awk -v fixed=" $fixed " '
        NR == FNR { has[$0]; if ($1 == "struct") size[$2] = $3; next }
        $0 in has { next }
        $1 == "struct" && size[$2] + 0 > $3 + 0 && index(fixed, " " $2 " ") == 0 { next }
        { print; bad = 1 }
        END { exit !bad }' "$2" "$1"
}

for name in $fixed; do
    grep -q "^struct $name " "$dir/now" || { echo "FAILED: there is no struct $name"; exit 1; }
    grep -q "never grow" <(grep "\`$name\`" "$source/docs/abi.md") || { echo "FAILED: docs/abi.md does not say that $name never grows"; exit 1; }
done

released=yes
grep -q '^#define HF_VERSION_SUFFIX ""' "$header" || released=no
case ${1:-} in
--print) cat "$dir/now"; exit 0 ;;
--accept) cp "$dir/now" "$source/$list"; exit 0 ;;
--freeze)
    [ "$released" = no ] || { echo "1.0.0 is released: nothing of $frozen may change" >&2; exit 1; }
    cp "$dir/now" "$source/$list"
    cp "$dir/now" "$source/$frozen"
    exit 0
    ;;
esac
! missing "$source/$frozen" "$dir/now" || {
    echo "FAILED: programs that were compiled for 1.0 rely on these lines of $frozen"
    exit 1
}
# seen SED: such a change of what there is now is one that programs notice; not_seen: one that they do not.
seen() {
    sed -E "$1" "$dir/now" >"$dir/changed"
    ! cmp -s "$dir/now" "$dir/changed" || { echo "FAILED: changes nothing: $1"; exit 1; }
    missing "$source/$frozen" "$dir/changed" >"$dir/missing"
}
for change in '/^function int hf_lock_try/d' '/^constant HF_EBUSY/s/-1/-2/' '/^member hf_result.code/d' \
    '/^member hf_options.password/s/at 16/at 24/' 's/^(struct hf_options) .*/\1 8/' 's/^(struct hf_error) .*/\1 9999/' \
    '/^function int hf_version_num/s/void/int/'; do
    seen "$change" || { echo "FAILED: not seen: $change"; exit 1; }
done
! seen 's/^(struct hf_options) .*/\1 9999/; $a function int hf_new(void)' || { echo "FAILED: growth is taken for a break"; exit 1; }
diff -u "$source/$list" "$dir/now" || {
    echo "FAILED: $list is not what the header says. On purpose? bash tests/frame/abi.sh --accept"
    exit 1
}

# ---- The same by its debug information, against what it was when the list was last changed ----

command -v abidiff >/dev/null || { echo "abidiff is not installed: the list alone was compared"; exit 0; }
history() { git -c safe.directory="$source" -C "$source" "$@"; }
mkdir -p "$dir/then/holdfast"
commit=$(history log -1 --format=%H -- "$list" 2>/dev/null || :)
history diff --quiet HEAD -- "$list" 2>/dev/null || commit= # it is being changed right now
{ [ -n "$commit" ] && history show "$commit:include/holdfast/holdfast.h" >"$dir/then/holdfast/holdfast.h"; } 2>/dev/null ||
    cp "$header" "$dir/then/holdfast/holdfast.h"
{
    echo '#include <holdfast/holdfast.h>'
    prototypes "$dir/then/holdfast/holdfast.h" | sed 's/$/ { __builtin_trap(); }/'
} >"$dir/then.c"
library=$HF_BUILD_DIR/lib/libholdfast.so
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')
"$compiler" -g -w -shared -fPIC -I"$dir/then" -Wl,-soname,"$soname" -o "$dir/then.so" "$dir/then.c"
readelf -S "$library" | grep -q '\.debug_info' || { echo "the library has no debug information for abidiff"; exit 0; }

abidiff --drop-private-types --no-added-syms --headers-dir1 "$dir/then" --headers-dir2 "$include" \
    "$dir/then.so" "$library" || {
    echo "FAILED: programs that were compiled with the header of ${commit:-today} would notice, says abidiff"
    exit 1
}
