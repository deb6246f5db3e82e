"""Spark with the OpenLineage agent against a real server: its statements end in edges that hang on their commits.

The Delta part needs Unity Catalog's connector, from the jars that `SANDUR_UC_JARS` names.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.server.process import ServerProcess, server_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(2_400)]
ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 1_200
INSERTS_INTO_B: Final = 4
"""INSERT, INSERT OVERWRITE, MERGE by the names of the session, and the stream."""


def _run(*command: str, **settings: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


def _published(server: ServerProcess, folder: Path, kind: str, jars: str = "") -> None:
    """Run the statements, then the pipeline."""
    _run(sys.executable, "-m", "tests.interop.lineage_session", server.url, str(folder / "work"), kind, jars)
    _run_pipeline(folder)


def _run_pipeline(folder: Path, **settings: str) -> None:
    _run(
        *(sys.executable, "-c", "from sandur.cli.main import run; run()", "run", "all"),
        *("--store", str(folder / "data"), "--master", "local[2]", "--json"),
        **settings,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("iceberg")
    with server_process(folder, fsync="never") as running:
        _published(running, folder, "iceberg")
        yield running


def ask(server: ServerProcess, name: str, **query: str) -> Any:
    answer = httpx.get(
        f"{server.url}/api/sandur/v1/lineage", params={"node": f"table:main.{name}", **query}, timeout=60
    )
    return answer.raise_for_status().json()


def sources(graph: Any) -> set[tuple[str, str, bool]]:
    found = [edge for edge in graph["edges"] if edge["target"] == graph["start"]]
    return {(edge["source"], edge["confidence"], "commit_key" in edge) for edge in found}


@pytest.mark.parametrize(
    ("target", "source"),
    [("ctas", "raw"), ("raw", "updates"), ("daily", "raw"), ("streamed", "updates")],
    ids=["CTAS", "MERGE", "INSERT OVERWRITE", "a stream"],
)
def test_a_statement_ends_in_one_matched_edge(server: ServerProcess, target: str, source: str) -> None:
    graph = ask(server, f"sales.{target}", direction="up", depth="1")

    assert sources(graph) == {(f"table:main.sales.{source}", "matched", True)}


def test_columns_are_matched_and_those_of_a_merge_are_partial(server: ServerProcess) -> None:
    ctas = ask(server, "sales.ctas", direction="up", depth="1", columns="true")["columns"]
    merge = ask(server, "sales.raw", direction="up", depth="1", columns="true")["columns"]

    stated = {(one["source_column"], one.get("target_column"), one["subtype"], one["confidence"]) for one in ctas}
    assert {("amount", "total", "AGGREGATION", "matched"), ("country", "country", "IDENTITY", "matched")} <= stated
    direct = [one for one in merge if one["type"] == "DIRECT"]
    assert {(one["source_column"], one["target_column"]) for one in direct} == {
        (name, name) for name in ("id", "country", "amount")
    }
    assert {one["confidence"] for one in direct} == {"partial"}


def test_the_pipeline_knows_its_own_tables(server: ServerProcess) -> None:
    graph = ask(server, "system.commits", direction="up", depth="1")

    assert ("external:sandur:receipts", "verified", True) in sources(graph)


def test_the_terminal_shows_a_tree(server: ServerProcess) -> None:
    printed = _run(
        *(sys.executable, "-c", "from sandur.cli.main import run; run()"),
        *("lineage", "main.sales.daily", "--server", server.url, "--direction", "up"),
    )

    assert "main.sales.raw matched" in printed
    assert "main.sales.updates matched" in printed


def test_external_delta_tables_are_matched_by_location_and_version(tmp_path: Path) -> None:
    """Their commits do not pass through the catalog: their own logs prove the versions that the agent reports."""
    work = tmp_path / "work"
    with server_process(tmp_path, "--allow-location", work.as_uri(), fsync="never") as running:
        _run(sys.executable, "-m", "tests.interop.lineage_session", running.url, str(work), "external", "")
        namespaces = f"{running.url}/v1/main/namespaces"
        httpx.post(namespaces, json={"namespace": ["d"]}, timeout=60).raise_for_status()
        for name in "abc":
            table = {"name": name, "format": "delta", "location": (work / name).as_uri()}
            made = httpx.post(f"{running.url}/api/sandur/v1/tables/main/d", json=table, timeout=60)
            assert made.status_code == 201, made.text
        _run_pipeline(tmp_path, SANDUR_ALLOWED_LOCATIONS=work.as_uri())
        inserted = ask(running, "d.b", direction="up", depth="1", columns="true")
        created = ask(running, "d.c", direction="up", depth="1", columns="true")

    for graph in (inserted, created):
        assert sources(graph) == {("table:main.d.a", "matched", True)}
        columns = {(one["source_column"], one.get("target_column"), one["confidence"]) for one in graph["columns"]}
        assert {("id", "id", "matched"), ("text", "text", "matched")} <= columns
    jobs = {edge["job"].rpartition(".")[2] for edge in inserted["edges"]}
    assert len(inserted["edges"]) == len(jobs) == INSERTS_INTO_B


def test_delta_tables_are_matched(tmp_path: Path) -> None:
    jars = os.environ.get("SANDUR_UC_JARS", "")
    if not jars:
        pytest.skip("SANDUR_UC_JARS names no jars of io.unitycatalog:unitycatalog-spark_4.1_2.13")
    with server_process(tmp_path, fsync="never") as running:
        _published(running, tmp_path, "delta", jars)
        graph = ask(running, "d.b", direction="up", depth="1", columns="true")

    assert sources(graph) == {("table:main.d.a", "matched", True)}
    assert {(one["source_column"], one.get("target_column")) for one in graph["columns"]} >= {("text", "text")}
