"""Tables: create, load, commit, drop, rename, register, and their headers."""

from typing import Any

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.requests import SNAPSHOT_ID, add_snapshot, create_table, rename, set_properties

TABLE = "/v1/namespaces/ns/tables/t"
KEY = "0197f22e-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.fixture
async def client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    made = await client.post("/v1/namespaces/ns/tables", json=create_table("t", properties={"k": "v"}))
    assert made.status_code == 200, made.text
    return client


async def loaded(client: httpx.AsyncClient, path: str = TABLE) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_created_table_is_loaded_with_its_metadata(client: httpx.AsyncClient) -> None:
    table = await loaded(client)

    assert table["metadata"]["properties"]["k"] == "v"
    assert table["metadata-location"].endswith(".metadata.json")
    assert table["config"] == {}


async def test_an_answer_has_cache_control_private_and_vary(client: httpx.AsyncClient) -> None:
    answer = await client.get(TABLE)

    assert answer.headers["cache-control"] == "private"
    assert "x-iceberg-access-delegation" in answer.headers["vary"].lower()
    assert answer.headers["content-type"] == "application/json"


async def test_an_etag_gives_304_until_the_table_changes(client: httpx.AsyncClient) -> None:
    etag = (await client.get(TABLE)).headers["etag"]

    for sent in (etag, etag.strip('"'), "W/" + etag, f'{etag}, "other"'):
        again = await client.get(TABLE, headers={"If-None-Match": sent})
        assert (again.status_code, again.content) == (304, b""), sent
        assert again.headers["etag"] == etag

    committed = await client.post(TABLE, json=set_properties(k="w"))
    changed = await client.get(TABLE, headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] == committed.headers["etag"] != etag


async def test_the_two_representations_have_different_etags(client: httpx.AsyncClient) -> None:
    every = await client.get(TABLE, params={"snapshots": "all"})
    refs = await client.get(TABLE, params={"snapshots": "refs"})

    assert every.headers["etag"] == (await client.get(TABLE)).headers["etag"] != refs.headers["etag"]
    assert (await client.get(TABLE, params={"snapshots": "some"})).status_code == 400


async def test_create_and_commit_return_the_etag_of_the_load(client: httpx.AsyncClient) -> None:
    made = await client.post("/v1/namespaces/ns/tables", json=create_table("u"))
    assert made.headers["etag"] == (await client.get("/v1/namespaces/ns/tables/u")).headers["etag"]


async def test_refs_omit_snapshots_without_a_reference(client: httpx.AsyncClient) -> None:
    metadata = (await loaded(client))["metadata"]
    await client.post(TABLE, json=add_snapshot(metadata))
    await client.post(TABLE, json=add_snapshot(metadata, snapshot_id=2, parent=SNAPSHOT_ID, number=2))

    every = (await client.get(TABLE)).json()["metadata"]
    refs = (await client.get(TABLE, params={"snapshots": "refs"})).json()["metadata"]

    assert [snapshot["snapshot-id"] for snapshot in every["snapshots"]] == [SNAPSHOT_ID, 2]
    assert [snapshot["snapshot-id"] for snapshot in refs["snapshots"]] == [2]


async def test_a_staged_table_is_returned_but_does_not_exist(client: httpx.AsyncClient) -> None:
    staged = await client.post("/v1/namespaces/ns/tables", json=create_table("s", stage_create=True))

    assert staged.status_code == 200
    assert staged.json().get("metadata-location") is None
    assert "etag" not in staged.headers
    assert (await client.head("/v1/namespaces/ns/tables/s")).status_code == 404


async def test_a_stage_has_the_id_of_its_transaction_and_says_what_its_commit_asserts(
    client: httpx.AsyncClient,
) -> None:
    body, path = create_table("s", stage_create=True), "/v1/namespaces/ns/tables"
    sent = {"Iceberg-Transaction-Id": "tx-1"}

    staged = (await client.post(path, json=body, headers=sent)).json()
    again = (await client.post(path, json=body, headers=sent)).json()
    plain = (await client.post(path, json=body)).json()
    listed = (await client.get("/api/sandur/v1/stages")).json()
    created = (await client.post(path, json=create_table("t2"))).json()

    assert (staged["stage-id"], staged["requirements"]) == ("tx-1", [{"type": "assert-create"}])
    assert again == staged
    assert plain["stage-id"] == plain["metadata"]["table-uuid"] != staged["metadata"]["table-uuid"]
    assert {one["stage_id"] for one in listed["stages"]} == {"tx-1", plain["stage-id"]}
    assert listed["next_page_token"] is None
    assert "stage-id" not in created


