#!/usr/bin/python3
"""Reads a text in the format of OpenMetrics from the standard input with Prometheus's parser for Python, and
prints each sample in a line: name{label="value",...} value. With the argument `text` the text is in Prometheus's older
format. 1: it is not well formed. 77: there is no parser."""
import sys

try:
    if sys.argv[1:] == ["text"]:
        from prometheus_client.parser import text_string_to_metric_families
    else:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    print("python3-prometheus-client is not installed", file=sys.stderr)
    sys.exit(77)

try:
    families = list(text_string_to_metric_families(sys.stdin.buffer.read().decode("utf-8")))
except (ValueError, UnicodeDecodeError) as error:
    print(f"not well formed: {error}", file=sys.stderr)
    sys.exit(1)
names = [family.name for family in families]
if len(names) != len(set(names)):
    print("a family is there twice", file=sys.stderr)
    sys.exit(1)
for family in families:
    for sample in family.samples:
        labels = ",".join(f"{key}={value!r}" for key, value in sorted(sample.labels.items()))
        print(f"{sample.name}{{{labels}}} {sample.value:g}")
