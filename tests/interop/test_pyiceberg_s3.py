"""PyIceberg against a server on a bucket: one pass over what touches files."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from sandur.settings import Settings
from tests.server.process import server_process

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", "c"]})


@pytest.fixture
def bucket_catalog(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    s3 = seaweedfs_settings.s3
    folder = tmp_path_factory.mktemp("bucket")
    told = {
        "s3_endpoint": s3.endpoint,
        "s3_region": s3.region,
        "s3_access_key_id": s3.access_key_id,
        "s3_secret_access_key": s3.secret_access_key,
    }
    known = {
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.access-key-id": s3.access_key_id,
        "s3.secret-access-key": s3.secret_access_key,
    }
    with server_process(folder, "--store", f"s3://sandur/{folder.name}", **told) as server:
        opened = load_catalog("sandur", type="rest", uri=server.url, warehouse="main", **known)
        assert isinstance(opened, RestCatalog)
        yield opened
        opened.close()


def test_a_table_on_a_bucket_is_written_evolved_and_read(bucket_catalog: RestCatalog) -> None:
    catalog = bucket_catalog
    catalog.create_namespace("ns")
    with catalog.create_table_transaction(("ns", "t"), ROWS.schema) as creation:
        creation.append(ROWS)
    table = catalog.load_table(("ns", "t"))
    assert table.location().startswith("s3://sandur/")

    with table.update_spec() as spec:
        spec.add_field("text", IdentityTransform(), "text")
    with table.update_schema() as schema:
        schema.add_column("more", LongType())
    table.append(ROWS.append_column("more", pa.array([7, 8, 9], pa.int64())))
    table.overwrite(ROWS.slice(0, 1), overwrite_filter="id = 1")
    table.delete("id = 2")
    catalog.rename_table(("ns", "t"), ("ns", "u"))

    found = catalog.load_table(("ns", "u"))
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 3, 3]
    first = found.history()[0].snapshot_id
    assert found.scan(snapshot_id=first).to_arrow().num_rows == 3
    assert catalog.list_tables("ns") == [("ns", "u")]
    catalog.drop_table(("ns", "u"))
    assert catalog.register_table(("ns", "v"), found.metadata_location).scan().to_arrow().num_rows == 3
    catalog.purge_table(("ns", "v"))
    assert catalog.list_tables("ns") == []
