"""Maintenance policies over HTTP: who may change them, how they are merged, and what is refused."""

from typing import Any, Final

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table, rename, set_properties
from tests.server.unity.client import UNITY

POLICIES: Final = "/api/sandur/v1/policies"
WORKSPACE: Final = f"{POLICIES}/metastore/metastore"
CATALOG: Final = f"{POLICIES}/catalog/main"
NAMESPACE: Final = f"{POLICIES}/schema/main.sales"
TABLE: Final = f"{POLICIES}/table/main.sales.orders"
KEYED: Final = {"Idempotency-Key": "018f9f2e-0000-7000-8000-000000000001"}


@pytest.fixture
async def client(catalogs: Catalogs) -> httpx.AsyncClient:
    client = await catalogs.open()
    await _create(client)
    return client


async def _create(client: httpx.AsyncClient, headers: dict[str, str] | None = None) -> None:
    await client.post("/v1/main/namespaces", json={"namespace": ["sales"]}, headers=headers)
    made = await client.post("/v1/main/namespaces/sales/tables", json=create_table("orders"), headers=headers)
    assert made.status_code == 200, made.text


async def _origin(client: httpx.AsyncClient, field: str, where: str = TABLE) -> tuple[Any, str]:
    answer = await client.get(where)
    assert answer.status_code == 200, answer.text
    found = next(one for one in answer.json()["effective"] if one["field"] == field)
    return found["value"], found["origin"]


async def test_without_policies_everything_only_reports(client: httpx.AsyncClient) -> None:
    assert await _origin(client, "mode") == ("report", "default")


async def test_each_scope_decides_the_fields_that_it_names(client: httpx.AsyncClient) -> None:
    await client.patch(WORKSPACE, json={"set": {"mode": "run", "priority": 10}})
    await client.patch(CATALOG, json={"set": {"priority": 20}})
    await client.patch(NAMESPACE, json={"set": {"snapshots": {"min_to_keep": 3}}})
    await client.patch(TABLE, json={"set": {"compaction": {"target_file_bytes": 1 << 20}}})

    assert await _origin(client, "mode") == ("run", "workspace")
    assert await _origin(client, "priority") == (20, "catalog main")
    assert await _origin(client, "snapshots.min_to_keep") == (3, "namespace main.sales")
    assert await _origin(client, "compaction.target_file_bytes") == (1 << 20, "table main.sales.orders")
    assert await _origin(client, "snapshots.min_to_keep", CATALOG) == (1, "default")


async def test_a_property_of_the_table_wins_except_over_a_lock(client: httpx.AsyncClient) -> None:
    await client.patch(CATALOG, json={"set": {"compaction": {"target_file_bytes": 1 << 21}}})
    await client.post(
        "/v1/main/namespaces/sales/tables/orders", json=set_properties(**{"write.target-file-size-bytes": "1048576"})
    )

    assert (await _origin(client, "compaction.target_file_bytes"))[1] == "property write.target-file-size-bytes"

    locked = await client.patch(CATALOG, json={"lock": ["compaction.target_file_bytes"]})

    assert locked.json()["locked"] == ["compaction.target_file_bytes"]
    assert await _origin(client, "compaction.target_file_bytes") == (1 << 21, "catalog main")


async def test_fields_are_unset_one_by_one_and_all_at_once(client: httpx.AsyncClient) -> None:
    await client.put(TABLE, json={"values": {"mode": "run", "priority": 7}, "locked": ["mode"]})

    changed = await client.patch(TABLE, json={"unset": ["mode"]})
    assert changed.json() == {"values": {"priority": 7}, "locked": [], "ignored": []}

    removed = await client.delete(TABLE)
    assert removed.json()["values"] == {}
    assert await _origin(client, "priority") == (50, "default")


async def test_a_policy_follows_its_table_through_a_rename_and_ends_with_it(client: httpx.AsyncClient) -> None:
    await client.patch(TABLE, json={"set": {"priority": 7}})

    await client.post("/v1/main/tables/rename", json=rename("orders", "renamed", namespace="sales"))
    assert await _origin(client, "priority", f"{POLICIES}/table/main.sales.renamed") == (
        7,
        "table main.sales.renamed",
    )

    await client.delete("/v1/main/namespaces/sales/tables/renamed")
    await client.post("/v1/main/namespaces/sales/tables", json=create_table("renamed"))
    assert (await _origin(client, "priority", f"{POLICIES}/table/main.sales.renamed"))[1] == "default"


