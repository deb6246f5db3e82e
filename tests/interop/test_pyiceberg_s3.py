"""PyIceberg against a server on a bucket: one test of all operations on files, which runs by default."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from tests.interop.matrix import S3, operation

PYICEBERG = "PyIceberg"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", "c"]})


@operation(PYICEBERG, "create table transaction")
@operation(PYICEBERG, "evolve partitioning")
@operation(PYICEBERG, "evolve schema")
@operation(PYICEBERG, "overwrite")
@operation(PYICEBERG, "delete")
@operation(PYICEBERG, "time travel")
@pytest.mark.parametrize("served", [S3], indirect=True)
def test_a_table_on_a_bucket_is_written_evolved_and_read(catalog: RestCatalog, namespace: str) -> None:
    with catalog.create_table_transaction((namespace, "t"), ROWS.schema) as creation:
        creation.append(ROWS)
    table = catalog.load_table((namespace, "t"))
    assert table.location().startswith("s3://sandur/")

    with table.update_spec() as spec:
        spec.add_field("text", IdentityTransform(), "text")
    with table.update_schema() as schema:
        schema.add_column("more", LongType())
    table.append(ROWS.append_column("more", pa.array([7, 8, 9], pa.int64())))
    table.overwrite(ROWS.slice(0, 1), overwrite_filter="id = 1")
    table.delete("id = 2")
    catalog.rename_table((namespace, "t"), (namespace, "u"))

    found = catalog.load_table((namespace, "u"))
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 3, 3]
    first = found.history()[0].snapshot_id
    assert found.scan(snapshot_id=first).to_arrow().num_rows == 3
    assert catalog.list_tables(namespace) == [(namespace, "u")]
    catalog.drop_table((namespace, "u"))
    assert catalog.register_table((namespace, "v"), found.metadata_location).scan().to_arrow().num_rows == 3
    catalog.purge_table((namespace, "v"))
    assert catalog.list_tables(namespace) == []
