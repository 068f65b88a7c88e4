#!/usr/bin/env bash
# The subcommand `serve`: what it answers and to whom, what it refuses, and that nobody can keep it from serving
# others. The page itself is looked at by serve_page.sh, in a browser.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_serve.sh"
. "$(dirname "$0")/lib_metrics.sh"
server_start

token=0123456789abcdef-secret
echo "$token" >"$dir/token"
chmod 600 "$dir/token"

# hold NAME...: plain locks of somebody who is not there, straight into the server.
hold() {
    local name
    for name; do
        redis hset "$name" 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17 1 >/dev/null
        redis pexpire "$name" 600000 >/dev/null
    done
}
# The number of questions that have been asked so far.
asked() { redis info commandstats | sed -n 's/^cmdstat_publish:calls=\([0-9]*\),.*/\1/p'; }
# Clients of an earlier test publish as well, when they release: before questions are counted, they have left.
earlier_clients_left() { [ "$(redis client list | wc -l)" = 1 ]; }

test_page_and_its_headers() {
    local before
    wait_until earlier_clients_left
    before=$(asked)
    serve
    answers 200 /
    [[ $out == *'<script src="/page.js" defer></script>'* ]] || fail "no page: $out"
    has_header "content-type: text/html; charset=utf-8"
    has_header "x-content-type-options: nosniff"
    has_header "x-frame-options: DENY"
    has_header "referrer-policy: no-referrer"
    has_header "content-security-policy: default-src 'none'; script-src 'self'; .*frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ! grep -Eqi 'https?://|//[a-z]' <<<"$out" || fail "something foreign is asked for"
    ! grep -Eq '<script>|style=|[ "]on[a-z]+=' <<<"$out" || fail "something is inline"
    local tag
    tag=$(sed -n 's/^etag: \(.*\)\r$/\1/Ip' "$dir/head")
    answers 304 / -H "If-None-Match: $tag"
    for path in /page.js /page.css /icon.svg; do
        answers 200 "$path"
        has_header "x-content-type-options: nosniff"
    done
    answers 200 /page.js -I
    same "$(asked)" "$before" "questions, though nobody needs one"
}

timeless() { sed 's/_ms":[0-9]*/_ms":/g'; }
test_json_as_ls_prints_it() {
    hold 'plain one' 'a/b%2F?c' '<b>bold</b>'
    serve
    answers 200 /api/locks
    has_header "content-type: application/json"
    has_header "cache-control: no-store"
    for name in 'plain one' 'a/b%2F?c' '<b>bold</b>'; do
        [[ $out == *'{"name":"'"$name"'","kind":"plain","disputed":false,"waiting":0,"holders":[{"owner":"5c4d'* ]] ||
            fail "no $name in $out"
    done
    answers 200 /api/locks/plain%20one
    [[ $out == '{"name":"plain one","kind":"plain",'* ]] || fail "$out"
    same "$(timeless <"$dir/body")" "$(hf --json ls 'plain one' | timeless)"
    answers 200 '/api/locks/a%2Fb%252F%3Fc'
    answers 200 '/api/locks/a/b%252F%3fc'
    answers 200 /api/locks/plain%20one -I
    answers 404 /api/locks/nobody
    answers 400 /api/locks/%zz
    answers 400 /api/locks/a%00b
    answers 400 /api/locks/
    answers 200 /api/clients
    [[ $out == *'"clients":['* ]] || fail "$out"
    redis del 'plain one' 'a/b%2F?c' '<b>bold</b>' >/dev/null
}

# What Prometheus reads; its own parser has looked at the text of the fleet in metrics.sh.
test_metrics() {
    hold counted
    start hf run --slots 2 counting -- stay
    serve
    wait_until shows /metrics 'holdfast_fleet_client_acquired_total{'
    has_header "content-type: text/plain; version=0.0.4; charset=utf-8"
    lint "$dir/body"
    answers 200 /metrics -H 'Accept: application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.4'
    has_header "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"
    same "$(tail -n 1 "$dir/body")" '# EOF'
    same "$(grep -c '# EOF' "$dir/body")" 1
    for sample in 'holdfast_up 1' 'holdfast_fleet_locks{state="unknown"} 1' '.*lock="counted".*'; do
        grep -Eqx -- "${sample//[{]/\\{}" "$dir/body" || fail "no $sample in: $out"
    done
    local status=0
    /usr/bin/python3 "$(dirname "$0")/../support/openmetrics.py" <"$dir/body" >/dev/null 2>"$dir/err" || status=$?
    case $status in 0 | 77 | 127) ;; *) fail "the parser: $(cat "$dir/err")" ;; esac
    redis del counted >/dev/null
}

