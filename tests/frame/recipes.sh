#!/usr/bin/env bash
# What docs/recipes.md prints works: every text is taken out of the page and run, or checked where it cannot be run.
# shellcheck disable=SC1091,SC2119
. "$HF_SOURCE_DIR/tests/frame/lib_recipes.sh"

server_start
export HOLDFAST_URL=unix://$socket
with_tool=$dir/local/bin:$PATH

# two_take_turns COMMAND...: two of them are started. The work, `at_work`, is done by one, and when that is stopped
# by the other. What works writes a line to $dir/leads and goes on until TERM.
at_work() {
    rm -f "$dir/leads"
    script "$1" <<'WORK'
trap 'exit 0' TERM
echo "$$" >>"$leads"
while [ -d "$test_proc" ]; do tick; done
WORK
    export leads=$dir/leads
}
two_take_turns() {
    local one other
    start "$@"
    one=$pid
    wait_until lines "$dir/leads" 1
    start "$@"
    other=$pid
    wait_until awaited scheduler
    same "$(wc -l <"$dir/leads")" 1 "at work"
    kill -TERM "$one"
    finish "$one"
    same "$status" 0
    wait_until lines "$dir/leads" 2
    kill -TERM "$other"
    finish "$other"
    free scheduler || fail "still locked"
}

# ---- cron ---------------------------------------------------------------------------------------------

# As cron starts a job: its file's variables and little else, by /bin/sh.
as_cron() {
    (cd "$dir/home" && exec env -i HOME="$dir/home" LOGNAME=reports SHELL=/bin/sh test_proc="$test_proc" \
        "${cron_variables[@]}" "$@")
}
test_cron_runs_it_on_one_machine_and_the_other_is_silent() {
    local file=$dir/cron job first
    recipe /etc/cron.d/nightly >"$file"
    mapfile -t cron_variables < <(grep -E '^[A-Z_]+=' "$file")
    same "${#cron_variables[@]}" 3 "variables"
    job=$(grep -E '^[0-9*]' "$file")
    same "$(echo "$job" | awk '{ print $1, $2, $3, $4, $5, $6 }')" '15 2 * * * reports'
    job=$(echo "$job" | sed -E 's/^([^ ]+ +){6}//')
    case $job in *%*) fail "cron would cut it at the %: $job" ;; esac
    script "$dir/local/bin/report" <<<'echo ran >>ran; exit 1' # It is kept even so.

    start env -i HOME="$dir/home" LOGNAME=reports SHELL=/bin/sh "${cron_variables[@]}" \
        /bin/sh -c "cd && exec $job"
    first=$pid
    wait_until lines "$dir/home/ran" 1
    # The report is done, but the other machine's clock is a little late.
    expect 0 as_cron /bin/sh -c "$job"
    same "$out$err" '' "what cron would send as mail"
    same "$(cat "$dir/home/ran")" ran
    locked nightly || fail "--hold-for keeps nothing"
    kill -TERM "$first"
    finish "$first"
    free nightly || fail "still locked"
    # It reports that the server is not there.
    expect 69 as_cron HOLDFAST_CONNECT_TIMEOUT=100ms HOLDFAST_URL="unix://$dir/nothing" /bin/sh -c "$job"
    [ -n "$err" ] || fail "no message"
}

# ---- systemd ------------------------------------------------------------------------------------------

units=(nightly.service nightly.timer scheduler.service)
# exec_start UNIT: its command line, without a shell, as words.
exec_start() { read -ra command < <(sed -n 's/^ExecStart=//p' "$dir/units/$1"); }

