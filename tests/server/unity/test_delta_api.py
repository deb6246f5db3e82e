"""The Delta REST API: answers and errors."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from sandur.storage.local import LocalStore
from tests.server.conftest import Catalogs
from tests.server.unity.client import Json, Unity, code
from tests.server.unity.delta_requests import (
    COLUMNS,
    SCHEMA,
    TIME_MS,
    T,
    add_commit,
    commit,
    created,
    creation,
    problem,
    staged,
    update,
)

pytestmark = pytest.mark.usefixtures("schema")


async def test_config_lists_the_endpoints(unity: Unity) -> None:
    answer = await unity.get("/delta/v1/config", catalog="main", **{"protocol-versions": "1.0"})

    config = answer.json()
    assert config["protocol-version"] == "1.0"
    assert "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables" in config["endpoints"]
    assert problem(await unity.get("/delta/v1/config", catalog="none")) == (404, "NoSuchCatalogException")
    assert problem(await unity.get("/delta/v1/config")) == (400, "InvalidParameterValueException")
    assert problem(await unity.get("/delta/v1/config", catalog="")) == (400, "InvalidParameterValueException")


@pytest.mark.parametrize("versions", ["1.0", "1.7", "2.3,1.0", " 1.1 , 3.0 "])
async def test_the_newest_common_protocol_version_is_chosen(unity: Unity, versions: str) -> None:
    answer = await unity.get("/delta/v1/config", catalog="main", **{"protocol-versions": versions})

    assert (answer.status_code, answer.json()["protocol-version"]) == (200, "1.0")


@pytest.mark.parametrize("versions", ["", "2.0", "0.9,2.3", "1", "1.x", "1.0,", "1.0,1.1", "-1.0", "1.0;2.0"])
async def test_a_client_without_a_common_protocol_version_is_refused(unity: Unity, versions: str) -> None:
    answer = await unity.get("/delta/v1/config", catalog="main", **{"protocol-versions": versions})

    assert problem(answer) == (400, "InvalidParameterValueException")


async def test_a_staging_table_has_the_required_protocol_and_properties(unity: Unity) -> None:
    stage = await staged(unity)

    assert stage["table-type"] == "MANAGED"
    assert stage["location"].endswith(stage["table-id"])
    assert stage["required-properties"]["io.unitycatalog.tableId"] == stage["table-id"]
    assert "catalogManaged" in stage["required-protocol"]["reader-features"]
    assert stage["suggested-properties"]["delta.rowTracking.materializedRowIdColumnName"] is None
    assert [(one["operation"], one["config"]) for one in stage["storage-credentials"]] == [("READ_WRITE", {})]
    credentials = await unity.get(f"/delta/v1/staging-tables/{stage['table-id']}/credentials")
    assert credentials.json()["storage-credentials"][0]["prefix"] == stage["location"]


@pytest.mark.parametrize("body", [{}, {"name": None}, {"name": ""}, {"name": "  "}])
async def test_a_staging_table_needs_a_name(unity: Unity, body: Json) -> None:
    assert problem(await unity.post(f"{SCHEMA}/staging-tables", body)) == (400, "InvalidParameterValueException")


@pytest.mark.parametrize("updates", [{}, {"updates": None}, {"updates": {}}])
async def test_domain_metadata_without_a_domain_is_refused(unity: Unity, updates: Json) -> None:
    made = await created(unity)

    refused = await unity.post(T, update(made["metadata"]["table-uuid"], {"action": "set-domain-metadata", **updates}))

    assert problem(refused) == (400, "InvalidParameterValueException")
    assert (await unity.get(T)).json() == made


async def test_a_malformed_id_is_refused(unity: Unity) -> None:
    await created(unity)
    body = update("none", {"action": "set-properties", "updates": {"a": "b"}})
    old = {"table_id": "none", "table_uri": "file:///x", "latest_backfilled_version": 1}

    for answer in (await unity.get("/delta/v1/staging-tables/none/credentials"), await unity.post(T, body)):
        assert problem(answer) == (400, "InvalidParameterValueException")
    assert code(await unity.post("/delta/preview/commits", old)) == (400, "INVALID_ARGUMENT")


async def test_a_created_table_has_the_requested_metadata(unity: Unity) -> None:
    stage = await staged(unity)
    made = await unity.made(f"{SCHEMA}/tables", creation(stage, comment="mine"))

    loaded = (await unity.get(T)).json()

    assert loaded == made
    metadata = loaded["metadata"]
    assert metadata["table-uuid"] == stage["table-id"]
    assert metadata["columns"] == COLUMNS
    assert metadata["partition-columns"] == ["id"]
    assert metadata["properties"]["delta.feature.catalogManaged"] == "supported"
    assert metadata["last-commit-version"] == 0
    assert metadata["last-commit-timestamp-ms"] == TIME_MS
    assert (loaded["commits"], loaded["latest-table-version"]) == ([], 0)


async def test_the_classic_api_returns_the_same_table(unity: Unity) -> None:
    made = await created(unity)

    table = (await unity.get("/tables/main.s.t")).json()

    assert table["table_id"] == made["metadata"]["table-uuid"]
    assert (table["table_type"], table["data_source_format"]) == ("MANAGED", "DELTA")
    first, second = table["columns"]
    assert (first["type_text"], first["type_name"], first["position"], first["nullable"]) == (
        "bigint",
        "LONG",
        0,
        False,
    )
    assert (first["comment"], first["partition_index"]) == ("the key", 0)
    assert second["type_text"] == "map<string,array<decimal(10,2)>>"
    assert msgspec.json.decode(second["type_json"])["type"]["valueType"]["elementType"] == "decimal(10,2)"
    assert await unity.names("/tables", "tables", catalog_name="main", schema_name="s") == ["t"]


async def test_a_repeated_creation_gets_the_same_answer(unity: Unity) -> None:
    body = creation(await staged(unity))
    made = await unity.made(f"{SCHEMA}/tables", body)

    assert await unity.made(f"{SCHEMA}/tables", body) == made
    other = await unity.post(f"{SCHEMA}/tables", {**body, "name": "u"})
    assert problem(other) == (400, "InvalidParameterValueException")


async def test_a_taken_name_is_refused(unity: Unity) -> None:
    stage = await staged(unity, "t")
    await created(unity, "t")

    assert problem(await unity.post(f"{SCHEMA}/staging-tables", {"name": "t"})) == (409, "AlreadyExistsException")
    assert problem(await unity.post(f"{SCHEMA}/tables", creation(stage))) == (409, "AlreadyExistsException")


MANAGED = "a managed table needs"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"protocol": {"min-reader-version": 1, "min-writer-version": 7}}, "min-reader-version 3"),
        ({"protocol": {"min-reader-version": 3, "min-writer-version": 2}}, "min-writer-version 7"),
        ({"protocol": {"min-reader-version": 3, "min-writer-version": 7}}, "reader feature catalogManaged"),
        ({"properties": {}}, "delta.enableDeletionVectors"),
        ({"domain_metadata": {"delta.clustering": {"clusteringColumns": [["id"]]}}}, "clustering"),
        ({"domain_metadata": {"delta.other": {}}}, "domain-metadata"),
        ({"columns": {"type": "struct", "fields": []}}, "at least one field"),
        ({"columns": {"type": "array"}}, "struct"),
        ({"partition_columns": ["nothing"]}, "no such column"),
        ({"location": "memory://store/elsewhere"}, "Staging table does not exist"),
        ({"location": " "}, "location"),
        ({"table_type": "VIEW"}, "VIEW"),
        ({"last_commit_timestamp_ms": None}, "last-commit-timestamp-ms"),
        ({"name": "no such/name"}, "name"),
        ({"uniform": {"iceberg": {"metadata-location": "x", "converted-delta-version": 0}}}, "uniform"),
    ],
)
async def test_an_invalid_creation_is_refused(unity: Unity, change: Json, says: str) -> None:
    answer = await unity.post(f"{SCHEMA}/tables", creation(await staged(unity), **change))

    assert answer.status_code in {400, 404}
    assert says in answer.json()["error"]["message"]
    assert (await unity.get(T)).status_code == 404


async def test_commits_are_added_and_listed(unity: Unity) -> None:
    uuid = (await created(unity))["metadata"]["table-uuid"]

    first = await unity.made(T, update(uuid, add_commit(1)))
    second = await unity.made(T, update(uuid, add_commit(2)))

    assert first["commits"] == [commit(1)]
    assert second["commits"] == [commit(2), commit(1)]
    assert second["latest-table-version"] == 2
    assert second["metadata"] == first["metadata"]
    assert (await unity.get(T)).json() == second


async def test_a_lost_commit_conflicts_and_a_repeated_one_succeeds(unity: Unity) -> None:
    uuid = (await created(unity))["metadata"]["table-uuid"]
    await unity.made(T, update(uuid, add_commit(1, "a.json")))

    assert (await unity.post(T, update(uuid, add_commit(1, "a.json"), etag="stale"))).status_code == 200
    lost = await unity.post(T, update(uuid, add_commit(1, "b.json")))
    assert problem(lost) == (409, "CommitVersionConflictException")
    gap = await unity.post(T, update(uuid, add_commit(3)))
    assert problem(gap) == (400, "InvalidParameterValueException")
    assert "latest version is 1" in gap.json()["error"]["message"]


async def test_a_lost_commit_conflicts_also_if_it_is_invalid_on_the_table_of_the_winner(unity: Unity) -> None:
    made = (await created(unity))["metadata"]
    iceberg = {"metadata-location": f"{made['location']}/metadata/1.json", "converted-delta-version": 1}
    winner = {**add_commit(1), "uniform": {"iceberg": {**iceberg, "converted-delta-timestamp": 5}}}
    enabled = {"action": "set-properties", "updates": {"delta.universalFormat.enabledFormats": "iceberg"}}
    uuid = made["table-uuid"]
    await unity.made(T, update(uuid, winner, enabled))

    by_version = await unity.post(T, update(uuid, add_commit(1, "other.json")))
    by_etag = await unity.post(T, update(uuid, add_commit(2), etag=made["etag"]))

    assert problem(by_version) == (409, "CommitVersionConflictException")
    assert problem(by_etag) == (409, "UpdateRequirementConflictException")


async def test_a_report_of_published_commits_does_not_hide_a_change_beside_it(unity: Unity) -> None:
    uuid = (await created(unity))["metadata"]["table-uuid"]
    await unity.made(T, update(uuid, add_commit(1)))
    report = {"action": "set-latest-backfilled-version", "latest-published-version": 1}

    changed = await unity.made(T, update(uuid, report, {"action": "set-properties", "updates": {"k": "v"}}))

    assert changed["metadata"]["properties"]["k"] == "v"
    assert (await unity.get(T)).json()["metadata"]["properties"]["k"] == "v"


async def test_requirements_are_checked(unity: Unity) -> None:
    made = await created(unity)
    uuid, etag = made["metadata"]["table-uuid"], made["metadata"]["etag"]
    other = "00000000-0000-0000-0000-000000000000"

    assert problem(await unity.post(T, update(other, add_commit(1)))) == (409, "UpdateRequirementConflictException")
    stale = await unity.post(T, update(uuid, add_commit(1), etag="stale"))
    assert problem(stale) == (409, "UpdateRequirementConflictException")
    assert (await unity.post(T, update(uuid, add_commit(1), etag=etag))).status_code == 200


async def test_metadata_changes_move_the_etag_and_are_visible_in_every_api(unity: Unity) -> None:
    made = await created(unity)
    uuid = made["metadata"]["table-uuid"]
    columns = {"type": "struct", "fields": [{"name": "x", "type": "string", "nullable": True, "metadata": {}}]}

    changed = await unity.made(
        T,
        update(
            uuid,
            add_commit(1),
            {"action": "set-columns", "columns": columns},
            {"action": "set-partition-columns", "partition-columns": []},
            {"action": "set-properties", "updates": {"k": "v"}},
            {"action": "set-table-comment", "comment": "c"},
        ),
    )

    metadata = changed["metadata"]
    assert metadata["etag"] != made["metadata"]["etag"]
    assert metadata["columns"] == columns
    assert metadata["last-commit-version"] == 1
    table = (await unity.get("/tables/main.s.t")).json()
    assert (table["comment"], table["properties"]["k"]) == ("c", "v")
    removed = await unity.made(
        T,
        update(
            uuid,
            add_commit(2),
            {"action": "remove-properties", "removals": ["k"]},
            {"action": "set-table-comment", "comment": None},  # As Spark's RESTORE sends it.
        ),
    )
    assert "k" not in removed["metadata"]["properties"]
    assert "comment" not in (await unity.get("/tables/main.s.t")).json()


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "no-such-action"}],
        [{"action": "add-commit"}],
        [{"action": "add-commit", "commit": {**commit(1), "version": 0}}],
        [{"action": "add-commit", "commit": {**commit(1), "timestamp": 0}}],
        [{"action": "add-commit", "commit": {**commit(1), "file-size": -1}}],
        [{"action": "add-commit", "commit": {**commit(1), "file-name": "../x.json"}}],
        [{"action": "add-commit", "commit": {**commit(1), "file-name": ""}}],
        [{"action": "add-commit", "commit": {**commit(1), "version": 1 << 70}}],
        [add_commit(1), add_commit(2)],
        [{"action": "set-properties", "updates": {"a": "1"}}, {"action": "remove-properties", "removals": ["a"]}],
        [{"action": "remove-domain-metadata", "domains": ["no.such"]}],
        [{"action": "set-table-comment"}],
        [{"action": "set-table-comment", "comment": None}],
        [add_commit(1), {"action": "set-table-comment"}],
        [{"action": "update-metadata-snapshot-version", "last-commit-version": 1, "last-commit-timestamp-ms": 1}],
        [{"action": "set-latest-backfilled-version", "latest-published-version": 1}],
        [{"action": "set-protocol", "protocol": {"min-reader-version": 3, "min-writer-version": 7}}],
        "nonsense",
        None,
    ],
)
async def test_an_update_of_the_wrong_shape_is_refused_and_changes_nothing(unity: Unity, updates: Any) -> None:
    made = await created(unity)
    body = {"requirements": update(made["metadata"]["table-uuid"])["requirements"], "updates": updates}

    answer = await unity.post(T, body)

    assert answer.status_code == 400, answer.text
    assert problem(answer)[1] in {"BadRequestException", "InvalidParameterValueException"}
    assert (await unity.get(T)).json() == made


async def test_a_comment_of_null_needs_a_commit(unity: Unity) -> None:
    """Unity Catalog refuses it always; Spark's RESTORE sends it in a commit if the restored version has no comment."""
    uuid = (await created(unity))["metadata"]["table-uuid"]
    for missing in ({"comment": None}, {}):
        answer = await unity.post(T, update(uuid, {"action": "set-table-comment", **missing}))
        assert problem(answer) == (400, "InvalidParameterValueException")
        assert "comment" in answer.json()["error"]["message"]