test_paths_and_methods() {
    serve
    answers 404 /nothing
    answers 404 /api
    answers 404 /api/locksmith
    answers 405 / -X POST
    has_header "allow: GET, HEAD"
    answers 405 /api/locks -X DELETE
    has_header "allow: GET, HEAD"
    answers 405 /metrics -X PUT
    answers 405 /api/events -X HEAD -I
    has_header "allow: GET"
    answers 405 /api/locks/nightly -X DELETE -H "Authorization: Bearer $token" -H "Origin: $url" -H 'X-Holdfast-Break: yes'
    has_header "allow: GET, HEAD"
}

# A name that another made point to this machine is not answered.
test_only_for_hosts_that_are_ours() {
    serve --allowed-host locks.example.org
    for host in localhost "localhost:$port" 127.0.0.1 '[::1]:80' LOCKS.example.org locks.example.org:443; do
        answers 200 /api/locks -H "Host: $host"
    done
    for host in evil.example "evil.example:$port" localhost.evil.example 10.0.0.1 '[fe80::1]' 'locks.example.org.evil' \
        '127.0.0.1:1@evil' '127.0.0.1:' '127.0.0.1:port' '127.0.0.1:80:80' '127.0.0.1:123456' 'localhost:80/x' 'localhost#' \
        '[::1]evil' '[::1]:' '[::1' '[localhost]' '[127.0.0.1]' '::1' 'user@localhost' 'localhost, evil' '127.1'; do
        answers 421 /api/locks -H "Host: $host"
        answers 421 / -H "Host: $host"
    done
    answers 421 /api/locks -0 -H 'Host:'
}

# A page of another site cannot even make the fleet be asked; what is no browser says nothing of a site.
test_not_for_pages_of_other_sites() {
    local path site before
    wait_until earlier_clients_left
    serve
    before=$(asked)
    for site in cross-site same-site; do
        for path in /api/locks /api/locks/x /api/clients /api/events /metrics; do
            answers 403 "$path" -H "Sec-Fetch-Site: $site"
        done
        answers 200 / -H "Sec-Fetch-Site: $site"
    done
    same "$(asked)" "$before" "questions"
    for site in same-origin none; do
        answers 200 /api/locks -H "Sec-Fetch-Site: $site"
        answers 200 /metrics -H "Sec-Fetch-Site: $site"
    done
}

test_requests_are_bounded() {
    serve
    answers 413 / -X POST -d a=b
    answers 413 / -X POST -H 'Transfer-Encoding: chunked' -d a=b
    local long
    long=$(printf '%70000s' '' | tr ' ' x)
    get / -H "X-Long: $long"
    [[ $status == 4?? ]] || fail "status $status"
    get "/$long"
    [[ $status == 4?? ]] || fail "status $status"
    answers 200 /
}

test_events() {
    hold one
    serve
    start curl -sSN "$url/api/events" >"$dir/events"
    wait_until file_has "$dir/events" '^data: {"full":true,.*"name":"one"'
    wait_until file_has "$dir/events" '^data: {"full":false,.*"locks":\[\],"gone":\[\]'
    hold two
    wait_until file_has "$dir/events" '^data: {"full":false,.*"locks":\[{"name":"two",'
    wait_until file_has "$dir/events" '"history":\[{"time":"[^"]*","event":"acquired","name":"two","owner":"5c4dd3c1'
    redis del one >/dev/null
    wait_until file_has "$dir/events" '"gone":\["one"\]'
    ! grep -Evq '^(data: \{.*\}|: still asking|)$' "$dir/events" || fail "what is that: $(cat "$dir/events")"
    redis del two >/dev/null
}
file_has() { grep -Eq -- "$2" "$1"; }

# swap LOCK OUT IN: one holder is replaced by another in one moment.
swap() { redis eval 'redis.call("hset", KEYS[1], ARGV[2], 1) redis.call("hdel", KEYS[1], ARGV[1])' 1 "$@" >/dev/null; }

