#!/usr/bin/env bash
# The site: each document is a page, all their links lead somewhere, the API reference has every name that programs rely
# on, and what the generator is given loads nothing from elsewhere. The soak builds it, as `make site` does, and searches in
# it with a browser.
set -eu
cd "$HF_SOURCE_DIR"
fail() { echo "FAILED: $*"; exit 1; }
python3 -c 'import tomllib' 2>/dev/null || { echo "skipped: there is no Python 3.11"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# What the generator reads.
python3 site/pages.py "$dir/pages" || fail "the documents do not become pages"
python3 - "$dir/pages" tests/frame <<'END' || fail "see above"
import json, pathlib, re, sys
sys.path.insert(0, "site")
import api_reference
pages, frame = map(pathlib.Path, sys.argv[1:])
wrong = []
for language in ("en", "zh"):
    config = json.loads((pages / language / "mkdocs.yml").read_text())
    listed = [file for section in config["nav"] for files in section.values() for one in files for file in one.values()]
    there = sorted(path.name for path in (pages / language / "docs").glob("*.md"))
    if sorted(listed) != there or len(there) < 20:
        wrong.append(f"{language}: the list of pages is {listed}, and there are {there}")
    if "http" in json.dumps(config) or config["theme"]["font"] is not False:
        wrong.append(f"{language}: something is loaded from elsewhere")
    for name in (config["extra_css"] + config["extra"]["polyfills"]):
        if not (pages / language / "docs" / name).is_file():
            wrong.append(f"{language}: there is no {name}")
if "分布式锁" not in (pages / "zh/docs/index.md").read_text():
    wrong.append("the Chinese index is not in Chinese")

header = pathlib.Path("include/holdfast/holdfast.h").read_text()
entries = [entry for _, found in api_reference.sections_of(header) for entry in found]
functions = [name for entry in entries for name in entry.functions()]
exported = (frame / "exports.txt").read_text().split()
if sorted(functions) != sorted(exported):
    wrong.append(f"functions and exports differ: {set(functions) ^ set(exported)}")
page = (pages / "en/docs/api.md").read_text()
anchors = re.findall(r'(?:\{#|id=")(\w+)', page)
twice = {name for name in anchors if anchors.count(name) > 1}
missing = set(re.findall(r"\b(?:hf|HF)_\w+", (frame / "abi.txt").read_text())) - set(anchors)
if twice or missing:
    wrong.append(f"anchors that are there twice: {twice}; that are missing: {missing}")
for section in re.findall(r"^/\* ---- (.+?) -+ \*/$", header, re.M):
    if f"\n## {section}" not in page:
        wrong.append(f"the API reference lacks {section}")
def plain(text):
    return " ".join(re.findall(r"\w+", re.sub(r"\]\([^)]*\)", "", text.replace("\\", ""))))
all_words = plain(page)
for entry in entries:
    if "docs/" not in entry.comment and plain(entry.comment) not in all_words:
        wrong.append(f"the comment of {entry.names()} is not there as it stands")
print("\n".join(wrong))
sys.exit(bool(wrong))
END

# A document that is no page, a link to a file and to a heading that are not there.
mkdir "$dir/copy"
for path in *; do
    case $path in
    site | docs) cp -r "$path" "$dir/copy" ;;
    *) ln -s "$PWD/$path" "$dir/copy" ;;
    esac
done
python3 "$dir/copy/site/pages.py" "$dir/again" || fail "a copy does not become pages"
diff -r "$dir/pages" "$dir/again" >/dev/null || fail "the pages of a copy are others"
# A translation's headings have the anchors of the English page, whether it names them or not.
printf '# 一\n\n## <a id="x"></a>二\n\n[a](#x) [b](guide.md#take-a-lock)\n' >"$dir/copy/docs/abi.zh-CN.md"
printf '# One\n\n## Two words\n\n[c](#two-words)\n' >"$dir/copy/docs/abi.md"
python3 "$dir/copy/site/pages.py" "$dir/again" || fail "a translation does not become a page"
grep -qx '## 二 {#two-words}' "$dir/again/zh/docs/abi.md" && grep -qF '[a](#two-words) [b](guide.md#take-a-lock)' \
    "$dir/again/zh/docs/abi.md" || fail "a translation has other anchors: $(cat "$dir/again/zh/docs/abi.md")"
