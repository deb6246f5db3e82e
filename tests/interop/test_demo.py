"""The demo, as `make demo` runs it."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.interop.matrix import ROOT
from tests.interop.recipes import run_command

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(1_000),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it"),
]


def test_the_demo_succeeds_and_leaves_no_process_or_file(tmp_path: Path) -> None:
    printed = run_command([sys.executable, "-m", "demo"], ROOT, {"TMPDIR": str(tmp_path)}, seconds_max=900)

    for text in ("PyIceberg", "DuckDB", "Spark", "make serve", "docs/engines.md"):
        assert text in printed
    assert "bob may not do this: it needs USE SCHEMA on schema hr" in printed
    audited = [line.split() for line in printed.splitlines() if "loadTable" in line and "main.hr.salaries" in line]
    assert [(principal, decision) for _, _, principal, _, _, decision, *_ in audited] == [
        ("ann", "allowed"),
        ("bob", "denied"),
    ]
    compacted = next(line.split() for line in printed.splitlines() if "clicks" in line and "compaction" in line)
    assert compacted[:7] == ["clicks", "compaction", "done", "200", "1", "200", "200"]
    assert printed.index("compaction") < printed.index("a scan of sales.clicks opens 1 file")
    assert list(tmp_path.glob("sandur-demo-*")) == []
