"""The Delta API: metrics that clients report, and credentials."""

from pathlib import Path

import pytest

from sandur.pipeline.jobs.metrics import report_row
from sandur.storage.contract import list_all
from sandur.storage.layout import Layout
from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.unity.client import Unity
from tests.server.unity.delta_requests import (
    T,
    created,
    problem,
)

pytestmark = pytest.mark.usefixtures("schema")


async def test_metrics_are_accepted_for_the_table_they_name(unity: Unity) -> None:
    uuid = (await created(unity))["metadata"]["table-uuid"]
    report = {"commit-report": {"num-files-added": 1}}

    assert (await unity.post(f"{T}/metrics", {"table-id": uuid, "report": report})).status_code == 204
    wrong = await unity.post(f"{T}/metrics", {"table-id": "00000000-0000-0000-0000-000000000000"})
    assert problem(wrong) == (400, "InvalidParameterValueException")
    assert problem(await unity.post(f"{T}/metrics", {})) == (400, "InvalidParameterValueException")


async def test_metrics_are_stored_with_those_of_iceberg(catalogs: Catalogs) -> None:
    store = MemoryStore()
    unity = Unity(await catalogs.open(store))
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    uuid = (await created(unity))["metadata"]["table-uuid"]
    sent = {"table-id": uuid, "report": {"commit-report": {"num-files-added": 3, "num-rows-inserted": 5}}}

    await unity.post(f"{T}/metrics", sent)

    (key,) = [one.key for one in await list_all(store, "") if "/operational/metrics/" in one.key]
    stored = await store.get(key)
    assert stored
    row = report_row(Layout(), key, stored.data)
    assert (row["table_uuid"], row["kind"], row["name"]) == (uuid, "commit", "t")
    assert (row["added_files"], row["added_records"], row["removed_files"]) == (3, 5, None)


async def test_credentials_of_a_folder_are_empty(catalogs: Catalogs) -> None:
    unity = Unity(await catalogs.open(allowed_locations=("file:///lake", "s3://b")))
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    await created(unity)

    found = (await unity.get(f"{T}/credentials", operation="READ")).json()["storage-credentials"]

    assert [(one["operation"], one["config"]) for one in found] == [("READ", {})]
    assert problem(await unity.get(f"{T}/credentials", operation="WRITE")) == (400, "BadRequestException")


async def test_credentials_for_a_path_need_a_location_that_the_server_allows(
    catalogs: Catalogs, tmp_path: Path
) -> None:
    allowed = tmp_path.as_uri()
    unity = Unity(await catalogs.open(allowed_locations=(allowed, "s3://b/x")))
    path = "/delta/v1/temporary-path-credentials"

    found = await unity.get(path, location=f"{tmp_path}/t", operation="READ_WRITE")
    elsewhere = await unity.get(path, location="file:/etc", operation="READ_WRITE")
    bucket = await unity.get(path, location="s3://b/x/t", operation="READ")

    assert found.json()["storage-credentials"][0]["prefix"] == f"{allowed}/t"
    assert problem(elsewhere) == (400, "InvalidParameterValueException")
    assert problem(bucket) == (400, "InvalidParameterValueException")
    assert "s3.access (SANDUR_S3_ACCESS)" in bucket.json()["error"]["message"]
