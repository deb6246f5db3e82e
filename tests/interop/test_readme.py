"""The program in README.md runs as printed, and prints what its comment says."""

import re
from pathlib import Path

from tests.interop.matrix import ROOT
from tests.interop.recipes import Recipe, runner_of
from tests.server.process import server_process


def test_the_program_runs_as_printed(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    expected = program.rpartition("# ")[2]

    with server_process(tmp_path, fsync="never") as server:
        recipe = Recipe("readme", "python", program).at(f"127.0.0.1:{server.port}")
        printed = runner_of(recipe)(recipe, tmp_path)

    assert printed.strip() == expected.strip()
