"""Unusual and hostile manifests, decoded in batches and record by record."""

import asyncio
import random  # noqa: TID251 - seeded
import tracemalloc
import uuid
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sandur.avro import columns as avro_columns
from sandur.avro.batch_reader import Unreadable
from sandur.avro.columns import RECORDS_MIN, decode_batches
from sandur.avro.container import open_container, read_records
from sandur.errors import Invalid
from sandur.iceberg.requests import CreateTable
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifests import (
    decode_manifest,
    decode_manifest_list,
    header_of,
    manifest_layout,
    partition_fields,
)
from sandur.iceberg.schema import Schema
from sandur.iceberg.table_create import create_table_metadata
from sandur.operations.planning.manifests import Manifests
from sandur.operations.tables.manifest_places import ReadableManifests
from tests.planning.odd_manifests import BOUNDS, COUNTS, OddManifest, avro_file, varint
from tests.planning.planners import lake_of, manifest_columns


def without_empty_columns(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns without statistics that no file has: only one decoder makes columns for them."""
    return {
        name: column
        for name, column in columns.items()
        if column.null_count < len(column) or name.partition(".")[0] not in (*COUNTS, *BOUNDS)
    }


def test_both_decoders_agree_on_random_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = 0
    for seed in range(50):
        monkeypatch.setattr(avro_columns, "PIECE_RECORDS", 8_000 if seed % 2 else 50)
        found = open_container(OddManifest(seed).data)
        fields = partition_fields(found.schema)
        one_by_one = without_empty_columns(manifest_columns(read_records(found), fields, header_of(found)).columns)
        try:
            columns = decode_batches(found, manifest_layout(fields))
        except Unreadable:
            continue
        at_once += 1
        names = list(columns)
        random.Random(seed).shuffle(names)
        made = without_empty_columns({name: columns[name] for name in names})
        assert set(made) == set(one_by_one), seed
        assert [name for name in made if not made[name].cast(one_by_one[name].type).equals(one_by_one[name])] == [], (
            seed
        )
    assert at_once > 25


@pytest.mark.parametrize("seed", range(6))
def test_records_read_in_pieces_give_the_same_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = OddManifest(seed).data
    found = open_container(data)
    whole = manifest_columns(read_records(found), partition_fields(found.schema), header_of(found))
    monkeypatch.setattr(avro_columns, "RECORDS_MIN", 1_000)
    monkeypatch.setattr(avro_columns, "RECORDS_AT_ONCE", 7)

    in_pieces = decode_manifest(data, location="m")

    assert in_pieces.count == whole.count
    assert dict(in_pieces.columns) == dict(whole.columns)


def test_records_are_released_after_their_conversion_to_columns() -> None:
    order = {"file_format": "string", "file_path": "string", "partition": record("r102", [])}
    file = {**order, "record_count": "long", "file_size_in_bytes": "long", "value_counts": pairs("int", "long")}
    counts = varint(40) + b"".join(varint(key) + varint(70) for key in range(40)) + b"\x00"
    data = manifest(5_000, file, FORMAT + PATH + COUNTED + counts)

    tracemalloc.start()
    found = decode_manifest(data, location="m")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.count == 5_000
    assert peak_bytes < 24 << 20  # All records at once would take 40 MiB.


@pytest.mark.parametrize(("key", "piece_bytes_max"), [(b"q" * 3_000, 32 << 20), (b"x", 10_000)])
def test_a_manifest_that_takes_too_much_memory_in_batches_is_read_record_by_record(
    monkeypatch: pytest.MonkeyPatch, key: bytes, piece_bytes_max: int
) -> None:
    monkeypatch.setattr(avro_columns, "PIECE_BYTES_MAX", piece_bytes_max)
    file = {"file_path": "string", "file_format": "string", "partition": record("r102", [])}
    file |= {"record_count": "long", "file_size_in_bytes": "long", "key_metadata": "bytes"}
    # The byte that is rare in the first entry is frequent in all others.
    first = varint(1) + text(b"qile:///t/data/a.orc") + FORMAT + COUNTED + text(bytes(5_000))
    data = manifest(300, file, text(b"qile:///t/data/a.orc") + FORMAT + COUNTED + text(key), first=first)
    found = open_container(data)

    with pytest.raises(Unreadable, match=r"rare|too large"):
        decode_batches(found, manifest_layout(partition_fields(found.schema)))

    assert decode_manifest(data, location="m").column("key_metadata").to_pylist()[1:] == [key] * 300


def manifest(count: int, file: Mapping[str, Any], one: bytes, *, first: bytes = b"") -> bytes:
    """A manifest of equal entries whose files have these fields; `first` is an entry before them."""
    fields = [{"name": name, "type": kind} for name, kind in file.items()]
    entry: list[dict[str, Any]] = [
        {"name": "status", "type": "int"},
        {"name": "data_file", "type": record("r2", fields)},
    ]
    return avro_file(record("manifest_entry", entry), [(count + bool(first), first + (varint(1) + one) * count)])


def record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def text(content: bytes) -> bytes:
    return varint(len(content)) + content


def pairs(key: str, value: str) -> dict[str, Any]:
    return {"type": "array", "items": record("pair", [{"name": "key", "type": key}, {"name": "value", "type": value}])}


def check_columns(found: ManifestColumns) -> None:
    for which in (*COUNTS, *BOUNDS):
        for field_id in found.ids_of(which):
            assert len(found.column(f"{which}.{field_id}")) == found.count


PARTITION = record("r102", [{"name": "p", "type": "long", "field-id": 1000}])
PATH, FORMAT = text(b"file:///t/data/a.parquet"), text(b"PARQUET")
COUNTED = varint(7) + varint(70)


@pytest.mark.parametrize("count", [RECORDS_MIN - 1, 200])
def test_the_path_may_be_any_field_of_the_record(count: int) -> None:
    order = {"file_format": "string", "partition": PARTITION, "file_path": "string"}
    file = {**order, "record_count": "long", "file_size_in_bytes": "long"}

    found = decode_manifest(manifest(count, file, FORMAT + varint(-300) + PATH + COUNTED), location="m")

    assert found.column("file_path").to_pylist() == ["file:///t/data/a.parquet"] * count
    assert found.column("partition.1000").to_pylist() == [-300] * count


@pytest.mark.parametrize("count", [RECORDS_MIN - 1, 200])
def test_an_entry_without_a_partition_has_null_partition_values(count: int) -> None:
    file = {"file_path": "string", "file_format": "string", "partition": ["null", PARTITION]}
    file |= {"record_count": "long", "file_size_in_bytes": "long"}

    found = decode_manifest(manifest(count, file, PATH + FORMAT + varint(0) + COUNTED), location="m")

    assert found.column("partition.1000").null_count == count


@pytest.mark.parametrize("count", [RECORDS_MIN - 1, 200])
@pytest.mark.parametrize(
    ("which", "kinds"),
    [
        ("value_counts", ("int", "bytes")),
        ("value_counts", ("int", "string")),
        ("lower_bounds", ("int", "long")),
        ("value_counts", ("string", "long")),
        ("upper_bounds", ("bytes", "bytes")),
        ("null_value_counts", ("boolean", "long")),
        ("null_value_counts", ("double", "long")),
    ],
)
def test_statistics_of_another_type_are_refused(count: int, which: str, kinds: tuple[str, str]) -> None:
    file = {"file_path": "string", "file_format": "string", "partition": record("r102", [])}
    file |= {"record_count": "long", "file_size_in_bytes": "long", which: pairs(*kinds)}
    nothing = {"int": varint(1), "long": varint(1), "boolean": b"\x01", "double": bytes(8)}
    pair = b"".join(nothing.get(kind, b"\x00") for kind in kinds)
    entry = PATH + FORMAT + COUNTED + varint(1) + pair + b"\x00"

    with pytest.raises(Invalid, match=r"Expected bytes|tried to convert to int64|keys"):
        check_columns(decode_manifest(manifest(count, file, entry), location="m"))


@pytest.mark.parametrize("count", [RECORDS_MIN - 1, 200])
def test_invalid_utf_8_in_a_text_is_refused(count: int) -> None:
    file = {"file_path": "string", "file_format": "string", "partition": record("r102", [])}
    file |= {"record_count": "long", "file_size_in_bytes": "long", "referenced_data_file": "bytes"}

    with pytest.raises(Invalid, match=r"(?i)utf8"):
        decode_manifest(manifest(count, file, PATH + FORMAT + COUNTED + text(b"\xff")), location="m")


SELF = record("r", [{"name": "next", "type": ["null", "r"]}])
NOTHING = record("r", [{"name": "a", "type": {"type": "fixed", "name": "f", "size": 0}}])
MANY = varint(1 << 40)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kinds", "block", "message"),
    [
        ([SELF], varint(1) * 1_000_000, "contains itself"),
        ([record("a.r", [{"name": "next", "type": {"type": "array", "items": "b.r"}}])], b"", "contains itself"),
        ([NOTHING, {"type": "array", "items": "r"}], MANY, "array of values without bytes"),
        ([NOTHING, {"type": "array", "items": {"type": "f"}}], MANY, "array of values without bytes"),
        ([{"type": "array", "items": {"type": "record", "name": "r"}}], MANY, "fields"),
        ([{"type": "array", "items": {"type": "error", "name": "r", "fields": []}}], MANY, "error"),
    ],
)
def test_recursive_types_are_refused(kinds: list[Any], block: bytes, message: str) -> None:
    schema = record("manifest_file", [{"name": f"f{place}", "type": kind} for place, kind in enumerate(kinds)])

    with pytest.raises(Invalid, match=message):
        decode_manifest_list(avro_file(schema, [(1, block)]), location="l")


def test_a_schema_cannot_smuggle_named_types_past_the_check() -> None:
    brought = {"__fastavro_parsed": True, "__named_schemas": {"r": SELF}}
    schema = {**brought, **record("manifest_file", [{"name": "f", "type": "r"}])}

    with pytest.raises(Invalid, match="UnknownType: r"):
        decode_manifest_list(avro_file(schema, [(1, varint(1) * 1_000_000)]), location="l")


@pytest.mark.parametrize("count", [RECORDS_MIN - 1, 200])
def test_a_named_type_can_be_referenced(count: int) -> None:
    file = {"file_path": "string", "file_format": "string", "partition": record("r102", [])}
    file |= {"record_count": "long", "file_size_in_bytes": "long", "column_sizes": pairs("int", "long")}
    file |= {"value_counts": {"type": "array", "items": "pair"}}
    one_pair = varint(1) + varint(5) + varint(70) + b"\x00"

    found = decode_manifest(manifest(count, file, PATH + FORMAT + COUNTED + one_pair * 2), location="m")

    assert found.column("value_counts.5").to_pylist() == [70] * count


def _deflated(data: bytes) -> bytes:
    found = open_container(data)
    blocks = [(count, zlib.compress(raw, wbits=-15)) for count, raw in found.inflated()]
    return avro_file(found.schema, blocks, codec="deflate")


@pytest.mark.parametrize(("count", "path_bytes", "is_beside"), [(100, 0, False), (6_000, 0, True), (8, 3 << 20, True)])
async def test_much_content_in_few_bytes_is_decoded_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, path_bytes: int, *, is_beside: bool
) -> None:
    file = {"file_path": "string", "file_format": "string", "partition": record("r102", [])}
    file |= {"record_count": "long", "file_size_in_bytes": "long"}
    data = _deflated(manifest(count, file, varint(path_bytes) + bytes(path_bytes + 3)))
    assert len(data) < 256 << 10
    (tmp_path / "m.avro").write_bytes(data)
    beside: list[object] = []
    in_thread = asyncio.to_thread

    async def noted(work: Callable[..., Any], *given: Any) -> Any:
        beside.append(getattr(work, "func", None))
        return await in_thread(work, *given)

    monkeypatch.setattr(asyncio, "to_thread", noted)

    location = f"file://{tmp_path}"
    create = CreateTable(name="t", schema=Schema(fields=()))
    metadata = create_table_metadata(create, location=location, table_uuid=str(uuid.UUID(int=0)), now_ms=0)
    manifests = Manifests(lake_of(tmp_path), [location], ReadableManifests(metadata))

    found = await manifests.columns(f"{location}/m.avro")

    assert found.count == count
    assert (decode_manifest in beside) is is_beside
