"""The commands of `docs/delta.md` and `docs/unity.md` run as printed, and print what the pages show."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.interop.printed_pages import SPARK_FROM_HERE, follow
from tests.server.process import ServerProcess, server_process

JARS: Final = os.environ.get("SANDUR_UC_JARS", "")
CONNECTOR: Final = "io.unitycatalog:unitycatalog-spark_4.1_2.13:0.6.0"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose store is where the pages say."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with server_process(tmp_path, "--store", str(tmp_path / "sandur-data"), fsync="never") as running:
        yield running


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["delta.md", "unity.md"])
def test_a_page_works_up_to_spark(name: str, server: ServerProcess) -> None:
    follow(page(name).partition(SPARK_FROM_HERE)[0], server)


@pytest.mark.interop
@pytest.mark.timeout(3_000)
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed, and Spark needs it")
@pytest.mark.skipif(not JARS, reason=f"Spark needs {CONNECTOR}; SANDUR_UC_JARS names neither it nor its jar")
def test_the_whole_page_about_delta_works(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar on this machine takes the place of the package with the same content, which downloads it."""
    if JARS.endswith(".jar"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {JARS} pyspark-shell")

    def with_jar(text: str) -> str:
        return text.replace(f",{CONNECTOR}", "") if JARS.endswith(".jar") else text.replace(CONNECTOR, JARS)

    assert CONNECTOR in page("delta.md")
    follow(page("delta.md"), server, with_jar)
