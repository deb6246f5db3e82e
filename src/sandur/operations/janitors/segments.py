"""Segments that no index names: their writer died or lost before the manifest was swapped, or after a split."""

import msgspec

from sandur.catalog.index import Segment
from sandur.operations.index_objects import read_manifest
from sandur.operations.janitors.sweeping import DAY_MS, Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.storage.cell import Held
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout


async def visit(lake: Lake, listed: Listed) -> Outcome:
    """Take a segment away if the index it belongs to does not name it.

    Whoever wrote it a day ago and is still about to name it would make an index with a hole; such an index is made anew
    when it is met.
    """
    _, segment_id = lake.layout.parse_index_segment(listed.key)
    found = await lake.store.get(listed.key)
    if found is None or found.version != listed.version:
        return "changed"
    try:
        scope = msgspec.json.decode(found.data, type=Segment).scope
    except msgspec.DecodeError:
        return "kept"  # Whoever meets it by its index makes it anew.
    manifest = await read_manifest(lake, scope)
    if manifest is not None and not isinstance(manifest, Held):
        return "kept"
    if manifest and segment_id in {ref.id for ref in manifest.value.segments}:
        return "kept"
    await lake.store.delete(listed.key, expected=found.version)
    return "removed"


SEGMENTS = Janitor("segments", Layout.all_index_segments_folder, lambda _: DAY_MS, visit)
