#!/usr/bin/env bash
# TLS from the command line: flags, environment and urls, and what the tool says when it does not work out.
. "$(dirname "$0")/lib.sh"

# ca NAME: a CA; certificate NAME CA: a certificate of it for localhost and 127.0.0.1.
ca() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj "/CN=$1" \
        -keyout "$dir/$1.key" -out "$dir/$1.pem" 2>/dev/null || fail "openssl makes no CA"
}
certificate() {
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$dir/$1.ext"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
        -keyout "$dir/$1.key" -out "$dir/$1.csr" 2>/dev/null &&
        openssl x509 -req -in "$dir/$1.csr" -CA "$dir/$2.pem" -CAkey "$dir/$2.key" -CAcreateserial \
            -days 1 -extfile "$dir/$1.ext" -out "$dir/$1.crt" 2>/dev/null || fail "no certificate"
}
certificates() {
    [ -e "$dir/server.crt" ] && return
    ca good
    ca bad
    certificate server good
    certificate client good
}

# tls_server_start [redis-server option...]: its port is in $port.
port=
tls_server_start() {
    certificates
    for port in $(shuf -i 12000-31999 -n 20); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
        server_start --bind 127.0.0.1 --tls-port "$port" --tls-cert-file "$dir/server.crt" \
            --tls-key-file "$dir/server.key" --tls-ca-cert-file "$dir/good.pem" "$@"
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
        server_kill
    done
    fail "no port for a server with TLS"
}

# in_etc PATH COMMAND...: with nothing in /etc but the good CA, under that name.
in_etc() {
    local path=$1
    shift
    unshare --map-root-user --mount sh -eu -c 'bundle=$1 path=$2; shift 2
        mount -t tmpfs none /etc
        mkdir -p "$(dirname "$path")"
        cp "$bundle" "$path"
        exec env -u SSL_CERT_FILE -u SSL_CERT_DIR "$@"' sh "$dir/good.pem" "$path" "$@"
}
test_authorities_where_other_systems_keep_them() {
    unshare --map-root-user --mount mount -t tmpfs none /etc 2>/dev/null ||
        { echo "skipped: no namespace to mount in"; return; }
    tls_server_start --tls-auth-clients no
    local path tool=("$HOLDFAST" --tls -h 127.0.0.1 -p "$port")
    for path in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
        expect 0 in_etc "$path" "${tool[@]}" run x true
    done
    expect 69 in_etc /etc/elsewhere.pem "${tool[@]}" run x true
    says "was rejected"
    # What a variable names is used alone.
    expect 69 in_etc /etc/pki/tls/certs/ca-bundle.crt env SSL_CERT_FILE="$dir/bad.pem" "${tool[@]}" run x true
    says "was rejected"
}

test_flags() {
    tls_server_start --tls-auth-clients no
    local tls=("$HOLDFAST" --tls -h localhost -p "$port")
    expect 0 "${tls[@]}" --cacert "$dir/good.pem" run x redis-cli -s "$socket" exists x
    same "$out" 1
    expect 0 "$HOLDFAST" --tls -p "$port" --cacert "$dir/good.pem" run x true # 127.0.0.1
    expect 0 "$HOLDFAST" --tls -h 127.0.0.1 -p "$port" --cacert "$dir/good.pem" --sni localhost run x true
    expect 0 "${tls[@]}" --insecure run x true

    mkdir "$dir/hashed"
    cp "$dir/good.pem" "$dir/hashed/$(openssl x509 -in "$dir/good.pem" -noout -hash).0"
    expect 0 "${tls[@]}" --cacertdir "$dir/hashed" run x true

    expect 69 "${tls[@]}" --cacert "$dir/bad.pem" run x true
    says "certificate was rejected for 'localhost'"
    says "to trust its CA, give it with --cacert"
    expect 69 "${tls[@]}" run x true # the system's CAs do not know it
    says "was rejected"
    expect 69 "${tls[@]}" --cacert "$dir/good.pem" --sni other.test run x true
    says "mismatch"
}

test_urls_and_environment() {
    tls_server_start --tls-auth-clients no
    expect 0 "$HOLDFAST" -u "rediss://localhost:$port?tls_ca_file=$dir/good.pem" run x true
    expect 0 "$HOLDFAST" -u "valkeys://localhost:$port" --cacert "$dir/good.pem" run x true
    expect 0 "$HOLDFAST" -u "redis://localhost:$port/1" --tls --cacert "$dir/good.pem" run x \
        redis-cli -s "$socket" -n 1 exists x
    same "$out" 1
    expect 0 env HOLDFAST_TLS=yes HOLDFAST_CACERT="$dir/good.pem" REDIS_URL="redis://localhost:$port" \
        "$HOLDFAST" run x true
    # A flag that says whom to trust is not widened by the environment.
    expect 69 env HOLDFAST_CACERT="$dir/good.pem" "$HOLDFAST" -u "rediss://localhost:$port" \
        --cacertdir "$dir/bin" run x true
    says "was rejected"
    expect 0 env HOLDFAST_CACERTDIR=/nonexistent "$HOLDFAST" -u "rediss://localhost:$port" \
        --cacert "$dir/good.pem" run x true
    # Those of the environment do not disturb where there is no TLS.
    expect 0 env HOLDFAST_CACERT="$dir/good.pem" "$HOLDFAST" -s "$socket" run x true
}

