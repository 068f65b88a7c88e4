#!/usr/bin/env bash
# The two READMEs say the same, and what they print works.
#
# README.md and README.zh-CN.md have the same headings, lists, tables, links and code, in the same order; only prose
# and the comments in code are translated. The same is true of each page in docs/ that has a Chinese one beside it.
# The programs of the READMEs compile, link and run as they are printed, with nothing around them; so do the lines for
# the shell, in blocks and in tables. Both are short. A name is used for one kind of lock, the numbers are those of
# docs/benchmarks.md, and no document has a link that leads nowhere. The commands of docs/coming-from.md run, too.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

readmes=("$HF_SOURCE_DIR/README.md" "$HF_SOURCE_DIR/README.zh-CN.md")
translated=("$HF_SOURCE_DIR"/docs/*.zh-CN.md)
server_start
export HOLDFAST_URL=unix://$socket

# block FILE LANGUAGE NUMBER: the text of the file's block of that language, counted from 1.
block() {
    awk -v opening="\`\`\`$2" -v wanted="$3" '
        $0 == opening { inside = ++count == wanted; next }
        /^```/ { inside = 0 }
        inside' "$1"
}
count_blocks() { grep -cxF "\`\`\`$2" "$1"; }

# anchors FILE: what GitHub makes of its headings, a line each.
anchors() {
    awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //; s/`//g; s/\[([^]]*)\]\([^)]*\)/\1/g' |
        tr '[:upper:]' '[:lower:]' | LC_ALL=C.UTF-8 sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
}
# numbered_headings DIRECTORY PAGE: of each link of a skeleton to a heading, the number of that heading in its page.
numbered_headings() {
    local line target
    while IFS= read -r line; do
        case $line in
        'link http'*) ;;
        'link '*'#'*)
            target=${line#link } target=${target%%#*}
            line="link $target, heading $(anchors "$1/${target:-$2}" | grep -nxF -e "${line#*#}" || echo "${line#*#}")"
            line=${line%%:*}
            ;;
        esac
        printf '%s\n' "$line"
    done
}
# skeleton FILE [AS]: what both languages must share, a line each. Its links are those of the page AS.
skeleton() {
    local page=${2:-$1}
    awk '
        # Numbers in a row of a table.
        function numbers(text) {
            gsub(/\]\([^)]*\)|`[^`]*`/, "", text)
            while (match(text, /[0-9]+([.,][0-9]+)*/)) {
                print "number " substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
            }
        }
        # Links, and code within the text.
        function inner(text) {
            while (match(text, /\]\([^)]*\)|`[^`]*`/)) {
                if (substr(text, RSTART, 1) == "`")
                    print "code " substr(text, RSTART + 1, RLENGTH - 2)
                else
                    print "link " substr(text, RSTART + 2, RLENGTH - 3)
                text = substr(text, RSTART + RLENGTH)
            }
        }
        function code(text) {
            if (language == "sh")
                sub(/(^|[ \t])#.*/, "", text)
            else
                gsub(/\/\*[^*]*\*\/|\/\/.*/, "", text)
            sub(/[ \t]+$/, "", text)
            return text
        }
        /^```/ { language = language == "" ? substr($0, 4) : ""; print "block " language; next }
        language != "" { print "  " code($0); next }
        /^#+ / { print "heading " $1; next }
        /^\|/ { print "row of " gsub(/\|/, "|"); numbers($0); inner($0); next }
        /^(-|[0-9]+\.) / { print "item" }
        { inner($0) }' "$1" | numbered_headings "$(dirname "$page")" "$(basename "$page")" |
        # Each links to the other, and then to pages of its own language.
        sed -E '/^link /s/\.zh-CN\.md/.md/'
}

# prose_numbers FILE: the numbers outside code, sorted, since the order of words differs.
prose_numbers() {
    awk '/^```/ { code = !code } !code' "$1" | sed -E 's/\]\([^)]*\)|`[^`]*`//g' |
        grep -oE '[0-9]+([.,][0-9]+)*' | sort
}
# in_step ENGLISH CHINESE: both have the same skeleton, and the same numbers.
in_step() {
    { skeleton "$1"; prose_numbers "$1"; } >"$dir/english.skeleton"
    { skeleton "$2"; prose_numbers "$2"; } >"$dir/chinese.skeleton"
    [ "$(grep -c '^heading' "$dir/english.skeleton")" -ge 8 ] || fail "no headings in $1"
    diff -U 2 "$dir/english.skeleton" "$dir/chinese.skeleton" >"$dir/err" ||
        fail "$(basename "$1") and $(basename "$2") are not in step"
}
test_both_languages_have_the_same_headings_code_tables_and_links() {
    local page
    in_step "${readmes[@]}"
    for page in "${translated[@]}"; do
        in_step "${page%.zh-CN.md}.md" "$page"
    done
    [ "${#translated[@]}" -ge 3 ] || fail "only ${#translated[@]} pages of docs/ are translated"
}

# links FILE: where its links lead, a line each.
links() { awk '/^```/ { code = !code } !code' "$1" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//'; }
test_a_page_links_to_the_other_language_first_and_then_to_its_own() {
    local chinese english link
    for chinese in "${readmes[1]}" "${translated[@]}"; do
        english=${chinese%.zh-CN.md}.md
        same "$(links "$chinese" | sed -n 1p)" "$(basename "$english")" "first link of $chinese"
        same "$(links "$english" | sed -n 1p)" "$(basename "$chinese")" "first link of $english"
        while read -r link; do
            link=${link%%#*}
            case $link in
            http* | *.zh-CN.md) ;;
            *.md) [ ! -e "$(dirname "$chinese")/${link%.md}.zh-CN.md" ] || fail "$chinese: $link is there in Chinese" ;;
            esac
        done < <(links "$chinese" | tail -n +2)
        ! links "$english" | tail -n +2 | grep -F .zh-CN.md >"$dir/err" || fail "$english links to Chinese pages"
    done
}

