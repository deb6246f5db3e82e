"""Daft against a server on a folder and on a bucket."""

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, None, None]]


@pytest.fixture
def daft(served: Served) -> Conversation:
    engine: Conversation = opened("Daft", served)
    return engine


@pytest.fixture
def orders(daft: Conversation, schema_name: str) -> str:
    name = f"{schema_name}.orders"
    daft.ask(do="create", table=name)
    daft.ask(do="append", table=name, rows=ROWS)
    return name


@operation("Daft", "namespaces")
def test_namespaces_are_made_listed_and_dropped(daft: Conversation) -> None:
    daft.ask(do="create_namespace", name="made_by_daft")

    listed = daft.ask(do="list_namespaces")
    daft.ask(do="drop_namespace", name="made_by_daft")

    assert "made_by_daft" in listed
    assert "made_by_daft" not in daft.ask(do="list_namespaces")


@operation("Daft", "create table")
@operation("Daft", "insert")
@operation("Daft", "read")
def test_rows_are_read_as_they_were_written(daft: Conversation, orders: str) -> None:
    assert sorted(daft.ask(do="read", table=orders)) == ROWS
    assert sorted(daft.ask(do="read", table=orders, above=1)) == ROWS[1:]
    assert daft.sql(f"SELECT count(*) FROM {orders} WHERE amount > 10") == [[2]]
    assert orders in daft.ask(do="list_tables")


@operation("Daft", "create table as select")
def test_a_table_is_made_of_a_data_frame(daft: Conversation, schema_name: str) -> None:
    daft.ask(do="create_of", table=f"{schema_name}.made", rows=ROWS)

    assert sorted(daft.ask(do="read", table=f"{schema_name}.made")) == ROWS


@operation("Daft", "overwrite")
def test_a_table_is_overwritten(daft: Conversation, orders: str) -> None:
    daft.ask(do="overwrite", table=orders, rows=[[9, "FO", 1.0]])

    assert daft.ask(do="read", table=orders) == [[9, "FO", 1.0]]


@operation("Daft", "delete", cannot="Daft has no row-level changes for Iceberg; PyIceberg, which it installs, has")
def test_there_is_no_delete(daft: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match="Unsupported SQL"):
        daft.sql(f"DELETE FROM {orders} WHERE id = 1")


@operation("Daft", "drop")
def test_a_table_is_dropped(daft: Conversation, orders: str) -> None:
    daft.ask(do="drop", table=orders)

    assert orders not in daft.ask(do="list_tables")
