"""Packed manifests beside the catalog: a fixed number of places, each for whichever manifest was decoded last.

What a server has decoded, the next one reads. The places bound how much there can be, without anybody sweeping.
"""

import hashlib
from typing import Final, NamedTuple

from sandur.errors import SandurError
from sandur.iceberg.scan.packing import Packed, read_back, stored
from sandur.operations.lake import Lake
from sandur.storage.object_store import ABSENT, Expected

KEPT_ENTRIES_MIN: Final = 2_000
"""Smaller manifests are decoded as fast as they are read."""

PLACE_BYTES_MAX: Final = 4 << 20
STORING_MAX: Final = 8
"""How many are written at once: those that come while so many wait are not kept."""


class Looked(NamedTuple):
    """What was found in a manifest's place: the manifest, or what a write there has to expect."""

    packed: Packed | None
    expected: Expected


def place_of(lake: Lake, location: str) -> str | None:
    """The key of the manifest's place; None when nothing is kept."""
    places = lake.settings.plan_store_bytes_max // PLACE_BYTES_MAX
    if places < 1:
        return None
    number = int.from_bytes(hashlib.sha256(location.encode("utf-8", "surrogatepass")).digest()[:8]) % places
    return lake.layout.decoded_manifest(number)


async def look_in_place(lake: Lake, key: str, location: str) -> Looked:
    """The packed manifest, if it is the one that lies in its place, in a form that is read today."""
    found = await lake.store.get(key)
    if found is None:
        return Looked(None, ABSENT)
    return Looked(read_back(found.data, location=location), found.version)


async def put_in_place(lake: Lake, key: str, location: str, found: Packed, *, expected: Expected) -> None:
    """Keep a packed manifest. When that does not work, it is decoded again: nothing depends on it."""
    memory = lake.manifests
    if found.size_bytes > PLACE_BYTES_MAX or memory.storing >= STORING_MAX:
        return
    data = stored(found, location=location, event_id=lake.clock.new_id())
    memory.storing += 1
    try:
        await lake.store.put(key, data, expected=expected)
    except SandurError:
        return
    finally:
        memory.storing -= 1