async def test_an_update_without_the_uuid_of_the_table_is_refused(unity: Unity) -> None:
    await created(unity)

    answer = await unity.post(T, {"requirements": [], "updates": [add_commit(1)]})

    assert problem(answer) == (400, "InvalidParameterValueException")


async def test_too_many_unpublished_commits_are_refused_until_some_are_published(unity: Unity) -> None:
    uuid = (await created(unity))["metadata"]["table-uuid"]
    for version in range(1, 11):
        await unity.made(T, update(uuid, add_commit(version)))

    answer = await unity.post(T, update(uuid, add_commit(11)))

    assert problem(answer) == (429, "ResourceExhaustedException")
    assert "Retry-After" in answer.headers
    lie = {"action": "set-latest-backfilled-version", "latest-published-version": 10}
    assert problem(await unity.post(T, update(uuid, add_commit(11), lie))) == (429, "ResourceExhaustedException")
    assert len((await unity.get(T)).json()["commits"]) == 10


async def test_a_table_of_another_format_is_refused(unity: Unity, client: httpx.AsyncClient) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": True}]}
    await client.post("/v1/main/namespaces/s/tables", json={"name": "i", "schema": schema})
    await unity.made(
        "/tables",
        {
            "name": "p",
            "catalog_name": "main",
            "schema_name": "s",
            "table_type": "EXTERNAL",
            "data_source_format": "PARQUET",
            "storage_location": "memory://store/tables/default/default/main/p",
            "columns": [],
        },
    )

    for name in ("i", "p"):
        table = f"{SCHEMA}/tables/{name}"
        assert problem(await unity.get(table)) == (400, "UnsupportedTableFormatException")
        assert (await unity.http.head(f"/api/2.1/unity-catalog{table}")).status_code == 204


