"""Datasets for tests, published as the pipeline does."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sandur.operations.published import CoreManifest, CorePointer, Dataset, PublishedFile
from sandur.pipeline.tables import SHAPES
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout

Rows = Sequence[Mapping[str, Any]]


async def publish(store: ObjectStore, datasets: Mapping[str, Rows], *, published_ms: int) -> None:
    """Publish rows; columns that a row does not have are null, or empty where they are required."""
    layout, made = Layout(), {}
    for name, rows in datasets.items():
        shape = SHAPES[name]
        fitting = [{column.name: row.get(column.name, _filler(column)) for column in shape.columns} for row in rows]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(fitting, schema=shape.arrow_schema), sink)
        data, key = sink.getvalue(), layout.core_snapshot("a1", f"{name}.parquet")
        await store.put(key, data, expected=ABSENT)
        file = PublishedFile(key=key, rows=len(rows), size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        made[name] = Dataset(sequence=1, files=(file,))
    manifest = layout.core_snapshot("a1", "manifest.json")
    encoded = msgspec.json.encode(CoreManifest(sequence=1, published_ms=published_ms, datasets=made))
    await store.put(manifest, encoded, expected=ABSENT)
    pointer = CorePointer(sequence=1, manifest=manifest, published_ms=published_ms)
    await store.put(layout.core_manifest(), msgspec.json.encode(pointer), expected=ABSENT)


def _filler(column: Any) -> Any:
    if not column.is_required:
        return None
    return {"string": "", "boolean": False, "double": 0.0}.get(column.kind, 0)
