"""iceberg-rust, in a program of ours, against a server on a folder and on a bucket."""

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

ROWS = [[1, "IS", 10.5], [2, "DK", 20.0], [3, None, None]]


@pytest.fixture
def rust(served: Served) -> Conversation:
    engine: Conversation = opened("iceberg-rust", served)
    return engine


@pytest.fixture
def orders(rust: Conversation, schema_name: str) -> str:
    name = f"{schema_name}.orders"
    rust.ask(do="create", table=name)
    rust.ask(do="append", table=name, rows=ROWS)
    return name


@operation("iceberg-rust", "namespaces")
def test_namespaces_are_made_listed_and_dropped(rust: Conversation) -> None:
    rust.ask(do="create_namespace", name="made_by_rust")

    listed = rust.ask(do="list_namespaces")
    rust.ask(do="drop_namespace", name="made_by_rust")

    assert ["made_by_rust"] in listed
    assert ["made_by_rust"] not in rust.ask(do="list_namespaces")


@operation("iceberg-rust", "create table")
@operation("iceberg-rust", "insert")
@operation("iceberg-rust", "read")
def test_rows_are_read_as_they_were_written(rust: Conversation, orders: str) -> None:
    rust.ask(do="append", table=orders, rows=[[4, "FO", 1.0]])

    assert sorted(rust.ask(do="read", table=orders)) == [*ROWS, [4, "FO", 1.0]]


@operation("iceberg-rust", "create table")
def test_a_table_that_is_there_is_not_made_again(rust: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match=r"(?i)already exists"):
        rust.ask(do="create", table=orders)

    assert sorted(rust.ask(do="read", table=orders)) == ROWS


@operation("iceberg-rust", "rename")
@operation("iceberg-rust", "drop")
def test_a_table_is_renamed_and_dropped(rust: Conversation, orders: str) -> None:
    rust.ask(do="rename", table=orders, to=f"{orders}_2")
    moved = sorted(rust.ask(do="read", table=f"{orders}_2"))
    rust.ask(do="drop", table=f"{orders}_2")

    assert moved == ROWS
    assert rust.ask(do="exists", table=orders) is False
    assert rust.ask(do="exists", table=f"{orders}_2") is False