@pytest.mark.parametrize("removed", [True, False], ids=["absent", "null"])
async def test_a_required_field_without_value_is_an_invalid_parameter(unity: Unity, *, removed: bool) -> None:
    made = await created(unity)
    uuid = made["metadata"]["table-uuid"]

    def without(body: Json, field: str) -> Json:
        return {key: value for key, value in body.items() if key != field} if removed else {**body, field: None}

    action = {"action": "set-properties", "updates": {"a": "b"}}
    refused = [
        await unity.post(f"{T}/rename", without({"new-name": "u"}, "new-name")),
        await unity.post(f"{SCHEMA}/tables", without(creation(await staged(unity, "u"), "u"), "columns")),
        await unity.post(T, update(uuid, without(action, "updates"))),
    ]

    assert [problem(answer) for answer in refused] == [(400, "InvalidParameterValueException")] * 3
    assert problem(await unity.post(f"{T}/rename", {"new-name": 1})) == (400, "BadRequestException")
    assert (await unity.get(T)).json() == made


async def test_a_missing_part_of_a_name_is_named_in_the_error(unity: Unity) -> None:
    base = "/delta/v1/catalogs"

    assert problem(await unity.get(f"{base}/none/schemas/s/tables/t")) == (404, "NoSuchCatalogException")
    assert problem(await unity.get(f"{base}/main/schemas/none/tables/t")) == (404, "NoSuchSchemaException")
    assert problem(await unity.get(T)) == (404, "NoSuchTableException")
    assert problem(await unity.delete(T)) == (404, "NoSuchTableException")
    assert problem(await unity.post(T, update("0190b6a0-0000-7000-8000-000000000000", add_commit(1)))) == (
        404,
        "NoSuchTableException",
    )
    assert problem(await unity.get(f"{T}/credentials", operation="READ")) == (404, "NoSuchTableException")
    assert (await unity.http.head(f"/api/2.1/unity-catalog{T}")).status_code == 404


