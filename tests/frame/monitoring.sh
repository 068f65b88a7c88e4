#!/usr/bin/env bash
# The alerts and the dashboard for Prometheus and Grafana: promtool accepts every query, each alert fires when it should
# and not otherwise, and each metric that they ask for is one that `holdfast serve` has: with the labels that they name.
# Grafana itself has not seen the dashboard.
# shellcheck disable=SC1091,SC2154
. "$HF_SOURCE_DIR/tests/cli/lib.sh"
. "$HF_SOURCE_DIR/tests/cli/lib_serve.sh"
command -v promtool >/dev/null || { echo "skipped: there is no promtool"; exit 77; }
server_start
cd "$HF_SOURCE_DIR/monitoring" || exit

test_the_dashboard_is_as_its_table_says() {
    python3 dashboard.py | cmp - holdfast.json || fail "run monitoring/dashboard.py >monitoring/holdfast.json"
}

test_queries_are_valid() {
    promtool check rules holdfast.rules.yml >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
    jq '{groups: [{name: "dashboard", rules: [.panels[].targets[] | {record: "query", expr: (.expr | gsub("\\$__rate_interval"; "1m") | gsub("\\$lock"; ".*"))}] | to_entries | map(.value + {record: "query_\(.key)"})}]}' \
        holdfast.json >"$dir/queries.yml"
    [ "$(jq '.groups[0].rules | length' "$dir/queries.yml")" -ge 16 ] || fail "queries are missing"
    promtool check rules "$dir/queries.yml" >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
}

# fires ALERT SERIES VALUES AT: with these values it is there at that time; without them, or with zeros, never.
fires() {
    jq -n --arg alert "$1" --arg series "$2" --arg values "$3" --arg at "$4" --arg rules "$PWD/holdfast.rules.yml" '{
        rule_files: [$rules], evaluation_interval: "10s", tests: [
        {interval: "10s", input_series: [{series: $series, values: $values}, {series: "up{job=\"holdfast\"}", values: "1x400"}],
         promql_expr_test: [{expr: "count(ALERTS{alertname=\"\($alert)\",alertstate=\"firing\"}) > 0", eval_time: $at,
                             exp_samples: [{value: 1, labels: "{}"}]}]},
        {interval: "10s", input_series: [{series: $series, values: (if $alert == "HoldfastServerUnreachable" then "1x400" else "0x400" end)},
                                         {series: "up{job=\"holdfast\"}", values: "1x400"}],
         promql_expr_test: [{expr: "count(ALERTS{alertstate=\"firing\"}) > 0", eval_time: $at, exp_samples: []}]}]}' >"$dir/rules.test.json"
    promtool test rules "$dir/rules.test.json" >"$dir/out" 2>&1 || fail "$1: $(cat "$dir/out")"
    echo "$1" >>"$dir/fired"
}
test_each_alert_fires() {
    : >"$dir/fired"
    fires HoldfastServerUnreachable 'holdfast_up{instance="a"}' '1 0x20' 2m
    fires HoldfastDeadlock 'holdfast_fleet_deadlocks' '0 1x20' 30s
    fires HoldfastLockLost 'holdfast_fleet_losses_total' '0 0 1x20' 1m
    fires HoldfastLockDisputed 'holdfast_fleet_disputed_locks' '0 1x20' 2m
    fires HoldfastHolderSilent 'holdfast_fleet_locks{state="silent"}' '0 2x20' 2m
    fires HoldfastRenewalsFail 'holdfast_fleet_client_renew_failures_total{host="h",client="c"}' '0+1x60' 5m
    fires HoldfastWaitTooLong 'holdfast_fleet_lock_oldest_wait_seconds{lock="x"}' '0 601x20' 1m
    fires HoldfastViewIncomplete 'holdfast_fleet_missing{what="locks"}' '1x100' 15m
}

# This one needs two series, and that one none.
test_the_other_alerts_fire() {
    jq -n --arg rules "$PWD/holdfast.rules.yml" '{rule_files: [$rules], evaluation_interval: "10s", tests: [
        {interval: "10s", input_series: [
            {series: "holdfast_fleet_lock_wait_seconds_bucket{lock=\"x\",le=\"30\"}", values: "0x200"},
            {series: "holdfast_fleet_lock_wait_seconds_bucket{lock=\"x\",le=\"60\"}", values: "0+1x200"},
            {series: "holdfast_fleet_lock_wait_seconds_bucket{lock=\"x\",le=\"+Inf\"}", values: "0+1x200"},
            {series: "up{job=\"holdfast\"}", values: "1x200"}],
         promql_expr_test: [{expr: "count(ALERTS{alertname=\"HoldfastWaitsSlow\",alertstate=\"firing\",lock=\"x\"})", eval_time: "15m",
                             exp_samples: [{value: 1, labels: "{}"}]}]},
        {interval: "10s", input_series: [], promql_expr_test: [
            {expr: "count(ALERTS{alertname=\"HoldfastNotScraped\",alertstate=\"firing\"})", eval_time: "5m",
             exp_samples: [{value: 1, labels: "{}"}]}]}]}' >"$dir/rules.test.json"
    promtool test rules "$dir/rules.test.json" >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
}

test_every_alert_has_a_test() {
    local alert
    while read -r alert; do
        grep -q "$alert" "$HF_SOURCE_DIR/tests/frame/monitoring.sh" || fail "nothing tries $alert"
    done < <(sed -n 's/.*- alert: //p' holdfast.rules.yml)
}

# is_complete: the scrape has a family of each kind, also those that only clients with a history have.
is_complete() { get /metrics && grep -q '^holdfast_fleet_lock_hand_over_seconds_bucket' "$dir/body"; }
test_metrics_exist_with_their_labels() {
    start hf run handed -- stay
    local first=$pid
    wait_until locked handed
    start hf run handed -- stay
    wait_until awaited handed
    serve
    wait_until shows /metrics 'holdfast_fleet_lock_waiters{lock="handed",kind="plain"} 1'
    kill "$first"
    wait_until is_complete
    local wanted family label
    wanted=$(cat holdfast.rules.yml holdfast.json | grep -oE 'holdfast_[a-z_]+(\{[a-z]+)?' | sort -u)
    while read -r family; do
        label=${family#*\{}
        [ "$label" != "$family" ] || label=
        family=${family%%\{*}
        # What no client has counted yet has a head only.
        grep -Eq "^# TYPE ${family%_bucket} |^# TYPE ${family%_count} " "$dir/body" || fail "/metrics has no $family"
        ! grep -q "^$family{" "$dir/body" || [ -z "$label" ] || grep -q "^$family{.*$label=" "$dir/body" || fail "$family has no $label"
    done <<<"$wanted"
}

run_tests
