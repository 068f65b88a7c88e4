#!/usr/bin/env bash
# The recipes that stand on an option of the tool alone: --only-command, for a daemon that stays, and
# HOLDFAST_REQUIRE_URL, without which a forgotten url is a lock of one machine.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/frame/lib_recipes.sh"

server_start
export HOLDFAST_URL=unix://$socket daemon_file=$dir/daemon

# The daemon lives as long as this test at most.
test_a_daemon_lives_on_and_the_lock_is_free() {
    cd "$dir/home" || fail "no directory"
    script start-app.sh <<'WORK'
holdfast show --held start-app || exit 4
setsid sh -c 'echo $$ >"$daemon_file"; exec stay_until stop' >/dev/null 2>&1 &
until [ -s "$daemon_file" ]; do tick; done
WORK
    recipe start-once.sh | script start-once.sh
    expect 0 env PATH="$dir/local/bin:$PATH" ./start-once.sh
    free start-app || fail "still locked"
    alive "$(cat "$dir/daemon")" || fail "the daemon did not stay"
    # So the next start is not kept waiting by it.
    rm "$dir/daemon"
    expect 0 env PATH="$dir/local/bin:$PATH" ./start-once.sh
    alive "$(cat "$dir/daemon")" || fail "the daemon did not stay"
    touch stop
    wait_until ended "$(cat "$dir/daemon")"
}

# refused COMMAND...: without a url it ends with 64, says so, and does not run anything.
refused() {
    expect 64 timeout "$LIMIT" env -u HOLDFAST_URL PATH="$dir/local/bin:$PATH" "$@"
    says HOLDFAST_URL
    same "$out" ''
}
test_a_forgotten_url_is_an_error() {
    local line script recipe_file
    for script in local/bin/report local/bin/scheduler app/worker app/migrate app/scheduler; do
        script "$dir/$script" <<<'echo ran'
    done
    recipe /etc/cron.d/nightly >"$dir/cron"
    line=$(sed -nE 's/^[0-9*].* reports +//p' "$dir/cron")
    refused env "$(grep '^HOLDFAST_REQUIRE_URL=' "$dir/cron")" sh -c "$line"

    for recipe_file in nightly scheduler; do
        recipe "/etc/systemd/system/$recipe_file.service" >"$dir/unit"
        line=$(sed -n 's/^ExecStart=//p' "$dir/unit")
        refused env "$(grep -o 'HOLDFAST_REQUIRE_URL=[a-z]*' "$dir/unit")" sh -c "$line"
    done

    recipe Dockerfile >"$dir/Dockerfile"
    line=$(sed -nE 's/^(ENTRYPOINT|CMD) //p' "$dir/Dockerfile" | tr -d '[]",' | tr '\n' ' ')
    refused env "$(sed -n 's/^ENV //p' "$dir/Dockerfile")" sh -c "$line"

    for recipe_file in web scheduler; do
        recipe "$recipe_file.yaml" >"$dir/pod.yaml"
        line=$(sed -nE 's/^ *command: \[(holdfast.*)\]/\1/p' "$dir/pod.yaml" | tr -d ',')
        refused env HOLDFAST_REQUIRE_URL="$(sed -n '/HOLDFAST_REQUIRE_URL/{n;s/.*"\(.*\)"/\1/p}' "$dir/pod.yaml")" \
            sh -c "$line"
    done
}

run_tests