test_systemd_accepts_the_units() {
    local unit
    mkdir -p "$dir/units"
    for unit in "${units[@]}"; do
        recipe "/etc/systemd/system/$unit" >"$dir/units/$unit"
    done
    command -v systemd-analyze >/dev/null || { skipped recipes_systemd_accepts_the_units; return; }
    for unit in report scheduler; do
        script "$dir/local/bin/$unit" </dev/null
    done
    # What it says about units of this machine is not our concern.
    (cd "$dir/units" && systemd-analyze verify "${units[@]/#/./}") >"$dir/all" 2>&1
    status=$?
    grep -E 'nightly|scheduler' "$dir/all" >"$dir/err"
    same "$status $(wc -l <"$dir/err")" "0 0" "status and lines of systemd-analyze"
    # It would have reported that.
    sed 's/^KillMode=.*/KillMood=mixed/' "$dir/units/scheduler.service" >"$dir/units/bad.service"
    systemd-analyze verify "$dir/units/bad.service" 2>&1 | grep -q KillMood || fail "sees no mistakes"
}
test_systemd_timer_command_runs_once() {
    local -a command
    local first
    mkdir -p "$dir/units"
    recipe /etc/systemd/system/nightly.service >"$dir/units/nightly.service"
    grep -q "^Environment=.*HOLDFAST_URL=unix://$socket\$" "$dir/units/nightly.service" || fail "no url"
    grep -qx SuccessExitStatus=75 "$dir/units/nightly.service" || fail "75 would be a failure"
    exec_start nightly.service
    script "$dir/local/bin/report" <<<'echo ran >>"$leads"'
    rm -f "$dir/leads"
    start env leads="$dir/leads" "${command[@]}"
    first=$pid
    wait_until lines "$dir/leads" 1
    expect 75 "${command[@]}"
    kill -TERM "$first"
    finish "$first"
}
test_systemd_standby_takes_over() {
    local -a command
    mkdir -p "$dir/units"
    recipe /etc/systemd/system/scheduler.service >"$dir/units/scheduler.service"
    exec_start scheduler.service
    at_work "$dir/local/bin/scheduler"
    two_take_turns "${command[@]}"
}

# ---- A container --------------------------------------------------------------------------------------

# A JSON list of plain words.
words_of() { sed -n "s/^$1 \[\(.*\)\]$/\1/p" "$dir/Dockerfile" | tr -d '",'; }
# as_first_process COMMAND...: with a process namespace of its own, as in a container.
namespace=(unshare --pid --fork --kill-child --mount-proc)
if ! "${namespace[@]}" true 2>/dev/null; then
    namespace=(unshare --user --map-root-user --pid --fork --kill-child --mount-proc)
    "${namespace[@]}" true 2>/dev/null || namespace=()
fi
test_container_as_process_1_passes_signals_on_and_reaps() {
    local -a entry
    local container
    recipe Dockerfile >"$dir/Dockerfile"
    read -ra entry <<<"$(words_of ENTRYPOINT) $(words_of CMD)"
    same "${entry[0]} ${entry[*]: -1}" "holdfast $dir/app/worker"
    [ ${#namespace[@]} -gt 0 ] || { skipped recipes_container_as_process_1; return; }

    # A process whose parent has ended is the first process's to reap.
    script "$dir/app/worker" <<'WORK'
trap 'echo stopped >>"$leads"; exit 3' TERM
case $(readlink /proc/1/exe) in */holdfast) ;; *) exit 4 ;; esac
orphan=$(sh -c 'tick >/dev/null & echo $!')
until [ ! -e "/proc/$orphan" ]; do tick; done
echo reaped >>"$leads"
while :; do tick; done
WORK
    rm -f "$dir/leads"
    start env PATH="$with_tool" leads="$dir/leads" "${namespace[@]}" "${entry[@]}"
    container=$pid
    wait_until lines "$dir/leads" 1
    kill -TERM "$(children_of "$container")"
    finish "$container"
    same "$status" 3 "the command's status"
    same "$(tr '\n' ' ' <"$dir/leads")" 'reaped stopped '
    free worker || fail "still locked"
}

# ---- Kubernetes ---------------------------------------------------------------------------------------

# pod FILE CONTAINERS: sets `command` to that of the first of them; the file is one Deployment, and well formed.
pod() {
    recipe "$1" >"$dir/pod.yaml"
    mapfile -t command < <("$python" - "$dir/pod.yaml" "$2" 2>"$dir/err" <<'PYTHON'
import sys, yaml
deployment = yaml.safe_load(open(sys.argv[1]))
assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
spec = deployment["spec"]
assert spec["replicas"] >= 2
assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
pod = spec["template"]["spec"]
for container in pod["containers"] + pod.get("initContainers", []):
    assert container["name"] and container["image"]
    assert all(isinstance(word, str) for word in container["command"])
container = pod[sys.argv[2]][0]
assert any(e["name"] == "HOLDFAST_URL" and e["value"].startswith("unix:") for e in container["env"])
print("\n".join(container["command"]))
PYTHON
    )
    [ "${#command[@]}" -gt 4 ] || fail "$1 is not what it should be"
    same "${command[0]}" holdfast
}
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import yaml' 2>/dev/null && python=$candidate
done

