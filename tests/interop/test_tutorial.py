"""Every command of `docs/tutorial.md` runs in the order of the page, and prints what the page shows."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.interop.recipes import DEFAULT_ADDRESS, Recipe, run_command, run_duckdb
from tests.server.process import ServerProcess, server_process

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "tutorial.md"
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
                raise ValueError(f"tutorial: output without a command: {text[:80]}")
            found[-1] = Step(found[-1].language, found[-1].text, text)
        elif language in {"bash", "python", "sql"}:
            found.append(Step(language, text, ""))
        else:
            raise ValueError(f"tutorial: no runner for {language}")
    return found


def pattern_of(shown: str) -> re.Pattern[str]:
    """The printed output, in which `…` stands for any text."""
    return re.compile(".*".join(re.escape(part.strip("\n")) for part in shown.split("…")), re.DOTALL)


def run_step(step: Step, folder: Path) -> str:
    """Run a step as a reader does: shell commands run in the directory where the previous one ended."""
    if step.language == "sql":
        (folder / "extensions").mkdir(exist_ok=True)
        return run_duckdb(Recipe("tutorial", "sql", step.text), folder / "extensions")
    script, last_directory = folder / f"step.{step.language}", folder / "last_directory"
    if step.language == "python":
        script.write_text(step.text, encoding="utf-8")
        return run_command([sys.executable, str(script)], folder, seconds_max=SECONDS_MAX)
    script.write_text(f"{step.text}\npwd > '{last_directory}'\n", encoding="utf-8")
    directory = Path(last_directory.read_text(encoding="utf-8").strip()) if last_directory.exists() else folder
    return run_command(["bash", "-euo", "pipefail", str(script)], directory, seconds_max=SECONDS_MAX)


def follow(page: str, server: ServerProcess) -> None:
    """Run the steps; the server that the first step starts is already running."""
    for step in steps(page):
        printed = "\n".join(server.printed) if step.text == START else run_step(_at(step, server), server.folder)
        shown = pattern_of(step.shown.replace(DEFAULT_ADDRESS, f"127.0.0.1:{server.port}"))
        assert shown.search(printed), f"{step.text}\nprinted\n{printed}\nnot\n{step.shown}"


def _at(step: Step, server: ServerProcess) -> Step:
    return Step(step.language, step.text.replace(DEFAULT_ADDRESS, f"127.0.0.1:{server.port}"), step.shown)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with the store of the page, in a folder with the environment that the page activates."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with server_process(tmp_path, "--store", str(tmp_path / "sandur-data"), fsync="never") as running:
        yield running


def test_the_tutorial_works_up_to_spark(server: ServerProcess) -> None:
    follow(PAGE.read_text(encoding="utf-8").partition(SPARK_FROM_HERE)[0], server)


@pytest.mark.interop
@pytest.mark.timeout(3_000)
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it")
def test_the_whole_tutorial_works(server: ServerProcess) -> None:
    follow(PAGE.read_text(encoding="utf-8"), server)


def test_make_serve_starts_the_server_that_the_other_steps_use() -> None:
    # The tests themselves run under make, which would add a line about the directory.
    command = ["make", "--no-print-directory", "-n", "serve"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert steps(PAGE.read_text(encoding="utf-8"))[0].text == START
    assert planned.stdout.splitlines()[-1].endswith("/sandur serve")


def test_spark_comes_last() -> None:
    before, mark, after = PAGE.read_text(encoding="utf-8").partition(SPARK_FROM_HERE)

    assert mark
    assert "sandur.spark" not in before
    assert "sandur.spark" in after


@pytest.mark.parametrize("page", ["```text\nout\n```\n", "```ruby\nputs 1\n```\n"])
def test_a_page_that_cannot_be_followed_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="tutorial"):
        steps(page)


def test_output_that_differs_from_the_page_fails() -> None:
    assert pattern_of("a … c\n").search("x\na b\nb c\n")
    assert not pattern_of("a … c\n").search("a b\n")
