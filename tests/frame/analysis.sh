#!/usr/bin/env bash
# The numbers of docs/analysis.md, and of its Chinese twin, are those of the lab's own lines, tests/lab/results: every cell of the
# tables of histories and of the register, the sums in the text, also those of the last version's lines, the longest time after which
# a control's fault was found, and the charts. The page has 3,000 words at most.
set -eu
cd "$HF_SOURCE_DIR"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
scripts/lab --charts "$out" tests/lab/results/*.xz >/dev/null
for chart in silent waits; do
    cmp "$out/analysis-$chart.svg" "docs/analysis-$chart.svg"
done
scripts/lab --table tests/lab/results/*.xz >"$out/table"
scripts/lab --cells tests/lab/results/*.xz >"$out/cells"
cat >"$out/compare.py" <<'PYTHON'
import re, sys

played, cells = open(sys.argv[1]).read(), open(sys.argv[2]).read()
wrong = 0


def tables(text):
    """Of each row of each table: its first cell, the column's title, the cell."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield head, {row[0]: dict(zip(head[1:], (re.sub(r" ?([·/]) ?", r"\1", cell) for cell in row[1:]))) for row in rows}


def found(rows, key, column):
    return rows.get(key, {}).get(column, "–")


lines = list(tables(played))
histories = next(rows for head, rows in lines if head[1:3] == ["one", "cohort"])
register = next(rows for head, rows in lines if "holder-stopped" in head)
sums = re.search(r"histories ([\d,]+) operations in (\d+) runs, ([\d,]+) of unknown", played).groups()
sums += re.search(r"the last, (\w+): histories ([\d,]+) operations in (\d+) runs, [\d,]+ of unknown outcome, 0 unexplained", played).groups()
timed, controls, longest = re.search(r"(\d+) of (\d+) cells have a time, the longest ([\d.]+) s", played).groups()
sums += (controls, longest)
sums += re.search(r"(\d+) cells, (\d+) of 10,000 or more, the smallest has (\d+)", cells).groups()
if timed != controls:
    print(f"only {timed} of {controls} controls have a time")
    wrong = 1
for page in sys.argv[3:]:
    text = open(page).read()
    seen = 0
    for head, rows in tables(text):
        expected = histories if head[1:3] == ["one", "cohort"] else register if head[0] == "" and set(head[1:]) <= set(register["holdfast"]) else None
        if expected is None:
            continue
        for key, row in rows.items():
            for column, cell in row.items():
                seen += 1
                if cell != found(expected, key, column):
                    print(f"{page}: {key}, {column}: {cell}, but the lines have {found(expected, key, column)}")
                    wrong = 1
    missing = set(histories) - {key for head, rows in tables(text) for key in rows} | {number for number in sums if number not in text}
    if missing or seen < 300:
        print(f"{page}: {seen} cells were compared; not there: {missing}")
        wrong = 1
sys.exit(wrong)
PYTHON
python3 "$out/compare.py" "$out/table" "$out/cells" docs/analysis.md docs/analysis.zh-CN.md

# And a number that is not theirs is noticed.
# changed EXPRESSION: and it is there to be changed.
changed() {
    sed -E "$1" docs/analysis.md >"$out/other.md"
    ! cmp -s docs/analysis.md "$out/other.md" || exit 1
    if python3 "$out/compare.py" "$out/table" "$out/cells" "$out/other.md" >/dev/null; then exit 1; fi
}
changed '/^\| holdfast \|/s|\| 0/|\| 1/|'
changed '/^\| one-way-cut \|/s|; [0-9]|; 1|'
changed 's/took [0-9.]+ s/took 600 s/'
[ "$(wc -w <docs/analysis.md)" -le 3000 ]