# Several hold it at once: who stays has had nothing handed over, whichever of them comes first.
test_readers_and_slots_hand_nothing_over() {
    local owner=5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d first second
    redis hset readers mode read $owner:1 1 $owner:2 1 >/dev/null
    redis hset single $owner:1 1 >/dev/null
    first=$(hf acquire --slots 3 --lease 1m slots) && second=$(hf acquire --slots 3 --lease 1m slots) || fail "no slots"
    [[ $first < $second ]] || { local other=$first; first=$second; second=$other; }
    serve
    start curl -sSN "$url/api/events" >"$dir/sets"
    wait_until file_has "$dir/sets" '^data: {"full":false'
    redis hdel readers $owner:1 >/dev/null
    wait_until file_has "$dir/sets" '"event":"ended","name":"readers","kind":"read","owner":"'$owner':1"'
    redis hset readers $owner:0 1 >/dev/null
    wait_until file_has "$dir/sets" '"event":"acquired","name":"readers","kind":"read","owner":"'$owner':0"'
    swap readers $owner:0 $owner:3
    wait_until file_has "$dir/sets" '"event":"acquired","name":"readers","kind":"read","owner":"'$owner':3"'
    # all readers at once, with none that stays
    redis eval "redis.call('del', KEYS[1]) return redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1, ARGV[2], 1)" \
        1 readers $owner:8 $owner:9 >/dev/null
    wait_until file_has "$dir/sets" '"event":"acquired","name":"readers","kind":"read","owner":"'$owner':9"'
    hf release slots "$first" || fail "not released"
    wait_until file_has "$dir/sets" '"event":"ended","name":"slots","kind":"permits","owner":"'"$first"'"'
    swap single $owner:1 $owner:2
    wait_until file_has "$dir/sets" '"event":"acquired","name":"single","owner":"'$owner':2","from":{"owner":"'$owner':1"}'
    file_has "$dir/sets" '"event":"ended","name":"single","owner":"'$owner':1"' || fail "$(cat "$dir/sets")"
    ! grep -Eq '"name":"(readers|slots)"[^}]*"from"' "$dir/sets" || fail "$(cat "$dir/sets")"
    hf release slots "$second"
    redis del readers single >/dev/null
}

# A break by any client is shown as one, by its message. What ended without one is decided by what its client has counted: a
# survey that comes between its count and the end knows neither, so that is done again.
test_a_break_is_no_release() {
    local key="Authorization: Bearer $token" id=7a3f0a52-0d0c-4a35-9b0e-2f4a5f7c9d11 released=3 losses=0
    [ -x /usr/bin/python3 ] || { echo "        passed over: there is no python3"; return; }
    serve --token-file "$dir/token" --allow-break
    start curl -sSN "$url/api/events" >"$dir/breaks"
    counted
    start /usr/bin/python3 "$(dirname "$0")/survey_client.py" "$socket" $id "$dir/counted" >"$dir/client"
    wait_until grep -q ready "$dir/client"
    redis hset ours $id:5 1 >/dev/null
    wait_until shows /api/locks/ours '"state":"alive"'
    answers 200 /api/locks/ours -X DELETE -H "$key" -H "Origin: $url" -H 'X-Holdfast-Break: yes'
    wait_until file_has "$dir/breaks" '"event":"broken","name":"ours","owner":"'$id':5","who":"host 1 worker","heard":true'
    wait_until ends_as theirs broken
    wait_until ends_as forgotten lost
    wait_until ends_as given released
    ! grep -Eq '"event":"(released|lost|ended)","name":"(ours|theirs)"' "$dir/breaks" || fail "$(cat "$dir/breaks")"
    ! grep -Eq '"event":"(released|broken)","name":"forgotten"' "$dir/breaks" || fail "$(cat "$dir/breaks")"
    ! grep -Eq '"event":"(lost|broken)","name":"given"' "$dir/breaks" || fail "$(cat "$dir/breaks")"
}
counted() {
    printf '{"v":1,"id":"%s","name":"holdfast:%s:host:1:worker","released":%s,"losses":%s}' "$id" "$id" "$released" "$losses" >"$dir/counted.new"
    mv "$dir/counted.new" "$dir/counted"
}
# ends_as NAME HOW: the client holds it and does not any more, and counts that.
ends_as() {
    local before
    redis hset "$1" "$id:5" 1 >/dev/null
    wait_until shows "/api/locks/$1" '"state":"alive"'
    before=$(ends_of "$1")
    [ "$2" = released ] && released=$((released + 1)) || losses=$((losses + 1))
    counted
    if [ "$2" = broken ]; then hf unlock --force "$1" >/dev/null; else redis del "$1" >/dev/null; fi
    wait_until more_ends "$1" "$before"
    file_has "$dir/breaks" '"event":"'"$2"'","name":"'"$1"'","owner":"'"$id"':5","who":"host 1 worker"'
}
ends_of() { grep -Eo '"event":"(released|lost|ended|broken|expired)","name":"'"$1"'"' "$dir/breaks" | wc -l; }
more_ends() { [ "$(ends_of "$1")" -gt "$2" ]; }

