"""PyIceberg, unmodified, against a real server."""

import itertools

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.server.process import ServerProcess

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
_numbers = itertools.count()
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", None]})


@pytest.fixture(params=["", "/iceberg"], ids=["at the root", "at /iceberg"])
def catalog(server: ServerProcess, request: pytest.FixtureRequest) -> RestCatalog:
    opened = load_catalog("sandur", type="rest", uri=server.url + request.param, warehouse="main")
    assert isinstance(opened, RestCatalog)
    return opened


@pytest.fixture
def namespace(catalog: RestCatalog) -> str:
    name = f"pyiceberg_{next(_numbers)}"
    catalog.create_namespace(name, {"owner": "me"})
    return name


def test_appended_rows_are_read_back(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "t"), SCHEMA)
    table.append(ROWS)
    table.append(ROWS)

    again = catalog.load_table((namespace, "t"))

    assert again.scan().to_arrow().num_rows == 6
    assert len(again.history()) == 2


def test_a_schema_evolves_and_properties_change(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "t"), SCHEMA)

    with table.transaction() as transaction:
        transaction.set_properties(k="v")
        with transaction.update_schema() as update:
            update.add_column("more", LongType())

    again = catalog.load_table((namespace, "t"))
    assert again.properties["k"] == "v"
    assert again.schema().column_names == ["id", "text", "more"]


def test_a_create_transaction_is_visible_only_after_its_commit(catalog: RestCatalog, namespace: str) -> None:
    with catalog.create_table_transaction((namespace, "t"), SCHEMA) as transaction:
        assert not catalog.table_exists((namespace, "t"))
        transaction.append(ROWS)

    assert catalog.load_table((namespace, "t")).scan().to_arrow().num_rows == 3


def test_tables_are_listed_renamed_registered_and_dropped(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "t"), SCHEMA)
    catalog.rename_table((namespace, "t"), (namespace, "u"))
    file = catalog.load_table((namespace, "u")).metadata_location
    with pytest.raises(BadRequestError, match="which exists"):
        catalog.register_table((namespace, "v"), file)

    assert catalog.list_tables(namespace) == [(namespace, "u")]
    assert not catalog.table_exists((namespace, "t"))

    catalog.drop_table((namespace, "u"))
    catalog.register_table((namespace, "v"), file)
    assert catalog.load_table((namespace, "v")).metadata.table_uuid == table.metadata.table_uuid
    catalog.purge_table((namespace, "v"))
    assert catalog.list_tables(namespace) == []


@pytest.mark.parametrize("level", ["plain", "with space", "dot.ted", "slash/ed", "per%cent", "plus+ed", "é🧊"])
def test_namespaces_of_any_name_can_be_nested(catalog: RestCatalog, namespace: str, level: str) -> None:
    nested = (namespace, level)

    catalog.create_namespace(nested, {"k": "v"})
    catalog.create_namespace((*nested, "deep"))

    assert catalog.list_namespaces(namespace) == [nested]
    assert catalog.list_namespaces(nested) == [(*nested, "deep")]
    assert catalog.load_namespace_properties(nested)["k"] == "v"
    summary = catalog.update_namespace_properties(nested, {"k"}, {"l": "w"})
    assert (summary.removed, summary.updated) == (["k"], ["l"])
    catalog.create_table((*nested, "t"), SCHEMA)
    assert catalog.list_tables(nested) == [(*nested, "t")]
    assert catalog.load_table((*nested, "t")).name() == (*nested, "t")


def test_errors_raise_the_exceptions_of_pyiceberg(catalog: RestCatalog, namespace: str) -> None:
    catalog.create_table((namespace, "t"), SCHEMA)

    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table((namespace, "t"), SCHEMA)
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(namespace)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(namespace)
    with pytest.raises(NoSuchTableError):
        catalog.load_table((namespace, "nope"))
    with pytest.raises(NoSuchTableError):
        catalog.drop_table((namespace, "nope"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nope")
    with pytest.raises(NoSuchNamespaceError):
        catalog.load_namespace_properties("nope")
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table(("nope", "t"), SCHEMA)
