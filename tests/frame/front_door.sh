#!/usr/bin/env bash
# What a person sees of `make`, `make test` and the set-up: how far it is, on a terminal and in a log; what
# failed, in full, and the counts in the last line. The real scripts and the real ctest, on a project of a few
# lines, with a `cmake` that only says what a build would.
# shellcheck disable=SC1091,SC2154
. "$HF_SOURCE_DIR/tests/cli/lib.sh"

unset -v V JOBS HF_PROGRESS TERM COLUMNS
unset -v MAKEFLAGS MAKELEVEL CTEST_OUTPUT_ON_FAILURE CTEST_PARALLEL_LEVEL
export HF_PROGRESS_S=1
place=$dir/place
mkdir -p "$place/scripts" "$dir/fake"
cp "$HF_SOURCE_DIR"/scripts/{build,progress,results,test} "$place/scripts/"
PATH=$dir/fake:$PATH

# Configuring writes down the tests of the preset; building takes $build_s and fails for $broken.
cat >"$dir/fake/cmake" <<'END'
#!/usr/bin/env bash
case $1 in
--preset)
    mkdir -p "build/$2"
    [ "${unconfigured:-}" != "$2" ] || { echo "no such compiler"; exit 1; }
    cp "../tests.$2" "build/$2/suite.cmake"
    ;;
--build)
    echo "[1/2] Building C object tests/CMakeFiles/test_x.dir/lock/test_x.c.o"
    sleep "${build_s:-0}" # a build that takes its time
    [ "build/${broken:-}" != "$2" ] || { echo "x.c:1: error: that is not C"; exit 1; }
    echo "[2/2] Linking C executable bin/test_x"
    ;;
esac
END
chmod +x "$dir/fake/cmake"

# tests PRESET NAME COMMAND [TIMEOUT]: adds a test, of bash, to what that preset will have.
tests() {
    cat >>"$dir/tests.$1" <<END
add_test(\${suite_prefix}$2 \${suite_wrapper} bash -c [==[$3]==])
set_tests_properties(\${suite_prefix}$2 PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${4:-30}
  FIXTURES_REQUIRED "\${suite_needs}")
END
}
no_tests() {
    local preset
    for preset in test asan tsan soak release; do
        : >"$dir/tests.$preset"
    done
    tests asan good 'exit 0'
    tests tsan good 'exit 0'
}
slow='sleep 4' # a test that takes its time, longer than from one report to the next
all_kinds_of_tests() {
    no_tests
    tests test good 'echo nobody sees this'
    tests test bad 'echo the words of the bad one; exit 1'
    tests test crashed 'echo before the crash; kill -SEGV $$'
    tests test hung 'echo before the wait; exec stay' 4
    tests test elsewhere 'echo not here; exit 77'
    tests test partly 'echo "[  SKIPPED ] a_case_of_it"'
}

