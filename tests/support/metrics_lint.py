#!/usr/bin/python3
"""Judges a text in Prometheus's text format, from the standard input, by the rules of `promtool check metrics`,
for machines without promtool. Prints each fault in a line; 3: there are some, as promtool ends."""
import re
import sys

UNITS = {"ms": "seconds", "milliseconds": "seconds", "us": "seconds", "microseconds": "seconds", "ns": "seconds",
         "nanoseconds": "seconds", "s": "seconds", "sec": "seconds", "secs": "seconds", "m": "seconds", "min": "seconds",
         "mins": "seconds", "minutes": "seconds", "h": "seconds", "hours": "seconds", "d": "seconds", "days": "seconds",
         "b": "bytes", "kb": "bytes", "mb": "bytes", "kilobytes": "bytes", "megabytes": "bytes", "bits": "bytes",
         "percent": "ratio", "percents": "ratio"}
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})? (\S+)( \d+)?')
types, helps, seen, faults = {}, {}, {}, []


def family_of(name):
    for suffix in ("_bucket", "_sum", "_count"):
        base = name[: -len(suffix)] if name.endswith(suffix) else ""
        if types.get(base) in ("histogram", "summary"):
            return base
    return name


for number, line in enumerate(sys.stdin.buffer.read().decode("utf-8").split("\n"), 1):
    words = line.split(" ", 3)
    if line == "" or (words[0] == "#" and words[1] not in ("HELP", "TYPE")):
        continue
    if words[0] == "#":
        table = helps if words[1] == "HELP" else types
        if words[2] in table or words[2] in seen:
            faults.append(f"line {number}: {words[1]} of {words[2]} comes twice, or behind its samples")
        table[words[2]] = words[3] if len(words) > 3 else ""
        continue
    sample = SAMPLE.fullmatch(line)
    if sample is None:
        faults.append(f"line {number} is no sample: {line}")
        continue
    seen.setdefault(family_of(sample[1]), number)

for name in seen:
    kind, parts = types.get(name, "untyped"), name.split("_")
    if not helps.get(name):
        faults.append(f"{name} no help text")
    if kind == "counter" and not name.endswith("_total"):
        faults.append(f'{name} counter metrics should have "_total" suffix')
    if kind != "counter" and name.endswith("_total"):
        faults.append(f'{name} non-counter metrics should not have "_total" suffix')
    if kind not in ("histogram", "summary") and re.search("_(bucket|count|sum)$", name):
        faults.append(f"{name} has a suffix of histograms")
    if re.search("[a-z][A-Z]", name) or ":" in name:
        faults.append(f"{name} should be written in snake_case, without colons")
    for part in parts:
        if part in UNITS:
            faults.append(f'{name} use base unit "{UNITS[part]}" instead of "{part}"')
        if part in ("gauge", "counter", "histogram", "summary"):
            faults.append(f'{name} metric name should not include type "{part}"')
print("\n".join(sorted(faults)))
sys.exit(3 if faults else 0)
