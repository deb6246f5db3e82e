"""Decoded manifests packed and unpacked, and large ones decoded piece by piece."""

import random  # noqa: TID251 - seeded
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from sandur.avro.container import open_container
from sandur.errors import Invalid
from sandur.iceberg.scan import batch_decoder, packing
from sandur.iceberg.scan.arrow_arrays import array_of
from sandur.iceberg.scan.batch_decoder import decoded_columns
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifest_decoder import decoded_manifest, partition_fields
from sandur.iceberg.scan.packing import Packed, packed, read_back, stored, unpacked
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec
from tests.planning.test_decoding import made_manifest

LOCATION = "file:///t/metadata/m.avro"
WHERE_PANDAS_IS_NOT_LOADED = """
import sys
from pathlib import Path
from sandur.iceberg.scan.manifest_decoder import decoded_manifest
from sandur.iceberg.scan.packing import packed, unpacked
from sandur.iceberg.scan.task_json import file_parts
columns = unpacked(packed(decoded_manifest(Path(sys.argv[1]).read_bytes(), location="m")))
print(columns.count, columns.numbers("record_count").values.sum(), "pandas" in sys.modules)
"""


@pytest.fixture
def columns(tmp_path: Path) -> ManifestColumns:
    return decoded_manifest(made_manifest(tmp_path, 300), location="m")


def test_what_is_unpacked_is_what_was_packed(columns: ManifestColumns) -> None:
    back = unpacked(packed(columns))

    assert (back.count, back.header) == (columns.count, columns.header)
    assert set(back.columns) == set(columns.columns)
    for name in columns.columns:
        assert back.column(name).equals(columns.column(name)), name


def test_only_the_columns_that_are_asked_about_are_unpacked(columns: ManifestColumns) -> None:
    whole = packed(columns)
    damaged = tuple(
        group if "lower_bounds.1" in group.names else msgspec.structs.replace(group, data=b"") for group in whole.groups
    )

    back = unpacked(Packed(whole.header, whole.count, damaged))

    assert back.column("value_counts.1").equals(columns.column("value_counts.1"))
    with pytest.raises(pa.ArrowInvalid):
        back.column("lower_bounds.2")


def test_what_is_stored_is_read_back_for_the_same_manifest_only(columns: ManifestColumns) -> None:
    data = stored(packed(columns), location=LOCATION, event_id="e")

    assert read_back(data, location=LOCATION) == packed(columns)
    assert read_back(data, location=LOCATION + "x") is None


def test_what_was_stored_in_another_form_is_not_read(columns: ManifestColumns, monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored(packed(columns), location=LOCATION, event_id="e")
    monkeypatch.setattr(packing, "FORM", packing.FORM + 1)

    assert read_back(data, location=LOCATION) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_damaged_is_not_read(columns: ManifestColumns, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(stored(packed(columns), location=LOCATION, event_id="e"))
    place = chance.randrange(80, len(data))
    data[place] ^= 1 << chance.randrange(8)

    assert read_back(bytes(data), location=LOCATION) is None


def test_a_packed_manifest_takes_less_room_than_its_columns(columns: ManifestColumns) -> None:
    assert packed(columns).size_bytes < columns.size_bytes


@pytest.mark.parametrize("seed", range(4))
def test_a_manifest_decoded_in_pieces_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    container = open_container(made_manifest(tmp_path, 900, seed=seed))
    fields = partition_fields(container.schema)
    whole = decoded_columns(container, fields)
    monkeypatch.setattr(batch_decoder, "PIECE_RECORDS", 1)

    pieces = decoded_columns(container, fields)

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

    with pytest.raises(Invalid, match="neither of data nor of deletes"):
        decoded_manifest((tmp_path / "metadata" / "m1-0.avro").read_bytes(), location="m")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -5], pa.int8()),
        ([2**62, None], pa.int64()),
        ([True, None, False], pa.bool_()),
        ([0.5, None], pa.float64()),
        (["é", None, ""], pa.string()),
        ([b"\x00", None, b""], pa.binary()),
        ([[1, 2], None, [], [3]], pa.list_(pa.int32())),
        ([], pa.string()),
    ],
)
def test_columns_are_those_that_arrow_makes(values: list[object], kind: pa.DataType) -> None:
    made = array_of(values, kind)

    made.validate(full=True)
    assert made.equals(pa.array(values, type=kind))


@pytest.mark.parametrize(("values", "kind"), [([200], pa.int8()), (["a"], pa.int64()), ([5], pa.string())])
def test_values_of_another_type_are_refused(values: list[object], kind: pa.DataType) -> None:
    with pytest.raises((TypeError, ValueError)):
        array_of(values, kind)


def test_planning_loads_no_pandas(tmp_path: Path) -> None:
    made_manifest(tmp_path, 300)

    manifest = tmp_path / "metadata" / "m1-0.avro"
    told = [sys.executable, "-c", WHERE_PANDAS_IS_NOT_LOADED, str(manifest)]
    printed = subprocess.run(told, capture_output=True, text=True, check=True).stdout

    assert printed.split()[-1] == "False"
