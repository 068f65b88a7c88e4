# What tests of `serve` share, besides lib.sh, which they have read before. Skips the whole file where there is no
# `serve`, or nobody to ask it.

if "$HOLDFAST" serve --listen nowhere:70000 2>&1 | grep -q 'left out'; then
    echo "skipped: this holdfast was built without serve"
    exit 77
fi
command -v curl >/dev/null || { echo "skipped: there is no curl"; exit 77; }

# serve OPTION...: starts it on a port that is free; its address is in $url, its messages in $dir/serve.err.
serve() {
    : >"$dir/serve.err"
    start hf serve --listen 127.0.0.1:0 "$@" 2>"$dir/serve.err"
    serving=$pid
    wait_until serves
    url=$(sed -n 's/.*the page is at //p' "$dir/serve.err")
    url=${url%/}
    port=${url##*:}
}
serves() { grep -q 'the page is at' "$dir/serve.err"; }
# serve_logged PATTERN: in a message of `serve`.
serve_logged() { grep -q -- "$1" "$dir/serve.err"; }

# get PATH [curl option...]: the body is in $out, the status in $status, the headers in $dir/head.
get() {
    local path=$1
    shift
    status=$(curl -sS -m 60 -o "$dir/body" -D "$dir/head" -w '%{http_code}' "$@" "$url$path") || fail "curl: $status"
    out=$(cat "$dir/body")
}
has_header() { grep -qi -- "^$1"$'\r'"\$" "$dir/head" || fail "no '$1' in: $(cat "$dir/head")"; }
answers() { # answers STATUS PATH [curl option...]
    local wanted=$1
    shift
    get "$@"
    same "$status" "$wanted" "status of $*"
}
shows() { get "$1" && [[ $out == *"$2"* ]]; }
