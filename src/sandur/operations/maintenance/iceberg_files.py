"""The files of Iceberg tables, for the removal of orphans: which tables may be cleaned, and what refers to them."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import canonical_address
from sandur.catalog.maintenance.orphans import Suspects, refusal_of
from sandur.errors import SandurError
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.lake import Lake
from sandur.operations.maintenance.delta_files import DeltaClones
from sandur.operations.maintenance.orphans import Place
from sandur.operations.maintenance.references import WorkspaceReferences, location_refusal, references_of
from sandur.operations.tables.documents import load_head


class IcebergFiles:
    """`references` and `clones` are shared by the tables of a run, so that each of them is read once."""

    def __init__(
        self, lake: Lake, references: WorkspaceReferences | None = None, clones: DeltaClones | None = None
    ) -> None:
        self._lake = lake
        self._references = references or WorkspaceReferences(lake)
        self._clones = clones or DeltaClones(lake)

    async def sharing(self, uuid: str, location: str) -> str:
        """O8: why files at a table's location may be needed by others, too; empty if only the table refers to them."""
        found = await self._lake.pointer(uuid).read()
        if found is None:
            return "it was dropped"
        address = canonical_address(location)
        await self._references.refresh()
        return (
            await self._references.refusal(uuid, found.value.table_uuid, location)
            or self._references.user_of(uuid, address)
            or await self._clones.user_of(uuid, address)
        )

    async def open(self, uuid: str, name: Identifier) -> Place | str:
        pointer = await self._lake.pointer(uuid).read()
        if pointer is None or pointer.value.state != "live" or pointer.value.head is None:
            return "it does not exist, or is being created or dropped"
        try:
            metadata = (await load_head(self._lake, pointer.value.kind, pointer.value.head)).metadata
        except SandurError as error:
            return f"it cannot be read: {error}"
        refusal = refusal_of(metadata.properties, kind=pointer.value.kind, levels=name.levels)
        if refusal or not isinstance(metadata, TableMetadata):
            return refusal
        if refusal := await location_refusal(self._lake, name.catalog, metadata.location):
            return refusal
        return Place(pointer, metadata.location.rstrip("/"))

    async def look(self, uuid: str, place: Place, suspects: Suspects, *, is_whole: bool) -> str:
        del is_whole  # The share of orphans is checked afterwards (O7).
        await self._references.refresh()
        if refusal := await self._references.refusal(uuid, place.record.value.table_uuid, place.location):
            return refusal
        if clone := await self._clones.user_of(uuid, canonical_address(place.location)):
            return clone
        suspects.clear(self._references.foreign(uuid))
        # Read again: a transaction may have become pending, and a commit may have happened.
        current = await self._lake.pointer(uuid).read()
        if current is None or current.value.state != "live":
            return "it was dropped"
        async for batch in references_of(self._lake, current.value):
            suspects.clear(batch)
        return ""
