#!/usr/bin/env bash
# `holdfast doctor`: each check finds what it is for, on real servers and as real users; `holdfast bench`.
. "$(dirname "$0")/lib.sh"

# examine [OPTION...]: what the doctor says, in $report; latency and waking depend on the machine's mood.
examine() {
    hf "$@" doctor --json --skip latency --skip waking --skip deadlocks --prefix app: >"$dir/out" 2>"$dir/err"
    status=$?
    report=$(cat "$dir/out")
}
verdicts_of() { jq -r ".servers[].checks[] | select(.check == \"$1\") | .verdict" <<<"$report" | sort -u | tr '\n' ' '; }
found_by() { jq -r ".servers[].checks[] | select(.check == \"$1\") | .found" <<<"$report"; }
# finds CHECK VERDICT...
finds() {
    local check=$1
    shift
    same "$(verdicts_of "$check")" "$* " "$check"
}
set_config() { [ "$(redis config set "$@")" = OK ] || fail "cannot set $*"; }
user() { [ "$(redis acl setuser "$@")" = OK ] || fail "no such user"; }

# other_start SOCKET: one more server.
other_start() {
    setpriv --pdeathsig KILL redis-server --port 0 --unixsocket "$1" --save '' --dir "$dir" --logfile "$1.log" \
        </dev/null >/dev/null 2>&1 &
    started+=("$!")
    wait_until other_answers "$1"
}
other_answers() { [ "$(redis-cli -s "$1" ping 2>/dev/null)" = PONG ]; }

test_all_is_well() {
    server_start --appendonly yes
    examine
    same "$status" 0
    same "$(jq -r .verdict <<<"$report")" ok
    local check
    for check in version eviction persistence replicas clock buffers timeout clients scripting native tracking rights tls; do
        finds "$check" ok
    done
    same "$(redis keys '*')" ""
}

test_a_deadlock() {
    server_start
    local inner='stay_until "$0"; exec hf run "$1" true'
    start hf run one sh -c "$inner" "$dir/go" two 2>/dev/null
    start hf run two sh -c "$inner" "$dir/go" one 2>/dev/null
    wait_until locked one
    wait_until locked two
    touch "$dir/go"
    wait_until awaited one
    wait_until awaited two
    wait_until doctor_finds_it
    case $(found_by deadlocks) in *"waits for 'one'"*"waits for 'two'"* | *"waits for 'two'"*"waits for 'one'"*) ;;
    *) fail "$(found_by deadlocks)" ;;
    esac
}
doctor_finds_it() {
    hf doctor --json --skip latency --skip waking >"$dir/out" 2>"$dir/err"
    report=$(cat "$dir/out")
    [ "$(verdicts_of deadlocks)" = "bad " ]
}

test_a_misspelt_check_is_refused() {
    expect 64 hf doctor --skip latencies
    case $err in *"unknown check 'latencies'"*) ;; *) fail "$err" ;; esac
}

# The two that are measured are made, and for people, too.
test_for_people() {
    server_start
    hf doctor >"$dir/out" 2>"$dir/err"
    grep -q '^ok  *eviction  *no key is ever evicted' "$dir/out" || fail "eviction: $(cat "$dir/out")"
    grep -Eq '^[a-z]+ +latency +an acquire takes [0-9.]+ ms' "$dir/out" || fail "no latency: $(cat "$dir/out")"
    grep -Eq '^[a-z]+ +waking +a waiter has the lock' "$dir/out" || fail "no waking: $(cat "$dir/out")"
    grep -q -- '-> set appendonly to yes' "$dir/out" || fail "no advice: $(cat "$dir/out")"
    same "$(redis keys '*')" ""
}

test_eviction() {
    server_start
    set_config maxmemory-policy volatile-lru
    examine
    same "$status" 1
    finds eviction warning
    set_config maxmemory 100mb
    examine
    same "$status" 2
    finds eviction bad
    jq -e '.servers[0].checks[] | select(.check == "eviction") | .advice | test("noeviction")' <<<"$report" >/dev/null ||
        fail "no advice: $report"
    set_config maxmemory-policy noeviction
    examine
    finds eviction ok
}