test_client_certificate() {
    tls_server_start --tls-auth-clients yes
    local tls=("$HOLDFAST" --tls -h localhost -p "$port" --cacert "$dir/good.pem")
    expect 0 "${tls[@]}" --cert "$dir/client.crt" --key "$dir/client.key" run x true
    expect 69 "${tls[@]}" run x true
    says "the server refused"
    says "the server requires a client certificate: give --cert and --key"
    expect 64 "${tls[@]}" --cert "$dir/client.crt" --key "$dir/server.key" run x true
    says "the client certificate's key"
    expect 64 "${tls[@]}" --cert "$dir/nothing" run x true
    says "$dir/nothing"
}

# What the system's configuration of OpenSSL forbids is not "out of memory".
test_openssl_cannot_be_used() {
    certificates
    printf '%s\n' 'openssl_conf = all' '[all]' 'providers = some' '[some]' 'base = on' '[on]' \
        'activate = 1' >"$dir/openssl.cnf"
    expect 71 env OPENSSL_CONF="$dir/openssl.cnf" "$HOLDFAST" -u rediss://localhost run x true
    says "cannot initialize OpenSSL"
}

# Where the configuration of OpenSSL allows it, a server can do without a certificate. It does not get our password.
test_anonymous_server() {
    certificates
    printf '%s\n' 'openssl_conf = all' '[all]' 'ssl_conf = some' '[some]' 'system_default = it' '[it]' \
        'CipherString = ALL:aNULL:@SECLEVEL=0' 'MaxProtocol = TLSv1.2' >"$dir/anonymous.cnf"
    mkfifo "$dir/quiet" # a standard input that says nothing and does not end
    # shellcheck disable=SC2016 # The inner shell is meant: bash gives what it starts in the background no input.
    start env OPENSSL_CONF="$dir/anonymous.cnf" sh -c 'exec openssl s_server -accept 127.0.0.1:0 -nocert \
        -tls1_2 -cipher aNULL:@SECLEVEL=0 0<>"$0" >"$1" 2>&1' "$dir/quiet" "$dir/anonymous"
    wait_until grep -q '^ACCEPT' "$dir/anonymous"
    port=$(sed -n 's/^ACCEPT.*://p' "$dir/anonymous")
    expect 69 env OPENSSL_CONF="$dir/anonymous.cnf" HOLDFAST_PASSWORD=open-sesame "$HOLDFAST" \
        -u "rediss://localhost:$port" --cacert "$dir/good.pem" run x true
    says "no certificate"
    ! grep -q sesame "$dir/anonymous" || fail "the password was sent"
}

# A server without TLS: it says nothing to a handshake. That is said once, with what may be wrong.
test_a_port_without_tls() {
    start perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die;
        open F, ">", $ARGV[0]; print F $s->sockport; close F; while ($c = $s->accept) { push @all, $c }' "$dir/port"
    wait_until file_filled "$dir/port"
    for _ in 1 2 3; do # the end of the handshake and of the wait come in either order
        expect 69 "$HOLDFAST" --tls -p "$(cat "$dir/port")" -t 1s run x true
        says "does this server use TLS?"
        case ${err##*cannot acquire} in *$'\n'*) fail "more after the error: $err" ;; esac
    done
}

# Nobody shall believe to be encrypted who is not.
test_tls_where_there_is_none() {
    expect 64 "$HOLDFAST" --tls -s "$socket" run x true
    expect 64 "$HOLDFAST" --tls -u local: run x true
    expect 64 env HOLDFAST_TLS=1 "$HOLDFAST" -u "unix://$socket" run x true
    for option in --insecure --cacert=x --cacertdir=x --cert=x --key=x --sni=x; do
        expect 64 "$HOLDFAST" "$option" -s "$socket" run x true
        says "${option%=*} needs TLS"
        expect 64 "$HOLDFAST" "$option" -u redis://localhost run x true
        says "${option%=*} needs TLS"
    done
    expect 64 "$HOLDFAST" --tls --cacert= run x true
    says "empty"
}

run_tests