async def test_the_form_of_polaris_sets_its_own_section(client: httpx.AsyncClient) -> None:
    await client.patch(TABLE, json={"set": {"priority": 7}})

    answer = await client.put(
        TABLE,
        json={
            "type": "system.data-compaction",
            "content": {
                "version": "2025-02-03",
                "enable": True,
                "config": {"target_file_size_bytes": 134217728, "compaction_strategy": "bin-pack"},
            },
        },
    )

    assert answer.json() == {
        "values": {"priority": 7, "compaction": {"enabled": True, "target_file_bytes": 134217728}},
        "locked": [],
        "ignored": ["compaction_strategy"],
    }


async def test_every_key_of_a_policy_of_polaris_that_means_nothing_here_is_named(client: httpx.AsyncClient) -> None:
    content = {"max_orphan_file_age_in_days": 30, "locations": ["s3://bucket"], "config": {"dry_run": "true"}}

    answer = await client.put(TABLE, json={"type": "system.orphan-file-removal", "content": content})

    assert answer.json() == {
        "values": {"orphans": {"enabled": True, "age": "P30D"}},
        "locked": [],
        "ignored": ["dry_run", "locations"],
    }


async def test_a_retry_with_its_key_changes_nothing_again(client: httpx.AsyncClient) -> None:
    first = await client.patch(TABLE, json={"set": {"priority": 7}}, headers=KEYED)
    await client.patch(TABLE, json={"set": {"priority": 8}})

    again = await client.patch(TABLE, json={"set": {"priority": 7}}, headers=KEYED)

    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert await _origin(client, "priority") == (8, "table main.sales.orders")


@pytest.mark.parametrize(
    ("path", "method", "body", "status", "text"),
    [
        (TABLE, "PATCH", {"set": {"compact": {}}}, 400, "compact"),
        (TABLE, "PATCH", {"set": {"compaction": {"target_file_bytes": 1}}}, 400, "compaction.target_file_bytes"),
        (TABLE, "PATCH", {"unset": ["no.such"]}, 400, "no.such"),
        (TABLE, "PATCH", {"lock": ["mode"]}, 400, "locks"),
        (TABLE, "PATCH", {"unknown": 1}, 400, "unknown"),
        (TABLE, "PATCH", [], 400, "change of a policy"),
        (TABLE, "PUT", {"type": "system.data-compaction"}, 400, "type and content"),
        (TABLE, "PUT", {"type": "system.nothing", "content": {}}, 400, "system.nothing"),
        (TABLE, "PUT", {"type": "system.data-compaction", "content": {"enable": "yes"}}, 400, "policy of Polaris"),
        (TABLE, "PUT", {"values": {"orphans": {"age": "PT1H"}}}, 400, "orphans.age"),
        (f"{POLICIES}/table/main.sales.missing", "PATCH", {"set": {"priority": 7}}, 404, "missing"),
        (f"{POLICIES}/volume/main.sales.orders", "PATCH", {"set": {"priority": 7}}, 400, "volume"),
        (f"{POLICIES}/table/main.sales.missing", "GET", None, 404, "missing"),
        (f"{POLICIES}/planet/earth", "GET", None, 400, "planet"),
    ],
)
async def test_bad_requests_are_refused_and_change_nothing(
    client: httpx.AsyncClient, path: str, method: str, body: object, status: int, text: str
) -> None:
    answer = await client.request(method, path, json=body)

    assert answer.status_code == status, answer.text
    assert text in answer.text
    assert (await client.get(TABLE)).json()["values"] == {}


async def test_only_who_manages_a_table_changes_its_policy(catalogs: Catalogs) -> None:
    client = await catalogs.open_with(SECURED)
    admin = await bearer(client)
    ann = await make_principal(client, admin, "ann")
    await _create(client, admin)

    hidden = await client.get(TABLE, headers=ann)
    assert hidden.status_code == 404

    grants = {"changes": [{"principal": "ann", "add": ["USE CATALOG", "USE SCHEMA", "SELECT"]}]}
    await client.patch(f"{UNITY}/permissions/catalog/main", json=grants, headers=admin)
    assert (await client.get(TABLE, headers=ann)).status_code == 200
    refused = await client.patch(TABLE, json={"set": {"priority": 7}}, headers=ann)
    assert refused.status_code == 403
    assert "MANAGE" in refused.text
    assert (await client.patch(TABLE, json={"set": {"priority": 7}}, headers=admin)).status_code == 200
