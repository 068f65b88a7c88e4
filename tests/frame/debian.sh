#!/usr/bin/env bash
# What the Debian packages say fits the library and the tool: the package is named by the soname, the symbols file has
# each exported function, the unit is one that systemd accepts, and what it runs refuses to start without a server's
# address. `make deb` builds them, which takes minutes: scripts/dist and its test do that.
set -eu
cd "$HF_SOURCE_DIR/packaging/debian"
fail() { echo "FAILED: $*"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

soname=$(readelf -d "$HF_BUILD_DIR/lib/libholdfast.so" | sed -n 's/.*SONAME.*\[libholdfast\.so\.\(.*\)\].*/\1/p')
[ -n "$soname" ] || fail "the library has no soname"
grep -qx "Package: libholdfast$soname" control || fail "the soname is $soname: rename the library's package in packaging/debian"
for file in "libholdfast$soname.install" "libholdfast$soname.symbols"; do
    [ -f "$file" ] || fail "there is no packaging/debian/$file"
done
head -n 1 "libholdfast$soname.symbols" | grep -qx "libholdfast.so.$soname libholdfast$soname #MINVER#" || fail "the head of the symbols file"

exported=$(grep -o '^hf_[a-z0-9_]*' "$HF_SOURCE_DIR/tests/frame/exports.txt" | LC_ALL=C sort)
packaged=$(sed -n 's/^ \(hf_[a-z0-9_]*\)@Base .*/\1/p' "libholdfast$soname.symbols" | LC_ALL=C sort)
[ -n "$exported" ] || fail "no exports"
difference=$(diff <(echo "$exported") <(echo "$packaged")) ||
    fail "the symbols file lacks functions, or has too many ('scripts/deb --symbols' adds): $difference"

version=$("$HF_SOURCE_DIR/scripts/version" --deb)
newest=$(sed -n 's/^ hf_.*@Base //p' "libholdfast$soname.symbols" | sort -V | tail -n 1)
[ "$(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1)" = "$version" ] || fail "a symbol is of $newest, and this is $version"

# The public address is filled in by scripts/deb, or both files are left out.
[ "$(cat watch upstream/metadata | grep -o '@[A-Z]*@' | sort -u)" = @REPOSITORY@ ] || fail "watch, upstream/metadata: unknown places"
if /usr/bin/python3 -c 'import yaml' 2>/dev/null; then
    /usr/bin/python3 -c 'import sys, yaml
data = yaml.safe_load(open("upstream/metadata").read().replace("@REPOSITORY@", "https://host.invalid/holdfast"))
sys.exit("Repository" not in data or not all(isinstance(value, str) for value in data.values()))' || fail "upstream/metadata"
fi

unit=holdfast.holdfast-serve.service
if [ -x "$HOLDFAST" ]; then
    read -ra command <<<"$(sed -n 's|^ExecStart=/usr/bin/holdfast ||p' "$unit")"
    status=0
    env -i PATH="$PATH" "$(sed -n 's/^Environment=//p' "$unit")" "$HOLDFAST" "${command[@]}" >"$dir/out" 2>&1 || status=$?
    if ! grep -q 'left out' "$dir/out"; then
        [ "$status" = "$(sed -n 's/^RestartPreventExitStatus=//p' "$unit")" ] || fail "without a server: status $status, $(cat "$dir/out")"
    fi
fi
if command -v systemd-analyze >/dev/null; then
    # The tool is not installed here.
    sed "s|/usr/bin/holdfast|$(command -v true)|" "$unit" >"$dir/holdfast-serve.service"
    systemd-analyze verify --man=no "$dir/holdfast-serve.service" >"$dir/out" 2>&1 || fail "systemd-analyze: $(cat "$dir/out")"
    ! grep holdfast-serve "$dir/out" || fail "systemd-analyze: $(cat "$dir/out")"
else
    echo "systemd-analyze is not installed: the unit was not looked at"
fi
