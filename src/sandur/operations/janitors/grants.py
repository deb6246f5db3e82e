"""The janitor of the segments that hold principals and grants.

A segment that the manifest does not name is deleted, after a bump of the manifest (A14). From a segment in use, the
grants on securables that no longer exist are removed.
"""

from typing import Final

import msgspec

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.events import Source
from sandur.catalog.record_versions import Record
from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Authority, ObjectGrants, SecurityManifest, SecuritySegment
from sandur.catalog.security.restrictions import TableRestrictions
from sandur.operations.access import Security
from sandur.operations.janitors.sweep import DAY_MS, Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout
from sandur.storage.record_form import decode_record

_READS_AT_ONCE: Final = 16
_SURELY_LATER_MS: Final = 60_000
"""A difference of two times of the store that no rounding and no clock of one of its machines explains."""

_SOURCE: Final = Source(kind="admin", principal="janitor")


class _Identity(Record, frozen=True, kw_only=True):
    """The ids of a record, of whatever kind; a grant names one of them."""

    id: str = ""
    uuid: str = ""
    object_id: str = ""


async def visit_segment(lake: Lake, listed: Listed) -> Outcome:
    segment_id = lake.layout.parse_security_segment(listed.key)
    authority = await lake.feature(Security).read()
    if segment_id not in authority.manifest.segments.values():
        return await _remove_unnamed(lake, listed, segment_id)
    found = await lake.store.get(listed.key)
    if found is None:
        return "changed"
    segment = decode_record(listed.key, found.data, SecuritySegment)
    objects: list[tuple[str, ObjectGrants | TableRestrictions]] = [
        *segment.grants.items(),
        *segment.restrictions.items(),
    ]
    is_there = await gather_in_batches(objects, lambda one: _exists(lake, *one), at_once=_READS_AT_ONCE)
    dead = [object_id for (object_id, _), exists in zip(objects, is_there, strict=True) if not exists]
    if not dead:
        return "kept"

    def decide(current: Authority) -> SecurityEdit:
        return SecurityEdit(
            grants={object_id: None for object_id in dead if current.granted(object_id)},
            restrictions={object_id: None for object_id in dead if current.policy(object_id)},
        )

    request = Request(hash="remove-grants", source=_SOURCE)
    await SecurityChange(lake, request, "remove-grants", decide).run()
    return "settled"


async def _remove_unnamed(lake: Lake, listed: Listed, segment_id: str) -> Outcome:
    """A14: a slow writer may still swap the manifest to this segment, unless the manifest has changed since."""
    manifest = await lake.store.head(lake.layout.security_manifest())
    if manifest is None:
        return "kept"  # A writer of the first manifest is not fenced by a bump.
    if manifest.modified_ms <= listed.modified_ms + _SURELY_LATER_MS:
        await lake.security().update(_bumped, is_idempotent=True)
        if segment_id in (await lake.feature(Security).read()).manifest.segments.values():
            return "kept"
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _bumped(manifest: SecurityManifest | None) -> SecurityManifest | None:
    return manifest and msgspec.structs.replace(manifest, number=manifest.number + 1)


async def _exists(lake: Lake, object_id: str, granted: ObjectGrants | TableRestrictions) -> bool:
    """Whether the record of a securable exists with this id. A dropped one exists as long as it can be replayed."""
    if not granted.record:
        return True
    key = f"{lake.layout.root}{granted.record}"
    found = await lake.store.get(key)
    if found is None:
        return False
    if key == lake.layout.storage_registry():
        registry = decode_record(key, found.data, StorageRegistry)
        return object_id in {entry.id for entry in (*registry.credentials.values(), *registry.locations.values())}
    identity = decode_record(key, found.data, _Identity)
    return object_id in {identity.id, identity.uuid, identity.object_id}


SECURITY_SEGMENTS = Janitor("security_segments", Layout.security_segments_folder, lambda _: DAY_MS, visit_segment)
