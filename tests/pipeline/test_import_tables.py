"""`import` registers foreign tables and does not change their files."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sandur.catalog.identifiers import Identifier
from sandur.errors import BadRequest, Invalid, Unavailable
from sandur.operations.delta.tables import load_delta_table
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.names import resolve_name
from sandur.pipeline.job import Limits
from sandur.pipeline.jobs.import_tables import IMPORT
from sandur.settings import Settings
from tests.pipeline.world import World, identifier_of


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def others(lake: Path) -> Iterator[World]:
    """Another catalog with its root in the lake."""
    with World(Settings(store=str(lake), fsync="never")) as made:
        yield made


@pytest.fixture
def ours(tmp_path: Path, lake: Path) -> Iterator[World]:
    lake.mkdir(exist_ok=True)
    with World(Settings(store=str(tmp_path / "store"), fsync="never", allowed_locations=(str(lake),))) as made:
        yield made


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".sandur" not in path.parts
    }


def _delta(folder: Path) -> None:
    rows = pa.table({"region": ["north", "south"], "amount": [1, 2]})
    write_deltalake(str(folder), rows, partition_by=["region"])
    write_deltalake(str(folder), rows, mode="append")


def _broken(folder: Path) -> list[str]:
    """Folders that look like tables, each with one unreadable file."""
    checkpoint = io.BytesIO()
    pq.write_table(pa.table({"add": [1]}), checkpoint)
    bomb = io.BytesIO()
    pq.write_table(pa.table({"metaData": [{"id": "x", "schemaString": "a" * (80 << 20)}]}), bomb, compression="zstd")
    first, described = f"_delta_log/{0:020d}", '{"metaData": {"id": %s, "schemaString": %s}}'
    files = [
        ("metadata/v1.metadata.json", b"{"),
        ("metadata/v1.metadata.json.gz", gzip.compress(b'{"format-version": 2}')[:-9]),
        ("metadata/v1.gz.metadata.json", b"\x1f\x8b"),
        (f"{first}.json", b"{"),
        (f"{first}.json", b'{"metaData": ' + b"[" * 5_000),
        (f"{first}.json", (described % (5, '"{}"')).encode()),
        (f"{first}.json", (described % ('"x"', "7")).encode()),
        (f"{first}.json", (described % ('"x"', json.dumps('{"fields": ["a"]}'))).encode()),
        (f"{first}.checkpoint.parquet", b"PAR1"),
        (f"{first}.checkpoint.parquet", checkpoint.getvalue()),
        (f"{first}.checkpoint.parquet", bomb.getvalue()),
        ("metadata/v1.gz.metadata.json", gzip.compress(b" " * (80 << 20), 1)),
    ]
    for number, (file, data) in enumerate(files):
        path = folder / f"{number:02d}" / file
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    return [file for file, _ in files]


def test_iceberg_and_delta_tables_are_found_and_registered_in_place(
    ours: World, others: World, lake: Path, spark: SparkSession
) -> None:
    made = others.make("orders")
    others.commits("orders", 2)
    _delta(lake / "finance.db" / "sums")
    broken = _broken(lake / "broken")
    before = _files(lake)
    arguments = {"location": str(lake)}

    dry = ours.run(spark, IMPORT, dry_run=True, arguments=arguments)
    nothing = ours.wait(resolve_name(ours.lake, Identifier("main", ("finance",), "sums")))
    done = ours.run(spark, IMPORT, arguments=arguments)
    again = ours.run(spark, IMPORT, arguments=arguments)

    iceberg = sum(file.startswith("metadata/") for file in broken)
    found = {"found_iceberg": 1 + iceberg, "found_delta": 1 + len(broken) - iceberg, "known": 0, "new": 2}
    found |= {"conflicts": 0, "unreadable": len(broken)}
    assert dry.counts == found
    assert nothing is None
    assert done.counts == {**found, "registered": 2}
    assert again.counts == {**found, "known": 2, "new": 0, "registered": 0}
    assert all(f"/broken/{number:02d}: " in warning for number, warning in enumerate(done.warnings))
    assert _files(lake) == before
    sums = ours.wait(load_delta_table(ours.lake, Identifier("main", ("finance",), "sums")))
    assert b'"region"' in bytes(sums.columns)
    folder = f"orders-{made.table_uuid}"
    orders = Identifier("main", ("tables", "default", "default", "main", "__unitystorage", "sales"), folder)
    document = ours.wait(current_document(ours.lake, orders))
    assert document.location == others.wait(current_document(others.lake, identifier_of("orders"))).location


@pytest.mark.slow
def test_a_taken_name_is_a_conflict_and_nothing_is_overwritten(ours: World, lake: Path, spark: SparkSession) -> None:
    _delta(lake / "a" / "t")
    _delta(lake / "b" / "t")
    _delta(lake / "kept")
    ours.make("kept")
    uuid = ours.make("other").table_uuid

    report = ours.run(spark, IMPORT, arguments={"location": str(lake), "namespace": "sales"})

    assert (report.counts["conflicts"], report.counts["registered"]) == (3, 0)
    assert sorted(warning.partition(": ")[2] for warning in report.warnings) == [
        "2 tables would get the name sales.t",
        "2 tables would get the name sales.t",
        "sales.kept exists",
    ]
    assert ours.wait(resolve_name(ours.lake, identifier_of("t"))) is None
    found = ours.wait(resolve_name(ours.lake, identifier_of("other")))
    assert found is not None
    assert found.uuid == uuid


@pytest.mark.slow
def test_tables_with_unreadable_records_are_not_imported_again(
    ours: World, others: World, lake: Path, spark: SparkSession
) -> None:
    made = others.make("orders")
    arguments = {"location": str(lake)}
    first = ours.run(spark, IMPORT, arguments=arguments)
    ours.damage(ours.layout.pointer(made.table_uuid))
    ours.make("t")
    ours.damage(ours.layout.name(identifier_of("t")))
    _delta(lake / "sales" / "t")

    again = ours.run(spark, IMPORT, arguments=arguments)
    _delta(lake / "sales" / "u")
    ours.run(spark, IMPORT, arguments=arguments)
    (record,) = ours.listed(ours.layout.delta_tables_folder())
    ours.damage(record.key)

    assert (first.counts["registered"], again.counts["known"], again.counts["registered"]) == (1, 1, 0)
    assert again.counts["conflicts"] == 1
    assert ours.layout.name(identifier_of("t")) in again.warnings[0]
    with pytest.raises(Unavailable, match=record.key):
        ours.run(spark, IMPORT, arguments=arguments)


@pytest.mark.slow
def test_the_next_run_imports_the_tables_beyond_the_limit(ours: World, lake: Path, spark: SparkSession) -> None:
    for name in ("a", "b", "c"):
        _delta(lake / name)
    limits = Limits(tables_imported_max=2)

    first, second = (ours.run(spark, IMPORT, arguments={"location": str(lake)}, limits=limits) for _ in range(2))

    assert (first.counts["registered"], first.counts["left_for_later"], first.counts["known"]) == (2, 1, 0)
    assert "1 more tables were found" in first.warnings[0]
    assert (second.counts["registered"], second.counts["known"], second.warnings) == (1, 2, ())


@pytest.mark.slow
def test_a_table_whose_first_commits_are_in_a_checkpoint_is_read_from_it(
    ours: World, lake: Path, spark: SparkSession
) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - only here

    _delta(lake / "t")
    DeltaTable(str(lake / "t")).create_checkpoint()
    (lake / "t" / "_delta_log" / f"{0:020d}.json").unlink()

    report = ours.run(spark, IMPORT, arguments={"location": str(lake)})

    assert (report.counts["registered"], report.warnings) == (1, ())


@pytest.mark.slow
def test_tables_in_a_bucket_are_found_and_registered_in_place(
    seaweedfs_settings: Settings, tmp_path: Path, spark: SparkSession
) -> None:
    lake = f"s3://sandur/{tmp_path.name}-lake"
    with (
        World(replace(seaweedfs_settings, store=lake)) as others,
        World(replace(seaweedfs_settings, store=f"s3://sandur/{tmp_path.name}", allowed_locations=(lake,))) as ours,
    ):
        made = others.make("orders")
        others.commits("orders", 2)
        write_deltalake(f"{lake}/finance.db/sums", pa.table({"amount": [1]}), storage_options=_keys(seaweedfs_settings))

        done, again = (ours.run(spark, IMPORT, arguments={"location": lake}) for _ in range(2))

        assert (done.counts["found_iceberg"], done.counts["found_delta"], done.counts["registered"]) == (1, 1, 2)
        assert (again.counts["known"], again.counts["registered"]) == (2, 0)
        assert (done.warnings, again.warnings) == ((), ())
        sums = ours.wait(load_delta_table(ours.lake, Identifier("main", ("finance",), "sums")))
        assert sums.location == f"{lake}/finance.db/sums"
        folder = Identifier(
            "main", ("tables", "default", "default", "main", "__unitystorage", "sales"), f"orders-{made.table_uuid}"
        )
        document = ours.wait(current_document(ours.lake, folder))
        assert document.location == others.wait(current_document(others.lake, identifier_of("orders"))).location


def _keys(settings: Settings) -> dict[str, str]:
    """The storage options of deltalake for the bucket."""
    return {
        "AWS_ENDPOINT_URL": settings.s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": settings.s3.region or "us-east-1",
        "AWS_ACCESS_KEY_ID": settings.s3.access_key_id,
        "AWS_SECRET_ACCESS_KEY": settings.s3.secret_access_key,
    }


def test_a_location_that_is_missing_or_not_allowed_is_refused(ours: World, tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(BadRequest, match="--location is missing"):
        ours.run(spark, IMPORT)
    with pytest.raises(Invalid, match="is not below"):
        ours.run(spark, IMPORT, arguments={"location": str(tmp_path / "elsewhere")})
