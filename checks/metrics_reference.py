"""Generate docs/metrics.md from the families of metrics, and deploy/grafana/sandur.json from the panels below.

`python -m checks.metrics_reference` writes both; a test fails if one is not current.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sandur.server.metric_families import BUILD_INFO, FAMILIES, Family

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "metrics.md"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "sandur.json"
_INTRODUCTION: Final = """# Metrics

This page is generated from `src/sandur/server/metric_families.py` by `python -m checks.metrics_reference`.

Every server has its metrics at `/metrics`, in the text format of Prometheus. With authentication, the page needs a
token or an API key; with `metrics_port`, a port of its own has it without one. One scrape has the sum over all workers
of a server. Scrape each server:

```yaml
scrape_configs:
  - job_name: sandur
    authorization: { credentials_file: /etc/prometheus/sandur-api-key }
    static_configs: [{ targets: ["catalog-1:8181", "catalog-2:8181"] }]
rule_files: [sandur.rules.yaml]
```

[deploy/prometheus/sandur.rules.yaml](../deploy/prometheus/sandur.rules.yaml) has alerts, and
[deploy/grafana/sandur.json](../deploy/grafana/sandur.json) a dashboard to import. Both are tested with `promtool`:
the expressions parse, their metrics exist on a real server, and the alerts fire in simulated incidents.

- Every family is in every scrape, also before its first sample. Counters of outcomes start at 0, so that `rate` sees
  the first one.
- Labels take a bounded number of values. Names of tables, users and tenants are never among them. For up to 200 tables
  that you list in `metrics_tables`, `sandur_table_commits_total` counts commits; `system.commits` has those of all
  tables.
- A gauge *of the store* is read from the store every minute by servers with `janitors` on, and is the same on each of
  them: use `max`, not `sum`.
"""


class Panel(NamedTuple):
    """One plot of the dashboard: expressions with their legends."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]


_JOB: Final = 'job=~"$job"'


def _p99(name: str, *by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({', '.join(('le', *by))}) (rate({name}_bucket{{{_JOB}}}[5m])))"


