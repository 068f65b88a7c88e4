#!/usr/bin/env bash
# What the repository shows to the public is well formed: workflows, templates, CITATION.cff, SECURITY.md. Actions are
# pinned by commit, no workflow has more rights than it says, and what the workflows call exists.
set -eu
cd "$HF_SOURCE_DIR"
fail() { echo "FAILED: $*"; exit 1; }
python=/usr/bin/python3
"$python" -c 'import yaml' 2>/dev/null || python=python3
"$python" -c 'import yaml' 2>/dev/null || { echo "skipped: there is no python3-yaml"; exit 77; }

"$python" - <<'END'
import pathlib, re, subprocess, sys, yaml
top = pathlib.Path(".")
version = subprocess.run(["scripts/version"], capture_output=True, text=True, check=True).stdout.strip()
targets = set(re.findall(r"^([a-z-]+):", (top / "Makefile").read_text(), re.M))
wrong = []
workflows = sorted((top / ".github/workflows").glob("*.yml"))
for path in workflows:
    text = path.read_text()
    flow = yaml.safe_load(text)
    if flow.get("permissions") != {"contents": "read"}:
        wrong.append(f"{path}: permissions beyond reading, for all jobs")
    for name, job in flow["jobs"].items():
        if "timeout-minutes" not in job:
            wrong.append(f"{path}: {name} has no time limit")
        for step in job["steps"]:
            uses = step.get("uses")
            if uses and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses):
                wrong.append(f"{path}: {uses} is not pinned by commit")
            if uses and uses.startswith("actions/checkout@") and step["with"]["persist-credentials"] is not False:
                wrong.append(f"{path}: checkout leaves credentials")
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                if target not in targets:
                    wrong.append(f"{path}: make has no {target}")
            if re.search(r"\$\{\{\s*github\.(event|head_ref)", step.get("run", "")):
                wrong.append(f"{path}: a text of others is put into a script")
for path in [*top.glob(".github/*.yml"), *top.glob(".github/ISSUE_TEMPLATE/*.yml"), top / "CITATION.cff"]:
    yaml.safe_load(path.read_text())
for update in yaml.safe_load((top / ".github/dependabot.yml").read_text())["updates"]:
    for place in update.get("directories", [update.get("directory")]):
        if not (top / place.lstrip("/")).is_dir():
            wrong.append(f"dependabot: there is no {place}")
citation = yaml.safe_load((top / "CITATION.cff").read_text())
if citation["version"] != version:
    wrong.append(f"CITATION.cff is of {citation['version']}, and this is {version}")
for page in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
    for link in re.findall(r"\]\(([^)#]+)", (top / page).read_text()):
        if not (top / link).exists():
            wrong.append(f"{page}: there is no {link}")
if len(workflows) < 4:
    wrong.append("workflows are missing")
print("\n".join(wrong))
sys.exit(bool(wrong))
END
# Building it takes long: `make lint` and the soak do.
how=--installed
[ "${HF_SOAK:-0}" = 0 ] || how=
status=0
scripts/actionlint $how || status=$?
case $status in
0) ;;
77) echo "[  SKIPPED ] actionlint" ;;
*) fail actionlint ;;
esac

# What is not ready for a release is said; the version is still a candidate's, or its heading has a date.
scripts/release --check >"$HF_BUILD_DIR/release-check" 2>&1 && fail "it is ready without a key"
for what in HF_SIGNING_KEY HF_RELEASE_URL HF_REPOSITORY; do
    grep -q "^scripts/release: $what is not set" "$HF_BUILD_DIR/release-check" || fail "scripts/release does not want $what"
done
! grep -E 'CITATION|symbols' "$HF_BUILD_DIR/release-check" || fail "it is not consistent"
