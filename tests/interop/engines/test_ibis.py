"""Ibis with DuckDB against a server on a folder and on a bucket."""

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, None, None]]


@pytest.fixture
def ibis(served: Served) -> Conversation:
    engine: Conversation = opened("Ibis", served)
    return engine


@pytest.fixture
def orders(ibis: Conversation, schema_name: str) -> dict[str, str]:
    name = {"namespace": schema_name, "table": "orders"}
    ibis.ask(do="create", **name)
    ibis.ask(do="insert", **name, rows=ROWS)
    return name


@operation("Ibis", "create table")
@operation("Ibis", "insert")
@operation("Ibis", "read")
def test_rows_are_read_as_they_were_written(ibis: Conversation, orders: dict[str, str]) -> None:
    assert ibis.ask(do="read", **orders) == ROWS
    assert ibis.ask(do="read", **orders, above=1) == ROWS[1:]


@operation("Ibis", "create table as select")
def test_a_table_is_made_of_a_data_frame(ibis: Conversation, schema_name: str) -> None:
    ibis.ask(do="create_of", namespace=schema_name, table="made", rows=ROWS)

    assert ibis.ask(do="read", namespace=schema_name, table="made") == ROWS
    assert "made" in ibis.ask(do="list_tables", namespace=schema_name)


@operation("Ibis", "upsert")
def test_rows_are_replaced_by_key_or_added(ibis: Conversation, orders: dict[str, str]) -> None:
    ibis.ask(do="upsert", **orders, rows=[[2, "FO", 1.0], [4, "SE", 2.0]])

    assert ibis.ask(do="read", **orders) == [ROWS[0], [2, "FO", 1.0], ROWS[2], [4, "SE", 2.0]]


@operation("Ibis", "overwrite")
def test_the_rows_of_a_table_are_replaced(ibis: Conversation, orders: dict[str, str]) -> None:
    ibis.ask(do="insert", **orders, rows=[[9, "FO", 1.0]], overwrite=True)

    assert ibis.ask(do="read", **orders) == [[9, "FO", 1.0]]


@operation("Ibis", "replace table")
def test_a_table_is_replaced(ibis: Conversation, orders: dict[str, str]) -> None:
    ibis.ask(do="replace", **orders, rows=[[9, "FO", 1.0]])

    assert ibis.ask(do="read", **orders) == [[9, "FO", 1.0]]


@operation("Ibis", "drop")
def test_a_table_is_dropped(ibis: Conversation, orders: dict[str, str]) -> None:
    ibis.ask(do="drop", **orders)

    assert ibis.ask(do="list_tables", namespace=orders["namespace"]) == []


@operation("Ibis", "namespaces", cannot="Ibis creates no namespace in an attached catalog; raw_sql does")
def test_a_namespace_is_not_created(ibis: Conversation) -> None:
    with pytest.raises(EngineError, match="cannot create a database in another catalog"):
        ibis.ask(do="create_namespace", namespace="made_by_ibis")
