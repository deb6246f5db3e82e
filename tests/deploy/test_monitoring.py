"""The dashboard and the alerts: their expressions parse, their metrics exist, and the alerts fire (promtool)."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from checks.metrics_reference import DASHBOARD, PAGE, expressions, render_dashboard, render_page
from sandur.server.metric_families import FAMILIES
from sandur.server.metrics import Metrics
from tests.server.conftest import Catalogs, catalogs

__all__ = ["catalogs"]  # The fixture.

RULES: Final = Path(__file__).parent.parent.parent / "deploy" / "prometheus" / "sandur.rules.yaml"
PROMTOOL: Final = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: apt install prometheus)"
)
METRIC: Final = re.compile(r"\b(?:sandur|process|uc_preview)_[a-z_]+\b")


def promtool(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    assert PROMTOOL
    return subprocess.run([PROMTOOL, *arguments], input=stdin, capture_output=True, timeout=120, check=False)


def test_the_reference_and_the_dashboard_are_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run: python -m checks.metrics_reference"
    assert DASHBOARD.read_text(encoding="utf-8") == render_dashboard(), "run: python -m checks.metrics_reference"


async def test_every_metric_of_the_dashboard_and_the_alerts_is_in_a_scrape(catalogs: Catalogs) -> None:
    client = await catalogs.open()
    page = (await client.get("/metrics")).text

    found = {family.name for family in text_string_to_metric_families(page)}
    known = {name + ending for name in found for ending in ("", "_total", "_bucket", "_count", "_sum")}
    texts = [*expressions(), RULES.read_text(encoding="utf-8")]
    named = {name for text in texts for name in METRIC.findall(re.sub(r"action:.*", "", text))}
    assert len(named) > 30
    assert named <= known
    assert {*FAMILIES} == found


@needs_promtool
def test_promtool_accepts_the_page_of_metrics() -> None:
    checked = promtool("check", "metrics", stdin=Metrics().exposition()[0])

    # Two counters have the names that the Unity Catalog preview chose, in singular.
    assert checked.returncode in {0, 3}, checked.stderr
    assert b"no help text" not in checked.stderr


@needs_promtool
def test_the_expressions_of_the_dashboard_parse(tmp_path: Path) -> None:
    rules = [f"      - record: plot:{number}\n        expr: {text!r}\n" for number, text in enumerate(expressions())]
    file = tmp_path / "plots.yaml"
    file.write_text("groups:\n  - name: plots\n    rules:\n" + "".join(rules), encoding="utf-8")

    checked = promtool("check", "rules", str(file))

    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found".encode() in checked.stdout


@needs_promtool
def test_the_alerts_fire_in_simulated_incidents_and_every_alert_is_tried() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert checked.returncode == 0, checked.stderr

    incidents = [RULES.with_name("incidents.yaml"), RULES.with_name("backlog.yaml")]
    fired = promtool("test", "rules", *map(str, incidents))

    assert fired.returncode == 0, fired.stdout + fired.stderr
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8")))
    tried = set(re.findall(r"Sandur\w+", "".join(file.read_text(encoding="utf-8") for file in incidents)))
    assert alerts == tried