async def test_a_table_is_renamed_and_dropped(unity: Unity) -> None:
    made = await created(unity)

    assert (await unity.post(f"{T}/rename", {"new-name": "u"})).status_code == 204
    assert problem(await unity.get(T)) == (404, "NoSuchTableException")
    renamed = (await unity.get(f"{SCHEMA}/tables/u")).json()
    assert renamed["metadata"].pop("updated-time") >= made["metadata"].pop("updated-time")
    assert renamed == made
    await created(unity)
    assert problem(await unity.post(f"{T}/rename", {"new-name": "u"})) == (409, "AlreadyExistsException")
    assert (await unity.delete(f"{SCHEMA}/tables/u")).status_code == 204
    assert await unity.names("/tables", "tables", catalog_name="main", schema_name="s") == ["t"]


async def test_an_external_table_keeps_the_metadata_of_its_client(unity: Unity) -> None:
    body = creation(
        await staged(unity),
        "e",
        table_type="EXTERNAL",
        properties={},
        protocol={"min-reader-version": 1, "min-writer-version": 2},
        location="memory://store/tables/default/default/main/e/",
    )
    made = await unity.made(f"{SCHEMA}/tables", body)
    table = f"{SCHEMA}/tables/e"
    uuid = made["metadata"]["table-uuid"]

    assert made["metadata"]["location"] == "memory://store/tables/default/default/main/e"
    assert "latest-table-version" not in made  # Its commits are in the storage; the catalog does not know them.
    assert problem(await unity.post(table, update(uuid, add_commit(1)))) == (400, "InvalidParameterValueException")
    snapshot = {"action": "update-metadata-snapshot-version", "last-commit-version": 7, "last-commit-timestamp-ms": 9}
    changed = await unity.made(table, update(uuid, snapshot))
    assert changed["metadata"]["last-commit-version"] == 7
    assert "allowed-maintenance-operations" not in changed


