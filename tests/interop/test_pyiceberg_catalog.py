"""PyIceberg's complete catalog API against a real server: namespaces, tables and views by name."""

import httpx
import pyarrow as pa
import pyiceberg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    RESTError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewVersion

from tests.interop.matrix import RECORDER, operation
from tests.interop.server_address import LATER_ON_S3, Served

PYICEBERG = "PyIceberg"
RECORDER.version(PYICEBERG, pyiceberg.__version__)
pytestmark = pytest.mark.parametrize("served", LATER_ON_S3, indirect=True)

SCHEMA = Schema(
    NestedField(10, "id", LongType(), required=True),
    NestedField(20, "text", StringType(), required=False, doc="what it says"),
    identifier_field_ids=[10],
)
ROWS = pa.table(
    {"id": [1, 2], "text": ["a", None]},
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())]),
)


def view_version(sql: str, namespace: str) -> ViewVersion:
    return ViewVersion.model_validate(
        {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 1_767_225_600_000,
            "summary": {"engine-name": "test"},
            "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
            "default-namespace": [namespace],
        }
    )


@operation(PYICEBERG, "namespaces")
def test_a_namespace_is_created_found_changed_and_dropped(catalog: RestCatalog, namespace: str) -> None:
    child = (namespace, "child")

    catalog.create_namespace_if_not_exists(child, {"owner": "me", "color": "red"})
    catalog.create_namespace_if_not_exists(child, {"owner": "you"})

    assert catalog.namespace_exists(child)
    assert (namespace,) in catalog.list_namespaces()
    assert catalog.list_namespaces(namespace) == [child]
    assert catalog.load_namespace_properties(child)["owner"] == "me"
    summary = catalog.update_namespace_properties(child, {"color", "nope"}, {"owner": "them", "size": "3"})
    assert (summary.removed, sorted(summary.updated), summary.missing) == (["color"], ["owner", "size"], ["nope"])
    left = catalog.load_namespace_properties(child)
    assert (left["owner"], left["size"], "color" in left) == ("them", "3", False)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(namespace)
    catalog.drop_namespace(child)
    catalog.drop_namespace(namespace)
    assert not catalog.namespace_exists(namespace)


@operation(PYICEBERG, "namespaces")
def test_a_missing_namespace_raises_no_such_namespace(catalog: RestCatalog, namespace: str) -> None:
    missing = (namespace, "missing")

    for ask in (
        catalog.load_namespace_properties,
        catalog.list_tables,
        catalog.list_namespaces,
        catalog.drop_namespace,
    ):
        with pytest.raises(NoSuchNamespaceError):
            ask(missing)
    with pytest.raises(NoSuchNamespaceError):
        catalog.update_namespace_properties(missing, None, {"k": "v"})
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table((*missing, "t"), SCHEMA)
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(namespace)


@operation(PYICEBERG, "create table")
def test_a_table_is_created_as_requested(catalog: RestCatalog, namespace: str) -> None:
    spec = PartitionSpec(PartitionField(source_id=20, field_id=1000, transform=IdentityTransform(), name="text"))
    order = SortOrder(SortField(source_id=10, transform=BucketTransform(4), direction=SortDirection.DESC))

    made = catalog.create_table((namespace, "t"), SCHEMA, partition_spec=spec, sort_order=order, properties={"k": "v"})

    for table in (made, catalog.load_table((namespace, "t"))):
        assert table.name() == (namespace, "t")
        assert [field.field_id for field in table.schema().fields] == [1, 2]
        assert table.schema().find_field("text").doc == "what it says"
        assert table.schema().identifier_field_ids == [1]
        assert [(field.source_id, field.name) for field in table.spec().fields] == [(2, "text")]
        assert [(field.source_id, field.direction) for field in table.sort_order().fields] == [(1, SortDirection.DESC)]
        assert table.properties["k"] == "v"
        assert table.format_version == 2


@operation(PYICEBERG, "create table")
def test_a_table_is_created_from_arrow_at_a_given_location(catalog: RestCatalog, namespace: str) -> None:
    root = catalog.load_namespace_properties(namespace)["location"]

    table = catalog.create_table((namespace, "u"), ROWS.schema, location=f"{root}/a-place-of-its-own/")
    table.append(ROWS)

    assert table.location() == f"{root}/a-place-of-its-own"
    assert catalog.load_table((namespace, "u")).scan().to_arrow().num_rows == 2


