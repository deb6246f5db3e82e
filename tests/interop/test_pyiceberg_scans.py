"""Scans with PyIceberg: client and server plan the same files, and metadata tables work."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from tests.interop.duckdb_sessions import Duck
from tests.interop.matrix import operation
from tests.interop.server_address import LATER_ON_S3, Served

PYICEBERG = "PyIceberg"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
    NestedField(4, "kind", StringType(), required=False),
)
BY_KIND = PartitionSpec(PartitionField(source_id=4, field_id=1000, transform=IdentityTransform(), name="kind"))
FILTERS = (
    "id > 3",
    "id = 4 and text = 't4'",
    "text is null or amount < 2.0",
    "text like 't1%'",
    "id in (1, 2, 99)",
    "kind = 'b' and id < 10",
    "not (id >= 2)",
    "id = 77",
)

pytestmark = pytest.mark.parametrize("served", LATER_ON_S3, indirect=True)


@pytest.fixture
def planned_by_server(served: Served) -> Iterator[RestCatalog]:
    properties = {**served.pyiceberg_properties, "scan-planning-mode": "server"}
    opened = load_catalog("planned", type="rest", uri=served.url, **properties)
    assert isinstance(opened, RestCatalog)
    yield opened
    opened.close()


@pytest.fixture
def table(served: Served, catalog: RestCatalog, namespace: str) -> Table:
    """A partitioned table of several files, with position deletes of another engine."""
    made: Table = catalog.create_table((namespace, "t"), SCHEMA, partition_spec=BY_KIND)
    for first in (0, 10):
        ids = list(range(first, first + 10))
        texts = [None if number % 5 == 0 else f"t{number}" for number in ids]
        amounts, kinds = [number / 2 for number in ids], ["abc"[number % 3] for number in ids]
        made.append(pa.table({"id": pa.array(ids, pa.int64()), "text": texts, "amount": amounts, "kind": kinds}))
    duck = Duck(served, namespace)
    duck("DELETE FROM t WHERE id IN (2, 13)")
    duck.close()
    return made.refresh()


def ids_in(table: Table, row_filter: str, **options: int) -> list[int]:
    found = table.scan(row_filter=row_filter, selected_fields=("id",), **options)  # type: ignore[arg-type] # By name.
    return sorted(found.to_arrow()["id"].to_pylist())


@operation(PYICEBERG, "scans planned by the server")
def test_the_server_plans_the_same_files_as_the_client(table: Table, planned_by_server: RestCatalog) -> None:
    assert planned_by_server.supports_server_side_planning()
    planned = planned_by_server.load_table(table.name())

    for row_filter in FILTERS:
        assert ids_in(planned, row_filter) == ids_in(table, row_filter), row_filter

    assert planned.scan().to_arrow().num_rows == 18


@operation(PYICEBERG, "scans planned by the server")
def test_the_server_plans_old_snapshots_too(table: Table, planned_by_server: RestCatalog) -> None:
    planned = planned_by_server.load_table(table.name())

    counts = [
        len(ids_in(planned, "id >= 0", snapshot_id=snapshot.snapshot_id)) for snapshot in table.metadata.snapshots
    ]

    assert counts == [10, 20, 18]


@operation(PYICEBERG, "metadata tables")
def test_metadata_tables_are_read(table: Table) -> None:
    inspect = table.inspect

    assert inspect.snapshots().num_rows == inspect.history().num_rows == 3
    assert inspect.metadata_log_entries().num_rows == 4
    assert inspect.refs().to_pylist()[0]["name"] == "main"
    assert sum(inspect.data_files()["record_count"].to_pylist()) == 20
    assert sum(inspect.delete_files()["record_count"].to_pylist()) == 2
    assert inspect.all_files().num_rows >= inspect.files().num_rows
    assert inspect.partitions().num_rows == 3
    assert inspect.manifests().num_rows == 3