test_kubernetes_init_containers_take_turns() {
    local -a command pids=()
    local number
    [ -n "$python" ] || { skipped recipes_kubernetes_init_containers; return; }
    pod web.yaml initContainers
    script "$dir/app/migrate" <<'WORK'
mkdir "$leads.inside" || exit 4
tick # inside for a while, lest two at once be overlooked
rmdir "$leads.inside"
echo ran >>"$leads"
WORK
    rm -f "$dir/leads"
    for number in 1 2 3; do
        start env PATH="$with_tool" leads="$dir/leads" "${command[@]}"
        pids+=("$pid")
    done
    for number in "${pids[@]}"; do
        finish "$number"
        same "$status" 0 "status of a pod"
    done
    same "$(wc -l <"$dir/leads")" 3
}
test_kubernetes_leader_is_replaced() {
    local -a command
    [ -n "$python" ] || { skipped recipes_kubernetes_leader; return; }
    pod scheduler.yaml containers
    at_work "$dir/app/scheduler"
    two_take_turns env PATH="$with_tool" "${command[@]}"
}

# ---- CI -----------------------------------------------------------------------------------------------

test_ci_deploys_in_turn_and_tells_who_has_it() {
    local line one other
    recipe .gitlab-ci.yml >"$dir/ci.yml"
    line=$(sed -n 's/^    - //p' "$dir/ci.yml")
    cd "$dir/home" || fail "no directory"
    script deploy.sh <<<'touch deploying; stay_until go'
    rm -f deploying go
    start env PATH="$with_tool" sh -c "$line" 2>"$dir/one"
    one=$pid
    wait_until file_there deploying
    start env PATH="$with_tool" sh -c "$line" 2>"$dir/other"
    other=$pid
    wait_until grep -q 'deploy-production.*holds\|holds.*deploy-production\|waiting' "$dir/other"
    touch go
    finish "$one"
    same "$status" 0
    finish "$other"
    same "$status" 0
}
test_ci_steps_under_one_lock() {
    local steps
    cd "$dir/home" || fail "no directory"
    recipe deploy-steps.sh | script steps
    script build.sh <<<'holdfast show --held deploy-production && echo build >>steps.log'
    script push.sh <<<'holdfast show --held deploy-production && echo push >>steps.log'
    rm -f steps.log
    expect 0 env PATH="$with_tool" ./steps
    same "$(tr '\n' ' ' <steps.log)" 'build push '
    free deploy-production || fail "still locked"
    # A step that fails: the lock is free again.
    script build.sh <<<'exit 5'
    expect 5 env PATH="$with_tool" ./steps
    wait_until free deploy-production
    # The lock is lost on the way: reported at the end.
    script build.sh <<<'touch building; stay_until lost'
    rm -f building lost
    # Not bash itself: `start` waits until it is another program.
    start timeout "$LIMIT" env PATH="$with_tool" HOLDFAST_TTL=1s ./steps 2>"$dir/steps.err"
    steps=$pid
    wait_until file_there building
    redis del deploy-production >/dev/null
    wait_until grep -q lost "$dir/steps.err"
    script push.sh </dev/null
    touch lost
    finish "$steps"
    same "$status" 79
}

# ---- xargs --------------------------------------------------------------------------------------------

test_xargs_runs_three_at_once() {
    local number
    mkdir -p "$dir/home/pictures"
    cd "$dir/home/pictures" || fail "no directory"
    for number in 1 2 3 4 5 6 7 8; do
        touch "picture $number.png"
    done
    script convert.sh <<<'echo "+ $1" >>log; tick; echo "- $1" >>log'
    recipe thumbs.sh | script thumbs.sh
    expect 0 env PATH="$with_tool" ./thumbs.sh
    same "$(grep -c '^+ \./picture [1-8]\.png$' log)" 8 "pictures"
    awk '{ inside += $1 == "+" ? 1 : -1 } inside > 3 { bad = 1 } END { exit bad || inside != 0 }' log ||
        fail "more than three at once: $(cat log)"
    # As the page says, the number is kept until it is forgotten.
    expect 0 "$HOLDFAST" sem thumbs delete
}

run_tests
