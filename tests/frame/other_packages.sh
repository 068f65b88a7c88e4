#!/usr/bin/env bash
# The recipes for other systems, which nothing here builds, can be read by their tools, are of this version, and name files
# that an installation has. What has no tool here is skipped by name.
set -eu
cd "$HF_SOURCE_DIR/packaging"
fail() { echo "FAILED: $*"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
version=$("$HF_SOURCE_DIR/scripts/version")

grep -qx "%global upstream $version" rpm/holdfast.spec || fail "the spec file is not of $version"
grep -qx "Version: *$("$HF_SOURCE_DIR/scripts/version" --deb)" rpm/holdfast.spec || fail "the spec file's version"
grep -q "/holdfast-$version-source\.tar\.gz\"" homebrew/holdfast.rb || fail "the formula is not of $version"
for file in rpm/holdfast.spec homebrew/holdfast.rb Containerfile; do
    grep -qi 'not built by our tests' "$file" || fail "$file does not say that it is not built here"
done

DESTDIR=$dir/root cmake --install "$HF_BUILD_DIR" >/dev/null
prefix=$dir/root$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$HF_BUILD_DIR/CMakeCache.txt")
libdir=$(dirname "$(find "$prefix" -name libholdfast.a)")
listed=$(sed -n 's/^%{_\([a-z0-9]*\)}\(.*\)/\1 \2/p' rpm/holdfast.spec)
[ "$(wc -l <<<"$listed")" -ge 12 ] || fail "the spec file lists few files"
while read -r kind path; do
    case $kind in
    bindir) path=$prefix/bin$path ;;
    libdir) path=$libdir$path ;;
    includedir) path=$prefix/include$path ;;
    datadir) path=$prefix/share$path ;;
    mandir) path=$prefix/share/man$path ;;
    *) fail "where is %{_$kind}?" ;;
    esac
    if [[ $path == */bin/* && ! -x $HOLDFAST ]] || [[ $path == */man3/* && ! -d $HF_BUILD_DIR/man3 ]]; then continue; fi
    compgen -G "$path" >/dev/null || fail "the spec file lists what is not installed: ${path#"$dir/root"}"
done <<<"$listed"

if command -v rpmspec >/dev/null; then
    rpmspec -P rpm/holdfast.spec >"$dir/out" 2>&1 || fail "rpmspec: $(tail -n 3 "$dir/out")"
else
    echo "[  SKIPPED ] rpmspec"
fi
if command -v rpmlint >/dev/null; then
    rpmlint rpm/holdfast.spec >"$dir/out" 2>&1 || :
    # Rules of Mandriva's and of old systems; and the address, which is not known.
    ! grep -E ': [EW]: ' "$dir/out" | grep -vE 'lib-package-without-%mklibname|no-buildroot-tag|invalid-url' || fail "rpmlint"
else
    echo "[  SKIPPED ] rpmlint"
fi
if command -v ruby >/dev/null; then
    ruby -wc homebrew/holdfast.rb >"$dir/out" 2>&1 || fail "ruby: $(cat "$dir/out")"
    [ "$(cat "$dir/out")" = "Syntax OK" ] || fail "ruby: $(cat "$dir/out")"
else
    echo "[  SKIPPED ] ruby"
fi