cp docs/abi*.md "$dir/copy/docs"
echo '# Stray' >"$dir/copy/docs/stray.md"
echo '[a](nowhere.md) [b](guarantees.md#nothing)' >>"$dir/copy/docs/fencing.md"
python3 "$dir/copy/site/pages.py" "$dir/again" >"$dir/said" && fail "broken links are accepted"
for what in 'docs/stray.md is not a page' 'nowhere.md leads nowhere' 'no #nothing in docs/guarantees.md'; do
    grep -qF "$what" "$dir/said" || fail "not found: $what"
done

# The checker of built pages finds each of these, and nothing in a page without them.
mkdir "$dir/built"
echo '<a href="b.html#here">b</a> <a href="https://example.org/">there</a> <img src="data:,">' >"$dir/built/a.html"
echo '<p id="here"><a href="#here">x</a></p>' >"$dir/built/b.html"
python3 site/check_links.py "$dir/built" || fail "good pages are refused"
while IFS='|' read -r text what; do
    echo "$text" >"$dir/built/a.html"
    python3 site/check_links.py "$dir/built" >"$dir/said" && fail "accepted: $text"
    grep -qF "$what" "$dir/said" || fail "not found: $what in $text"
done <<'END'
<a href="c.html">c</a>|c.html leads nowhere
<a href="b.html#gone">b</a>|b.html#gone: no such anchor
<a href="/b.html">b</a>|only at the root
<a href="../../x.html">b</a>|leads out of the site
<script src="https://example.org/x.js"></script>|loads https://example.org/x.js
<link rel="stylesheet" href="//example.org/x.css">|loads //example.org/x.css
<style>@import "https://example.org/x.css";</style>|loads https://example.org/x.css
<p style="background: url(https://example.org/x.png)">|loads https://example.org/x.png
<p id="x"></p><p id="x"></p>|#x is there twice
END

[ "${HF_SOAK:-0}" != 0 ] || exit 0
status=0
scripts/site || status=$?
case $status in
0) ;;
77) echo "[  SKIPPED ] the built site"; exit 0 ;;
*) fail "scripts/site" ;;
esac
command -v chromium >/dev/null || { echo "[  SKIPPED ] the site in a browser: there is no chromium"; exit 0; }
python3 - "$HF_BUILD_DIR/site" "$dir/profile" <<'END' || fail "in a browser"
import sys
sys.path.insert(0, "tests/cli")
import browser
top, profile = sys.argv[1:]
chromium = browser.Browser(profile)
try:
    for page, word, found in (("index.html", "watchdog", "watchdog"), ("zh/index.html", "分布式锁", "入门")):
        for width in (1280, 390):
            chromium.size(width, 844)
            chromium.go("about:blank")
            chromium.go(f"file://{top}/{page}")
            chromium.until("document.readyState == 'complete' && document.querySelector('h1') != null", page)
            assert chromium.js("document.documentElement.scrollWidth <= innerWidth"), f"{page} is wider than {width}"
            chromium.until("document.querySelector('.md-search__button') != null", "a button for the search")
            chromium.js("document.querySelector('.md-search__button').click()")
            chromium.until("document.activeElement?.tagName == 'INPUT' || document.activeElement?.shadowRoot != null", "the search")
            chromium.tell("Input.insertText", {"text": word})
            # The results are in a tree of their own.
            text = "(function all(node) { return [...node.querySelectorAll('*')].map(one => one.shadowRoot ? " \
                   "one.shadowRoot.textContent + all(one.shadowRoot) : '').join('') + (node.body?.innerText ?? ''); })(document)"
            chromium.until(f"/[1-9][0-9]* results?/.test({text}) && {text}.includes({found!r})", f"results for {word}")
    assert not chromium.complaints, chromium.complaints
finally:
    chromium.close()
END
