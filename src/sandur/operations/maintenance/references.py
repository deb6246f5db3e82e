"""What the tables of a workspace refer to: the files of one table, and those of others that lie in its folder (O3).

Every snapshot counts, whatever branch or tag leads to it, and so does the pending change of a transaction. One table
that cannot be read makes all references uncertain: then Unavailable is raised, and nothing is deleted.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from sandur.catalog.location_claims import Holder
from sandur.catalog.locations import Address, address_around, canonical_address, normalize_location
from sandur.catalog.records import Head, Pointer
from sandur.errors import Invalid, NotFound, SandurError, Unavailable
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import Completeness, overlapping
from sandur.operations.locations.placement import allowed_roots, locations_of
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.manifest_files import content_of, manifests_of
from sandur.storage.cell import Versioned, gather_all, gather_in_batches
from sandur.storage.contract import Version, list_all

TABLES_AT_ONCE: Final = 16
FOREIGN_MAX: Final = 1_000_000
"""How many files outside of their own folders all tables together may refer to."""

_ENDED: Final = frozenset({"killed", "purging"})


class Neighbour(NamedTuple):
    """A table as others see it: where its files may lie, and the files elsewhere that it refers to.

    `manifests` are those that were read: they never change, and are not read again.
    """

    uuid: str
    table_uuid: str
    version: Version
    places: tuple[Address, ...]
    foreign: tuple[str, ...]
    manifests: frozenset[str]


class _Staged(NamedTuple):
    """The place of a staged table, as it was read at a version of its stage."""

    version: Version
    uuid: str
    location: str


class WorkspaceReferences:
    """The references of all tables, for one run. `refresh` reads only what has changed since the last time."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tables: dict[str, Neighbour] = {}
        self._ended: dict[str, Version] = {}
        self._stages: dict[str, _Staged] = {}

    async def refresh(self) -> None:
        """Read the references as they are now; Unavailable if one table cannot be read."""
        layout = self._lake.layout
        listed = await list_all(self._lake.store, layout.pointers_folder())
        known = {layout.parse_pointer(one.key): one.version for one in listed}
        self._tables = {uuid: one for uuid, one in self._tables.items() if uuid in known}
        self._ended = {uuid: version for uuid, version in self._ended.items() if uuid in known}
        seen = self._ended | {uuid: one.version for uuid, one in self._tables.items()}
        changed = [uuid for uuid, version in known.items() if seen.get(uuid) != version]
        found = await gather_in_batches(changed, self._neighbour, at_once=TABLES_AT_ONCE)
        for uuid, neighbour in zip(changed, found, strict=True):
            if neighbour is None:
                self._tables.pop(uuid, None)
            else:
                self._tables[uuid] = neighbour
        if sum(len(one.foreign) for one in self._tables.values()) > FOREIGN_MAX:
            raise Unavailable(f"tables refer to more than {FOREIGN_MAX:,} files outside of their own folders")
        await self._refresh_stages()

    async def _neighbour(self, uuid: str) -> Neighbour | None:
        """A table by its pointer; None if it is over, and has no files that anybody may need."""
        found = await self._lake.pointer(uuid).read()
        if found is None:
            return None
        if found.value.state in _ENDED or found.value.is_ended:
            self._ended[uuid] = found.version
            return None
        try:
            return await self._read(found)
        except NotFound as error:
            if found.value.state == "dropped":  # Its files were removed by hand, or by an engine.
                return None
            raise Unavailable(f"table {uuid}: a file is missing, so what it refers to is unknown: {error}") from None
        except SandurError as error:
            raise Unavailable(f"table {uuid}: cannot be read, so what it refers to is unknown: {error}") from error

    async def _read(self, found: Versioned[Pointer]) -> Neighbour:
        """The places and foreign files of a table; manifests that were read before are not read again."""
        pointer, seen = found.value, self._tables.get(found.value.uuid)
        places = [canonical_address(one) for one in pointer.places]
        foreign: dict[str, None] = dict.fromkeys(seen.foreign if seen else ())
        manifests: set[str] = set()
        for head in heads_of(pointer):
            metadata = (await load_head(self._lake, pointer.kind, head)).metadata
            places += [canonical_address(one) for one in locations_of(metadata)]
            if isinstance(metadata, TableMetadata):
                known = seen.manifests if seen else frozenset()
                async for batch in _content(self._lake, metadata, known, manifests):
                    foreign.update(dict.fromkeys(one for one in batch if not _is_within(one, places)))
        own, others = tuple(dict.fromkeys(places)), tuple(foreign)
        return Neighbour(pointer.uuid, pointer.table_uuid, found.version, own, others, frozenset(manifests))

    async def _refresh_stages(self) -> None:
        """Read the stages that are new or changed; one may stay for a while after its table was created."""
        lake, layout = self._lake, self._lake.layout
        folders = layout.stages_folder(), layout.delta_stages_folder()
        listed = await gather_all(list_all(lake.store, folder) for folder in folders)
        current = {one.key: one.version for one in chain.from_iterable(listed)}
        kept = {key: one for key, one in self._stages.items() if current.get(key) == one.version}
        changed = [key for key in current if key not in kept]
        found = await gather_in_batches(changed, self._staged, at_once=TABLES_AT_ONCE)
        self._stages = kept | {key: one for key, one in zip(changed, found, strict=True) if one}

    async def _staged(self, key: str) -> _Staged | None:
        """The place of a staged table; None if its stage is gone."""
        lake, layout = self._lake, self._lake.layout
        if key.startswith(layout.delta_stages_folder()):
            reserved = await lake.delta_stage(layout.parse_delta_stage(key)).read()
            return _Staged(reserved.version, reserved.value.uuid, reserved.value.location) if reserved else None
        stage = await lake.stage(*layout.parse_stage(key)).read()
        return _Staged(stage.version, stage.value.table_uuid, stage.value.location) if stage else None

    def foreign(self, uuid: str) -> Iterable[str]:
        """The files outside of their own folders that tables other than this one refer to."""
        return chain.from_iterable(one.foreign for one in self._tables.values() if one.uuid != uuid)

    def user_of(self, uuid: str, address: Address) -> str:
        """Which other table refers to files at an address, in words; empty if none does."""
        for one in self._tables.values():
            if one.uuid != uuid and any(_is_within(file, [address]) for file in one.foreign):
                return f"table {one.uuid} refers to files of it"
        return ""

    async def refusal(self, uuid: str, table_uuid: str, place: str) -> str:
        """O4: why files at a place may belong to something else; empty if the table is alone there."""
        address = canonical_address(place)
        for one in self._tables.values():
            if one.uuid == uuid:
                continue
            if one.table_uuid == table_uuid:
                return f"table {one.uuid} has the same metadata: it was registered twice"
            if any(other.overlaps(address) for other in one.places):
                return f"table {one.uuid} has a place in, around or at its location"
        others = [one.location for one in self._stages.values() if one.uuid not in {uuid, table_uuid}]
        if any(canonical_address(one).overlaps(address) for one in others):
            return "a staged table has a place in, around or at its location"
        return await claim_refusal(self._lake, uuid, address)


