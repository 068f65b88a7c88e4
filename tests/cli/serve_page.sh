#!/usr/bin/env bash
# The page of `holdfast serve` in a real browser: serve_page.py looks at it, this starts what it needs.
# With HF_PICTURES=DIRECTORY (as root) it also takes the pictures of the documents.
. "$(dirname "$0")/lib.sh"
if "$HOLDFAST" serve --listen nowhere:70000 2>&1 | grep -q 'left out'; then
    echo "skipped: this holdfast was built without serve"
    exit 77
fi
for tool in chromium python3; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
server_start
echo 0123456789abcdef-secret >"$dir/token"
chmod 600 "$dir/token"
export dir HF_PICTURES="${HF_PICTURES:-}"
python3 "$(dirname "$0")/serve_page.py"
