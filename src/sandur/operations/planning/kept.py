"""Decoded manifests beside the catalog: a fixed number of places, each for whichever manifest was decoded last.

What a server has decoded, the next one reads. The places bound how much there can be, without anybody sweeping.
"""

import asyncio
import hashlib
from typing import Final, NamedTuple

import pyarrow as pa

from sandur.errors import SandurError
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.operations.workspace import Workspace
from sandur.storage.object_store import ABSENT, Expected

ENTRIES_MIN: Final = 1_000
"""Smaller manifests are decoded as fast as they are read."""

PLACE_BYTES_MAX: Final = 4 << 20
_LOCATION: Final = b"sandur.manifest"
_FORM: Final = b"sandur.form"
_EVENT: Final = b"sandur.event"
_FORM_NOW: Final = b"1"


class Looked(NamedTuple):
    """What was found in a manifest's place: the manifest, or what a write there has to expect."""

    columns: ManifestColumns | None
    expected: Expected


def place_of(workspace: Workspace, location: str) -> str | None:
    """The key of the manifest's place; None when nothing is kept."""
    places = workspace.settings.plan_store_bytes_max // PLACE_BYTES_MAX
    if places < 1:
        return None
    number = int.from_bytes(hashlib.sha256(location.encode("utf-8", "surrogatepass")).digest()[:8]) % places
    return workspace.layout.decoded_manifest(number)


async def look_in_place(workspace: Workspace, key: str, location: str) -> Looked:
    """The decoded manifest, if it is the one that lies in its place, in a form that is read today."""
    stored = await workspace.store.get(key)
    if stored is None:
        return Looked(None, ABSENT)
    try:
        return Looked(await asyncio.to_thread(_decoded, stored.data, location), stored.version)
    except (pa.ArrowException, OSError, ValueError, KeyError):  # Damaged, or of another time: as if it were another's.
        return Looked(None, stored.version)


async def put_in_place(
    workspace: Workspace, key: str, location: str, columns: ManifestColumns, *, expected: Expected
) -> None:
    """Keep a decoded manifest. When that does not work, it is decoded again: nothing depends on it."""
    data = await asyncio.to_thread(_encoded, columns, location, workspace.clock.new_id())
    if len(data) > PLACE_BYTES_MAX:
        return
    try:
        await workspace.store.put(key, data, expected=expected)
    except SandurError:
        return


def _encoded(columns: ManifestColumns, location: str, event_id: str) -> bytes:
    batch = columns.batch
    told = {_LOCATION: location.encode("utf-8", "surrogatepass"), _FORM: _FORM_NOW, _EVENT: event_id.encode()}
    marked = batch.replace_schema_metadata({**(batch.schema.metadata or {}), **told})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, marked.schema, options=options) as writer:
        writer.write_batch(marked)
    return bytes(sink.getvalue().to_pybytes())


def _decoded(data: bytes, location: str) -> ManifestColumns | None:
    with pa.ipc.open_stream(data) as reader:
        told = reader.schema.metadata or {}
        is_it = told.get(_LOCATION) == location.encode("utf-8", "surrogatepass") and told.get(_FORM) == _FORM_NOW
        if not is_it:
            return None
        batch = reader.read_next_batch()
    batch.validate(full=True)
    plain = {name: value for name, value in told.items() if not name.startswith(b"sandur.")}
    return ManifestColumns(batch.replace_schema_metadata(plain))
