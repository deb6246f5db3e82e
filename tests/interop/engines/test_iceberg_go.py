"""iceberg-go, in a program of ours, against a server on a folder and on a bucket."""

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, None, None]]


@pytest.fixture
def go(served: Served) -> Conversation:
    engine: Conversation = opened("iceberg-go", served)
    return engine


@pytest.fixture
def orders(go: Conversation, schema_name: str) -> str:
    name = f"{schema_name}.orders"
    go.ask(do="create", table=name)
    go.ask(do="append", table=name, rows=ROWS)
    return name


@operation("iceberg-go", "namespaces")
def test_namespaces_are_made_listed_and_dropped(go: Conversation) -> None:
    go.ask(do="create_namespace", name="made_by_go")

    listed = go.ask(do="list_namespaces")
    go.ask(do="drop_namespace", name="made_by_go")

    assert ["made_by_go"] in listed
    assert ["made_by_go"] not in (go.ask(do="list_namespaces") or [])


@operation("iceberg-go", "create table")
@operation("iceberg-go", "insert")
@operation("iceberg-go", "read")
def test_rows_are_read_as_they_were_written(go: Conversation, orders: str) -> None:
    go.ask(do="append", table=orders, rows=[[4, "FO", 1.0]])

    assert sorted(go.ask(do="read", table=orders)) == [*ROWS, [4, "FO", 1.0]]


@operation("iceberg-go", "create table")
def test_a_table_that_is_there_is_not_made_again(go: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match=r"(?i)already exists"):
        go.ask(do="create", table=orders)

    assert sorted(go.ask(do="read", table=orders)) == ROWS


@operation("iceberg-go", "rename")
@operation("iceberg-go", "drop")
def test_a_table_is_renamed_and_dropped(go: Conversation, orders: str) -> None:
    go.ask(do="rename", table=orders, to=f"{orders}_2")
    moved = sorted(go.ask(do="read", table=f"{orders}_2"))
    go.ask(do="drop", table=f"{orders}_2")

    assert moved == ROWS
    assert go.ask(do="exists", table=orders) is False
    assert go.ask(do="exists", table=f"{orders}_2") is False


@operation("iceberg-go", "overwrite")
def test_a_table_is_overwritten(go: Conversation, orders: str) -> None:
    go.ask(do="overwrite", table=orders, rows=[[9, "FO", 1.0]])

    assert go.ask(do="read", table=orders) == [[9, "FO", 1.0]]


@operation("iceberg-go", "delete")
def test_rows_are_deleted(go: Conversation, orders: str) -> None:
    go.ask(do="delete", table=orders, id=1)

    assert sorted(go.ask(do="read", table=orders)) == ROWS[1:]
