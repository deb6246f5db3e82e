"""Every command of `docs/tutorial.md` runs in the order of the page, and prints what the page shows."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.printed_pages import SPARK_FROM_HERE, START, follow, pattern_of, steps
from tests.server.process import ServerProcess, server_process

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "tutorial.md"


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
    with pytest.raises(ValueError, match="page"):
        steps(page)


def test_output_that_differs_from_the_page_fails() -> None:
    assert pattern_of("a … c\n").search("x\na b\nb c\n")
    assert not pattern_of("a … c\n").search("a b\n")