# The check above sees a change of one alone: each of these is one.
test_a_change_of_one_language_is_seen() {
    local original=${readmes[0]} change
    skeleton "$original" >"$dir/before"
    for change in '0,/^## /s//### /' '/^## In C$/d' 's/puts(/printf(/' 's/-N 3/-N 4/' '/^- \[/d' \
        's|docs/fencing.md|docs/fence.md|' '/^| .*fencing.md/d' 's/`holdfast doctor`/`doctor`/' '/^1\. /d' \
        '/^|fair|/d' '/^| 64 /s/64/65/' 's/recipes\.md)/recipe.md)/'; do
        sed "$change" "$original" >"$dir/changed"
        ! cmp -s "$original" "$dir/changed" || fail "changes nothing: $change"
        skeleton "$dir/changed" "$original" >"$dir/after"
        ! cmp -s "$dir/before" "$dir/after" || fail "not seen: $change"
    done
    # And these are none.
    sed 's|/\* [^*]*\*/|/* 中文 */|; s/  # .*/ # 中文/; s/^Lock\/unlock pairs .*/其他/; s/|yes|/|是|/' "$original" >"$dir/changed"
    skeleton "$dir/changed" "$original" >"$dir/after"
    diff "$dir/before" "$dir/after" >"$dir/err" || fail "a translation counts as a change"
}

# printed_line FILE PATTERN: the line of a block that begins so.
printed_line() { grep -E "^$2" "$1" || fail "$1 has no line $2"; }

# `pkg-config` answers as for an installed library, so that the line to compile with runs as it is printed.
fake_pkg_config() {
    mkdir -p "$dir/tools"
    cat >"$dir/tools/pkg-config" <<TOOL
#!/bin/sh
[ "\$*" = "--cflags --libs holdfast" ] || exit 1
echo "-I$HF_SOURCE_DIR/include -L$HF_BUILD_DIR/lib -lholdfast"
TOOL
    chmod +x "$dir/tools/pkg-config"
}
# runs_alone PROGRAM: it takes the lock, says so, and gives it back.
runs_alone() {
    redis config resetstat >/dev/null
    expect 0 env LD_LIBRARY_PATH="$HF_BUILD_DIR/lib" "$1"
    same "$out" "only one process in the fleet is here"
    [ "$(redis info commandstats | grep -c '^cmdstat_hset:')" = 1 ] || fail "$1 locked nothing"
    free nightly || fail "still locked"
}

