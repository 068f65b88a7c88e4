# What tests of metrics share, besides lib.sh, which they have read before.

support=$(dirname "${BASH_SOURCE[0]}")/../support

# lint FILE: the text format of Prometheus, without a complaint of `promtool check metrics`. Its rules are judged by a
# script, too, which is all there is where promtool is not installed.
lint() {
    if command -v promtool >/dev/null; then
        promtool check metrics <"$1" >"$dir/lint" 2>&1 || fail "promtool: $(cat "$dir/lint")"
    fi
    [ -x /usr/bin/python3 ] || return 0
    /usr/bin/python3 "$support/metrics_lint.py" <"$1" >"$dir/lint" 2>&1 || fail "$(cat "$dir/lint")"
}
