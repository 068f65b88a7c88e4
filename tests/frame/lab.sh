#!/usr/bin/env bash
# A slice of the lab (scripts/lab): histories with three faults, the register with this library, and controls whose fault
# must be found. Controls whose library cannot be fetched are skipped by name.
set -eu
out=$(mktemp -d)
keep() { # what has failed can be judged again
    [ $? = 0 ] || { rm -rf lab-kept && cp -r "$out" lab-kept && echo "its histories are kept: $PWD/lab-kept"; }
    rm -rf "$out"
}
trap keep EXIT
export LAB_BIN=${HOLDFAST%/*}/lab LAB_OUT=$out LAB_S=3600 LAB_RUN_S=2 LAB_SEEDS=1
"$HF_SOURCE_DIR/scripts/lab" \
    history/holdfast/one/replies-lost \
    history/holdfast/quorum/server-restart-empty \
    history/holdfast/sentinel/failover \
    register/holdfast/one/register-holder-stopped \
    register/holdfast/one/register-holder-stopped-after-its-check \
    register/holdfast-tokens/one/register-holder-stopped-after-its-check \
    register/holdfast-tokens/one/register-server-restarts-empty \
    register/holdfast/quorum/register-members-restart-empty \
    register/set-nx-by-hand/one/register-holder-stopped \
    register/redis-py/one/register-server-restarts-empty

# A run is not over before a fault has come, however short it is: else it would say that nothing was found.
said=$("$LAB_BIN" register holdfast one holder-stopped 1 0)
[[ $said =~ faults=[1-9] ]]

# It goes on where it was: nothing is played twice. And it says so if a control finds nothing.
before=$(wc -l <"$out/results.jsonl")
"$HF_SOURCE_DIR/scripts/lab" history/holdfast/one/replies-lost register/holdfast/one/register-holder-stopped >/dev/null
[ "$(wc -l <"$out/results.jsonl")" = "$before" ]
# A run that failed is played again.
sed '/replies-lost/s/"verdict":"[a-z ]*"/"verdict":"failed"/' "$out/results.jsonl" >"$out/failed" && mv "$out/failed" "$out/results.jsonl"
"$HF_SOURCE_DIR/scripts/lab" history/holdfast/one/replies-lost >/dev/null && exit 1 # since it failed once
[ "$(wc -l <"$out/results.jsonl")" = $((before + 1)) ]
sed -i '/"verdict":"failed"/d' "$out/results.jsonl"

# Its books can be read, packed or not; each run has its times.
python3 -c 'import lzma, sys; lzma.open(sys.argv[1] + ".xz", "w").write(open(sys.argv[1], "rb").read())' "$out/results.jsonl"
"$HF_SOURCE_DIR/scripts/lab" --table "$out/results.jsonl.xz" | grep '^| sentinel | failover | [0-9.]* | [0-9.]* |$' >/dev/null
"$HF_SOURCE_DIR/scripts/lab" --table "$out/results.jsonl" | grep -E '^\| set-nx-by-hand \| one \| holder-stopped \| 1 \| 1 \| [0-9.]+ \|$' >/dev/null
"$HF_SOURCE_DIR/scripts/lab" --cells "$out/results.jsonl" | grep '^| plain | one | replies-lost | [0-9,]* | 0 |$' >/dev/null
"$HF_SOURCE_DIR/scripts/lab" --charts "$out/charts" "$out/results.jsonl" >/dev/null
xmllint --noout "$out/charts/"*.svg 2>/dev/null || python3 -c 'import sys, xml.dom.minidom as dom; [dom.parse(name) for name in sys.argv[1:]]' "$out/charts/"*.svg
grep -q '"fault_times":\[\["cut",[0-9]*\]' "$out/results.jsonl"

sed 's/"lost updates"/"holds"/' "$out/results.jsonl" >"$out/blind" && mv "$out/blind" "$out/results.jsonl"
said=$("$HF_SOURCE_DIR/scripts/lab" register/holdfast/one/register-holder-stopped-after-its-check) && exit 1
[[ $said == BLIND:* ]]
# And if a lost update is this library's own fault.
sed 's/"holds"/"lost updates"/' "$out/results.jsonl" >"$out/wrong" && mv "$out/wrong" "$out/results.jsonl"
said=$("$HF_SOURCE_DIR/scripts/lab" register/holdfast-tokens/one/register-server-restarts-empty) && exit 1
[[ $said == WRONG:* ]]
