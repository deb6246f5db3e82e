"""PyIceberg's table API against a real server: writes, schema evolution, time travel and maintenance."""

import itertools
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestampType

from tests.interop.matrix import operation
from tests.interop.server_address import LATER_ON_S3

PYICEBERG = "PyIceberg"
pytestmark = pytest.mark.parametrize("served", LATER_ON_S3, indirect=True)

GONE_LOOKS_MAX = 600
LOOK_SECONDS = 0.1


def rows(*ids: int, text: str = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [text] * len(ids)})


SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))


@pytest.fixture
def table(catalog: RestCatalog, namespace: str) -> Table:
    made: Table = catalog.create_table((namespace, "t"), SCHEMA)
    return made


def ids_in(table: Table, **scan: int) -> list[int]:
    return sorted(table.scan(**scan).to_arrow()["id"].to_pylist())  # type: ignore[arg-type] # Options by name.


def again(catalog: RestCatalog, table: Table) -> Table:
    """The table as another client loads it."""
    loaded: Table = catalog.load_table(table.name())
    return loaded


@operation(PYICEBERG, "insert")
@operation(PYICEBERG, "overwrite")
@operation(PYICEBERG, "delete")
@operation(PYICEBERG, "read")
def test_rows_are_appended_overwritten_and_deleted(catalog: RestCatalog, table: Table) -> None:
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    table.overwrite(rows(20), overwrite_filter="id = 2")
    table.delete("id >= 20")
    assert ids_in(again(catalog, table)) == [1, 3, 4]

    table.overwrite(rows(7, 8))

    found = again(catalog, table)
    assert ids_in(found) == [7, 8]
    assert found.scan(row_filter="id > 7", selected_fields=("text",)).to_arrow().to_pylist() == [{"text": "x"}]
    assert found.scan().count() == 2


@operation(PYICEBERG, "upsert")
def test_rows_are_updated_or_inserted_by_their_key(catalog: RestCatalog, table: Table) -> None:
    table.append(rows(1, 2, text="old"))

    result = table.upsert(rows(2, 3, text="new"), join_cols=["id"])

    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    found = {row["id"]: row["text"] for row in again(catalog, table).scan().to_arrow().to_pylist()}
    assert found == {1: "old", 2: "new", 3: "new"}


@operation(PYICEBERG, "overwrite")
def test_single_partitions_are_overwritten(catalog: RestCatalog, namespace: str) -> None:
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="text"))
    table = catalog.create_table((namespace, "t"), SCHEMA, partition_spec=spec)
    table.append(pa.concat_tables([rows(1, text="a"), rows(2, text="b")]))

    table.dynamic_partition_overwrite(rows(9, text="b"))

    found = again(catalog, table)
    assert ids_in(found) == [1, 9]
    assert sorted(row["partition"]["text"] for row in found.inspect.partitions().to_pylist()) == ["a", "b"]


@operation(PYICEBERG, "transaction over one table")
def test_several_changes_are_one_commit(catalog: RestCatalog, table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(k="v")
        with transaction.update_schema() as schema:
            schema.add_column("more", DoubleType(), doc="added")
        transaction.append(rows(1, 2))
        transaction.delete("id = 1")
        assert again(catalog, table).current_snapshot() is None

    found = again(catalog, table)
    assert ids_in(found) == [2]
    assert found.schema().column_names == ["id", "text", "more"]
    assert found.properties["k"] == "v"
    assert len(found.metadata.metadata_log) == 1


@operation(PYICEBERG, "properties")
def test_properties_are_set_and_removed(catalog: RestCatalog, table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(a="1", b="2")
    with table.transaction() as transaction:
        transaction.remove_properties("a")

    found = again(catalog, table).properties
    assert (found.get("a"), found.get("b")) == (None, "2")


@operation(PYICEBERG, "evolve schema")
def test_a_schema_evolves_and_old_rows_stay_readable(catalog: RestCatalog, namespace: str) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=True), NestedField(2, "text", StringType(), required=False)
    )
    table = catalog.create_table((namespace, "t"), schema)
    required = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("text", pa.string())])
    table.append(pa.table({"id": [1], "text": ["old"]}, schema=required))
    first = table.current_snapshot()
    assert first is not None

    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", LongType(), required=False)
        update.rename_column("text", "words")
        update.add_column("price", DoubleType())
        update.move_first("price")
    table.append(pa.table({"price": [2.5], "id": pa.array([2], pa.int64()), "words": ["new"]}))
    with table.update_schema() as update:
        update.union_by_name(Schema(NestedField(1, "extra", StringType(), required=False)))
        update.delete_column("price")

    found = again(catalog, table)
    assert found.schema().column_names == ["id", "words", "extra"]
    assert sorted(found.scan().to_arrow()["words"].to_pylist()) == ["new", "old"]
    assert found.scan(snapshot_id=first.snapshot_id).to_arrow().column_names == ["id", "text"]
    assert len(found.schemas()) == 3