# A server that has seen the holder alive knows its name, also of a slot, whose owner is no client.
test_the_dead_are_known_by_name() {
    local pid_run pid_slot
    serve
    start curl -sSN "$url/api/events" >"$dir/dead"
    start hf hold --no-stdin dead >/dev/null
    pid_run=$pid
    start hf hold --no-stdin --slots 2 seat >/dev/null
    pid_slot=$pid
    wait_until shows /api/locks/dead '"state":"alive"'
    wait_until shows /api/locks/seat '"state":"alive"'
    kill -KILL "$pid_run" "$pid_slot"
    wait_until shows /api/locks/dead '"state":"gone"'
    [[ $out == *'"pid":'$pid_run','* ]] || fail "$out"
    wait_until shows /api/locks/seat '"state":"unknown"'
    [[ $out == *'"pid":'$pid_slot','* ]] || fail "$out"
    redis del dead >/dev/null
    wait_until file_has "$dir/dead" '"event":"ended","name":"dead","owner":"[^"]*","who":"[^ "]+ '"$pid_run"' bash"'
}

# Slots are among what a client holds; whose they are only `client` says.
test_slots_have_a_client() {
    serve
    start hf hold --no-stdin --slots 2 seats >/dev/null
    wait_until shows /api/locks/seats '"state":"alive"'
    local id
    id=$(sed -n 's/.*"client":"\([0-9a-f-]\{36\}\)".*/\1/p' "$dir/body")
    [ -n "$id" ] || fail "$out"
    answers 200 /api/clients
    [[ $out == *'{"id":"'"$id"'","state":"alive"'* ]] || fail "no $id in $out"
}

# One question a second for all of them, and none for nobody.
test_as_few_questions_as_possible() {
    serve
    local i from questions ms pids=()
    for i in 1 2 3 4; do
        start curl -sSN "$url/api/events" >"$dir/events$i"
        pids+=("$pid")
    done
    for i in 1 2 3 4; do wait_until file_filled "$dir/events$i"; done
    from=$(now_ms)
    questions=$(asked)
    while [ $(($(now_ms) - from)) -lt 1500 ]; do
        get /api/locks
        get /metrics
    done
    questions=$(($(asked) - questions))
    ms=$(($(now_ms) - from)) # after the count, so that whatever was counted is within
    [ "$questions" -ge 1 ] || fail "nobody was asked"
    [ "$questions" -le $((ms / 1000 + 1)) ] || fail "$questions questions in $ms ms"
    kill "${pids[@]}"
    wait_until quiet
}
quiet() {
    local before
    before=$(asked)
    sleep 1.7 # longer than from one question to the next: that there is none has no event
    [ "$before" = "$(asked)" ]
}

test_breaking() {
    local held
    serve --token-file "$dir/token" --allow-break
    start hf run busy -- stay
    held=$pid
    wait_until locked busy
    try() { answers "$1" /api/locks/busy -X DELETE "${@:2}"; }
    local key="Authorization: Bearer $token" from="Origin: $url" mark='X-Holdfast-Break: yes'
    try 401 -H "$from" -H "$mark"
    has_header 'www-authenticate: Bearer realm="holdfast"'
    try 401 -H "Authorization: Bearer ${token}x" -H "$from" -H "$mark"
    try 401 -H "Authorization: Bearer ${token%?}" -H "$from" -H "$mark"
    try 401 -H "Authorization: Basic $token" -H "$from" -H "$mark"
    try 403 -H "$key" -H "$mark"
    try 403 -H "$key" -H 'Origin: http://evil.example' -H "$mark"
    try 403 -H "$key" -H 'Origin: null' -H "$mark"
    try 403 -H "$key" -H "$from"
    try 421 -H "$key" -H 'Origin: http://evil.example' -H 'Host: evil.example' -H "$mark"
    try 413 -H "$key" -H "$from" -H "$mark" -d x=y
    answers 405 /api/locks/busy -X POST -H "$key" -H "$from" -H "$mark"
    has_header "allow: GET, HEAD, DELETE"
    locked busy || fail "it was broken by one of these"
    try 200 -H "$key" -H "$from" -H "$mark" -H $'X-Forwarded-For: 10.1.1.1\e[31m'
    same "$out" '{"name":"busy","broken":true}'
    serve_logged "127.0.0.1 port [0-9]* (for '10.1.1.1?\[31m', it claims) asked to break 'busy': it is broken" ||
        fail "$(cat "$dir/serve.err")"
    finish "$held"
    same "$status" 79 "the holder"
    try 200 -H "$key" -H "$from" -H "$mark"
    same "$out" '{"name":"busy","broken":false}'
    # Other kinds are broken in their way, and what is no lock is left alone.
    start hf run --fair fair -- stay
    start hf run --shared rw -- stay
    wait_until locked fair
    wait_until locked rw
    for name in fair rw; do
        answers 200 /api/locks/$name -X DELETE -H "$key" -H "$from" -H "$mark"
        [[ $out == *'"broken":true'* ]] || fail "$name: $out"
    done
    redis set text words >/dev/null
    answers 409 /api/locks/text -X DELETE -H "$key" -H "$from" -H "$mark"
    same "$(redis get text)" words
    redis del text >/dev/null
}

