#!/usr/bin/env python3
"""monitoring/dashboard.py: writes the Grafana dashboard, holdfast.json, on standard output.

A table of panels is easier to review than their JSON.
"""
import json

RATE = "$__rate_interval"
LOCK = 'lock=~"$lock"'


def by_lock(quantile, family):
    return f"topk(10, histogram_quantile({quantile}, sum by (lock, le) (rate({family}_bucket{{{LOCK}}}[{RATE}]))))"


def client_rate(counter):
    return f"sum(rate(holdfast_fleet_client_{counter}_total[{RATE}]))"


PANELS = [  # title, kind, width, unit, queries with their legends
    ("Server answers", "stat", 4, "bool_yes_no", [("min(holdfast_up)", "")]),
    ("Locks held", "stat", 4, "short", [('sum(holdfast_fleet_locks{state!="free"})', "")]),
    ("Waiters", "stat", 4, "short", [("sum(holdfast_fleet_waiters)", "")]),
    ("Longest wait", "stat", 4, "s", [("max(holdfast_fleet_oldest_wait_seconds)", "")]),
    ("Deadlocks", "stat", 4, "short", [("sum(holdfast_fleet_deadlocks)", "")]),
    ("Lost in 1 h", "stat", 4, "short", [("sum(increase(holdfast_fleet_losses_total[1h]))", "")]),
    ("Acquires per second", "timeseries", 12, "ops", [
        (client_rate("acquired"), "acquired"),
        (client_rate("contended"), "waited first"),
        (client_rate("timed_out"), "timed out")]),
    ("Locks by the state of their holders", "timeseries", 12, "short",
     [("sum by (state) (holdfast_fleet_locks)", "{{state}}")]),
    ("Wait, 99th percentile", "timeseries", 12, "s", [(by_lock(0.99, "holdfast_fleet_lock_wait_seconds"), "{{lock}}")]),
    ("Hand-over, median", "timeseries", 12, "s", [(by_lock(0.5, "holdfast_fleet_lock_hand_over_seconds"), "{{lock}}")]),
    ("Hold, median", "timeseries", 12, "s", [(by_lock(0.5, "holdfast_fleet_lock_hold_seconds"), "{{lock}}")]),
    ("Waiters by lock", "timeseries", 12, "short", [(f"topk(10, holdfast_fleet_lock_waiters{{{LOCK}}})", "{{lock}}")]),
    ("Held for", "timeseries", 12, "s", [(f"topk(10, holdfast_fleet_lock_held_seconds{{{LOCK}}})", "{{lock}}")]),
    ("Failed renewals by host", "timeseries", 12, "ops",
     [(f"sum by (host) (rate(holdfast_fleet_client_renew_failures_total[{RATE}]))", "{{host}}")]),
    ("Duration of a survey", "timeseries", 12, "s", [("holdfast_fleet_survey_seconds", "{{instance}}")]),
    ("Versions of holdfast serve", "timeseries", 12, "short", [("sum by (version) (holdfast_build_info)", "{{version}}")]),
]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


def panels():
    x = y = height = 0
    for number, (title, kind, width, unit, queries) in enumerate(PANELS, 1):
        if x + width > COLUMNS:
            x, y = 0, y + height
        height = 4 if kind == "stat" else 8
        yield {
            "id": number,
            "title": title,
            "type": kind,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {},
            "targets": [{"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend, "datasource": SOURCE}
                        for i, (query, legend) in enumerate(queries)],
        }
        x += width


def main():
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {"name": "lock", "type": "query", "datasource": SOURCE, "includeAll": True, "multi": True, "allValue": ".*",
         "refresh": 2, "query": {"query": "label_values(holdfast_fleet_lock_wait_seconds_count, lock)", "refId": "A"}},
    ]
    print(json.dumps({
        "uid": "holdfast",
        "title": "holdfast",
        "tags": ["locks"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": variables},
        "panels": list(panels()),
    }, indent=1))


if __name__ == "__main__":
    main()