_ATTEMPTS: Final = f"sum(rate(sandur_commit_attempts_total{{{_JOB}}}[5m]))"
_DONE: Final = f'sum(rate(sandur_commit_outcomes_total{{{_JOB}, outcome="ok"}}[5m]))'
_ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "Requests",
        (
            Panel(
                "Requests per second",
                "reqps",
                [(f"sum by (dialect) (rate(sandur_request_seconds_count{{{_JOB}}}[5m]))", "{{dialect}}")],
            ),
            Panel(
                "Server errors and refusals per second",
                "reqps",
                [
                    (
                        f'sum by (status) (rate(sandur_request_seconds_count{{{_JOB}, status=~"5..|429"}}[5m]))',
                        "{{status}}",
                    ),
                    (f"sum by (reason) (rate(sandur_requests_refused_total{{{_JOB}}}[5m]))", "refused: {{reason}}"),
                ],
            ),
            Panel(
                "Duration, 99th percentile",
                "s",
                [(_p99("sandur_request_seconds", "operation"), "{{operation}}")],
            ),
            Panel(
                "Bytes per second",
                "Bps",
                [
                    (f"sum(rate(sandur_request_bytes_total{{{_JOB}}}[5m]))", "received"),
                    (f"sum(rate(sandur_response_bytes_total{{{_JOB}}}[5m]))", "sent"),
                ],
            ),
        ),
    ),
    (
        "Commits",
        (
            Panel(
                "Commits by outcome",
                "ops",
                [
                    (f"sum by (outcome) (rate(sandur_commit_outcomes_total{{{_JOB}}}[5m]))", "{{outcome}}"),
                    (f"sum by (outcome) (rate(sandur_transactions_total{{{_JOB}}}[5m]))", "transaction: {{outcome}}"),
                    (f"sum by (outcome) (rate(sandur_delta_commits_total{{{_JOB}}}[5m]))", "Delta: {{outcome}}"),
                ],
            ),
            Panel(
                "Attempts per commit",
                "short",
                [(f"{_ATTEMPTS} / {_DONE}", "attempts")],
            ),
            Panel(
                "Commits of listed tables",
                "ops",
                [(f"sum by (table) (rate(sandur_table_commits_total{{{_JOB}}}[15m]))", "{{table}}")],
            ),
            Panel(
                "Delta commits that wait to be published",
                "short",
                [(f"max(sandur_delta_unpublished{{{_JOB}}})", "commits")],
            ),
        ),
    ),
    (
        "Storage",
        (
            Panel(
                "Store calls per second",
                "ops",
                [(f"sum by (call, result) (rate(sandur_storage_calls_total{{{_JOB}}}[5m]))", "{{call}} {{result}}")],
            ),
            Panel(
                "Duration of store calls, 99th percentile",
                "s",
                [(_p99("sandur_storage_seconds", "call"), "{{call}}")],
            ),
            Panel(
                "Throttling and retries",
                "ops",
                [(f"sum by (event) (rate(sandur_storage_pace_total{{{_JOB}}}[5m]))", "{{event}}")],
            ),
            Panel(
                "Store bytes per second",
                "Bps",
                [(f"sum by (direction) (rate(sandur_storage_bytes_total{{{_JOB}}}[5m]))", "{{direction}}")],
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel("CPU", "percentunit", [(f"rate(process_cpu_seconds_total{{{_JOB}}}[5m])", "{{instance}}")]),
            Panel(
                "Memory",
                "bytes",
                [
                    (f"process_resident_memory_bytes{{{_JOB}}}", "{{instance}}"),
                    (f"sum by (cache) (sandur_cache_bytes{{{_JOB}}})", "cache: {{cache}}"),
                ],
            ),
            Panel(
                "Event loop lag, 99th percentile",
                "s",
                [(_p99("sandur_loop_lag_seconds", "instance"), "{{instance}}")],
            ),
            Panel(
                "Workers and versions",
                "short",
                [
                    (f"sandur_workers{{{_JOB}}}", "workers of {{instance}}"),
                    (f"count by (version) (sandur_build_info{{{_JOB}}})", "servers of {{version}}"),
                ],
            ),
        ),
    ),
    (
        "Access and planning",
        (
            Panel(
                "Sign-ins",
                "ops",
                [(f"sum by (result) (rate(sandur_sign_ins_total{{{_JOB}}}[5m]))", "{{result}}")],
            ),
            Panel(
                "Decisions of grants",
                "ops",
                [(f"sum by (decision) (rate(sandur_grant_decisions_total{{{_JOB}}}[5m]))", "{{decision}}")],
            ),
            Panel(
                "Scan planning, 99th percentile",
                "s",
                [(_p99("sandur_planning_seconds"), "planning")],
            ),
            Panel(
                "Previews",
                "ops",
                [(f"sum by (result) (rate(sandur_previews_total{{{_JOB}}}[5m]))", "{{result}}")],
            ),
        ),
    ),
    (
        "Background",
        (
            Panel(
                "Time since the last success",
                "s",
                [
                    (f"time() - max by (work) (sandur_last_success_timestamp_seconds{{{_JOB}}})", "{{work}}"),
                    (f"time() - max(sandur_published_timestamp_seconds{{{_JOB}}})", "published"),
                ],
            ),
            Panel(
                "Overdue",
                "short",
                [
                    (f"max(sandur_receipts_overdue{{{_JOB}}})", "receipts"),
                    (f"max(sandur_index_marks_overdue{{{_JOB}}})", "index marks"),
                    (f"max(sandur_purges_waiting{{{_JOB}}})", "purges"),
                ],
            ),
            Panel(
                "Failures per hour",
                "short",
                [
                    (f"sum by (work) (increase(sandur_work_failures_total{{{_JOB}}}[1h]))", "{{work}}"),
                    (f"sum by (area) (increase(sandur_damaged_objects_total{{{_JOB}}}[1h]))", "damaged: {{area}}"),
                    (f"sum(increase(sandur_audit_lost_total{{{_JOB}}}[1h]))", "audit records lost"),
                ],
            ),
            Panel(
                "Maintenance",
                "short",
                [
                    (f"max(sandur_maintenance_backlog{{{_JOB}}})", "due"),
                    (f"max(sandur_maintenance_failing{{{_JOB}}})", "failing"),
                ],
            ),
        ),
    ),
)


def render_page() -> str:
    """The whole reference."""
    return "\n".join([_INTRODUCTION, "| metric | type | labels | meaning |", "|---|---|---|---|", *_rows()]) + "\n"


def _rows() -> Iterator[str]:
    for family in FAMILIES.values():
        is_stored = family.kind == "newest" and family is not BUILD_INFO
        kind = "gauge of the store" if is_stored else "gauge" if family is BUILD_INFO else family.kind
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{sample_name(family)}` | {kind} | {labels} | {family.help} |"


def sample_name(family: Family) -> str:
    """The name of a family in expressions; a histogram's have `_bucket`, `_sum` and `_count` behind it."""
    return f"{family.name}_total" if family.kind == "counter" else family.name


def expressions() -> Sequence[str]:
    """All expressions of the dashboard, with a job in place of its variable."""
    found = [query for _, panels in _ROWS for panel in panels for query, _ in panel.queries]
    return [query.replace("$job", "sandur") for query in found]


def render_dashboard() -> str:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, object]] = []
    for row, (title, plots) in enumerate(_ROWS):
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": row * 9, "w": 24, "h": 1}}
        )
        panels += [_plot(plot, x=number * 6, y=row * 9 + 1) for number, plot in enumerate(plots)]
    document = {
        "title": "Sandur",
        "uid": "sandur",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "label": "Job",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(sandur_build_info, job)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".+",
                },
            ]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, start=1)],
    }
    return json.dumps(document, indent=1) + "\n"


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _plot(panel: Panel, *, x: int, y: int) -> dict[str, object]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": 6, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for number, (query, legend) in enumerate(panel.queries)
        ],
    }


def main() -> None:
    PAGE.write_text(render_page(), encoding="utf-8")
    DASHBOARD.write_text(render_dashboard(), encoding="utf-8")


if __name__ == "__main__":
    main()
