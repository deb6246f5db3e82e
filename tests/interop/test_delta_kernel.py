"""Delta Kernel in Spark's JVM creates tables: by path, in the session's catalog, and managed through a real server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.process import server_process

UNITY = "/api/2.1/unity-catalog"
KERNEL = "Kernel-4.4.0/kernel-spark-dsv2"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of the session, including the table that it left in the catalog."""
    folder = tmp_path_factory.mktemp("kernel")
    with server_process(folder, fsync="never") as server:
        httpx.post(f"{server.url}{UNITY}/schemas", json={"catalog_name": "main", "name": "s"}).raise_for_status()
        ran = subprocess.run(
            [sys.executable, "-m", "tests.interop.delta_kernel_session", server.url, str(folder)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
        assert said, f"{ran.stdout[-2_000:]}\n{ran.stderr[-4_000:]}"
        table = httpx.get(f"{server.url}{UNITY}/delta/v1/catalogs/main/schemas/s/tables/by_kernel")
        found: dict[str, Any] = {**json.loads(said[0]), "managed": table.raise_for_status().json()}
        location = found["managed"]["metadata"]["location"].removeprefix("file://")
        first = Path(location, "_delta_log", f"{0:020d}.json").read_text(encoding="utf-8")
        found["first commit of it"] = [json.loads(line) for line in first.splitlines()]
        return found


def test_in_mode_strict_kernel_writes_the_first_commit_and_no_file(facts: dict[str, Any]) -> None:
    info, metadata, _ = facts["by path"]

    assert info["commitInfo"]["engineInfo"] == KERNEL
    assert metadata["metaData"]["partitionColumns"] == ["part"]
    assert metadata["metaData"]["configuration"] == {"k": "v"}


def test_in_mode_none_spark_writes_the_first_commit(facts: dict[str, Any]) -> None:
    info = next(action["commitInfo"] for action in facts["mode NONE"] if "commitInfo" in action)

    assert info["engineInfo"].startswith("Apache-Spark/")


def test_an_existing_table_is_refused_or_kept(facts: dict[str, Any]) -> None:
    assert facts["by path, again"] == "AlreadyExists"
    assert facts["managed, again"] == "AlreadyExists"
    assert facts["versions after IF NOT EXISTS"] == [f"{0:020d}.json"]
    assert facts["managed"]["latest-table-version"] == 0


def test_only_partition_columns_and_clustering_are_accepted_as_layouts(facts: dict[str, Any]) -> None:
    domains = [action["domainMetadata"] for action in facts["clustered"] if "domainMetadata" in action]

    assert json.loads(domains[0]["configuration"])["clusteringColumns"] == [["id"], ["part"]]
    assert facts["bucketed"] == "Invalid"


def test_a_table_of_the_sessions_catalog_is_registered_after_its_commit(facts: dict[str, Any]) -> None:
    assert facts["in the warehouse"] == [[1, "a"]]
    assert facts["history of it"][-1] == KERNEL


def test_a_table_without_a_location_is_managed_and_has_its_comment(facts: dict[str, Any]) -> None:
    described = facts["managed in the warehouse"]

    assert (described["Type"], described["Comment"]) == ("MANAGED", "it's a \\ comment")
    assert facts["files after the drop"] is False


def test_a_table_with_a_location_is_external_and_kernel_writes_it_there(facts: dict[str, Any]) -> None:
    """The path contains a quote and a backslash."""
    info, metadata, _ = facts["with a location"]

    assert info["commitInfo"]["engineInfo"] == KERNEL
    assert metadata["metaData"]["configuration"] == {"k": "v"}
    assert facts["described"]["Type"] == "EXTERNAL"
    assert facts["files of it after the drop"] is True
    assert facts["with a location in Unity Catalog"] == "Invalid"


def test_kernels_committer_registers_a_managed_table_with_the_server(facts: dict[str, Any]) -> None:
    metadata = facts["managed"]["metadata"]
    info, configured, protocol = facts["first commit of it"]

    assert metadata["table-type"] == "MANAGED"
    assert metadata["properties"]["io.unitycatalog.tableId"] == metadata["table-uuid"]
    assert configured["metaData"]["configuration"]["k"] == "v"
    assert info["commitInfo"]["engineInfo"] == KERNEL
    assert info["commitInfo"]["inCommitTimestamp"] == metadata["last-commit-timestamp-ms"]
    assert "catalogManaged" in protocol["protocol"]["readerFeatures"]