@operation(PYICEBERG, "evolve partitioning")
def test_a_partition_spec_evolves_and_every_row_is_found(catalog: RestCatalog, table: Table) -> None:
    some = pa.concat_tables([rows(1, text="a"), rows(2, text="b")])
    table.append(some)

    with table.update_spec() as update:
        update.add_field("text", IdentityTransform(), "text")
        update.add_field("id", IdentityTransform(), "number")
    table.append(some)
    with table.update_spec() as update:
        update.remove_field("number")
        update.rename_field("text", "words")
    table.append(some)

    found = again(catalog, table)
    assert [field.name for field in found.spec().fields] == ["words"]
    assert ids_in(found) == [1, 1, 1, 2, 2, 2]
    assert found.scan(row_filter="text = 'b'").to_arrow()["id"].to_pylist() == [2, 2, 2]
    assert len(list(found.scan(row_filter="text = 'b'").plan_files())) == 3
    assert len(found.specs()) == 3


@operation(PYICEBERG, "evolve partitioning")
def test_a_table_is_partitioned_by_transforms(catalog: RestCatalog, namespace: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = catalog.create_table((namespace, "t"), schema)

    with table.update_spec() as update:
        update.add_field("at", DayTransform(), "day")
        update.add_field("id", BucketTransform(16), "bucket")
        update.add_field("id", TruncateTransform(10), "tens")

    fields = again(catalog, table).spec().fields
    assert [str(field.transform) for field in fields] == ["day", "bucket[16]", "truncate[10]"]
    assert [field.field_id for field in fields] == [1000, 1001, 1002]


@operation(PYICEBERG, "sort order")
def test_a_sort_order_is_replaced(catalog: RestCatalog, table: Table) -> None:
    with table.update_sort_order() as update:
        update.asc("text", IdentityTransform()).desc("id", IdentityTransform())

    assert [field.source_id for field in again(catalog, table).sort_order().fields] == [2, 1]


@operation(PYICEBERG, "add files")
def test_existing_files_are_added(catalog: RestCatalog, table: Table) -> None:
    paths = [f"{table.location()}/brought/{number}.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        with table.io.new_output(path).create() as file:
            pq.write_table(rows(number), file)

    table.add_files(paths)

    found = again(catalog, table)
    assert ids_in(found) == [0, 1]
    assert found.inspect.files().num_rows == 2
    with pytest.raises(ValueError, match="already referenced"):
        found.add_files(paths[:1])


@operation(PYICEBERG, "time travel")
def test_old_snapshots_stay_readable(catalog: RestCatalog, table: Table) -> None:
    for number in range(3):
        table.append(rows(number))

    found = again(catalog, table)
    first, second, third = (entry.snapshot_id for entry in found.history())
    assert [ids_in(found, snapshot_id=one) for one in (first, second, third)] == [[0], [0, 1], [0, 1, 2]]
    as_of = found.snapshot_as_of_timestamp(found.history()[1].timestamp_ms)
    assert as_of is not None
    assert as_of.snapshot_id == second
    between = found.incremental_append_scan(from_snapshot_id_exclusive=first, to_snapshot_id_inclusive=third)
    assert sorted(between.to_arrow()["id"].to_pylist()) == [1, 2]


@operation(PYICEBERG, "rollback")
def test_a_table_is_rolled_back_to_a_snapshot(catalog: RestCatalog, table: Table) -> None:
    for number in range(3):
        table.append(rows(number))
    first, second, _ = (entry.snapshot_id for entry in table.history())

    table.manage_snapshots().rollback_to_snapshot(second).commit()
    assert ids_in(again(catalog, table)) == [0, 1]
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert ids_in(again(catalog, table)) == [0]

    again(catalog, table).append(rows(9))
    assert ids_in(again(catalog, table)) == [0, 9]


@operation(PYICEBERG, "branches and tags")
def test_branches_and_tags_are_independent_of_main(catalog: RestCatalog, table: Table) -> None:
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    with table.manage_snapshots() as refs:
        refs.create_tag(first.snapshot_id, "v1", max_ref_age_ms=86_400_000)
        refs.create_branch(first.snapshot_id, "side", max_snapshot_age_ms=1_000_000, min_snapshots_to_keep=2)
    side = again(catalog, table).refs()["side"]

    table.append(rows(2), branch="side")
    table.append(rows(3))

    found = again(catalog, table)
    assert ids_in(found) == [1, 3]
    assert sorted(found.scan().use_ref("side").to_arrow()["id"].to_pylist()) == [1, 2]
    assert found.scan().use_ref("v1").to_arrow()["id"].to_pylist() == [1]
    assert (side.snapshot_ref_type, side.min_snapshots_to_keep) == (SnapshotRefType.BRANCH, 2)
    assert found.refs()["v1"].max_ref_age_ms == 86_400_000
    with found.manage_snapshots() as refs:
        refs.remove_tag("v1").remove_branch("side")
    assert set(again(catalog, table).refs()) == {"main"}


@operation(PYICEBERG, "expire snapshots")
def test_old_snapshots_expire(catalog: RestCatalog, table: Table) -> None:
    for number in range(3):
        table.append(rows(number))
    first, second, _ = (entry.snapshot_id for entry in table.history())

    table.maintenance.expire_snapshots().by_ids([first, second]).commit()

    found = again(catalog, table)
    assert len(found.snapshots()) == 1
    assert ids_in(found) == [0, 1, 2]


@operation(PYICEBERG, "statistics")
def test_statistics_are_set_and_removed(catalog: RestCatalog, table: Table) -> None:
    table.append(rows(1))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot.snapshot_id, "sequence-number": 1}
    statistics = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot.snapshot_id,
            "statistics-path": f"{table.location()}/metadata/some.puffin",
            "file-size-in-bytes": 413,
            "file-footer-size-in-bytes": 42,
            "blob-metadata": [{**blob, "fields": [1], "properties": {"ndv": "1"}}],
        }
    )

    with table.update_statistics() as update:
        update.set_statistics(statistics)
    assert again(catalog, table).metadata.statistics == [statistics]
    with table.update_statistics() as update:
        update.remove_statistics(snapshot.snapshot_id)

    assert again(catalog, table).metadata.statistics == []