async def test_an_unknown_route_is_not_implemented(unity: Unity) -> None:
    assert problem(await unity.get("/delta/v1/no/such/route")) == (501, "NotImplementedException")


async def test_iceberg_clients_cannot_see_a_delta_table_or_take_its_name(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    await created(unity)
    schema = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": True}]}

    assert (await client.get("/v1/main/namespaces/s/tables")).json()["identifiers"] == []
    assert (await client.head("/v1/main/namespaces/s/tables/t")).status_code == 404
    assert (await client.get("/v1/main/namespaces/s/tables/t")).status_code == 404
    assert (await client.delete("/v1/main/namespaces/s/tables/t")).status_code == 404
    taken = await client.post("/v1/main/namespaces/s/tables", json={"name": "t", "schema": schema})
    assert (taken.status_code, taken.json()["error"]["type"]) == (409, "AlreadyExistsException")
    assert (await client.delete("/v1/main/namespaces/s")).status_code == 409
    assert (await unity.get(T)).status_code == 200


@pytest.mark.parametrize("uuid", ["", "x" * 5_000, "../../x", "a/b", "\u0000", "é", ".", "no-such-id"])
async def test_an_invalid_id_is_refused_and_breaks_nothing(catalogs: Catalogs, tmp_path: Path, uuid: str) -> None:
    unity = Unity(await catalogs.open(store=LocalStore(str(tmp_path), fsync="never")))
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    made = await created(unity)

    asserted = await unity.post(T, update(uuid, add_commit(1)))
    credentials = await unity.http.get(
        f"/api/2.1/unity-catalog/delta/v1/staging-tables/{quote(uuid, safe='')}/credentials"
    )
    legacy = {"table_id": uuid, "table_uri": made["metadata"]["location"], "latest_backfilled_version": 0}
    older = await unity.post("/delta/preview/commits", legacy)
    placed = await unity.post(
        f"{SCHEMA}/tables", creation({**await staged(unity, "u"), "location": f"file:///{uuid}"}, "u")
    )

    assert [answer.status_code // 100 for answer in (asserted, older, placed)] == [4, 4, 4]
    assert credentials.status_code in {400, 404, 501}
    assert (await unity.get(T)).json() == made
