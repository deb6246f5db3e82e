"""Pages of the documentation that run as printed: their blocks in order, and the output that they show.

A block in bash, Python or SQL (DuckDB) runs. A block `text` shows the output of the block before it; `…` stands for any
text. Only the address of the server is replaced.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.recipes import DEFAULT_ADDRESS, Recipe, run_command, run_duckdb
from tests.server.process import ServerProcess

SPARK_FROM_HERE: Final = "<!-- spark: from here on -->"
START: Final = "make serve\n"
SECONDS_MAX: Final = 900

_BLOCK: Final = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A block of the page that runs, and the output that the page shows below it, if any."""

    language: str
    text: str
    shown: str


def steps(page: str) -> list[Step]:
    """The steps in order; ValueError for output without a command above it, or a language that no runner has."""
    found: list[Step] = []
    for block in _BLOCK.finditer(page):
        language, text = block["language"], block["text"]
        if language == "text":
            if not found or found[-1].shown:
                raise ValueError(f"page: output without a command: {text[:80]}")
            found[-1] = Step(found[-1].language, found[-1].text, text)
        elif language in {"bash", "python", "sql"}:
            found.append(Step(language, text, ""))
        else:
            raise ValueError(f"page: no runner for {language}")
    return found


def pattern_of(shown: str) -> re.Pattern[str]:
    """The printed output, in which `…` stands for any text."""
    return re.compile(".*".join(re.escape(part.strip("\n")) for part in shown.split("…")), re.DOTALL)


def run_step(step: Step, folder: Path) -> str:
    """Run a step as a reader does: shell commands run in the directory where the previous one ended."""
    if step.language == "sql":
        (folder / "extensions").mkdir(exist_ok=True)
        return run_duckdb(Recipe("page", "sql", step.text), folder / "extensions")
    script, last_directory = folder / f"step.{step.language}", folder / "last_directory"
    if step.language == "python":
        script.write_text(step.text, encoding="utf-8")
        return run_command([sys.executable, str(script)], folder, seconds_max=SECONDS_MAX)
    script.write_text(f"{step.text}\npwd > '{last_directory}'\n", encoding="utf-8")
    directory = Path(last_directory.read_text(encoding="utf-8").strip()) if last_directory.exists() else folder
    return run_command(["bash", "-euo", "pipefail", str(script)], directory, seconds_max=SECONDS_MAX)


def follow(page: str, server: ServerProcess, change: Callable[[str], str] = str) -> None:
    """Run the steps; the server that the first step starts is already running. `change` replaces more text."""
    for step in steps(page):
        printed = (
            "\n".join(server.printed) if step.text == START else run_step(_at(step, server, change), server.folder)
        )
        shown = pattern_of(step.shown.replace(DEFAULT_ADDRESS, f"127.0.0.1:{server.port}"))
        assert shown.search(printed), f"{step.text}\nprinted\n{printed}\nnot\n{step.shown}"


def _at(step: Step, server: ServerProcess, change: Callable[[str], str]) -> Step:
    text = change(step.text.replace(DEFAULT_ADDRESS, f"127.0.0.1:{server.port}"))
    return Step(step.language, text, step.shown)