async def location_refusal(lake: Lake, catalog: str, location: str) -> str:
    """Why files at a location may not be deleted; empty if it is below an allowed root."""
    try:
        lake.locations.holder(f"{location.rstrip('/')}/_")
        roots = await allowed_roots(lake, catalog)
    except Invalid as error:
        return f"its location is not allowed: {error}"
    except SandurError as error:
        return f"its catalog cannot be read: {error}"
    plain = normalize_location(location)
    if any(plain == normalize_location(root) for root in roots):
        return "its location is the root of a catalog"
    return ""


async def claim_refusal(lake: Lake, uuid: str, address: Address) -> str:
    """O4: why a location claim forbids deletions at an address; empty if only its owner and roots above hold it."""
    if not await lake.feature(Completeness).is_complete():
        return "not all older tables have location claims yet"  # P13
    own = (lake.layout.tenant, lake.layout.workspace)
    for at, claim in await overlapping(lake.store, address, with_own=True):
        for holder in claim.value.holders:
            if not _is_harmless(holder, at, address, uuid=uuid, workspace=own):
                who = f"{holder.what or holder.kind} {holder.owner}" if holder.workspace == own else "something else"
                return f"{who} has a place in, around or at its location"
    return ""


def _is_harmless(holder: Holder, at: Address, address: Address, *, uuid: str, workspace: tuple[str, str]) -> bool:
    if holder.workspace != workspace:
        return False
    if holder.kind == "place":
        return holder.owner.uuid == uuid
    return at != address and address.is_within(at)


def heads_of(pointer: Pointer) -> Sequence[Head]:
    """The metadata files of a table: the current one, and that of a transaction which may still be committed."""
    return [head for head in (pointer.head, pointer.pending.head if pointer.pending else None) if head]


async def references_of(lake: Lake, pointer: Pointer) -> AsyncIterator[Sequence[str]]:
    """Every file that a table refers to, in batches; NotFound or Invalid if a file of it cannot be read."""
    seen: set[str] = set()
    for head in heads_of(pointer):
        loaded = await load_head(lake, pointer.kind, head)
        passed = [one.metadata_location for one in pointer.passed]  # B9
        yield [head.metadata_location, *loaded.logged, *passed, *([head.previous_metadata_location or ""])]
        if isinstance(loaded.metadata, TableMetadata):
            async for batch in _content(lake, loaded.metadata, frozenset(), seen):
                yield batch


async def _content(
    lake: Lake, metadata: TableMetadata, known: frozenset[str], read: set[str]
) -> AsyncIterator[Sequence[str]]:
    """The files of all snapshots, and statistics. Manifests that are `known` are not opened; `read` gets all names."""
    yield [one.statistics_path for one in metadata.statistics]
    yield [one.statistics_path for one in metadata.partition_statistics]
    for snapshot in metadata.snapshots:
        manifests = await manifests_of(lake, snapshot)
        yield [*manifests, *([snapshot.manifest_list] if snapshot.manifest_list else [])]
        for manifest in manifests:
            if manifest in read:
                continue
            read.add(manifest)
            if manifest not in known:
                async for batch in content_of(lake, manifest):
                    yield batch


def _is_within(location: str, places: Sequence[Address]) -> bool:
    try:
        address = address_around(location)
    except Invalid:
        return False
    return any(address.is_within(place) for place in places)
