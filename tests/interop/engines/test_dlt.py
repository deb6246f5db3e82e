"""dlt against a server on a folder and on a bucket: its pipelines write, and PyIceberg reads."""

from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.interop.engines.conversation import Conversation
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [{"id": 1, "country": "IS"}, {"id": 2, "country": "DK"}]
LATER = [{"id": 2, "country": "FO"}, {"id": 3, "country": "SE"}]


@pytest.fixture
def dlt(served: Served) -> Conversation:
    engine: Conversation = opened("dlt", served)
    return engine


def rows_of(catalog: RestCatalog, name: str) -> list[tuple[Any, ...]]:
    found = catalog.load_table(name).scan(selected_fields=("id", "country")).to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


@operation("dlt", "create table")
@operation("dlt", "insert")
def test_rows_are_appended(dlt: Conversation, catalog: RestCatalog, schema_name: str) -> None:
    for rows in (ROWS, LATER):
        dlt.ask(namespace=schema_name, table="orders", how="append", rows=rows)

    assert rows_of(catalog, f"{schema_name}.orders") == [(1, "IS"), (2, "DK"), (2, "FO"), (3, "SE")]


@operation("dlt", "overwrite")
def test_rows_are_replaced(dlt: Conversation, catalog: RestCatalog, schema_name: str) -> None:
    for rows in (ROWS, LATER):
        dlt.ask(namespace=schema_name, table="orders", how="replace", rows=rows)

    assert rows_of(catalog, f"{schema_name}.orders") == [(2, "FO"), (3, "SE")]


@operation("dlt", "upsert")
def test_rows_are_merged_by_key(dlt: Conversation, catalog: RestCatalog, schema_name: str) -> None:
    for rows in (ROWS, LATER):
        dlt.ask(namespace=schema_name, table="orders", how="merge", rows=rows)

    assert rows_of(catalog, f"{schema_name}.orders") == [(1, "IS"), (2, "FO"), (3, "SE")]


@operation("dlt", "evolve schema")
def test_a_new_field_becomes_a_column(dlt: Conversation, catalog: RestCatalog, schema_name: str) -> None:
    dlt.ask(namespace=schema_name, table="orders", how="append", rows=ROWS)
    dlt.ask(namespace=schema_name, table="orders", how="append", rows=[{"id": 3, "country": "SE", "note": "new"}])

    found = catalog.load_table(f"{schema_name}.orders").scan().to_arrow().sort_by("id")

    assert found["note"].to_pylist() == [None, None, "new"]