test_limits() {
    server_start --appendonly yes
    set_config timeout 5
    set_config client-output-buffer-limit "pubsub 65536 32768 60"
    examine
    same "$status" 1
    finds timeout warning
    finds buffers warning
    finds clients ok
    set_config timeout 0
    set_config client-output-buffer-limit "pubsub 0 0 0"
    examine
    same "$status" 0
}

test_replicas() {
    server_start
    other_start "$dir/replica.sock"
    redis-cli -s "$dir/replica.sock" replicaof 127.0.0.1 1 >/dev/null # It need not find its primary.
    "$HOLDFAST" -s "$dir/replica.sock" doctor --json >"$dir/out" 2>"$dir/err"
    status=$?
    report=$(cat "$dir/out")
    same "$status" 2
    finds replicas bad
}

test_rights() {
    server_start --appendonly yes
    local plain=(resetchannels '~app:*' '&redisson_lock__channel:{app:*' +eval +evalsha +time +exists +hexists
        +hmget +hset +pttl +pexpire +del +publish +subscribe +unsubscribe +ping +hget +hgetall +type +select
        '+client|setname' '+client|list' +info)
    user whole on '>x' "${plain[@]}"
    export HOLDFAST_PASSWORD=x
    examine --user whole
    same "$status" 0
    finds rights ok
    finds timeout unknown # it may not ask
    case $(found_by rights) in *"wait (--acks)"*) ;; *) fail "$(found_by rights)" ;; esac

    local command
    for command in hset hexists pexpire del; do
        user "less-$command" on '>x' "${plain[@]}" "-$command"
        examine --user "less-$command"
        same "$status" 2
        finds rights bad ok
        case $(found_by rights) in *"script.$command is refused"*) ;; *) fail "$(found_by rights)" ;; esac
    done
    user noeval on '>x' "${plain[@]}" -eval
    examine --user noeval
    finds rights bad ok
    user deaf on '>x' "${plain[@]}" resetchannels
    examine --user deaf
    same "$status" 1
    finds rights ok warning
    user elsewhere on '>x' "${plain[@]}" resetkeys '~other:*'
    examine --user elsewhere
    same "$status" 2
    grep -q -- "--prefix" <<<"$report" || fail "no word of --prefix: $report"
    examine --user nobody
    same "$status" 77
}

advice_of() { jq -r ".servers[].checks[] | select(.check == \"$1\") | .advice // empty" <<<"$report" | sort -u; }

# Rights by database (Valkey 9.1).
test_a_user_of_one_database() {
    server_start --appendonly yes
    [ "$(redis acl setuser third on '>x' '~*' '&*' +@all db=3)" = OK ] ||
        { echo "skipped: this server has no rights by database"; return; }
    export HOLDFAST_PASSWORD=x
    examine --user third --db 3
    same "$status" 0
    finds rights ok
    examine --user third
    same "$status" 2
    finds rights bad ok
    case $(found_by rights) in *"access database"*) ;; *) fail "$(found_by rights)" ;; esac
    same "$(advice_of rights)" "this user may use other databases only: choose one with --db, or allow this one (ACL SETUSER, db=)"
    same "$(found_by native)" "compare and delete: refused; compare and set: refused"
    examine --user third --db 2
    same "$status" 77
}

# no_scripts WORDS: what the doctor says of a server without EVAL, in the server's own words.
no_scripts() {
    examine
    same "$status" 2
    finds scripting bad
    finds rights ok # it is no question of rights
    case $(found_by scripting) in *"runs no scripts"*"Lua module is not loaded"*"$1"*) ;; *) fail "$(found_by scripting)" ;; esac
}

test_no_scripts() {
    server_start --appendonly yes --rename-command EVAL '' --rename-command EVALSHA ''
    no_scripts EVAL
}