@operation(PYICEBERG, "create table")
def test_an_existing_table_is_loaded_or_raises_already_exists(catalog: RestCatalog, namespace: str) -> None:
    first = catalog.create_table((namespace, "t"), SCHEMA)

    again = catalog.create_table_if_not_exists((namespace, "t"), SCHEMA)

    assert again.metadata.table_uuid == first.metadata.table_uuid
    assert catalog.table_exists((namespace, "t"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table((namespace, "t"), SCHEMA)


@operation(PYICEBERG, "rename")
def test_a_table_keeps_its_state_when_it_moves_to_another_namespace(catalog: RestCatalog, namespace: str) -> None:
    other = (namespace, "other")
    catalog.create_namespace(other)
    table = catalog.create_table((namespace, "t"), SCHEMA)
    table.append(ROWS)

    renamed = catalog.rename_table((namespace, "t"), (*other, "u"))

    assert renamed.metadata.table_uuid == table.metadata.table_uuid
    assert renamed.scan().to_arrow().num_rows == 2
    assert not catalog.table_exists((namespace, "t"))
    assert (catalog.list_tables(namespace), catalog.list_tables(other)) == ([], [(*other, "u")])
    with pytest.raises(NoSuchTableError):
        catalog.rename_table((namespace, "t"), (namespace, "v"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.rename_table((*other, "u"), (namespace, "missing", "v"))
    catalog.create_table((namespace, "t"), SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table((namespace, "t"), (*other, "u"))


@operation(PYICEBERG, "drop")
def test_a_dropped_table_is_gone_and_its_name_free(catalog: RestCatalog, namespace: str) -> None:
    first = catalog.create_table((namespace, "t"), SCHEMA)
    catalog.drop_table((namespace, "t"))

    assert catalog.list_tables(namespace) == []
    for ask in (catalog.load_table, catalog.drop_table, catalog.purge_table):
        with pytest.raises(NoSuchTableError):
            ask((namespace, "t"))
    with pytest.raises(RESTError, match="NoSuchTableException"):  # PyIceberg has no specific class for this.
        first.append(ROWS)
    second = catalog.create_table((namespace, "t"), SCHEMA)
    assert second.metadata.table_uuid != first.metadata.table_uuid
    with pytest.raises(ValueError, match="UUID does not match"):  # The name refers to another table now.
        first.append(ROWS)
    assert second.refresh().current_snapshot() is None


@operation(PYICEBERG, "register")
def test_a_table_is_registered_by_its_metadata_file(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "t"), SCHEMA)
    table.append(ROWS)
    earlier = table.metadata_location
    table.append(ROWS)
    catalog.drop_table((namespace, "t"))

    registered = catalog.register_table((namespace, "u"), table.metadata_location)

    assert registered.metadata.table_uuid == table.metadata.table_uuid
    assert registered.scan().to_arrow().num_rows == 4
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table((namespace, "u"), earlier)
    assert catalog.register_table((namespace, "u"), earlier, overwrite=True).scan().to_arrow().num_rows == 2
    catalog.load_table((namespace, "u")).append(ROWS)
    assert catalog.load_table((namespace, "u")).scan().to_arrow().num_rows == 4


@operation(PYICEBERG, "create table transaction")
def test_a_create_transaction_is_invisible_until_its_commit(catalog: RestCatalog, namespace: str) -> None:
    with catalog.create_table_transaction((namespace, "t"), SCHEMA, properties={"k": "v"}) as transaction:
        with transaction.update_schema() as schema:
            schema.add_column("more", LongType())
        with transaction.update_spec() as spec:
            spec.add_field("id", BucketTransform(8), "bucket")
        transaction.set_properties(l="w")
        assert not catalog.table_exists((namespace, "t"))
        assert catalog.list_tables(namespace) == []

    table = catalog.load_table((namespace, "t"))
    assert table.schema().column_names == ["id", "text", "more"]
    assert [field.name for field in table.spec().fields] == ["bucket"]
    assert (table.properties["k"], table.properties["l"]) == ("v", "w")


@operation(PYICEBERG, "create table transaction")
def test_one_of_two_concurrent_create_transactions_of_one_name_succeeds(catalog: RestCatalog, namespace: str) -> None:
    first = catalog.create_table_transaction((namespace, "t"), SCHEMA)
    second = catalog.create_table_transaction((namespace, "t"), SCHEMA)
    first.append(ROWS)
    second.append(pa.concat_tables([ROWS, ROWS]))

    second.commit_transaction()
    with pytest.raises(CommitFailedException):
        first.commit_transaction()

    assert catalog.load_table((namespace, "t")).scan().to_arrow().num_rows == 4


@operation(PYICEBERG, "create table transaction")
def test_an_abandoned_create_transaction_leaves_its_name_free(catalog: RestCatalog, namespace: str) -> None:
    catalog.create_table_transaction((namespace, "t"), SCHEMA)

    catalog.create_table((namespace, "t"), SCHEMA)

    assert catalog.list_tables(namespace) == [(namespace, "t")]


@operation(PYICEBERG, "namespaces")
def test_lists_work_with_pages_of_any_size(served: Served, catalog: RestCatalog, namespace: str) -> None:
    paged = load_catalog("paged", type="rest", uri=served.url, **{"rest-page-size": "2"})
    names = [f"t{number}" for number in range(5)]
    for name in names:
        catalog.create_table((namespace, name), SCHEMA)
        catalog.create_namespace((namespace, name))

    assert paged.list_tables(namespace) == [(namespace, name) for name in names]
    assert paged.list_namespaces(namespace) == [(namespace, name) for name in names]


@operation(PYICEBERG, "views")
def test_a_view_is_created_found_and_dropped(catalog: RestCatalog, namespace: str) -> None:
    made = catalog.create_view((namespace, "v"), SCHEMA, view_version("select 1", namespace), properties={"k": "v"})

    loaded = catalog.load_view((namespace, "v"))

    assert catalog.view_exists((namespace, "v"))
    assert catalog.list_views(namespace) == [(namespace, "v")]
    assert catalog.list_tables(namespace) == []
    assert loaded.uuid() == made.uuid()
    assert loaded.properties["k"] == "v"
    representation = loaded.sql_for("spark")
    assert representation is not None
    assert representation.sql == "select 1"
    assert [entry.version_id for entry in loaded.history()] == [1]
    assert not catalog.table_exists((namespace, "v"))
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view((namespace, "v"), SCHEMA, view_version("select 2", namespace))
    catalog.drop_view((namespace, "v"))
    assert not catalog.view_exists((namespace, "v"))
    for ask in (catalog.load_view, catalog.drop_view):
        with pytest.raises(NoSuchViewError):
            ask((namespace, "v"))


@operation(PYICEBERG, "views")
@operation(PYICEBERG, "register")
def test_a_view_is_registered_by_its_metadata_file(served: Served, catalog: RestCatalog, namespace: str) -> None:
    made = catalog.create_view((namespace, "v"), SCHEMA, view_version("select 1", namespace))
    metadata_file = httpx.get(f"{served.url}/v1/namespaces/{namespace}/views/v").json()["metadata-location"]
    catalog.drop_view((namespace, "v"))

    registered = catalog.register_view((namespace, "w"), metadata_file)

    assert registered.uuid() == made.uuid()
    assert catalog.list_views(namespace) == [(namespace, "w")]
    with pytest.raises(ViewAlreadyExistsError):
        catalog.register_view((namespace, "w"), metadata_file)


@operation(PYICEBERG, "views")
def test_tables_and_views_share_their_names(catalog: RestCatalog, namespace: str) -> None:
    catalog.create_table((namespace, "t"), SCHEMA)
    catalog.create_view((namespace, "v"), SCHEMA, view_version("select 1", namespace))

    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view((namespace, "t"), SCHEMA, view_version("select 1", namespace))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table((namespace, "v"), SCHEMA)
    with pytest.raises(NoSuchTableError):
        catalog.drop_table((namespace, "v"))
    with pytest.raises(NoSuchViewError):
        catalog.drop_view((namespace, "t"))


@operation(PYICEBERG, "namespaces")
@operation(PYICEBERG, "rename")
@pytest.mark.parametrize(
    "name", ["with space", "dot.ted", "slash/ed", "per%cent", "plus+ed", "é🧊", "a?b&c=d#e", "☃" * 40]
)
def test_names_with_any_characters_work(catalog: RestCatalog, namespace: str, name: str) -> None:
    catalog.create_namespace((namespace, name))
    table = catalog.create_table((namespace, name, name), SCHEMA)
    table.append(ROWS)

    assert catalog.list_namespaces(namespace) == [(namespace, name)]
    assert catalog.list_tables((namespace, name)) == [(namespace, name, name)]
    assert catalog.load_table((namespace, name, name)).scan().to_arrow().num_rows == 2
    catalog.rename_table((namespace, name, name), (namespace, name))
    assert catalog.table_exists((namespace, name))
