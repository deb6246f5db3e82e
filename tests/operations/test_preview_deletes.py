"""Previews of tables with deleted rows: position and equality deletes, deletion vectors, versions of Delta tables."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandur.operations.preview.reader import connect, lock_in, read_rows
from sandur.operations.preview.rows import _extension_files
from tests.planning.tables import COLUMNS, MadeFile, MadeManifest, MadeTable, Spec

SPEC = Spec(0)
ROWS = [{"id": number, "name": f"row {number}"} for number in range(5)]
_FILE_PATH, _POSITION = 2_147_483_546, 2_147_483_545
"""The reserved field ids of position deletes."""


def _parquet(path: Path, columns: Mapping[str, tuple[int, pa.Array]]) -> int:
    """Write a file whose columns have field ids; returns its size."""
    fields = [
        pa.field(name, array.type, metadata={"PARQUET:field_id": str(field_id)})
        for name, (field_id, array) in columns.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([array for _, array in columns.values()], schema=pa.schema(fields)), path)
    return path.stat().st_size


def _data(folder: Path) -> MadeFile:
    path = folder / "data" / "rows.parquet"
    columns = {
        name: (COLUMNS[name][0], pa.array([row[name] for row in ROWS], kind))
        for name, kind in (("id", pa.int64()), ("name", pa.string()))
    }
    return MadeFile(f"file://{path}", (), ROWS, sequence_number=1, has_stats=False, size=_parquet(path, columns))


def _position_deletes(folder: Path, data: MadeFile, positions: Sequence[int]) -> MadeFile:
    path = folder / "data" / "positions.parquet"
    columns = {
        "file_path": (_FILE_PATH, pa.array([data.path] * len(positions))),
        "pos": (_POSITION, pa.array(positions, pa.int64())),
    }
    size, count = _parquet(path, columns), len(positions)
    return MadeFile(f"file://{path}", record_count=count, content=1, sequence_number=2, has_stats=False, size=size)


def _equality_deletes(folder: Path, ids: Sequence[int]) -> MadeFile:
    path = folder / "data" / "equal.parquet"
    size = _parquet(path, {"id": (1, pa.array(ids, pa.int64()))})
    return MadeFile(
        f"file://{path}",
        record_count=len(ids),
        content=2,
        sequence_number=2,
        equality_ids=(1,),
        has_stats=False,
        size=size,
    )


def _vector(folder: Path, data: MadeFile, positions: Sequence[int]) -> MadeFile:
    """A deletion vector in a Puffin file: one bitmap of the positions below 65,536."""
    container = struct.pack(f"<{len(positions)}H", *positions)
    head = struct.pack("<IIHHI", 12_346, 1, 0, len(positions) - 1, 16)
    bitmap = bytes.fromhex("d1d33964") + struct.pack("<QI", 1, 0) + head + container
    blob = struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    described = {
        "type": "deletion-vector-v1",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": len(blob),
        "properties": {"referenced-data-file": data.path, "cardinality": str(len(positions))},
    }
    payload = json.dumps({"blobs": [described]}).encode()
    path = folder / "data" / "vector.puffin"
    path.write_bytes(b"PFA1" + blob + b"PFA1" + payload + struct.pack("<II", len(payload), 0) + b"PFA1")
    return MadeFile(
        f"file://{path}",
        record_count=len(positions),
        content=1,
        sequence_number=2,
        file_format="PUFFIN",
        referenced_data_file=data.path,
        content_offset=4,
        content_size=len(blob),
        has_stats=False,
        size=path.stat().st_size,
    )


def _previewed(folder: Path, **table: Any) -> list[list[object]]:
    """The rows that a preview reads of one table in the folder."""
    connection = connect(_extension_files(), 1 << 30)
    named = {"namespace": "sales", "name": "orders", "version": None, **table}
    folders = [f"{folder}/", f"file:{folder}/", f"file://{folder}/"]
    lock_in(connection, {"secrets": [], "folders": folders, "tables": [named]})
    sql = "select id, name from orders order by id"
    found: Any = read_rows(connection, {"sql": sql, "rows_max": 10, "cell_chars_max": 20, "bytes_max": 10_000})
    return list(found["rows"])


@pytest.mark.parametrize(("version", "kind"), [(2, "positions"), (2, "equality"), (3, "vector"), (2, "both")], ids=str)
def test_deleted_rows_of_an_iceberg_table_are_not_shown(tmp_path: Path, version: int, kind: str) -> None:
    data = _data(tmp_path)
    deletes = {
        "positions": lambda: [_position_deletes(tmp_path, data, [1, 3])],
        "equality": lambda: [_equality_deletes(tmp_path, [1, 3])],
        "vector": lambda: [_vector(tmp_path, data, [1, 3])],
        "both": lambda: [_position_deletes(tmp_path, data, [1]), _equality_deletes(tmp_path, [3])],
    }[kind]()
    made = MadeTable(tmp_path, (SPEC,), format_version=version)
    made.add_snapshot([MadeManifest(SPEC, [data])])
    made.add_snapshot([MadeManifest(SPEC, [data]), MadeManifest(SPEC, deletes, sequence_number=2, content=1)])

    assert [row[0] for row in _previewed(tmp_path, format="iceberg", location=made.write())] == [0, 2, 4]


def _managed_table(folder: Path) -> str:
    """A Delta table that a catalog manages: empty, then with two files, then without the first of them."""
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("name", "string"))
    ]
    metadata = {
        "id": "5b6b2b4e-0000-4000-8000-00000000000b",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableInCommitTimestamps": "true"},
    }
    versions: list[list[dict[str, Any]]] = [
        [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}, {"metaData": metadata}],
        [],
        [{"remove": {"path": "0.parquet", "dataChange": True, "deletionTimestamp": 1}}],
    ]
    for number, rows in enumerate((ROWS[:2], ROWS[2:])):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        added = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 1}
        versions[1].append({"add": {**added, "dataChange": True}})
    log = folder / "_delta_log"
    log.mkdir()
    for number, actions in enumerate(versions):
        commit = {"inCommitTimestamp": 1_000 + number, "timestamp": 1_000 + number, "operation": "WRITE"}
        lines = [{"commitInfo": commit}, *actions]
        (log / f"{number:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(folder)


def test_a_managed_delta_table_is_shown_up_to_the_version_of_the_catalog(tmp_path: Path) -> None:
    location = _managed_table(tmp_path)

    shown = [
        [row[0] for row in _previewed(tmp_path, format="delta", location=location, version=version)]
        for version in range(3)
    ]

    assert shown == [[], [0, 1, 2, 3, 4], [2, 3, 4]]


def test_an_external_delta_table_is_shown_without_deleted_rows(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    deltalake.write_deltalake(table, pa.Table.from_pylist(ROWS))
    deltalake.DeltaTable(table).delete("id = 1")

    assert [row[0] for row in _previewed(tmp_path, format="delta", location=table)] == [0, 2, 3, 4]
