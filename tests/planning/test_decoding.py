"""Manifests decoded in batches, compared with the same manifests read record by record."""

import contextlib
import io
import random  # noqa: TID251 - seeded
import tracemalloc
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from sandur.avro import columns, container
from sandur.avro.batch_reader import PADDING, BatchReader, Unreadable
from sandur.avro.columns import RECORDS_MIN, decode_batches
from sandur.avro.container import open_container, read_records
from sandur.errors import Invalid
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifests import (
    decode_manifest,
    header_of,
    manifest_layout,
    partition_fields,
)
from sandur.iceberg.types import primitive
from tests.planning.odd_manifests import varint
from tests.planning.planners import manifest_columns
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec

SPEC = Spec(1, (("name", "identity", 1000), ("amount", "identity", 1001), ("ts", "day", 1002), ("x", "identity", 1003)))


def some_rows(chance: random.Random) -> list[dict[str, object]]:
    return [
        {
            "id": chance.randrange(-(2**62), 2**62),
            "name": chance.choice([None, "", "a", "longer than the bound", "é\U0001f600"]),
            "ts": chance.choice([None, 0, -1, 1_700_000_000_000_000]),
            "x": chance.choice([None, float("nan"), 1.5]),
            "amount": chance.choice([None, -5, 123]),
            "bin": chance.choice([None, b"\x00\xff"]),
        }
        for _ in range(chance.randrange(1, 4))
    ]


def made_manifest(folder: Path, count: int, *, codec: str = "deflate", version: int = 2, seed: int = 7) -> bytes:
    chance = random.Random(seed)
    files = []
    for number in range(count):
        rows = some_rows(chance)
        files.append(
            MadeFile(
                f"s3://bucket/warehouse/table/data/{number}/{chance.randrange(10**9)}.parquet",
                (chance.choice([None, "IS"]), chance.choice([None, 7]), chance.choice([None, -3]), 2.5),
                rows,
                status=chance.choice([0, 1, 1, 2]),
                sequence_number=chance.choice([None, 3]),
                snapshot_id=chance.choice([None, 2**60]),
                equality_ids=chance.choice([None, (1, 2)]),
                has_stats=chance.random() > 0.1,
            )
        )
    table = MadeTable(folder, [SPEC], format_version=version, codec=codec)
    table.add_snapshot([MadeManifest(SPEC, files)])
    return (folder / "metadata" / "m1-0.avro").read_bytes()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("codec", ["deflate", "null", "snappy", "zstandard"])
def test_both_decoders_give_the_same_columns(tmp_path: Path, codec: str, version: int) -> None:
    found = open_container(made_manifest(tmp_path, 700, codec=codec, version=version))
    fields = partition_fields(found.schema)

    at_once = decode_batches(found, manifest_layout(fields))

    one_by_one = manifest_columns(read_records(found), fields, header_of(found)).columns
    assert len(found.blocks) > 1
    assert set(at_once) == set(one_by_one)
    for name, column in one_by_one.items():
        assert at_once[name].cast(column.type).equals(column), name


def test_a_manifest_that_cannot_be_decoded_in_batches_is_read_record_by_record(tmp_path: Path) -> None:
    data = made_manifest(tmp_path, RECORDS_MIN - 1)
    found = open_container(data)

    with pytest.raises(Unreadable):
        decode_batches(found, manifest_layout(partition_fields(found.schema)))

    assert decode_manifest(data, location="m").count > 0


@pytest.mark.parametrize("count", [20, 100])
def test_partition_fields_of_one_named_type_are_read(tmp_path: Path, count: int) -> None:
    spec = Spec(1, (("amount", "truncate[100]", 1000), ("day", "identity", 1001), ("amount", "identity", 1002)))
    files = [MadeFile(f"file:///t/{number}.parquet", (100, None, -number)) for number in range(count)]
    table = MadeTable(tmp_path, [spec])
    table.add_snapshot([MadeManifest(spec, files)])

    found = decode_manifest((tmp_path / "metadata" / "m1-0.avro").read_bytes(), location="m")

    kind = primitive("decimal(9, 2)")
    assert found.typed("partition.1000", kind).values.tolist() == [100] * count
    assert found.typed("partition.1002", kind).values.tolist() == [-number for number in range(count)]


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
@pytest.mark.parametrize("count", [20, 100])
def test_a_manifest_that_decompresses_to_too_many_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, count: int
) -> None:
    data = made_manifest(tmp_path, count, codec=codec)
    monkeypatch.setattr(container, "INFLATED_MAX", 2_000)

    with pytest.raises(Invalid, match="the file holds too many bytes"):
        decode_manifest(data, location="m")


def test_a_path_inside_a_bound_is_not_mistaken_for_a_file_path(tmp_path: Path) -> None:
    folder = "file:///t/data/"
    rows = [{"id": 1, "name": folder}]
    files = [MadeFile(f"{folder}{number}.parquet", (), rows) for number in range(200)]
    table = MadeTable(tmp_path, [Spec(0)])
    table.add_snapshot([MadeManifest(Spec(0), files)])
    data = (tmp_path / "metadata" / "m1-0.avro").read_bytes()

    found = decode_manifest(data, location="m")

    assert found.column("file_path").to_pylist() == [file.path for file in files]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