test_tokens_are_private() {
    expect 64 hf serve --listen 127.0.0.1:0 --allow-break
    says "--allow-break needs --token-file"
    expect 64 hf serve --listen 127.0.0.1:0 --token-file "$dir/none"
    for mode in 640 604 660 666; do
        chmod "$mode" "$dir/token"
        expect 64 hf serve --listen 127.0.0.1:0 --token-file "$dir/token"
        says "chmod 600"
    done
    chmod 600 "$dir/token"
    echo short >"$dir/short"
    chmod 600 "$dir/short"
    expect 64 hf serve --listen 127.0.0.1:0 --token-file "$dir/short"
    says "too short"
    expect 64 hf serve --listen 127.0.0.1:0 --token-file "$dir"
    says "not a regular file"
}

test_beyond_this_machine() {
    serve --listen 0.0.0.0:0
    url=http://127.0.0.1:$port
    wait_until serve_logged 'WARNING: anyone who reaches'
    answers 200 /api/locks
    answers 200 /api/locks -H 'Host: 10.20.30.40:7380'
    answers 421 /api/locks -H 'Host: evil.example'
    serve --listen 0.0.0.0:0 --token-file "$dir/token"
    url=http://127.0.0.1:$port
    wait_until serve_logged 'no TLS: everything' # which comes in the place of the warning
    ! serve_logged WARNING || fail "a warning: $(cat "$dir/serve.err")"
    answers 200 /
    for path in /api/locks /api/locks/x /api/clients /api/events /metrics; do
        answers 401 "$path"
    done
    answers 200 /api/locks -H "Authorization: Bearer $token"
    answers 200 /metrics -H "Authorization: Bearer $token"
}

test_where_it_cannot_listen() {
    serve
    expect 71 hf serve --listen "127.0.0.1:$port"
    says "cannot listen on 127.0.0.1:$port: Address already in use"
    expect 71 hf serve --listen 192.0.2.1:7380
    says "cannot listen on 192.0.2.1:7380"
    expect 64 hf serve --listen 127.0.0.1:70000
    expect 64 hf serve --listen '[::1'
    expect 64 hf serve nonsense
}

# A server for this test alone, which ends with it.
own_server() {
    server_start
    started+=("$server")
}
# The server goes away and comes back; the page and the metrics say so.
test_server_away() {
    socket=$dir/away.sock
    own_server
    hold kept
    start hf -t 1s serve --listen 127.0.0.1:0 2>"$dir/serve.err"
    wait_until serves
    url=$(sed -n 's/.*the page is at //p' "$dir/serve.err")
    url=${url%/}
    start curl -sSN "$url/api/events" >"$dir/away"
    wait_until shows /metrics 'holdfast_up 1'
    answers 200 /api/locks
    server_kill
    wait_until shows /metrics 'holdfast_up 0'
    [[ $out == *'# EOF' ]] || fail "$out"
    answers 503 /api/locks
    [[ $out == '{"error":'* ]] || fail "$out"
    wait_until file_has "$dir/away" '"error":.*"failed":[0-9]+'
    own_server
    wait_until shows /metrics 'holdfast_up 1'
    answers 200 /api/locks
    wait_until file_has "$dir/away" '"gone":\["kept"\]|"full":true.*"locks":\[\]'
}

