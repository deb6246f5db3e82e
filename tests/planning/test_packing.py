"""Manifests packed and unpacked, and large ones decoded in pieces."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from sandur.avro import batch_decoder
from sandur.avro.batch_decoder import decode_batches
from sandur.avro.container import open_container
from sandur.errors import Invalid
from sandur.iceberg.scan.columns import ManifestColumns, PackedColumns, pack, unpack
from sandur.iceberg.scan.manifests import decode_manifest, manifest_layout, partition_fields
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec
from tests.planning.test_decoding import made_manifest

LOCATION = "file:///t/metadata/m.avro"


@pytest.fixture
def columns(tmp_path: Path) -> ManifestColumns:
    return decode_manifest(made_manifest(tmp_path, 300), location="m")


def test_unpacking_restores_the_packed_columns(columns: ManifestColumns) -> None:
    back = unpack(pack(columns))

    assert (back.count, back.header) == (columns.count, columns.header)
    assert set(back.columns) == set(columns.columns)
    for name in columns.columns:
        assert back.column(name).equals(columns.column(name)), name


def test_only_the_columns_that_are_used_are_unpacked(columns: ManifestColumns) -> None:
    whole = pack(columns)
    damaged = tuple(
        group if "lower_bounds.1" in group.names else msgspec.structs.replace(group, data=b"") for group in whole.groups
    )

    back = unpack(PackedColumns(whole.header, whole.count, damaged))

    assert back.column("value_counts.1").equals(columns.column("value_counts.1"))
    with pytest.raises(pa.ArrowInvalid):
        back.column("lower_bounds.2")


def test_a_packed_manifest_takes_less_room_than_its_columns(columns: ManifestColumns) -> None:
    assert pack(columns).size_bytes < columns.size_bytes


@pytest.mark.parametrize("seed", range(4))
def test_a_manifest_decoded_in_pieces_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    container = open_container(made_manifest(tmp_path, 900, seed=seed))
    fields = partition_fields(container.schema)
    whole = decode_batches(container, manifest_layout(fields))
    monkeypatch.setattr(batch_decoder, "PIECE_RECORDS", 1)

    pieces = decode_batches(container, manifest_layout(fields))

    assert len(container.blocks) > 3
    assert set(pieces) == set(whole)
    for name, column in whole.items():
        assert (
            pieces[name]
            .cast(pa.binary() if pa.types.is_fixed_size_binary(column.type) else column.type)
            .equals(column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column)
        ), name


def test_an_entry_that_is_neither_data_nor_deletes_is_refused(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [Spec(0)])
    table.add_snapshot([MadeManifest(Spec(0), [MadeFile("file:///t/data/1.parquet", content=3)])])

    with pytest.raises(Invalid, match="neither data nor deletes"):
        decode_manifest((tmp_path / "metadata" / "m1-0.avro").read_bytes(), location="m")