# On a terminal of 80 columns; its output as it came is in $out.
on_terminal() {
    local wanted=$1
    shift
    printf -v command '%q ' "$@"
    env TERM=xterm script -q -e -c "stty cols 80; $command" "$dir/typescript" >"$dir/out" 2>&1
    same "$?" "$wanted" status
    out=$(cat "$dir/out")
    out=${out//$'\r\n'/$'\n'}
    out=${out%$'\r'}
}
shows() { # PATTERN
    [[ $out =~ $1 ]] || fail "no '$1' in: $out"
}
shows_not() {
    [[ ! $out =~ $1 ]] || fail "'$1' in: $out"
}
last_line() { same "${out##*$'\n'}" "$1" "the last line"; }
plain_text() {
    shows_not $'\r'
    shows_not $'\033'
}

test_log_shows_what_runs_and_how_much_is_done() {
    no_tests
    tests test slow "$slow"
    tests test quick 'exit 0'
    expect 0 "$place/scripts/test"
    plain_text
    shows $'\n''holdfast: 6 tests, [0-9]+ at a time'$'\n'
    shows $'\n''holdfast: tests \[[0-9]/6\] 0:[0-9]{2}, running: ([^,]*, )*slow [1-9][0-9]* s'
    shows 'plain: 2 passed, 0 failed, 0 skipped'
    shows 'ASan\+UBSan: 2 passed, 0 failed, 0 skipped' # its build is a test as well
    shows 'TSan: 2 passed, 0 failed, 0 skipped'
    shows 'the tests ran for 0 min [0-9]+ s'
    last_line '6 passed, 0 failed, 0 skipped'
}

test_terminal_shows_it_in_one_line_that_fits() {
    no_tests
    tests test slow_with_a_name_that_is_as_long_as_a_line_of_the_terminal_and_longer_than_that "$slow"
    on_terminal 0 "$place/scripts/test" </dev/null
    shows $'\r\033\\[Kholdfast: building test \\[1/2\\] 0:[0-9]{2}: tests/lock/test_x.c'
    shows $'\r\033\\[Kholdfast: tests \\[[0-9]/5\\] 0:[0-9]{2}, running: '
    shows $'\r\033\\[Kholdfast: the tests ran' # the line is gone when it has ended
    last_line '5 passed, 0 failed, 0 skipped'
    local piece
    while IFS= read -r piece; do
        [ "${#piece}" -lt 80 ] || fail "too long: $piece"
    done < <(tr '\r' '\n' <<<"$out" | sed 's/\x1b\[K//')
}

check_all_kinds() {
    shows 'holdfast: FAILED bad: Failed after [0-9.]+ s'
    shows 'holdfast: FAILED crashed: Exception: SegFault after'
    shows 'holdfast: FAILED hung: Timeout after'
    local end=${out##*the tests ran for}
    out=$end shows 'the words of the bad one'
    out=$end shows 'before the crash'
    out=$end shows 'before the wait'
    shows_not 'nobody sees this'
    shows_not 'Start +[0-9]+: '
    shows $'\n''  FAILED   bad'$'\n'
    shows $'\n''  FAILED   crashed'$'\n'
    shows $'\n''  FAILED   hung'$'\n'
    shows $'\n''  skipped  elsewhere'$'\n'
    shows $'\n''  skipped  partly, case a_case_of_it'$'\n'
    shows $'\n''plain: 2 passed, 3 failed, 2 skipped'$'\n'
    last_line '6 passed, 3 failed, 2 skipped'
}

test_failures_skips_and_time_outs_in_a_log() {
    all_kinds_of_tests
    expect 1 "$place/scripts/test"
    plain_text
    check_all_kinds
}

test_failures_skips_and_time_outs_on_a_terminal() {
    all_kinds_of_tests
    on_terminal 1 "$place/scripts/test" </dev/null
    check_all_kinds
}

test_v_shows_every_line() {
    all_kinds_of_tests
    expect 1 env V=1 "$place/scripts/test"
    plain_text
    shows 'nobody sees this'
    shows '\[2/2\] Linking C executable'
    shows_not 'running: '
    last_line '6 passed, 3 failed, 2 skipped'
}

test_options_of_ctest_choose_tests() {
    all_kinds_of_tests
    expect 0 "$place/scripts/test" all -R '^(good|partly)$'
    last_line '2 passed, 0 failed, 1 skipped'
    expect 1 "$place/scripts/test" all -R nothing_of_that_name
    last_line '0 passed, 1 failed, 0 skipped'
    expect 2 "$place/scripts/test" everything
}

test_soak_is_one_build() {
    no_tests
    tests soak good 'exit 0'
    expect 0 "$place/scripts/test" soak
    shows 'soak: 1 passed'
    last_line '1 passed, 0 failed, 0 skipped'
}

test_plain_build_that_fails_is_shown_and_ends_it() {
    all_kinds_of_tests
    expect 1 env broken=test "$place/scripts/test"
    shows 'error: that is not C'
    shows 'building the preset test failed'
    last_line '0 passed, 1 failed, 0 skipped'
}

test_other_build_that_fails_takes_its_tests_along() {
    no_tests
    tests test good 'exit 0'
    expect 1 env broken=asan "$place/scripts/test"
    shows 'error: that is not C'
    shows $'\n''  FAILED   asan.build'$'\n'
    shows $'\n''  NOT RUN  asan.good'$'\n'
    shows 'ASan\+UBSan: 0 passed, 2 failed, 0 skipped'
    shows 'TSan: 2 passed, 0 failed, 0 skipped'
    last_line '3 passed, 2 failed, 0 skipped'
    expect 1 env unconfigured=tsan "$place/scripts/test"
    shows 'no such compiler'
    last_line '3 passed, 1 failed, 0 skipped'
}

test_build_says_how_far_it_is() {
    no_tests
    expect 0 env build_s=3 "$place/scripts/build" release
    plain_text
    shows 'holdfast: building release \[1/2\] 0:[0-9]{2}: tests/lock/test_x.c'
    shows $'\n''holdfast: build/release is built \(2 steps, ([3-9]|[1-9][0-9]) s\)$'
}

test_build_that_fails_shows_the_log() {
    no_tests
    expect 1 env broken=release "$place/scripts/build" release
    shows 'error: that is not C'
    last_line 'holdfast: building the preset release failed'
}

# Should the one who tells of it die, nothing else does.
test_result_does_not_depend_on_who_shows_it() {
    all_kinds_of_tests
    printf '#!/bin/sh\nexit 1\n' >"$dir/dead"
    chmod +x "$dir/dead"
    cp -r "$place" "$dir/other_place"
    cp "$dir/dead" "$dir/other_place/scripts/progress"
    expect 1 "$dir/other_place/scripts/test"
    shows 'the words of the bad one'
    last_line '6 passed, 3 failed, 2 skipped'
}

test_ctrl_c_ends_it_all() {
    no_tests
    tests test endless "echo \$\$ >'$dir/pid'; exec stay"
    (
        wait_until file_filled "$dir/pid"
        printf '\003'
        wait_until ended "$(cat "$dir/pid")"
    ) | on_terminal 130 "$place/scripts/test"
    same "${PIPESTATUS[*]}" '0 0'
    out=$(cat "$dir/out")
    shows '\^C'
    shows_not 'passed'
}

test_packages_are_recognised_by_what_apt_says() {
    cat >"$dir/apt" <<'END'
dlstatus:1:12.5000:Retrieving file 3 of 24
pmstatus:redis-server:41.1765:Unpacking redis-server (amd64)
nothing of this kind
END
    HF_PROGRESS_S=0 "$place/scripts/progress" packages 'installing packages' <"$dir/apt" >"$dir/out"
    same "$(sed 's/ 0:[0-9]*//' "$dir/out")" "holdfast: installing packages
holdfast: installing packages 12%: Retrieving file 3 of 24
holdfast: installing packages 41%: Unpacking redis-server (amd64)"
}

# A line that comes in pieces, as ctest writes it when one test runs at a time, is one line.
test_line_in_pieces() {
    {
        echo '      Start  1: slow'
        printf '1/2 Test  #1: slow ......'
        sleep 2 # the first piece is to be reported before the rest is there
        echo '***Failed    2.01 sec'
    } | "$place/scripts/progress" tests tests 2 >"$dir/out"
    out=$(cat "$dir/out")
    shows 'holdfast: tests \[0/2\] 0:[0-9]{2}, running: slow'
    shows 'holdfast: FAILED slow: Failed after 2.01 s'
}

command -v script >/dev/null || { echo "no script(1)"; exit 77; }
run_tests
