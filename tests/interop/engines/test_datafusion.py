"""DataFusion against a server on a folder and on a bucket: it reads, and PyIceberg writes what a query makes."""

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

VALUES = "(VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, NULL, NULL)) AS made (id, country, amount)"


@pytest.fixture
def datafusion(served: Served) -> Conversation:
    engine: Conversation = opened("DataFusion", served)
    return engine


@pytest.fixture
def orders(datafusion: Conversation, schema_name: str) -> str:
    name = f"{schema_name}.orders"
    datafusion.ask(sql=f"SELECT id, country, amount FROM {VALUES}", into=name)
    return name


@operation("DataFusion", "read")
def test_a_table_is_queried(datafusion: Conversation, orders: str) -> None:
    query = "SELECT id, amount FROM orders WHERE amount > 1 ORDER BY id"

    assert datafusion.ask(sql=query, tables={"orders": orders}) == [[1, 10.5], [2, 20.0]]


@operation("DataFusion", "create table as select")
def test_what_a_query_makes_becomes_a_table(datafusion: Conversation, orders: str) -> None:
    query = "SELECT country, count(*) AS n FROM orders GROUP BY country ORDER BY country"
    datafusion.ask(sql=query, tables={"orders": orders}, into=f"{orders}_per_country")

    found = datafusion.ask(sql="SELECT * FROM made ORDER BY country", tables={"made": f"{orders}_per_country"})

    assert found == [["DK", 1], ["IS", 1], [None, 1]]


@operation("DataFusion", "insert", cannot="its Python package only reads; PyIceberg appends the result of a query")
def test_there_is_no_insert(datafusion: Conversation, orders: str) -> None:
    with pytest.raises(EngineError, match="Write operations are not supported"):
        datafusion.ask(sql="INSERT INTO orders VALUES (4, 'FO', 1.0)", tables={"orders": orders})