# A server that accepts and does not answer: a scrape reports it before Prometheus gives up.
test_server_stopped() {
    socket=$dir/stopped.sock
    own_server
    serve
    answers 200 /metrics
    kill -STOP "$server"
    wait_until shows /metrics 'holdfast_up 0'
    get /metrics -m 9
    [[ $out == *'holdfast_up 0'* ]] || fail "$out"
    kill -CONT "$server"
    wait_until shows /metrics 'holdfast_up 1'
}

test_the_other_protocol() {
    if ! grep -q '^0000000000000000000000000000000001' /proc/net/if_inet6 2>/dev/null; then
        echo "        passed over: this machine has no ::1"
        return
    fi
    serve --listen '[::1]:0'
    [[ $url == 'http://[::1]:'* ]] || fail "$url"
    answers 200 /api/locks -g
    answers 200 /api/locks -g -H 'Host: localhost'
    answers 421 /api/locks -g -H 'Host: evil.example'
}

test_what_is_missing_is_said() {
    redis acl setuser mute on '>pw' '~*' +@all resetchannels '&redisson*' >/dev/null
    hold seen
    start env HOLDFAST_USER=mute HOLDFAST_PASSWORD=pw "$dir/bin/hf" serve --listen 127.0.0.1:0 2>"$dir/serve.err"
    wait_until serves
    url=$(sed -n 's/.*the page is at //p' "$dir/serve.err")
    url=${url%/}
    answers 200 /api/locks
    [[ $out == *'"missing":"the clients were not asked'*'"name":"seen"'* ]] || fail "$out"
    redis del seen >/dev/null
}

# say_to WORDS: opens a connection, whose descriptor is in $fd, and sends that.
say_to() {
    exec {fd}<>"/dev/tcp/127.0.0.1/$port" || fail "no connection"
    printf '%b' "$1" >&"$fd"
}

test_pages_are_bounded() {
    serve
    local i line
    for ((i = 0; i < 32; i++)); do
        say_to 'GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n'
        read -r -t 30 line <&"$fd"
        [[ $line == *' 200 '* ]] || fail "page $i: $line"
    done
    answers 503 /api/events
    has_header "retry-after: 5"
    answers 200 /api/locks
    exec {fd}>&-
    wait_until page_opens
}
page_opens() {
    say_to 'GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n'
    local line
    read -r -t 30 line <&"$fd"
    [[ $line == *' 200 '* ]] || { exec {fd}>&-; return 1; }
}

# Clients that send nothing, send their request byte by byte, or do not read: all are dropped,
# and others are served.
test_slow_ones_are_dropped() {
    redis eval 'for i = 1, 6000 do local name = i .. string.rep("x", 2000)
        redis.call("hset", name, "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17", 1) redis.call("expire", name, 600) end' 0 >/dev/null
    serve
    local i base
    get /metrics # with which the library has its connections
    wait_until alone
    base=$(sockets)
    say_to 'GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n'
    wait_until more_sockets "$base"
    for ((i = 0; i < 127; i++)); do say_to 'GET / HTTP/1.1\r\nX-A: b'; done
    answers 200 /
    wait_until no_more_sockets "$base"
    redis flushdb >/dev/null
}
# As many clients as there may be leave in the same moment: clients that came meanwhile are served.
test_all_are_dropped_at_once() {
    serve
    local i
    for ((i = 0; i < 128; i++)); do say_to 'GET / HTTP/1.1\r\nX-A: b'; done
    answers 200 /
}
sockets() {
    local all=("/proc/$serving/fd/"*) one count=0
    for one in "${all[@]}"; do
        [[ $(readlink "$one") != socket:* ]] || count=$((count + 1))
    done
    echo "$count"
}
more_sockets() { [ "$(sockets)" -gt "$1" ]; }
no_more_sockets() { ! more_sockets "$1"; }
# No connection of HTTP is open.
alone() { ! grep -q " 0100007F:$(printf '%04X' "$port") [0-9A-F:]* 01 " /proc/net/tcp; }

test_ends_at_once() {
    local signal from
    for signal in TERM INT; do
        serve
        say_to 'GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n'
        read -r -t 30 _ <&"$fd"
        say_to 'GET / HTTP/1.1\r\nX-Half: '
        from=$(now_ms)
        kill -"$signal" "$serving"
        finish "$serving"
        same "$status" 0 "after $signal"
        echo "        ended $(($(now_ms) - from)) ms after $signal"
        same "$(grep -v 'the page is at' "$dir/serve.err")" ""
    done
}

run_tests