@operation(PYICEBERG, "upgrade format version")
def test_a_table_is_upgraded_and_never_downgraded(catalog: RestCatalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "t"), SCHEMA, properties={"format-version": "1"})
    table.append(rows(1))

    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)

    found = again(catalog, table)
    assert (table.format_version, found.format_version) == (2, 2)
    found.append(rows(2))
    assert ids_in(again(catalog, table)) == [1, 2]
    with pytest.raises(ValueError, match="Cannot downgrade"), found.transaction() as transaction:
        transaction.upgrade_table_version(1)


@operation(PYICEBERG, "concurrent writers")
def test_a_change_based_on_an_old_schema_is_refused(catalog: RestCatalog, table: Table) -> None:
    stale = again(catalog, table)
    with table.update_schema() as update:
        update.add_column("mine", LongType())

    with pytest.raises(CommitFailedException), stale.update_schema() as update:
        update.add_column("yours", LongType())

    assert again(catalog, table).schema().column_names == ["id", "text", "mine"]


@operation(PYICEBERG, "concurrent writers")
def test_the_client_retries_an_append_that_lost_a_race(catalog: RestCatalog, table: Table) -> None:
    stale = again(catalog, table)
    table.append(rows(1))

    stale.append(rows(2))

    assert ids_in(again(catalog, table)) == [1, 2]


@operation(PYICEBERG, "concurrent writers")
def test_an_overwrite_of_concurrently_changed_rows_is_refused(catalog: RestCatalog, table: Table) -> None:
    table.append(rows(1))
    stale = again(catalog, table)
    table.overwrite(rows(2))

    with pytest.raises((CommitFailedException, ValidationException)):
        stale.overwrite(rows(3), overwrite_filter="id = 1")

    assert ids_in(again(catalog, table)) == [2]


@operation(PYICEBERG, "drop")
def test_a_purge_deletes_files_and_a_drop_keeps_them(catalog: RestCatalog, namespace: str) -> None:
    tables = [catalog.create_table((namespace, name), SCHEMA) for name in ("purged", "dropped")]
    for one in tables:
        one.append(rows(1, 2))
    purged, dropped = ([task.file.file_path for task in one.scan().plan_files()] for one in tables)

    catalog.purge_table((namespace, "purged"))
    catalog.drop_table((namespace, "dropped"))

    for _ in range(GONE_LOOKS_MAX):
        if not any(_exists(tables[0], path) for path in [*purged, tables[0].metadata_location]):
            break
        threading.Event().wait(LOOK_SECONDS)
    else:
        pytest.fail("the files are still there")
    assert all(_exists(tables[1], path) for path in [*dropped, tables[1].metadata_location])
    assert ids_in(catalog.register_table((namespace, "again"), tables[1].metadata_location)) == [1, 2]


def _exists(table: Table, location: str) -> bool:
    return table.io.new_input(location).exists()


@operation(PYICEBERG, "properties")
def test_many_small_commits_keep_their_order(catalog: RestCatalog, table: Table) -> None:
    for number in range(40):
        with table.transaction() as transaction:
            transaction.set_properties({"number": str(number)})

    found = again(catalog, table)
    assert found.properties["number"] == "39"
    logged = [entry.metadata_file.rpartition("/")[2][:5] for entry in found.metadata.metadata_log]
    assert all(earlier < later for earlier, later in itertools.pairwise(logged))


@operation(PYICEBERG, "rollback")
def test_a_table_is_rolled_back_to_a_time(catalog: RestCatalog, table: Table) -> None:
    for number in range(2):
        table.append(rows(number))
    last = table.history()[-1].timestamp_ms

    table.manage_snapshots().rollback_to_timestamp(last).commit()  # The last snapshot before this time.

    assert ids_in(again(catalog, table)) == [0]


@operation(PYICEBERG, "move", cannot="PyIceberg says that setting a location is not implemented")
def test_a_table_location_cannot_be_moved(table: Table) -> None:
    with pytest.raises(NotImplementedError), table.transaction() as transaction:
        transaction.update_location(f"{table.location()}-moved")