test_the_programs_compile_and_run_as_printed() {
    local file
    fake_pkg_config
    for file in "${readmes[@]}"; do
        same "$(count_blocks "$file" c) $(count_blocks "$file" cpp)" "1 1" "blocks of C and C++"
        block "$file" c 1 >"$dir/report.c"
        printed_line "$file" 'cc report\.c .*' >"$dir/compile.sh"
        (cd "$dir" && PATH=$dir/tools:$PATH sh -e compile.sh) >"$dir/err" 2>&1 || fail "does not compile"
        runs_alone "$dir/report"

        if command -v "${CXX:-c++}" >/dev/null; then
            block "$file" cpp 1 >"$dir/report.cpp"
            echo "${CXX:-c++} -std=c++17 report.cpp \$(pkg-config --cflags --libs holdfast) -o report_cpp" \
                >"$dir/compile.sh"
            (cd "$dir" && PATH=$dir/tools:$PATH sh -e compile.sh) >"$dir/err" 2>&1 || fail "does not compile"
            runs_alone "$dir/report_cpp"
        fi
    done
}

# The lines of all blocks for the shell that run the tool, and the commands in tables.
tool_lines() {
    awk '
        /^```sh$/ { inside = 1; next }
        /^```/ { inside = 0 }
        inside && /^holdfast /
        /^\|/ {
            while (match($0, /`holdfast [^`]*`/)) {
                print substr($0, RSTART + 1, RLENGTH - 2)
                $0 = substr($0, RSTART + RLENGTH)
            }
        }' "$1"
}

test_the_lines_for_the_shell_run_as_printed() {
    local script line count=0
    mkdir -p "$dir/shell/tools"
    ln -sf "$HOLDFAST" "$dir/shell/tools/holdfast"
    cd "$dir/shell" || fail "no directory"
    for script in $(tool_lines "${readmes[0]}" | grep -oE '\./[a-z]+\.sh' | sort -u); do
        printf '#!/bin/sh\necho "$HOLDFAST_KIND $HOLDFAST_NAME $HOLDFAST_TOKEN" >>ran\n' >"$script"
        chmod +x "$script"
    done
    while read -r line; do
        # HOLDFAST_COUNT, HOLDFAST_ONCE: what would go on for ever ends after the first time
        expect 0 env PATH="$dir/shell/tools:$PATH" HOLDFAST_COUNT=1 HOLDFAST_ONCE=yes sh -c "$line"
        count=$((count + 1))
    done < <(tool_lines "${readmes[0]}")
    [ "$count" -ge 15 ] || fail "only $count lines were found"
    same "$(sed 's/ *$//; s/[0-9][0-9]*$/TOKEN/' ran | sort | tr '\n' ',')" \
        'fair printer,fenced ledger TOKEN,permit thumbs,plain nightly,plain nightly,plain scheduler,plain stock orders,read catalog,write catalog,'
}

test_the_front_page_is_short() {
    local file words
    words=$(wc -w <"${readmes[0]}")
    [ "$words" -le 1000 ] || fail "README.md has $words words"
    for file in "${readmes[@]}"; do
        [ "$(block "$file" c 1 | wc -l)" -le 22 ] || fail "more than 22 lines of C"
        [ "$(block "$file" cpp 1 | wc -l)" -le 10 ] || fail "more than 10 lines of C++"
        printed_line "$file" 'make install' >/dev/null
        printed_line "$file" 'make demo' >/dev/null
        printed_line "$file" 'make test' >/dev/null
    done
}

test_a_name_is_used_for_one_kind() {
    tool_lines "${readmes[0]}" | grep '^holdfast run' | awk '
        {
            kind = "plain"
            for (i = 3; i <= NF && $i ~ /^-/; i++) {
                if ($i == "-s" || $i == "--write") kind = "read/write"
                else if ($i == "-N") { kind = "slots"; i++ }
                else if ($i != "-n") kind = $i
            }
            if (($i in kinds) && kinds[$i] != kind) { print $i ": " kinds[$i] " and " kind; bad = 1 }
            kinds[$i] = kind
        }
        END { exit bad || NR < 7 }' >"$dir/err" || fail "a name for two kinds, or too few lines"
}

# as_script NUMBER FILE: a block of docs/coming-from.md, as a program.
as_script() {
    block "$HF_SOURCE_DIR/docs/coming-from.md" sh "$1" >"$2"
    [ -s "$2" ] || fail "docs/coming-from.md has no block $1"
    chmod +x "$2"
}
test_the_commands_of_coming_from_run_as_printed() {
    local words PATH=$dir/coming:$PATH
    words=$(wc -w <"$HF_SOURCE_DIR/docs/coming-from.md")
    [ "$words" -le 1500 ] || fail "docs/coming-from.md has $words words"
    same "$(count_blocks "$HF_SOURCE_DIR/docs/coming-from.md" sh)" 3 "blocks for the shell"
    mkdir -p "$dir/coming"
    ln -sf "$HOLDFAST" "$dir/coming/holdfast"
    cd "$dir/coming" || fail "no directory"

    as_script 1 ./itself
    expect 0 ./itself
    same "$out" "only one of these runs in the fleet"
    expect 75 hf run report -- env -u HOLDFAST_NAME ./itself
    expect 0 hf run other -- ./itself
    same "$out" "only one of these runs in the fleet"

    as_script 2 ./steps
    expect 0 sh ./steps
    same "$out" "first step
second step"
    free deploy || fail "still locked"

    as_script 3 ./cron
    sed -i 's/ 5m / 100ms /' ./cron
    expect 0 sh ./cron
    same "$out" "the report"
    expect 0 hf run nightly -- sh ./cron
    same "$out" ""
}

# A string lock and a lock of ours under one name, as docs/coming-from.md has it.
test_a_string_lock_and_ours_keep_each_other_out() {
    local option
    for option in -x --fair -s -W --fenced --spin; do
        same "$(redis set "old$option" token nx px 60000)" OK
        expect 65 hf run "$option" "old$option" -- true
        expect 0 hf run "$option" "new$option" -- redis-cli -s "$socket" set "new$option" token nx
        same "$out" ""
    done
}

# measured ROW LIBRARY: the ratio in the table of other libraries.
measured() {
    awk -F'|' -v row="$1" -v library="$2" '
        function bare(text) { gsub(/^ +| +$|\*/, "", text); return text }
        bare($2) != "" { current = bare($2) }
        current == row && bare($3) == library { print bare($5) }' "$HF_SOURCE_DIR/docs/benchmarks.md"
}
# number LINE-PATTERN ROW LIBRARY FORMAT: that line of each README has the measured ratio, rounded.
number() {
    local file wanted
    # shellcheck disable=SC2059
    wanted=$(printf "$4" "$(measured "$2" "$3")")
    for file in "${readmes[@]}"; do
        grep -E "$1" "$file" | grep -qE "[^0-9.]${wanted}[^0-9.]" ||
            fail "$(basename "$file"): docs/benchmarks.md has $wanted for: $2, $3"
    done
}
test_the_numbers_are_those_of_the_benchmarks() {
    number '^\| 64 .*Redisson' '64 threads' 'Redisson 4.7' '%.1f'
    number '^\| 8 .*Redisson' '8 clients, fair' 'Redisson 4.7' '%.1f'
    number '^\| 8 .*redis-py' '8 clients drain' 'redis-py' '%.0f'
    number '^(\(With one thread|.*单线程)' '1 thread' 'Redisson 4.7' '%.1f'
}

test_no_document_has_a_link_that_leads_nowhere() {
    local file link target anchor count=0
    for file in "${readmes[@]}" "$HF_SOURCE_DIR"/CONTRIBUTING.md "$HF_SOURCE_DIR"/docs/*.md; do
        while read -r link; do
            case $link in http*) continue ;; esac
            count=$((count + 1))
            target=${link%%#*} anchor=
            case $link in *'#'*) anchor=${link#*#} ;; esac
            [ -n "$target" ] && target=$(dirname "$file")/$target || target=$file
            [ -e "$target" ] || fail "$(basename "$file"): $link is not there"
            [ -z "$anchor" ] || anchors "$target" | grep -qxF -e "$anchor" ||
                fail "$(basename "$file"): $link: no such heading"
        done < <(links "$file")
    done
    [ "$count" -ge 50 ] || fail "only $count links were found"
}

run_tests