test_no_lua_module() {
    server_start
    case $(redis module list) in *lua*) ;; *) echo "skipped: Lua is no module of this server"; return ;; esac
    server_kill
    server_start --appendonly yes --enable-module-command yes
    same "$(redis module unload lua)" OK
    no_scripts "Could not find scripting engine"
}

# The server's own list of commands is the judge.
server_has() { [ -n "$(redis command info "$1")" ]; }

test_native_commands() {
    server_start
    local deletes=none
    if server_has delex; then deletes=DELEX; fi
    if server_has delifeq; then deletes=DELIFEQ; fi
    redis set app:same x >/dev/null
    local sets=none
    [ "$(redis set app:same x ifeq x)" != OK ] || sets="SET IFEQ"
    redis del app:same >/dev/null
    examine
    same "$(found_by native)" "compare and delete: $deletes; compare and set: $sets"
    same "$(redis keys '*')" ""
}

test_tracking() {
    server_start
    set_config tracking-table-max-keys 12345
    examine
    same "$(found_by tracking)" "available, for 12345 keys (tracking-table-max-keys)"
    set_config tracking-table-max-keys 0
    examine
    same "$(found_by tracking)" "available, for any number of keys"
    user blind on '>x' '~*' '&*' +@all -client
    HOLDFAST_PASSWORD=x examine --user blind
    case $(found_by tracking) in "not available ("*NOPERM* | "not available ("*permissions*) ;; *) fail "$(found_by tracking)" ;; esac
}

test_a_certificate_that_ends() {
    server_start
    [ -n "$(redis config get tls-port)" ] || { echo "skipped: the server was built without TLS"; return; }
    server_kill
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$dir/key" -out "$dir/pem" 2>/dev/null ||
        fail "no certificate"
    local port
    for port in $(shuf -i 12000-31999 -n 20); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
        server_start --bind 127.0.0.1 --tls-port "$port" --tls-cert-file "$dir/pem" --tls-key-file "$dir/key" \
            --tls-ca-cert-file "$dir/pem" --tls-auth-clients no
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
        server_kill
    done
    "$HOLDFAST" --tls -h localhost -p "$port" --cacert "$dir/pem" doctor --json >"$dir/out" 2>"$dir/err"
    status=$?
    report=$(cat "$dir/out")
    same "$status" 2
    finds tls bad
    case $(found_by tls) in *"expires in "[23]" days"*) ;; *) fail "$(found_by tls)" ;; esac
}

test_a_quorum() {
    server_start --appendonly yes
    other_start "$dir/second.sock"
    "$HOLDFAST" -u "unix://$socket" -u "unix://$dir/second.sock" -u "unix://$dir/none" doctor --json --skip latency --skip waking --skip deadlocks \
        >"$dir/out" 2>"$dir/err"
    status=$?
    report=$(cat "$dir/out")
    same "$status" 2
    finds server bad
    finds clocks ok
    finds eviction ok
    same "$(jq '.servers | length' <<<"$report")" 4
}

test_mistakes() {
    server_start
    expect 64 hf doctor something
    expect 69 "$HOLDFAST" -t 1s -s "$dir/none" doctor
    expect 0 hf help doctor
    expect 64 hf bench something
    expect 64 hf bench -d 2h
    expect 69 "$HOLDFAST" -t 1s -s "$dir/none" bench -d 10ms
}

test_bench() {
    server_start
    expect 0 hf bench --json -d 100ms
    jq -e '(.pairs | map(.threads)) == [1, 8, 64] and (.pairs | all(.pairs_per_s > 0))
        and .hand_over.count > 0 and .hand_over.p99_us >= .hand_over.p50_us' <<<"$out" >/dev/null || fail "$out"
    expect 0 hf bench -d 50ms --prefix app:
    case $out in *"64 threads:"*"hand-over:"*"A pair is"*) ;; *) fail "$out" ;; esac
    same "$(redis keys '*')" ""
}

run_tests
