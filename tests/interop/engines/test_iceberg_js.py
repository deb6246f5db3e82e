"""iceberg-js, a client of the catalog alone: it reads and writes no rows."""

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.engines.registry import opened
from tests.interop.matrix import operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

LIST = {"type": "list", "element-id": 3, "element": "string", "element-required": True}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "tags", "type": LIST, "required": False},
    ],
}


@pytest.fixture
def js(served: Served) -> Conversation:
    engine: Conversation = opened("iceberg-js", served)
    return engine


def call(js: Conversation, method: str, *parameters: object) -> object:
    return js.ask(call=method, **{"with": parameters})


@operation("iceberg-js", "namespaces")
def test_namespaces_are_made_nested_described_and_dropped(js: Conversation) -> None:
    outer = {"namespace": ["made by js"]}
    inner = {"namespace": ["made by js", "inner þ"]}
    call(js, "createNamespace", outer, {"properties": {"owner": "me"}})
    call(js, "createNamespaceIfNotExists", outer)
    call(js, "createNamespace", inner)

    children = call(js, "listNamespaces", outer)
    described = call(js, "loadNamespaceMetadata", outer)
    with pytest.raises(EngineError, match="409 NamespaceNotEmptyException"):
        call(js, "dropNamespace", outer)
    call(js, "dropNamespace", inner)
    call(js, "dropNamespace", outer)

    assert children == [inner]
    assert isinstance(described, dict)
    assert described["properties"]["owner"] == "me"
    assert call(js, "namespaceExists", outer) is False


@operation("iceberg-js", "create table")
@operation("iceberg-js", "drop")
def test_a_table_is_made_loaded_listed_and_dropped(js: Conversation, schema_name: str) -> None:
    namespace = {"namespace": [schema_name]}
    table = {"namespace": [schema_name], "name": "t"}
    request = {"name": "t", "schema": SCHEMA, "properties": {"owner": "me"}}
    made = call(js, "createTable", namespace, request)

    loaded = call(js, "loadTable", table)
    again = call(js, "createTableIfNotExists", namespace, request)
    with pytest.raises(EngineError, match="409 AlreadyExistsException"):
        call(js, "createTable", namespace, request)
    listed = call(js, "listTables", namespace)
    call(js, "dropTable", table, {"purge": True})

    assert made == loaded == again
    assert listed == [table]
    assert call(js, "tableExists", table) is False
    with pytest.raises(EngineError, match="404 NoSuchTableException"):
        call(js, "loadTable", table)


@operation("iceberg-js", "properties", cannot="its updateTable does not send updates of the protocol")
def test_an_update_that_is_none_of_the_protocol_is_refused(js: Conversation, schema_name: str) -> None:
    call(js, "createTable", {"namespace": [schema_name]}, {"name": "t", "schema": SCHEMA})

    with pytest.raises(EngineError, match="400"):
        call(js, "updateTable", {"namespace": [schema_name], "name": "t"}, {"properties": {"owner": "you"}})