@pytest.mark.parametrize("stage_id", ["a b", "x" * 129, "é"])
async def test_an_invalid_transaction_id_is_refused(client: httpx.AsyncClient, stage_id: str) -> None:
    body, sent = create_table("s", stage_create=True), {b"Iceberg-Transaction-Id": stage_id.encode()}

    answer = await client.post("/v1/namespaces/ns/tables", json=body, headers=sent)

    assert answer.status_code == 400
    assert "Iceberg-Transaction-Id" in answer.json()["error"]["message"]


async def test_stages_are_counted_by_their_outcome(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces/ns/tables", json=create_table("s", stage_create=True))

    numbers = (await client.get("/metrics")).text

    assert 'sandur_stages_total{outcome="staged"} 1' in numbers


async def test_disabled_staging_is_501(catalogs: Catalogs) -> None:
    client = await catalogs.open(stage_create=False)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})

    answer = await client.post("/v1/namespaces/ns/tables", json=create_table("s", stage_create=True))

    assert answer.status_code == 501
    assert answer.json()["error"]["type"] == "UnsupportedOperationException"


@pytest.mark.parametrize("path", [TABLE, "/v1/namespaces/ns/tables/nope", "/v1/namespaces/nope/tables/t"])
async def test_head_returns_only_the_status(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.head(path)

    assert answer.status_code == (204 if path == TABLE else 404)
    assert answer.content == b""


@pytest.mark.parametrize("path", ["/v1/namespaces/ns/tables/nope", "/v1/namespaces/ns%1Ft/tables/files"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_missing_table_is_reported_even_in_a_missing_namespace(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, path)

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NoSuchTableException"
    assert answer.json()["error"]["message"].startswith("Table does not exist: ns.")


async def test_a_commit_on_a_missing_table_is_404(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/ns/tables/nope", json=set_properties(k="v"))

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NoSuchTableException"


async def test_a_failed_requirement_is_409_commit_failed(client: httpx.AsyncClient) -> None:
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": KEY}], "updates": []}

    answer = await client.post(TABLE, json=body)

    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "CommitFailedException"
    assert "UUID does not match" in answer.json()["error"]["message"]


async def test_ids_beyond_the_range_of_doubles_are_exact(client: httpx.AsyncClient) -> None:
    metadata = (await loaded(client))["metadata"]

    committed = await client.post(TABLE, json=add_snapshot(metadata))

    assert committed.status_code == 200, committed.text
    assert committed.json()["metadata"]["current-snapshot-id"] == SNAPSHOT_ID


async def test_existing_tables_conflict(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/ns/tables", json=create_table("t"))

    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "AlreadyExistsException"
    assert answer.json()["error"]["message"].startswith("Table already exists: ns.t")


async def test_creating_a_table_in_a_missing_namespace_reports_the_namespace(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/nope/tables", json=create_table("t"))

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NoSuchNamespaceException"


async def test_tables_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    for name in ("a", "b", 'quo"te'):
        await client.post("/v1/namespaces/ns/tables", json=create_table(name))

    whole = (await client.get("/v1/namespaces/ns/tables")).json()
    first = (await client.get("/v1/namespaces/ns/tables", params={"pageToken": "", "pageSize": 3})).json()
    rest = (
        await client.get("/v1/namespaces/ns/tables", params={"pageToken": first["next-page-token"], "pageSize": 3})
    ).json()

    names = [entry["name"] for entry in whole["identifiers"]]
    assert names == ["a", "b", 'quo"te', "t"]
    assert all(entry["namespace"] == ["ns"] for entry in whole["identifiers"])
    assert [entry["name"] for entry in first["identifiers"] + rest["identifiers"]] == names
    assert rest["next-page-token"] is None
    assert (await client.get("/v1/namespaces/nope/tables")).status_code == 404


@pytest.mark.parametrize("query", ["", "?purgeRequested=True", "?purgeRequested=false", "?purgeRequested="])
async def test_a_dropped_table_is_gone(client: httpx.AsyncClient, query: str) -> None:
    dropped = await client.delete(TABLE + query)

    assert (dropped.status_code, dropped.content) == (204, b"")
    assert (await client.get(TABLE)).status_code == 404


async def test_a_purge_that_is_neither_true_nor_false_is_a_bad_request(client: httpx.AsyncClient) -> None:
    assert (await client.delete(TABLE + "?purgeRequested=maybe")).status_code == 400
    assert (await client.get(TABLE)).status_code == 200


async def test_a_renamed_table_is_found_by_its_new_name_only(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/tables/rename", json=rename("t", "u"))

    assert (answer.status_code, answer.content) == (204, b"")
    assert (await client.get("/v1/namespaces/ns/tables/u")).status_code == 200
    assert (await client.get(TABLE)).status_code == 404


async def test_a_refused_rename_reports_the_missing_or_taken_name(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces/ns/tables", json=create_table("u"))

    source = await client.post("/v1/tables/rename", json=rename("nope", "x"))
    target = await client.post("/v1/tables/rename", json=rename("t", "x", to_namespace="non_existing"))
    taken = await client.post("/v1/tables/rename", json=rename("t", "u"))

    assert source.json()["error"]["type"] == "NoSuchTableException"
    assert target.json()["error"]["type"] == "NoSuchNamespaceException"
    assert taken.json()["error"]["type"] == "AlreadyExistsException"
    assert "Table already exists" in taken.json()["error"]["message"]


async def test_an_unregistered_table_can_be_registered_again(client: httpx.AsyncClient) -> None:
    gone = await client.post(TABLE + "/unregister")
    assert gone.status_code == 200, gone.text
    assert set(gone.json()) == {"metadata-location", "metadata"}
    assert (await client.get(TABLE)).status_code == 404

    body = {"name": "again", "metadata-location": gone.json()["metadata-location"]}
    registered = await client.post("/v1/namespaces/ns/register", json=body)

    assert registered.status_code == 200, registered.text
    assert "etag" in registered.headers
    assert registered.json()["metadata"]["table-uuid"] == gone.json()["metadata"]["table-uuid"]


async def test_registering_a_missing_file_is_404(client: httpx.AsyncClient) -> None:
    location = (await loaded(client))["metadata-location"]

    answer = await client.post(
        "/v1/namespaces/ns/register", json={"name": "r", "metadata-location": location.replace("00000", "99999")}
    )

    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NotFoundException"


async def test_metrics_of_any_type_are_accepted(client: httpx.AsyncClient) -> None:
    for kind in ("scan-report", "commit-report", "a-report-of-the-future"):
        answer = await client.post(TABLE + "/metrics", json={"report-type": kind, "table-name": "ns.t"})
        assert (answer.status_code, answer.content) == (204, b"")

    assert (await client.post(TABLE + "/metrics", json={"table-name": "ns.t"})).status_code == 400
    missing = await client.post("/v1/namespaces/ns/tables/nope/metrics", json={"report-type": "scan-report"})
    assert missing.status_code == 404


async def test_the_history_routes_are_served(client: httpx.AsyncClient) -> None:
    metadata = (await loaded(client))["metadata"]
    await client.post(TABLE, json=add_snapshot(metadata))

    schemas = (await client.get(TABLE + "/schemas")).json()["schemas"]
    specs = (await client.get(TABLE + "/partition-specs")).json()["partition-specs"]
    snapshots = (await client.get(TABLE + "/snapshots")).json()["snapshots"]

    committed = (await loaded(client))["metadata"]
    of_snapshot = {
        "snapshot-id": SNAPSHOT_ID,
        "timestamp-ms": metadata["last-updated-ms"] + 1,
        "ingested-at-ms": committed["last-updated-ms"],
    }
    of_schema = {"schema-id": 0, "schema": metadata["schemas"][0]}
    of_spec = {"spec-id": 0, "spec-name": "spec-0", "is-default": True, "fields": []}
    assert schemas == [{**of_snapshot, **of_schema}]
    assert specs == [{**of_snapshot, **of_spec}]
    assert snapshots == [
        {
            **of_snapshot,
            "parent-snapshot-id": None,
            "sequence-number": 1,
            **of_schema,
            "partition-spec": of_spec,
            "manifest-list": committed["snapshots"][0]["manifest-list"],
            "summary": {"operation": "append"},
            "refs": ["main"],
            "is-current": True,
        }
    ]


async def test_a_transaction_commits_several_tables_and_returns_no_body(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces/ns/tables", json=create_table("u"))
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **set_properties(k=name)} for name in ("t", "u")]

    answer = await client.post("/v1/transactions/commit", json={"table-changes": changes})

    assert (answer.status_code, answer.content) == (204, b""), answer.text
    for name in ("t", "u"):
        assert (await loaded(client, f"/v1/namespaces/ns/tables/{name}"))["metadata"]["properties"]["k"] == name


@pytest.mark.parametrize("body", [{}, {"table-changes": []}, {"table-changes": [set_properties(k="v")]}])
async def test_a_malformed_transaction_is_a_bad_request(client: httpx.AsyncClient, body: dict[str, object]) -> None:
    assert (await client.post("/v1/transactions/commit", json=body)).status_code == 400


async def test_a_key_is_replayed_in_either_case_and_not_reused(client: httpx.AsyncClient) -> None:
    metadata = (await loaded(client))["metadata"]
    body = add_snapshot(metadata)

    first = await client.post(TABLE, json=body, headers={"Idempotency-Key": KEY})
    again = await client.post(TABLE, json=body, headers={"Idempotency-Key": KEY.upper()})
    other = await client.post(TABLE, json=set_properties(k="x"), headers={"Idempotency-Key": KEY})

    assert first.status_code == again.status_code == 200
    assert first.json()["metadata-location"] == again.json()["metadata-location"]
    assert other.status_code == 409
    assert other.json()["error"]["type"] == "CommitFailedException"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", TABLE), ("DELETE", TABLE), ("POST", "/v1/namespaces"), ("POST", "/v1/namespaces/ns/tables")],
)
async def test_a_malformed_key_is_refused_before_any_effect(client: httpx.AsyncClient, method: str, path: str) -> None:
    bodies = {TABLE: set_properties(k="x"), "/v1/namespaces": {"namespace": ["x"]}}
    body = bodies.get(path, create_table("x"))

    answer = await client.request(method, path, json=body, headers={"Idempotency-Key": "not-a-key"})

    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.json()["error"]["message"]
    assert (await loaded(client))["metadata"]["properties"]["k"] == "v"


async def test_tenants_do_not_see_each_other(client: httpx.AsyncClient) -> None:
    other = {"X-Sandur-Tenant": "other"}

    assert (await client.get(TABLE, headers=other)).status_code == 404
    made = await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=other)
    assert made.status_code == 200, made.text
    assert (await client.get("/v1/namespaces/ns/tables", headers=other)).json()["identifiers"] == []
    assert (await client.get(TABLE, headers={"X-Sandur-Workspace": "other"})).status_code == 404
    assert (await client.get(TABLE, headers={"X-Sandur-Tenant": "a/b"})).status_code == 400


async def test_an_expiry_never_takes_a_tag_with_it_that_its_client_did_not_know(client: httpx.AsyncClient) -> None:
    """A client expires snapshots that no branch or tag named when it loaded the table."""
    for number in (1, 2):
        parent = number - 1 or None
        metadata = (await loaded(client))["metadata"]
        made = await client.post(TABLE, json=add_snapshot(metadata, snapshot_id=number, parent=parent, number=number))
        assert made.status_code == 200, made.text
    tag = {"action": "set-snapshot-ref", "ref-name": "audit", "type": "tag", "snapshot-id": 1}
    assert (await client.post(TABLE, json={"requirements": [], "updates": [tag]})).status_code == 200
    before = await loaded(client)
    expiry = {"action": "remove-snapshots", "snapshot-ids": [1]}

    refused = await client.post(TABLE, json={"requirements": [], "updates": [expiry]})
    unchanged = await loaded(client)
    removal = {"action": "remove-snapshot-ref", "ref-name": "audit"}
    accepted = await client.post(TABLE, json={"requirements": [], "updates": [removal, expiry]})

    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "CommitFailedException")
    assert "branch or tag audit names it" in refused.json()["error"]["message"]
    assert unchanged == before
    assert accepted.status_code == 200
    after = accepted.json()["metadata"]
    assert ([one["snapshot-id"] for one in after["snapshots"]], list(after["refs"])) == ([2], ["main"])