@pytest.mark.parametrize("count", [20, 80])
def test_damaged_bytes_are_refused_or_read_without_a_crash(tmp_path: Path, codec: str, count: int) -> None:
    whole = made_manifest(tmp_path, count, codec=codec)
    chance = random.Random(codec)
    for number in range(60):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        damaged = bytes(data[: chance.randrange(5, len(data))]) if number % 3 == 0 else bytes(data)

        with contextlib.suppress(Invalid):  # Any other error would be a server error.
            found = decode_manifest(damaged, location="m")
            check_columns(found)


def test_the_reported_memory_of_a_manifest_is_about_its_real_memory(tmp_path: Path) -> None:
    rows = [{"id": number, "name": f"n{number:06}", "ts": number, "x": 1.5, "amount": 5} for number in range(2)]
    files = [MadeFile(f"file:///t/{number}.parquet", (), rows) for number in range(1_000)]
    table = MadeTable(tmp_path, [Spec(0)])
    table.add_snapshot([MadeManifest(Spec(0), files)])
    data = (tmp_path / "metadata" / "m1-0.avro").read_bytes()
    check_columns(decode_manifest(data, location="m"))  # Fill the caches that all manifests share.
    by_arrow = pa.total_allocated_bytes()

    tracemalloc.start()
    found = decode_manifest(data, location="m")
    check_columns(found)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.size_bytes / 2 < taken + pa.total_allocated_bytes() - by_arrow < 1.1 * found.size_bytes


def check_columns(found: ManifestColumns) -> None:
    """All columns exist and have the right length."""
    assert all(len(column) == found.count for column in found.columns.values())


@pytest.mark.parametrize("count", [20, 80])
@pytest.mark.parametrize(
    ("was", "becomes"), [('"name": "key"', '"name": "kez"'), ('"name": "value"', '"name": "valuf"')]
)
def test_maps_without_keys_and_values_are_refused(tmp_path: Path, count: int, was: str, becomes: str) -> None:
    files = [MadeFile(f"file:///t/{number}.parquet", (), [{"id": number, "x": 1.0}]) for number in range(count)]
    table = MadeTable(tmp_path, [Spec(0)], codec="null")
    table.add_snapshot([MadeManifest(Spec(0), files)])
    data = (tmp_path / "metadata" / "m1-0.avro").read_bytes()
    renamed = data.replace(was.encode(), becomes.encode())
    assert renamed != data

    with pytest.raises(Invalid, match=r"key|value"):
        check_columns(decode_manifest(renamed, location="m"))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_an_avro_file_that_is_not_a_manifest_is_refused(codec: str) -> None:
    out = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})
    fastavro.writer(out, schema, [{"a": 1}], codec=codec)

    with pytest.raises(Invalid, match="an entry has no data_file"):
        decode_manifest(out.getvalue(), location="m")


def test_an_unknown_codec_is_refused_by_name(tmp_path: Path) -> None:
    data = made_manifest(tmp_path, 20, codec="bzip2")

    with pytest.raises(Invalid, match="codec 'bzip2' is not one of null, deflate, snappy, zstandard"):
        decode_manifest(data, location="m")


def schema_of(**fields: object) -> dict[str, object]:
    written = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "r" + "_".join(fields), "fields": written}


def avro_file(schema: dict[str, object], block: bytes) -> bytes:
    """A file of one block with any content."""
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [], codec="null")
    return out.getvalue() + block + out.getvalue()[-16:]


@pytest.mark.timeout(60)
def test_a_file_that_would_never_end_is_refused() -> None:
    nothing = schema_of(status="null", data_file=schema_of(partition=schema_of()))
    endless = schema_of(status={"type": "array", "items": "null"}, data_file=schema_of(partition=schema_of()))
    many = varint(1 << 60)

    with pytest.raises(Invalid, match="more records than bytes"):
        decode_manifest(avro_file(nothing, many + varint(0)), location="m")
    with pytest.raises(Invalid, match="an array of values without bytes"):
        decode_manifest(avro_file(endless, varint(1) + varint(len(many)) + many), location="m")


def test_an_array_with_an_impossible_length_is_refused_at_once() -> None:
    reader = BatchReader(varint(5_000) + bytes(100) + PADDING)

    with pytest.raises(Unreadable, match="an array is too long"):
        reader.read({"type": "array", "items": "long"}, np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("seed", range(4))
def test_a_manifest_decoded_in_pieces_gives_the_same_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    container = open_container(made_manifest(tmp_path, 900, seed=seed))
    fields = partition_fields(container.schema)
    whole = decode_batches(container, manifest_layout(fields))
    monkeypatch.setattr(columns, "PIECE_RECORDS", 1)

    pieces = decode_batches(container, manifest_layout(fields))

    assert len(container.blocks) > 3
    assert set(pieces) == set(whole)
    for name, column in whole.items():
        assert (
            pieces[name]
            .cast(pa.binary() if pa.types.is_fixed_size_binary(column.type) else column.type)
            .equals(column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column)
        ), name


def test_an_entry_of_unknown_content_is_refused(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [Spec(0)])
    table.add_snapshot([MadeManifest(Spec(0), [MadeFile("file:///t/data/1.parquet", content=3)])])

    with pytest.raises(Invalid, match="neither data nor deletes"):
        decode_manifest((tmp_path / "metadata" / "m1-0.avro").read_bytes(), location="m")
